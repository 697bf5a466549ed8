//! Log lines of the native code: to standard error, from `warn` on unless `YB_LOG` says otherwise.

use std::io::IsTerminal;
use std::sync::Once;

use tracing_subscriber::EnvFilter;

/// It is said once.
static SAID: Once = Once::new();

/// Starts them, once; keeps a subscriber that the process has already.
pub(crate) fn start() {
    let asked = std::env::var("YB_LOG").ok().filter(|asked| !asked.is_empty());
    let read = asked.as_ref().map(EnvFilter::try_new);
    let usual = || EnvFilter::new("warn,yb_client::report=info");
    let unread = read.as_ref().and_then(|read| read.as_ref().err()).map(ToString::to_string);
    let filter = read.and_then(Result::ok).unwrap_or_else(usual);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    // An error only says that there is a subscriber.
    let _ = lines.try_init();
    if let (Some(asked), Some(error)) = (asked, unread) {
        SAID.call_once(|| tracing::warn!(asked, error, "YB_LOG cannot be read; warnings and errors are logged"));
    }
}
