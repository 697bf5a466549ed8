//! Reserve, then publish: `PutStart` takes space, the client writes into it, `PutEnd` makes the object readable.
//!
//! Invariants:
//! - nobody reads an object before its `PutEnd`; nobody but its creator can end or revoke it;
//! - space that a writer was given comes free only when the writer cannot write to it any more: when its object is
//!   readable and removed, when the release timeout has passed, or when the node confirms it;
//! - a put refused changes nothing.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::Duration;

use smallvec::SmallVec;
use yb_types::{ByteLen, ErrorCode, MonotonicTime, ReplicaType, ReplicateConfig, SoftPinAction};

use crate::catalog::{Caller, Catalog, Leave};
use crate::effects::{Effects, PutRefusal};
use crate::entry::{Replica, Replicas, flag};
use crate::extras::SoftPin;
use crate::key::{KeyBytes, KeyHash, Tenant};
use crate::placement::{PlacementView, Random};
use crate::reclaim::MakeRoom;
use crate::segments::SegmentTable;
use crate::shard::ShardState;
use crate::tenants::{Charge, QuotaMiss};
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
}

/// The state of one batch while it runs.
struct Batch<'a> {
    call: PutCall<'a>,
    soft_pin: Option<Duration>,
    /// Where the first key of the batch went, when all are to go to one place.
    same_segment: Option<u32>,
    /// Numbers for replicas that the batch has and has not used yet.
    ids: Range<u64>,
    ids_at_once: u64,
    random: &'a mut dyn Random,
    effects: &'a mut Effects,
}

/// One key of it.
#[derive(Clone, Copy)]
struct Item<'a> {
    key: &'a [u8],
    size: u64,
    hash: KeyHash,
}

/// A batch takes no more numbers than this at a time.
const IDS_AT_ONCE: u64 = 128;

type Placed = SmallVec<[Replica; 4]>;

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
        let items = items.into_iter();
        let checked = self.check_config(call, items.len());
        let soft_pin = checked.unwrap_or_default();
        let ids_at_once = (items.len() as u64).min(IDS_AT_ONCE);
        let mut batch = Batch { call: *call, soft_pin, same_segment: None, ids: 0..0, ids_at_once, random, effects };
        for (at, (key, size)) in items.enumerate() {
            let key = key.as_ref();
            let refusal = match checked {
                Err(refusal) => Some(refusal),
                Ok(_) if key.is_empty() => Some(PutRefusal::EmptyKey),
                Ok(_) if size == 0 && !call.allow_empty => Some(PutRefusal::EmptyObject),
                Ok(_) if self.tenants.is_closed(call.caller.tenant) => Some(PutRefusal::TenantNotRegistered),
                Ok(_) => None,
            };
            match refusal {
                Some(refusal) => sink(at, Err(refusal)),
                None => {
                    let item = Item { key, size, hash: self.hash(call.caller.tenant, key) };
                    self.start_one(&mut batch, &item, &mut |answer| sink(at, answer));
                }
            }
        }
    }

    /// The checks that no key can change; answers the soft pin that the objects will get.
    fn check_config(&self, call: &PutCall<'_>, count: usize) -> Result<Option<Duration>, PutRefusal> {
        let config = call.config;
        if config.replica_num == 0 && config.nof_replica_num == 0 && config.dfs_replica_num == 0 {
            return Err(PutRefusal::NoReplicaWanted);
        }
        if config.dfs_replica_num > 0 {
            let possible = config.dfs_replica_num == 1 && config.replica_num > 0;
            return Err(if possible { PutRefusal::DfsUnavailable } else { PutRefusal::DfsRules });
        }
        if config.nof_replica_num > 0 {
            return Err(PutRefusal::NofUnavailable);
        }
        if config.group_ids.as_ref().is_some_and(|groups| groups.len() != count) {
            return Err(PutRefusal::GroupCount);
        }
        let enable = config.soft_pin_action == SoftPinAction::ENABLE;
        match config.soft_pin_ttl_ms {
            Some(_) if !enable => Err(PutRefusal::SoftPinRules),
            Some(ms) if Duration::from_millis(ms) > self.settings.soft_pin_ttl_max => Err(PutRefusal::SoftPinRules),
            Some(0) => Ok(None),
            Some(ms) => Ok(Some(Duration::from_millis(ms))),
            None => Ok(enable.then_some(self.settings.soft_pin_ttl)),
        }
    }

    fn start_one(
        &self,
        batch: &mut Batch<'_>,
        item: &Item<'_>,
        sink: &mut dyn FnMut(Result<ObjectView<'_>, PutRefusal>),
    ) {
        let mut tries = MakeRoom::default();
        loop {
            let mut state = self.shards[item.hash.shard].state.write();
            match self.start_locked(batch, item, &mut state) {
                Ok(slot) => {
                    let table = self.segments.load();
                    return sink(Ok(ObjectView::whole(&state.slab[slot], &table)));
                }
                Err(refusal) => {
                    drop(state);
                    if self.give_way(&mut tries, batch, item, refusal) {
                        continue;
                    }
                    self.count_refusal(batch.call.caller.tenant, refusal);
                    return sink(Err(refusal));
                }
            }
        }
    }

    /// Evicts what may let a refused put succeed; `false` when trying again is of no use.
    fn give_way(&self, tries: &mut MakeRoom, batch: &Batch<'_>, item: &Item<'_>, refusal: PutRefusal) -> bool {
        let Caller { tenant, now, .. } = batch.call.caller;
        match refusal {
            PutRefusal::NoSpace => self.make_room(tries, tenant, ByteLen(item.size), now),
            PutRefusal::QuotaExceeded => {
                let bytes = item.size.saturating_mul(batch.call.config.replica_num);
                tries.may_ask_tenant() && self.make_quota(tenant, bytes, now)
            }
            _ => false,
        }
    }

    fn count_refusal(&self, tenant: Tenant, refusal: PutRefusal) {
        match refusal {
            PutRefusal::Busy => self.counters.add(|c| &c.busy_keys, 1),
            PutRefusal::LargerThanAnySegment => self.counters.add(|c| &c.too_large, 1),
            PutRefusal::NoSpace => self.starved.store(true, Ordering::Relaxed),
            PutRefusal::QuotaExceeded | PutRefusal::LargerThanQuota => self.tenants.count_rejection(tenant),
            _ => {}
        }
        if refusal.code() == ErrorCode::NO_AVAILABLE_HANDLE {
            self.counters.add(|c| &c.alloc_failures, 1);
        }
    }

    fn start_locked(&self, batch: &mut Batch<'_>, item: &Item<'_>, state: &mut ShardState) -> Result<u32, PutRefusal> {
        self.clear_the_way(batch, item, state)?;
        let slot = state.slab.reserve().ok_or(PutRefusal::CatalogFull)?;
        match self.charge_and_place(batch, item, slot) {
            Ok(replicas) => {
                self.fill(batch, item, state, slot, &replicas);
                Ok(slot)
            }
            Err(refusal) => {
                state.slab.retire(slot);
                Err(refusal)
            }
        }
    }

    /// Refuses when the key is taken; removes what is left of a lost or abandoned object.
    fn clear_the_way(&self, batch: &mut Batch<'_>, item: &Item<'_>, state: &mut ShardState) -> Result<(), PutRefusal> {
        let Caller { tenant, now, .. } = batch.call.caller;
        let Some(slot) = state.find(tenant, item.hash.word, item.key) else { return Ok(()) };
        if !self.drop_lost_replicas(state, slot, now) {
            return Ok(());
        }
        if state.slab[slot].is_finished() {
            return Err(PutRefusal::Exists);
        }
        let started = state.slab[slot].started();
        if started + self.settings.discard_timeout >= now {
            return Err(PutRefusal::Busy);
        }
        let leave = Leave::Unfinished { until: started + self.settings.release_timeout, revoked: false };
        self.erase(state, slot, leave, now, batch.effects);
        Ok(())
    }

    fn fill(&self, batch: &Batch<'_>, item: &Item<'_>, state: &mut ShardState, slot: u32, replicas: &[Replica]) {
        let PutCall { caller, config, .. } = batch.call;
        let entry = &mut state.slab[slot];
        entry.key = KeyBytes::new(item.key);
        entry.tenant = caller.tenant;
        entry.creator = caller.client;
        entry.size = item.size;
        entry.data_type = config.data_type.0;
        entry.clear_facts();
        entry.set(flag::HARD_PIN, config.with_hard_pin);
        entry.replicas = Replicas::from_slice(replicas);
        entry.set_start(replicas.first().map_or(1, |first| first.id().0), caller.now);
        state.publish(slot, item.hash.word, batch.soft_pin.map(SoftPin::Pending));
        let wanted = usize::try_from(config.replica_num).unwrap_or(usize::MAX);
        self.counters.add(|c| &c.partial_allocations, u64::from(replicas.len() < wanted));
    }

    /// Takes space that the tenant may still use. It is charged for what it asks for, and in the end for what it got.
    fn charge_and_place(&self, batch: &mut Batch<'_>, item: &Item<'_>, slot: u32) -> Result<Placed, PutRefusal> {
        if !self.tenants.is_multi() {
            return self.place(batch, item, slot);
        }
        let tenant = batch.call.caller.tenant;
        let bytes = item.size.saturating_mul(batch.call.config.replica_num);
        self.tenants().open_object(tenant, Charge { bytes, replaces: 0 })?;
        match self.place(batch, item, slot) {
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
    fn place(&self, batch: &mut Batch<'_>, item: &Item<'_>, slot: u32) -> Result<Placed, PutRefusal> {
        let table = self.segments.load();
        let wanted = usize::try_from(batch.call.config.replica_num).unwrap_or(usize::MAX);
        let owner = (item.hash.shard as u64) << 32 | u64::from(slot);
        let mut attempts = Attempts {
            table: &table,
            size: ByteLen(item.size),
            owner,
            now: batch.call.caller.now,
            placed: SmallVec::new(),
        };
        self.try_preferred(batch, &mut attempts, wanted);
        let missing = wanted - attempts.placed.len();
        if missing > 0 {
            self.placement.place(&table.view, missing, batch.random, &mut |at| attempts.try_group(at));
        }
        let mut placed = attempts.placed;
        if placed.is_empty() {
            return Err(why_nowhere(&table.view, ByteLen(item.size)));
        }
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
            let first = self.next_id.fetch_add(take, Ordering::Relaxed);
            batch.ids = first..first + take;
        }
        let first = batch.ids.start;
        batch.ids.start += count;
        first..first + count
    }

    /// Tries what the caller named: the place of the batch's first key, preferred segments, the caller's host.
    fn try_preferred(&self, batch: &Batch<'_>, attempts: &mut Attempts<'_>, wanted: usize) {
        let config = batch.call.config;
        let view = &attempts.table.view;
        if let Some(segment) = batch.same_segment.and_then(|index| attempts.table.live(index))
            && let Some(at) = view.by_name(&segment.info().name)
        {
            attempts.try_group(at);
        }
        let single = [config.preferred_segment.as_str()];
        let names = config.preferred_segments.iter().map(String::as_str);
        let named: SmallVec<[&str; 8]> =
            if config.preferred_segment.is_empty() { names.collect() } else { single.into_iter().collect() };
        for at in named.into_iter().filter_map(|name| view.by_name(name)) {
            if attempts.placed.len() >= wanted {
                return;
            }
            attempts.try_group(at);
        }
        if config.prefer_alloc_in_same_node && wanted == 1 {
            for at in view.on_host(&config.host_id) {
                if !attempts.placed.is_empty() {
                    return;
                }
                attempts.try_group(at);
            }
        }
    }

    /// Makes objects readable whose bytes have all arrived. `items`: key and checksum. `sink` gets one result a key, in
    /// order: `OK` also for a repetition; OBJECT_NOT_FOUND, ILLEGAL_CLIENT for anyone but the creator, INVALID_WRITE
    /// when there is nothing of this type to end.
    pub fn put_end<K: AsRef<[u8]>>(
        &self,
        caller: &Caller,
        which: ReplicaType,
        items: impl IntoIterator<Item = (K, Option<u64>)>,
        mut sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        for (at, (key, checksum)) in items.into_iter().enumerate() {
            sink(at, self.end_one(caller, which, key.as_ref(), checksum));
        }
    }

    fn end_one(&self, caller: &Caller, which: ReplicaType, key: &[u8], checksum: Option<u64>) -> Result<(), ErrorCode> {
        let hash = self.hash(caller.tenant, key);
        let mut state = self.shards[hash.shard].state.write();
        let slot = self.find_own(&mut state, caller, hash, key)?;
        if state.slab[slot].is_finished() {
            return if selects_memory(which) { Ok(()) } else { Err(ErrorCode::INVALID_WRITE) };
        }
        if selects_memory(which) {
            state.finish(slot, caller.now, checksum);
            state.publish_front(&self.fronts[hash.shard]);
        }
        Ok(())
    }

    /// Gives up puts. Their space stays out of use until the release timeout, or until its node confirms that the writer
    /// is done, see [`Effects::quiesce`]. `sink` gets one result a key, in order: OBJECT_NOT_FOUND, ILLEGAL_CLIENT for
    /// anyone but the creator, INVALID_WRITE when the put has ended.
    pub fn put_revoke<K: AsRef<[u8]>>(
        &self,
        caller: &Caller,
        which: ReplicaType,
        keys: impl IntoIterator<Item = K>,
        effects: &mut Effects,
        mut sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        for (at, key) in keys.into_iter().enumerate() {
            let until = |started| started + self.settings.release_timeout;
            sink(at, self.revoke_one(caller, which, key.as_ref(), until, effects));
        }
    }

    /// As [`Catalog::put_revoke`], from a writer that knows that nothing of the puts is in flight any more: their space is
    /// free at once.
    pub fn put_revoke_quiet<K: AsRef<[u8]>>(
        &self,
        caller: &Caller,
        which: ReplicaType,
        keys: impl IntoIterator<Item = K>,
        mut sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        let mut no_questions = Effects::default();
        for (at, key) in keys.into_iter().enumerate() {
            sink(at, self.revoke_one(caller, which, key.as_ref(), |_| caller.now, &mut no_questions));
        }
    }

    fn revoke_one(
        &self,
        caller: &Caller,
        which: ReplicaType,
        key: &[u8],
        until: impl Fn(MonotonicTime) -> MonotonicTime,
        effects: &mut Effects,
    ) -> Result<(), ErrorCode> {
        let hash = self.hash(caller.tenant, key);
        let mut state = self.shards[hash.shard].state.write();
        let slot = self.find_own(&mut state, caller, hash, key)?;
        if state.slab[slot].is_finished() {
            return Err(ErrorCode::INVALID_WRITE);
        }
        if selects_memory(which) {
            let until = until(state.slab[slot].started());
            self.erase(&mut state, slot, Leave::Unfinished { until, revoked: true }, caller.now, effects);
        }
        Ok(())
    }

    /// The caller's own object with a live replica.
    fn find_own(&self, state: &mut ShardState, caller: &Caller, hash: KeyHash, key: &[u8]) -> Result<u32, ErrorCode> {
        let slot = state.find(caller.tenant, hash.word, key).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        if !self.drop_lost_replicas(state, slot, caller.now) {
            return Err(ErrorCode::OBJECT_NOT_FOUND);
        }
        if state.slab[slot].creator != caller.client {
            return Err(ErrorCode::ILLEGAL_CLIENT);
        }
        Ok(slot)
    }
}

/// Whether the selector covers memory replicas, the only kind there is so far.
fn selects_memory(which: ReplicaType) -> bool {
    which == ReplicaType::ALL || which == ReplicaType::MEMORY
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

fn why_nowhere(view: &PlacementView, size: ByteLen) -> PutRefusal {
    if view.groups().is_empty() {
        PutRefusal::NoSegment
    } else if size > view.largest() {
        PutRefusal::LargerThanAnySegment
    } else {
        PutRefusal::NoSpace
    }
}

/// The tries to place one object.
struct Attempts<'a> {
    table: &'a SegmentTable,
    size: ByteLen,
    owner: u64,
    now: MonotonicTime,
    placed: Placed,
}

impl Attempts<'_> {
    /// Takes a replica's space in a group that holds none of this object yet.
    fn try_group(&mut self, at: usize) -> bool {
        let Some(group) = self.table.view.groups().get(at) else { return false };
        let holds = |replica: &Replica| group.members.iter().any(|segment| segment.index() == replica.segment);
        if self.placed.iter().any(holds) {
            return false;
        }
        for segment in &group.members {
            if let Some(extent) = segment.allocate(self.size, self.owner, self.now) {
                self.placed.push(Replica::new(0, segment.index(), extent));
                return true;
            }
        }
        false
    }
}
