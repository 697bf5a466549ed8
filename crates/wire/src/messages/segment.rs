//! Segments of memory.

use yb_pack::{List, Pack};
use yb_types::{ClientId, Segment, SegmentId};

/// A segment to mount.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct MountSegmentArgs {
    /// The segment.
    pub segment: Segment,
    /// Its owner.
    pub client_id: ClientId,
}

/// All segments of a client, after the master lost sight of it.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct ReMountSegmentArgs {
    /// The segments.
    pub segments: Vec<Segment>,
    /// Their owner.
    pub client_id: ClientId,
}

/// A segment to unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct UnmountSegmentArgs {
    /// Which.
    pub segment_id: SegmentId,
    /// Its owner.
    pub client_id: ClientId,
}

/// A segment to unmount later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct GracefulUnmountSegmentArgs {
    /// Which.
    pub segment_id: SegmentId,
    /// Its owner.
    pub client_id: ClientId,
    /// How long it stays readable, in milliseconds.
    pub grace_period_ms: u64,
}

/// A segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct SegmentIdArgs {
    /// Which.
    pub segment_id: SegmentId,
}

/// Clients.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchQueryIpArgs<'a> {
    /// Which.
    pub client_ids: List<'a, ClientId>,
}
