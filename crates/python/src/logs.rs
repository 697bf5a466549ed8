//! Log lines of the native code: to standard error, from `warn` on unless `YB_LOG` says otherwise.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Starts them, once; keeps a subscriber that the process has already.
pub(crate) fn start() {
    let filter = EnvFilter::try_from_env("YB_LOG").unwrap_or_else(|_| EnvFilter::new("warn,yb_client::report=info"));
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // An error only says that there is a subscriber.
    let _ = lines.try_init();
}
