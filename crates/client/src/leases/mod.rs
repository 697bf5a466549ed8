//! Keeps the leases of long reads alive.
//!
//! A read of much memory, or over a slow network, may take longer than its lease. A thread looks its keys up again when
//! half of a lease is over: that renews the lease at the master, and tells whether the replica that is being read is still
//! the one that was found. It is started with the first read that may outlive its lease; a short read never meets it.

mod flights;

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use yb_env::Clock;
use yb_types::MonotonicTime;

use crate::counters::Counters;
use crate::deadline::Deadline;
use crate::link::MasterLink;
use crate::ops::Lookup;

use flights::Flights;
pub(crate) use flights::Watched;

/// Keys in one look.
const MOST_KEYS: usize = 4096;
/// Time that a look may take, if the lease has that much left.
const LOOK_TIME: Duration = Duration::from_secs(2);
/// How long the thread sleeps when nothing is watched.
const IDLE: Duration = Duration::from_secs(60);

/// What the thread works with.
#[derive(Debug)]
struct Shared {
    link: Arc<MasterLink>,
    clock: Clock,
    counters: Arc<Counters>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    flights: Flights,
    stopped: bool,
}

/// The thread, if there is one yet.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A read that is watched.
#[derive(Debug)]
pub(crate) struct Flight<'k> {
    shared: &'k Shared,
    number: u64,
}

impl LeaseKeeper {
    pub(crate) fn new(link: Arc<MasterLink>, clock: Clock, counters: Arc<Counters>) -> Self {
        let (state, changed) = (Mutex::default(), Condvar::new());
        LeaseKeeper { shared: Arc::new(Shared { link, clock, counters, state, changed }), thread: Mutex::new(None) }
    }

    /// Watches a read from now on; `None` when there is no thread for it.
    pub(crate) fn watch(&self, watched: Vec<Watched>) -> Option<Flight<'_>> {
        if watched.is_empty() || !self.runs() {
            return None;
        }
        let number = self.shared.state.lock().flights.begin(watched, self.shared.clock.now());
        self.shared.changed.notify_one();
        Some(Flight { shared: &self.shared, number })
    }

    fn runs(&self) -> bool {
        let mut thread = self.thread.lock();
        if self.shared.state.lock().stopped {
            return false;
        }
        if thread.is_none() {
            let shared = Arc::clone(&self.shared);
            match yb_env::spawn_thread("yb-leases", move || shared.run()) {
                Ok(started) => *thread = Some(started),
                Err(error) => tracing::warn!(%error, "no thread that renews leases: long reads may be made twice"),
            }
        }
        thread.is_some()
    }

    /// Ends the thread. The link must have been shut down, so that no look is waited for.
    pub(crate) fn stop(&self) {
        self.shared.state.lock().stopped = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that renews leases panicked");
        }
    }
}

impl Flight<'_> {
    /// The bytes are there: how the leases stand.
    pub(crate) fn end(self) -> Vec<Watched> {
        self.shared.state.lock().flights.end(self.number)
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        self.shared.state.lock().flights.end(self.number);
    }
}

impl Shared {
    fn run(&self) {
        while let Some(now) = self.wait() {
            self.look(now);
        }
    }

    /// Until a lease is half over; `None` when the thread is to end.
    fn wait(&self) -> Option<MonotonicTime> {
        let mut state = self.state.lock();
        loop {
            if state.stopped {
                return None;
            }
            let now = self.clock.now();
            let pause = state.flights.next_look().map_or(IDLE, |at| at.since(now));
            if pause.is_zero() {
                return Some(now);
            }
            self.changed.wait_for(&mut state, pause);
        }
    }

    fn look(&self, now: MonotonicTime) {
        let questions = self.state.lock().flights.due(now, MOST_KEYS);
        let keys: Vec<&[u8]> = questions.iter().map(|question| question.key.as_slice()).collect();
        let deadline = Deadline { started: now, at: now + LOOK_TIME };
        let answers = if keys.is_empty() { None } else { self.link.lookup(&keys, &deadline).ok() };
        let mut state = self.state.lock();
        for (question, answer) in questions.iter().zip(answers.into_iter().flatten()) {
            let found = answer.ok().map(|found| Lookup::new(found, now));
            state.flights.answer(question, found.as_ref());
            self.counters.leases_renewed.add(1);
        }
        state.flights.rest(self.clock.now());
    }
}
