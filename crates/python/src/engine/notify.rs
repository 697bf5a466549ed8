//! Notifications, and the engine as other modules take it.

use parking_lot::Mutex;
use pyo3::prelude::*;
use std::sync::Arc;
use yb_classic::Notification;

use crate::convert::Text;
use crate::engine::live::Live;

/// A short message that goes with a transfer, or that came from a peer: a name and a text.
#[pyclass(module = "mooncake.engine", frozen)]
#[derive(Debug)]
pub(crate) struct TransferNotify(Mutex<Notification>);

impl TransferNotify {
    /// As Python sees one that came.
    pub(crate) fn of(notification: Notification) -> Self {
        TransferNotify(Mutex::new(notification))
    }

    /// As the engine sends it.
    pub(crate) fn notification(&self) -> Notification {
        self.0.lock().clone()
    }
}

#[pymethods]
impl TransferNotify {
    /// Empty, or with both parts.
    #[new]
    #[pyo3(signature = (name=None, msg=None))]
    fn new(name: Option<Text>, msg: Option<Text>) -> PyResult<Self> {
        match (name, msg) {
            (None, None) => Ok(TransferNotify::of(Notification { name: String::new(), message: String::new() })),
            (Some(name), Some(msg)) => Ok(TransferNotify::of(Notification { name: name.0, message: msg.0 })),
            _ => Err(pyo3::exceptions::PyTypeError::new_err("TransferNotify() or TransferNotify(name, msg)")),
        }
    }

    /// Its name.
    #[getter]
    fn name(&self) -> String {
        self.0.lock().name.clone()
    }

    #[setter]
    fn set_name(&self, name: Text) {
        self.0.lock().name = name.0;
    }

    /// Its text.
    #[getter]
    fn msg(&self) -> String {
        self.0.lock().message.clone()
    }

    #[setter]
    fn set_msg(&self, msg: Text) {
        self.0.lock().message = msg.0;
    }

    fn __repr__(&self) -> String {
        let note = self.0.lock();
        format!("TransferNotify(name={:?}, msg={:?})", note.name, note.message)
    }
}

/// The engine inside a `TransferEngine`, for modules that take one.
#[pyclass(module = "mooncake.engine", frozen)]
pub(crate) struct InnerTransferEngine(pub(crate) Arc<Live>);

impl InnerTransferEngine {
    /// The engine.
    pub(crate) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.0)
    }
}
