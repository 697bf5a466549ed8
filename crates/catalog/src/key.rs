//! Keys: how a key of a tenant finds its shard and its place in it.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;

/// Number of shards of the catalog.
pub const SHARDS: usize = if cfg!(feature = "shuttle") { 16 } else { 1024 };

/// The namespace that a key belongs to. The same key of two tenants names two objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tenant(pub u16);

impl Tenant {
    /// The tenant of every call while multi-tenancy is off.
    pub const DEFAULT: Tenant = Tenant(0);
    /// A name that nobody registered: it has no objects, and its writes are refused.
    pub const NOBODY: Tenant = Tenant(u16::MAX);
}

/// Longest key that needs no memory of its own.
const INLINE: usize = 46;

/// The bytes of a key. Usual keys lie in the entry itself: no second allocation, no second cache miss.
#[derive(Debug)]
pub(crate) enum KeyBytes {
    Inline { len: u8, bytes: [u8; INLINE] },
    Heap(Box<[u8]>),
}

impl KeyBytes {
    /// The key of a vacant slot; no object has it.
    pub const NONE: KeyBytes = KeyBytes::Inline { len: 0, bytes: [0; INLINE] };

    pub fn new(key: &[u8]) -> Self {
        let mut bytes = [0; INLINE];
        match bytes.get_mut(..key.len()) {
            Some(inline) => {
                inline.copy_from_slice(key);
                KeyBytes::Inline { len: key.len() as u8, bytes }
            }
            None => KeyBytes::Heap(key.into()),
        }
    }

    pub fn is_heap(&self) -> bool {
        matches!(self, KeyBytes::Heap(_))
    }

    /// Bytes that lie outside the entry.
    pub fn outside(&self) -> u64 {
        match self {
            KeyBytes::Inline { .. } => 0,
            KeyBytes::Heap(bytes) => bytes.len() as u64,
        }
    }

    pub fn as_slice(&self) -> &[u8] {
        match self {
            KeyBytes::Inline { len, bytes } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
            KeyBytes::Heap(bytes) => bytes,
        }
    }
}

/// Where a key lives: its shard, and the 32 bits that its shard's table works with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyHash {
    pub shard: usize,
    pub word: u32,
    /// All of it: the name of the key for eviction policies.
    pub whole: u64,
}

impl KeyHash {
    /// Shard and slot of an entry in one word, as segments and groups keep it.
    pub fn member(self, slot: u32) -> u64 {
        (self.shard as u64) << 32 | u64::from(slot)
    }
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
        KeyHash { shard: (hash >> 32) as usize % SHARDS, word: hash as u32, whole: hash }
    }
}
