//! The parts of an error that a caller, a log line and a metric ask for one by one.

use std::time::Duration;

use yb_types::ErrorCode;

use crate::{Error, Obstacle};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $word:literal),* $(,)?) => {
        /// Why a call failed, in one word.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All of them, in order.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// The word, as it is in logs, metrics and Python.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Reason::$name => $word,)*
                }
            }
        }
    };
}

reasons! {
    /// The pool has no such object.
    Missing = "missing",
    /// The bytes could not be moved from or to a peer.
    Transfer = "transfer",
    /// The master did not answer.
    MasterUnreachable = "master_unreachable",
    /// The daemon of a dummy client did not answer.
    DaemonUnreachable = "daemon_unreachable",
    /// Another writer holds the key.
    Busy = "busy",
    /// No segment has room.
    NoRoom = "no_room",
    /// The read lease ended before the last byte.
    LeaseEnded = "lease_ended",
    /// No replica that this client can read.
    NoReplica = "no_replica",
    /// The bytes are not those that were written.
    Corrupt = "corrupt",
    /// The object was read a short time ago.
    Leased = "leased",
    /// The master, or a daemon, refused.
    Refused = "refused",
    /// The call cannot work as it was made.
    Invalid = "invalid",
    /// The client could not be set up.
    Setup = "setup",
    /// The client is closed.
    Closed = "closed",
}

impl Error {
    /// Why, in one word.
    pub fn reason(&self) -> Reason {
        match self {
            Error::NotFound => Reason::Missing,
            Error::Busy(_) => Reason::Busy,
            Error::NoSpace(_) => Reason::NoRoom,
            Error::LeaseExpired => Reason::LeaseEnded,
            Error::NoReadableReplica => Reason::NoReplica,
            Error::Corrupt { .. } => Reason::Corrupt,
            Error::Invalid(_) | Error::BufferTooSmall { .. } => Reason::Invalid,
            Error::Refused { code: ErrorCode::OBJECT_HAS_LEASE, .. } => Reason::Leased,
            Error::Refused { .. } | Error::Rejected { .. } | Error::Incompatible { .. } => Reason::Refused,
            Error::Transfer(_) => Reason::Transfer,
            Error::MasterUnreachable(_) => Reason::MasterUnreachable,
            Error::DaemonUnreachable(_) => Reason::DaemonUnreachable,
            Error::Setup { .. } => Reason::Setup,
            Error::Closed => Reason::Closed,
        }
    }

    /// `host:port` of whoever failed to answer or to move bytes.
    pub fn peer(&self) -> Option<&str> {
        match self {
            Error::Transfer(failure) => Some(&failure.peer),
            Error::MasterUnreachable(failure) => Some(&failure.address),
            Error::DaemonUnreachable(failure) => Some(&failure.address),
            Error::Incompatible { master, .. } => Some(master),
            // It does not answer the master.
            Error::Busy(why) => {
                let silent = why.finding().filter(|finding| finding.obstacle == Obstacle::SilentNode);
                silent.and_then(|finding| finding.endpoint.as_deref())
            }
            _ => None,
        }
    }

    /// What was being done: of a transfer `connect`, `read`, `write`, `deadline`; of the master or a daemon the request; of a
    /// setup the step.
    pub fn stage(&self) -> Option<&str> {
        match self {
            Error::Transfer(failure) => Some(&failure.stage),
            Error::MasterUnreachable(failure) => Some(failure.rpc),
            Error::DaemonUnreachable(failure) => Some(failure.rpc),
            Error::Refused { rpc, .. } | Error::Rejected { rpc, .. } => Some(rpc),
            Error::Setup { stage, .. } => Some(stage),
            _ => None,
        }
    }

    /// From the start of the call to the failure, where somebody was waited for.
    pub fn elapsed(&self) -> Option<Duration> {
        match self {
            Error::Transfer(failure) => Some(failure.elapsed),
            Error::MasterUnreachable(failure) => Some(failure.elapsed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_different_and_reasons_have_their_place() {
        for (place, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, place);
            assert!(Reason::ALL.iter().all(|other| other == reason || other.word() != reason.word()));
        }
    }
}
