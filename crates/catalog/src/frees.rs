//! What a batch of removals does together at its end: extents that come free, and why their objects are gone.
//!
//! **Problem.** Objects that leave one after the other lie in segments that other threads work on too. Taking the lock of a
//! segment for each of them makes its tables travel between cores each time.
//!
//! **Shape.** A batch of removals gathers what comes free and gives it back segment by segment, when enough has come together
//! and at its end. Until then the extents stay in use under the word of an object that is gone already, which nobody minds:
//! whoever follows such a word looks whether the object is there. The reasons of departures lie in lines that cores take from
//! each other, too: written one after the other, without a lock in between, they are waited for once.
//!
//! **Invariant.** An index is resolved in the table in which the object was found: another segment may have the index by the
//! time that the extent is given back.

use std::sync::Arc;

use smallvec::SmallVec;
use yb_alloc::NodeId;

use crate::departed::{Absence, Departed};
use crate::entry::Replica;
use crate::key::KeyHash;
use crate::segments::SegmentTable;

/// Extents, and objects, that are gathered at most.
const TOGETHER: usize = 128;

/// What a batch of removals has gathered. Done when it is dropped, too.
pub(crate) struct Frees<'c> {
    departed: &'c Departed,
    gone: SmallVec<[KeyHash; TOGETHER]>,
    table: Option<Arc<SegmentTable>>,
    /// Index of the segment, and the extent.
    extents: SmallVec<[(u32, NodeId); TOGETHER]>,
}

impl<'c> Frees<'c> {
    pub fn new(departed: &'c Departed) -> Self {
        Frees { departed, gone: SmallVec::new(), table: None, extents: SmallVec::new() }
    }

    /// An object is removed.
    pub fn removed(&mut self, hash: KeyHash) {
        if self.gone.len() == TOGETHER {
            self.remember();
        }
        self.gone.push(hash);
    }

    fn remember(&mut self) {
        self.gone.drain(..).for_each(|hash| self.departed.note(hash, Absence::Removed));
    }

    /// Takes over the extent of a replica whose object is out of its shard. `table`: as loaded under the lock of the shard.
    pub fn add(&mut self, table: &Arc<SegmentTable>, replica: &Replica) {
        let is_same = self.table.as_ref().is_some_and(|own| Arc::ptr_eq(own, table));
        if !is_same || self.extents.len() == TOGETHER {
            self.give_back();
            self.table = Some(Arc::clone(table));
        }
        self.extents.push((replica.segment, replica.node()));
    }

    /// Gives all of it back.
    fn give_back(&mut self) {
        let Some(table) = self.table.take() else { return };
        self.extents.sort_unstable_by_key(|(segment, _)| *segment);
        for run in self.extents.chunk_by(|(a, _), (b, _)| a == b) {
            if let Some(segment) = run.first().and_then(|(index, _)| table.live(*index)) {
                segment.free(run.iter().map(|(_, node)| *node));
            }
        }
        self.extents.clear();
    }
}

impl Drop for Frees<'_> {
    fn drop(&mut self) {
        self.remember();
        self.give_back();
    }
}
