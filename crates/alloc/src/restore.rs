//! Filling an empty segment with extents that were given out in another life, from the front to the back.

use crate::adaptive::AdaptiveAllocator;
use crate::nodes::NodeId;
use crate::offset::{Extent, OffsetAllocator};

/// Where a segment that is being restored goes on: the free extent behind the last one. Nothing may be allocated or freed
/// in between.
#[derive(Clone, Copy, Debug)]
pub struct Restoring {
    tail: u32,
    /// First unit that is not restored yet.
    next: u64,
}

impl AdaptiveAllocator {
    /// Begins to restore an empty segment; `None` when something is in use, or there is no space at all.
    pub fn restore(&mut self) -> Option<Restoring> {
        self.space_mut().restore()
    }

    /// Takes back into use what an earlier life gave out at `offset` for `size` bytes, behind all that was restored before.
    /// `None`, and nothing changed, when that is no place that a segment with [`Cutting::Whole`](crate::Cutting::Whole)
    /// gives out: not aligned, not behind the last one, beyond the end.
    ///
    /// ```
    /// use yb_alloc::{AdaptiveAllocator, Alignment, Cutting};
    /// use yb_types::ByteLen;
    /// let mut space = AdaptiveAllocator::new(ByteLen(1 << 20), Alignment::CACHE_LINE, Cutting::Whole);
    /// let mut at = space.restore().unwrap();
    /// let extent = space.restore_next(&mut at, 128, 100, 7).unwrap();
    /// assert_eq!((extent.offset, extent.len, space.used().0), (128, 128, 128));
    /// assert!(space.restore_next(&mut at, 192, 1, 7).is_none(), "it would overlap");
    /// ```
    pub fn restore_next(&mut self, at: &mut Restoring, offset: u64, size: u64, owner: u64) -> Option<Extent> {
        self.space_mut().restore_next(at, offset, size, owner)
    }
}

impl OffsetAllocator {
    fn restore(&mut self) -> Option<Restoring> {
        let tail = self.bins.find(&self.nodes, self.units.max(1))?;
        Some(Restoring { tail, next: 0 })
    }

    fn restore_next(&mut self, at: &mut Restoring, offset: u64, size: u64, owner: u64) -> Option<Extent> {
        let unit = 1u64 << self.shift;
        let start = offset >> self.shift;
        let units = size.max(1).checked_add(unit - 1)? >> self.shift;
        let end = start.checked_add(units)?;
        if offset & (unit - 1) != 0 || start < at.next || end > self.units || at.tail == crate::nodes::NIL {
            return None;
        }
        let whole = self.nodes.units(at.tail);
        let gap = start.checked_sub(self.nodes.offset(at.tail))?;
        self.bins.remove(&mut self.nodes, at.tail);
        let used = if gap == 0 {
            Some(at.tail)
        } else {
            let after = self.nodes.after(at.tail);
            let used = self.nodes.insert(start, at.tail, after);
            if let Some(used) = used {
                self.nodes.join(at.tail, used);
                self.nodes.join(used, after);
                self.bins.insert(&mut self.nodes, at.tail, gap);
            }
            used
        };
        let Some(used) = used else {
            self.bins.insert(&mut self.nodes, at.tail, whole);
            return None;
        };
        let left = whole - gap;
        let taken = if left > units { self.split(used, units, left) } else { left };
        self.nodes.set_used(used, Some(owner));
        self.used += taken;
        at.next = start + taken;
        at.tail = self.nodes.after(used);
        Some(self.extent_of(NodeId(used)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use yb_types::ByteLen;

    use crate::{AdaptiveAllocator, Alignment, Cutting};

    fn empty() -> AdaptiveAllocator {
        AdaptiveAllocator::new(ByteLen(1 << 22), Alignment::CACHE_LINE, Cutting::Whole)
    }

    proptest! {
        /// What one life gave out, another takes back at the same places, and afterwards both are alike.
        #[test]
        fn a_second_life_has_the_same_extents(sizes in prop::collection::vec((1u64..9000, any::<bool>()), 1..400)) {
            let mut first = empty();
            let mut kept = Vec::new();
            for (size, keep) in sizes {
                let extent = first.allocate(ByteLen(size), 1).unwrap();
                prop_assert_eq!(extent.offset % 64, 0);
                if keep { kept.push((extent, size)) } else { first.free(extent.node).map(drop).unwrap() }
            }
            kept.sort_by_key(|(extent, _)| extent.offset);
            let mut second = empty();
            let mut at = second.restore().unwrap();
            let (mut nodes, mut refused) = (Vec::new(), Vec::new());
            for (nth, (extent, size)) in kept.iter().enumerate() {
                let back = second.restore_next(&mut at, extent.offset, *size, 2).unwrap();
                prop_assert_eq!(back.offset, extent.offset);
                prop_assert!(back.len <= extent.len && back.len >= *size);
                if nth % 7 == 3 { refused.push(back) } else { nodes.push(back) }
            }
            for extent in refused {
                second.free(extent.node).unwrap();
            }
            prop_assert_eq!(second.used().0, nodes.iter().map(|extent| extent.len).sum::<u64>());
            // What is given out now overlaps none of them.
            let mut fresh = Vec::new();
            while let Some(extent) = second.allocate(ByteLen(4096), 3) {
                prop_assert!(nodes.iter().all(|n| extent.offset + extent.len <= n.offset || n.offset + n.len <= extent.offset));
                fresh.push(extent);
            }
            for extent in nodes.into_iter().chain(fresh) {
                second.free(extent.node).unwrap();
            }
            prop_assert_eq!(second.largest_free(), ByteLen(1 << 22));
        }
    }

    #[test]
    fn places_that_nobody_was_given_are_refused() {
        let mut space = empty();
        let mut at = space.restore().unwrap();
        for (offset, size) in [(1, 1), (1 << 22, 1), ((1 << 22) - 64, 65), (0, u64::MAX), (u64::MAX - 63, 64)] {
            assert!(space.restore_next(&mut at, offset, size, 1).is_none(), "{offset} {size}");
        }
        assert!(space.restore_next(&mut at, (1 << 22) - 64, 64, 1).is_some());
        assert!(space.restore_next(&mut at, 0, 1, 1).is_none(), "only forwards");
        assert!(space.restore().is_none(), "not empty any more");
    }
}
