//! Numbers of open segments.

use std::collections::BTreeMap;

use yb_transfer::SegmentHandle;

/// The number of an open segment: 0 is the engine's own, others count from 1. The same name has the same number as
/// long as the engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u64);

impl SegmentId {
    /// The engine's own segment.
    pub const LOCAL: SegmentId = SegmentId(0);
}

/// Segments by name and by number.
#[derive(Debug)]
pub(crate) struct SegmentTable {
    by_name: BTreeMap<String, SegmentId>,
    by_id: Vec<SegmentHandle>,
}

impl SegmentTable {
    /// A table that knows the engine's own segment.
    pub(crate) fn new(own_name: &str, own: SegmentHandle) -> Self {
        SegmentTable { by_name: BTreeMap::from([(own_name.to_owned(), SegmentId::LOCAL)]), by_id: vec![own] }
    }

    pub(crate) fn id(&self, name: &str) -> Option<SegmentId> {
        self.by_name.get(name).copied()
    }

    pub(crate) fn handle(&self, id: SegmentId) -> Option<&SegmentHandle> {
        self.by_id.get(usize::try_from(id.0).ok()?)
    }

    /// The number of a segment, which it keeps; a file that was opened again is the one that its path names now.
    pub(crate) fn add(&mut self, name: &str, handle: SegmentHandle) -> SegmentId {
        if let Some(known) = self.id(name) {
            let place = usize::try_from(known.0).ok().and_then(|index| self.by_id.get_mut(index));
            if let Some(place) = place.filter(|_| known != SegmentId::LOCAL) {
                *place = handle;
            }
            return known;
        }
        let id = SegmentId(self.by_id.len() as u64);
        self.by_id.push(handle);
        self.by_name.insert(name.to_owned(), id);
        id
    }

    /// Every segment of a peer.
    pub(crate) fn peers(&self) -> Vec<SegmentHandle> {
        self.by_id.iter().skip(1).cloned().collect()
    }
}
