//! `yuebing topology`: which NIC serves which memory first.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Command, FromArgMatches};
use yb_topology::{Choice, LinkReport, LocalNic, Origin, Topology};

use crate::args::TopologyArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::output;

/// Runs under the peer's name, with the peer's flags.
pub fn run_as(name: &'static str, arguments: Vec<OsString>) -> Outcome {
    let command = TopologyArgs::augment_args(Command::new(name).no_binary_name(true));
    let matches = command.about("Show which NIC serves which memory first").try_get_matches_from(arguments);
    match matches.and_then(|matches| TopologyArgs::from_arg_matches(&matches)) {
        Ok(args) => run(&args),
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            // A reader that went away does not change the exit code.
            let _ = error.print();
            Err(Failure::new(exit, ""))
        }
    }
}

/// Runs under ours.
pub fn run(args: &TopologyArgs) -> Outcome {
    let topology = Topology::discover();
    let choice = choice(args, |name| std::env::var(name).ok().filter(|value| !value.is_empty()))?;
    let (matrix, origin) = choice.matrix(&topology).map_err(|error| {
        let path = choice.custom.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        Failure::failed(format!("{path}: {error}"))
    })?;
    if let (Some(path), Origin::Discovered) = (&choice.custom, &origin) {
        yb_env::complain!("{}: cannot be read; the host's own topology is shown", path.display());
    }
    if args.json || args.links {
        let nics = topology.nics().iter().filter(|nic| choice.allows(&nic.name)).map(LocalNic::known).collect();
        let report = LinkReport { nics, matrix };
        return if args.json { output::line(report.to_json()) } else { output::bytes(report.to_text().as_bytes()) };
    }
    let mode = match &origin {
        Origin::Discovered => "discover".to_owned(),
        Origin::Custom(path) => format!("custom ({})", path.display()),
    };
    output::line(format!("Local topology [{}/{mode}]: {}", backend(args), matrix.to_text()))
}

fn choice(args: &TopologyArgs, lookup: impl Fn(&str) -> Option<String>) -> Outcome<Choice> {
    let environment = Choice::from_env(lookup);
    let custom: Option<PathBuf> = match &args.custom_topo_json {
        Some(path) => Some(path.clone()),
        None if args.use_custom_topo && environment.custom.is_none() => {
            return Err(Failure::failed("--use-custom-topo requires MC_CUSTOM_TOPO_JSON or --custom-topo-json"));
        }
        None => environment.custom.filter(|_| args.use_custom_topo),
    };
    let named = Choice::split(&args.device_name);
    Ok(Choice { custom, filters: if named.is_empty() { environment.filters } else { named } })
}

fn backend(args: &TopologyArgs) -> &str {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    match args.backend.as_str() {
        "auto" if set("MC_USE_TENT") || set("MC_USE_TEV1") => "tent",
        "auto" => "te",
        other => other,
    }
}
