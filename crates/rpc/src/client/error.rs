//! Why a call brought no reply body, and whether it can be tried again.

use yb_secure::SecureError;
use yb_types::ErrorCode;

use crate::RpcAddress;

/// A call without a result. Business failures are not here: they are part of a reply's body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RpcError {
    /// No connection: refused, unreachable, no such socket. Nothing was sent.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// The server.
        address: RpcAddress,
        /// The operating system's words.
        reason: String,
    },
    /// The server is there, and it or this side refuses the other one: another secret, certificate or mode. Nothing was sent.
    #[error("cannot connect to {address}: {reason}")]
    NotAdmitted {
        /// The server.
        address: RpcAddress,
        /// Who does not trust whom, and why.
        reason: String,
    },
    /// No connection within the time. Nothing was sent.
    #[error("no connection to {address} within the time limit")]
    ConnectTimeout {
        /// The server.
        address: RpcAddress,
    },
    /// The connection was made, but no reply came in time.
    #[error("no reply from {address} before the deadline")]
    TimedOut {
        /// The server.
        address: RpcAddress,
    },
    /// The connection broke while the call was under way; the server may or may not have run it.
    #[error("the connection to {address} broke before the reply came: {reason}")]
    Closed {
        /// The server.
        address: RpcAddress,
        /// What broke it.
        reason: String,
    },
    /// The server's RPC layer refused the call. Codes: 4 arguments do not decode, 10 handler failed, 11 no such function.
    #[error("{address} answered RPC error {code}: {message}")]
    Refused {
        /// The server.
        address: RpcAddress,
        /// The transport error code.
        code: u16,
        /// The server's words.
        message: String,
    },
    /// What came back is not this protocol, or larger than the limit.
    #[error("{address} sent what is not a reply: {reason}")]
    Protocol {
        /// The server.
        address: RpcAddress,
        /// What was wrong.
        reason: String,
    },
    /// The request is larger than the wire can carry.
    #[error("the request body of {bytes} bytes exceeds the 4 GiB of the wire")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The pool was shut down.
    #[error("the RPC client is closed")]
    ShutDown,
}

/// Whether a failed call can be made again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It never reached the server.
    Safe,
    /// The server may have run it: only what can run twice may be repeated.
    MayHaveRun,
    /// It would fail the same way.
    Useless,
}

impl RpcError {
    /// A connection that stands and could not be secured.
    pub(super) fn not_secured(address: &RpcAddress, error: &SecureError) -> Self {
        let (address, reason) = (address.clone(), error.to_string());
        if error.is_refusal() {
            RpcError::NotAdmitted { address, reason }
        } else {
            RpcError::Connect { address, reason }
        }
    }

    /// Whether the call can be made again.
    pub fn retry(&self) -> Retry {
        match self {
            RpcError::Connect { .. } | RpcError::ConnectTimeout { .. } => Retry::Safe,
            RpcError::TimedOut { .. } | RpcError::Closed { .. } => Retry::MayHaveRun,
            RpcError::Refused { code: 10, .. } => Retry::MayHaveRun,
            RpcError::Refused { .. } | RpcError::Protocol { .. } | RpcError::NotAdmitted { .. } => Retry::Useless,
            RpcError::TooLarge { .. } | RpcError::ShutDown => Retry::Useless,
        }
    }

    /// The peer's number for it: -901 for a missed deadline, else -900.
    pub fn error_code(&self) -> ErrorCode {
        match self {
            RpcError::TimedOut { .. } | RpcError::ConnectTimeout { .. } => ErrorCode::RPC_TIMEOUT,
            _ => ErrorCode::RPC_FAIL,
        }
    }
}
