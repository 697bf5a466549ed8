//! Ctrl-C during work that cannot be stopped half way: one line says what was done so far, and the process ends with 130.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use yb_env::spawn_thread;

use crate::failure::{Exit, Failure, Outcome};
use crate::signals::Signals;

/// What was done so far, in words.
type SoFar = Box<dyn Fn() -> String + Send>;

/// Work that a signal may end.
pub struct Interruptible {
    /// What a signal says that ends the process at once; `None`: whoever works looks by himself.
    so_far: Arc<Mutex<Option<SoFar>>>,
    received: Arc<AtomicBool>,
}

impl Interruptible {
    /// From now on a signal says this and ends the process.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn start(so_far: &'static str) -> Outcome<Interruptible> {
        let signals = Signals::catch()?;
        let work = Interruptible { so_far: Arc::default(), received: signals.flag() };
        work.so_far(move || so_far.to_owned());
        let told = Arc::clone(&work.so_far);
        spawn_thread("signals", move || {
            signals.wait();
            // Held to the end, so that nothing more is begun.
            if let Some(text) = &*locked(&told) {
                yb_env::complain!("yuebing: interrupted: {}", text());
                // The destructors of what is under way would wait for it.
                signal_hook::low_level::exit(Exit::Interrupted as i32);
            }
        })
        .map_err(|e| Failure::failed(format!("cannot start a thread: {e}")))?;
        Ok(work)
    }

    /// What a signal says from now on.
    pub fn so_far(&self, text: impl Fn() -> String + Send + 'static) {
        *locked(&self.so_far) = Some(Box::new(text));
    }

    /// From now on a signal ends nothing by itself: there are things to put in order first.
    pub fn hold(&self) {
        *locked(&self.so_far) = None;
    }

    /// Set when a signal has come.
    pub fn flag(&self) -> &AtomicBool {
        &self.received
    }

    /// Whether a signal has come.
    pub fn is_asked(&self) -> bool {
        self.received.load(Ordering::SeqCst)
    }
}

fn locked(so_far: &Mutex<Option<SoFar>>) -> MutexGuard<'_, Option<SoFar>> {
    so_far.lock().unwrap_or_else(PoisonError::into_inner)
}
