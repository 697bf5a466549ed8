//! The daemons: master, node and metadata server, under the peer's names or ours. They take the peer's flags.

use std::ffi::{CStr, OsString};
use std::net::IpAddr;
use std::process::ExitCode;

use clap::{Args, Command, FromArgMatches};
use rustix::process::{Resource, getrlimit, setrlimit};
use tracing_subscriber::EnvFilter;
use yb_admin::{MetadataOptions, MetadataServer};
use yb_master::CommandStyle;
use yb_secure::Security;

use crate::args::MetadataServerArgs;
use crate::failure::{Exit, Failure, Outcome};
use crate::signals::Signals;
use crate::supervise;

/// `mooncake_master`, `yuebing master`
pub fn master(name: &str, style: CommandStyle, arguments: Vec<OsString>) -> ExitCode {
    if style == CommandStyle::Peer {
        show_as(c"mooncake_master");
    }
    start(name, arguments, |arguments| yb_master::run(arguments, style))
}

/// `mooncake_client`, `yuebing node`
pub fn node(name: &str, arguments: Vec<OsString>) -> ExitCode {
    if name == "mooncake_client" {
        show_as(c"mooncake_client");
    }
    start(name, arguments, |arguments| yb_node::run(name, arguments))
}

/// `mooncake_http_metadata_server`
pub fn metadata(name: &'static str, arguments: Vec<OsString>) -> ExitCode {
    let command = MetadataServerArgs::augment_args(Command::new(name).no_binary_name(true));
    let matches = command.about("HTTP metadata server for Transfer Engines").try_get_matches_from(arguments);
    match matches.and_then(|matches| MetadataServerArgs::from_arg_matches(&matches)) {
        Ok(args) => metadata_with(&args),
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Done };
            // A reader that went away does not change the exit code.
            let _ = error.print();
            exit.into()
        }
    }
}

/// `yuebing metadata-server`
pub fn metadata_with(args: &MetadataServerArgs) -> ExitCode {
    match serve_metadata(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            yb_env::complain!("metadata server: {failure}");
            failure.exit.into()
        }
    }
}

fn serve_metadata(args: &MetadataServerArgs) -> Outcome {
    start_log(&args.log_level);
    take_all_descriptors();
    supervise::die_with_parent()?;
    let lookup = |name: &str| std::env::var(name).ok();
    if lookup("MC_METADATA_HTTP_TOKEN").is_some_and(|token| token.is_empty()) {
        return Err(Failure::usage("MC_METADATA_HTTP_TOKEN is set, but empty: give it a value or unset it"));
    }
    let listen = if args.host.contains(':') && !args.host.starts_with('[') {
        format!("[{}]:{}", args.host, args.port)
    } else {
        format!("{}:{}", args.host, args.port)
    };
    let mut options = MetadataOptions::from_env(listen, lookup);
    options.security = Security::from_env().map_err(|error| Failure::new(Exit::Usage, error.to_string()))?;
    options.limits.replace = args.newest_wins;
    // With a token the server keeps to the rules of 0.3.14.
    options.limits.unchanged = options.token.is_some();
    let insecure = lookup("MC_METADATA_HTTP_ALLOW_INSECURE");
    let insecure = insecure.is_some_and(|text| matches!(text.to_ascii_lowercase().as_str(), "1" | "true" | "yes"));
    if args.require_token && options.token.is_none() && !insecure && !is_loopback(&args.host) {
        let text =
            "listening where others can connect needs MC_METADATA_HTTP_TOKEN (or MC_METADATA_HTTP_ALLOW_INSECURE=1)";
        return Err(Failure::failed(text));
    }
    // Before anything runs, so that a signal during the start is not lost.
    let signals = Signals::catch()?;
    let server = MetadataServer::start(options).map_err(|error| Failure::failed(error.to_string()))?;
    tracing::info!("metadata server: http://{}/metadata", server.address());
    signals.wait();
    Ok(())
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn start_log(level: &str) {
    let level = match level.to_ascii_uppercase().as_str() {
        "DEBUG" => "debug",
        "WARNING" => "warn",
        "ERROR" | "CRITICAL" => "error",
        _ => "info",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    // A second start in one process keeps the first log.
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // A line that cannot be written is lost; by default it would panic the thread that logs.
    let _ = lines.log_internal_errors(false).try_init();
}

/// `transfer_engine_bench`, `yuebing transfer-engine-bench`
pub fn transfer_engine_bench(name: &str, arguments: Vec<OsString>) -> ExitCode {
    start(name, arguments, |arguments| {
        let signals = match Signals::catch() {
            Ok(signals) => signals,
            Err(failure) => {
                yb_env::complain!("{name}: {failure}");
                return failure.exit.into();
            }
        };
        yb_bench::peer::main(name, arguments, Box::new(move || signals.wait()))
    })
}

/// Gives the process the name under which the peer's users look for it, whatever the file is called.
fn show_as(name: &CStr) {
    if let Err(error) = rustix::thread::set_name(name) {
        yb_env::complain!("{}: the process keeps the name of its file: {error}", name.to_string_lossy());
    }
}

/// Raises the limit of open files as far as it goes without rights: the usual one, 1024, is less than what a thousand
/// strangers' connections take, and then nobody else would get in.
fn take_all_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        yb_env::complain!("the limit of open files stays as it is: {error}");
    }
}

fn start(name: &str, arguments: Vec<OsString>, run: impl FnOnce(&[String]) -> ExitCode) -> ExitCode {
    let arguments: Result<Vec<String>, OsString> = arguments.into_iter().map(OsString::into_string).collect();
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(bad) => {
            yb_env::complain!("{name}: not UTF-8: {bad:?}");
            return Exit::Usage.into();
        }
    };
    take_all_descriptors();
    match supervise::die_with_parent() {
        Ok(()) => run(&arguments),
        Err(failure) => {
            yb_env::complain!("{name}: {failure}");
            failure.exit.into()
        }
    }
}
