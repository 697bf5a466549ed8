//! How a range of a file is cut into operations (pure).

/// Most bytes of one operation from or to the caller's memory.
pub(crate) const BLOCK: u64 = 1 << 20;
/// Bytes of one bounce buffer.
pub(crate) const BOUNCE: u64 = 256 << 10;
/// Direct and cached operations never share a page: the kernel keeps the two coherent page by page.
const PAGE: u64 = 4096;

/// What must be aligned for operations past the page cache. Powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alignment {
    memory: u64,
    offset: u64,
}

impl Alignment {
    /// `None` for what cannot be had with buffers of [`BOUNCE`] bytes.
    pub(crate) fn new(memory: u32, offset: u32) -> Option<Self> {
        let usable = |bytes: u32| bytes.is_power_of_two() && u64::from(bytes) <= BOUNCE;
        (usable(memory) && u64::from(memory) <= PAGE && usable(offset))
            .then(|| Alignment { memory: u64::from(memory), offset: u64::from(offset).max(PAGE) })
    }
}

/// A range in one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Index of the file.
    pub(crate) part: usize,
    /// First byte in the file.
    pub(crate) offset: u64,
    /// Bytes.
    pub(crate) len: u64,
    /// Where its first byte is in the caller's memory.
    pub(crate) local: u64,
}

/// How a piece reaches the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Past the page cache, from or to the caller's memory.
    Direct,
    /// Past the page cache, from or to a bounce buffer. The operation covers `lead` bytes before the piece, and `trail`
    /// bytes behind it, that nobody asked for; both are 0 for writes.
    Bounced {
        /// Bytes read in front of the piece.
        lead: u64,
        /// Bytes read behind it.
        trail: u64,
    },
    /// Through the page cache.
    Cached,
}

/// One operation's worth of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The bytes that are wanted.
    pub(crate) extent: Extent,
    /// How they are had.
    pub(crate) mode: Mode,
}

fn down(value: u64, align: u64) -> u64 {
    value & !(align - 1)
}

fn up(value: u64, align: u64) -> u64 {
    value.saturating_add(align - 1) & !(align - 1)
}

/// Cuts an extent into pieces. `address` is that of its first byte in memory; without `alignment` the page cache is used.
pub(crate) fn plan(write: bool, extent: Extent, address: u64, alignment: Option<Alignment>) -> Vec<Piece> {
    let Some(alignment) = alignment else { return cut(extent, 0, extent.len, BLOCK, |_| Mode::Cached) };
    let end = extent.offset.saturating_add(extent.len);
    let (first, last) = (up(extent.offset, alignment.offset), down(end, alignment.offset));
    if first >= last {
        // No aligned block lies wholly inside.
        return if write { cut(extent, 0, extent.len, BLOCK, |_| Mode::Cached) } else { bounced(extent, alignment) };
    }
    let (head, body) = (first - extent.offset, last - first);
    let is_aligned = down(address.wrapping_add(head), alignment.memory) == address.wrapping_add(head);
    if !is_aligned && !write {
        return bounced(extent, alignment);
    }
    let (body_mode, size) = match is_aligned {
        true => (Mode::Direct, BLOCK),
        false => (Mode::Bounced { lead: 0, trail: 0 }, BOUNCE),
    };
    let mut pieces = cut(extent, head, body, size, |_| body_mode);
    for (at, len) in [(0, head), (head + body, extent.len - head - body)] {
        if write {
            pieces.extend(cut(extent, at, len, BLOCK, |_| Mode::Cached));
        } else if len > 0 {
            pieces.extend(bounced(part_of(extent, at, len), alignment));
        }
    }
    pieces
}

fn part_of(extent: Extent, at: u64, len: u64) -> Extent {
    Extent { offset: extent.offset + at, len, local: extent.local + at, ..extent }
}

fn cut(extent: Extent, at: u64, len: u64, size: u64, mode: impl Fn(Extent) -> Mode) -> Vec<Piece> {
    let starts = (0..len.div_ceil(size)).map(|index| index * size);
    let piece = |start: u64| part_of(extent, at + start, size.min(len - start));
    starts.map(piece).map(|extent| Piece { extent, mode: mode(extent) }).collect()
}

/// Reads of whole blocks into bounce buffers.
fn bounced(extent: Extent, alignment: Alignment) -> Vec<Piece> {
    let end = extent.offset.saturating_add(extent.len);
    let mut pieces = Vec::new();
    let mut at = down(extent.offset, alignment.offset);
    while at < end {
        let next = at.saturating_add(BOUNCE);
        let (first, last) = (at.max(extent.offset), next.min(end));
        let covered = next.min(up(end, alignment.offset));
        let wanted = part_of(extent, first - extent.offset, last - first);
        pieces.push(Piece { extent: wanted, mode: Mode::Bounced { lead: first - at, trail: covered - last } });
        at = next;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_byte_is_covered_once_and_what_is_direct_is_aligned(
            write: bool,
            offset in 0_u64..10_000_000,
            len in 1_u64..5_000_000,
            address in 4096_u64..20_000,
            local in 0_u64..10_000,
            memory in 0_u32..13,
            align in 0_u32..17,
            direct: bool,
        ) {
            let alignment = Alignment::new(1 << memory, 1 << align).unwrap();
            let extent = Extent { part: 3, offset, len, local };
            let mut pieces = plan(write, extent, address, direct.then_some(alignment));
            pieces.sort_by_key(|piece| piece.extent.offset);
            let mut at = offset;
            for Piece { extent: piece, mode } in &pieces {
                prop_assert_eq!((piece.offset, piece.local - local, piece.part), (at, at - offset, 3));
                prop_assert!(piece.len > 0 && piece.len <= BLOCK);
                at += piece.len;
                match mode {
                    Mode::Direct => {
                        let first = address + piece.offset - offset;
                        prop_assert_eq!((first % alignment.memory, piece.offset % alignment.offset), (0, 0));
                        prop_assert_eq!(piece.len % alignment.offset, 0);
                    }
                    Mode::Bounced { lead, trail } => {
                        let total = lead + piece.len + trail;
                        prop_assert!(total <= BOUNCE && total % alignment.offset == 0);
                        prop_assert_eq!((piece.offset - lead) % alignment.offset, 0);
                        prop_assert!(!write || (*lead, *trail) == (0, 0));
                    }
                    Mode::Cached => prop_assert!(write || !direct),
                }
            }
            prop_assert_eq!(at, offset + len);
        }
    }

    #[test]
    fn absurd_alignments_are_not_used() {
        assert_eq!(Alignment::new(0, 0), None);
        assert_eq!(Alignment::new(512, 1 << 20), None);
        assert_eq!(Alignment::new(8192, 512), None);
        assert_eq!(Alignment::new(3, 512), None);
    }
}
