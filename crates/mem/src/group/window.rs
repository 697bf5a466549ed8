//! A range of addresses that is kept free until the memory behind it is known.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};

/// The range; given back when dropped. Its bytes belong to whoever was told the address.
#[derive(Debug)]
pub(super) struct Window {
    first: NonNull<u8>,
    len: usize,
}

// SAFETY: a window is an address range owned by this value; it never touches the bytes.
unsafe impl Send for Window {}
// SAFETY: as above; mapping over the range is one system call.
unsafe impl Sync for Window {}

impl Window {
    /// Keeps `len` bytes of addresses free. Nothing can be read or written there yet.
    pub(super) fn reserve(len: usize) -> Result<Window, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
        let first = unsafe { mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
        Ok(Window { first: NonNull::new(first.cast()).ok_or(Errno::NOMEM)?, len })
    }

    /// Puts the first `len` bytes of a file there, readable and writable, shared with every other process that has them.
    pub(super) fn fill(&self, file: BorrowedFd<'_>, len: usize) -> Result<(), Errno> {
        if len == 0 || len > self.len {
            return Err(Errno::INVAL);
        }
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range is ours and nothing refers to its bytes through this crate.
        unsafe { mmap(self.first.as_ptr().cast(), len, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0) }?;
        Ok(())
    }

    /// Address of the first byte.
    pub(super) fn address(&self) -> u64 {
        self.first.as_ptr() as u64
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by us; whoever uses the address keeps the window.
        let _ = unsafe { munmap(self.first.as_ptr().cast(), self.len) };
    }
}
