//! Log lines of the native code: to standard error, from `warn` on unless `YB_LOG` says otherwise.

use std::io::IsTerminal;
use std::sync::Once;

use tracing_subscriber::EnvFilter;

/// It is said once.
static SAID: Once = Once::new();

/// A single word that is no level would be the name of a module, and silence everything else.
fn filter_of(asked: &str) -> Result<EnvFilter, String> {
    let is_word = asked.chars().all(|letter| letter.is_ascii_alphanumeric());
    if is_word && asked.parse::<tracing_subscriber::filter::LevelFilter>().is_err() {
        return Err("it is none of error, warn, info, debug, trace, off".to_owned());
    }
    EnvFilter::try_new(asked).map_err(|error| error.to_string())
}

/// Starts them, once; keeps a subscriber that the process has already.
pub(crate) fn start() {
    let asked = std::env::var("YB_LOG").ok().filter(|asked| !asked.is_empty());
    let read = asked.as_ref().map(|asked| filter_of(asked));
    let usual = || EnvFilter::new("warn,yb_client::report=info");
    let unread = read.as_ref().and_then(|read| read.as_ref().err()).cloned();
    let filter = read.and_then(Result::ok).unwrap_or_else(usual);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        // A line that cannot be written is lost; by default it would panic the thread that logs.
        .log_internal_errors(false)
        .with_writer(std::io::stderr);
    // An error only says that there is a subscriber.
    let _ = lines.try_init();
    if let (Some(asked), Some(error)) = (asked, unread) {
        SAID.call_once(|| tracing::warn!(asked, error, "YB_LOG cannot be read; warnings and errors are logged"));
    }
}
