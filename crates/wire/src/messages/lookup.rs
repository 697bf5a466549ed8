//! Lookups and existence.

use yb_pack::{List, Pack};
use yb_types::ReplicaDescriptor;
use yb_types::generation::{V0_3_13, V0_3_14};

/// Where an object can be read, and for how long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
pub struct GetReplicaListResponse {
    /// Replicas, the best first.
    pub replicas: Vec<ReplicaDescriptor>,
    /// Read lease, in milliseconds from the moment the master answered.
    pub lease_ttl_ms: u64,
    /// CRC-64/ECMA-182 of the object, if its writer gave one.
    #[pack(since = V0_3_13)]
    pub object_checksum: Option<u64>,
    /// The tenant that the master used.
    #[pack(since = V0_3_14, compatible = 1)]
    pub resolved_tenant_id: Option<String>,
}

/// Which keys of a probe get read leases. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseMode(pub u8);

impl LeaseMode {
    /// None of them.
    pub const NONE: LeaseMode = LeaseMode(0);
    /// The last group of keys that all exist.
    pub const LAST_HIT_ONLY: LeaseMode = LeaseMode(1);
}

/// How a probe gives leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pack)]
#[pack(memory_copied)]
pub struct GrantLeasePolicy {
    /// A [`LeaseMode`].
    pub lease_mode: u8,
    /// Keys of a group.
    pub candidate_size: u64,
}

impl GrantLeasePolicy {
    /// The mode by name.
    pub fn mode(self) -> LeaseMode {
        LeaseMode(self.lease_mode)
    }
}

/// Keys to probe.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchProbeKeyArgs<'a> {
    /// Which get leases.
    pub policy: GrantLeasePolicy,
    /// The keys.
    pub keys: List<'a, &'a [u8]>,
    /// Whose keys.
    pub tenant_id: &'a [u8],
}
