//! Which segments may have room for a size, without asking them.
//!
//! One bit for each segment and power of two: the segment has a free extent of at least that many bytes, as far as its
//! allocator can tell. 64 segments share a block, so that a search in a full pool of a thousand segments reads 16 words.
//! Segments set their own bits, under the lock of their space, when their largest free extent changes its power of two.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const SEGMENTS_PER_BLOCK: u32 = 64;
/// Segments beyond 65536 are not indexed; they are asked each time.
const BLOCKS: usize = 1024;

struct Block([AtomicU64; 64]);

/// Shared by all segments of a catalog.
pub(crate) struct RoomIndex(Box<[OnceLock<Box<Block>>]>);

/// How many powers of two a free extent reaches: 0 for none, 1 for one byte, 64 for 2^63 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Powers(u8);

impl Powers {
    pub fn of(bytes: u64) -> Powers {
        Powers((64 - bytes.leading_zeros()) as u8)
    }
}

impl Default for RoomIndex {
    fn default() -> Self {
        RoomIndex((0..BLOCKS).map(|_| OnceLock::new()).collect())
    }
}

impl RoomIndex {
    fn block(&self, index: u32) -> Option<&OnceLock<Box<Block>>> {
        self.0.get((index / SEGMENTS_PER_BLOCK) as usize)
    }

    /// The largest free extent of a segment reaches other powers of two than before.
    pub fn note(&self, index: u32, before: Powers, after: Powers) {
        if before == after {
            return;
        }
        let Some(place) = self.block(index) else { return };
        let block = place.get_or_init(|| Box::new(Block([const { AtomicU64::new(0) }; 64])));
        let bit = 1u64 << (index % SEGMENTS_PER_BLOCK);
        for row in before.0..after.0 {
            block.0[row as usize].fetch_or(bit, Ordering::Relaxed);
        }
        for row in after.0..before.0 {
            block.0[row as usize].fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// The first segment from `from` up to `end` that may have a free extent of `size` bytes.
    pub fn next(&self, from: u32, end: u32, size: u64) -> Option<u32> {
        let row = size.max(1).ilog2() as usize;
        let mut at = from;
        while at < end {
            let Some(place) = self.block(at) else { return Some(at) };
            let word = place.get().map_or(0, |block| block.0[row].load(Ordering::Relaxed));
            let left = word >> (at % SEGMENTS_PER_BLOCK);
            if left != 0 {
                let found = at + left.trailing_zeros();
                return (found < end).then_some(found);
            }
            at = (at / SEGMENTS_PER_BLOCK + 1) * SEGMENTS_PER_BLOCK;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_who_may_have_room_and_skips_the_rest() {
        let index = RoomIndex::default();
        assert_eq!(index.next(0, 1000, 1), None);
        for (at, bytes) in [(3, 4096), (200, 1 << 20), (70_000, 0)] {
            index.note(at, Powers::default(), Powers::of(bytes));
        }
        assert_eq!(index.next(0, 1000, 4096), Some(3));
        assert_eq!(index.next(0, 1000, 4097), Some(3), "within a power of two the segment itself has to say");
        assert_eq!(index.next(0, 1000, 8192), Some(200));
        assert_eq!(index.next(4, 1000, 1), Some(200));
        assert_eq!(index.next(4, 200, 1), None);
        assert_eq!(index.next(0, 1000, 0), Some(3), "an empty object takes a place too");
        index.note(3, Powers::of(4096), Powers::of(100));
        assert_eq!((index.next(0, 1000, 128), index.next(0, 1000, 64)), (Some(200), Some(3)));
        index.note(3, Powers::of(100), Powers::of(0));
        assert_eq!(index.next(0, 1000, 1), Some(200));
        assert_eq!(index.next(69_999, 70_001, 1), Some(69_999), "beyond the index everybody is asked");
    }
}
