//! How a thread that comes back now and then is told to end.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// Rung once, when the thread is to end.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Ends the wait that is under way, and all later ones.
    pub(crate) fn stop(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for so long; true at once when the thread is to end.
    pub(crate) fn stopped_within(&self, time: Duration) -> bool {
        let mut stopped = self.stopped.lock();
        self.changed.wait_while_for(&mut stopped, |stopped| !*stopped, time);
        *stopped
    }
}
