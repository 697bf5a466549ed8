//! From pieces of objects to one transfer batch.

use smallvec::SmallVec;
use yb_transfer::{
    BatchOutcome, Engine, LocalBuffer, Opcode, Request, SegmentHandle, TransferError, TransferErrorKind,
};
use yb_types::{BufferDescriptor, MonotonicTime, SegmentAddress};

use crate::deadline::Deadline;
use crate::memory::Piece;
use crate::suspects::Suspects;
use crate::{Error, TransferFailure};

/// One transfer batch in the making. Each request belongs to the object with some index in the caller's list.
pub(crate) struct Mover<'a> {
    op: Opcode,
    engine: &'a Engine,
    requests: Vec<Request<'a>>,
    owners: SmallVec<[u32; 4]>,
    segment: Option<SegmentHandle>,
    failed: SmallVec<[(u32, TransferError); 1]>,
}

impl<'a> Mover<'a> {
    pub(crate) fn new(op: Opcode, engine: &'a Engine, capacity: usize) -> Self {
        let requests = Vec::with_capacity(capacity);
        Mover {
            op,
            engine,
            requests,
            owners: SmallVec::with_capacity(capacity),
            segment: None,
            failed: SmallVec::new(),
        }
    }

    /// Adds the pieces of object `owner`, to or from the range at `remote`.
    pub(crate) fn add(&mut self, owner: u32, pieces: impl IntoIterator<Item = Piece<'a>>, remote: &BufferDescriptor) {
        let segment = match self.open(&remote.transport_endpoint) {
            Ok(segment) => segment,
            Err(error) => return self.failed.push((owner, error)),
        };
        for piece in pieces {
            let address = SegmentAddress(remote.buffer_address.wrapping_add(piece.offset));
            let local = LocalBuffer::span_of(piece.span);
            self.requests.push(Request::new(self.op, local, segment.clone(), address));
            self.owners.push(owner);
        }
    }

    /// Neighbours in a batch are often on the same node: the last handle is kept.
    fn open(&mut self, endpoint: &str) -> Result<SegmentHandle, TransferError> {
        if let Some(open) = self.segment.as_ref().filter(|open| open.endpoint() == endpoint) {
            return Ok(open.clone());
        }
        let opened = self.engine.open_segment(endpoint)?;
        self.segment = Some(opened.clone());
        Ok(opened)
    }

    /// Moves everything; returns when nothing is in flight. The failures, each with the index of its object.
    pub(crate) fn run(self, until: MonotonicTime) -> SmallVec<[(u32, TransferError); 1]> {
        let mut failed = self.failed;
        if self.requests.is_empty() {
            return failed;
        }
        let outcome: BatchOutcome = self.engine.transfer_sync(&self.requests, until);
        if !outcome.is_ok() {
            let results = self.owners.iter().zip(outcome.results());
            failed.extend(results.filter_map(|(owner, result)| Some((*owner, result.as_ref().err()?.clone()))));
        }
        failed
    }
}

/// Whether the failure says something about the peer rather than about the request.
pub(crate) fn is_peers_fault(error: &TransferError) -> bool {
    use TransferErrorKind as K;
    matches!(error.kind(), K::Unreachable | K::ConnectionLost | K::PeerGone | K::TimedOut | K::Protocol)
}

/// Whether no byte of the failed transfer can arrive at the peer any more: nobody took it, or its process is gone.
pub(crate) fn leaves_nothing_in_flight(error: &TransferError) -> bool {
    matches!(error.kind(), TransferErrorKind::Unreachable | TransferErrorKind::PeerGone)
}

/// Remembers the peer of a failed transfer, if the failure is its fault.
pub(crate) fn note_failure(suspects: &Suspects, error: &TransferError, now: MonotonicTime) {
    if is_peers_fault(error) {
        suspects.add(error.endpoint(), now);
    }
}

/// The caller's form of a failed transfer.
pub(crate) fn failure(error: &TransferError, op: Opcode, deadline: &Deadline, now: MonotonicTime) -> Error {
    use TransferErrorKind as K;
    let stage = match (error.kind(), op) {
        (K::Unreachable, _) => "connect",
        (K::TimedOut, _) => "deadline",
        (_, Opcode::Read) => "read",
        (_, Opcode::Write) => "write",
    };
    Error::Transfer(Box::new(TransferFailure {
        peer: error.endpoint().to_owned(),
        stage: stage.to_owned(),
        reason: error.to_string(),
        elapsed: deadline.elapsed(now),
        retryable: error.is_retryable() || error.kind() == K::RemoteRefused,
    }))
}
