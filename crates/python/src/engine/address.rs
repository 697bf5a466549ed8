//! Memory as callers name it: by number, or by the object that has it.
//!
//! The peer takes numbers only. Here an object with the buffer protocol, or a tensor with `data_ptr()`, stands for its
//! memory and is kept alive while it is used.

use std::ffi::c_void;
use std::sync::LazyLock;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyInt;
use rustix::io::Errno;
use rustix::mm::{Advice, MsyncFlags};

/// Smallest page of the system.
const PAGE: u64 = 4096;
/// No process has memory from here on.
const ADDRESSES: u64 = 1 << 56;

/// What keeps memory alive.
pub(crate) enum Hold {
    /// A view of an object's memory, which the object cannot move meanwhile.
    Buffer(#[expect(dead_code, reason = "held, not read")] PyUntypedBuffer),
    /// A tensor.
    Object(#[expect(dead_code, reason = "held, not read")] Py<PyAny>),
}

/// A place in memory.
pub(crate) struct Place {
    /// First address.
    pub(crate) address: u64,
    /// Bytes that the object has, and whether they may be written; unknown for a number.
    known: Option<(u64, bool)>,
    hold: Option<Hold>,
}

impl Place {
    /// Whether so many bytes can be taken from here, and written when `written`.
    pub(crate) fn check(&self, len: u64, written: bool) -> PyResult<()> {
        match self.known {
            Some((bytes, _)) if bytes < len => {
                Err(PyValueError::new_err(format!("{len} bytes of an object that has {bytes}")))
            }
            Some((_, false)) if written => Err(PyTypeError::new_err("the object's memory is read-only")),
            _ => Ok(()),
        }
    }

    /// What has to live as long as the memory is used; nothing for a number.
    pub(crate) fn into_hold(self) -> Option<Hold> {
        self.hold
    }
}

impl<'py> FromPyObject<'_, 'py> for Place {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let number = |object: Borrowed<'_, 'py, PyAny>| {
            let address =
                object.extract().map_err(|_| PyTypeError::new_err("an address is an int from 0 to 2**64 - 1"))?;
            Ok(Place { address, known: None, hold: None })
        };
        if object.is_instance_of::<PyInt>() {
            return number(object);
        }
        if object.hasattr(pyo3::intern!(object.py(), "data_ptr"))? {
            return of_tensor(&object);
        }
        // Numbers of numpy have the buffer protocol too; an array of it has no use as a number.
        // SAFETY: a type check of a live object.
        if unsafe { ffi::PyIndex_Check(object.as_ptr()) } == 1
            && let Ok(place) = number(object)
        {
            return Ok(place);
        }
        of_buffer(&object)
    }
}

fn of_buffer(object: &Bound<'_, PyAny>) -> PyResult<Place> {
    let buffer = PyUntypedBuffer::get(object)
        .map_err(|_| PyTypeError::new_err("an address is an int, an object with the buffer protocol, or a tensor"))?;
    if !buffer.is_c_contiguous() {
        return Err(PyValueError::new_err("the object's bytes do not lie side by side"));
    }
    let known = Some((buffer.len_bytes() as u64, !buffer.readonly()));
    Ok(Place { address: buffer.buf_ptr() as u64, known, hold: Some(Hold::Buffer(buffer)) })
}

fn of_tensor(tensor: &Bound<'_, PyAny>) -> PyResult<Place> {
    if tensor.call_method0("is_contiguous").and_then(|answer| answer.is_truthy()).is_ok_and(|contiguous| !contiguous) {
        return Err(PyValueError::new_err("the tensor's elements do not lie side by side"));
    }
    let address = tensor.call_method0("data_ptr")?.extract()?;
    let count = |name: &str| tensor.call_method0(name).and_then(|count| count.extract::<u64>());
    let bytes = count("numel").and_then(|elements| Ok(elements.saturating_mul(count("element_size")?)));
    Ok(Place {
        address,
        known: bytes.ok().map(|bytes| (bytes, true)),
        hold: Some(Hold::Object(tensor.clone().unbind())),
    })
}

/// Whether the process may touch the range now: a caller may have freed what it names. Looks at what is mapped there, and
/// at the rights of the first and the last page, not at every page. Memory of a device is let through, where a driver is
/// there that may own it.
pub(crate) fn is_mapped(address: u64, len: u64, written: bool) -> bool {
    let end = address.checked_add(len).filter(|end| address > 0 && *end <= ADDRESSES);
    let Some(end) = end else { return false };
    if len == 0 {
        return true;
    }
    let (first, last) = (address / PAGE * PAGE, (end - 1) / PAGE * PAGE);
    let bytes = (last - first + PAGE) as usize;
    // SAFETY: asked to write nothing now, the call only tells whether all of it is mapped.
    let mapped = unsafe { rustix::mm::msync(first as *mut c_void, bytes, MsyncFlags::ASYNC) };
    (mapped.is_ok() && may_touch(first, written) && (first == last || may_touch(last, written))) || has_device_driver()
}

/// Whether a page may be read, or read and written.
fn may_touch(page: u64, written: bool) -> bool {
    let advice = if written { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
    loop {
        // SAFETY: populating a page does not change its contents; one that is not mapped is refused.
        match unsafe { rustix::mm::madvise(page as *mut c_void, PAGE as usize, advice) } {
            Ok(()) => return true,
            Err(Errno::INTR | Errno::AGAIN) => {}
            // Mapped without the right; or a kernel before 5.14, which tells nothing.
            Err(_) => return !kernel_tells(),
        }
    }
}

/// Whether the kernel knows the advice at all.
fn kernel_tells() -> bool {
    static TELLS: LazyLock<bool> = LazyLock::new(|| {
        let word = 0_u64;
        let page = std::ptr::from_ref(&word) as u64 / PAGE * PAGE;
        // SAFETY: the page of a variable on the stack is mapped, and its contents are not changed.
        unsafe { rustix::mm::madvise(page as *mut c_void, PAGE as usize, Advice::LinuxPopulateRead) }.is_ok()
    });
    *TELLS
}

/// Whether a driver of GPUs is loaded: its memory has addresses that the kernel knows nothing of.
fn has_device_driver() -> bool {
    // SAFETY: asking for a library that is loaded already runs no code of it.
    let driver = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if driver.is_null() {
        return false;
    }
    // SAFETY: gives back the reference just taken.
    unsafe { libc::dlclose(driver) };
    true
}
