//! An object's bytes in memory that Python code may look at without a copy.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// The bytes of one object, read by `get_buffer`.
///
/// Has the buffer protocol: one dimension, writable, items of one byte with format `b`. The memory lives as long as the
/// handle or any view of it, also after the store was closed.
#[pyclass(module = "mooncake.store", frozen)]
pub(crate) struct BufferHandle {
    /// Owned; came from a box.
    bytes: NonNull<[u8]>,
}

// SAFETY: the memory is owned and only reached through the raw pointers that Python's buffer protocol hands out; whoever
// uses those from several threads has to order the accesses, as with every writable buffer. This type never reads them.
unsafe impl Send for BufferHandle {}
// SAFETY: as above.
unsafe impl Sync for BufferHandle {}

impl BufferHandle {
    /// Takes the bytes over.
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        BufferHandle { bytes: NonNull::from(Box::leak(bytes.into_boxed_slice())) }
    }

    fn first(&self) -> *mut u8 {
        self.bytes.cast().as_ptr()
    }
}

impl Drop for BufferHandle {
    fn drop(&mut self) {
        // SAFETY: the pointer came from a leaked box of the same length, and this is its only release.
        drop(unsafe { Box::from_raw(self.bytes.as_ptr()) });
    }
}

#[pymethods]
impl BufferHandle {
    /// Address of the first byte.
    fn ptr(&self) -> usize {
        self.first() as usize
    }

    /// Bytes.
    fn size(&self) -> usize {
        self.bytes.len()
    }

    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    fn __repr__(&self) -> String {
        format!("<BufferHandle ptr={:#x} size={}>", self.ptr(), self.size())
    }

    /// # Safety
    /// Called by Python with a `view` it owns.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        if view.is_null() {
            return Err(PyBufferError::new_err("no view to fill"));
        }
        let handle = slf.get();
        let memory: *mut c_void = handle.first().cast();
        let len = handle.bytes.len() as ffi::Py_ssize_t;
        // SAFETY: `view` is Python's to fill; the memory stays where it is as long as the object lives, which the
        // view keeps alive; the shape and the item size lie inside the view itself.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory, len, 0, flags) };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        if flags & ffi::PyBUF_FORMAT == ffi::PyBUF_FORMAT {
            // SAFETY: as above. The text is static, and Python does not write to it.
            unsafe { (*view).format = c"b".as_ptr().cast_mut() };
        }
        Ok(())
    }
}
