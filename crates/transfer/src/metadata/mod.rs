//! SegmentDesc: what an engine tells about itself, over the handshake and in a metadata store.
//!
//! JSON with the peer's keys for every protocol, written byte for byte as the peer writes it (compact, keys sorted) and
//! read with tolerance: a number may come as text, unknown keys are skipped, one bad buffer does not hide the others.
//! One object of our own, `yuebing`, is added, which the peer's engines ignore.

mod parse;
mod protocol;
mod time;
mod write;

use std::collections::BTreeMap;

use serde_json::Value;
use yb_topology::Matrix;

pub use parse::DescError;
pub use protocol::Protocol;
pub use time::timestamp;

/// A registered range of a segment. Which fields mean something depends on the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BufferDesc {
    /// Where the memory is (`cpu:0`, `cuda:1`, `*`); with TCP and CXL the peer writes the segment's name here. Empty =
    /// the segment's name.
    pub name: String,
    /// First address in the owner's process; 0 where there is none (CXL, files).
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// Remote keys, one for each of the segment's devices, in their order; empty without RDMA.
    pub rkeys: Vec<u64>,
    /// Local keys of the owner. Useless to us, but the peer's readers want as many as remote keys.
    pub lkeys: Vec<u64>,
    /// Hex of the exported handle (NVLink and its relatives).
    pub shm_name: Option<String>,
    /// Offset in the device (CXL).
    pub offset: Option<u64>,
    /// Hex of the target segments, one for each device (UB).
    pub target_segments: Vec<String>,
    /// The file behind it (NVMe-oF, file).
    pub file: Option<FileDesc>,
    /// The protocol of this buffer, where the segment has several.
    pub protocol: Option<Protocol>,
    /// Device number (NCCL, Ascend).
    pub device_id: Option<i64>,
}

impl BufferDesc {
    /// A range of memory, without keys, named like its segment.
    pub fn new(address: u64, len: u64) -> Self {
        BufferDesc { address, len, ..BufferDesc::default() }
    }
}

/// A file or block device as a buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileDesc {
    /// Path at the owner.
    pub path: String,
    /// Name of a reading engine to the path under which that engine sees the file.
    pub local_paths: BTreeMap<String, String>,
}

/// A NIC of the owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceDesc {
    /// Name at the owner, such as `mlx5_0`. Empty when the text could not be read: the place is kept, because keys are
    /// counted by it.
    pub name: String,
    /// InfiniBand local id; 0 with RoCE.
    pub lid: u32,
    /// 16 hex bytes joined by `:`.
    pub gid: Option<String>,
    /// Entity id (UB).
    pub eid: Option<String>,
}

/// A CXL or DAX device as a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CxlDesc {
    /// Device path.
    pub path: String,
    /// Where the owner has it mapped.
    pub base: u64,
}

/// Where a peer on this host finds our shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmDesc {
    /// Abstract UNIX socket name, without the leading zero byte.
    pub socket: String,
    /// Boot id of the host.
    pub boot_id: String,
    /// User id of the owner.
    pub uid: u32,
}

/// A segment as its owner describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentDesc {
    /// `host:port` of the owner's handshake, or the name under which it stands in a metadata store.
    pub name: String,
    /// How it is reached: one protocol, or several of [`Protocol::is_combinable`].
    pub protocols: Vec<Protocol>,
    /// Registered ranges.
    pub buffers: Vec<BufferDesc>,
    /// How many buffers could not be read; never written.
    pub unreadable_buffers: usize,
    /// NICs; remote keys of the buffers follow their order.
    pub devices: Vec<DeviceDesc>,
    /// Which NIC serves which location first.
    pub priority_matrix: Option<Matrix>,
    /// The CXL device.
    pub cxl: Option<CxlDesc>,
    /// Place of an Ascend device, opaque to us.
    pub rank_info: Option<Value>,
    /// Host part of the owner's NIC paths; the peer writes an empty text with TCP.
    pub rdma_server_name: Option<String>,
    /// Host of the data port; `None` = the handshake's.
    pub data_host: Option<String>,
    /// TCP data port; 0 = none.
    pub data_port: u16,
    /// Version of the TCP data wire; absent on the wire means 1.
    pub data_version: u32,
    /// Grows with every change where a store keeps the description; 0 without a store; `None` = before 0.3.14.
    pub metadata_version: Option<u64>,
    /// Shared memory, for engines of our kind.
    pub shm: Option<ShmDesc>,
    /// Other things that engines of our kind tell each other, by name, in the `yuebing` object. The names `v`, `shm`,
    /// `boot` and `uid` are taken.
    pub extras: BTreeMap<String, Value>,
}

impl Default for SegmentDesc {
    fn default() -> Self {
        SegmentDesc {
            name: String::new(),
            protocols: vec![Protocol::Tcp],
            buffers: Vec::new(),
            unreadable_buffers: 0,
            devices: Vec::new(),
            priority_matrix: None,
            cxl: None,
            rank_info: None,
            rdma_server_name: None,
            data_host: None,
            data_port: 0,
            data_version: 1,
            metadata_version: None,
            shm: None,
            extras: BTreeMap::new(),
        }
    }
}

impl SegmentDesc {
    /// What a TCP engine without a metadata store tells: everything that the peer's 0.3.13 and 0.3.14 write, no
    /// buffers, version 2 of the data wire.
    pub fn tcp(name: impl Into<String>) -> Self {
        SegmentDesc {
            name: name.into(),
            rdma_server_name: Some(String::new()),
            data_version: 2,
            metadata_version: Some(0),
            ..SegmentDesc::default()
        }
    }

    /// Whether the segment is reached by `protocol`.
    pub fn speaks(&self, protocol: Protocol) -> bool {
        self.protocols.contains(&protocol)
    }

    /// The protocol of one of the segment's buffers.
    pub fn protocol_of(&self, buffer: &BufferDesc) -> Protocol {
        buffer.protocol.or_else(|| self.protocols.first().copied()).unwrap_or(Protocol::Tcp)
    }

    /// The buffer of memory that holds all of `address..address+len`.
    pub fn covering(&self, address: u64, len: u64) -> Option<&BufferDesc> {
        let end = address.checked_add(len)?;
        let holds = |buffer: &&BufferDesc| {
            buffer.address > 0 && buffer.address <= address && end - buffer.address <= buffer.len
        };
        self.buffers.iter().find(holds)
    }
}

#[cfg(test)]
mod tests;
