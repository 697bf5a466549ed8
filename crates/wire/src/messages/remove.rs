//! Removal and eviction.

use yb_pack::{List, Pack};
use yb_types::generation::{V0_3_12, V0_3_14};
use yb_types::{ClientId, DEFAULT_TENANT, ReplicaId, ReplicaType};

/// An object to remove; with RemoveByRegex the key is a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct RemoveArgs<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Whether read leases are ignored.
    pub force: bool,
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// Objects to remove.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchRemoveArgs<'a> {
    /// The keys.
    pub keys: List<'a, &'a [u8]>,
    /// Whether read leases are ignored.
    pub force: bool,
    /// Whose keys.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// Everything to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct RemoveAllArgs<'a> {
    /// Whether read leases are ignored.
    pub force: bool,
    /// Whose keys.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// Replicas to clear.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchReplicaClearArgs<'a> {
    /// The keys.
    pub object_keys: List<'a, &'a [u8]>,
    /// Who asks; keys of others are skipped.
    pub client_id: ClientId,
    /// Where; empty = everywhere.
    pub segment_name: &'a [u8],
    /// Whose keys. The last form that lacks it is that of 0.3.13.
    #[pack(since = V0_3_14, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// A disk replica to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct EvictDiskReplicaArgs<'a> {
    /// Who asks.
    pub client_id: ClientId,
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
    /// DISK or LOCAL_DISK.
    pub replica_type: ReplicaType,
}

/// Disk replicas to evict.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchEvictDiskReplicaArgs<'a> {
    /// Who asks.
    pub client_id: ClientId,
    /// The keys.
    pub keys: List<'a, &'a [u8]>,
    /// Whose keys.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
    /// DISK or LOCAL_DISK.
    pub replica_type: ReplicaType,
}

/// A disk replica to evict if it is still the one that the owner means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct EvictDiskReplicaIfCurrentArgs<'a> {
    /// The owner.
    pub client_id: ClientId,
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    pub tenant_id: &'a [u8],
    /// LOCAL_DISK.
    pub replica_type: ReplicaType,
    /// Which one.
    pub replica_id: ReplicaId,
}
