//! Segments: opened by name, known by number.
#![allow(non_snake_case, reason = "the names of the C API")]

use std::ffi::{c_char, c_int, c_void};

use yb_classic::{ClassicEngine, ClassicError, SegmentId};

use crate::handles::{answer, answer_with, bad, engine};
use crate::text;

/// The number of a segment as the header has it.
pub(crate) fn number(id: i64) -> Result<SegmentId, ClassicError> {
    u64::try_from(id).map(SegmentId).map_err(|_| bad("a segment's number is not negative"))
}

/// # Safety
/// `name` is null or text that ends with a NUL.
unsafe fn open(
    handle: *mut c_void,
    name: *const c_char,
    how: fn(&ClassicEngine, &str) -> Result<SegmentId, ClassicError>,
) -> c_int {
    answer_with(|| {
        let engine = engine(handle)?;
        // SAFETY: the caller's promise.
        let id = how(&engine, unsafe { text::required(name, "the segment's name") }?)?;
        i32::try_from(id.0).map_err(|_| bad("more segments are open than this API can number"))
    })
}

/// The number of a segment, or a negative code.
///
/// # Safety
/// `segment_name` is null or text that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openSegment(handle: *mut c_void, segment_name: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { open(handle, segment_name, ClassicEngine::open_segment) }
}

/// As [`openSegment`], and the owner is asked again.
///
/// # Safety
/// As [`openSegment`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openSegmentNoCache(handle: *mut c_void, segment_name: *const c_char) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { open(handle, segment_name, ClassicEngine::open_segment_no_cache) }
}

/// Checks the number; nothing else has to be done.
#[unsafe(no_mangle)]
pub extern "C" fn closeSegment(handle: *mut c_void, segment_id: i32) -> c_int {
    answer(|| engine(handle)?.close_segment(number(segment_id.into())?))
}

/// Forgets what the owner of a segment said.
///
/// # Safety
/// As [`openSegment`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn removeLocalSegment(handle: *mut c_void, segment_name: *const c_char) -> c_int {
    answer(|| {
        let engine = engine(handle)?;
        // SAFETY: the caller's promise.
        engine.remove_local_segment(unsafe { text::required(segment_name, "the segment's name") }?)
    })
}

/// Opens the segment, so that the first transfer finds it known. There is nothing else to warm up without EFA.
///
/// # Safety
/// As [`openSegment`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn warmupEfaSegment(handle: *mut c_void, segment_name: *const c_char) -> c_int {
    answer(|| {
        let engine = engine(handle)?;
        // SAFETY: the caller's promise.
        engine.open_segment(unsafe { text::required(segment_name, "the segment's name") }?).map(drop)
    })
}

/// Asks the owners of all open segments again.
#[unsafe(no_mangle)]
pub extern "C" fn syncSegmentCache(handle: *mut c_void) -> c_int {
    answer(|| engine(handle)?.sync_segment_cache(None))
}
