//! Keys: how a key of a tenant finds its shard and its place in it.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

/// Number of shards of the catalog.
pub const SHARDS: usize = 1024;

/// The namespace that a key belongs to. The same key of two tenants names two objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(pub u16);

impl Tenant {
    /// The tenant of every call while multi-tenancy is off.
    pub const DEFAULT: Tenant = Tenant(0);
}

/// Where a key lives: its shard, and the 32 bits that its shard's table works with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHash {
    pub shard: usize,
    pub word: u32,
}

/// Hashes keys with a seed of this process, so that nobody outside can aim at one shard.
pub(crate) struct KeyHasher(FixedState);

impl KeyHasher {
    pub fn new(seed: u64) -> Self {
        KeyHasher(FixedState::with_seed(seed))
    }

    pub fn hash(&self, tenant: Tenant, key: &[u8]) -> KeyHash {
        let mut hasher = self.0.build_hasher();
        hasher.write(key);
        hasher.write_u16(tenant.0);
        let hash = hasher.finish();
        KeyHash { shard: (hash >> 32) as usize % SHARDS, word: hash as u32 }
    }
}

/// The table takes its bucket from the low bits and its tag from the top bits; both must vary.
pub(crate) fn table_hash(word: u32) -> u64 {
    u64::from(word) << 32 | u64::from(word)
}
