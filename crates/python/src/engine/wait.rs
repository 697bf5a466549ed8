//! Waiting without the interpreter, with signals let through.
//!
//! Python runs signal handlers on its main thread only, and only while that thread runs Python. A call that waits there
//! looks every slice whether one is due; on other threads it just waits.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// How long a signal may wait.
pub(crate) const SLICE: Duration = Duration::from_millis(50);
/// How long a thread waits at once that signals do not concern.
const LONG: Duration = Duration::from_secs(3600);

/// Whether this is the thread that Python runs signal handlers on.
pub(crate) fn on_main_thread() -> bool {
    rustix::thread::gettid() == rustix::process::getpid()
}

enum Cell<T> {
    Empty,
    Full(T),
    /// The giver is gone.
    Lost,
}

/// The end that gives a result, once. Dropped without one, it says so.
pub(crate) struct Giver<T>(Arc<(Mutex<Cell<T>>, Condvar)>);

/// The end that waits for it.
pub(crate) struct Taker<T>(Arc<(Mutex<Cell<T>>, Condvar)>);

/// Both ends.
pub(crate) fn outcome<T>() -> (Giver<T>, Taker<T>) {
    let shared = Arc::new((Mutex::new(Cell::Empty), Condvar::new()));
    (Giver(Arc::clone(&shared)), Taker(shared))
}

impl<T> Giver<T> {
    /// Gives the result.
    pub(crate) fn give(self, result: T) {
        *self.0.0.lock() = Cell::Full(result);
        self.0.1.notify_all();
    }
}

impl<T> Drop for Giver<T> {
    fn drop(&mut self) {
        let mut cell = self.0.0.lock();
        if matches!(*cell, Cell::Empty) {
            *cell = Cell::Lost;
            self.0.1.notify_all();
        }
    }
}

impl<T: Send> Taker<T> {
    /// Waits for the result with signals let through; the exception of a signal handler ends the wait.
    pub(crate) fn wait(&self, py: Python<'_>) -> PyResult<T> {
        let main = on_main_thread();
        loop {
            let cell = py.detach(|| {
                let mut cell = self.0.0.lock();
                if matches!(*cell, Cell::Empty) {
                    self.0.1.wait_for(&mut cell, if main { SLICE } else { LONG });
                }
                std::mem::replace(&mut *cell, Cell::Empty)
            });
            match cell {
                Cell::Full(result) => return Ok(result),
                Cell::Lost => return Err(PyRuntimeError::new_err("the call did not end properly")),
                Cell::Empty => py.check_signals()?,
            }
        }
    }
}

/// Runs `work` without the interpreter. An exception of a signal handler ends the wait, not the work.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    if !on_main_thread() {
        return Ok(py.detach(work));
    }
    let (giver, taker) = outcome();
    yb_env::spawn_thread("yb-python", move || giver.give(work()))?;
    taker.wait(py)
}
