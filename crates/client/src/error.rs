//! What can go wrong in a call, and what the peer calls it.

use std::borrow::Cow;
use std::time::Duration;

use yb_types::ErrorCode;

use crate::{NoRoom, Why};

/// What a call of this crate answers.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call did not do what it was asked to.
///
/// A missing object ([`Error::NotFound`]), an empty object (`Ok` with no bytes), a failed transfer
/// ([`Error::Transfer`]) and an unreachable master ([`Error::MasterUnreachable`]) are four different answers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The pool has no such object.
    #[error("no such object")]
    NotFound,
    /// Another writer holds the key and has not finished, or the node that has the object is silent; it may be tried again.
    #[error("{}", busy(.0))]
    Busy(Why),
    /// No segment has room for the object.
    #[error("{0}")]
    NoSpace(NoRoom),
    /// The bytes arrived after the read lease had ended, twice. They may be of another object and are not given out.
    #[error("the read lease ended before the last byte arrived; try again")]
    LeaseExpired,
    /// The object has replicas, but none that this client can read.
    #[error("no replica of this object can be read by this client")]
    NoReadableReplica,
    /// The bytes that arrived are not those that were written: their checksums differ. They are not given out.
    #[error("the object's bytes have the checksum {found:#018x}, its writer gave {written:#018x}")]
    Corrupt {
        /// CRC-64/ECMA-182 of what arrived.
        found: u64,
        /// What the writer gave.
        written: u64,
    },
    /// The call cannot work as it was made.
    #[error("{0}")]
    Invalid(Cow<'static, str>),
    /// The object does not fit into the caller's buffer.
    #[error("the object has {object} bytes, the buffer only {buffer}")]
    BufferTooSmall {
        /// Bytes of the object.
        object: u64,
        /// Bytes of the buffer.
        buffer: u64,
    },
    /// The master refused.
    #[error("the master refused {rpc}: {code}{}", told(.why))]
    Refused {
        /// The request.
        rpc: &'static str,
        /// Its answer.
        code: ErrorCode,
        /// What stood in the way, for some of the answers.
        why: Why,
    },
    /// The master's RPC layer rejected the request: no such function there, or the handler failed.
    #[error("the master rejected {rpc} with RPC error {code}: {message}")]
    Rejected {
        /// The request.
        rpc: &'static str,
        /// Number of the RPC layer: 4 arguments do not decode, 10 handler failed, 11 no such function.
        code: u16,
        /// The master's words.
        message: String,
    },
    /// The bytes could not be moved.
    #[error("{0}")]
    Transfer(Box<TransferFailure>),
    /// The master did not answer.
    #[error("{0}")]
    MasterUnreachable(Box<MasterFailure>),
    /// The daemon of a dummy client did not answer.
    #[error("{0}")]
    DaemonUnreachable(Box<DaemonFailure>),
    /// The master answers, but speaks another version of the store.
    #[error("the master at {master} has store version {theirs:?}, this client needs {ours:?}")]
    Incompatible {
        /// Address of the master.
        master: String,
        /// What it said.
        theirs: String,
        /// What this client needs.
        ours: &'static str,
    },
    /// The client could not be set up.
    #[error("setup failed at {stage}: {reason}")]
    Setup {
        /// Which step failed.
        stage: &'static str,
        /// Why.
        reason: String,
    },
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

/// What is known of a key that cannot be read or written now.
fn busy(why: &Why) -> String {
    match why.finding() {
        Some(finding) => format!("the object is not ready: {finding}, when the master was asked; try again"),
        None => "another writer has not finished with this object, or the node that has it does not answer (`yuebing segments` \
                 shows it as OFFLINE); try again"
            .to_owned(),
    }
}

/// What else is known of a refusal.
fn told(why: &Why) -> String {
    why.finding().map_or_else(String::new, |finding| format!(": {finding}, when the master was asked"))
}

/// Bytes that could not be moved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("transfer with {peer} failed at {stage} after {elapsed:?}: {reason}")]
pub struct TransferFailure {
    /// `host:port` of the other side's Transfer Engine.
    pub peer: String,
    /// What was being done: `open`, `connect`, `read`, `write`, `deadline` …
    pub stage: String,
    /// The transport's own words.
    pub reason: String,
    /// Since the start of the call.
    pub elapsed: Duration,
    /// Whether the same call may succeed if made again.
    pub retryable: bool,
}

/// A master that did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer from the master at {address} to {rpc} after {elapsed:.1?}: {reason}")]
pub struct MasterFailure {
    /// Address of the master.
    pub address: String,
    /// The request.
    pub rpc: &'static str,
    /// The connection's own words.
    pub reason: String,
    /// Since the start of the call.
    pub elapsed: Duration,
    /// True if the time ran out, false if the connection failed.
    pub timed_out: bool,
    /// Somebody is there and refuses this client (another secret or certificate), or is no master: waiting does not help.
    pub refused: bool,
}

/// A daemon that did not answer its dummy client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer from the daemon at {address} to {rpc}: {reason}")]
pub struct DaemonFailure {
    /// Address of the daemon.
    pub address: String,
    /// The request.
    pub rpc: &'static str,
    /// The connection's own words.
    pub reason: String,
    /// True if the time ran out, false if the connection failed.
    pub timed_out: bool,
    /// Whether the daemon may be at work on it still.
    pub in_flight: bool,
}

impl Error {
    /// A call that cannot work as it was made.
    pub(crate) fn invalid(text: impl Into<Cow<'static, str>>) -> Self {
        Error::Invalid(text.into())
    }

    /// A setup step that failed.
    pub(crate) fn setup(stage: &'static str, reason: impl std::fmt::Display) -> Self {
        Error::Setup { stage, reason: reason.to_string() }
    }

    /// The business answer of the master, or of a daemon, to `rpc` as an error of its own kind.
    pub fn from_master(rpc: &'static str, code: ErrorCode) -> Self {
        match code {
            ErrorCode::OBJECT_NOT_FOUND => Error::NotFound,
            ErrorCode::REPLICA_IS_NOT_READY => Error::Busy(Why::default()),
            ErrorCode::NO_AVAILABLE_HANDLE => Error::NoSpace(NoRoom::Untold),
            ErrorCode::LEASE_EXPIRED => Error::LeaseExpired,
            code => Error::Refused { rpc, code, why: Why::default() },
        }
    }

    /// The peer's number for this error, as its clients return it.
    pub fn code(&self) -> ErrorCode {
        match self {
            Error::NotFound => ErrorCode::OBJECT_NOT_FOUND,
            Error::Busy(_) => ErrorCode::REPLICA_IS_NOT_READY,
            Error::NoSpace(_) => ErrorCode::NO_AVAILABLE_HANDLE,
            Error::LeaseExpired => ErrorCode::LEASE_EXPIRED,
            Error::NoReadableReplica => ErrorCode::INVALID_REPLICA,
            Error::Corrupt { .. } => ErrorCode::CHECKSUM_MISMATCH,
            Error::Refused { code, .. } => *code,
            Error::Transfer(_) => ErrorCode::TRANSFER_FAIL,
            Error::MasterUnreachable(f) if f.timed_out => ErrorCode::RPC_TIMEOUT,
            Error::DaemonUnreachable(f) if f.timed_out => ErrorCode::RPC_TIMEOUT,
            Error::MasterUnreachable(_) | Error::DaemonUnreachable(_) | Error::Rejected { .. } => ErrorCode::RPC_FAIL,
            Error::Incompatible { .. } => ErrorCode::INVALID_VERSION,
            Error::Invalid(_) | Error::BufferTooSmall { .. } | Error::Setup { .. } | Error::Closed => {
                ErrorCode::INVALID_PARAMS
            }
        }
    }

    /// Whether the same call may succeed if it is made again.
    pub fn retryable(&self) -> bool {
        match self {
            Error::Busy(_) | Error::LeaseExpired => true,
            Error::NoSpace(why) => why.retryable(),
            Error::MasterUnreachable(f) => !f.refused,
            Error::DaemonUnreachable(_) => true,
            Error::Transfer(f) => f.retryable,
            Error::Refused { code, .. } => matches!(
                *code,
                ErrorCode::OBJECT_HAS_LEASE
                    | ErrorCode::OBJECT_HAS_REPLICATION_TASK
                    | ErrorCode::OBJECT_REPLICA_BUSY
                    | ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS
            ),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_answers_have_four_codes() {
        let transfer = Error::Transfer(Box::new(TransferFailure {
            peer: "10.0.0.1:15000".into(),
            stage: "connect".into(),
            reason: "refused".into(),
            elapsed: Duration::from_millis(3),
            retryable: true,
        }));
        let dead = |timed_out| {
            Error::MasterUnreachable(Box::new(MasterFailure {
                address: "10.0.0.2:50051".into(),
                rpc: "GetReplicaList",
                reason: "refused".into(),
                elapsed: Duration::from_millis(3),
                timed_out,
                refused: false,
            }))
        };
        assert_eq!(Error::NotFound.code().0, -704);
        assert_eq!(transfer.code().0, -800);
        assert_eq!(dead(false).code().0, -900);
        assert_eq!(dead(true).code().0, -901);
        assert!(transfer.retryable() && dead(true).retryable() && !Error::NotFound.retryable());
        assert_eq!(transfer.to_string(), "transfer with 10.0.0.1:15000 failed at connect after 3ms: refused");
    }

    #[test]
    fn answers_of_the_master_keep_their_number() {
        for code in [-704, -703, -200, -707, -706, -600, -4242] {
            assert_eq!(Error::from_master("PutStart", ErrorCode(code)).code().0, code);
        }
    }
}
