//! Reading: where the replicas of an object are, whether it exists.
//!
//! A lookup takes its shard's lock for reading and writes nothing but the lease word, which only moves forward. What it
//! costs is the wait for main memory, so the keys of a batch wait together.

use smallvec::SmallVec;
use yb_types::{ErrorCode, MonotonicTime};

use crate::catalog::Catalog;
use crate::entry::{Entry, Replica};
use crate::evict::LookedUp;
use crate::groups::LeaseGrant;
use crate::key::{KeyHash, Tenant};
use crate::segments::SegmentTable;
use crate::shard::ShardState;
use crate::sync::RwLockReadGuard;
use crate::tiers::Record;
use crate::view::ObjectView;

/// Whether an existence check protects what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Grants a read lease, as `ExistKey` of the peer does.
    Lease,
    /// Changes nothing (`ProbeKey` of 0.3.14).
    Only,
}

impl Catalog {
    /// Looks up keys and grants a read lease on each that is found. `sink` gets one answer a key, in order, with the
    /// readable replicas; OBJECT_NOT_FOUND, or REPLICA_IS_NOT_READY for a key that is being written.
    pub fn get_replicas<K: AsRef<[u8]>>(
        &self,
        tenant: Tenant,
        keys: impl IntoIterator<Item = K>,
        now: MonotonicTime,
        mut sink: impl FnMut(usize, Result<ObjectView<'_>, ErrorCode>),
    ) {
        let grant = self.lease_from(now);
        let mut seen = LookedUp::new();
        self.look_each(tenant, keys, |at, hash, found| {
            seen.add(hash, found.as_ref().ok().and_then(Readable::place));
            if let Ok(Readable { home: Home::Disk(record), .. }) = &found {
                self.wish_for(record, hash, now);
            }
            sink(
                at,
                found.and_then(|found| found.read(grant).then_some(found.view).ok_or(ErrorCode::OBJECT_NOT_FOUND)),
            );
        });
        seen.announce(self, tenant, now);
    }

    /// As [`get_replicas`](Self::get_replicas) but without any effect: no lease, no sign of use.
    pub fn peek<K: AsRef<[u8]>>(
        &self,
        tenant: Tenant,
        keys: impl IntoIterator<Item = K>,
        mut sink: impl FnMut(usize, Result<ObjectView<'_>, ErrorCode>),
    ) {
        self.look_each(tenant, keys, |at, _, found| sink(at, found.map(|found| found.view)));
    }

    /// Says for each key, in order, whether it is readable.
    pub fn exist<K: AsRef<[u8]>>(
        &self,
        tenant: Tenant,
        keys: impl IntoIterator<Item = K>,
        probe: Probe,
        now: MonotonicTime,
        mut sink: impl FnMut(usize, bool),
    ) {
        let grant = self.lease_from(now);
        if probe == Probe::Only {
            return self.look_each(tenant, keys, |at, _, found| sink(at, found.is_ok()));
        }
        let mut seen = LookedUp::new();
        self.look_each(tenant, keys, |at, hash, found| {
            seen.add(hash, found.as_ref().ok().and_then(Readable::place));
            sink(at, found.is_ok_and(|found| found.read(grant)));
        });
        seen.announce(self, tenant, now);
    }

    fn lease_from(&self, now: MonotonicTime) -> LeaseGrant {
        LeaseGrant { now, until: now + self.settings.lease_ttl }
    }

    /// Fetches from main memory what lookups of these keys are going to need. Changes nothing and answers nothing.
    pub fn foresee<K: AsRef<[u8]>>(&self, tenant: Tenant, keys: impl IntoIterator<Item = K>) {
        let mut keys = keys.into_iter();
        loop {
            let hashed = |key: K| self.hash(tenant, key.as_ref());
            let group: SmallVec<[KeyHash; GROUP]> = keys.by_ref().take(GROUP).map(hashed).collect();
            if group.is_empty() {
                return;
            }
            warm(&self.read_all(group.iter().copied()));
        }
    }

    /// The same for writes: also what else in the shards they are going to change.
    pub(crate) fn foresee_writes(&self, group: impl ExactSizeIterator<Item = KeyHash> + Clone) {
        if group.len() > 1 {
            let states = self.read_all(group);
            warm(&states);
            std::hint::black_box(states.iter().fold(0, |all, (_, state)| all ^ state.touch_ends()));
        }
    }

    /// Locks the shards of some keys for reading. No thread waits for one shard while it holds another for writing, so
    /// holding several for reading cannot end in a circle.
    fn read_all(&self, group: impl ExactSizeIterator<Item = KeyHash> + Clone) -> States<'_> {
        if group.len() > 1 {
            group.clone().for_each(|hash| self.shards[hash.shard].claim());
        }
        // Recursive: two keys may share a shard, and a writer may have come to wait between their locks.
        group.map(|hash| (hash.word, self.shards[hash.shard].state.read_recursive())).collect()
    }

    /// Looks up keys, [`GROUP`] at a time under the locks of their shards.
    fn look_each<K: AsRef<[u8]>>(
        &self,
        tenant: Tenant,
        keys: impl IntoIterator<Item = K>,
        mut then: impl FnMut(usize, KeyHash, Result<Readable<'_>, ErrorCode>),
    ) {
        let mut keys = keys.into_iter();
        if keys.size_hint() == (1, Some(1)) {
            return keys.for_each(|key| self.look_single(tenant, key.as_ref(), &mut then));
        }
        let mut at = 0;
        loop {
            let hashed = |key: K| (self.hash(tenant, key.as_ref()), key);
            let group: SmallVec<[(KeyHash, K); GROUP]> = keys.by_ref().take(GROUP).map(hashed).collect();
            if group.is_empty() {
                return;
            }
            let states = self.read_all(group.iter().map(|(hash, _)| *hash));
            let likely = warm(&states);
            // Loaded under the shards' locks: see the invariants of the segment table.
            let table = self.segments.load();
            for (nth, ((_, state), (hash, key))) in states.iter().zip(&group).enumerate() {
                let slot = match likely.get(nth) {
                    Some(&likely) => state.find_at(likely, tenant, hash.word, key.as_ref()),
                    None => state.find(tenant, hash.word, key.as_ref()),
                };
                let record = state.shelf.get(tenant, hash.word, key.as_ref());
                then(at, *hash, readable(state, &table, slot, record));
                at += 1;
            }
        }
    }
}

/// What of a victim's write a policy knows, see [`Catalog::foresee_victims`].
type Places<'a> = SmallVec<[(u32, RwLockReadGuard<'a, ShardState>); GROUP]>;

impl Catalog {
    /// Looks up one key, which has nobody to wait for memory with.
    fn look_single(
        &self,
        tenant: Tenant,
        key: &[u8],
        then: &mut impl FnMut(usize, KeyHash, Result<Readable<'_>, ErrorCode>),
    ) {
        let hash = self.hash(tenant, key);
        let state = self.shards[hash.shard].state.read();
        // Loaded under the shard's lock: see the invariants of the segment table.
        let table = self.segments.load();
        let (slot, record) = (state.find(tenant, hash.word, key), state.shelf.get(tenant, hash.word, key));
        then(0, hash, readable(&state, &table, slot, record));
    }

    /// Brings what evicting these is going to need into the cache, for all at once.
    pub(crate) fn foresee_victims(&self, places: impl Iterator<Item = (usize, u32)> + Clone) {
        places.clone().for_each(|(shard, _)| self.shards[shard].claim());
        let states: Places<'_> =
            places.map(|(shard, slot)| (slot, self.shards[shard].state.read_recursive())).collect();
        let entries: SmallVec<[Option<&Entry>; GROUP]> =
            states.iter().map(|(slot, state)| state.slab.get(*slot)).collect();
        std::hint::black_box(entries.iter().flatten().fold(0, |all, entry| all ^ entry.touch()));
        let homes = states.iter().zip(&entries).map(|((_, state), entry)| {
            entry.map_or(0, |entry| state.touch_home(self.hash(entry.tenant, entry.key.as_slice()).word))
        });
        std::hint::black_box(homes.fold(0, |all, slot| all ^ slot));
    }
}

/// Keys of a batch that are looked up together.
pub(crate) const GROUP: usize = 16;

/// Locked shards with the hashes that are looked for in them.
type States<'a> = SmallVec<[(u32, RwLockReadGuard<'a, ShardState>); GROUP]>;

/// Brings the memory that the searches of a group will meet into the cache. A search waits for main memory three
/// times, each time for an address that the last answer told; those of different keys do not depend on each other, and
/// going step by step over all of them lets the processor wait for all at once. Answers where each search will most
/// likely end.
fn warm(states: &[(u32, RwLockReadGuard<'_, ShardState>)]) -> Likely {
    std::hint::black_box(states.iter().fold(0, |all, (word, state)| all ^ state.touch_home(*word)));
    let likely: Likely = states.iter().map(|(word, state)| state.likely(*word)).collect();
    let touched = states.iter().zip(&likely).map(|((_, state), slot)| slot.map_or(0, |slot| state.slab[slot].touch()));
    std::hint::black_box(touched.fold(0, |all, word| all ^ word));
    likely
}

/// For each key of a group, the slot with its hash, if there is one.
type Likely = SmallVec<[Option<u32>; GROUP]>;

/// Where a lookup found an object.
enum Home<'s> {
    /// In memory.
    Memory { slot: u32, entry: &'s Entry },
    /// On disks only.
    Disk(&'s Record),
}

/// What a lookup found.
struct Readable<'s> {
    home: Home<'s>,
    view: ObjectView<'s>,
}

impl<'s> Readable<'s> {
    /// Its place in memory.
    fn place(&self) -> Option<(u32, &'s Entry)> {
        match self.home {
            Home::Memory { slot, entry } => Some((slot, entry)),
            Home::Disk(_) => None,
        }
    }

    /// Grants a lease to a reader; `false` when the object is being given up.
    fn read(&self, grant: LeaseGrant) -> bool {
        match self.home {
            Home::Memory { entry, .. } => entry.read(grant),
            Home::Disk(record) => {
                record.read(grant);
                true
            }
        }
    }
}

fn readable<'s>(
    state: &'s ShardState,
    table: &'s SegmentTable,
    slot: Option<u32>,
    record: Option<&'s Record>,
) -> Result<Readable<'s>, ErrorCode> {
    if let Some(slot) = slot
        && let Some(view) = ObjectView::readable(&state.slab[slot], table)
    {
        return Ok(Readable { home: Home::Memory { slot, entry: &state.slab[slot] }, view: view.and_on_disk(record) });
    }
    if let Some(record) = record
        && let Some(view) = ObjectView::on_disk(record, table)
    {
        return Ok(Readable { home: Home::Disk(record), view });
    }
    let entry = &state.slab[slot.ok_or(ErrorCode::OBJECT_NOT_FOUND)?];
    // Else its segments are gone, and the sweep has not come by yet.
    let write_comes = |write| state.slab.get(write).is_some_and(|write| may_come(write, table));
    let comes = may_come(entry, table) || entry.successor().is_some_and(write_comes);
    Err(if comes { ErrorCode::REPLICA_IS_NOT_READY } else { ErrorCode::OBJECT_NOT_FOUND })
}

/// Whether replicas that cannot be read now may be readable later: they are being written, or their nodes are silent
/// and may come back.
fn may_come(entry: &Entry, table: &SegmentTable) -> bool {
    let counts = |replica: &&Replica| replica.is_complete() || !entry.is_finished();
    entry.replicas.as_slice().iter().filter(counts).any(|replica| table.live(replica.segment).is_some())
}
