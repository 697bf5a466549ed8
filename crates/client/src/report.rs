//! Who tells others of a client without being asked: summaries in the log.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use crate::bell::Bell;
use crate::core::Core;
use crate::page::{PageServer, summary};
use crate::{Error, Result};

/// All who tell of one client. They end when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) page: Option<PageServer>,
    pub(crate) _reporter: Option<Reporter>,
}

/// A thread that logs a summary now and then.
#[derive(Debug)]
pub(crate) struct Reporter {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// `None` when no summaries are wanted.
    pub(crate) fn start(core: &Arc<Core>) -> Result<Option<Self>> {
        let every = core.config.metrics.report_every;
        if every.is_zero() {
            return Ok(None);
        }
        let bell = Arc::new(Bell::default());
        let (of_thread, core) = (Arc::clone(&bell), Arc::downgrade(core));
        let thread = yb_env::spawn_thread("yb-report", move || {
            while !of_thread.stopped_within(every) {
                report(&core);
            }
        });
        let thread = thread.map_err(|error| Error::setup("the thread for summaries", error))?;
        Ok(Some(Reporter { bell, thread: Some(thread) }))
    }
}

fn report(core: &Weak<Core>) {
    let Some(core) = core.upgrade() else { return };
    tracing::info!(summary = summary(&core), "what the client did since its setup");
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.bell.stop();
        // The thread itself may be the last to hold the client.
        let other = |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some(thread) = self.thread.take().filter(other)
            && thread.join().is_err()
        {
            tracing::error!("the thread for summaries panicked");
        }
    }
}
