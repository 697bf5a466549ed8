//! Reserving: `PutStart` and `UpsertStart` take space, the client writes into it; what comes then is in
//! [`publish`](crate::publish).
//!
//! Invariants:
//! - nobody reads an object before its end; nobody but its creator can end or revoke it;
//! - a client has at most one write of a key under way, see [`overtaken`](crate::overtaken);
//! - space that a writer was given comes free only when the writer cannot write to it any more: when its object is
//!   readable and removed, when the release timeout has passed, or when the node confirms it;
//! - a write refused changes nothing.

use std::ops::Range;
use std::time::Duration;

use smallvec::SmallVec;
use yb_types::{ByteLen, ClientId, ErrorCode, MonotonicTime, ReplicateConfig, SoftPinAction};

use crate::catalog::{Caller, Catalog, Leave};
use crate::effects::{Effects, PutRefusal};
use crate::entry::{Entry, Replica, Replicas, flag};
use crate::extras::SoftPin;
use crate::key::{KeyHash, SHARDS};
use crate::lookup::GROUP;
use crate::overtaken::GoneWrite;
use crate::placement::Random;
use crate::placing::{Placed, Run, SpaceWanted};
use crate::planted::{Fault, planted};
use crate::reclaim::MakeRoom;
use crate::segments::SegmentTable;
use crate::shard::ShardState;
use crate::shares;
use crate::sync::atomic::Ordering;
use crate::tenants::{Charge, QuotaMiss};
use crate::upsert::{Standing, standing};
use crate::view::ObjectView;

/// What is the same for every key of a `PutStart`.
#[derive(Clone, Copy, Debug)]
pub struct PutCall<'a> {
    /// Who, for whom, when.
    pub caller: Caller,
    /// How the objects are to be placed.
    pub config: &'a ReplicateConfig,
    /// Whether an object may have no bytes. The peer's clients expect INVALID_PARAMS.
    pub allow_empty: bool,
    /// It waits for space since it was refused: what it may evict is evicted, others make the room now.
    pub waited: bool,
}

/// What a write does with an object that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Is refused.
    Put,
    /// Replaces it at its end.
    Upsert,
    /// Fills memory with what lies on a disk.
    Promotion,
}

/// What becomes of the soft pin of an object that is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PinChange {
    /// The pin of the object that is replaced goes on.
    #[default]
    Keep,
    /// Lasts this long from the end of the write on.
    Set(Duration),
    /// None.
    Clear,
}

/// The state of one batch while it runs.
pub(crate) struct Batch<'a> {
    pub call: PutCall<'a>,
    pub manner: Manner,
    pub pin: PinChange,
    /// Where the first key of the batch went, when all are to go to one place.
    same_segment: Option<u32>,
    /// Nodes that its client does not reach.
    cut_off: Box<[ClientId]>,
    /// Where small objects go on.
    run: Option<Run>,
    /// Numbers for replicas that the batch has and has not used yet.
    ids: Range<u64>,
    ids_at_once: u64,
    /// What its client has reserved and not filled: by others of its calls, and by this one.
    open: Open,
    random: &'a mut dyn Random,
    pub effects: &'a mut Effects,
}

/// See [`shares`](crate::shares).
struct Open {
    before: u64,
    by_this: u64,
}

/// One key of it.
#[derive(Clone, Copy)]
pub(crate) struct Item<'a> {
    pub key: &'a [u8],
    pub size: u64,
    pub hash: KeyHash,
    /// The group that the caller names; empty: none. `None`: the caller says nothing of groups.
    pub group: Option<&'a str>,
}

/// What a write takes over, from the caller and from the object that it replaces.
pub(crate) struct Facts {
    pub replicas_wanted: usize,
    pub hard_pin: bool,
    pub data_type: u8,
    pub soft_pin: Option<SoftPin>,
    pub group: Option<Box<str>>,
}

/// The space that a write wants.
#[derive(Clone, Copy)]
struct Wanted<'a> {
    table: &'a SegmentTable,
    replicas: usize,
    /// Bytes of the object that it replaces.
    replaces: u64,
}

/// Bytes of the name of a session, as of the peer.
const SESSION_ID_MAX: usize = 256;

/// A batch takes no more numbers than this at a time.
const IDS_AT_ONCE: u64 = 128;

impl Catalog {
    /// Reserves space for objects. `sink` gets one answer a key, in order: the object with its replicas, or why not.
    ///
    /// An unfinished put of the key older than the discard timeout gives way; its space stays out of use, see
    /// [`Effects::quiesce`]. When there is no space, a bounded number of objects is evicted at once.
    pub fn put_start<K: AsRef<[u8]>>(
        &self,
        call: &PutCall<'_>,
        items: impl IntoIterator<Item = (K, u64), IntoIter: ExactSizeIterator>,
        random: &mut impl Random,
        effects: &mut Effects,
        mut sink: impl FnMut(usize, Result<ObjectView<'_>, PutRefusal>),
    ) {
        self.write_start(call, Manner::Put, items.into_iter(), random, effects, &mut sink);
    }

    /// Begins writes, see [`put_start`](Self::put_start) and [`upsert_start`](Self::upsert_start).
    pub(crate) fn write_start<K: AsRef<[u8]>>(
        &self,
        call: &PutCall<'_>,
        manner: Manner,
        items: impl ExactSizeIterator<Item = (K, u64)>,
        random: &mut dyn Random,
        effects: &mut Effects,
        sink: &mut dyn FnMut(usize, Result<ObjectView<'_>, PutRefusal>),
    ) {
        let checked = self.check_config(call, items.len());
        let pin = checked.unwrap_or_default();
        let ids_at_once = (items.len() as u64).min(IDS_AT_ONCE);
        let (same_segment, run, ids) = (None, None, 0..0);
        let account = self.shares.account(call.caller.client);
        let open = Open { before: self.shares.open(account), by_this: 0 };
        let cut_off = self.cuts.of(call.caller.client, call.caller.now);
        let mut batch =
            Batch { call: *call, manner, pin, same_segment, cut_off, run, ids, ids_at_once, open, random, effects };
        let groups = call.config.group_ids.as_deref();
        let (mut items, mut at) = (items, 0);
        loop {
            let hashed = |(key, size): (K, u64)| (self.hash(call.caller.tenant, key.as_ref()), key, size);
            let together: SmallVec<[(KeyHash, K, u64); GROUP]> = items.by_ref().take(GROUP).map(hashed).collect();
            if together.is_empty() {
                return self.shares.add(account, batch.open.by_this);
            }
            if checked.is_ok() {
                self.foresee_writes(together.iter().map(|(hash, ..)| *hash));
            }
            for (hash, key, size) in &together {
                let group = groups.and_then(|groups| groups.get(at)).map(String::as_str);
                let item = Item { key: key.as_ref(), size: *size, hash: *hash, group };
                match checked.and_then(|_| self.check_item(call, &item)) {
                    Err(refusal) => sink(at, Err(refusal)),
                    Ok(()) => self.start_one(&mut batch, &item, &mut |answer| sink(at, answer)),
                }
                at += 1;
            }
        }
    }

    /// What can be wrong with one key of a batch, whatever is there.
    fn check_item(&self, call: &PutCall<'_>, item: &Item<'_>) -> Result<(), PutRefusal> {
        match item {
            _ if item.key.is_empty() => Err(PutRefusal::EmptyKey),
            _ if self.is_too_long(item.key) || item.group.is_some_and(|id| self.is_too_long(id.as_bytes())) => {
                Err(PutRefusal::NameTooLong)
            }
            _ if item.size == 0 && !call.allow_empty => Err(PutRefusal::EmptyObject),
            _ if self.tenants.is_closed(call.caller.tenant) => Err(PutRefusal::TenantNotRegistered),
            _ => Ok(()),
        }
    }

    /// The checks that no key can change; answers what becomes of soft pins.
    fn check_config(&self, call: &PutCall<'_>, count: usize) -> Result<PinChange, PutRefusal> {
        let config = call.config;
        if config.replica_num == 0 && config.nof_replica_num == 0 && config.dfs_replica_num == 0 {
            return Err(PutRefusal::NoReplicaWanted);
        }
        if config.dfs_replica_num > 0 {
            let possible = config.dfs_replica_num == 1;
            return Err(if possible { PutRefusal::DfsUnavailable } else { PutRefusal::DfsRules });
        }
        if config.nof_replica_num > 0 {
            return Err(PutRefusal::NofUnavailable);
        }
        let per_key = [&config.group_ids, &config.session_ids, &config.residency_affinity_ids];
        let long = |ids: &Vec<String>| ids.iter().any(|id| id.len() > SESSION_ID_MAX);
        if per_key.into_iter().flatten().any(|list| list.len() != count)
            || config.session_ids.as_ref().is_some_and(long)
        {
            return Err(PutRefusal::GroupCount);
        }
        if config.soft_pin_action.0 > SoftPinAction::DISABLE.0 {
            return Err(PutRefusal::SoftPinRules);
        }
        let enable = config.soft_pin_action == SoftPinAction::ENABLE;
        match config.soft_pin_ttl_ms {
            Some(_) if !enable => Err(PutRefusal::SoftPinRules),
            Some(ms) if Duration::from_millis(ms) > self.settings.soft_pin_ttl_max => Err(PutRefusal::SoftPinRules),
            Some(0) => Ok(PinChange::Clear),
            Some(ms) => Ok(PinChange::Set(Duration::from_millis(ms))),
            None if enable => Ok(PinChange::Set(self.settings.soft_pin_ttl)),
            None if config.soft_pin_action == SoftPinAction::DISABLE => Ok(PinChange::Clear),
            None => Ok(PinChange::Keep),
        }
    }

    fn start_one(
        &self,
        batch: &mut Batch<'_>,
        item: &Item<'_>,
        sink: &mut dyn FnMut(Result<ObjectView<'_>, PutRefusal>),
    ) {
        if self.exceeds_share(batch, item) {
            return sink(Err(PutRefusal::ShareExceeded));
        }
        let mut tries = MakeRoom::default();
        loop {
            let mut state = self.shards[item.hash.shard].state.write();
            // Loaded under the shard's lock: see the invariants of the segment table.
            let table = self.segments.load();
            match self.start_locked(batch, item, &mut state, &table) {
                Ok(slot) => {
                    return sink(Ok(ObjectView::whole(&state.slab[slot], &table)));
                }
                Err(refusal) => {
                    let makes_room = matches!(refusal, PutRefusal::NoSpace | PutRefusal::QuotaExceeded);
                    let held = batch.manner == Manner::Upsert && makes_room && self.hold(&mut state, batch, item);
                    drop(state);
                    if self.give_way(&mut tries, batch, item, refusal) {
                        continue;
                    }
                    let refusal = tries.explain(refusal);
                    self.count_refusal(&batch.call.caller, refusal);
                    // Where only the object itself could go, the janitor is not asked either.
                    if !(held && refusal == PutRefusal::NothingEvictable) {
                        let had = (batch.call.waited || tries.evicted() > 0) && self.is_large(item.size);
                        self.ask_for_space(refusal, had, batch.call.caller.now);
                    }
                    return sink(Err(refusal));
                }
            }
        }
    }

    /// Whether a key or the name of a group is longer than the master takes.
    pub(crate) fn is_too_long(&self, name: &[u8]) -> bool {
        name.len() as u64 > self.settings.key_max.0
    }

    /// Whether one object more with this key would take the shard beyond its share of the master's memory. Keys are
    /// scattered over the shards by a secret hash: nobody can fill one of them alone.
    pub(crate) fn is_overweight(&self, state: &ShardState, key: &[u8]) -> bool {
        let share = self.settings.objects_memory.0 / SHARDS as u64;
        state.slab.weight().saturating_add(key.len() as u64) > share
    }

    /// Whether the client has so much reserved and not filled that it begins nothing more.
    fn exceeds_share(&self, batch: &Batch<'_>, item: &Item<'_>) -> bool {
        let has = batch.open.before + batch.open.by_this;
        if has == 0 || batch.manner == Manner::Promotion {
            return false;
        }
        let more = shares::weight_of(item.size.saturating_mul(batch.call.config.replica_num));
        has.saturating_add(more) > shares::limit(self.settings.unfinished_per_client, self.segments.capacity())
    }

    /// Evicts what may let a refused put succeed; `false` when trying again is of no use.
    fn give_way(&self, tries: &mut MakeRoom, batch: &Batch<'_>, item: &Item<'_>, refusal: PutRefusal) -> bool {
        let Caller { tenant, now, .. } = batch.call.caller;
        match refusal {
            // Where all memory rests, no object that goes lets the put succeed.
            _ if batch.call.waited => false,
            PutRefusal::NoSpace => !self.is_all_resting(now) && self.make_room(tries, tenant, ByteLen(item.size), now),
            PutRefusal::QuotaExceeded => {
                let bytes = item.size.saturating_mul(batch.call.config.replica_num);
                tries.may_ask_tenant() && self.make_quota(tenant, bytes, now)
            }
            _ => false,
        }
    }

    fn count_refusal(&self, caller: &Caller, refusal: PutRefusal) {
        match refusal {
            PutRefusal::Busy | PutRefusal::OwnWriteOpen => self.counters.add(|c| &c.busy_keys, 1),
            PutRefusal::LargerThanAnySegment => self.counters.add(|c| &c.too_large, 1),
            PutRefusal::QuotaExceeded | PutRefusal::LargerThanQuota => self.tenants.count_rejection(caller.tenant),
            _ => {}
        }
        if refusal.code() == ErrorCode::NO_AVAILABLE_HANDLE {
            self.counters.add(|c| &c.alloc_failures, 1);
        }
    }

    /// Has the janitor make space where that was the reason of a refusal. What rests comes by itself: nobody's object has
    /// to go for it. Nor for an object that needs a large part of a segment and has `had` its size evicted already.
    fn ask_for_space(&self, refusal: PutRefusal, had: bool, now: MonotonicTime) {
        let is_of_use = refusal == PutRefusal::MasterFull || !had;
        if refusal.lacks_space() && is_of_use && !self.is_all_resting(now) {
            self.starved.store(true, Ordering::Relaxed);
        }
    }

    /// Whether no segment takes objects yet of those that will.
    fn is_all_resting(&self, now: MonotonicTime) -> bool {
        self.segments.load().iter().filter(|segment| segment.takes_objects()).all(|segment| segment.is_resting(now))
    }

    fn start_locked(
        &self,
        batch: &mut Batch<'_>,
        item: &Item<'_>,
        state: &mut ShardState,
        table: &SegmentTable,
    ) -> Result<u32, PutRefusal> {
        let Caller { tenant, client, now } = batch.call.caller;
        let found = self.find_live(state, tenant, item.hash, item.key, now);
        if state.overtaken.owes(item.hash.word, client, now) {
            return Err(PutRefusal::OwnWriteOpen);
        }
        if batch.manner == Manner::Put && state.shelf.has_readable(tenant, item.hash.word, item.key) {
            return Err(PutRefusal::Exists);
        }
        let standing = match (found, batch.manner) {
            (None, _) => Standing::default(),
            (Some(slot), Manner::Put | Manner::Promotion) => self.clear_the_way(batch, state, slot)?,
            (Some(slot), Manner::Upsert) => standing(batch, item, state, slot)?,
        };
        if let Some(silent) = standing.silent.filter(|_| planted(Fault::RefusedPutErases)) {
            self.erase(state, silent, Leave::Readable, now, batch.effects);
            return Err(PutRefusal::NoSpace);
        }
        if self.is_overweight(state, item.key) {
            return Err(PutRefusal::MasterFull);
        }
        let facts = facts(batch, item, state, standing);
        let slot = state.slab.reserve().ok_or(PutRefusal::CatalogFull)?;
        let replaced = standing.readable.or(standing.silent);
        let replaces = replaced.map_or(0, |old| state.slab[old].memory_bytes());
        match self.charge_and_place(batch, item, slot, Wanted { table, replicas: facts.replicas_wanted, replaces }) {
            Ok(replicas) => {
                if let Some(old) = standing.unfinished {
                    self.overtake(batch, state, old, item.hash.word);
                }
                if let Some(silent) = standing.silent {
                    self.erase(state, silent, Leave::Readable, now, batch.effects);
                }
                self.fill(batch, item, state, slot, (&replicas, facts));
                match standing.readable {
                    Some(readable) => state.publish_beside(slot, readable),
                    None => state.publish(slot, item.hash.word),
                }
                if planted(Fault::PublishEarly) && standing.readable.is_none() {
                    state.finish(slot, now, None);
                }
                Ok(slot)
            }
            Err(refusal) => {
                state.slab.retire(slot);
                Err(refusal)
            }
        }
    }

    /// Refuses when the key is taken; else answers what gives way once there is space: an object whose nodes are all
    /// silent, so that nobody can read it, and a write that was abandoned. Until then both stay as they are.
    fn clear_the_way(&self, batch: &Batch<'_>, state: &ShardState, slot: u32) -> Result<Standing, PutRefusal> {
        let Caller { client, now, .. } = batch.call.caller;
        let entry = &state.slab[slot];
        let silent = entry.is_finished().then_some(slot);
        if silent.is_some() && (entry.is_referenced() || ObjectView::readable(entry, &self.segments.load()).is_some()) {
            return Err(PutRefusal::Exists);
        }
        // Of the silent object it is the upsert that is under way, which would have the key after it.
        let unfinished = state.write_under_way(slot);
        if let Some(write) = unfinished.map(|write| &state.slab[write]) {
            if write.started() + self.settings.discard_timeout >= now {
                return Err(PutRefusal::Busy);
            }
            if write.creator == client {
                return Err(PutRefusal::OwnWriteOpen);
            }
        }
        Ok(Standing { readable: None, unfinished, silent })
    }

    /// Gives up an unfinished write for another one of the same key.
    fn overtake(&self, batch: &mut Batch<'_>, state: &mut ShardState, slot: u32, word: u32) {
        let gone = self.gone_write(&state.slab[slot], word, ErrorCode::ILLEGAL_CLIENT);
        let now = batch.call.caller.now;
        self.erase(state, slot, Leave::Unfinished { until: gone.until, revoked: false }, now, batch.effects);
        state.overtaken.add(gone, now);
    }

    /// What is remembered of an unfinished write that goes without its writer's doing.
    pub(crate) fn gone_write(&self, write: &Entry, word: u32, answer: ErrorCode) -> GoneWrite {
        let until = write.started() + self.settings.release_timeout;
        GoneWrite { word, writer: write.creator, generation: write.generation().0.get(), until, answer }
    }

    fn fill(
        &self,
        batch: &mut Batch<'_>,
        item: &Item<'_>,
        state: &mut ShardState,
        slot: u32,
        (replicas, facts): (&[Replica], Facts),
    ) {
        let caller = batch.call.caller;
        state.slab.name(slot, item.key);
        let entry = &mut state.slab[slot];
        entry.tenant = caller.tenant;
        entry.creator = caller.client;
        entry.size = item.size;
        entry.data_type = facts.data_type;
        entry.clear_facts();
        entry.set(flag::HARD_PIN, facts.hard_pin);
        entry.replicas = Replicas::from_slice(replicas);
        entry.set_start(replicas.first().map_or(1, |first| first.id().0), caller.now);
        batch.open.by_this += shares::weight(entry);
        if let Some(id) = facts.group {
            entry.set(flag::GROUPED, true);
            entry.extras_mut().group = Some(self.groups.enter(caller.tenant, &id));
        }
        state.set_soft_pin(slot, facts.soft_pin);
        self.counters.add(|c| &c.partial_allocations, u64::from(replicas.len() < facts.replicas_wanted));
    }

    /// Takes space that the tenant may still use. It is charged for what it asks for, and in the end for what it got.
    fn charge_and_place(
        &self,
        batch: &mut Batch<'_>,
        item: &Item<'_>,
        slot: u32,
        wanted: Wanted<'_>,
    ) -> Result<Placed, PutRefusal> {
        let Wanted { replicas, replaces, .. } = wanted;
        if !self.tenants.is_multi() {
            return self.place(batch, item, slot, wanted);
        }
        let tenant = batch.call.caller.tenant;
        let bytes = item.size.saturating_mul(replicas as u64);
        self.tenants().open_object(tenant, Charge { bytes, replaces })?;
        match self.place(batch, item, slot, wanted) {
            Ok(placed) => {
                self.tenants.refund(tenant, bytes - item.size * placed.len() as u64);
                Ok(placed)
            }
            Err(refusal) => {
                self.tenants.close_object(tenant, bytes);
                Err(refusal)
            }
        }
    }

    /// Takes space for as many of the replicas as there is room for, at least one.
    fn place(
        &self,
        batch: &mut Batch<'_>,
        item: &Item<'_>,
        slot: u32,
        wanted: Wanted<'_>,
    ) -> Result<Placed, PutRefusal> {
        let (config, table) = (batch.call.config, wanted.table);
        let wanted = SpaceWanted {
            replicas: wanted.replicas,
            size: ByteLen(item.size),
            owner: item.hash.member(slot),
            hash: u64::from(item.hash.word),
            config,
            same_segment: batch.same_segment,
            cut_off: &batch.cut_off,
            alone: batch.ids_at_once == 1,
            now: batch.call.caller.now,
        };
        let mut placed = self.take_space(table, &wanted, &mut batch.run, batch.random)?;
        for (id, replica) in self.take_ids(batch, placed.len()).zip(&mut placed) {
            *replica = replica.with_id(id);
        }
        if batch.call.config.prefer_alloc_in_same_node && batch.same_segment.is_none() {
            batch.same_segment = placed.first().map(|replica| replica.segment);
        }
        Ok(placed)
    }

    /// Numbers for the replicas of one object. A batch takes them from the common counter many at a time.
    fn take_ids(&self, batch: &mut Batch<'_>, count: usize) -> Range<u64> {
        let count = count as u64;
        if batch.ids.end - batch.ids.start < count {
            let take = count.max(batch.ids_at_once);
            let first = self.next_id.0.fetch_add(take, Ordering::Relaxed);
            batch.ids = first..first + take;
        }
        let first = batch.ids.start;
        batch.ids.start += count;
        first..first + count
    }
}

/// What the new write takes from its caller, and from the object that it is to replace.
fn facts(batch: &Batch<'_>, item: &Item<'_>, state: &ShardState, standing: Standing) -> Facts {
    let config = batch.call.config;
    let mut facts = Facts {
        replicas_wanted: usize::try_from(config.replica_num).unwrap_or(usize::MAX),
        hard_pin: config.with_hard_pin,
        data_type: config.data_type.0,
        soft_pin: match batch.pin {
            PinChange::Set(lasts) => Some(SoftPin::Pending(lasts)),
            PinChange::Keep | PinChange::Clear => None,
        },
        group: item.group.filter(|group| !group.is_empty()).map(Box::from),
    };
    if let Some(old) = standing.any() {
        facts.take_over(&state.slab[old], batch.pin, item.size, batch.call.caller.now);
    }
    facts
}

impl From<QuotaMiss> for PutRefusal {
    fn from(miss: QuotaMiss) -> Self {
        match miss {
            QuotaMiss::Closed => PutRefusal::TenantNotRegistered,
            QuotaMiss::Deficit(_) => PutRefusal::QuotaExceeded,
            QuotaMiss::LargerThanQuota => PutRefusal::LargerThanQuota,
        }
    }
}
