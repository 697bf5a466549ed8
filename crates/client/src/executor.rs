//! Threads that run blocking calls for the asynchronous face.
//!
//! The core of the client is blocking because its fast path has nothing to wait for but one request to the master: the
//! caller's thread does all the work. A caller that must not block hands the call to one of a few threads and gets a
//! future that needs no particular runtime.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use crate::{Error, Result};

type Job = Box<dyn FnOnce() + Send>;

/// A few threads with one queue, started on first use.
#[derive(Debug)]
pub(crate) struct Executor {
    shared: Arc<Shared>,
    most_threads: usize,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Shared").field("jobs", &state.jobs.len()).field("threads", &state.threads).finish()
    }
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    threads: usize,
    closed: bool,
}

impl Executor {
    pub(crate) fn new(most_threads: usize) -> Self {
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new() });
        Executor { shared, most_threads: most_threads.max(1) }
    }

    /// Runs `call` on one of the threads.
    pub(crate) fn run<T: Send + 'static>(&self, call: impl FnOnce() -> Result<T> + Send + 'static) -> Pending<T> {
        let slot = Arc::new(Slot::default());
        let answer = Answer { slot: Arc::clone(&slot), open: true };
        self.push(Box::new(move || answer.give(call())));
        Pending { slot }
    }

    fn push(&self, job: Job) {
        let mut state = self.shared.state.lock();
        if state.closed {
            return;
        }
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < self.most_threads {
            let shared = Arc::clone(&self.shared);
            match yb_env::spawn_thread("yb-client-async", move || shared.work()) {
                Ok(_) => state.threads += 1,
                Err(error) => tracing::warn!(%error, "cannot start a thread for asynchronous calls"),
            }
        }
        if state.threads == 0 {
            // Nobody would ever run it; dropping it answers `Closed`.
            state.jobs.clear();
        }
        drop(state);
        self.shared.changed.notify_one();
    }

    /// Lets running calls end and drops those that wait.
    pub(crate) fn close(&self) {
        let waiting = {
            let mut state = self.shared.state.lock();
            state.closed = true;
            std::mem::take(&mut state.jobs)
        };
        self.shared.changed.notify_all();
        drop(waiting);
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // A panic is the call's own failure: its future answers, and the thread goes on.
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!("an asynchronous call panicked");
                }
                state = self.state.lock();
            } else if state.closed {
                state.threads -= 1;
                return;
            } else {
                state.idle += 1;
                self.changed.wait(&mut state);
                state.idle -= 1;
            }
        }
    }
}

struct Slot<T> {
    state: Mutex<SlotState<T>>,
}

enum SlotState<T> {
    Waiting(Option<Waker>),
    Ready(Result<T>),
    Taken,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Slot { state: Mutex::new(SlotState::Waiting(None)) }
    }
}

/// The duty to answer; a call that is dropped unrun, or panics, answers `Closed`.
struct Answer<T> {
    slot: Arc<Slot<T>>,
    open: bool,
}

impl<T> Answer<T> {
    fn give(mut self, result: Result<T>) {
        self.put(result);
    }

    fn put(&mut self, result: Result<T>) {
        self.open = false;
        let before = std::mem::replace(&mut *self.slot.state.lock(), SlotState::Ready(result));
        if let SlotState::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Answer<T> {
    fn drop(&mut self) {
        if self.open {
            self.put(Err(Error::Closed));
        }
    }
}

/// An asynchronous call under way. Dropping it does not stop the call.
#[must_use = "the call runs anyway, its answer is lost"]
pub struct Pending<T> {
    slot: Arc<Slot<T>>,
}

impl<T> std::fmt::Debug for Pending<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl<T> Future for Pending<T> {
    type Output = Result<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.slot.state.lock();
        match std::mem::replace(&mut *state, SlotState::Taken) {
            SlotState::Ready(result) => Poll::Ready(result),
            SlotState::Waiting(_) => {
                *state = SlotState::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            // Polled again after it was ready: the answer is gone, and a future must not hang.
            SlotState::Taken => Poll::Ready(Err(Error::Closed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::task::Wake;

    struct Bell(Mutex<mpsc::Sender<()>>);
    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.lock().send(());
        }
    }

    fn wait<T>(mut pending: Pending<T>) -> Result<T> {
        let (sender, bell) = mpsc::channel();
        let waker = Waker::from(Arc::new(Bell(Mutex::new(sender))));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut pending).poll(&mut context) {
                Poll::Ready(result) => return result,
                Poll::Pending => bell.recv().unwrap(),
            }
        }
    }

    #[test]
    fn calls_run_at_the_same_time_and_answer_their_own_future() {
        let executor = Executor::new(2);
        let (sender, receiver) = mpsc::channel();
        let receiver = Arc::new(Mutex::new(receiver));
        let waits = executor.run(move || Ok(receiver.lock().recv().unwrap()));
        let sends = executor.run(move || {
            sender.send(41).unwrap();
            Ok(1)
        });
        assert_eq!(wait(sends).unwrap() + wait(waits).unwrap(), 42);
    }

    #[test]
    fn a_close_answers_what_has_not_run() {
        let executor = Executor::new(1);
        let (started, has_started) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let running = executor.run(move || {
            started.send(()).unwrap();
            released.recv().unwrap();
            Ok(())
        });
        has_started.recv().unwrap();
        let queued = executor.run(|| Ok(()));
        executor.close();
        assert_eq!(wait(queued), Err(Error::Closed));
        release.send(()).unwrap();
        assert_eq!(wait(running), Ok(()));
        assert_eq!(wait(executor.run(|| Ok(()))), Err(Error::Closed));
    }

    #[test]
    fn a_panic_answers_and_the_thread_lives_on() {
        let executor = Executor::new(1);
        let panics: Pending<()> = executor.run(|| panic!("on purpose"));
        assert_eq!(wait(panics), Err(Error::Closed));
        assert_eq!(wait(executor.run(|| Ok(7))), Ok(7));
    }
}
