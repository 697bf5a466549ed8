//! Segments: memory that a client gives to the pool.

use yb_pack::Pack;

use crate::SegmentId;
use crate::generation::{V0_3_12, V0_3_14};

/// Where a segment stands in its life. Unknown numbers are kept; 0.3.10.post2 and 0.3.11 moved some (see the spec table in docs).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pack)]
#[pack(transparent)]
pub struct SegmentStatus(pub i32);

impl SegmentStatus {
    /// Not set.
    pub const UNDEFINED: SegmentStatus = SegmentStatus(0);
    /// In use.
    pub const OK: SegmentStatus = SegmentStatus(1);
    /// Being emptied.
    pub const DRAINING: SegmentStatus = SegmentStatus(2);
    /// Empty.
    pub const DRAINED: SegmentStatus = SegmentStatus(3);
    /// Readable until its grace time ends.
    pub const GRACEFULLY_UNMOUNTING: SegmentStatus = SegmentStatus(4);
    /// Going away.
    pub const UNMOUNTING: SegmentStatus = SegmentStatus(5);
}

/// What the master thinks of a client. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pack)]
#[pack(transparent)]
pub struct ClientStatus(pub i32);

impl ClientStatus {
    /// Not set.
    pub const UNDEFINED: ClientStatus = ClientStatus(0);
    /// Known.
    pub const OK: ClientStatus = ClientStatus(1);
    /// Unknown: mount the segments again.
    pub const NEED_REMOUNT: ClientStatus = ClientStatus(2);
}

/// NUMA node and RDMA NICs near a segment's memory (0.3.14).
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
pub struct SegmentLocality {
    /// NUMA node.
    pub numa_node: i32,
    /// Names of the NICs near it.
    pub hca_names: Vec<String>,
}

/// Memory that a client gives to the pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
pub struct Segment {
    /// Its id, made by the client.
    pub id: SegmentId,
    /// The client's `local_hostname`; not unique by construction.
    pub name: String,
    /// First address in the owner's process.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// `host:port` of the owner's Transfer Engine.
    pub te_endpoint: String,
    /// Transport name.
    pub protocol: String,
    /// Host of the owner, empty = unknown (since 0.3.12).
    #[pack(since = V0_3_12)]
    pub host_id: String,
    /// 0.3.14: NUMA node and NICs (compatible member 1).
    #[pack(since = V0_3_14, compatible = 1)]
    pub locality: Option<SegmentLocality>,
}
