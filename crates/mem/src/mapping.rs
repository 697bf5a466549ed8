//! Mappings of memfds, our own and a peer's.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};

use crate::{Span, SpanError};

/// The smallest page that a mapping is made of here; larger pages are multiples of it.
pub(crate) const PAGE: usize = 4096;

/// Transparent huge pages need it.
const HUGE_PAGE: usize = 2 << 20;
/// Where fresh memory is put by lot: 16 to 96 TiB, away from what the system fills from either end, and inside 47 bits.
const RANDOM_FROM: u64 = 16 << 40;
const RANDOM_TO: u64 = 96 << 40;
/// Draws that may meet other memory.
const RANDOM_TRIES: usize = 8;

/// An address by lot, a multiple of `alignment`; `None` when the system has no lots.
fn random_address(alignment: usize) -> Option<u64> {
    let mut lot = [0_u8; 8];
    // SAFETY: the buffer has the length that is passed.
    let got = unsafe { libc::getrandom(lot.as_mut_ptr().cast(), lot.len(), 0) };
    if usize::try_from(got) != Ok(lot.len()) {
        return None;
    }
    let alignment = alignment as u64;
    let places = (RANDOM_TO - RANDOM_FROM) / alignment;
    let place = u64::from_le_bytes(lot).checked_rem(places)?;
    Some(RANDOM_FROM.next_multiple_of(alignment) + place * alignment)
}

/// Why memory could not be mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// A call of the operating system failed.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The peer could take pages away under us.
    #[error("the memory file is not sealed against shrinking")]
    NotSealed,
    /// The new memory lies where a registered region was: its owner freed that without unregistering it.
    #[error("the new memory overlaps a registered region, which was freed without being unregistered")]
    Overlap,
    /// The file is shorter than the region that was announced.
    #[error("the memory file has {size} bytes, the region needs {needed}")]
    TooShort {
        /// Bytes in the file.
        size: u64,
        /// Bytes the region needs.
        needed: u64,
    },
}

impl MapError {
    pub(crate) fn os(what: &'static str) -> impl Fn(rustix::io::Errno) -> MapError {
        move |errno| MapError::Os { what, source: errno.into() }
    }
}

/// A shared mapping of a memory file, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is an address range owned by this value; its bytes are only reached through spans.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps a whole memory file of `len` bytes, readable and writable.
    pub(crate) fn of_file(file: BorrowedFd<'_>, len: usize) -> Result<Self, MapError> {
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let first = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED, file, 0)
        }
        .map_err(MapError::os("mapping a memory file"))?;
        let first = NonNull::new(first.cast::<u8>())
            .ok_or(MapError::Os { what: "mapping a memory file", source: io::ErrorKind::AddrNotAvailable.into() })?;
        Ok(Mapping { first, len })
    }

    /// As [`Mapping::of_file`], at this address, or not at all when something else is there.
    pub(crate) fn of_file_just_at(file: BorrowedFd<'_>, len: usize, address: u64) -> Result<Self, MapError> {
        let what = "mapping a memory file at its old address";
        let refused = || MapError::Os { what, source: io::ErrorKind::AddrInUse.into() };
        let wanted = usize::try_from(address).map_err(|_| refused())?;
        // SAFETY: the system refuses an address where memory is mapped already, so no existing memory is touched.
        let first = unsafe {
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED_NOREPLACE);
            rustix::mm::mmap(std::ptr::without_provenance_mut(wanted), len, access, flags, file, 0)
        }
        .map_err(MapError::os(what))?;
        let first = NonNull::new(first.cast::<u8>()).ok_or_else(refused)?;
        let mapping = Mapping { first, len };
        // A kernel that does not know the flag takes the address for a wish.
        if mapping.address() == address { Ok(mapping) } else { Err(refused()) }
    }

    /// As [`Mapping::of_file_at`], at an address that nothing before this is likely to have had, in this process or in an
    /// earlier one under the same name: who still has an address of theirs is refused, and does not get other bytes.
    pub(crate) fn of_file_anywhere(file: BorrowedFd<'_>, len: usize, alignment: usize) -> Result<Self, MapError> {
        let alignment = alignment.max(HUGE_PAGE);
        for _ in 0..RANDOM_TRIES {
            let Some(address) = random_address(alignment) else { break };
            if let Ok(mapping) = Mapping::of_file_just_at(file, len, address) {
                return Ok(mapping);
            }
        }
        // A small address space, or a full one.
        Mapping::of_file_at(file, len, alignment)
    }

    /// As [`Mapping::of_file`], at a multiple of `alignment`, a power of two.
    pub(crate) fn of_file_at(file: BorrowedFd<'_>, len: usize, alignment: usize) -> Result<Self, MapError> {
        if alignment <= PAGE {
            return Mapping::of_file(file, len);
        }
        let what = "mapping a memory file";
        let too_long = || MapError::Os { what, source: io::ErrorKind::OutOfMemory.into() };
        let reserved = len.checked_add(alignment).ok_or_else(too_long)?;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), reserved, ProtFlags::empty(), MapFlags::PRIVATE)
        }
        .map_err(MapError::os(what))?;
        let lead = start.cast::<u8>().align_offset(alignment).min(alignment);
        let rest = reserved - lead - len.next_multiple_of(PAGE);
        // SAFETY: all three ranges lie inside the mapping that was just made and that nobody else knows: its middle is
        // replaced, what is left on either side is given back.
        unsafe {
            let first = start.cast::<u8>().add(lead);
            let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
            if let Err(errno) = rustix::mm::mmap(first.cast(), len, access, flags, file, 0) {
                let _ = rustix::mm::munmap(start, reserved);
                return Err(MapError::os(what)(errno));
            }
            if lead > 0 {
                let _ = rustix::mm::munmap(start, lead);
            }
            if rest > 0 {
                let _ = rustix::mm::munmap(first.add(len.next_multiple_of(PAGE)).cast(), rest);
            }
            let first = NonNull::new(first).ok_or_else(too_long)?;
            Ok(Mapping { first, len })
        }
    }

    /// Maps `offset..offset+len` of a memory file received from a peer.
    ///
    /// # Errors
    /// When the file is not sealed against shrinking or is too short, or the system refuses.
    pub fn of_peer(file: &OwnedFd, offset: u64, len: u64) -> Result<PeerView, MapError> {
        let seals = rustix::fs::fcntl_get_seals(file).map_err(MapError::os("reading the seals of a peer's memory"))?;
        if !seals.contains(SealFlags::SHRINK) {
            return Err(MapError::NotSealed);
        }
        Mapping::view(file, offset, len)
    }

    /// Maps `offset..offset+len` of a file whose seals are known.
    fn view(file: &OwnedFd, offset: u64, len: u64) -> Result<PeerView, MapError> {
        let stat = rustix::fs::fstat(file).map_err(MapError::os("reading the size of a peer's memory"))?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let needed = offset.saturating_add(len);
        if needed > size || len == 0 {
            return Err(MapError::TooShort { size, needed });
        }
        let total = usize::try_from(size).map_err(|_| MapError::TooShort { size: 0, needed })?;
        let mapping = Mapping::of_file(file.as_fd(), total)?;
        Ok(PeerView { mapping, offset: offset as usize, len: len as usize, file: (stat.st_dev, stat.st_ino) })
    }

    /// Maps the first `len` bytes of a memory file that a process on this host handed over, after sealing it against
    /// shrinking. A file whose maker did not leave that open is only mapped if its maker is `trusted`: shrinking it ends
    /// this process.
    ///
    /// # Errors
    /// When the file is too short, cannot be sealed, or is no memory file, or the system refuses.
    pub fn of_neighbour(file: &OwnedFd, len: u64, trusted: bool) -> Result<PeerView, MapError> {
        let sealed = rustix::fs::fcntl_get_seals(file).map_err(MapError::os("reading the seals of a window"))?;
        if !sealed.contains(SealFlags::SHRINK) {
            match rustix::fs::fcntl_add_seals(file, SealFlags::SHRINK) {
                Ok(()) => {}
                Err(_) if trusted => {}
                Err(_) => return Err(MapError::NotSealed),
            }
        }
        Mapping::view(file, 0, len)
    }

    /// Bytes mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a mapping of no bytes (which the system does not make).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte.
    pub fn address(&self) -> u64 {
        self.first.as_ptr() as u64
    }

    pub(crate) fn pointer(&self) -> NonNull<u8> {
        self.first
    }

    /// All of it.
    pub fn span(&self) -> Span<'_> {
        // SAFETY: the mapping stays until self is dropped, and it was mapped readable and writable.
        unsafe { Span::from_raw(self.first, self.len, true) }
    }

    /// Asks for transparent huge pages; ignored where the kernel does not give them to shared memory.
    pub(crate) fn advise_huge(&self) {
        // SAFETY: the advice changes how the range is backed, not its contents.
        let _ = unsafe { rustix::mm::madvise(self.first.as_ptr().cast(), self.len, rustix::mm::Advice::LinuxHugepage) };
    }

    /// Touches every page of a part now, so that the first transfers do not pay for page faults. Parts outside the
    /// mapping are cut off.
    ///
    /// # Errors
    /// When the system has no memory left for it, or does not know the advice (before Linux 5.14).
    pub fn populate(&self, offset: usize, len: usize) -> Result<(), MapError> {
        let offset = offset.min(self.len) / PAGE * PAGE;
        let len = len.min(self.len - offset);
        // SAFETY: the part is inside our own mapping, and populating its pages does not change their contents.
        unsafe {
            let first = self.first.as_ptr().add(offset);
            rustix::mm::madvise(first.cast(), len, rustix::mm::Advice::LinuxPopulateWrite)
        }
        .map_err(MapError::os("populating a mapping"))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us, spans of it cannot outlive self.
        let _ = unsafe { rustix::mm::munmap(self.first.as_ptr().cast(), self.len) };
    }
}

/// A region of a peer's memory, mapped here.
#[derive(Debug)]
pub struct PeerView {
    mapping: Mapping,
    offset: usize,
    len: usize,
    /// Device and inode of the memory file.
    file: (u64, u64),
}

impl PeerView {
    /// Whether the view is of this memory file.
    pub fn is_of(&self, file: &OwnedFd) -> bool {
        rustix::fs::fstat(file).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.file)
    }

    /// The bytes of the region.
    ///
    /// # Errors
    /// Never for a view made by [`Mapping::of_peer`]; the type says so for the arithmetic's sake.
    pub fn span(&self) -> Result<Span<'_>, SpanError> {
        self.mapping.span().slice(self.offset, self.len)
    }

    pub(crate) fn into_mapping(self) -> Mapping {
        self.mapping
    }

    /// Touches every page of a part of the region now; see [`Mapping::populate`].
    ///
    /// # Errors
    /// The system's.
    pub fn populate(&self, offset: usize, len: usize) -> Result<(), MapError> {
        self.mapping.populate(self.offset.saturating_add(offset), len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    #[test]
    fn a_neighbours_file_is_sealed_or_trusted() {
        let open = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&open, 8192).unwrap();
        assert_eq!(Mapping::of_neighbour(&open, 8192, false).unwrap().span().unwrap().len(), 8192);
        assert!(rustix::fs::ftruncate(&open, 0).is_err());
        assert!(matches!(Mapping::of_neighbour(&open, 8193, true), Err(MapError::TooShort { .. })));
        let shut = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&shut, 8192).unwrap();
        assert!(matches!(Mapping::of_neighbour(&shut, 8192, false), Err(MapError::NotSealed)));
        assert!(Mapping::of_neighbour(&shut, 8192, true).is_ok());
    }

    #[test]
    fn an_unsealed_or_short_file_is_refused() {
        let file = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 8192).unwrap();
        assert!(matches!(Mapping::of_peer(&file, 0, 8192), Err(MapError::NotSealed)));
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        assert!(matches!(Mapping::of_peer(&file, 4096, 8192), Err(MapError::TooShort { .. })));
        assert!(matches!(Mapping::of_peer(&file, u64::MAX, 8192), Err(MapError::TooShort { .. })));
        assert_eq!(Mapping::of_peer(&file, 4096, 4096).unwrap().span().unwrap().len(), 4096);
    }
}
