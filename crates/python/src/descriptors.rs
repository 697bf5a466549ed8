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

/// The parts of a `__repr__` that is told by the type of the wire.
fn told(kind: &ReplicaKind) -> String {
    match kind {
        ReplicaKind::Memory(yb_types::MemoryDescriptor { buffer })
        | ReplicaKind::Nof(yb_types::NofDescriptor { buffer }) => format!(
            "size={} buffer_address={} transport_endpoint={}",
            buffer.size, buffer.buffer_address, buffer.transport_endpoint
        ),
        ReplicaKind::Disk(disk) => format!("file_path={} object_size={}", disk.file_path, disk.object_size),
        ReplicaKind::LocalDisk(disk) => format!(
            "client_id={} object_size={} transport_endpoint={}",
            disk.client_id, disk.object_size, disk.transport_endpoint
        ),
        ReplicaKind::Dfs(file) => {
            format!("file_path={} offset={} object_size={}", file.file_path, file.offset, file.object_size)
        }
    }
}

fn place(kind: &ReplicaKind) -> &'static str {
    match kind {
        ReplicaKind::Memory(_) => "memory",
        ReplicaKind::Nof(_) => "nof",
        ReplicaKind::Disk(_) => "disk",
        ReplicaKind::LocalDisk(_) => "local_disk",
        ReplicaKind::Dfs(_) => "dfs",
    }
}

/// A replica in memory.
#[pyclass(module = "mooncake.store", get_all, frozen)]
#[derive(Clone, Debug)]
pub(crate) struct MemoryDescriptor {
    /// Where.
    buffer_descriptor: Descriptor,
}

#[pymethods]
impl MemoryDescriptor {
    fn __repr__(&self) -> String {
        format!("<MemoryDescriptor buffer_descriptor={}>", self.buffer_descriptor.__repr__())
    }
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

#[pymethods]
impl DiskDescriptor {
    fn __repr__(&self) -> String {
        format!("<DiskDescriptor file_path={} object_size={}>", self.file_path, self.object_size)
    }
}

/// A replica on the disk of one client. Not in the peer.
#[pyclass(module = "mooncake.store", get_all, frozen)]
#[derive(Clone, Debug)]
pub(crate) struct LocalDiskDescriptor {
    /// Its owner: two numbers.
    client_id: (u64, u64),
    /// Bytes.
    object_size: u64,
    /// `host:port` of the owner's server for objects on its disk.
    transport_endpoint: String,
}

#[pymethods]
impl LocalDiskDescriptor {
    fn __repr__(&self) -> String {
        format!(
            "<LocalDiskDescriptor client_id={:?} object_size={} transport_endpoint={}>",
            self.client_id, self.object_size, self.transport_endpoint
        )
    }
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

    fn __repr__(&self) -> String {
        let (place, status) = (place(&self.0.kind), self.status());
        format!("<ReplicaDescriptor {place} status={} {}>", status.label(), told(&self.0.kind))
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

    /// Whether it lies on NVMe over fabrics. Not in the peer.
    fn is_nof_replica(&self) -> bool {
        matches!(self.0.kind, ReplicaKind::Nof(_))
    }

    /// Whether it lies in a distributed file system. Not in the peer.
    fn is_dfs_replica(&self) -> bool {
        matches!(self.0.kind, ReplicaKind::Dfs(_))
    }

    /// On whose disk it lies; `RuntimeError` when on nobody's. Not in the peer.
    fn get_local_disk_descriptor(&self) -> PyResult<LocalDiskDescriptor> {
        let ReplicaKind::LocalDisk(disk) = &self.0.kind else {
            return Err(PyRuntimeError::new_err("Expected LocalDiskDescriptor"));
        };
        Ok(LocalDiskDescriptor {
            client_id: (disk.client_id.0.first, disk.client_id.0.second),
            object_size: disk.object_size,
            transport_endpoint: disk.transport_endpoint.clone(),
        })
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
