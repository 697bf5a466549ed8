//! The master as a command.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use yb_settings::master::MASTER;
use yb_settings::{Arguments, HelpStyle, SettingsError, help_gflags, help_plain, parse_arguments};

use crate::config::MasterConfig;
use crate::control::Origin;
use crate::log::LogHandle;
use crate::master::Master;
use crate::shared::generation_text;

/// Whose help the command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommandStyle {
    /// As `mooncake_master`: help in the manner of gflags, which ends with exit code 1.
    Peer,
    /// As `yuebing master`.
    Ours,
}

/// Exit code of a command of ours that was called wrongly.
const USAGE: u8 = 2;

/// Runs a master until SIGTERM or SIGINT. `arguments` are those after the command's name. Errors go to standard error
/// in one line, with exit code 1; settings that cannot be give 2, but under the peer's name 1 as there.
pub fn run(arguments: &[String], style: CommandStyle) -> ExitCode {
    match run_inner(arguments, style) {
        Ok(code) => code,
        Err(error) => {
            yb_env::complain!("error: {error}");
            let usage = style == CommandStyle::Ours && error.is::<SettingsError>();
            if usage { ExitCode::from(USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn run_inner(arguments: &[String], style: CommandStyle) -> Result<ExitCode, Box<dyn std::error::Error>> {
    let environment = |name: &str| std::env::var(name).ok();
    let given = match parse_arguments(&MASTER, arguments, &environment)? {
        Arguments::Run(given) => given,
        Arguments::Help(help) => return Ok(print_help(style, &help)),
        Arguments::Version => {
            print(&format!("{} {}\n", program(style), env!("CARGO_PKG_VERSION")));
            return Ok(ExitCode::SUCCESS);
        }
    };
    let values = MASTER.resolve(given.clone(), &environment)?;
    if environment("MC_RPC_PROTOCOL").is_some_and(|protocol| protocol == "rdma") {
        let text = "MC_RPC_PROTOCOL=rdma: RPC over RDMA is not built yet; unset it".to_owned();
        return Err(SettingsError::Conflict(text).into());
    }
    let colours = values.flag("colorlogtostderr") && std::io::stderr().is_terminal();
    let log = LogHandle::start(&values, colours)?;
    // Before anything runs, so that a signal during the start is not lost.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let changed = values.changed(&MASTER);
    tracing::info!(
        event = "master_starts",
        version = env!("CARGO_PKG_VERSION"),
        "master starts; set off their defaults: [{changed}]"
    );
    let mut config = MasterConfig::from_values(&values)?;
    config.origin = Some(Origin { arguments: given, values, log });
    let master = Master::start(config)?;
    announce(&master);
    for signal in signals.forever() {
        if signal != SIGHUP {
            tracing::info!(event = "master_stops", signal, "master stops");
            break;
        }
        // What came of it is in the log.
        let _ = master.reload();
    }
    master.shutdown();
    Ok(ExitCode::SUCCESS)
}

fn announce(master: &Master) {
    for (bound, version) in master.listeners() {
        let generation = generation_text(*version);
        tracing::info!(event = "rpc_listens", backend = ?master.backend(), "RPC listens on {} for {generation} clients", bound.address);
    }
    if let Some(address) = master.admin_address() {
        tracing::info!(event = "admin_listens", "admin HTTP and status page: http://{address}/");
    }
    if let Some(address) = master.metadata_address() {
        tracing::info!("Transfer Engines use the metadata server http://{address}/metadata");
    }
    tracing::info!("clients use the master address {}", master.advertised());
}

fn program(style: CommandStyle) -> &'static str {
    match style {
        CommandStyle::Peer => "mooncake_master",
        CommandStyle::Ours => "yuebing master",
    }
}

fn print_help(style: CommandStyle, help: &HelpStyle) -> ExitCode {
    match style {
        CommandStyle::Peer => {
            print(&help_gflags(&MASTER, help));
            ExitCode::FAILURE
        }
        CommandStyle::Ours => {
            let program = program(style);
            print(&format!(
                "{program}: says where the objects of a pool are\n\n{}",
                help_plain(&MASTER, program, help)
            ));
            ExitCode::SUCCESS
        }
    }
}

/// Writes to standard output; a reader that left early (`| head`) is no error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
