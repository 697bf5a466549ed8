//! The process: arguments in, exit code out.

use std::io::Write;
use std::process::ExitCode;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::filter::LevelFilter;
use yb_settings::{Arguments, Values, help_plain, parse_arguments};

use crate::{NODE, Node, NodeConfig, NodeError};

/// Exit code of a process that was called wrongly.
const USAGE: u8 = 2;

/// Runs a node until SIGTERM, SIGINT or SIGHUP. `program` is the name to show; `arguments` do not contain it.
///
/// The first signal lets it move what it holds to other nodes, for `drain_seconds`; a second one ends that.
///
/// Exit codes: 0 after a signal, also while it waits for its master; 1 when the node could not start, 2 for wrong arguments.
pub fn run(program: &str, arguments: &[String]) -> ExitCode {
    let environment = |name: &str| std::env::var(name).ok();
    let values = match parse_arguments(&NODE, arguments, &environment) {
        Ok(Arguments::Help(style)) => {
            print(&format!("{program}: lends memory to the pool\n\n{}\n", help_plain(&NODE, program, &style)));
            return ExitCode::SUCCESS;
        }
        Ok(Arguments::Version) => {
            print(&format!("{program} {}\n", env!("CARGO_PKG_VERSION")));
            return ExitCode::SUCCESS;
        }
        Ok(Arguments::Run(given)) => NODE.resolve(given, &environment),
        Err(error) => Err(error),
    };
    match values {
        Ok(values) => serve(program, &values),
        Err(error) => {
            yb_env::complain!("{program}: {error}");
            ExitCode::from(USAGE)
        }
    }
}

/// Writes to standard output; a reader that left early (`| head`) is no error.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn serve(program: &str, values: &Values) -> ExitCode {
    start_logging(values);
    // Before the node joins, so that no signal can leave it mounted.
    let mut signals = match Signals::new([SIGTERM, SIGINT, SIGHUP]) {
        Ok(signals) => signals,
        Err(error) => {
            yb_env::complain!("{program}: cannot catch signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let config = NodeConfig::from_values(values).map_err(NodeError::from);
    let node = match config.and_then(|config| Node::start(&config, || signals.pending().next().is_none())) {
        Ok(node) => node,
        Err(NodeError::Ended) => {
            tracing::info!("asked to end while it waited for the master");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            yb_env::complain!("{program}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let dummies = node.daemon().map_or(String::new(), |daemon| format!(", dummy clients at {}", daemon.address()));
    let ready = format!(
        "{program} ready: segment {} of {} bytes at {}, master {}{dummies}",
        node.name(),
        node.lent_bytes(),
        node.endpoint(),
        values.text("master_server_address")
    );
    // Not in the log as well: on a terminal both are read. Whoever reads the line may have gone; the node serves on.
    let _ = writeln!(std::io::stdout(), "{ready}").and_then(|()| std::io::stdout().flush());
    let signal = signals.forever().next();
    tracing::info!(?signal, "leaving the pool");
    node.drain(|| signals.pending().next().is_none());
    node.stop();
    ExitCode::SUCCESS
}

fn start_logging(values: &Values) {
    let level = match (values.signed("v"), values.number("minloglevel")) {
        (2.., _) => LevelFilter::TRACE,
        (1, _) => LevelFilter::DEBUG,
        (_, 0) => LevelFilter::INFO,
        (_, 1) => LevelFilter::WARN,
        (_, 2) => LevelFilter::ERROR,
        _ => LevelFilter::OFF,
    };
    // A command that embeds the node may have set logging up already.
    let lines = tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).with_ansi(false);
    // A line that cannot be written is lost; by default it would panic the thread that logs.
    let _ = lines.log_internal_errors(false).try_init();
}
