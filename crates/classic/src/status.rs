//! The peer's numbers: status codes of calls and states of tasks.

use std::fmt;

use yb_transfer::{BatchError, RegistryError, StartError, TransferError, TransferErrorKind};

/// Why a call was refused; the numbers are those of the peer's status object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum StatusCode {
    /// The arguments make no sense; nothing was done.
    InvalidArgument = 1,
    /// The batch has no room for so many requests.
    TooManyRequests = 2,
    /// The address is not the start of, or not inside, registered memory.
    AddressNotRegistered = 3,
    /// The batch, or the memory, is still in use.
    BatchBusy = 4,
    /// No device can do this.
    DeviceNotFound = 6,
    /// The range shares bytes with registered memory.
    AddressOverlapped = 7,
    /// There is no such transport here.
    NotSupportedTransport = 8,
    /// A host name has no address.
    Dns = 101,
    /// A socket failed, or nobody answers.
    Socket = 102,
    /// A document is not what it should be.
    MalformedJson = 103,
    /// The peer speaks another protocol.
    RejectHandshake = 104,
    /// The metadata store failed, or knows no such name.
    Metadata = 200,
    /// A connection to a device of the peer failed.
    Endpoint = 201,
    /// A device could not be opened.
    Context = 202,
    /// The system's clock failed.
    Clock = 301,
    /// No memory.
    Memory = 302,
    /// This build cannot do it.
    NotImplemented = 999,
}

impl StatusCode {
    /// The number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// What functions that return an int answer: the negated number, where "not implemented" is -303.
    pub fn negated(self) -> i32 {
        if self == StatusCode::NotImplemented { -303 } else { -self.number() }
    }

    /// The code of a negated number; a number nobody knows is an invalid argument.
    pub fn from_negated(number: i32) -> Self {
        use StatusCode as S;
        let known = [
            S::InvalidArgument,
            S::TooManyRequests,
            S::AddressNotRegistered,
            S::BatchBusy,
            S::DeviceNotFound,
            S::AddressOverlapped,
            S::NotSupportedTransport,
            S::Dns,
            S::Socket,
            S::MalformedJson,
            S::RejectHandshake,
            S::Metadata,
            S::Endpoint,
            S::Context,
            S::Clock,
            S::Memory,
            S::NotImplemented,
        ];
        known.into_iter().find(|code| code.negated() == number).unwrap_or(S::InvalidArgument)
    }
}

/// A refused call: the peer's code, and what, where and why in words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code:?}: {detail}")]
pub struct ClassicError {
    code: StatusCode,
    detail: String,
    retryable: bool,
}

impl ClassicError {
    /// `detail` says what failed, where, and what to do.
    pub fn new(code: StatusCode, detail: impl fmt::Display) -> Self {
        ClassicError { code, detail: detail.to_string(), retryable: false }
    }

    /// The peer's code.
    pub fn code(&self) -> StatusCode {
        self.code
    }

    /// What functions that return an int answer.
    pub fn negated(&self) -> i32 {
        self.code.negated()
    }

    /// Whether the same call may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.retryable
    }
}

impl From<TransferError> for ClassicError {
    fn from(error: TransferError) -> Self {
        ClassicError {
            code: StatusCode::from_negated(error.code()),
            retryable: error.is_retryable(),
            detail: error.to_string(),
        }
    }
}

impl From<BatchError> for ClassicError {
    fn from(error: BatchError) -> Self {
        ClassicError::new(StatusCode::from_negated(error.code()), error)
    }
}

impl From<RegistryError> for ClassicError {
    fn from(error: RegistryError) -> Self {
        ClassicError::new(StatusCode::from_negated(error.code()), error)
    }
}

impl From<StartError> for ClassicError {
    fn from(error: StartError) -> Self {
        let code = match &error {
            StartError::Listen { .. } | StartError::PortInUse(_) => StatusCode::Socket,
            StartError::NoAdvertisedHost(_) | StartError::UnusableHost(_) => StatusCode::InvalidArgument,
            StartError::Rdma { .. } => StatusCode::DeviceNotFound,
            StartError::Metadata { .. } | StartError::NameTaken { .. } => StatusCode::Metadata,
            _ => StatusCode::Context,
        };
        ClassicError::new(code, error)
    }
}

/// Where a task or a batch stands; the numbers are those of the peer's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(i32)]
pub enum TaskState {
    /// Not finished.
    Waiting = 0,
    /// As waiting; only the peer's other transports say so.
    Pending = 1,
    /// The peer's number for a request that makes no sense; such a submission is refused as a whole here.
    Invalid = 2,
    /// Stopped by the caller. Nothing of it is in flight.
    Canceled = 3,
    /// Every byte has been moved.
    Completed = 4,
    /// Its deadline passed. Nothing of it is in flight.
    TimedOut = 5,
    /// It failed. Nothing of it is in flight.
    Failed = 6,
}

impl TaskState {
    /// The peer's number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Whether nothing can touch the task's memory any more.
    pub fn is_terminal(self) -> bool {
        !matches!(self, TaskState::Waiting | TaskState::Pending)
    }

    /// The state that a failure of this kind leaves.
    pub(crate) fn of_failure(kind: TransferErrorKind) -> Self {
        match kind {
            TransferErrorKind::Cancelled => TaskState::Canceled,
            TransferErrorKind::TimedOut => TaskState::TimedOut,
            _ => TaskState::Failed,
        }
    }
}

/// Where a task or a batch stands, and how many bytes of it have been moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransferStatus {
    /// State.
    pub state: TaskState,
    /// Bytes moved so far.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_peers() {
        assert_eq!(StatusCode::AddressOverlapped.negated(), -7);
        assert_eq!(StatusCode::Socket.negated(), -102);
        assert_eq!(StatusCode::NotImplemented.negated(), -303);
        assert_eq!(StatusCode::from_negated(-303), StatusCode::NotImplemented);
        assert_eq!(StatusCode::from_negated(-4), StatusCode::BatchBusy);
        assert_eq!(StatusCode::from_negated(-12_345), StatusCode::InvalidArgument);
        assert_eq!(TaskState::Failed.number(), 6);
        assert_eq!(TaskState::Completed.number(), 4);
    }

    #[test]
    fn texts_begin_with_the_codes_name() {
        let error = ClassicError::new(StatusCode::InvalidArgument, "no such batch");
        assert_eq!(error.to_string(), "InvalidArgument: no such batch");
    }
}
