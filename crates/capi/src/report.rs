//! What an engine tells about its devices.
#![allow(non_snake_case, reason = "the names of the C API")]

use std::ffi::{c_char, c_int, c_void};

use crate::handles::{answer, bad, engine};
use crate::{NicLoadStat, text};

/// The load of each RDMA device: as many as there is room for, and how many there are.
///
/// # Safety
/// `count` is null or may be read and written; `stats` is null or has that many elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getNicLoadStats(handle: *mut c_void, stats: *mut NicLoadStat, count: *mut usize) -> c_int {
    answer(|| {
        if count.is_null() {
            return Err(bad("count is a null pointer"));
        }
        let loads = engine(handle)?.nic_loads();
        // SAFETY: not null, and the caller's promise.
        let room = if stats.is_null() { 0 } else { unsafe { count.read() } };
        for (index, load) in loads.iter().enumerate().take(room) {
            let mut device_name = [0; 64];
            for (to, from) in device_name.iter_mut().zip(load.device.bytes().take(63)) {
                *to = from as c_char;
            }
            let stat = NicLoadStat {
                device_name,
                inflight_bytes: load.inflight_bytes,
                ewma_bandwidth_bps: load.bytes_per_second,
            };
            // SAFETY: there is room for it.
            unsafe { stats.add(index).write(stat) };
        }
        // SAFETY: not null, and the caller's promise.
        unsafe { count.write(loads.len()) };
        Ok(())
    })
}

/// Writes what is known of the local devices.
///
/// # Safety
/// A buffer that is not null has `buf_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn showLinks(handle: *mut c_void, buf_out: *mut c_char, buf_len: usize, json: c_int) -> c_int {
    answer(|| {
        let engine = engine(handle)?;
        // SAFETY: the caller's promise.
        unsafe { text::write(&engine.show_links(json != 0), buf_out, buf_len) }
    })
}
