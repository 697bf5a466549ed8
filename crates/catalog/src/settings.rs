//! What an operator can choose.

use std::time::Duration;

use yb_alloc::{Alignment, Cutting};
use yb_evict::PolicyKind;
use yb_types::ByteLen;

/// Which segments a put tries first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocationStrategy {
    /// Two segments drawn in proportion to their sizes, the emptier one first (ours).
    #[default]
    Balanced,
    /// A random segment, then its neighbours in order (the peer's `random`).
    Random,
    /// Of a random sample, the segment with the largest share free (the peer's `free_ratio_first`).
    FreeRatioFirst,
    /// Of a random sample, the segment whose owner's disk has the largest share free (the peer's `ssd_free_ratio_first`).
    SsdFreeRatioFirst,
    /// The writer's host, then the next one in order (the peer's `local_first`).
    LocalFirst,
    /// The first preferred segment only, one replica (the peer's `cxl`).
    Cxl,
}

/// Settings of a [`Catalog`](crate::Catalog). Names and defaults are the peer's where it has them.
#[derive(Clone, Debug)]
pub struct CatalogSettings {
    /// `default_kv_lease_ttl`: how long a read may go on using what a lookup answered.
    pub lease_ttl: Duration,
    /// `default_kv_soft_pin_ttl`: how long a soft pin without a time of its own lasts.
    pub soft_pin_ttl: Duration,
    /// `max_kv_soft_pin_ttl`: a put that asks for a longer soft pin is refused.
    pub soft_pin_ttl_max: Duration,
    /// `allow_evict_soft_pinned_objects`: whether eviction may take soft-pinned objects when nothing else is left.
    pub evict_soft_pinned: bool,
    /// `eviction_policy`: which objects go first.
    pub eviction_policy: PolicyKind,
    /// `eviction_ratio`: share of the capacity that one eviction frees below the watermark, at most. More than a hundredth is
    /// never needed.
    pub eviction_ratio: f64,
    /// `eviction_high_watermark_ratio`: use above this share of the capacity starts eviction.
    pub eviction_high_watermark: f64,
    /// `put_start_discard_timeout_sec`: an unfinished put older than this gives way to another put of the key.
    pub discard_timeout: Duration,
    /// `put_start_release_timeout_sec`: space that a writer may still write to stays out of use this long, counted from
    /// the start of its put. Must be larger than the discard timeout.
    pub release_timeout: Duration,
    /// `client_ttl`: the segments of a client that does not ping this long are not offered any more.
    pub client_ttl: Duration,
    /// `client_suspicion_ttl_sec`: after this time more they are unmounted. 0 is the behaviour of 0.3.13.
    pub client_suspicion_ttl: Duration,
    /// `repair_grace_ms`: when a client's segments were not offered this long, other replicas are made of what lies there too.
    pub repair_grace: Duration,
    /// Pings of more clients than this are refused.
    pub clients_max: usize,
    /// `max_segments`: of all clients together.
    pub segments_max: usize,
    /// `max_segments_per_client`.
    pub segments_per_client_max: usize,
    /// `allocation_strategy`.
    pub allocation_strategy: AllocationStrategy,
    /// What the offset of every extent is a multiple of, except of small objects that this would waste more than 1/64 of.
    /// Counted in every gauge.
    pub alignment: Alignment,
    /// `memory_allocator`: how segments are cut.
    pub cutting: Cutting,
    /// How many objects a put that finds no space may look at to make room at once. 0 leaves it to the janitor.
    pub inline_eviction_budget: u32,
    /// Disks below the memory.
    pub tiers: TierSettings,
    /// `enable_multi_tenants`: keys and quotas of tenants are told apart.
    pub multi_tenant: bool,
    /// Most tenants at a time, the default one not counted.
    pub tenants_max: u16,
    /// `tenant_eviction_high_watermark_ratio`: share of its quota above which a tenant's objects are evicted in the
    /// background; 0 never.
    pub tenant_high_watermark: f64,
    /// `max_unfinished_per_client`: bytes that one client may have reserved and not filled. `None`: half of the memory of the
    /// pool, and 16 GiB at least. A client that has nothing so far may always begin one write.
    pub unfinished_per_client: Option<ByteLen>,
    /// `max_key_bytes`: longest key, and longest name of a group.
    pub key_max: ByteLen,
    /// `max_objects_memory`: memory of the master that what it knows of objects may take, about.
    pub objects_memory: ByteLen,
    /// Seed of the key hash; random for each process.
    pub hash_seed: u64,
    /// The first id of a replica, at least 1 and below 2^63; random for each process, so that ids of different lives differ.
    pub first_replica_id: u64,
}

/// Disks of clients below the memory of the pool, by the peer's flags.
#[derive(Clone, Debug, PartialEq)]
pub struct TierSettings {
    /// Clients may register disks.
    pub enable_offload: bool,
    /// Objects go to a disk when they are to be evicted; else as soon as they are readable.
    pub offload_on_evict: bool,
    /// What cannot be written down, or exceeds the cap of a round, is evicted all the same.
    pub offload_force_evict: bool,
    /// Objects that may wait for one disk.
    pub offloading_queue_limit: usize,
    /// With `offload_force_evict`: most offloads of one round of eviction, as a share of the queue limit.
    pub offload_cap_ratio: f64,
    /// Objects that lie on disks only are loaded when they are read.
    pub promotion_on_hit: bool,
    /// Reads from which on that is done.
    pub promotion_admission_threshold: u8,
    /// Loads at a time.
    pub promotion_queue_limit: usize,
    /// Loads that one heartbeat hands out.
    pub promotion_max_per_heartbeat: usize,
}

impl Default for TierSettings {
    fn default() -> Self {
        TierSettings {
            enable_offload: false,
            offload_on_evict: false,
            offload_force_evict: false,
            offloading_queue_limit: 50_000,
            offload_cap_ratio: 0.5,
            promotion_on_hit: false,
            promotion_admission_threshold: 2,
            promotion_queue_limit: 50_000,
            promotion_max_per_heartbeat: 1,
        }
    }
}

impl Default for CatalogSettings {
    fn default() -> Self {
        CatalogSettings {
            lease_ttl: Duration::from_secs(10),
            soft_pin_ttl: Duration::from_secs(30 * 60),
            soft_pin_ttl_max: Duration::from_secs(7 * 24 * 3600),
            evict_soft_pinned: true,
            eviction_policy: PolicyKind::default(),
            eviction_ratio: 0.05,
            eviction_high_watermark: 0.90,
            discard_timeout: Duration::from_secs(30),
            release_timeout: Duration::from_secs(600),
            client_ttl: Duration::from_secs(10),
            client_suspicion_ttl: Duration::from_secs(20),
            repair_grace: Duration::from_secs(5),
            clients_max: 1 << 20,
            segments_max: 1 << 18,
            segments_per_client_max: 1 << 14,
            allocation_strategy: AllocationStrategy::Balanced,
            alignment: Alignment::CACHE_LINE,
            cutting: Cutting::Adaptive,
            inline_eviction_budget: 4096,
            tiers: TierSettings::default(),
            multi_tenant: false,
            tenants_max: 4096,
            tenant_high_watermark: 0.90,
            unfinished_per_client: None,
            key_max: ByteLen(64 << 10),
            objects_memory: ByteLen(1 << 50),
            hash_seed: 0,
            first_replica_id: 1,
        }
    }
}

/// Two settings contradict each other, or one is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSettings {
    /// Space would be reused while its put can still be finished.
    #[error("put_start_release_timeout_sec must be larger than put_start_discard_timeout_sec")]
    ReleaseNotAfterDiscard,
    /// The default soft pin could never be granted.
    #[error("default_kv_soft_pin_ttl must not be larger than max_kv_soft_pin_ttl")]
    SoftPinDefaultAboveMaximum,
    /// Not a share.
    #[error("eviction_ratio must be in 0..=1")]
    EvictionRatio,
    /// Not a share.
    #[error("eviction_high_watermark_ratio must be in 0..=1")]
    EvictionWatermark,
    /// Old versions are kept for those who read them.
    #[error("settings were changed too often while this process runs; restart it to change them again")]
    ChangedTooOften,
}

impl CatalogSettings {
    /// Checks what the peer checks at its start.
    ///
    /// # Errors
    /// The first contradiction found.
    pub fn check(&self) -> Result<(), BadSettings> {
        if self.release_timeout <= self.discard_timeout {
            return Err(BadSettings::ReleaseNotAfterDiscard);
        }
        if self.soft_pin_ttl > self.soft_pin_ttl_max {
            return Err(BadSettings::SoftPinDefaultAboveMaximum);
        }
        if !(0.0..=1.0).contains(&self.eviction_ratio) {
            return Err(BadSettings::EvictionRatio);
        }
        if !(0.0..=1.0).contains(&self.eviction_high_watermark) {
            return Err(BadSettings::EvictionWatermark);
        }
        Ok(())
    }
}
