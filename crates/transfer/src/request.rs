//! What is asked, and what came of it.

use smallvec::SmallVec;
use yb_mem::LocalBuffer;
use yb_types::SegmentAddress;

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

/// One range to move. Its length is that of the local buffer; zero bytes succeed at once.
#[derive(Debug)]
pub struct Request<'a> {
    /// Direction.
    pub op: Opcode,
    /// Our side.
    pub local: LocalBuffer<'a>,
    /// The peer.
    pub segment: SegmentHandle,
    /// First byte in the peer's process.
    pub remote: SegmentAddress,
}

/// The outcome of every request of a batch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchOutcome {
    pub(crate) results: SmallVec<[Result<(), TransferError>; 2]>,
}

impl BatchOutcome {
    /// One result per request.
    pub fn results(&self) -> &[Result<(), TransferError>] {
        &self.results
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
