//! Calls between clients: reads from the owner's disk.

use yb_pack::{List, Pack, U8List};
use yb_types::generation::V0_3_14;

/// Objects to read from the owner's disk; each key is tenant, a zero byte, key (the bare key before 0.3.12).
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchGetOffloadObjectArgs<'a> {
    /// The keys.
    pub keys: List<'a, &'a [u8]>,
    /// Bytes of each object.
    pub sizes: List<'a, i64>,
}

/// Where the objects lie in the owner's memory for a while.
#[derive(Clone, Debug, PartialEq, Pack)]
pub struct BatchGetOffloadObjectResponse<'a> {
    /// For the release.
    pub batch_id: u64,
    /// One address per key.
    pub pointers: List<'a, u64>,
    /// `host:port` of the owner's Transfer Engine.
    pub transfer_engine_addr: &'a str,
    /// How long they stay, in milliseconds.
    pub gc_ttl_ms: u64,
}

/// A batch that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct ReleaseOffloadBufferArgs {
    /// Which.
    pub batch_id: u64,
}

/// Disk replicas that a reader could not read.
#[derive(Clone, Debug, PartialEq, Pack)]
pub struct VerifyDiskReplicaRequest<'a> {
    /// Whose keys.
    pub tenant_id: &'a [u8],
    /// The keys.
    pub keys: List<'a, &'a [u8]>,
    /// The tenant that the master had answered.
    #[pack(since = V0_3_14, compatible = 1)]
    pub resolved_tenant_id: Option<&'a [u8]>,
    /// The replica ids that the reader had, per key.
    #[pack(since = V0_3_14, compatible = 2)]
    pub expected_replica_ids: Option<List<'a, u64>>,
}

/// Arguments of verify_disk_replica.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct VerifyDiskReplicaArgs<'a> {
    /// The request.
    pub request: VerifyDiskReplicaRequest<'a>,
}

/// What the owner found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct VerifyDiskReplicaResponse<'a> {
    /// One byte per key: 1 there, 0 proven gone, 2 not known.
    pub states: U8List<'a>,
}

/// Parts of objects to read from the owner's disk.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchGetOffloadObjectRangesArgs<'a> {
    /// The keys.
    pub keys: List<'a, &'a [u8]>,
    /// First byte of each part.
    pub offsets: List<'a, i64>,
    /// Bytes of each part.
    pub lengths: List<'a, i64>,
    /// Bytes of each object.
    pub object_sizes: List<'a, i64>,
}

/// Objects that will be read soon.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct PrefetchOffloadObjectArgs<'a> {
    /// Bare keys.
    pub keys: List<'a, &'a [u8]>,
    /// Bytes of each object.
    pub sizes: List<'a, i64>,
    /// Whose keys.
    pub tenant_id: &'a [u8],
}
