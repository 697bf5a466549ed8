//! The caller's memory: registered and taken back.

use std::ffi::{c_int, c_void};

use yb_client::ForeignMemory;

use super::{int, on_client};

/// Registers memory for the calls that move bytes without a copy: 0, or -600 for null, no bytes, or memory that is
/// registered already.
///
/// # Safety
/// The memory stays mapped until it is taken back or the store is destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_register_buffer(store: *mut c_void, buffer: *mut c_void, size: usize) -> c_int {
    int(on_client(store, |live| {
        // SAFETY: the caller's promise.
        let memory = unsafe { ForeignMemory::new(buffer as u64, size as u64) };
        live.client.register_buffer(memory).map(|()| 0)
    }))
}

/// Takes registered memory back: 0, or -600 when none starts there. Then no call uses it any more.
#[unsafe(no_mangle)]
pub extern "C" fn mooncake_store_unregister_buffer(store: *mut c_void, buffer: *mut c_void) -> c_int {
    int(on_client(store, |live| live.client.unregister_buffer(buffer as u64).map(|()| 0)))
}
