//! Keys: looked up and removed.

use std::ffi::{c_char, c_int, c_void};

use yb_client::Error;

use super::arguments::{key, keys, required};
use super::objects::Out;
use super::{int, on_client};

/// The answer of a call that looks a key up: no object has the empty key, and asking for it is no mistake for the peer.
fn looked_up<T>(key: &[u8], answer: Result<T, Error>) -> Result<T, Error> {
    if key.is_empty() { Err(Error::NotFound) } else { answer }
}

/// 1 or 0 for what is there or not.
fn existence(key: &[u8], answer: Result<bool, Error>) -> Result<i64, Error> {
    match looked_up(key, answer) {
        Err(Error::NotFound) => Ok(0),
        answer => answer.map(i64::from),
    }
}

/// 1: there is an object; 0: there is none; or a code.
///
/// # Safety
/// A key that is not null ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_is_exist(store: *mut c_void, object: *const c_char) -> c_int {
    int(on_client(store, |live| {
        // SAFETY: the caller's promise.
        let key = unsafe { key(object) }?;
        existence(key, live.client.exists(key))
    }))
}

/// As [`mooncake_store_is_exist`] for many keys: 0 when the call could be made, and an answer for each key.
///
/// # Safety
/// Pointers that are not null are what their types say; the arrays have `count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_batch_is_exist(
    store: *mut c_void,
    objects: *const *const c_char,
    count: usize,
    results_out: *mut c_int,
) -> c_int {
    let out = Out { first: results_out, count };
    // SAFETY: the caller's promise.
    int(unsafe {
        out.batch(store, int, |live| {
            let keys = keys(objects, count)?;
            let found = live.client.batch_exists(&keys);
            Ok(keys.iter().zip(found).map(|(key, answer)| existence(key, answer)).collect())
        })
    })
}

/// Bytes of an object, or a code: -704 missing, -703 still being written.
///
/// # Safety
/// A key that is not null ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_get_size(store: *mut c_void, object: *const c_char) -> i64 {
    on_client(store, |live| {
        // SAFETY: the caller's promise.
        let key = unsafe { key(object) }?;
        looked_up(key, live.client.size(key)).map(|bytes| bytes as i64)
    })
}

/// Removes an object: 0, or a code: -704 missing, -706 read a short time ago. `force` not 0 removes it all the same.
///
/// # Safety
/// A key that is not null ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_remove(store: *mut c_void, object: *const c_char, force: c_int) -> c_int {
    int(on_client(store, |live| {
        // SAFETY: the caller's promise.
        let key = unsafe { key(object) }?;
        looked_up(key, live.client.remove(key, force != 0)).map(|()| 0)
    }))
}

/// Removes the objects whose key the pattern matches: how many, or a code; -600: the pattern cannot be read.
///
/// # Safety
/// A pattern that is not null ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_remove_by_regex(
    store: *mut c_void,
    pattern: *const c_char,
    force: c_int,
) -> i64 {
    on_client(store, |live| {
        // SAFETY: the caller's promise.
        let pattern = unsafe { required(pattern, "the pattern") }?;
        live.client.remove_by_regex(pattern, force != 0).map(|removed| removed as i64)
    })
}

/// Removes every object: how many, or a code. Those read a short time ago stay unless `force` is not 0.
#[unsafe(no_mangle)]
pub extern "C" fn mooncake_store_remove_all(store: *mut c_void, force: c_int) -> i64 {
    on_client(store, |live| live.client.remove_all(force != 0).map(|removed| removed as i64))
}
