//! Why a transfer failed, and what the caller can do.

use std::fmt;
use std::sync::Arc;

/// The kinds of failure that a caller treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransferErrorKind {
    /// The request makes no sense: lengths differ, a read into read-only memory. Fix the call.
    InvalidRequest,
    /// The local range is not registered. Register it.
    LocalNotRegistered,
    /// The peer refuses the range: it is not inside one of its registered regions. The object is gone or moved.
    RemoteRefused,
    /// The peer's host name has no address. Check the name, and the resolver of this machine.
    UnknownHost,
    /// Nobody answers at the peer's address. Use another replica; try this one later.
    Unreachable,
    /// The connection broke in the middle. Use another replica, or retry.
    ConnectionLost,
    /// The peer's process has gone while its memory was mapped. Use another replica.
    PeerGone,
    /// A file behind the segment ends before the range: it was cut since it was opened. Retrying does not help.
    EndOfFile,
    /// A device or file system failed: EIO, no space. Use another replica.
    Storage,
    /// The peer spoke another protocol than announced. Do not retry.
    Protocol,
    /// The deadline passed. Nothing is in flight any more.
    TimedOut,
    /// The caller cancelled. Nothing is in flight any more.
    Cancelled,
    /// The engine is shutting down.
    Closed,
}

impl TransferErrorKind {
    /// Whether the same range may be reached over another transport though this one failed. Not when the peer's process
    /// is gone: whoever answers for it now is another one, with other memory.
    pub fn another_way_may_help(self) -> bool {
        use TransferErrorKind as K;
        matches!(self, K::Unreachable | K::ConnectionLost | K::TimedOut)
    }
}

/// A failed transfer: what, where, why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferError {
    kind: TransferErrorKind,
    endpoint: Arc<str>,
    detail: Arc<str>,
}

impl TransferError {
    /// `endpoint` says where, `detail` why.
    pub fn new(kind: TransferErrorKind, endpoint: impl Into<Arc<str>>, detail: impl fmt::Display) -> Self {
        TransferError { kind, endpoint: endpoint.into(), detail: detail.to_string().into() }
    }

    /// What to do about it.
    pub fn kind(&self) -> TransferErrorKind {
        self.kind
    }

    /// The peer it happened with.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// True when the same request may succeed later or at another replica.
    pub fn is_retryable(&self) -> bool {
        use TransferErrorKind as K;
        matches!(self.kind, K::UnknownHost | K::Unreachable | K::ConnectionLost | K::PeerGone | K::TimedOut)
    }

    /// Mooncake's number for this failure (negated status code of its engine).
    pub fn code(&self) -> i32 {
        use TransferErrorKind as K;
        match self.kind {
            K::InvalidRequest | K::Cancelled | K::Closed => -1,
            K::LocalNotRegistered | K::RemoteRefused | K::EndOfFile => -3,
            K::Storage => -202,
            K::UnknownHost => -101,
            K::Unreachable | K::ConnectionLost | K::PeerGone | K::TimedOut => -102,
            K::Protocol => -104,
        }
    }
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use TransferErrorKind as K;
        let what = match self.kind {
            K::InvalidRequest => "invalid request",
            K::LocalNotRegistered => "local memory is not registered",
            K::RemoteRefused => "remote range refused",
            K::UnknownHost => "unknown host",
            K::Unreachable => "peer unreachable",
            K::ConnectionLost => "connection lost",
            K::PeerGone => "owner of the mapped memory is gone",
            K::EndOfFile => "end of file",
            K::Storage => "storage failed",
            K::Protocol => "protocol error",
            K::TimedOut => "deadline passed",
            K::Cancelled => "cancelled",
            K::Closed => "engine closed",
        };
        let advice = if self.is_retryable() { "may be retried" } else { "retrying does not help" };
        write!(f, "transfer with {}: {what}: {} ({advice}, code {})", self.endpoint, self.detail, self.code())
    }
}

impl std::error::Error for TransferError {}
