//! Log lines of the process: where they go, which level, and how many of a kind.
//!
//! Every line of importance carries `event="name"`, a name that stays (`docs/admin.md` lists them). A line that repeats
//! is written [`BURST`] times, then [`PER_SECOND`] times a second; what is left out is counted and said in one line.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::fmt::writer::{BoxMakeWriter, MakeWriterExt};
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt as lines, reload};
use yb_env::Clock;
use yb_settings::{SettingsError, Values};
use yb_types::MonotonicTime;

use crate::log_file::LogFile;

/// Lines of one kind that may come at once.
const BURST: u32 = 200;
/// Lines of one kind a second after that.
const PER_SECOND: u32 = 20;

/// How many lines of one kind may still be written.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: u32,
    filled: MonotonicTime,
}

/// Keeps kinds of lines apart by the place in the code that they come from.
pub(crate) struct Throttle {
    clock: Clock,
    buckets: Mutex<HashMap<Identifier, Bucket>>,
    suppressed: AtomicU64,
}

impl Throttle {
    fn new(clock: Clock) -> Throttle {
        Throttle { clock, buckets: Mutex::default(), suppressed: AtomicU64::new(0) }
    }

    /// Whether a line of this kind may be written now.
    fn admits(&self, kind: Identifier) -> bool {
        let now = self.clock.now();
        let mut buckets = self.buckets.lock();
        let bucket = buckets.entry(kind).or_insert(Bucket { left: BURST, filled: now });
        let earned = now.since(bucket.filled).as_millis() * u128::from(PER_SECOND) / 1000;
        if earned > 0 {
            bucket.left = bucket.left.saturating_add(u32::try_from(earned).unwrap_or(BURST)).min(BURST);
            bucket.filled = now;
        }
        let admitted = bucket.left > 0;
        bucket.left = bucket.left.saturating_sub(1);
        self.suppressed.fetch_add(u64::from(!admitted), Ordering::Relaxed);
        admitted
    }

    /// Lines left out since the start.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }
}

/// The throttle as a part of the log.
struct Throttled(Arc<Throttle>);

impl<S: Subscriber> Filter<S> for Throttled {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        self.0.admits(event.metadata().callsite())
    }
}

/// The log of this process, for those who change its level.
#[derive(Clone)]
pub struct LogHandle {
    level: Option<reload::Handle<EnvFilter, Registry>>,
    throttle: Arc<Throttle>,
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LogHandle")
    }
}

impl LogHandle {
    /// Starts the log that the settings ask for. A second start in one process keeps the first log.
    ///
    /// # Errors
    /// A log file cannot be opened.
    pub(crate) fn start(values: &Values, colours: bool) -> Result<LogHandle, SettingsError> {
        // The environment wins over the settings at the start; a level that is set later wins over both.
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level(values)));
        let (filter, handle) = reload::Layer::new(filter);
        let throttle = Arc::new(Throttle::new(Clock::real()));
        let (folder, link) = (values.text("log_dir"), values.text("log_link"));
        let file = match folder {
            "" => None,
            folder => Some(LogFile::open(folder, link, values.number("max_log_size") << 20).map_err(|error| {
                SettingsError::Illegal { name: "log_dir".into(), text: folder.into(), why: error.to_string() }
            })?),
        };
        let writer = match file {
            None => BoxMakeWriter::new(std::io::stderr),
            Some(file) if values.flag("alsologtostderr") => BoxMakeWriter::new(file.and(std::io::stderr)),
            Some(file) => BoxMakeWriter::new(file),
        };
        let written = lines::layer().with_writer(writer).with_ansi(colours && folder.is_empty());
        let written: Box<dyn Layer<_> + Send + Sync> = match (values.text("log_format"), values.flag("log_prefix")) {
            ("json", _) => written.json().flatten_event(true).boxed(),
            (_, true) => written.boxed(),
            (_, false) => written.without_time().with_level(false).with_target(false).boxed(),
        };
        let written = written.with_filter(Throttled(Arc::clone(&throttle)));
        let started = tracing_subscriber::registry().with(filter).with(written).try_init();
        Ok(LogHandle { level: started.is_ok().then_some(handle), throttle })
    }

    /// From now on the level of these settings.
    pub(crate) fn set_level(&self, values: &Values) {
        if let Some(handle) = &self.level
            && let Err(error) = handle.reload(EnvFilter::new(level(values)))
        {
            tracing::error!(event = "log_level_failed", %error, "the level of the log stays as it is");
        }
    }

    /// Lines left out since the start because too many of their kind came.
    pub(crate) fn suppressed(&self) -> u64 {
        self.throttle.suppressed()
    }
}

/// `minloglevel` and `v` as a level.
fn level(values: &Values) -> &'static str {
    match (values.number("minloglevel"), values.signed("v")) {
        (0, v) if v >= 2 => "trace",
        (0, v) if v >= 1 => "debug",
        (0, _) => "info",
        (1, _) => "warn",
        (2, _) => "error",
        _ => "off",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_of_one_kind_is_thinned_and_others_are_not() {
        let clock = Clock::manual();
        let throttle = Arc::new(Throttle::new(clock.clone()));
        let seen = Arc::new(Mutex::new(Vec::new()));
        struct Collect(Arc<Mutex<Vec<String>>>);
        impl<S: Subscriber> Layer<S> for Collect {
            fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
                self.0.lock().push(event.metadata().name().to_owned());
            }
        }
        let layer = Collect(Arc::clone(&seen)).with_filter(Throttled(Arc::clone(&throttle)));
        let flood = |n: u32| (0..n).for_each(|i| tracing::info!(i, "flood"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            flood(BURST + 50);
            assert_eq!((seen.lock().len() as u32, throttle.suppressed()), (BURST, 50));
            tracing::info!("another");
            assert_eq!(seen.lock().len() as u32, BURST + 1);
            clock.advance(Duration::from_secs(1));
            flood(100);
            assert_eq!(seen.lock().len() as u32, BURST + 1 + PER_SECOND);
        });
    }
}
