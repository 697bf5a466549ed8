//! A segment of a peer, as this engine sees it.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};

use crate::engine::Shared;
use crate::{TransferError, TransferErrorKind};

/// An open segment. Clones name the same one; an engine gives out one per endpoint.
#[derive(Clone)]
pub struct SegmentHandle(pub(crate) Arc<Segment>);

impl SegmentHandle {
    /// `host:port` of the owner's handshake.
    pub fn endpoint(&self) -> &str {
        &self.0.endpoint
    }

    /// True when the owner is this process.
    pub fn is_local(&self) -> bool {
        self.0.in_process.strong_count() > 0
    }
}

impl fmt::Debug for SegmentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SegmentHandle").field(&self.0.endpoint).finish()
    }
}

impl Deref for SegmentHandle {
    type Target = Segment;
    fn deref(&self) -> &Segment {
        &self.0
    }
}

#[doc(hidden)]
pub struct Segment {
    pub(crate) endpoint: Arc<str>,
    pub(crate) in_process: Weak<Shared>,
}

impl Segment {
    pub(crate) fn error(&self, kind: TransferErrorKind, detail: impl fmt::Display) -> TransferError {
        TransferError::new(kind, Arc::clone(&self.endpoint), detail)
    }
}
