//! What a caller waits for.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::TransferErrorKind;
use crate::transport::Limits;

/// Longest sleep where a token has no descriptor to wake us with.
const NAP_MS: u128 = 5;

/// Why a part of a job failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    /// The job's place in the call.
    pub(crate) job: usize,
    pub(crate) kind: TransferErrorKind,
    pub(crate) detail: String,
}

#[derive(Debug, Default)]
struct State {
    left: usize,
    failures: Vec<Failure>,
}

/// Counts the parts of a call that are not terminal yet.
#[derive(Debug)]
pub(crate) struct Ticket {
    state: Mutex<State>,
    bell: OwnedFd,
}

impl Ticket {
    /// For so many parts.
    ///
    /// # Errors
    /// The system's, when it has no descriptor left.
    pub(crate) fn new(parts: usize) -> io::Result<Self> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Ticket { state: Mutex::new(State { left: parts, failures: Vec::new() }), bell })
    }

    /// A part is terminal: nothing can touch its memory any more.
    pub(crate) fn finish(&self, failure: Option<Failure>) {
        let mut state = self.state.lock();
        state.failures.extend(failure);
        state.left = state.left.saturating_sub(1);
        if state.left == 0 {
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        self.state.lock().left == 0
    }

    pub(crate) fn take_failures(&self) -> Vec<Failure> {
        std::mem::take(&mut self.state.lock().failures)
    }

    /// Waits until all parts are terminal, or the limits say that they must be given up: then says why.
    pub(crate) fn wait_within(&self, limits: &Limits<'_>) -> Option<TransferErrorKind> {
        while !self.is_done() {
            if let Some(over) = limits.over() {
                return Some(over);
            }
            let wake = limits.cancel.and_then(crate::CancelToken::wake);
            let left = limits.deadline.since(limits.clock.now()).as_millis() + 1;
            let nap = limits.cancel.is_some() && wake.is_none();
            let bell = self.bell.as_fd();
            let mut fds = vec![PollFd::new(&bell, PollFlags::IN)];
            fds.extend(wake.as_ref().map(|wake| PollFd::new(wake, PollFlags::IN)));
            poll(&mut fds, Some(if nap { left.min(NAP_MS) } else { left }));
        }
        None
    }

    /// Waits until all parts are terminal.
    pub(crate) fn wait(&self) {
        while !self.is_done() {
            let bell = self.bell.as_fd();
            poll(&mut [PollFd::new(&bell, PollFlags::IN)], None);
        }
    }
}

/// Sleeps until a descriptor is readable, or so many milliseconds have passed.
pub(crate) fn poll(fds: &mut [PollFd<'_>], millis: Option<u128>) {
    let limit = millis.map(|millis| Timespec {
        tv_sec: i64::try_from(millis / 1000).unwrap_or(i64::MAX),
        tv_nsec: (millis % 1000) as i64 * 1_000_000,
    });
    let _ = rustix::event::poll(fds, limit.as_ref());
}
