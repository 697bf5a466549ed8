//! The segments that one client has lent to the pool. Pure but for its locks.

use parking_lot::{Mutex, MutexGuard};
use yb_types::{Segment, SegmentId};

/// One of them.
#[derive(Debug)]
struct Entry {
    segment: Segment,
    /// Its grace time runs: the master takes it away by itself.
    leaves: bool,
}

/// All of them. The memory belongs to the engine's registry, where it is found by its first address.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    turn: Mutex<()>,
    entries: Mutex<Vec<Entry>>,
}

impl Lent {
    /// Whoever tells the master of segments does so one after the other: else a segment that is being mounted could be
    /// missing from the list that a master gets which lost sight of this client.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Adds a mounted segment.
    pub(crate) fn add(&self, segment: Segment) {
        self.entries.lock().push(Entry { segment, leaves: false });
    }

    /// Notes that a segment is on its way out.
    pub(crate) fn let_leave(&self, id: SegmentId) {
        if let Some(entry) = self.entries.lock().iter_mut().find(|entry| entry.segment.id == id) {
            entry.leaves = true;
        }
    }

    /// Forgets a segment; the first address of its memory.
    pub(crate) fn remove(&self, id: SegmentId) -> Option<u64> {
        let mut entries = self.entries.lock();
        let at = entries.iter().position(|entry| entry.segment.id == id)?;
        Some(entries.swap_remove(at).segment.base)
    }

    /// Whether a segment is there and not on its way out.
    pub(crate) fn has(&self, id: SegmentId) -> bool {
        self.entries.lock().iter().any(|entry| entry.segment.id == id && !entry.leaves)
    }

    /// The segments that the master is to have.
    pub(crate) fn mounted(&self) -> Vec<Segment> {
        let entries = self.entries.lock();
        entries.iter().filter(|entry| !entry.leaves).map(|entry| entry.segment.clone()).collect()
    }

    /// Those on their way out.
    pub(crate) fn leaving(&self) -> Vec<SegmentId> {
        let entries = self.entries.lock();
        entries.iter().filter(|entry| entry.leaves).map(|entry| entry.segment.id).collect()
    }

    /// All, also those on their way out.
    pub(crate) fn ids(&self) -> Vec<SegmentId> {
        self.entries.lock().iter().map(|entry| entry.segment.id).collect()
    }

    /// Bytes that new objects may be put in.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.lock().iter().filter(|entry| !entry.leaves).map(|entry| entry.segment.size).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yb_types::Uuid;

    fn segment(number: u64) -> Segment {
        let id = SegmentId(Uuid { first: number, second: 0 });
        Segment { id, base: number << 30, size: 1 << 20, ..Segment::default() }
    }

    #[test]
    fn what_leaves_is_not_mounted_again_and_is_found_until_it_is_gone() {
        let lent = Lent::default();
        let (one, two) = (segment(1), segment(2));
        lent.add(one.clone());
        lent.add(two.clone());
        assert_eq!((lent.bytes(), lent.ids().len()), (2 << 20, 2));
        lent.let_leave(one.id);
        assert_eq!(lent.mounted(), std::slice::from_ref(&two));
        assert_eq!(lent.leaving(), [one.id]);
        assert!(!lent.has(one.id) && lent.has(two.id) && lent.bytes() == 1 << 20);
        assert_eq!(lent.remove(one.id), Some(1 << 30));
        assert_eq!(lent.remove(one.id), None);
        assert_eq!(lent.ids(), [two.id]);
    }
}
