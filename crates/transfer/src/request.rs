//! What is asked, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use yb_mem::{Crc64, LocalBuffer};
use yb_sched::TrafficClass;
use yb_types::{MonotonicTime, SegmentAddress};

use crate::{SegmentHandle, TransferError};

/// Direction, seen from the caller. The numbers are those of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Remote to local.
    Read = 0,
    /// Local to remote.
    Write = 1,
}

/// What a caller may say about a request besides what to move.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestOptions {
    /// Which share of the engine it takes. Numbers from [`TrafficClass::COUNT`] on count as the last class.
    pub class: TrafficClass,
    /// Goes first inside its class when larger; 0 is ordinary.
    pub priority: i8,
    /// When it is given up, if that is earlier than the deadline of its batch.
    pub deadline: Option<MonotonicTime>,
    /// The local device that should move it, where the transport has several.
    pub nic_hint: Option<Arc<str>>,
    /// When nothing moves for so long it is given up with `TimedOut`, if that is earlier than the transport would: for
    /// requests that somebody else can serve too.
    pub patience: Option<Duration>,
    /// Neighbours in a submission with the same number are moved strictly one after another; a failure ends the group.
    pub group: Option<u64>,
}

/// One range to move. Its length is that of the local buffer; zero bytes succeed at once.
#[derive(Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// Direction.
    pub op: Opcode,
    /// Our side.
    pub local: LocalBuffer<'a>,
    /// The peer.
    pub segment: SegmentHandle,
    /// First byte in the peer's process.
    pub remote: SegmentAddress,
    /// What else the caller said.
    pub options: RequestOptions,
    /// Whether the checksum of the bytes is wanted.
    pub is_summed: bool,
}

impl<'a> Request<'a> {
    /// A request with the default options.
    pub fn new(op: Opcode, local: LocalBuffer<'a>, segment: SegmentHandle, remote: SegmentAddress) -> Self {
        Request { op, local, segment, remote, options: RequestOptions::default(), is_summed: false }
    }

    /// The same request with other options.
    pub fn with(mut self, options: RequestOptions) -> Self {
        self.options = options;
        self
    }

    /// The same request, of whose bytes [`Engine::transfer_sync`](crate::Engine::transfer_sync) tells the checksum if that is `wanted`.
    pub fn summed(mut self, wanted: bool) -> Self {
        self.is_summed = wanted;
        self
    }
}

/// The outcome of every request of a batch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchOutcome {
    pub(crate) results: SmallVec<[Result<(), TransferError>; 2]>,
    /// Empty when no request asked for one.
    pub(crate) sums: SmallVec<[Option<Crc64>; 2]>,
}

impl BatchOutcome {
    /// One result per request.
    pub fn results(&self) -> &[Result<(), TransferError>] {
        &self.results
    }

    /// The checksum of the bytes of a request that succeeded: those that were copied, where a transport copies, else those in
    /// local memory when they had been moved. `None` where none was asked for, and of memory of a device.
    pub fn sum(&self, request: usize) -> Option<Crc64> {
        self.sums.get(request).copied().flatten()
    }

    /// True when every request succeeded.
    pub fn is_ok(&self) -> bool {
        self.results.iter().all(Result::is_ok)
    }

    /// The first failure, if any.
    ///
    /// # Errors
    /// That failure.
    pub fn into_result(self) -> Result<(), TransferError> {
        self.results.into_iter().collect()
    }
}
