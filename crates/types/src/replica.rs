//! Replicas: one copy of an object, and where it lies.

use yb_pack::Pack;

use crate::generation::{V0_3_11, V0_3_13, V0_3_14};
use crate::{ClientId, ReplicaId, SegmentLocality};

/// Where a replica stands in its life. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pack)]
#[pack(transparent)]
pub struct ReplicaStatus(pub i32);

impl ReplicaStatus {
    /// Not set.
    pub const UNDEFINED: ReplicaStatus = ReplicaStatus(0);
    /// Never used by the peer.
    pub const INITIALIZED: ReplicaStatus = ReplicaStatus(1);
    /// Space is reserved, bytes are on their way.
    pub const PROCESSING: ReplicaStatus = ReplicaStatus(2);
    /// Readable.
    pub const COMPLETE: ReplicaStatus = ReplicaStatus(3);
    /// Taken away, not yet freed.
    pub const REMOVED: ReplicaStatus = ReplicaStatus(4);
    /// Never produced by the peer.
    pub const FAILED: ReplicaStatus = ReplicaStatus(5);
}

/// Which replicas of an object a call means. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pack)]
#[pack(transparent)]
pub struct ReplicaType(pub i32);

impl ReplicaType {
    /// In memory.
    pub const MEMORY: ReplicaType = ReplicaType(0);
    /// A file on a shared filesystem.
    pub const DISK: ReplicaType = ReplicaType(1);
    /// On the owner's disk.
    pub const LOCAL_DISK: ReplicaType = ReplicaType(2);
    /// On NVMe-oF.
    pub const NOF_SSD: ReplicaType = ReplicaType(3);
    /// Selector: memory, NVMe-oF and distributed filesystem.
    pub const ALL: ReplicaType = ReplicaType(4);
    /// On a distributed filesystem.
    pub const DFS: ReplicaType = ReplicaType(100);
}

/// A range of registered memory in some process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
#[pack(name = "AllocatedBuffer::Descriptor")]
pub struct BufferDescriptor {
    /// Bytes.
    pub size: u64,
    /// Absolute address in the owner's process.
    pub buffer_address: u64,
    /// Transport name of the segment; the peer's master always writes `tcp`.
    pub protocol: String,
    /// `host:port` of the owner's Transfer Engine.
    pub transport_endpoint: String,
    /// 0.3.14: NUMA node and NICs near the memory (compatible member 1).
    #[pack(since = V0_3_14, compatible = 1)]
    pub locality: Option<SegmentLocality>,
}

/// A replica in memory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
pub struct MemoryDescriptor {
    /// Where.
    pub buffer: BufferDescriptor,
}

/// A replica on NVMe-oF.
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
#[pack(name = "NoFDescriptor")]
pub struct NofDescriptor {
    /// Where.
    pub buffer: BufferDescriptor,
}

/// A replica in a file of a shared filesystem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
pub struct DiskDescriptor {
    /// Path of the file.
    pub file_path: String,
    /// Bytes.
    pub object_size: u64,
}

/// A replica on the disk of the client that owns it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
pub struct LocalDiskDescriptor {
    /// The owner.
    pub client_id: ClientId,
    /// Bytes.
    pub object_size: u64,
    /// `host:port` of the owner's offload RPC server.
    pub transport_endpoint: String,
}

/// A replica in an extent of a distributed filesystem.
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
#[pack(name = "DistributedFSDescriptor")]
pub struct DfsDescriptor {
    /// Path of the file.
    pub file_path: String,
    /// Byte offset in the file.
    pub offset: u64,
    /// Bytes of the object.
    pub object_size: u64,
    /// Bytes of the extent.
    pub aligned_size: u64,
    /// Shard of the file.
    pub shard_idx: i32,
}

/// Where a replica lies. The order of the variants is the order on the wire since 0.3.13.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
pub enum ReplicaKind {
    /// In memory.
    Memory(MemoryDescriptor),
    /// On NVMe-oF (since 0.3.11).
    #[pack(since = V0_3_11)]
    Nof(NofDescriptor),
    /// In a file of a shared filesystem.
    Disk(DiskDescriptor),
    /// On the owner's disk.
    LocalDisk(LocalDiskDescriptor),
    /// On a distributed filesystem (since 0.3.13).
    #[pack(since = V0_3_13)]
    Dfs(DfsDescriptor),
}

/// A replica as clients see it.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
#[pack(name = "Replica::Descriptor")]
pub struct ReplicaDescriptor {
    /// Its id.
    pub id: ReplicaId,
    /// Where it lies.
    pub kind: ReplicaKind,
    /// Whether it can be read.
    pub status: ReplicaStatus,
}

impl ReplicaDescriptor {
    /// The memory range, if the replica is in memory.
    pub fn memory(&self) -> Option<&BufferDescriptor> {
        match &self.kind {
            ReplicaKind::Memory(m) => Some(&m.buffer),
            _ => None,
        }
    }
}
