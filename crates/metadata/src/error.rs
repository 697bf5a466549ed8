//! Why a store did not do it.

use std::fmt;

/// The kinds of failure that a caller treats differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The connection string names no store, or one that this build has not got. Fix the setting.
    BadAddress,
    /// Nobody answers, or not in time. Try again.
    Unreachable,
    /// The store wants other credentials.
    Unauthorized,
    /// The key exists, and the store does not replace it.
    Duplicate,
    /// The store has no room for the record, or the record is too large for it.
    Full,
    /// The store answered with an error of another kind.
    Refused,
    /// The answer was not that of such a store.
    Protocol,
}

/// A failed operation: which store, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    kind: StoreErrorKind,
    store: String,
    detail: String,
}

impl StoreError {
    /// `store` says where, `detail` why.
    pub fn new(kind: StoreErrorKind, store: impl Into<String>, detail: impl fmt::Display) -> Self {
        StoreError { kind, store: store.into(), detail: detail.to_string() }
    }

    /// What to do about it.
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// True when the same operation may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.kind, StoreErrorKind::Unreachable | StoreErrorKind::Full | StoreErrorKind::Refused)
    }

    /// The peer's number for a failure of its metadata store.
    pub fn code(&self) -> i32 {
        -200
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use StoreErrorKind as K;
        let what = match self.kind {
            K::BadAddress => "not a metadata store",
            K::Unreachable => "the metadata store does not answer",
            K::Unauthorized => "the metadata store refuses the credentials",
            K::Duplicate => "the key is taken",
            K::Full => "the metadata store has no room",
            K::Refused => "the metadata store refuses",
            K::Protocol => "that is no such metadata store",
        };
        let advice = if self.is_retryable() { "may be retried" } else { "retrying does not help" };
        write!(f, "{:?}: {what}: {} ({advice})", self.store, self.detail)
    }
}

impl std::error::Error for StoreError {}
