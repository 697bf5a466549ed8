//! Extents that nobody owns any more but that somebody may still write to or read from.
//!
//! They stay out of use until a deadline, or, where only a writer is feared, until the node that holds the memory
//! confirms that no transfer to them is open.

use std::collections::{BTreeMap, BTreeSet};

use yb_alloc::{AdaptiveAllocator, Extent};
use yb_types::{ByteLen, Generation, MonotonicTime};

use crate::planted::{Fault, planted};
use crate::shares::Account;

/// The owner's word of a withheld extent.
pub(crate) const WITHHELD: u64 = u64::MAX;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Withheld {
    pub extent: Extent,
    pub generation: Generation,
    pub until: MonotonicTime,
    /// Kept for a writer (a confirmation ends it), not for readers: where that one is counted.
    pub writer: Option<Account>,
}

/// The withheld extents of one segment.
#[derive(Default)]
pub(crate) struct Deferred {
    by_offset: BTreeMap<u64, Withheld>,
    by_deadline: BTreeSet<(MonotonicTime, u64)>,
    bytes: u64,
}

impl Deferred {
    /// Withholds an extent that is still allocated.
    pub fn insert(&mut self, withheld: Withheld) {
        self.bytes += withheld.extent.len;
        self.by_deadline.insert((withheld.until, withheld.extent.offset));
        self.by_offset.insert(withheld.extent.offset, withheld);
    }

    /// Frees one extent whose time has come.
    pub fn release_due(&mut self, allocator: &mut AdaptiveAllocator, now: MonotonicTime) -> Option<Withheld> {
        let &(until, offset) = self.by_deadline.first()?;
        if until > now {
            return None;
        }
        self.release(allocator, offset)
    }

    /// Frees an extent whose node says that its writer is done. `None` when the extent is not withheld for a writer of
    /// this generation: then the confirmation came late and changes nothing.
    pub fn confirm(
        &mut self,
        allocator: &mut AdaptiveAllocator,
        offset: u64,
        generation: Generation,
    ) -> Option<Withheld> {
        let withheld = self.by_offset.get(&offset)?;
        let is_meant = withheld.generation == generation || planted(Fault::AnyGeneration);
        if withheld.writer.is_none() || !is_meant {
            return None;
        }
        self.release(allocator, offset)
    }

    fn release(&mut self, allocator: &mut AdaptiveAllocator, offset: u64) -> Option<Withheld> {
        let withheld = self.by_offset.remove(&offset)?;
        self.by_deadline.remove(&(withheld.until, offset));
        self.bytes -= withheld.extent.len;
        allocator.free(withheld.extent.node).ok()?;
        Some(withheld)
    }

    /// The segment is gone, and these with it.
    pub fn abandon(&mut self) -> impl Iterator<Item = Withheld> + use<> {
        std::mem::take(self).by_offset.into_values()
    }

    /// Bytes kept for writers.
    pub fn bytes_for_writers(&self) -> u64 {
        self.by_offset.values().filter(|withheld| withheld.writer.is_some()).map(|withheld| withheld.extent.len).sum()
    }

    /// When the next extent comes free by itself.
    pub fn next_due(&self) -> Option<MonotonicTime> {
        self.by_deadline.first().map(|&(until, _)| until)
    }

    pub fn bytes(&self) -> ByteLen {
        ByteLen(self.bytes)
    }
}
