//! The contract of a transport.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::EventfdFlags;
use yb_env::Clock;
use yb_mem::{CopyHint, Crc64, Span, SpanError};
use yb_types::MonotonicTime;

use crate::metadata::SegmentDesc;
use crate::rdma::RdmaTransport;
use crate::segment::Segment;
use crate::{Notification, Opcode, RegionInfo, RegistryError, RequestOptions, TransferError, TransferErrorKind};

/// The transports, cheapest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum TransportKind {
    /// Inside one process.
    Local,
    /// Mapped memory of a process on the same host.
    Shm,
    /// Memory of a process on the same host, copied by the kernel.
    ProcessVm,
    /// A mapped memory device that several hosts share.
    Cxl,
    /// Memory on a GPU of a process on the same host, copied by the GPU.
    CudaIpc,
    /// Verbs.
    Rdma,
    /// A file.
    File,
    /// Mooncake's TCP data wire.
    Tcp,
}

impl TransportKind {
    /// All of them, cheapest first.
    pub const ALL: [TransportKind; 8] = {
        use TransportKind as K;
        [K::Local, K::Shm, K::ProcessVm, K::Cxl, K::CudaIpc, K::Rdma, K::File, K::Tcp]
    };

    /// The name in settings, logs and documents.
    pub fn name(self) -> &'static str {
        match self {
            TransportKind::Local => "local",
            TransportKind::Shm => "shm",
            TransportKind::ProcessVm => "process_vm",
            TransportKind::Cxl => "cxl",
            TransportKind::CudaIpc => "cuda_ipc",
            TransportKind::Rdma => "rdma",
            TransportKind::File => "file",
            TransportKind::Tcp => "tcp",
        }
    }
}

/// One range to move, with both ends known.
pub(crate) struct Job<'a> {
    pub(crate) op: Opcode,
    pub(crate) local: Span<'a>,
    pub(crate) segment: &'a Segment,
    pub(crate) remote: u64,
    /// What the caller said besides.
    pub(crate) options: &'a RequestOptions,
    /// Bytes moved so far, for transports that move a job in parts.
    pub(crate) done: u64,
    /// The checksum of what was copied from the first byte on, where it is wanted.
    pub(crate) sum: Option<Crc64>,
    /// Set by the transport; a job without one is unfinished.
    pub(crate) outcome: Option<Result<(), TransferError>>,
    /// For whoever made the job.
    pub(crate) index: usize,
}

impl<'a> Job<'a> {
    pub(crate) fn new(
        op: Opcode,
        local: Span<'a>,
        segment: &'a Segment,
        remote: u64,
        options: &'a RequestOptions,
    ) -> Self {
        Job { op, local, segment, remote, options, done: 0, sum: None, outcome: None, index: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.local.len() as u64
    }

    /// Whether the outcome stands, whatever other transports could do.
    pub(crate) fn is_settled(&self) -> bool {
        match &self.outcome {
            None => false,
            Some(Ok(())) => true,
            Some(Err(error)) => !error.kind().another_way_may_help(),
        }
    }

    /// Copies the next bytes of the job within the processor's reach.
    pub(crate) fn copy(&mut self, dst: Span<'_>, src: Span<'_>, hint: CopyHint) -> Result<(), SpanError> {
        match &mut self.sum {
            Some(sum) => yb_mem::copy_summed(dst, src, hint, sum),
            None => yb_mem::copy(dst, src, hint),
        }
    }

    /// The checksum of all bytes of a job that succeeded: its transport's, or of what is in local memory now.
    pub(crate) fn whole_sum(&self) -> Option<Crc64> {
        match self.sum? {
            sum if sum.len() == self.len() => Some(sum),
            _ => Crc64::of(self.local),
        }
    }

    pub(crate) fn fail(&mut self, kind: TransferErrorKind, detail: impl std::fmt::Display) {
        self.outcome = Some(Err(self.segment.error(kind, detail)));
    }
}

/// Stops a batch from another thread.
#[derive(Debug)]
pub struct CancelToken {
    cancelled: AtomicBool,
    /// Made when somebody waits for it: most batches end without one.
    wake: OnceLock<Option<OwnedFd>>,
}

impl CancelToken {
    /// A token that nobody has pulled.
    pub const fn new() -> Self {
        CancelToken { cancelled: AtomicBool::new(false), wake: OnceLock::new() }
    }

    /// Asks the batch to stop. It is terminal when its status says so, not when this returns.
    pub fn cancel(&self) {
        // The flag is set before the descriptor is looked for, and `wake` makes the descriptor before it reads the
        // flag: one of the two sees the other.
        self.cancelled.store(true, Ordering::SeqCst);
        if let Some(Some(wake)) = self.wake.get() {
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
    }

    /// Whether the batch was asked to stop.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::SeqCst)
    }

    /// Readable once the token was pulled. Where the system has no descriptor left, waiting calls notice late.
    pub(crate) fn wake(&self) -> Option<BorrowedFd<'_>> {
        let make = || rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok();
        let wake = self.wake.get_or_init(make).as_ref()?;
        if self.is_cancelled() {
            let _ = rustix::io::write(wake, &1_u64.to_ne_bytes());
        }
        Some(wake.as_fd())
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
    /// The same, and no longer than `patience` from now on.
    pub(crate) fn hurried(&self, patience: Option<Duration>) -> Self {
        let deadline = patience.map_or(self.deadline, |patience| self.deadline.min(self.clock.now() + patience));
        Limits { deadline, ..*self }
    }

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

    /// Whether the local memory of a job may be on a GPU. Other transports are given such jobs in chunks of host memory.
    fn takes_devices(&self) -> bool {
        false
    }

    /// Whether it reaches that range without a system call that may wait: such small batches are moved in the caller.
    fn is_immediate(&self, _segment: &Segment, _remote: u64, _len: u64) -> bool {
        false
    }

    /// Gives every job an outcome. When it returns, nothing can touch the jobs' local memory any more. A job that failed
    /// with a kind for which [`TransferErrorKind::another_way_may_help`] is offered to the next transport that reaches
    /// its range.
    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>);

    /// A region is about to be published: makes the memory usable for this transport. Called without locks, for
    /// different regions at the same time.
    ///
    /// # Errors
    /// [`RegistryError::Refused`]; nothing is registered then, and transports that were asked before get
    /// [`Transport::region_removed`].
    fn region_added(&self, _region: &RegionInfo) -> Result<(), RegistryError> {
        Ok(())
    }

    /// The region that starts at `address` has no users any more, and is forgotten after this.
    fn region_removed(&self, _address: u64) {}

    /// Adds what peers need in order to use this transport: devices, keys.
    fn describe(&self, _desc: &mut SegmentDesc) {}

    /// The answer to a peer's Connection message; `None` = it is not for this transport. Runs on the control thread, so
    /// it must not wait.
    fn connection(&self, _request: &serde_json::Value) -> Option<serde_json::Value> {
        None
    }

    /// Leaves a notification with the peer, where this transport carries them; `None` = use the handshake port.
    fn notify(
        &self,
        _segment: &Segment,
        _notification: &Notification,
        _limits: &Limits<'_>,
    ) -> Option<Result<(), TransferError>> {
        None
    }

    /// The transport itself, where it is the one over RDMA, for its own counters.
    fn as_rdma(&self) -> Option<&RdmaTransport> {
        None
    }

    /// Ends the transport's threads.
    fn stop(&self) {}
}
