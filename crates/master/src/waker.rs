//! Wakes one waiting thread; a call that comes before the wait counts.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Debug, Default)]
struct State {
    woken: bool,
    stopped: bool,
}

/// A door bell with one listener.
#[derive(Debug, Default)]
pub(crate) struct Waker {
    state: Mutex<State>,
    bell: Condvar,
}

impl Waker {
    /// Ends the current or the next wait.
    pub(crate) fn wake(&self) {
        let mut state = self.state.lock();
        if !state.woken {
            state.woken = true;
            self.bell.notify_one();
        }
    }

    /// Ends every wait from now on; [`wait`](Self::wait) answers false.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.bell.notify_all();
    }

    /// Waits until woken or `timeout` has passed. False: stop.
    pub(crate) fn wait(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.woken && !state.stopped {
            let _ = self.bell.wait_for(&mut state, timeout);
        }
        state.woken = false;
        !state.stopped
    }
}
