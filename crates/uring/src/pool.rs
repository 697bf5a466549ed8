//! Provided buffers: a pool that the kernel fills, and the ring through which it is told of free ones.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::IoUring;
use io_uring::types::BufRingEntry;

const PAGE: usize = 4096;
/// Added to the distance of buffers, so that their first bytes do not all fall into the same cache set.
const STAGGER: usize = 128;

/// A filled buffer, out of the kernel's reach until it is recycled. A forgotten one is lost to the pool, nothing worse.
#[derive(Debug)]
pub struct Buffer {
    id: u16,
    len: u32,
}

/// Memory of a fixed layout that the kernel may write to; raw, because no reference may cover what it writes.
struct Raw {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a Raw is plain memory with one owner; nothing in it is bound to a thread.
unsafe impl Send for Raw {}

impl Raw {
    fn new(bytes: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(bytes.max(1), PAGE).map_err(io::Error::other)?;
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        Ok(Raw { start, layout })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`, freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// The pool and its ring.
pub(crate) struct Pool {
    ring: Raw,
    memory: Raw,
    entries: u16,
    tail: u16,
    buffer_bytes: u32,
    /// Which buffers are outside the ring, in the hands of the user.
    held: Vec<bool>,
}

impl Pool {
    /// Registers `entries` (a power of two) buffers as group `group`.
    pub(crate) fn register(uring: &IoUring, group: u16, entries: u16, buffer_bytes: u32) -> io::Result<Self> {
        let stride = buffer_bytes as usize + STAGGER;
        let pool = Pool {
            ring: Raw::new(usize::from(entries) * size_of::<BufRingEntry>())?,
            memory: Raw::new(usize::from(entries) * stride)?,
            entries,
            tail: 0,
            buffer_bytes,
            held: vec![true; usize::from(entries)],
        };
        let address = pool.ring.start.as_ptr() as u64;
        // SAFETY: the ring's memory is page-aligned, large enough for `entries`, and lives as long as the pool, which the
        // reactor drops after the io_uring instance.
        unsafe { uring.submitter().register_buf_ring_with_flags(address, entries, group, 0)? };
        let mut pool = pool;
        (0..entries).for_each(|id| pool.offer(id));
        Ok(pool)
    }

    /// The buffer that a completion names. `None` for an id that the kernel cannot have taken.
    pub(crate) fn take(&mut self, id: u16, len: u32) -> Option<Buffer> {
        let held = self.held.get_mut(usize::from(id)).filter(|held| !**held)?;
        *held = true;
        Some(Buffer { id, len: len.min(self.buffer_bytes) })
    }

    /// The bytes of a held buffer.
    pub(crate) fn bytes(&self, buffer: &Buffer) -> &[u8] {
        let held = self.held.get(usize::from(buffer.id)).copied().unwrap_or(false);
        if !held || buffer.len > self.buffer_bytes {
            // A buffer of another reactor.
            return &[];
        }
        // SAFETY: the id is within the pool and the length within the buffer. The buffer is held: it is not in the ring, so
        // the kernel does not write to it, and `offer`, which puts it back, needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.start_of(buffer.id), buffer.len as usize) }
    }

    /// Gives a held buffer back to the kernel.
    pub(crate) fn recycle(&mut self, buffer: Buffer) {
        if self.held.get(usize::from(buffer.id)).copied().unwrap_or(false) {
            self.offer(buffer.id);
        }
    }

    /// Leaves the memory to the process for ever: the kernel may still write to it.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }

    fn start_of(&self, id: u16) -> *const u8 {
        let stride = self.buffer_bytes as usize + STAGGER;
        // SAFETY: callers pass an id below `entries`, so the offset is inside the allocation.
        unsafe { self.memory.start.as_ptr().add(usize::from(id) * stride) }
    }

    fn offer(&mut self, id: u16) {
        self.held[usize::from(id)] = false;
        let base = self.ring.start.as_ptr().cast::<BufRingEntry>();
        let index = usize::from(self.tail & (self.entries - 1));
        let address = self.start_of(id) as u64;
        // SAFETY: `index` is below `entries`, the ring holds that many, and the kernel reads an entry only after the tail
        // has passed it. The setters do not touch the tail, which shares the first entry.
        unsafe {
            let entry = &mut *base.add(index);
            entry.set_addr(address);
            entry.set_len(self.buffer_bytes);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail lies inside the first entry of the ring, aligned, and only this thread writes it.
        let tail = unsafe { &*BufRingEntry::tail(base).cast::<AtomicU16>() };
        tail.store(self.tail, Ordering::Release);
    }
}
