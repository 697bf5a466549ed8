//! The client of a store for what else lives in this module, through the hands of Python.
//!
//! The peer's extensions find each other's native client in a capsule. Ours has another name, so that code which expects
//! the peer's C++ object refuses it instead of reading it.

use std::ffi::CStr;

use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use super::Store;
use crate::convert::{Text, Unsigned};
use crate::last_error;

const NAME: &CStr = c"yuebing.Client";

#[pymethods]
impl Store {
    /// The native client, for this package's own use; None when the store is not set up.
    fn _get_pyclient_capsule<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyCapsule>>> {
        self.live().map(|live| PyCapsule::new_with_value(py, live, NAME)).transpose()
    }

    /// The peer's oldest setup, with an address of its authors' in it: always -600 here.
    #[pyo3(signature = (protocol, device_name, mount_segment_size, /))]
    fn init_all(&self, protocol: Text, device_name: Text, mount_segment_size: Unsigned) -> i64 {
        let _ = (protocol, device_name, mount_segment_size);
        last_error::refuse("init_all() has no address to set up with: use setup()")
    }

    /// Reads of objects on other clients' disks: none, as disks are not built.
    fn get_offload_rpc_read_count(&self) -> u64 {
        0
    }
}

/// As the method `_get_pyclient_capsule`.
#[pyfunction]
#[pyo3(name = "_get_pyclient_from_wrapper")]
pub(crate) fn capsule_of<'py>(py: Python<'py>, wrapper: &Bound<'py, Store>) -> PyResult<Option<Bound<'py, PyCapsule>>> {
    wrapper.get()._get_pyclient_capsule(py)
}
