//! How other threads reach a worker: letters in a box and an eventfd that wakes its loop.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::acceptor::Arrival;
use super::service::SessionId;

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Letter {
    /// A new connection.
    Adopt { socket: OwnedFd, arrival: Arrival },
    /// The late answer to a request: a whole frame.
    Deferred { session: SessionId, frame: Vec<u8>, failed: bool },
    /// Leave the loop.
    Stop,
}

/// What somebody wants done when a connection ends.
type Farewell = Box<dyn FnOnce() + Send>;

/// Connections whose end somebody waits for.
#[derive(Default)]
struct Farewells {
    of: Mutex<BTreeMap<SessionId, Farewell>>,
    /// Set with the first one: who closes connections need not look before.
    any: AtomicBool,
}

impl std::fmt::Debug for Farewells {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Farewells").field("any", &self.any).finish_non_exhaustive()
    }
}

/// The box of one worker.
#[derive(Debug)]
pub(crate) struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    /// Connections that ended while answers were owed to them, and how many of these have not come.
    gone: Mutex<BTreeMap<SessionId, usize>>,
    rung: AtomicBool,
    bell: OwnedFd,
    farewells: Farewells,
}

impl Mailbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Mailbox {
            letters: Mutex::default(),
            gone: Mutex::default(),
            rung: AtomicBool::new(false),
            bell,
            farewells: Farewells::default(),
        })
    }

    /// Leaves a letter; rings only when the worker has not been rung since it last looked.
    pub(crate) fn post(&self, letter: Letter) {
        self.letters.lock().push(letter);
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.ring();
        }
    }

    /// What is to be done when a connection ends; `false`: something is already, and that stays.
    pub(crate) fn when_closed(&self, session: SessionId, farewell: Farewell) -> bool {
        self.farewells.any.store(true, Ordering::Relaxed);
        let mut of = self.farewells.of.lock();
        let is_first = !of.contains_key(&session);
        if is_first {
            of.insert(session, farewell);
        }
        is_first
    }

    /// A connection has ended.
    pub(crate) fn closed(&self, session: SessionId) {
        if self.farewells.any.load(Ordering::Relaxed) {
            let farewell = self.farewells.of.lock().remove(&session);
            farewell.into_iter().for_each(|farewell| farewell());
        }
    }

    /// Notes that nobody waits for the answers that a connection is owed.
    pub(crate) fn forget(&self, session: SessionId, owed: usize) {
        if owed > 0 {
            self.gone.lock().insert(session, owed);
        }
    }

    /// One of the answers came that nobody waits for.
    pub(crate) fn came_late(&self, session: SessionId) {
        let mut gone = self.gone.lock();
        if let Some(owed) = gone.get_mut(&session) {
            *owed -= 1;
            if *owed == 0 {
                gone.remove(&session);
            }
        }
    }

    /// Whether the connection is gone, for one that is owed an answer.
    pub(crate) fn is_gone(&self, session: SessionId) -> bool {
        self.gone.lock().contains_key(&session)
    }

    fn ring(&self) {
        // An eventfd write fails only when its count is at the maximum, and then the worker is awake anyway.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// Silences the bell and takes what is there. Letters left after the swap ring again.
    pub(crate) fn take(&self, into: &mut Vec<Letter>) {
        let mut count = [0u8; 8];
        // Nothing to read is fine: the letters may have been taken by an earlier turn.
        let _ = rustix::io::read(&self.bell, &mut count);
        self.rung.swap(false, Ordering::AcqRel);
        into.append(&mut self.letters.lock());
    }
}

impl AsFd for Mailbox {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
