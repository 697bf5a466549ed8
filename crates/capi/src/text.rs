//! Text that crosses the boundary.

use std::ffi::{CStr, c_char};

use yb_classic::ClassicError;

use crate::handles::bad;

/// Text of the caller.
///
/// # Errors
/// When the pointer is null or the text is not UTF-8.
///
/// # Safety
/// A pointer that is not null points to text that ends with a NUL and does not change during the call.
pub(crate) unsafe fn required<'a>(text: *const c_char, what: &str) -> Result<&'a str, ClassicError> {
    if text.is_null() {
        return Err(bad(&format!("{what} is a null pointer")));
    }
    // SAFETY: not null, and the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| bad(&format!("{what} is not UTF-8")))
}

/// As [`required`], with a default for a null pointer.
///
/// # Errors
/// When the text is not UTF-8.
///
/// # Safety
/// As [`required`].
pub(crate) unsafe fn optional<'a>(text: *const c_char, default: &'a str, what: &str) -> Result<&'a str, ClassicError> {
    // SAFETY: the caller's promise.
    if text.is_null() { Ok(default) } else { unsafe { required(text, what) } }
}

/// Writes text and its NUL into the caller's buffer.
///
/// # Errors
/// When there is no buffer or the text does not fit; nothing is written then.
///
/// # Safety
/// A buffer that is not null has `len` bytes that may be written.
pub(crate) unsafe fn write(text: &str, buffer: *mut c_char, len: usize) -> Result<(), ClassicError> {
    if buffer.is_null() {
        return Err(bad("the buffer is a null pointer"));
    }
    let bytes = text.as_bytes();
    if bytes.len() >= len {
        return Err(bad(&format!("the buffer has {len} bytes, {} are needed", bytes.len() + 1)));
    }
    // SAFETY: the buffer holds the text and one byte more, and Rust memory does not overlap it.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len());
        buffer.add(bytes.len()).write(0);
    }
    Ok(())
}
