//! Arguments as they come from C, as Rust has them.

use std::ffi::{CStr, c_char, c_int, c_void};

use yb_client::{Error, ForeignMemory, LocalBuffer};
use yb_types::{ReplicateConfig as Wanted, SoftPinAction};

use super::Live;
use crate::text;

/// `mooncake_replicate_config_t`.
#[repr(C)]
pub struct ReplicateConfig {
    /// Memory replicas; at least 1.
    pub replica_num: usize,
    /// Not 0: pin the object softly.
    pub with_soft_pin: c_int,
    /// Not 0: never evict the object.
    pub with_hard_pin: c_int,
    /// Names of segments to try first; null for none.
    pub preferred_segments: *const *const c_char,
    /// How many names.
    pub preferred_segments_count: usize,
}

fn invalid(what: impl Into<String>) -> Error {
    Error::Invalid(what.into().into())
}

/// A config of the caller; null is the default.
///
/// # Safety
/// A pointer that is not null points to a config whose names end with a NUL.
pub(super) unsafe fn config(config: *const ReplicateConfig) -> Result<Wanted, Error> {
    // SAFETY: the caller's promise.
    let Some(config) = (unsafe { config.as_ref() }) else { return Ok(Wanted::default()) };
    // SAFETY: the caller's promise.
    let names = unsafe { array(config.preferred_segments, config.preferred_segments_count, "preferred_segments") }?;
    // SAFETY: the caller's promise.
    let names = names.iter().map(|name| unsafe { required(*name, "a preferred segment") }.map(str::to_owned));
    Ok(Wanted {
        replica_num: config.replica_num as u64,
        soft_pin_action: SoftPinAction::from(config.with_soft_pin != 0),
        with_hard_pin: config.with_hard_pin != 0,
        preferred_segments: names.collect::<Result<_, _>>()?,
        ..Wanted::default()
    })
}

/// Text of the caller.
///
/// # Safety
/// As [`text::required`].
pub(super) unsafe fn required<'a>(text: *const c_char, what: &str) -> Result<&'a str, Error> {
    // SAFETY: passed on.
    unsafe { text::required(text, what) }.map_err(|error| invalid(error.to_string()))
}

/// Text of the caller; null is empty.
///
/// # Safety
/// As [`text::required`].
pub(super) unsafe fn optional<'a>(text: *const c_char, what: &str) -> Result<&'a str, Error> {
    // SAFETY: passed on.
    unsafe { text::optional(text, "", what) }.map_err(|error| invalid(error.to_string()))
}

/// A key: any bytes but NUL.
///
/// # Safety
/// A pointer that is not null points to bytes that end with a NUL and do not change during the call.
pub(super) unsafe fn key<'a>(key: *const c_char) -> Result<&'a [u8], Error> {
    if key.is_null() {
        return Err(invalid("the key is a null pointer"));
    }
    // SAFETY: not null, and the caller's promise.
    Ok(unsafe { CStr::from_ptr(key) }.to_bytes())
}

/// Keys of a batch.
///
/// # Safety
/// `keys` is null or has `count` elements, each as in [`key`].
pub(super) unsafe fn keys<'a>(keys: *const *const c_char, count: usize) -> Result<Vec<&'a [u8]>, Error> {
    // SAFETY: the caller's promise.
    unsafe { array(keys, count, "keys") }?.iter().map(|one| unsafe { key(*one) }).collect()
}

/// Elements of the caller; null only for none.
///
/// # Safety
/// A pointer that is not null has `count` elements that do not change during the call.
pub(super) unsafe fn array<'a, T>(first: *const T, count: usize, what: &str) -> Result<&'a [T], Error> {
    if count == 0 {
        return Ok(&[]);
    }
    if first.is_null() || count.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize) {
        return Err(invalid(format!("{what}: {count} elements at {first:p}")));
    }
    // SAFETY: not null, not larger than memory can be, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(first, count) })
}

/// The memory of each object of a batch, or why it cannot be used.
///
/// # Safety
/// `buffers` and `sizes` are null or have `count` elements; each buffer is memory of its size until the call returns.
pub(super) unsafe fn memory(
    live: &Live,
    buffers: *const *mut c_void,
    sizes: *const usize,
    count: usize,
) -> Result<Vec<Result<LocalBuffer<'static>, Error>>, Error> {
    // SAFETY: the caller's promise.
    let (buffers, sizes) = unsafe { (array(buffers, count, "buffers")?, array(sizes, count, "sizes")?) };
    // SAFETY: the caller's promise.
    Ok(buffers.iter().zip(sizes).map(|(buffer, size)| unsafe { lend(live, *buffer, *size) }).collect())
}

/// Memory of the caller as our side of one transfer. Null is refused, and what starts in registered memory and reaches
/// over its end.
///
/// # Safety
/// The range is memory that may be read and written until the call returns.
pub(super) unsafe fn lend(live: &Live, buffer: *mut c_void, size: usize) -> Result<LocalBuffer<'static>, Error> {
    // SAFETY: passed on.
    live.client.lend(unsafe { ForeignMemory::new(buffer as u64, size as u64) })
}
