//! The allocator over bins and nodes.

use std::fmt;

use yb_types::ByteLen;

use crate::bins::Bins;
use crate::nodes::{NIL, NodeId, Nodes};

/// A power of two that every extent starts at a multiple of, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment(u32);

impl Alignment {
    /// One byte: nothing is rounded.
    pub const BYTE: Alignment = Alignment(0);
    /// One cache line, 64 bytes.
    pub const CACHE_LINE: Alignment = Alignment(6);

    /// `None` unless `bytes` is a power of two.
    ///
    /// ```
    /// use yb_alloc::Alignment;
    /// assert_eq!(Alignment::new(64), Some(Alignment::CACHE_LINE));
    /// assert_eq!(Alignment::new(100), None);
    /// ```
    pub fn new(bytes: u64) -> Option<Self> {
        bytes.is_power_of_two().then(|| Alignment(bytes.trailing_zeros()))
    }

    /// In bytes.
    pub fn bytes(self) -> u64 {
        1 << self.0
    }

    pub(crate) fn shift(self) -> u32 {
        self.0
    }
}

/// A range of the segment that belongs to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte, from the start of the segment.
    pub offset: u64,
    /// Bytes taken: the size asked for, rounded up to the alignment.
    pub len: u64,
    /// The handle to free it with.
    pub node: NodeId,
}

/// An extent in use and the word its owner left with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The extent.
    pub extent: Extent,
    /// The owner's word.
    pub owner: u64,
}

/// The handle names no extent in use: it was freed before, or never given out. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadNode(pub NodeId);

impl fmt::Display for BadNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "extent {} is not in use", self.0.get())
    }
}

impl std::error::Error for BadNode {}

/// Gives out extents of one segment and takes them back, each in a few dozen nanoseconds.
///
/// ```
/// use yb_alloc::{Alignment, OffsetAllocator};
/// use yb_types::ByteLen;
/// let mut space = OffsetAllocator::new(ByteLen(1 << 20), Alignment::BYTE);
/// let extent = space.allocate(ByteLen(1000), 7).unwrap();
/// assert_eq!((extent.offset, extent.len, space.used()), (0, 1000, ByteLen(1000)));
/// assert_eq!(space.free(extent.node), Ok(ByteLen(1000)));
/// assert_eq!(space.largest_free(), ByteLen(1 << 20));
/// ```
pub struct OffsetAllocator {
    pub(crate) nodes: Nodes,
    pub(crate) bins: Bins,
    pub(crate) units: u64,
    pub(crate) used: u64,
    pub(crate) shift: u32,
}

impl OffsetAllocator {
    /// An empty segment. A tail shorter than the alignment is not used and not counted.
    pub fn new(capacity: ByteLen, alignment: Alignment) -> Self {
        let units = capacity.0 >> alignment.0;
        let mut nodes = Nodes::new(units);
        let mut bins = Bins::new();
        if units > 0
            && let Some(all) = nodes.insert(0, NIL, NIL)
        {
            bins.insert(&mut nodes, all, units);
        }
        OffsetAllocator { nodes, bins, units, used: 0, shift: alignment.0 }
    }

    /// An extent of at least `size` bytes (at least one unit, also for size 0), carrying the owner's word; `None` when
    /// no free extent is large enough.
    pub fn allocate(&mut self, size: ByteLen, owner: u64) -> Option<Extent> {
        let wanted = (size.0 >> self.shift) + u64::from(size.0 & ((1 << self.shift) - 1) != 0);
        let wanted = wanted.max(1);
        let node = self.bins.find(&self.nodes, wanted)?;
        let units = self.nodes.units(node);
        self.bins.remove(&mut self.nodes, node);
        let taken = if units > wanted { self.split(node, wanted, units) } else { units };
        self.nodes.set_used(node, Some(owner));
        self.used += taken;
        Some(self.extent(node, taken))
    }

    /// Takes an extent back; answers its bytes.
    ///
    /// # Errors
    /// [`BadNode`] when the handle names no extent in use.
    pub fn free(&mut self, node: NodeId) -> Result<ByteLen, BadNode> {
        if !self.nodes.is_used(node.0) {
            return Err(BadNode(node));
        }
        let freed = self.nodes.units(node.0);
        self.used -= freed;
        self.nodes.set_used(node.0, None);
        let mut start = node.0;
        let before = self.nodes.before(start);
        if before != NIL && !self.nodes.is_used(before) {
            self.bins.remove(&mut self.nodes, before);
            self.absorb_next(before);
            start = before;
        }
        let after = self.nodes.after(start);
        if after != NIL && !self.nodes.is_used(after) {
            self.bins.remove(&mut self.nodes, after);
            self.absorb_next(start);
        }
        let units = self.nodes.units(start);
        self.bins.insert(&mut self.nodes, start, units);
        Ok(ByteLen(freed << self.shift))
    }

    /// Replaces the owner's word of an extent in use; answers the extent.
    ///
    /// # Errors
    /// [`BadNode`] when the handle names no extent in use.
    pub fn set_owner(&mut self, node: NodeId, owner: u64) -> Result<Extent, BadNode> {
        if !self.nodes.is_used(node.0) {
            return Err(BadNode(node));
        }
        self.nodes.set_used(node.0, Some(owner));
        Ok(self.extent(node.0, self.nodes.units(node.0)))
    }

    /// Looks at up to `limit` table places from `from` on and hands out the extents in use among them, in no particular
    /// order of address. Answers where to go on, `None` at the end.
    pub fn scan(&self, from: u32, limit: u32, mut sink: impl FnMut(Owned)) -> Option<u32> {
        let end = from.saturating_add(limit).min(self.nodes.len());
        for index in (from..end).filter(|&index| self.nodes.is_used(index) && !self.nodes.is_run(index)) {
            let extent = self.extent(index, self.nodes.units(index));
            sink(Owned { extent, owner: self.nodes.owner(index) });
        }
        (end < self.nodes.len()).then_some(end)
    }

    /// Bytes that can be given out in all.
    pub fn capacity(&self) -> ByteLen {
        ByteLen(self.units << self.shift)
    }

    /// Bytes in use, with what the alignment costs.
    pub fn used(&self) -> ByteLen {
        ByteLen(self.used << self.shift)
    }

    /// Bytes free.
    pub fn free_bytes(&self) -> ByteLen {
        ByteLen((self.units - self.used) << self.shift)
    }

    /// The largest extent that could be given out now, exact. Costs a walk over the free extents of one size class.
    pub fn largest_free(&mut self) -> ByteLen {
        ByteLen(self.bins.largest(&self.nodes) << self.shift)
    }

    /// No free extent is larger than this; costs a few instructions, and may be too high by one size class (1/16).
    pub fn largest_free_bound(&self) -> ByteLen {
        ByteLen(self.bins.ceiling() << self.shift)
    }

    /// Bytes of memory that the bookkeeping takes.
    pub fn memory(&self) -> usize {
        self.nodes.memory() + self.bins.memory()
    }

    /// Whether the handle names an extent that is cut into pages.
    pub(crate) fn is_run(&self, node: NodeId) -> bool {
        self.nodes.is_run(node.0)
    }

    /// Notes that an extent in use is cut into pages.
    pub(crate) fn set_run(&mut self, node: NodeId) {
        self.nodes.set_run(node.0);
    }

    /// An extent in use and its owner's word.
    pub(crate) fn owned(&self, node: NodeId) -> Owned {
        let units = self.nodes.units(node.0);
        Owned { extent: self.extent(node.0, units), owner: self.nodes.owner(node.0) }
    }

    /// Whether a length needs no rounding.
    pub(crate) fn is_whole(&self, len: u64) -> bool {
        len & ((1 << self.shift) - 1) == 0
    }

    /// Whether there are numbers left for an extent that is cut in so many pieces.
    pub(crate) fn can_cut(&self, pieces: u32) -> bool {
        self.nodes.len().saturating_add(pieces) < NIL / 2
    }

    /// Cuts an extent in use into pieces of `len` bytes, each an extent of its own. `keep` gives the owner of a piece;
    /// pieces without one come free. Those kept stay marked as pages.
    pub(crate) fn cut(
        &mut self,
        node: NodeId,
        len: ByteLen,
        pieces: u32,
        mut keep: impl FnMut(u32, NodeId) -> Option<u64>,
    ) {
        let mut piece = node.0;
        let mut free = Vec::new();
        for at in 0..pieces {
            let after = self.nodes.after(piece);
            let rest = self.nodes.offset(piece) + (len.0 >> self.shift);
            let next = if at + 1 < pieces { self.nodes.insert(rest, piece, after) } else { None };
            if let Some(next) = next {
                self.nodes.join(piece, next);
                self.nodes.join(next, after);
                self.nodes.set_used(next, Some(0));
                self.nodes.set_run(next);
            }
            match keep(at, NodeId(piece)) {
                Some(owner) => self.nodes.set_used(piece, Some(owner)),
                None => free.push(NodeId(piece)),
            }
            piece = next.unwrap_or(piece);
        }
        for piece in free {
            let freed = self.free(piece);
            debug_assert!(freed.is_ok());
        }
    }

    /// Cuts a free node in two; the rest goes to its bin. Answers the units that the first part keeps.
    pub(crate) fn split(&mut self, node: u32, wanted: u64, units: u64) -> u64 {
        let after = self.nodes.after(node);
        // With all numbers taken the whole extent is given out; it comes back as one.
        let Some(rest) = self.nodes.insert(self.nodes.offset(node) + wanted, node, after) else { return units };
        self.nodes.join(node, rest);
        self.nodes.join(rest, after);
        self.bins.insert(&mut self.nodes, rest, units - wanted);
        wanted
    }

    /// Merges a node with its right neighbour, which is in no bin any more.
    fn absorb_next(&mut self, node: u32) {
        let next = self.nodes.after(node);
        let after = self.nodes.after(next);
        self.nodes.join(node, after);
        self.nodes.retire(next);
    }

    /// An extent in use.
    pub(crate) fn extent_of(&self, node: NodeId) -> Extent {
        self.extent(node.0, self.nodes.units(node.0))
    }

    fn extent(&self, node: u32, units: u64) -> Extent {
        Extent { offset: self.nodes.offset(node) << self.shift, len: units << self.shift, node: NodeId(node) }
    }
}
