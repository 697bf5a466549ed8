//! Copies of objects that are read often. Why they are never stale is in `docs/client-cache.md`. Pure but for its lock.
//!
//! Invariant: an entry is used only when the master's answer to this very read names its replica, and only replicas whose
//! id stands for the same bytes for ever are kept.

use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;

use parking_lot::Mutex;
use yb_types::{ReplicaDescriptor, ReplicaId, ReplicaStatus};

/// How much is kept, and from when on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HotCacheConfig {
    /// Bytes of all copies; 0 turns the cache off.
    pub bytes: u64,
    /// Reads of an object, within the last some thousands of reads, before it is kept: 1 to 255.
    pub threshold: u8,
}

impl Default for HotCacheConfig {
    /// Off; from the second read on, once it has bytes.
    fn default() -> Self {
        HotCacheConfig { bytes: 0, threshold: 2 }
    }
}

/// The bytes of an object, shared with whoever copies from them.
pub(crate) type Block = Arc<Vec<u8>>;

#[derive(Debug)]
struct Entry {
    replica: ReplicaId,
    block: Block,
    /// When it was last used, in uses.
    used: u64,
}

#[derive(Debug, Default)]
struct State {
    entries: BTreeMap<Arc<[u8]>, Entry>,
    /// By last use, the oldest first.
    order: BTreeMap<u64, Arc<[u8]>>,
    bytes: u64,
    uses: u64,
    reads: Sketch,
}

impl State {
    fn take(&mut self, key: &[u8]) -> bool {
        let Some(entry) = self.entries.remove(key) else { return false };
        self.order.remove(&entry.used);
        self.bytes -= entry.block.len() as u64;
        true
    }

    fn use_number(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }
}

/// The copies of one client.
#[derive(Debug)]
pub(crate) struct HotCache {
    config: HotCacheConfig,
    state: Mutex<State>,
}

impl HotCache {
    /// `None` when it is off.
    pub(crate) fn new(config: HotCacheConfig) -> Option<Self> {
        (config.bytes > 0).then(|| HotCache { config, state: Mutex::default() })
    }

    /// The bytes of an object whose replicas the master has just named. A copy of other bytes is dropped.
    pub(crate) fn find(&self, key: &[u8], replicas: &[ReplicaDescriptor]) -> Option<Block> {
        let mut state = self.state.lock();
        let replica = state.entries.get(key)?.replica;
        let named = |found: &ReplicaDescriptor| found.id == replica && found.status == ReplicaStatus::COMPLETE;
        if !replicas.iter().any(named) {
            state.take(key);
            return None;
        }
        let now = state.use_number();
        let State { entries, order, .. } = &mut *state;
        let entry = entries.get_mut(key)?;
        if let Some(name) = order.remove(&entry.used) {
            order.insert(now, name);
        }
        entry.used = now;
        Some(Arc::clone(&entry.block))
    }

    /// Counts a read of an object that is not here; whether a copy is to be kept.
    pub(crate) fn wants(&self, key: &[u8], replica: ReplicaId, size: u64) -> bool {
        let fits = size > 0 && size <= self.config.bytes / 2;
        fits && replica.is_never_reused() && self.state.lock().reads.count(key) >= self.config.threshold.max(1)
    }

    /// Keeps bytes that came from this replica while the lease was live; how many others went for it.
    pub(crate) fn keep(&self, key: &[u8], replica: ReplicaId, block: Block) -> u64 {
        let size = block.len() as u64;
        let mut state = self.state.lock();
        state.take(key);
        let mut gone = 0;
        while state.bytes + size > self.config.bytes {
            let Some((_, oldest)) = state.order.first_key_value() else { break };
            let oldest = Arc::clone(oldest);
            state.take(&oldest);
            gone += 1;
        }
        let used = state.use_number();
        let name: Arc<[u8]> = key.into();
        state.order.insert(used, Arc::clone(&name));
        state.entries.insert(name, Entry { replica, block, used });
        state.bytes += size;
        gone
    }

    /// Bytes kept now.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().bytes
    }
}

const ROWS: usize = 4;
const COLUMNS: usize = 4096;
/// Reads after which all counts are halved, so that what was read long ago fades.
const AGE: u32 = 10 * COLUMNS as u32;

/// About how often keys were read lately; never too low, seldom too high.
#[derive(Debug)]
struct Sketch {
    counts: Box<[[u8; COLUMNS]; ROWS]>,
    since: u32,
}

impl Default for Sketch {
    fn default() -> Self {
        Sketch { counts: Box::new([[0; COLUMNS]; ROWS]), since: 0 }
    }
}

impl Sketch {
    /// Counts a read, and says how many there were.
    fn count(&mut self, key: &[u8]) -> u8 {
        self.since += 1;
        if self.since >= AGE {
            self.since = 0;
            self.counts.iter_mut().flatten().for_each(|count| *count /= 2);
        }
        let mut hasher = std::hash::DefaultHasher::new();
        hasher.write(key);
        let hash = hasher.finish();
        let mut least = u8::MAX;
        for (row, counts) in self.counts.iter_mut().enumerate() {
            let column = (hash >> (row * 16)) as usize % COLUMNS;
            if let Some(count) = counts.get_mut(column) {
                *count = count.saturating_add(1);
                least = least.min(*count);
            }
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yb_types::{BufferDescriptor, MemoryDescriptor, ReplicaKind};

    fn ours(number: u64) -> ReplicaId {
        ReplicaId(ReplicaId::NEVER_REUSED | number)
    }

    fn replica(id: ReplicaId, status: ReplicaStatus) -> ReplicaDescriptor {
        let kind = ReplicaKind::Memory(MemoryDescriptor { buffer: BufferDescriptor::default() });
        ReplicaDescriptor { id, kind, status }
    }

    fn cache(bytes: u64) -> HotCache {
        HotCache::new(HotCacheConfig { bytes, threshold: 2 }).unwrap()
    }

    fn complete(number: u64) -> Vec<ReplicaDescriptor> {
        vec![replica(ours(number), ReplicaStatus::COMPLETE)]
    }

    #[test]
    fn only_what_the_master_names_now_is_given_out() {
        let cache = cache(100);
        cache.keep(b"k", ours(1), Arc::new(b"old".to_vec()));
        let others = [replica(ours(9), ReplicaStatus::COMPLETE), replica(ours(1), ReplicaStatus::COMPLETE)];
        assert_eq!(cache.find(b"k", &others).unwrap().as_slice(), b"old", "one of several replicas");
        assert!(cache.find(b"k", &[replica(ours(1), ReplicaStatus::PROCESSING)]).is_none());
        cache.keep(b"k", ours(1), Arc::new(b"old".to_vec()));
        assert!(cache.find(b"k", &complete(2)).is_none(), "written anew by somebody");
        assert!(cache.find(b"k", &complete(1)).is_none(), "and dropped");
        assert_eq!(cache.bytes(), 0);
    }

    #[test]
    fn a_copy_is_kept_from_the_second_read_on_if_its_id_is_unique() {
        let cache = cache(100);
        assert!(!cache.wants(b"k", ours(1), 10) && cache.wants(b"k", ours(1), 10));
        for _ in 0..10 {
            assert!(!cache.wants(b"peer", ReplicaId(7), 10), "an id of the peer's master may come again");
            assert!(!cache.wants(b"large", ours(1), 51) && !cache.wants(b"empty", ours(1), 0));
        }
    }

    #[test]
    fn the_least_recently_used_goes() {
        let cache = cache(100);
        for (number, key) in [b"a", b"b", b"c"].into_iter().enumerate() {
            assert_eq!(cache.keep(key, ours(number as u64), Arc::new(vec![0; 30])), 0);
        }
        let held = cache.find(b"a", &complete(0)).unwrap();
        assert_eq!(cache.keep(b"d", ours(3), Arc::new(vec![0; 50])), 2);
        assert!(cache.find(b"b", &complete(1)).is_none() && cache.find(b"c", &complete(2)).is_none());
        assert!(cache.find(b"a", &complete(0)).is_some());
        assert_eq!(cache.bytes(), 80);
        assert_eq!(cache.keep(b"e", ours(4), Arc::new(vec![0; 50])), 1, "d, which was used before a");
        assert_eq!(held.len(), 30, "who copies keeps it");
        cache.keep(b"e", ours(5), Arc::new(vec![0; 10]));
        assert_eq!(cache.bytes(), 40, "the same key again replaces");
    }

    #[test]
    fn old_reads_fade() {
        let mut sketch = Sketch::default();
        let counts: Vec<u8> = (0..8).map(|_| sketch.count(b"k")).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8]);
        sketch.since = AGE - 1;
        assert_eq!(sketch.count(b"k"), 5);
        for _ in 0..300 {
            sketch.count(b"k");
        }
        assert_eq!(sketch.count(b"k"), 255);
        assert!(HotCache::new(HotCacheConfig::default()).is_none());
    }
}
