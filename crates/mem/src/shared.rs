//! Memory of this process that was made to be handed to a daemon: `alloc_from_mem_pool`, `MooncakeHostMemAllocator`.
//!
//! The problem: such memory is made before anybody knows which daemon will see it, and is named by bare addresses later.
//! So the process keeps one list of it. Entries are shared: whoever found a segment keeps it mapped.

use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;

use crate::{MapError, MemorySegment, SegmentOptions};

/// The list of the process.
static PROCESS: LazyLock<SharedMemory> = LazyLock::new(SharedMemory::default);

/// Segments by address; none overlaps another, since each is mapped.
#[derive(Debug, Default)]
pub struct SharedMemory {
    segments: RwLock<Vec<Arc<MemorySegment>>>,
}

impl SharedMemory {
    /// The list of this process.
    pub fn of_process() -> &'static SharedMemory {
        &PROCESS
    }

    /// Makes memory of `len` bytes, all zero, and lists it.
    ///
    /// # Errors
    /// As [`MemorySegment::create`].
    pub fn allocate(&self, len: u64, options: SegmentOptions) -> Result<Arc<MemorySegment>, MapError> {
        let segment = Arc::new(MemorySegment::create(len, options)?);
        let mut segments = self.segments.write();
        let at = segments.partition_point(|other| other.address() < segment.address());
        segments.insert(at, Arc::clone(&segment));
        Ok(segment)
    }

    /// Takes the segment that starts at `address` off the list; it is unmapped when nobody holds it any more.
    pub fn release(&self, address: u64) -> Option<Arc<MemorySegment>> {
        let mut segments = self.segments.write();
        let at = segments.binary_search_by_key(&address, |segment| segment.address()).ok()?;
        Some(segments.remove(at))
    }

    /// The segment that holds all of `address..address+len`.
    pub fn around(&self, address: u64, len: u64) -> Option<Arc<MemorySegment>> {
        let segments = self.segments.read();
        let after = segments.partition_point(|segment| segment.address() <= address);
        let segment = segments.get(after.checked_sub(1)?)?;
        let end = address.checked_add(len)?;
        (end <= segment.address() + segment.len()).then(|| Arc::clone(segment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_inside_finds_its_segment_and_no_other_does() {
        let memory = SharedMemory::default();
        let segment = memory.allocate(10_000, SegmentOptions::default()).unwrap();
        let first = segment.address();
        assert_eq!(memory.around(first + 5000, 5000).unwrap().address(), first);
        assert!(memory.around(first + 5000, 5001).is_none() && memory.around(first, u64::MAX).is_none());
        assert!(memory.around(first - 1, 1).is_none());
        assert!(memory.release(first + 1).is_none());
        assert_eq!(memory.release(first).unwrap().address(), first);
        assert!(memory.around(first, 1).is_none());
    }
}
