//! Memory of our own that peers on the same host can map.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::mapping::PAGE;
use crate::{MapError, Mapping, Span};

/// Bytes per step of populating: some milliseconds of work.
pub const POPULATE_PART: usize = 16 << 20;

/// Which pages back a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HugePages {
    /// Ordinary pages.
    Never,
    /// Huge pages where the kernel gives them to shared memory on advice.
    #[default]
    Advise,
    /// Reserved huge pages of 2 MiB; an error when the host has none.
    Reserved2M,
    /// Reserved huge pages of 1 GiB; an error when the host has none.
    Reserved1G,
}

/// How to make a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentOptions {
    /// Which pages back it.
    pub huge_pages: HugePages,
    /// Touch every page at once: a slow start and no faults later.
    pub populate: bool,
    /// The NUMA node on which pages are made first; another one when it is full, or when the kernel does not let us
    /// choose.
    pub numa_node: Option<u32>,
    /// The first address is a multiple of this power of two; what is no power of two, or less than a page, counts as a
    /// page.
    pub alignment: u64,
}

/// A memfd of fixed size, mapped here; sealed, so that neither we nor a peer can change its size.
#[derive(Debug)]
pub struct MemorySegment {
    file: OwnedFd,
    mapping: Mapping,
    len: u64,
    populated: AtomicBool,
    misplaced: Option<std::io::Error>,
}

impl MemorySegment {
    /// Makes a segment of `len` bytes, all zero.
    ///
    /// # Errors
    /// When the system refuses: no memory, no huge pages reserved, a length of zero.
    pub fn create(len: u64, options: SegmentOptions) -> Result<Self, MapError> {
        let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        match options.huge_pages {
            HugePages::Reserved2M => flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB,
            HugePages::Reserved1G => flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_1GB,
            HugePages::Never | HugePages::Advise => {}
        }
        let page = match options.huge_pages {
            HugePages::Reserved2M => 2 << 20,
            HugePages::Reserved1G => 1 << 30,
            HugePages::Never | HugePages::Advise => 4096_u64,
        };
        let file_len = len.checked_next_multiple_of(page).unwrap_or(u64::MAX);
        let file =
            rustix::fs::memfd_create("yuebing-segment", flags).map_err(MapError::os("creating a memory file"))?;
        rustix::fs::ftruncate(&file, file_len).map_err(MapError::os("sizing a memory file"))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(MapError::os("sealing a memory file"))?;
        let mapped = usize::try_from(file_len).map_err(|_| MapError::Os {
            what: "mapping a memory file",
            source: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        let alignment = if options.alignment.is_power_of_two() { options.alignment.max(page) } else { page };
        let mapping = Mapping::of_file_anywhere(file.as_fd(), mapped, usize::try_from(alignment).unwrap_or(PAGE))?;
        if options.huge_pages == HugePages::Advise {
            mapping.advise_huge();
        }
        let misplaced = options.numa_node.and_then(|node| crate::numa::prefer(&mapping.span(), node).err());
        let segment = MemorySegment { file, mapping, len, populated: AtomicBool::new(false), misplaced };
        if options.populate {
            segment.populate(|| true)?;
        }
        Ok(segment)
    }

    /// Touches every page, part after part, as long as `go_on` says so.
    ///
    /// # Errors
    /// When the system has no memory left for it, or does not know how (before Linux 5.14).
    pub fn populate(&self, mut go_on: impl FnMut() -> bool) -> Result<(), MapError> {
        for offset in (0..self.mapping.len()).step_by(POPULATE_PART) {
            if !go_on() {
                return Ok(());
            }
            self.mapping.populate(offset, POPULATE_PART)?;
        }
        self.populated.store(true, Ordering::Release);
        Ok(())
    }

    /// Touches the pages of a part; what is outside is cut off.
    ///
    /// # Errors
    /// As [`MemorySegment::populate`].
    pub fn populate_part(&self, offset: u64, len: u64) -> Result<(), MapError> {
        let bytes = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        self.mapping.populate(bytes(offset), bytes(len))
    }

    /// True when every page was touched: from then on, mapping them costs no memory.
    pub fn is_populated(&self) -> bool {
        self.populated.load(Ordering::Acquire)
    }

    /// Why its pages are not made on the node that was asked for; `None` when they are, or none was.
    pub fn misplaced(&self) -> Option<&std::io::Error> {
        self.misplaced.as_ref()
    }

    /// Address of the first byte in this process.
    pub fn address(&self) -> u64 {
        self.mapping.address()
    }

    /// Bytes asked for.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// True for a segment of no bytes (which the system does not make).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The descriptor to hand over.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// All of it.
    pub fn span(&self) -> Span<'_> {
        self.mapping.span().slice(0, self.len as usize).unwrap_or_else(|_| self.mapping.span())
    }

    /// A second mapping of the same memory, as a peer would have it.
    ///
    /// # Errors
    /// The system's.
    pub fn map_again(&self) -> Result<Mapping, MapError> {
        Mapping::of_file(self.file.as_fd(), self.mapping.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_mappings_show_the_same_bytes_and_the_size_is_fixed() {
        let segment = MemorySegment::create(10_000, SegmentOptions::default()).unwrap();
        assert_eq!(segment.len(), 10_000);
        let again = segment.map_again().unwrap();
        crate::copy(segment.span().slice(100, 3).unwrap(), Span::source(b"abc"), crate::CopyHint::Cached).unwrap();
        assert_eq!(again.span().slice(100, 3).unwrap().to_vec(), b"abc");
        assert!(rustix::fs::ftruncate(segment.file(), 0).is_err());
    }

    #[test]
    fn populating_takes_parts_and_can_be_stopped() {
        let segment = MemorySegment::create(40 << 20, SegmentOptions::default()).unwrap();
        let mut steps = 0;
        segment
            .populate(|| {
                steps += 1;
                steps < 3
            })
            .unwrap();
        assert!(steps == 3 && !segment.is_populated());
        segment.populate(|| true).unwrap();
        assert!(segment.is_populated());
    }

    #[test]
    fn addresses_are_aligned_as_asked() {
        for alignment in [0, 3, 4096, 1 << 21, 16 << 20] {
            let segment = MemorySegment::create(5 << 20, SegmentOptions { alignment, ..SegmentOptions::default() });
            let segment = segment.unwrap();
            let expected = if alignment < 4096 { 4096 } else { alignment };
            assert_eq!(segment.address() % expected, 0, "{alignment}");
            crate::copy(segment.span().slice((5 << 20) - 3, 3).unwrap(), Span::source(b"abc"), crate::CopyHint::Cached)
                .unwrap();
        }
        let absurd = SegmentOptions { alignment: 1 << 63, ..SegmentOptions::default() };
        assert!(MemorySegment::create(4096, absurd).is_err());
    }

    #[test]
    fn fresh_memory_does_not_lie_where_other_memory_was() {
        let len = 64 << 20;
        let before: Vec<u64> =
            (0..16).map(|_| MemorySegment::create(len, SegmentOptions::default()).unwrap().address()).collect();
        for (index, address) in before.iter().enumerate() {
            let is_near = |other: &u64| address.abs_diff(*other) < len;
            assert!(!before[..index].iter().any(is_near), "{before:x?}");
        }
    }

    #[test]
    fn a_node_that_is_not_there_does_not_keep_a_segment_from_being_made() {
        for node in [0, 1023, u32::MAX] {
            let options = SegmentOptions { numa_node: Some(node), populate: true, ..SegmentOptions::default() };
            let segment = MemorySegment::create(4096, options).unwrap();
            let there = crate::numa_node(&segment.span());
            assert!(node != 0 || there.is_none_or(|there| there == 0), "{there:?}");
        }
    }

    #[test]
    fn zero_and_absurd_lengths_are_errors() {
        assert!(MemorySegment::create(0, SegmentOptions::default()).is_err());
        assert!(MemorySegment::create(u64::MAX, SegmentOptions::default()).is_err());
    }
}
