//! How other threads reach a worker: letters in a box and an eventfd that wakes its loop.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::service::{ListenerTag, SessionId};

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum Letter {
    /// A new connection.
    Adopt { socket: OwnedFd, tag: ListenerTag, peer: Option<SocketAddr> },
    /// The late answer to a request: a whole frame.
    Deferred { session: SessionId, frame: Vec<u8>, failed: bool },
    /// Leave the loop.
    Stop,
}

/// The box of one worker.
#[derive(Debug)]
pub(crate) struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    rung: AtomicBool,
    bell: OwnedFd,
}

impl Mailbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Mailbox { letters: Mutex::default(), rung: AtomicBool::new(false), bell })
    }

    /// Leaves a letter; rings only when the worker has not been rung since it last looked.
    pub(crate) fn post(&self, letter: Letter) {
        self.letters.lock().push(letter);
        if !self.rung.swap(true, Ordering::AcqRel) {
            self.ring();
        }
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
