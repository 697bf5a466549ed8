//! What few objects have: kept in one box beside the entry, so that the others pay eight bytes for all of it.
//!
//! Invariants:
//! - an entry has a box only while something in it is set: whoever clears a field calls
//!   [`Entry::settle_extras`](crate::entry::Entry::settle_extras);
//! - nothing that a lookup needs lies here, except behind a flag of the entry that says that it is there.

use std::time::Duration;

use yb_types::MonotonicTime;

use crate::copies::Copying;
use crate::groups::Membership;

/// The soft pin of one object: eviction takes it last, if at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SoftPin {
    /// Begins to run when the write ends.
    Pending(Duration),
    /// Until then.
    Until(MonotonicTime),
}

impl SoftPin {
    /// Whether it holds eviction off at this time.
    pub fn holds(self, now: MonotonicTime) -> bool {
        matches!(self, SoftPin::Until(until) if until > now)
    }
}

/// The rare parts of an [`Entry`](crate::entry::Entry).
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// What protects the object from the first pass of eviction.
    pub soft_pin: Option<SoftPin>,
    /// A copy or move, planned or under way.
    pub copy: Option<Box<Copying>>,
    /// The group that the object belongs to, or will belong to when it is finished.
    pub group: Option<Membership>,
    /// The slot of the unfinished write that is to replace this object.
    pub successor: Option<u32>,
    /// Of such a write: the slot of the object that it is to replace.
    pub predecessor: Option<u32>,
    /// A disk is to write the bytes down, so they stay in memory.
    pub offloading: bool,
    /// Until then the object is not evicted: an upsert of it found no space, and must not get that of the object itself.
    pub held_until: Option<MonotonicTime>,
}

impl Extras {
    /// Whether somebody works with the bytes of the object without a lease, so that it must neither be evicted nor
    /// removed nor replaced.
    pub fn is_referenced(&self) -> bool {
        self.is_copied()
    }

    /// Whether an upsert of the object found no space a short time ago.
    pub fn is_held(&self, now: MonotonicTime) -> bool {
        self.held_until.is_some_and(|until| until > now)
    }

    /// Whether a client copies or moves the object.
    pub fn is_copied(&self) -> bool {
        self.copy.as_deref().is_some_and(|copying| copying.running().is_some())
    }

    /// Whether nothing is set, so that the box can go.
    pub fn is_empty(&self) -> bool {
        let Extras { soft_pin, copy, group, successor, predecessor, held_until, offloading } = self;
        let is_linked = successor.is_some() || predecessor.is_some();
        soft_pin.is_none() && copy.is_none() && group.is_none() && !is_linked && held_until.is_none() && !offloading
    }
}
