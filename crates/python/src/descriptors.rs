//! What the pool knows about the replicas of an object, as Python callers see it.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use yb_types::ReplicaKind;

use crate::enums::ReplicaStatus;

/// A range of memory of some process in the pool.
#[pyclass(module = "mooncake.store", get_all)]
#[derive(Clone, Debug, Default)]
pub(crate) struct Descriptor {
    /// Bytes.
    size: u64,
    /// Address in the owner's process.
    buffer_address: u64,
    /// `host:port` of the owner's Transfer Engine.
    transport_endpoint: String,
}

#[pymethods]
impl Descriptor {
    #[new]
    fn new() -> Self {
        Descriptor::default()
    }

    fn __repr__(&self) -> String {
        format!(
            "<Descriptor size={} buffer_address={} transport_endpoint={}>",
            self.size, self.buffer_address, self.transport_endpoint
        )
    }
}

/// A replica in memory.
#[pyclass(module = "mooncake.store", get_all, frozen)]
#[derive(Clone, Debug)]
pub(crate) struct MemoryDescriptor {
    /// Where.
    buffer_descriptor: Descriptor,
}

/// A replica in a file of a shared file system.
#[pyclass(module = "mooncake.store", get_all, frozen)]
#[derive(Clone, Debug)]
pub(crate) struct DiskDescriptor {
    /// Path of the file.
    file_path: String,
    /// Bytes.
    object_size: u64,
}

/// One replica of an object.
#[pyclass(module = "mooncake.store", frozen)]
#[derive(Debug)]
pub(crate) struct ReplicaDescriptor(pub(crate) yb_types::ReplicaDescriptor);

#[pymethods]
impl ReplicaDescriptor {
    /// Where the replica stands in its life.
    #[getter]
    fn status(&self) -> ReplicaStatus {
        ReplicaStatus(u32::try_from(self.0.status.0).unwrap_or_default())
    }

    /// Whether it lies in memory.
    fn is_memory_replica(&self) -> bool {
        matches!(self.0.kind, ReplicaKind::Memory(_))
    }

    /// Whether it is a file of a shared file system.
    fn is_disk_replica(&self) -> bool {
        matches!(self.0.kind, ReplicaKind::Disk(_))
    }

    /// Whether it lies on the disk of one client.
    fn is_local_disk_replica(&self) -> bool {
        matches!(self.0.kind, ReplicaKind::LocalDisk(_))
    }

    /// Where it lies in memory; `RuntimeError` when it does not.
    fn get_memory_descriptor(&self) -> PyResult<MemoryDescriptor> {
        let ReplicaKind::Memory(memory) = &self.0.kind else {
            return Err(PyRuntimeError::new_err("Expected MemoryDescriptor"));
        };
        let buffer = &memory.buffer;
        Ok(MemoryDescriptor {
            buffer_descriptor: Descriptor {
                size: buffer.size,
                buffer_address: buffer.buffer_address,
                transport_endpoint: buffer.transport_endpoint.clone(),
            },
        })
    }

    /// Which file it is; `RuntimeError` when it is none.
    fn get_disk_descriptor(&self) -> PyResult<DiskDescriptor> {
        let ReplicaKind::Disk(disk) = &self.0.kind else {
            return Err(PyRuntimeError::new_err("Expected DiskDescriptor"));
        };
        Ok(DiskDescriptor { file_path: disk.file_path.clone(), object_size: disk.object_size })
    }
}
