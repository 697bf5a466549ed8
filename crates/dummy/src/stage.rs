//! The staging window: places through which values go that lie in no shared memory.

use std::sync::Arc;

use parking_lot::Mutex;
use yb_alloc::{Alignment, Extent, OffsetAllocator};
use yb_mem::{CopyHint, MemorySegment, Span, copy};
use yb_types::ByteLen;

/// Shared memory of which places are given out.
pub(crate) struct Stage {
    segment: Arc<MemorySegment>,
    space: Mutex<OffsetAllocator>,
}

impl std::fmt::Debug for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stage").field("bytes", &self.segment.len()).finish_non_exhaustive()
    }
}

impl Stage {
    /// All of the segment is free.
    pub(crate) fn of(segment: Arc<MemorySegment>) -> Arc<Stage> {
        let space = OffsetAllocator::new(ByteLen(segment.len()), Alignment::CACHE_LINE);
        Arc::new(Stage { segment, space: Mutex::new(space) })
    }

    /// The memory.
    pub(crate) fn segment(&self) -> &Arc<MemorySegment> {
        &self.segment
    }

    /// Room for `len` bytes; `None` when there is none.
    pub(crate) fn place(self: &Arc<Self>, len: u64) -> Option<Place> {
        let extent = self.space.lock().allocate(ByteLen(len), 0)?;
        Some(Place { stage: Arc::clone(self), extent, len, lost: false })
    }
}

/// Room in a stage; free again when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    stage: Arc<Stage>,
    extent: Extent,
    len: u64,
    lost: bool,
}

impl Place {
    /// Its address, here and for the daemon.
    pub(crate) fn address(&self) -> u64 {
        self.stage.segment.address() + self.extent.offset
    }

    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The stage it is of.
    pub(crate) fn stage(&self) -> &Arc<Stage> {
        &self.stage
    }

    /// Somebody may still write to it: it is never given out again.
    pub(crate) fn lose(&mut self) {
        self.lost = true;
    }

    fn span(&self, offset: u64, len: u64) -> Option<Span<'_>> {
        let within = offset.checked_add(len).is_some_and(|end| end <= self.len);
        let first = usize::try_from(self.extent.offset.checked_add(offset)?).ok()?;
        within.then(|| self.stage.segment.span().slice(first, usize::try_from(len).ok()?).ok()).flatten()
    }

    /// Copies bytes in. False when they do not fit.
    pub(crate) fn fill(&self, offset: u64, from: Span<'_>, hint: CopyHint) -> bool {
        self.span(offset, from.len() as u64).is_some_and(|to| copy(to, from, hint).is_ok())
    }

    /// Copies bytes out. False when there are not that many, or they may not be written to.
    pub(crate) fn pour(&self, offset: u64, to: Span<'_>, hint: CopyHint) -> bool {
        self.span(offset, to.len() as u64).is_some_and(|from| copy(to, from, hint).is_ok())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.lost {
            // Only a place that was given out twice could fail to come back, and none is.
            let _ = self.stage.space.lock().free(self.extent.node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yb_mem::SegmentOptions;

    #[test]
    fn a_place_comes_back_unless_it_is_lost() {
        let segment = Arc::new(MemorySegment::create(8192, SegmentOptions::default()).unwrap());
        let stage = Stage::of(segment);
        let place = stage.place(8192).unwrap();
        assert!(place.fill(8000, Span::source(b"abc"), CopyHint::Cached));
        assert!(!place.fill(8190, Span::source(b"abc"), CopyHint::Cached));
        let mut out = [0; 3];
        assert!(place.pour(8000, Span::destination(&mut out), CopyHint::Cached) && &out == b"abc");
        assert!(stage.place(1).is_none());
        drop(place);
        let mut place = stage.place(8192).unwrap();
        place.lose();
        drop(place);
        assert!(stage.place(1).is_none());
    }
}
