//! Memory for others: buffers that a daemon can be given, allocation functions for frameworks, and NUMA nodes.

use std::ffi::c_void;
use std::ptr::null_mut;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use yb_mem::{SegmentOptions, SharedMemory};

use crate::convert::Unsigned;

/// Memory that can be shared with a `mooncake_client` daemon on this host without a copy: a memory file for each buffer.
/// All instances hand out from one list of the process.
#[pyclass(module = "mooncake.store", frozen)]
pub(crate) struct MooncakeHostMemAllocator;

#[pymethods]
impl MooncakeHostMemAllocator {
    #[new]
    fn new() -> Self {
        MooncakeHostMemAllocator
    }

    /// Address of `size` bytes, all zero; `RuntimeError` when there is no memory, and for no bytes.
    fn alloc(&self, py: Python<'_>, size: Unsigned) -> PyResult<u64> {
        let made = py.detach(|| SharedMemory::of_process().allocate(size.0, SegmentOptions::default()));
        let segment = made.map_err(|error| PyRuntimeError::new_err(format!("{} bytes of memory: {error}", size.0)))?;
        Ok(segment.address())
    }

    /// Gives memory back: 0, or -1 when `alloc` gave none at this address. A store or a daemon that still uses it keeps it
    /// until it is done.
    fn free(&self, py: Python<'_>, ptr: Unsigned) -> i64 {
        py.detach(|| SharedMemory::of_process().release(ptr.0)).map_or(-1, |_| 0)
    }
}

/// Runs the calling thread on the processors of a NUMA node, and makes the memory that it touches first there. A node that
/// is not there is only logged.
#[pyfunction]
pub(crate) fn bind_to_numa_node(node: i64) {
    crate::logs::start();
    let bound = u32::try_from(node).map_err(|_| std::io::Error::other("no such NUMA node"));
    if let Err(error) = bound.and_then(yb_mem::bind_thread) {
        tracing::warn!(node, %error, "the thread is not bound to the NUMA node");
    }
}

/// Address of a C function `void *(size_t size, ...)` for allocators that can be plugged in: memory that may be backed by
/// huge pages; null when there is none.
#[pyfunction]
pub(crate) fn get_alloc_func_addr() -> usize {
    allocate as *const () as usize
}

/// Address of the C function `void (void *memory, size_t size, ...)` that takes back what the other one gave.
#[pyfunction]
pub(crate) fn get_free_func_addr() -> usize {
    release as *const () as usize
}

/// Sizes from here on start at a huge page.
const HUGE: usize = 2 << 20;
const PAGE: usize = 4096;

/// What is mapped for `size` bytes; a size alone tells it, so that giving back needs no table.
fn mapped(size: usize) -> Option<usize> {
    size.max(1).checked_next_multiple_of(if size >= HUGE { HUGE } else { PAGE })
}

extern "C" fn allocate(size: usize) -> *mut c_void {
    let Some(len) = mapped(size) else { return null_mut() };
    let lead = if size >= HUGE { HUGE } else { 0 };
    let Some(reserved) = len.checked_add(lead) else { return null_mut() };
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses touches no existing memory.
    let Ok(start) = (unsafe { rustix::mm::mmap_anonymous(null_mut(), reserved, access, MapFlags::PRIVATE) }) else {
        return null_mut();
    };
    if lead == 0 {
        return start;
    }
    let skip = start.cast::<u8>().align_offset(HUGE).min(lead);
    // SAFETY: all ranges lie inside the mapping that was just made and that nobody else knows; what is not needed on
    // either side is given back, and the advice changes how the rest is backed, not its contents.
    unsafe {
        let first = start.cast::<u8>().add(skip);
        if skip > 0 {
            let _ = rustix::mm::munmap(start, skip);
        }
        if lead > skip {
            let _ = rustix::mm::munmap(first.add(len).cast(), lead - skip);
        }
        let _ = rustix::mm::madvise(first.cast(), len, Advice::LinuxHugepage);
        first.cast()
    }
}

extern "C" fn release(memory: *mut c_void, size: usize) {
    let Some(len) = mapped(size).filter(|_| !memory.is_null()) else { return };
    // SAFETY: whoever calls a free function gives back what the allocation function gave for this size, and uses it no more.
    let _ = unsafe { rustix::mm::munmap(memory, len) };
}
