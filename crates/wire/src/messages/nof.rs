//! NVMe-oF segments.

use yb_pack::Pack;
use yb_types::{ClientId, SegmentId};

/// A segment on NVMe-oF.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(name = "NoFSegment")]
pub struct NofSegment<'a> {
    /// Its id.
    pub id: SegmentId,
    /// Its name.
    pub name: &'a str,
    /// First address.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// `host:port` of the owner's Transfer Engine.
    pub te_endpoint: &'a str,
}

/// Who owns an NVMe-oF segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(name = "NoFSegmentOwnerInfo")]
pub struct NofSegmentOwnerInfo {
    /// Which segment.
    pub segment_id: SegmentId,
    /// Whose.
    pub client_id: ClientId,
}

/// An NVMe-oF segment to mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct MountNofSegmentArgs<'a> {
    /// The segment.
    pub segment: NofSegment<'a>,
    /// Its owner.
    pub client_id: ClientId,
}

/// All NVMe-oF segments of a client.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct ReMountNofSegmentArgs<'a> {
    /// The segments.
    pub segments: Vec<NofSegment<'a>>,
    /// Their owner.
    pub client_id: ClientId,
}
