//! Eviction: freeing bytes, the least worth first, without ever looking at all objects.
//!
//! The policy of a tenant names a candidate; it is judged, and taken, under the lock of its shard. What a lease, a pin
//! or a reference protects is passed over and counted against a budget, so a round that cannot free anything ends soon.

use std::sync::Arc;

use yb_evict::{Judge, Key, Slot, Verdict, Victims};
use yb_types::{ByteLen, MonotonicTime};

use crate::catalog::{Catalog, Leave};
use crate::departed::Absence;
use crate::effects::{Effects, PutRefusal};
use crate::entry::{Entry, Replica, flag};
use crate::evict::{Policies, place_of, shard_and_slot};
use crate::groups::{Group, Leaving};
use crate::key::Tenant;
use crate::shard::ShardState;
use crate::sync::atomic::Ordering;
use crate::sync::{MutexGuard, RwLockWriteGuard, give_turn};

/// What a round of eviction is to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionGoal {
    /// Bytes to free, of objects without a soft pin.
    pub target: ByteLen,
    /// Bytes to free even if soft-pinned objects have to go, where the settings allow it.
    pub at_least: ByteLen,
}

impl EvictionGoal {
    /// Just so many bytes, soft-pinned objects included if need be.
    pub fn just(bytes: ByteLen) -> Self {
        EvictionGoal { target: bytes, at_least: bytes }
    }
}

/// What a round of eviction came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Objects evicted.
    pub keys: u64,
    /// Bytes free now that were not before.
    pub bytes: ByteLen,
    /// Objects looked at.
    pub steps: u64,
    /// The goal was not reached although the budget was not used up: everything else is leased, pinned or unfinished.
    /// Trying again at once is of no use.
    pub exhausted: bool,
}

/// What went with one victim: more than the victim when it had a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Evicted {
    pub keys: u64,
    /// Bytes free now that were not before.
    pub freed: ByteLen,
    /// Bytes that their tenant was charged for.
    pub charge: u64,
}

impl Evicted {
    pub fn add(&mut self, other: Evicted) {
        self.keys += other.keys;
        self.freed.0 += other.freed.0;
        self.charge += other.charge;
    }
}

/// A put that finds no space evicts its own size this many times: what comes free is not always in one piece.
const EVICTIONS_PER_PUT: u32 = 4;

/// See [`Catalog::out_of_reach`].
#[derive(Default)]
struct OutOfReach {
    capacity: u64,
    used: u64,
}

/// What was done so far to make room for one object.
#[derive(Debug, Default)]
pub(crate) struct MakeRoom {
    released: bool,
    evictions: u32,
    /// Bytes that came free by them.
    evicted: u64,
    tenant_evictions: u32,
    /// The last look found nothing that may go.
    exhausted: bool,
}

impl MakeRoom {
    /// Why there is no space after all.
    pub fn explain(&self, refusal: PutRefusal) -> PutRefusal {
        if refusal == PutRefusal::NoSpace && self.exhausted { PutRefusal::NothingEvictable } else { refusal }
    }

    /// Bytes that were evicted for it.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Whether the tenant's own objects may be asked once more.
    pub fn may_ask_tenant(&mut self) -> bool {
        self.tenant_evictions += 1;
        self.tenant_evictions <= TENANT_EVICTIONS_PER_PUT
    }
}

/// How often a put beyond its quota evicts objects of its tenant, as of the peer.
const TENANT_EVICTIONS_PER_PUT: u32 = 2;

/// Victims after which others get a turn at the policies.
const VICTIMS_PER_TURN: u64 = 32;
/// The most that a round frees below the watermark, as a share of the capacity: space that is given up before it is
/// needed is space without hits.
const STEP: f64 = 0.01;

/// One pass of a round: what it may take.
struct Pass {
    now: MonotonicTime,
    take_soft_pinned: bool,
    want: ByteLen,
}

/// Decides on the candidates of a pass.
struct Court<'a> {
    catalog: &'a Catalog,
    pass: &'a Pass,
    gone: &'a mut Evicted,
}

impl Judge for Court<'_> {
    fn judge(&mut self, place: Slot) -> Verdict {
        self.catalog.judge(place, self.pass, self.gone)
    }

    fn soon(&mut self, places: &[Slot]) {
        self.catalog.foresee_victims(places.iter().map(|place| shard_and_slot(*place)));
    }
}

impl Catalog {
    /// What eviction has to free now, by the watermark or because a put found no space; `None` when nothing. It goes
    /// below the watermark by `eviction_ratio`, but not by more than a hundredth.
    pub fn eviction_goal(&self, now: MonotonicTime) -> Option<EvictionGoal> {
        let idle = self.out_of_reach(now);
        let capacity = self.segments.capacity().0.saturating_sub(idle.capacity) as f64;
        // What is leaving is freed by upkeep, and may be enough.
        if capacity == 0.0 || self.leaving.any() {
            return None;
        }
        let used = self.allocated().0.saturating_sub(idle.used + self.coming_free(now).0) as f64 / capacity;
        let (ratio, over) = (self.settings.eviction_ratio, used - self.settings.eviction_high_watermark);
        let starved = self.starved.load(Ordering::Relaxed) && ratio > 0.0;
        if over <= 0.0 && !starved {
            return None;
        }
        let step = ratio.min(STEP);
        let target = step.max(over + step);
        let at_least = (target / 2.0).max(over);
        Some(EvictionGoal { target: share_of(capacity, target), at_least: share_of(capacity, at_least) })
    }

    /// Memory that no eviction can make room in: what it gave up does not come free.
    fn out_of_reach(&self, now: MonotonicTime) -> OutOfReach {
        let mut idle = OutOfReach::default();
        if self.segments.is_any_fed() {
            let table = self.segments.load();
            for segment in table.iter().filter(|segment| segment.is_live() && segment.is_stuck(now)) {
                idle.capacity += segment.capacity().0;
                idle.used += segment.used().0;
            }
        }
        idle
    }

    /// Whether space comes free when this object goes. Where nothing is struck out any more, what goes is lost for
    /// nothing.
    fn makes_room(&self, entry: &Entry, now: MonotonicTime) -> bool {
        let replicas = entry.replicas.as_slice();
        if !self.segments.is_any_fed() || replicas.is_empty() {
            return true;
        }
        let table = self.segments.load();
        let is_stuck = |replica: &Replica| table.live(replica.segment).is_some_and(|segment| segment.is_stuck(now));
        !replicas.iter().all(is_stuck)
    }

    /// Evicts towards a goal, looking at no more than `budget` objects. At most one object more than needed goes.
    pub fn evict(&self, goal: &EvictionGoal, budget: u32, now: MonotonicTime) -> Reclaimed {
        self.counters.add(|c| &c.evictions_attempted, 1);
        let mut left = budget;
        let mut done = Reclaimed::default();
        let mut policies = self.evictor.policies();
        let pass = Pass { now, take_soft_pinned: false, want: goal.target };
        self.evict_pass(&mut policies, &pass, &mut left, &mut done);
        if done.bytes < goal.at_least && self.settings.evict_soft_pinned && left > 0 {
            let pass = Pass { take_soft_pinned: true, want: goal.at_least, ..pass };
            self.evict_pass(&mut policies, &pass, &mut left, &mut done);
        }
        drop(policies);
        done.steps = u64::from(budget - left);
        done.exhausted = done.bytes < goal.target && left > 0 && !self.leaving.any();
        if done.keys > 0 {
            self.counters.add(|c| &c.evictions_successful, 1);
        }
        // Who found no space asked for what may go at that time, not for what may go later: it asks again.
        if done.keys > 0 || done.exhausted {
            self.starved.store(false, Ordering::Relaxed);
        }
        self.counters.add(|c| &c.evicted_keys, done.keys);
        self.counters.add(|c| &c.evicted_bytes, done.bytes.0);
        self.counters.add(|c| &c.eviction_steps, done.steps);
        done
    }

    /// What one put may evict at most: its size once if that is a large part of a segment, as what comes free in pieces
    /// does not help it, however much there is.
    fn evictable_for_one(&self, size: ByteLen) -> u64 {
        size.0 * if self.is_large(size.0) { 1 } else { u64::from(EVICTIONS_PER_PUT) }
    }

    /// Whether an object of this size needs a large part of a segment.
    pub(crate) fn is_large(&self, size: u64) -> bool {
        size.saturating_mul(EVICTIONS_PER_PUT.into()) > self.segments.load().view.largest().0
    }

    /// Does the next thing that may make room for an object that found none; `false` when there is nothing left to do.
    pub(crate) fn make_room(&self, tries: &mut MakeRoom, tenant: Tenant, size: ByteLen, now: MonotonicTime) -> bool {
        if !std::mem::replace(&mut tries.released, true) && self.release_withheld(now, u64::MAX) > 0 {
            return true;
        }
        if self.coming_free(now) >= size {
            return false;
        }
        let budget = self.settings.inline_eviction_budget;
        if tries.evictions == EVICTIONS_PER_PUT || budget == 0 {
            return false;
        }
        let left = self.evictable_for_one(size).saturating_sub(tries.evicted);
        if left == 0 {
            return false;
        }
        tries.evictions += 1;
        if self.leaving.any() {
            return self.leave_on(now).freed.0 > 0;
        }
        if self.tenants.is_multi() && self.make_room_fairly(tenant, size, now) {
            return true;
        }
        let done = self.evict(&EvictionGoal::just(ByteLen(size.0.min(left))), budget, now);
        tries.evicted += done.bytes.0;
        tries.exhausted = done.exhausted && done.keys == 0;
        done.bytes.0 > 0 || self.leaving.any()
    }

    fn evict_pass(&self, policies: &mut MutexGuard<'_, Policies>, pass: &Pass, left: &mut u32, done: &mut Reclaimed) {
        // What is protected is looked at once a pass, and is behind all others then.
        let mut may_look = u32::try_from(policies.len()).unwrap_or(u32::MAX).min(*left);
        let mut turn = VICTIMS_PER_TURN;
        while done.bytes < pass.want && may_look > 0 {
            if self.leaving.any() {
                return;
            }
            let Some(tenant) = policies.largest() else { return };
            let mut gone = Evicted::default();
            let mut court = Court { catalog: self, pass, gone: &mut gone };
            let mut victims = Victims::new(may_look, &mut court);
            let victim = policies.of(tenant).victim(pass.now, &mut victims);
            let looked = may_look - victims.budget();
            may_look -= looked;
            *left -= looked;
            if victim.is_none() {
                return;
            }
            done.keys += gone.keys;
            done.bytes.0 += gone.freed.0;
            turn -= 1;
            if turn == 0 {
                turn = VICTIMS_PER_TURN;
                give_turn(policies);
            }
        }
    }

    /// Takes the object that a policy named, if nothing protects it, and its group with it.
    fn judge(&self, place: Slot, pass: &Pass, gone: &mut Evicted) -> Verdict {
        let (shard, slot) = shard_and_slot(place);
        let mut state = self.shards[shard].state.write();
        let Some(key) = self.named(&state, place) else { return Verdict::Gone };
        if !state.is_evictable(slot, pass.take_soft_pinned, pass.now) {
            return Verdict::Protected;
        }
        if !self.makes_room(&state.slab[slot], pass.now) || self.offload_first(&mut state, slot, pass.now) {
            return Verdict::Protected;
        }
        if state.slab[slot].has(flag::GROUPED) {
            *gone = self.evict_victim(state, slot, pass.take_soft_pinned, pass.now);
            // Somebody may have read another member just now.
            if self.named(&self.shards[shard].state.read(), place).is_some() {
                return Verdict::Protected;
            }
        } else {
            *gone = self.evict_one(&mut state, slot, Leave::Evicted, pass.now);
        }
        Verdict::Goes { key, bytes: gone.freed.0 }
    }

    /// The name of the key of a place, if that still holds the write that a policy knows.
    fn named(&self, state: &ShardState, place: Slot) -> Option<Key> {
        let (shard, slot) = shard_and_slot(place);
        let entry = state.slab.get(slot).filter(|entry| entry.is_finished() && !entry.has(flag::HARD_PIN))?;
        (place_of(shard, slot, entry) == place).then(|| Key(self.hash(entry.tenant, entry.key.as_slice()).whole))
    }

    /// Evicts an object that nothing protects, and with it its group, if that can go as a whole. Gives the shard's lock
    /// back, because the members of a group lie in many shards.
    pub(crate) fn evict_victim(
        &self,
        mut state: RwLockWriteGuard<'_, ShardState>,
        slot: u32,
        take_soft_pinned: bool,
        now: MonotonicTime,
    ) -> Evicted {
        let group = state.slab[slot].membership().map(|membership| Arc::clone(&membership.group));
        match group {
            None => self.evict_one(&mut state, slot, Leave::Readable, now),
            Some(group) => {
                drop(state);
                self.evict_group(&group, take_soft_pinned, now)
            }
        }
    }

    fn evict_one(&self, state: &mut ShardState, slot: u32, leave: Leave, now: MonotonicTime) -> Evicted {
        let charge = state.slab[slot].memory_bytes();
        self.departs(state, slot, Absence::Evicted);
        let freed = self.erase(state, slot, leave, now, &mut Effects::default());
        Evicted { keys: 1, freed, charge }
    }

    /// Takes a member of a group that is being evicted, unless something protects it or it has left.
    pub(crate) fn evict_member(&self, group: &Arc<Group>, how: Leaving, member: u64, now: MonotonicTime) -> Evicted {
        let (shard, slot) = ((member >> 32) as usize, member as u32);
        let mut state = self.shards[shard].state.write();
        // The slot may have another owner by now.
        let is_member = |entry: &Entry| entry.membership().is_some_and(|own| Arc::ptr_eq(&own.group, group));
        let is_free = |entry: &Entry| entry.is_finished() && entry.lease_end() <= now;
        let goes = |entry: &Entry| is_member(entry) && is_free(entry) && entry.goes_with_group(how, now);
        if state.slab.get(slot).is_some_and(goes) && !self.offload_first(&mut state, slot, now) {
            return self.evict_one(&mut state, slot, Leave::Readable, now);
        }
        Evicted::default()
    }
}

fn share_of(capacity: f64, share: f64) -> ByteLen {
    ByteLen((capacity * share.min(1.0)).ceil() as u64)
}
