//! The contract of a transport.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::EventfdFlags;
use yb_env::Clock;
use yb_mem::Span;
use yb_types::MonotonicTime;

use crate::segment::Segment;
use crate::{Opcode, TransferError, TransferErrorKind};

/// The transports, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TransportKind {
    /// Inside one process.
    Local,
    /// Mapped memory of a process on the same host.
    Shm,
    /// Mooncake's TCP data wire.
    Tcp,
}

/// One range to move, with both ends known.
pub(crate) struct Job<'a> {
    pub(crate) op: Opcode,
    pub(crate) local: Span<'a>,
    pub(crate) segment: &'a Segment,
    pub(crate) remote: u64,
    /// Bytes moved so far, for transports that move a job in parts.
    pub(crate) done: u64,
    /// Set by the transport; a job without one is unfinished.
    pub(crate) outcome: Option<Result<(), TransferError>>,
}

impl Job<'_> {
    pub(crate) fn fail(&mut self, kind: TransferErrorKind, detail: impl std::fmt::Display) {
        self.outcome = Some(Err(self.segment.error(kind, detail)));
    }
}

/// Stops a batch from another thread.
#[derive(Debug)]
pub struct CancelToken {
    cancelled: AtomicBool,
    wake: Option<OwnedFd>,
}

impl CancelToken {
    /// A token that nobody has pulled. Where the system has no descriptor left for it, waiting calls notice late.
    pub fn new() -> Self {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        CancelToken { cancelled: AtomicBool::new(false), wake }
    }

    /// Asks the batch to stop. It is terminal when its status says so, not when this returns.
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        if let Some(wake) = &self.wake {
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
    }

    /// Whether the batch was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    pub(crate) fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.wake.as_ref().map(AsFd::as_fd)
    }
}

impl Default for CancelToken {
    fn default() -> Self {
        Self::new()
    }
}

/// Until when jobs may run.
#[derive(Clone, Copy)]
pub(crate) struct Limits<'a> {
    pub(crate) clock: &'a Clock,
    pub(crate) deadline: MonotonicTime,
    pub(crate) cancel: Option<&'a CancelToken>,
}

impl Limits<'_> {
    /// Why the jobs must stop now, if they must.
    pub(crate) fn over(&self) -> Option<TransferErrorKind> {
        if self.cancel.is_some_and(CancelToken::is_cancelled) {
            return Some(TransferErrorKind::Cancelled);
        }
        (self.clock.now() >= self.deadline).then_some(TransferErrorKind::TimedOut)
    }
}

/// Moves ranges to and from the peers it reaches.
pub(crate) trait Transport: Send + Sync {
    /// Which one it is.
    fn kind(&self) -> TransportKind;

    /// Whether it can serve `len` bytes at `remote` of that segment now. May connect.
    fn reaches(&self, segment: &Segment, remote: u64, len: u64, limits: &Limits<'_>) -> bool;

    /// Gives every job an outcome. When it returns, nothing can touch the jobs' local memory any more.
    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>);

    /// Ends the transport's threads.
    fn stop(&self) {}
}
