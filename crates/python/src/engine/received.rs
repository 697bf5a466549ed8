//! What came over the side channel, as callbacks get it.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};
use yb_courier::{Taken, TensorHead};

fn source(taken: &Taken) -> String {
    taken.from.map_or_else(String::new, |from| from.to_string())
}

/// Data as an object. Callbacks get a dict instead, as with the peer, whose class this is.
#[pyclass(module = "mooncake.engine", frozen)]
pub(crate) struct ReceivedData {
    source: String,
    bytes: Py<PyBytes>,
}

#[pymethods]
impl ReceivedData {
    fn __repr__(&self, py: Python<'_>) -> String {
        format!("<ReceivedData source_address={} data_size={}>", self.source, self.data_size(py))
    }

    /// `host:port` of the sender's connection.
    #[getter]
    fn source_address(&self) -> &str {
        &self.source
    }

    /// Bytes.
    #[getter]
    fn data_size(&self, py: Python<'_>) -> usize {
        self.bytes.as_bytes(py).len()
    }

    /// The data.
    fn get_bytes(&self, py: Python<'_>) -> Py<PyBytes> {
        self.bytes.clone_ref(py)
    }

    /// The data without a copy.
    fn get_memory_view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(self.bytes.bind(py))
    }
}

/// A tensor that came.
#[pyclass(module = "mooncake.engine", frozen)]
pub(crate) struct ReceivedTensor {
    source: String,
    head: TensorHead,
    elements: usize,
    bytes: Py<PyBytes>,
}

impl ReceivedTensor {
    /// For a callback.
    pub(crate) fn of(py: Python<'_>, taken: &Taken, head: TensorHead) -> Self {
        let (source, elements) = (source(taken), taken.elements().len());
        ReceivedTensor { source, head, elements, bytes: PyBytes::new(py, &taken.whole).unbind() }
    }
}

#[pymethods]
impl ReceivedTensor {
    /// `host:port` of the sender's connection.
    #[getter]
    fn source_address(&self) -> &str {
        &self.source
    }

    fn __repr__(&self) -> String {
        let (shape, dtype) = (&self.head.shape, self.dtype());
        format!("<ReceivedTensor source_address={} shape={shape:?} dtype={dtype}>", self.source)
    }

    /// Sizes of the dimensions.
    #[getter]
    fn shape(&self) -> Vec<u64> {
        self.head.shape.clone()
    }

    /// Name of the elements' type, such as "float32".
    #[getter]
    fn dtype(&self) -> &'static str {
        self.head.dtype.name()
    }

    /// Bytes of the elements: the last ones of the data.
    #[getter]
    fn total_bytes(&self) -> usize {
        self.elements
    }

    /// Bytes of the data; more than `total_bytes` when the sender put a head in front.
    fn get_data_size(&self, py: Python<'_>) -> usize {
        self.bytes.as_bytes(py).len()
    }

    /// The data.
    fn get_data_as_bytes(&self, py: Python<'_>) -> Py<PyBytes> {
        self.bytes.clone_ref(py)
    }

    /// The data without a copy.
    fn get_memory_view<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyMemoryView>> {
        PyMemoryView::from(self.bytes.bind(py))
    }
}

/// The dict that a data callback gets.
pub(crate) fn data_dict<'py>(py: Python<'py>, taken: &Taken) -> PyResult<Bound<'py, pyo3::types::PyDict>> {
    let dict = pyo3::types::PyDict::new(py);
    dict.set_item("source", source(taken))?;
    dict.set_item("data", PyBytes::new(py, &taken.whole))?;
    Ok(dict)
}
