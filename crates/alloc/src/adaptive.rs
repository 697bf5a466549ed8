//! The allocator of a segment: pages for sizes that come often, an extent of its own for everything else.

use yb_types::ByteLen;

use crate::nodes::NodeId;
use crate::offset::{Alignment, BadNode, Extent, OffsetAllocator, Owned};
use crate::pages::{DISSOLVED_AT_ONCE, PAGE, PageLimits, Pages};

/// How a segment is cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cutting {
    /// Sizes that come often get runs of equal pages, learned from what comes.
    #[default]
    Adaptive,
    /// As `Adaptive`, but no object is aligned less than the others: an extent is known by its offset and its size alone,
    /// and can be restored from them.
    Whole,
    /// Every object has an extent of its own.
    Offset,
}

/// Longer objects get an extent of their own: 24 bytes of bookkeeping do not matter to them.
const PAGE_MAX: u64 = 64 << 10;
const RUN_MAX: u64 = 4 << 20;
/// A page is no larger than this share of the segment, and a run no larger than that.
const PAGE_SHARE: u64 = 4096;
const RUN_SHARE: u64 = 256;
/// Rounding an object up to the alignment may cost this share of it; a smaller object is aligned less.
const WASTE_SHARE: u64 = 64;

/// Gives out extents of one segment and takes them back.
///
/// An extent starts at a multiple of the alignment, or, where rounding to it would waste more than 1/64 of a small
/// object, at a multiple of a smaller power of two.
///
/// ```
/// use yb_alloc::{AdaptiveAllocator, Alignment, Cutting};
/// use yb_types::ByteLen;
/// let mut space = AdaptiveAllocator::new(ByteLen(1 << 20), Alignment::CACHE_LINE, Cutting::Adaptive);
/// let extents: Vec<_> = (0..1000).map(|word| space.allocate(ByteLen(47), word).unwrap()).collect();
/// assert!(space.used().0 < 1000 * 48, "small objects lie close together once there are many");
/// for extent in extents {
///     space.free(extent.node).unwrap();
/// }
/// assert_eq!(space.largest_free(), ByteLen(1 << 20));
/// ```
pub struct AdaptiveAllocator {
    space: OffsetAllocator,
    pages: Pages,
    alignment: Alignment,
    /// No object is aligned less than to two to this power.
    finest: u32,
}

impl AdaptiveAllocator {
    /// An empty segment. A tail shorter than the alignment is not used and not counted.
    pub fn new(capacity: ByteLen, alignment: Alignment, cutting: Cutting) -> Self {
        let page_max = match cutting {
            Cutting::Adaptive | Cutting::Whole => PAGE_MAX.min(capacity.0 / PAGE_SHARE),
            Cutting::Offset => 0,
        };
        let limits = PageLimits { page_max, run_max: RUN_MAX.min(capacity.0 / RUN_SHARE) };
        let finest = if cutting == Cutting::Whole || alignment.bytes() > Alignment::CACHE_LINE.bytes() {
            alignment.shift()
        } else {
            0
        };
        AdaptiveAllocator {
            space: OffsetAllocator::new(capacity, alignment),
            pages: Pages::new(limits),
            alignment,
            finest,
        }
    }

    /// An extent of at least `size` bytes (at least one, also for size 0), carrying the owner's word; `None` when no
    /// free extent and no free page is large enough.
    pub fn allocate(&mut self, size: ByteLen, owner: u64) -> Option<Extent> {
        let len = page_len(size.0.max(1), self.alignment, self.finest);
        if let Some(page) = self.pages.allocate(&mut self.space, len, owner) {
            return Some(page);
        }
        if let Some(extent) = self.space.allocate(size, owner) {
            return Some(extent);
        }
        for _ in 0..DISSOLVED_AT_ONCE {
            if !self.pages.dissolve_one(&mut self.space) {
                break;
            }
            if let Some(extent) = self.space.allocate(size, owner) {
                return Some(extent);
            }
        }
        self.pages.borrow(len, owner)
    }

    /// Takes an extent back; answers its bytes.
    ///
    /// # Errors
    /// [`BadNode`] when the handle names no extent in use.
    pub fn free(&mut self, node: NodeId) -> Result<ByteLen, BadNode> {
        if node.0 & PAGE != 0 {
            return self.pages.free(&mut self.space, node).ok_or(BadNode(node));
        }
        if self.space.is_run(node) { Err(BadNode(node)) } else { self.space.free(node) }
    }

    /// Replaces the owner's word of an extent in use; answers the extent.
    ///
    /// # Errors
    /// [`BadNode`] when the handle names no extent in use.
    pub fn set_owner(&mut self, node: NodeId, owner: u64) -> Result<Extent, BadNode> {
        if node.0 & PAGE != 0 {
            return self.pages.set_owner(&mut self.space, node, owner).ok_or(BadNode(node));
        }
        if self.space.is_run(node) { Err(BadNode(node)) } else { self.space.set_owner(node, owner) }
    }

    /// Looks at up to about `limit` places of its tables from `from` (0 at first) on and hands out the extents in use
    /// among them, in no particular order of address. Answers where to go on, `None` at the end.
    pub fn scan(&self, from: u32, limit: u32, sink: impl FnMut(Owned)) -> Option<u32> {
        if from & PAGE != 0 {
            return self.pages.scan(&self.space, from, limit, sink);
        }
        self.space.scan(from, limit, sink).or(Some(PAGE)).filter(|&next| next != PAGE || self.pages.has_runs())
    }

    pub(crate) fn space_mut(&mut self) -> &mut OffsetAllocator {
        &mut self.space
    }

    /// Bytes that can be given out in all.
    pub fn capacity(&self) -> ByteLen {
        self.space.capacity()
    }

    /// Bytes in use, with what alignment costs.
    pub fn used(&self) -> ByteLen {
        ByteLen(self.space.used().0 - self.pages.idle())
    }

    /// Bytes free, in pages and elsewhere.
    pub fn free_bytes(&self) -> ByteLen {
        ByteLen(self.space.free_bytes().0 + self.pages.idle())
    }

    /// The largest extent that could be given out now, exact. Costs a walk over the free extents of one size class.
    pub fn largest_free(&mut self) -> ByteLen {
        self.space.largest_free().max(ByteLen(self.pages.largest()))
    }

    /// No free extent is larger than this; costs a few instructions, and may be too high by one size class (1/16).
    pub fn largest_free_bound(&self) -> ByteLen {
        self.space.largest_free_bound().max(ByteLen(self.pages.largest()))
    }

    /// Bytes of memory that the bookkeeping takes. Walks over the runs.
    pub fn memory(&self) -> usize {
        self.space.memory() + self.pages.memory()
    }
}

/// What an object of this size takes as a page.
fn page_len(size: u64, alignment: Alignment, finest: u32) -> u64 {
    for shift in (finest..=alignment.shift()).rev() {
        let mask = (1u64 << shift) - 1;
        let Some(up) = size.checked_add(mask) else { continue };
        let len = up & !mask;
        if len - size <= size / WASTE_SHARE || shift == finest {
            return len;
        }
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_objects_are_rounded_by_little() {
        let cases =
            [(1, 1), (15, 15), (32, 32), (47, 47), (64, 64), (111, 112), (1041, 1056), (4079, 4096), (4097, 4160)];
        for (size, len) in cases {
            assert_eq!(page_len(size, Alignment::CACHE_LINE, 0), len, "{size}");
        }
        assert_eq!(page_len(100, Alignment::BYTE, 0), 100);
        assert_eq!(
            page_len(100, Alignment::new(4096).unwrap_or(Alignment::BYTE), 12),
            4096,
            "a large alignment is kept"
        );
        assert_eq!(page_len(u64::MAX, Alignment::CACHE_LINE, 0), u64::MAX);
    }
}
