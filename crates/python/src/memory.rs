//! The caller's memory: objects with the buffer protocol, and bare addresses.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use yb_client::ForeignMemory;

/// The bytes of a Python object for the length of a call; a copy if they do not lie side by side.
pub(crate) struct Value {
    buffer: PyUntypedBuffer,
    gathered: Option<Vec<u8>>,
}

impl Value {
    /// Anything with the buffer protocol; `TypeError` for anything else.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object).map_err(|_| {
            PyTypeError::new_err(format!("a value needs the buffer protocol, got {}", type_name(object)))
        })?;
        let gathered = if buffer.is_c_contiguous() { None } else { Some(gather(object)?) };
        Ok(Value { buffer, gathered })
    }

    /// A part of `put_parts`: one dimension, items of one byte.
    pub(crate) fn part(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let value = Value::of(object)?;
        if value.buffer.dimensions() != 1 || value.buffer.item_size() != 1 {
            return Err(PyRuntimeError::new_err("parts must be 1-D bytes-like"));
        }
        Ok(value)
    }

    /// The bytes, all of them, whatever the items are.
    pub(crate) fn bytes(&self) -> &[u8] {
        if let Some(gathered) = &self.gathered {
            return gathered;
        }
        let len = self.buffer.len_bytes();
        if len == 0 {
            return &[];
        }
        // SAFETY: the exporter keeps `len` contiguous bytes alive and in place as long as `buffer` is held. That nobody
        // changes them during the call is the caller's part, as documented for `put`; they are only copied from.
        unsafe { std::slice::from_raw_parts(self.buffer.buf_ptr().cast::<u8>(), len) }
    }
}

fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

/// A strided buffer as `bytes(memoryview)` lays it out.
fn gather(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    let view = pyo3::types::PyMemoryView::from(object)?;
    view.call_method0("tobytes")?.extract().map_err(|_| PyBufferError::new_err("the buffer cannot be read"))
}

/// A `bytes` object of `size` bytes that are not written yet, and its memory. The object must not be let out before they
/// are, and keeps the memory alive.
pub(crate) fn unwritten_bytes(py: Python<'_>, size: u64) -> PyResult<(Bound<'_, PyBytes>, ForeignMemory)> {
    let len = ffi::Py_ssize_t::try_from(size).map_err(|_| PyMemoryError::new_err("larger than the address space"))?;
    // SAFETY: null contents ask for memory that is not written; the answer is a new reference or null with an error set.
    let bytes = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), len)) }?;
    let bytes = bytes.cast_into::<PyBytes>()?;
    // SAFETY: `bytes` is alive and of the right kind.
    let first = unsafe { ffi::PyBytes_AsString(bytes.as_ptr()) };
    // SAFETY: `len` bytes from `first` on belong to the object that is returned beside it, which nobody else knows yet.
    let memory = unsafe { ForeignMemory::new(first as u64, size) };
    Ok((bytes, memory))
}
