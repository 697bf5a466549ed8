//! Registration of the caller's memory.
#![allow(non_snake_case, reason = "the names of the C API")]

use std::ffi::{c_char, c_int, c_void};

use yb_classic::{ANY_LOCATION, ClassicError};

use crate::handles::{answer, bad, engine};
use crate::{BufferEntry, text};

/// The caller's list.
///
/// # Safety
/// A pointer that is not null points to `len` elements that do not change during the call.
pub(crate) unsafe fn list<'a, T>(first: *const T, len: usize, what: &str) -> Result<&'a [T], ClassicError> {
    if len == 0 {
        return Ok(&[]);
    }
    if first.is_null() || !first.is_aligned() || len > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(bad(&format!("{what} is no list of {len} elements")));
    }
    // SAFETY: not null, aligned, not too long, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(first, len) })
}

/// Registers memory.
///
/// # Safety
/// The range stays mapped until it was unregistered successfully or the engine destroyed; `location` is null or text
/// that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn registerLocalMemory(
    handle: *mut c_void,
    addr: *mut c_void,
    length: usize,
    location: *const c_char,
    remote_accessible: c_int,
) -> c_int {
    answer(|| {
        let engine = engine(handle)?;
        // SAFETY: the caller's promise.
        let location = unsafe { text::optional(location, ANY_LOCATION, "the location") }?;
        let entry = yb_classic::BufferEntry { address: addr as u64, len: length as u64 };
        // SAFETY: the caller's promise.
        unsafe { engine.register_memory(entry, location, remote_accessible != 0) }
    })
}

/// Releases the memory that was registered at this address.
#[unsafe(no_mangle)]
pub extern "C" fn unregisterLocalMemory(handle: *mut c_void, addr: *mut c_void) -> c_int {
    answer(|| engine(handle)?.unregister_memory(addr as u64))
}

/// Registers all ranges or none.
///
/// # Safety
/// As [`registerLocalMemory`], for `buffer_len` elements at `buffer_list`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn registerLocalMemoryBatch(
    handle: *mut c_void,
    buffer_list: *mut BufferEntry,
    buffer_len: usize,
    location: *const c_char,
) -> c_int {
    answer(|| {
        let engine = engine(handle)?;
        // SAFETY: the caller's promise.
        let (entries, location) = unsafe {
            (list(buffer_list, buffer_len, "buffer_list")?, text::optional(location, ANY_LOCATION, "the location")?)
        };
        let range = |e: &BufferEntry| yb_classic::BufferEntry { address: e.addr as u64, len: e.length as u64 };
        let entries: Vec<_> = entries.iter().map(range).collect();
        // SAFETY: the caller's promise.
        unsafe { engine.register_memory_batch(&entries, location) }
    })
}

/// Releases all of the addresses; the code is that of the first that failed.
///
/// # Safety
/// `addr_list` has `addr_len` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn unregisterLocalMemoryBatch(
    handle: *mut c_void,
    addr_list: *mut *mut c_void,
    addr_len: usize,
) -> c_int {
    answer(|| {
        let engine = engine(handle)?;
        // SAFETY: the caller's promise.
        let addresses = unsafe { list(addr_list, addr_len, "addr_list") }?;
        let addresses: Vec<u64> = addresses.iter().map(|address| *address as u64).collect();
        engine.unregister_memory_batch(&addresses)
    })
}
