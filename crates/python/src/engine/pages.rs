//! Arrays of 8-byte integers, as the array and page forms of the batch calls take them.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use yb_classic::PageField;

/// Numbers of a row of fields: local base and stride, remote base and stride, length.
const FIELD_NUMBERS: usize = 5;

/// The numbers of an object with the buffer protocol, whose items are 8-byte integers side by side.
pub(crate) struct Words {
    numbers: Vec<u64>,
    shape: Vec<usize>,
}

impl<'py> FromPyObject<'_, 'py> for Words {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let wrong = || PyTypeError::new_err("buffers must hold 8-byte integers (uint64/int64)");
        let buffer = PyUntypedBuffer::get(&object)
            .map_err(|_| PyTypeError::new_err("an array is an object with the buffer protocol"))?;
        let format = buffer.format().to_bytes();
        let kind = format.iter().copied().find(|byte| !b"@=<".contains(byte));
        if buffer.item_size() != 8 || !kind.is_some_and(|kind| b"QqLlNn".contains(&kind)) {
            return Err(wrong());
        }
        if !buffer.is_c_contiguous() {
            return Err(PyTypeError::new_err("the array's numbers do not lie side by side"));
        }
        let shape = buffer.shape().to_vec();
        let count = buffer.item_count();
        if count == 0 {
            return Ok(Words { numbers: Vec::new(), shape });
        }
        let first = buffer.buf_ptr().cast::<[u8; 8]>();
        // SAFETY: the exporter keeps `count` items of 8 bytes in place while `buffer` is held, and no Python code runs
        // meanwhile; bytes need no alignment.
        let bytes = unsafe { std::slice::from_raw_parts(first, count) };
        Ok(Words { numbers: bytes.iter().map(|bytes| u64::from_ne_bytes(*bytes)).collect(), shape })
    }
}

impl Words {
    /// The numbers, of an array with one dimension.
    pub(crate) fn list(self) -> PyResult<Vec<u64>> {
        if self.shape.len() == 1 {
            Ok(self.numbers)
        } else {
            Err(PyTypeError::new_err("the array has more than one dimension"))
        }
    }

    /// The rows of an array of five columns.
    pub(crate) fn fields(self) -> PyResult<Vec<PageField>> {
        if self.shape.len() != 2 || self.shape.get(1) != Some(&FIELD_NUMBERS) {
            return Err(PyTypeError::new_err("fields must be a [rows, 5] array"));
        }
        let rows = self.numbers.chunks_exact(FIELD_NUMBERS);
        Ok(rows
            .filter_map(|row| match *row {
                [local_base, local_stride, remote_base, remote_stride, len] => {
                    Some(PageField { local_base, local_stride, remote_base, remote_stride, len })
                }
                _ => None,
            })
            .collect())
    }
}

/// Lists of one length, or `ValueError`.
pub(crate) fn same_length(lists: &[&[u64]]) -> PyResult<()> {
    let lengths: Vec<usize> = lists.iter().map(|list| list.len()).collect();
    if lengths.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(());
    }
    Err(PyValueError::new_err(format!("arrays of different lengths: {lengths:?}")))
}
