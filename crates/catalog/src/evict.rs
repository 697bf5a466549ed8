//! Which objects are given up: the policies, and how they are told what happens.
//!
//! **Problem.** A policy sees chains across all shards, so it stands outside them, behind a lock of its own. Requests must not
//! wait for that lock.
//!
//! **Shape.** Calls append what happened to one of a few bounded [`Lane`]s: one short lock a batch. The janitor drains the lanes
//! into the policies, and so does whoever needs a victim, so that a victim is chosen with everything known.
//!
//! **Invariants**
//! - every readable object without a hard pin is known to its tenant's policy, or is on its way there in a lane;
//! - what a policy knows and is gone is told, or found out when its turn comes ([`Verdict::Gone`](yb_evict::Verdict));
//! - lookups may be dropped when a lane is full, and are counted; inserts and removals never are;
//! - order of locks: policies, one shard, one lane. A lane's lock is held to append or to swap, never longer.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;

use smallvec::SmallVec;
use yb_evict::{Key, Newcomer, Policy, PolicyKind, Seen, Slot};
use yb_types::MonotonicTime;

use crate::catalog::{Caller, Catalog};
use crate::entry::{Entry, flag};
use crate::key::{KeyHash, SHARDS, Tenant};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Lanes. Threads take them in turn, so that workers seldom meet, and what one thread did stays in its order.
const LANES: usize = 16;
/// Keys of one kind in a lane at which it is full. All lanes together hold some MiB at most, as long as somebody drains them.
const LANE_KEYS: u64 = 8192;
/// See [`Evictor::relieve`].
const OVERFULL: u64 = 4;
/// Slots of a shard: their numbers and the shard's make one number of 32 bits.
pub(crate) const SLOTS_PER_SHARD: u32 = (1 << 22) - 1;

/// The place of an object, for its policy.
pub(crate) fn place_of(shard: usize, slot: u32, entry: &Entry) -> Slot {
    Slot::new(slot * SHARDS as u32 + shard as u32, entry.generation().0.get() as u32)
}

/// The shard and the slot of a place.
pub(crate) fn shard_and_slot(place: Slot) -> (usize, u32) {
    (place.number as usize % SHARDS, place.number / SHARDS as u32)
}

thread_local! {
    static LANE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % LANES
    };
}

/// What a call did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    LookedUp,
    Inserted,
    /// The same, and the group is in the list of groups.
    InsertedInGroup,
    Removed,
}

/// One call, with the number of keys that it has in the list of its kind: 16 bytes, for single lookups write one each.
#[derive(Clone, Copy, Debug)]
struct Event {
    now: MonotonicTime,
    count: u32,
    tenant: Tenant,
    deed: Deed,
}

#[derive(Debug, Default)]
struct Events {
    calls: Vec<Event>,
    seen: Vec<Seen>,
    newcomers: Vec<Newcomer>,
    groups: Vec<u64>,
    removed: Vec<Slot>,
}

impl Events {
    /// Inserts and removals.
    fn waiting(&self) -> u64 {
        (self.newcomers.len() + self.removed.len()) as u64
    }

    fn clear(&mut self) {
        self.calls.clear();
        self.seen.clear();
        self.newcomers.clear();
        self.groups.clear();
        self.removed.clear();
    }
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane {
    /// Inserts and removals that wait.
    waiting: AtomicU64,
    events: Mutex<Events>,
}

/// The policies, one for each tenant that has objects.
pub(crate) struct Policies {
    kind: PolicyKind,
    by_tenant: BTreeMap<Tenant, Box<dyn Policy>>,
    /// What a lane gets in exchange for what it gathered.
    spare: Events,
}

impl Policies {
    pub fn of(&mut self, tenant: Tenant) -> &mut dyn Policy {
        let kind = self.kind;
        &mut **self.by_tenant.entry(tenant).or_insert_with(|| kind.build())
    }

    /// The tenant with the most objects to give up.
    pub fn largest(&self) -> Option<Tenant> {
        let sizes = self.by_tenant.iter().map(|(tenant, policy)| (*tenant, policy.len()));
        sizes.max_by_key(|(_, len)| *len).filter(|(_, len)| *len > 0).map(|(tenant, _)| tenant)
    }
    /// Objects that all of them know.
    pub fn len(&self) -> usize {
        self.by_tenant.values().map(|policy| policy.len()).sum()
    }

    fn tell(&mut self, events: &Events) {
        let Events { calls, seen, newcomers, groups, removed } = events;
        let (mut seen, mut newcomers) = (&seen[..], &newcomers[..]);
        let (mut groups, mut removed) = (groups.iter(), removed.iter());
        for run in calls.chunk_by(|a, b| a.tenant == b.tenant) {
            let policy = self.of(run[0].tenant);
            for event in run {
                let Event { now, deed, .. } = *event;
                match deed {
                    Deed::LookedUp => policy.looked_up(take(&mut seen, event.count), now),
                    Deed::Inserted => policy.inserted(take(&mut newcomers, event.count), None, now),
                    Deed::InsertedInGroup => {
                        policy.inserted(take(&mut newcomers, event.count), groups.next().copied(), now);
                    }
                    Deed::Removed => removed.next().into_iter().for_each(|slot| policy.removed(*slot)),
                }
            }
        }
    }
}

/// Splits the first `count` off.
fn take<'a, T>(list: &mut &'a [T], count: u32) -> &'a [T] {
    let (first, rest) = list.split_at(list.len().min(count as usize));
    *list = rest;
    first
}

/// Policies and the lanes to them.
pub(crate) struct Evictor {
    lanes: Box<[Lane]>,
    policies: Mutex<Policies>,
}

impl Evictor {
    pub fn new(kind: PolicyKind) -> Self {
        Evictor {
            lanes: (0..LANES).map(|_| Lane::default()).collect(),
            policies: Mutex::new(Policies { kind, by_tenant: BTreeMap::new(), spare: Events::default() }),
        }
    }

    /// The lane of this thread.
    fn lane(&self) -> &Lane {
        &self.lanes[LANE.with(|lane| *lane)]
    }

    /// Keys were looked up. Answers how many are not told since the lane is full.
    pub fn looked_up(&self, tenant: Tenant, keys: &[Seen], now: MonotonicTime) -> usize {
        let mut events = self.lane().events.lock();
        if events.seen.len() as u64 >= LANE_KEYS {
            return keys.len();
        }
        events.seen.extend_from_slice(keys);
        events.calls.push(Event { now, count: keys.len() as u32, tenant, deed: Deed::LookedUp });
        0
    }

    /// Objects became readable. Not to be called under the lock of a shard: a full lane is drained.
    pub fn inserted(
        &self,
        tenant: Tenant,
        keys: impl ExactSizeIterator<Item = Newcomer>,
        group: Option<u64>,
        now: MonotonicTime,
    ) {
        let lane = self.lane();
        let mut events = lane.events.lock();
        let deed = if group.is_some() { Deed::InsertedInGroup } else { Deed::Inserted };
        events.calls.push(Event { now, count: keys.len() as u32, tenant, deed });
        events.newcomers.extend(keys);
        events.groups.extend(group);
        lane.waiting.store(events.waiting(), Ordering::Relaxed);
        drop(events);
        self.relieve();
    }

    /// An object left for another reason than eviction. Fine under the lock of its shard; [`relieve`](Self::relieve) is to
    /// follow after it.
    pub fn removed(&self, tenant: Tenant, slot: Slot) {
        let lane = self.lane();
        let mut events = lane.events.lock();
        events.removed.push(slot);
        events.calls.push(Event { now: MonotonicTime(0), count: 1, tenant, deed: Deed::Removed });
        lane.waiting.store(events.waiting(), Ordering::Relaxed);
    }

    /// Drains the lane of this thread if it is full. Not under the lock of a shard. While somebody else is with the policies, a
    /// lane may become [`OVERFULL`] times as full before its thread waits for them.
    pub fn relieve(&self) {
        let lane = self.lane();
        let waiting = lane.waiting.load(Ordering::Relaxed);
        if waiting >= LANE_KEYS * OVERFULL {
            Self::drain(lane, &mut self.policies.lock());
        } else if waiting >= LANE_KEYS
            && let Some(mut policies) = self.policies.try_lock()
        {
            Self::drain(lane, &mut policies);
        }
    }

    /// Drains all lanes, one after the other, and lets others to the policies in between.
    pub fn settle(&self) {
        for lane in &self.lanes {
            if !lane.events.lock().calls.is_empty() {
                Self::drain(lane, &mut self.policies.lock());
            }
        }
    }

    /// The policies, knowing all that happened before this call.
    pub fn policies(&self) -> MutexGuard<'_, Policies> {
        let mut policies = self.policies.lock();
        self.lanes.iter().for_each(|lane| Self::drain(lane, &mut policies));
        policies
    }

    fn drain(lane: &Lane, policies: &mut Policies) {
        let mut events = std::mem::take(&mut policies.spare);
        std::mem::swap(&mut *lane.events.lock(), &mut events);
        lane.waiting.store(0, Ordering::Relaxed);
        policies.tell(&events);
        events.clear();
        policies.spare = events;
    }
}

/// Objects that a call made readable, until their policy is told, when no shard is locked.
pub(crate) struct Newcomers<'a> {
    evictor: &'a Evictor,
    caller: Caller,
    keys: SmallVec<[(Newcomer, Option<u64>); 32]>,
}

impl<'a> Newcomers<'a> {
    pub fn new(evictor: &'a Evictor, caller: &Caller) -> Self {
        Newcomers { evictor, caller: *caller, keys: SmallVec::new() }
    }

    /// Notes an object that is readable now; fine under the lock of its shard.
    pub fn add(&mut self, hash: KeyHash, slot: u32, entry: &Entry) {
        if !entry.has(flag::HARD_PIN) {
            let newcomer = Newcomer { slot: place_of(hash.shard, slot, entry), key: Key(hash.whole) };
            self.keys.push((newcomer, entry.membership().map(|own| own.group.number())));
        }
    }

    /// Tells the policy, keys of one group as one batch. Not under the lock of a shard.
    pub fn announce(self) {
        for run in self.keys.chunk_by(|(_, a), (_, b)| a == b) {
            let keys = run.iter().map(|(newcomer, _)| *newcomer);
            self.evictor.inserted(self.caller.tenant, keys, run[0].1, self.caller.now);
        }
    }
}

/// Keys of a lookup, in its order, until their policy is told in the end.
pub(crate) struct LookedUp {
    keys: SmallVec<[Seen; 32]>,
}

impl LookedUp {
    pub fn new() -> Self {
        LookedUp { keys: SmallVec::new() }
    }

    /// Notes what a lookup found: the slot of a readable entry, or nothing.
    pub fn add(&mut self, hash: KeyHash, found: Option<(u32, &Entry)>) {
        self.keys.push(match found {
            Some((slot, entry)) => Seen::Here(place_of(hash.shard, slot, entry)),
            None => Seen::Missing(Key(hash.whole)),
        });
    }

    /// Tells the policy. Not under the lock of a shard.
    pub fn announce(self, catalog: &Catalog, tenant: Tenant, now: MonotonicTime) {
        if !self.keys.is_empty() {
            let untold = catalog.evictor.looked_up(tenant, &self.keys, now);
            catalog.counters.add(|c| &c.lookups_untold, untold as u64);
        }
    }
}
