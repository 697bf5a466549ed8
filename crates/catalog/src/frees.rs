//! Extents that come free together.
//!
//! **Problem.** Objects that leave one after the other lie in segments that other threads work on too. Taking the lock of a
//! segment for each of them makes its tables travel between cores each time.
//!
//! **Shape.** A batch of removals gathers what comes free and gives it back segment by segment, when enough has come together
//! and at its end. Until then the extents stay in use under the word of an object that is gone already, which nobody minds:
//! whoever follows such a word looks whether the object is there.
//!
//! **Invariant.** An index is resolved in the table in which the object was found: another segment may have the index by the
//! time that the extent is given back.

use std::sync::Arc;

use smallvec::SmallVec;
use yb_alloc::NodeId;

use crate::entry::Replica;
use crate::segments::SegmentTable;

/// Extents that are given back together at most.
const TOGETHER: usize = 128;

/// What a batch of removals has gathered. Given back when it is dropped, too.
#[derive(Default)]
pub(crate) struct Frees {
    table: Option<Arc<SegmentTable>>,
    /// Index of the segment, and the extent.
    extents: SmallVec<[(u32, NodeId); TOGETHER]>,
}

impl Frees {
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

impl Drop for Frees {
    fn drop(&mut self) {
        self.give_back();
    }
}
