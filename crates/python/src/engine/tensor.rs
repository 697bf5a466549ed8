//! Tensors of Python libraries as bytes with a type and a shape; no library is imported.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::prelude::*;
use yb_courier::{Dtype, TensorHead};

use crate::engine::address::is_mapped;

/// The elements of a tensor, copied, and what they are where that can be said.
pub(crate) struct TensorBytes {
    pub(crate) head: Option<TensorHead>,
    pub(crate) elements: Vec<u8>,
}

impl TensorBytes {
    /// Of a tensor with `data_ptr`, `numel`, `element_size`, `dtype` and `shape`, moved to the host and laid side by
    /// side where it is not, or of anything with the buffer protocol; `None` for anything else.
    pub(crate) fn of(tensor: &Bound<'_, PyAny>) -> Option<TensorBytes> {
        if tensor.hasattr("data_ptr").is_ok_and(|has| has) {
            return of_library(tensor).ok().flatten();
        }
        of_array(tensor).ok()
    }
}

/// Type and shape by the names of both libraries' attributes.
fn head(tensor: &Bound<'_, PyAny>) -> Option<TensorHead> {
    let dtype = tensor.getattr("dtype").ok()?.str().ok()?;
    let shape = tensor.getattr("shape").ok()?.extract().ok()?;
    Some(TensorHead { dtype: Dtype::named(&dtype.to_string_lossy())?, shape })
}

fn of_library(tensor: &Bound<'_, PyAny>) -> PyResult<Option<TensorBytes>> {
    let mut host = tensor.clone();
    let device = host.getattr("device").and_then(|device| device.getattr("type"));
    if device.and_then(|device| device.extract::<String>()).is_ok_and(|device| device != "cpu") {
        host = host.call_method0("cpu")?;
    }
    let contiguous = host.call_method0("is_contiguous").and_then(|answer| answer.is_truthy());
    if contiguous.is_ok_and(|contiguous| !contiguous) {
        host = host.call_method0("contiguous")?;
    }
    tensor.getattr("shape")?;
    let number = |name: &str| host.call_method0(name)?.extract::<u64>();
    let (address, elements, each) = (number("data_ptr")?, number("numel")?, number("element_size")?);
    let Some(bytes) = elements.checked_mul(each) else { return Ok(None) };
    if bytes == 0 {
        return Ok(Some(TensorBytes { head: head(&host), elements: Vec::new() }));
    }
    let Some(len) = usize::try_from(bytes).ok().filter(|_| is_mapped(address, bytes, false)) else { return Ok(None) };
    // SAFETY: the tensor, which is held, says that so many bytes are there, and they are mapped.
    let elements = unsafe { std::slice::from_raw_parts(address as *const u8, len) }.to_vec();
    Ok(Some(TensorBytes { head: head(&host), elements }))
}

fn of_array(array: &Bound<'_, PyAny>) -> PyResult<TensorBytes> {
    // What has no type and shape is no array: plain bytes go by `send_data`.
    array.getattr("dtype")?;
    PyUntypedBuffer::get(array)?;
    let elements = pyo3::types::PyMemoryView::from(array)?.call_method0("tobytes")?.extract()?;
    Ok(TensorBytes { head: head(array), elements })
}
