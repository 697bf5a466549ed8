//! Memory that the ranks of a group on one host share.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use yb_mem::{Declaration, GroupError, GroupSegment, HandleForm};

use crate::convert::{Count, Key, Text, Unsigned};

/// Names the form of the owner's handle: "memfd", or anything else for a POSIX object.
const FORM: &str = "YB_SHARED_SEGMENT_FORM";

fn failed(error: &GroupError) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}

/// One rank's side of a segment: `create`, exchange the blobs, `complete`.
#[pyclass(module = "mooncake.engine", frozen, weakref)]
pub(crate) struct SharedSegment(GroupSegment);

#[pymethods]
impl SharedSegment {
    /// Reserves the addresses, and makes the memory on the owner; gives the segment and the blob for the other ranks.
    /// `RuntimeError` for what cannot be, or is not built: only `mmap=True, host_register=False` is.
    #[staticmethod]
    #[pyo3(signature = (name, size, world_size, rank_id, owner_rank=Count(0), device_id=0, mmap=true, host_register=false), text_signature = "(name, size, world_size, rank_id, owner_rank=0, device_id=0, mmap=True, host_register=False)")]
    #[expect(clippy::too_many_arguments, reason = "the peer's signature")]
    fn create<'py>(
        py: Python<'py>,
        name: Text,
        size: Unsigned,
        world_size: Count,
        rank_id: Count,
        owner_rank: Count,
        device_id: i32,
        mmap: bool,
        host_register: bool,
    ) -> PyResult<(SharedSegment, Bound<'py, PyBytes>)> {
        // Says where the memory would be registered; nothing is.
        let _ = device_id;
        match (mmap, host_register) {
            (true, false) => {}
            (false, false) => {
                return Err(PyRuntimeError::new_err(
                    "NotImplemented: This build has no VMM backend for shared segments",
                ));
            }
            (true, true) => {
                return Err(PyRuntimeError::new_err(
                    "NotImplemented: Shared segment mmap needs Ascend for HostRegister",
                ));
            }
            (false, true) => {
                return Err(PyRuntimeError::new_err(
                    "InvalidArgument: Shared segment host_register requires mmap=true",
                ));
            }
        }
        let memory_file = std::env::var(FORM).is_ok_and(|form| form == "memfd");
        let form = if memory_file { HandleForm::MemoryFile } else { HandleForm::Posix };
        let declaration =
            Declaration { name: name.0, size: size.0, world_size: world_size.0, owner_rank: owner_rank.0 };
        let made = py.detach(|| GroupSegment::create(declaration, rank_id.0, form));
        let (segment, blob) = made.map_err(|error| failed(&error))?;
        Ok((SharedSegment(segment), PyBytes::new(py, &blob.to_bytes())))
    }

    /// Whether segments of this kind can be made.
    #[staticmethod]
    #[pyo3(signature = (mmap=true, host_register=false))]
    fn supported(mmap: bool, host_register: bool) -> bool {
        mmap && !host_register
    }

    /// Takes the blobs of all ranks, in their order, and maps the owner's memory. `RuntimeError` when they do not fit
    /// together; it may be tried again then.
    fn complete(&self, py: Python<'_>, blobs: Vec<Blob>) -> PyResult<()> {
        py.detach(|| self.0.complete(&blobs)).map_err(|error| failed(&error))
    }

    /// Whether `complete` has succeeded.
    fn ready(&self) -> bool {
        self.0.is_ready()
    }

    /// Where the memory is in this process.
    fn base_addr(&self) -> u64 {
        self.0.address()
    }

    /// Where a device sees it; 0, as none does.
    fn device_addr(&self) -> u64 {
        0
    }

    /// Bytes that are shared.
    fn size(&self) -> u64 {
        self.0.size()
    }
}

/// `bytes`, `bytearray` or text; only the first can be right.
struct Blob(Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Blob {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(array) = object.cast::<pyo3::types::PyByteArray>() {
            return Ok(Blob(array.to_vec()));
        }
        let Key(bytes) = object.extract().map_err(|_| pyo3::exceptions::PyTypeError::new_err("a blob is bytes"))?;
        Ok(Blob(bytes))
    }
}

impl AsRef<[u8]> for Blob {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}
