//! Notifications. What the caller gets is allocated with C's malloc, since the caller may free it itself.
#![allow(non_snake_case, reason = "the names of the C API")]

use std::ffi::{c_char, c_int, c_void};

use yb_classic::{ClassicError, Notification, SegmentId};

use crate::handles::{answer, bad, engine, guarded};
use crate::{NotifyMsg, text};

/// A message of the caller.
///
/// # Safety
/// The texts are null or end with a NUL.
pub(crate) unsafe fn notification(message: &NotifyMsg) -> Result<Notification, ClassicError> {
    // SAFETY: the caller's promise.
    let (name, message) =
        unsafe { (text::optional(message.name, "", "the name")?, text::optional(message.msg, "", "the message")?) };
    Ok(Notification { name: name.to_owned(), message: message.to_owned() })
}

/// A copy of the text with a NUL, from malloc; what follows a NUL in the text is lost. Null when there is no memory.
fn c_text(text: &str) -> *mut c_char {
    let bytes = text.as_bytes();
    let bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
    // SAFETY: malloc gives null or so many bytes, which are all written.
    unsafe {
        let copy = libc::malloc(bytes.len() + 1).cast::<u8>();
        if !copy.is_null() {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy, bytes.len());
            copy.add(bytes.len()).write(0);
        }
        copy.cast()
    }
}

/// The messages that peers have left, and how many; null (and 0) when the engine or `size` is not there.
///
/// # Safety
/// `size` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getNotifsFromEngine(handle: *mut c_void, size: *mut c_int) -> *mut NotifyMsg {
    guarded(std::ptr::null_mut(), || {
        if size.is_null() {
            return std::ptr::null_mut();
        }
        // SAFETY: not null, and the caller's promise.
        unsafe { size.write(0) };
        let Ok(engine) = engine(handle) else { return std::ptr::null_mut() };
        let messages = engine.take_notifies();
        // Callers that look at the pointer find one even if there is nothing, as with the peer.
        let bytes = messages.len().max(1) * size_of::<NotifyMsg>();
        // SAFETY: malloc gives null or so many bytes; every element that is counted is written.
        unsafe {
            let first = libc::malloc(bytes).cast::<NotifyMsg>();
            if first.is_null() {
                return first;
            }
            for (index, message) in messages.iter().enumerate() {
                let element = NotifyMsg { name: c_text(&message.name), msg: c_text(&message.message) };
                first.add(index).write(element);
            }
            size.write(messages.len() as c_int);
            first
        }
    })
}

/// Frees what [`getNotifsFromEngine`] gave.
///
/// # Safety
/// `msg` is null or comes from [`getNotifsFromEngine`] with this size, and was not freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn freeNotifsMsgBuf(msg: *mut NotifyMsg, size: c_int) -> c_int {
    answer(|| {
        if msg.is_null() {
            return Ok(());
        }
        let count = usize::try_from(size).map_err(|_| bad("the size is negative"))?;
        for index in 0..count {
            // SAFETY: the caller's promise: so many elements, whose texts come from malloc.
            unsafe {
                let element = msg.add(index).read();
                libc::free(element.name.cast());
                libc::free(element.msg.cast());
            }
        }
        // SAFETY: as above; the array too.
        unsafe { libc::free(msg.cast()) };
        Ok(())
    })
}

/// Leaves a message with the owner of a segment.
///
/// # Safety
/// The texts are null or end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn genNotifyInEngine(handle: *mut c_void, target_id: u64, notify_msg: NotifyMsg) -> c_int {
    answer(|| {
        let engine = engine(handle)?;
        // SAFETY: the caller's promise.
        engine.send_notify(SegmentId(target_id), &unsafe { notification(&notify_msg) }?)
    })
}
