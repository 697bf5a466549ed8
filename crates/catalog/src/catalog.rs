//! The catalog: its parts, and how an object leaves it.

use std::sync::Arc;
use std::time::Duration;

use yb_types::{ByteLen, ClientId, MonotonicTime, READ_LIMIT, SegmentId};

use crate::clients::Clients;
use crate::contention::{WaitClock, Waits};
use crate::copies::{Copies, Copying};
use crate::cuts::Cuts;
use crate::deferred::Withheld;
use crate::departed::{Absence, Departed};
use crate::directory::{Relearning, Roll};
use crate::effects::{Effects, Quiesce};
use crate::entry::{Entry, Replica, flag};
use crate::evict::{Evictor, place_of};
use crate::frees::Frees;
use crate::groups::Groups;
use crate::key::{KeyHash, KeyHasher, SHARDS, Tenant};
use crate::leaving::LeavingGroups;
use crate::live::Live;
use crate::placement::PlacementPolicy;
use crate::planted::{Fault, planted};
use crate::repair::Losses;
use crate::segment::{Hold, MountedSegment};
use crate::segments::{SegmentTable, Segments};
use crate::settings::{BadSettings, CatalogSettings};
use crate::shard::{Shard, ShardState};
use crate::shares::{Shares, weight, weight_of};
use crate::stand_in::StandIns;
use crate::stats::{Counters, Stats};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64};
use crate::tenants::{TenantOrder, Tenants};
use crate::tiers::Tiers;
use crate::upkeep::Chores;

/// As long after its reservation a writer of ours may still copy into memory that it has mapped: it looks at its deadline, 2 s
/// for what is copied in a moment, between two pieces.
const MAPPED_WRITE: Duration = Duration::from_secs(3);

/// All that the master knows. Shared by every worker; each call locks what it touches.
///
/// Order of locks: clients, segment registry, one shard, table of groups, one segment's space. Never two shards.
/// The eviction policies are locked before shards, their lanes after them.
pub struct Catalog {
    pub(crate) settings: Live<CatalogSettings>,
    pub(crate) hasher: KeyHasher,
    pub(crate) shards: Box<[Shard]>,
    pub(crate) evictor: Evictor,
    pub(crate) groups: Groups,
    pub(crate) leaving: LeavingGroups,
    pub(crate) segments: Segments,
    pub(crate) clients: Mutex<Clients>,
    pub(crate) chores: Mutex<Chores>,
    /// Running copies by deadline and owner. The last lock of all: nothing else is locked under it.
    pub(crate) copies: Mutex<Copies>,
    pub(crate) counters: Counters,
    pub(crate) tenants: Tenants,
    pub(crate) tiers: Tiers,
    pub(crate) departed: Departed,
    pub(crate) relearning: Relearning,
    /// A lock of its own, after those of registry and feeds.
    pub(crate) roll: Roll,
    pub(crate) losses: Losses,
    pub(crate) stand_ins: Mutex<StandIns>,
    pub(crate) shares: Shares,
    pub(crate) cuts: Cuts,
    pub(crate) waits: Arc<Waits>,
    pub(crate) placement: Box<dyn PlacementPolicy>,
    /// A put found no space, and evicting for it did not help.
    pub(crate) starved: AtomicBool,
    /// The next number for a replica; the first of a write is also its generation.
    pub(crate) next_id: Apart<AtomicU64>,
}

/// A value on cache lines of its own: its neighbours are read by every thread, and shall not travel when it changes.
#[repr(align(128))]
pub(crate) struct Apart<T>(pub T);

/// Why the extents of an object are given up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Leave {
    /// It was readable: free when its lease has ended.
    Readable,
    /// It was readable, and its eviction policy named it.
    Evicted,
    /// It was being written: free at this time, or when its writer is known to be done.
    Unfinished {
        /// When nobody can write any more.
        until: MonotonicTime,
        /// The writer itself gave it up.
        revoked: bool,
    },
}

impl Leave {
    /// Whether the eviction policy has to be told.
    fn is_told(self) -> bool {
        matches!(self, Leave::Readable)
    }
}

impl Catalog {
    /// An empty catalog.
    ///
    /// # Errors
    /// [`BadSettings`] when the settings contradict each other.
    pub fn new(settings: CatalogSettings) -> Result<Self, BadSettings> {
        let placement = settings.allocation_strategy.policy();
        Self::with_placement(settings, placement)
    }

    /// An empty catalog with another choice of segments than the settings name.
    ///
    /// # Errors
    /// [`BadSettings`] when the settings contradict each other.
    pub fn with_placement(settings: CatalogSettings, placement: Box<dyn PlacementPolicy>) -> Result<Self, BadSettings> {
        settings.check()?;
        let waits = Arc::new(Waits::default());
        let tenants = if settings.multi_tenant { Tenants::multi(settings.tenants_max) } else { Tenants::single() };
        let order = |shard| tenants.is_multi().then(|| TenantOrder::new(shard, Arc::clone(tenants.occupancy())));
        Ok(Catalog {
            hasher: KeyHasher::new(settings.hash_seed),
            shards: (0..SHARDS).map(|shard| Shard::new(order(shard), Arc::clone(&waits))).collect(),
            evictor: Evictor::new(settings.eviction_policy),
            groups: Groups::new(settings.hash_seed),
            leaving: LeavingGroups::default(),
            segments: Segments::default(),
            clients: Mutex::new(Clients::default()),
            chores: Mutex::new(Chores::default()),
            copies: Mutex::new(Copies::default()),
            counters: Counters::default(),
            tenants,
            tiers: Tiers::default(),
            departed: Departed::new(),
            relearning: Relearning::default(),
            roll: Roll::default(),
            losses: Losses::default(),
            stand_ins: Mutex::new(StandIns::default()),
            shares: Shares::new(settings.hash_seed),
            cuts: Cuts::default(),
            waits,
            placement,
            starved: AtomicBool::new(false),
            next_id: Apart(AtomicU64::new(settings.first_replica_id.max(1))),
            settings: Live::new(settings),
        })
    }

    /// The settings it runs with.
    pub fn settings(&self) -> &CatalogSettings {
        &self.settings
    }

    /// The tenants, with their quotas.
    pub fn tenants(&self) -> &Tenants {
        self.tenants.set_capacity(self.segments.capacity().0);
        &self.tenants
    }

    /// From now on it runs with the times, ratios and pins of these settings; what the rest says (placement, alignment,
    /// tenants, limits) is fixed at the start. Leases and deadlines that were given out stay as they are.
    ///
    /// # Errors
    /// [`BadSettings`] when the settings contradict each other, or were changed too often.
    pub fn retune(&self, settings: CatalogSettings) -> Result<(), BadSettings> {
        settings.check()?;
        let settings = CatalogSettings {
            lease_ttl: settings.lease_ttl,
            soft_pin_ttl: settings.soft_pin_ttl,
            soft_pin_ttl_max: settings.soft_pin_ttl_max,
            evict_soft_pinned: settings.evict_soft_pinned,
            eviction_ratio: settings.eviction_ratio,
            eviction_high_watermark: settings.eviction_high_watermark,
            discard_timeout: settings.discard_timeout,
            release_timeout: settings.release_timeout,
            client_ttl: settings.client_ttl,
            client_suspicion_ttl: settings.client_suspicion_ttl,
            repair_grace: settings.repair_grace,
            tenant_high_watermark: settings.tenant_high_watermark,
            unfinished_per_client: settings.unfinished_per_client,
            ..self.settings().clone()
        };
        self.settings.replace(settings).map_err(|_| BadSettings::ChangedTooOften)
    }

    /// The longest time that a reader may still count on what this catalog told it.
    pub(crate) fn longest_read(&self) -> Duration {
        self.settings.all().map(|settings| settings.lease_ttl).max().unwrap_or_default().min(READ_LIMIT)
    }

    /// The longest time that somebody may still work on memory without this catalog's knowing: a reader under a lease, or a
    /// writer that has the memory mapped, whom the node cannot stop.
    pub(crate) fn longest_use(&self) -> Duration {
        self.longest_read().max(MAPPED_WRITE)
    }

    /// Measures from now on how long threads wait for shards; see [`shard_waits`](Self::shard_waits).
    pub fn measure_waits(&self, clock: WaitClock) {
        self.waits.measure_with(clock);
    }

    /// How often a thread had to wait for a shard, and the nanoseconds of these waits.
    pub fn shard_waits(&self) -> (u64, u64) {
        self.waits.so_far()
    }

    /// What is known about a key that a lookup did not find.
    pub fn why_absent(&self, tenant: Tenant, key: &[u8]) -> Absence {
        self.departed.why(self.hash(tenant, key))
    }

    /// Which write has a key, readable or not: the object, and only without one the write under way. For checkers, who
    /// want to know whether what is hidden is still there.
    pub fn holder(&self, tenant: Tenant, key: &[u8]) -> Option<yb_types::Generation> {
        let hash = self.hash(tenant, key);
        let state = self.shards[hash.shard].state.read();
        state.find(tenant, hash.word, key).map(|slot| state.slab[slot].generation())
    }

    /// Remembers why an object leaves; to be called before it is erased.
    pub(crate) fn departs(&self, state: &ShardState, slot: u32, why: Absence) {
        let entry = &state.slab[slot];
        self.departed.note(self.hash(entry.tenant, entry.key.as_slice()), why);
    }

    /// Counters and gauges now, read one after another, not at one moment. Locks every shard for an instant: for
    /// scrapes, not for requests.
    pub fn stats(&self) -> Stats {
        let table = self.segments.load();
        let live = || table.iter().filter(|segment| segment.is_live());
        let counts = self.shards.iter().map(|shard| shard.state.read().counts());
        let [keys, unfinished, soft_pins, objects_memory_bytes] =
            counts.fold([0; 4], |sum, add| [0, 1, 2, 3].map(|at| sum[at] + add[at]));
        let (disk_bytes, disk_capacity_bytes) = self.tiers.bytes();
        Stats {
            keys,
            objects_memory_bytes,
            unfinished,
            soft_pins,
            capacity_bytes: self.segments.capacity().0,
            allocated_bytes: self.allocated().0,
            withheld_bytes: live().map(|segment| segment.withheld().0).sum(),
            segments: live().count() as u64,
            clients: self.clients.lock().in_good_standing() as u64,
            disk_bytes,
            disk_capacity_bytes,
            largest_unfinished_bytes: self.shares.largest().0,
            promotions_running: self.tiers.promotions.load(std::sync::atomic::Ordering::Relaxed) as u64,
            ..self.counters.snapshot()
        }
    }

    /// An extent that waited for its writer can be used again: its node, one of ours, says that no transfer of the
    /// writer is open and none can open any more. Answers whether it changed anything; a confirmation that comes late
    /// or twice does not.
    pub fn confirm_quiesced(&self, segment: SegmentId, address: u64, generation: yb_types::Generation) -> bool {
        let Some(segment) = self.segments.registry().get(segment).cloned() else { return false };
        let Some(offset) = address.checked_sub(segment.info().base) else { return false };
        let freed = segment.confirm(offset, generation, |withheld| self.is_quiet(withheld));
        self.counters.add(|c| &c.quiesced, u64::from(freed));
        self.counters.add(|c| &c.released, u64::from(freed));
        freed
    }

    /// An extent that waited for a writer does so no more.
    pub(crate) fn is_quiet(&self, withheld: Withheld) {
        if let Some(writer) = withheld.writer {
            self.shares.sub(writer, withheld.extent.len);
        }
    }

    /// Bytes not free in the mounted segments.
    pub(crate) fn allocated(&self) -> ByteLen {
        let table = self.segments.load();
        ByteLen(table.iter().filter(|segment| segment.is_live()).map(|segment| segment.used().0).sum())
    }

    /// Bytes of these that come free soon without anybody's doing.
    pub(crate) fn coming_free(&self, now: MonotonicTime) -> ByteLen {
        if !self.segments.is_any_fed() {
            return ByteLen(0);
        }
        let table = self.segments.load();
        ByteLen(table.iter().filter(|segment| segment.is_live()).map(|segment| segment.coming_free(now).0).sum())
    }

    pub(crate) fn hash(&self, tenant: Tenant, key: &[u8]) -> KeyHash {
        self.hasher.hash(tenant, key)
    }

    /// Takes an object out of its shard and gives up its extents. Answers the bytes that are free now.
    pub(crate) fn erase(
        &self,
        state: &mut ShardState,
        slot: u32,
        leave: Leave,
        now: MonotonicTime,
        effects: &mut Effects,
    ) -> ByteLen {
        let entry = &state.slab[slot];
        let hash = self.hash(entry.tenant, entry.key.as_slice());
        let entry = self.detach(state, (slot, hash), leave, now);
        let table = self.segments.load();
        let freed = entry.replicas.as_slice().iter().map(|replica| {
            let giving = GivingUp { table: &table, entry: &entry, leave, now };
            self.give_up(&giving, replica, effects).0
        });
        ByteLen(freed.sum())
    }

    /// As [`erase`](Self::erase) of a readable object, but what comes free at once is left to `frees`.
    pub(crate) fn erase_gathering(
        &self,
        state: &mut ShardState,
        slot: u32,
        hash: KeyHash,
        now: MonotonicTime,
        frees: &mut Frees<'_>,
    ) {
        let leave = Leave::Readable;
        let entry = self.detach(state, (slot, hash), leave, now);
        let table = self.segments.load();
        for replica in entry.replicas.as_slice() {
            let is_held = entry.lease_end() > now || entry.copier_of(replica).is_some();
            let comes_free = |segment: &Arc<MountedSegment>| segment.feed().is_none();
            if !is_held && table.live(replica.segment).is_some_and(comes_free) {
                frees.add(&table, replica);
            } else {
                let giving = GivingUp { table: &table, entry: &entry, leave, now };
                self.give_up(&giving, replica, &mut Effects::default());
            }
        }
    }

    /// Takes an object out of its shard, and out of all that knows it but the segments.
    fn detach(&self, state: &mut ShardState, (slot, hash): (u32, KeyHash), leave: Leave, now: MonotonicTime) -> Entry {
        let entry = &state.slab[slot];
        if leave.is_told() && entry.is_finished() && !entry.has(flag::HARD_PIN) {
            self.evictor.removed(entry.tenant, place_of(hash.shard, slot, entry));
        }
        if self.relearning.is_open() && entry.is_finished() {
            self.relearning.note(hash.whole);
        }
        if !entry.is_finished() {
            self.shares.sub(self.shares.account(entry.creator), weight(entry));
        }
        let entry = state.erase(slot, hash.word);
        if let Some(membership) = entry.membership() {
            self.groups.leave(membership, hash.member(slot));
        }
        self.tenants.close_object(entry.tenant, entry.memory_bytes());
        if let Some(Copying::Running(running)) = entry.extras().and_then(|extras| extras.copy.as_deref()) {
            self.copy_lost(running, hash, now);
        }
        entry
    }

    /// Gives up the replicas that `which` picks; at least one must be left. Answers the bytes that are free now.
    pub(crate) fn drop_replicas(
        &self,
        state: &mut ShardState,
        slot: u32,
        leave: Leave,
        now: MonotonicTime,
        which: impl Fn(&Replica) -> bool,
        effects: &mut Effects,
    ) -> ByteLen {
        let entry = &mut state.slab[slot];
        let table = self.segments.load();
        let picked: smallvec::SmallVec<[Replica; 4]> =
            entry.replicas.as_slice().iter().copied().filter(&which).collect();
        let freed = picked.iter().map(|replica| {
            let giving = GivingUp { table: &table, entry, leave, now };
            self.give_up(&giving, replica, effects).0
        });
        let freed = ByteLen(freed.sum());
        let before = entry.memory_bytes();
        entry.replicas.retain(|replica| !which(replica));
        self.tenants.refund(entry.tenant, before - entry.memory_bytes());
        self.shrunk(entry, before);
        freed
    }

    /// An entry has fewer replicas than when its bytes were `before`.
    fn shrunk(&self, entry: &Entry, before: u64) {
        if !entry.is_finished() {
            self.shares.sub(self.shares.account(entry.creator), weight_of(before) - weight(entry));
        }
    }

    fn give_up(&self, giving: &GivingUp<'_>, replica: &Replica, effects: &mut Effects) -> ByteLen {
        let GivingUp { table, entry, leave, now } = *giving;
        let Some(segment) = table.live(replica.segment) else { return ByteLen(0) };
        // The target of a copy has a writer of its own.
        let copier = entry.copier_of(replica);
        let (until, for_writer, revoked) = match (leave, copier) {
            (Leave::Readable | Leave::Evicted, Some(copier)) => (copier.until, true, false),
            (Leave::Readable | Leave::Evicted, None) if planted(Fault::FreeUnderLease) => (now, false, false),
            (Leave::Readable | Leave::Evicted, None) => (entry.lease_end().min(now + READ_LIMIT), false, false),
            (Leave::Unfinished { until, revoked }, _) => (until, true, revoked),
        };
        if for_writer {
            self.counters.add(|c| &c.discarded, 1);
        }
        let is_told = replica.is_complete() && !planted(Fault::ReuseUnstruck);
        if let Some(feed) = segment.feed().filter(|_| is_told) {
            let hold = Hold { generation: entry.generation(), until, writer: None };
            return segment.strike(feed, replica.node(), hold, now);
        }
        if until <= now {
            self.counters.add(|c| &c.released, u64::from(for_writer));
            return segment.give_up(replica.node());
        }
        let generation = entry.generation();
        let who = copier.map_or(entry.creator, |copier| copier.client);
        if for_writer {
            effects.quiesce.push(Quiesce {
                segment: segment.info().id,
                owner: segment.owner(),
                address: segment.info().base + replica.offset,
                size: ByteLen(entry.size),
                generation,
                writer: who,
                revoked,
            });
        } else {
            self.counters.add(|c| &c.lease_deferred, 1);
        }
        let writer = for_writer.then(|| self.shares.account(who));
        let held = segment.withhold(replica.node(), Hold { generation, until, writer });
        if let Some(writer) = writer {
            self.shares.add(writer, held);
        }
        ByteLen(0)
    }

    /// Forgets the replicas of an object that lie in segments that are gone, and the object with its last one. Answers
    /// whether the object is still there.
    #[inline]
    pub(crate) fn drop_lost_replicas(&self, state: &mut ShardState, slot: u32, now: MonotonicTime) -> bool {
        !self.segments.is_any_going() || self.look_for_lost_replicas(state, slot, now)
    }

    #[cold]
    fn look_for_lost_replicas(&self, state: &mut ShardState, slot: u32, now: MonotonicTime) -> bool {
        let table = self.segments.load();
        let entry = &mut state.slab[slot];
        let before = entry.memory_bytes();
        let had = entry.replicas.as_slice().iter().filter(|replica| replica.is_complete()).count();
        entry.replicas.retain(|replica| table.live(replica.segment).is_some());
        self.tenants.refund(entry.tenant, before - entry.memory_bytes());
        self.shrunk(entry, before);
        let left = entry.replicas.as_slice().iter().filter(|replica| replica.is_complete()).count();
        // Targets of a copy are no object: what they were to be copied from is gone.
        let is_there = |replica: &Replica| replica.is_complete() || !entry.is_finished();
        if entry.replicas.as_slice().iter().any(is_there) {
            if left < had {
                self.note_loss(state, slot, had);
            }
            return true;
        }
        let entry = &state.slab[slot];
        if !entry.is_finished() {
            let word = self.hash(entry.tenant, entry.key.as_slice()).word;
            let gone = self.gone_write(entry, word, yb_types::ErrorCode::OBJECT_NOT_FOUND);
            state.overtaken.add(gone, now);
        }
        let is_key = !state.slab[slot].has(flag::SUCCESSOR);
        if is_key {
            self.departs(state, slot, Absence::Lost);
        }
        self.erase(state, slot, Leave::Readable, now, &mut Effects::default());
        self.counters.add(|c| &c.lost_keys, u64::from(is_key));
        false
    }

    /// The slot of a key that has a live replica. What has none is forgotten; an unfinished successor of such an
    /// object has the key then.
    pub(crate) fn find_live(
        &self,
        state: &mut ShardState,
        tenant: Tenant,
        hash: KeyHash,
        key: &[u8],
        now: MonotonicTime,
    ) -> Option<u32> {
        loop {
            let slot = state.find(tenant, hash.word, key)?;
            if self.drop_lost_replicas(state, slot, now) {
                // A write beside it may be lost, too.
                if let Some(write) = state.slab[slot].successor() {
                    self.drop_lost_replicas(state, write, now);
                }
                return Some(slot);
            }
        }
    }
}

#[derive(Clone, Copy)]
struct GivingUp<'a> {
    table: &'a SegmentTable,
    entry: &'a Entry,
    leave: Leave,
    now: MonotonicTime,
}

/// Who calls, for whom, when: the same for every key of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The namespace of the keys.
    pub tenant: Tenant,
    /// The client.
    pub client: ClientId,
    /// The time of the call.
    pub now: MonotonicTime,
}
