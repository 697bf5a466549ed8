//! Eviction: freeing bytes, oldest first, without ever looking at all objects.
//!
//! Every shard shows the age of its oldest candidate. The oldest of all goes first, then the next; a victim costs the
//! same whatever the number of objects. What a lease or a pin protects is passed over and counted against a budget, so
//! a round that cannot free anything ends soon.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use yb_types::{ByteLen, MonotonicTime};

use crate::catalog::{Catalog, Leave};
use crate::departed::Absence;
use crate::effects::Effects;
use crate::entry::Entry;
use crate::groups::{Group, Leaving};
use crate::key::Tenant;
use crate::shard::{NO_FRONT, ShardState};
use crate::sync::RwLockWriteGuard;
use crate::sync::atomic::Ordering;

/// What a round of eviction is to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvictionGoal {
    /// Bytes to free, of objects without a soft pin.
    pub target: ByteLen,
    /// Bytes to free even if soft-pinned objects have to go, where the settings allow it.
    pub at_least: ByteLen,
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
    fn add(&mut self, other: Evicted) {
        self.keys += other.keys;
        self.freed.0 += other.freed.0;
        self.charge += other.charge;
    }
}

/// A put that finds no space evicts its own size this many times: what comes free is not always in one piece.
const EVICTIONS_PER_PUT: u32 = 4;

/// What was done so far to make room for one object.
#[derive(Debug, Default)]
pub(crate) struct MakeRoom {
    released: bool,
    evictions: u32,
    tenant_evictions: u32,
}

impl MakeRoom {
    /// Whether the tenant's own objects may be asked once more.
    pub fn may_ask_tenant(&mut self) -> bool {
        self.tenant_evictions += 1;
        self.tenant_evictions <= TENANT_EVICTIONS_PER_PUT
    }
}

/// How often a put beyond its quota evicts objects of its tenant, as of the peer.
const TENANT_EVICTIONS_PER_PUT: u32 = 2;

/// How many objects of one shard are looked at under one lock.
const STEPS_PER_LOCK: u32 = 16;

/// A shard in the order of its oldest candidate, and how many of its objects may still be looked at in this round.
type Candidate = Reverse<(u64, usize, u32)>;

impl Catalog {
    /// What eviction has to free now, by the watermark or because a put found no space; `None` when nothing.
    pub fn eviction_goal(&self) -> Option<EvictionGoal> {
        let capacity = self.segments.capacity().0 as f64;
        if capacity == 0.0 {
            return None;
        }
        let used = self.allocated().0 as f64 / capacity;
        let (ratio, over) = (self.settings.eviction_ratio, used - self.settings.eviction_high_watermark);
        let starved = self.starved.load(Ordering::Relaxed) && ratio > 0.0;
        if over <= 0.0 && !starved {
            return None;
        }
        let target = ratio.max(over + ratio);
        let at_least = (target / 2.0).max(over);
        Some(EvictionGoal { target: share_of(capacity, target), at_least: share_of(capacity, at_least) })
    }

    /// Evicts towards a goal, looking at no more than `budget` objects. At most one object more than needed goes.
    pub fn evict(&self, goal: &EvictionGoal, budget: u32, now: MonotonicTime) -> Reclaimed {
        self.counters.add(|c| &c.evictions_attempted, 1);
        let mut left = budget;
        let mut done = Reclaimed::default();
        self.evict_pass(goal.target, false, &mut left, now, &mut done);
        if done.bytes < goal.at_least && self.settings.evict_soft_pinned && left > 0 {
            self.evict_pass(goal.at_least, true, &mut left, now, &mut done);
        }
        done.steps = u64::from(budget - left);
        done.exhausted = done.bytes < goal.target && left > 0;
        if done.keys > 0 {
            self.counters.add(|c| &c.evictions_successful, 1);
            self.starved.store(false, Ordering::Relaxed);
        }
        self.counters.add(|c| &c.evicted_keys, done.keys);
        self.counters.add(|c| &c.evicted_bytes, done.bytes.0);
        self.counters.add(|c| &c.eviction_steps, done.steps);
        done
    }

    /// Does the next thing that may make room for an object that found none; `false` when there is nothing left to do.
    pub(crate) fn make_room(&self, tries: &mut MakeRoom, tenant: Tenant, size: ByteLen, now: MonotonicTime) -> bool {
        if !std::mem::replace(&mut tries.released, true) && self.release_withheld(now, u64::MAX) > 0 {
            return true;
        }
        let budget = self.settings.inline_eviction_budget;
        if tries.evictions == EVICTIONS_PER_PUT || budget == 0 {
            return false;
        }
        tries.evictions += 1;
        if self.tenants.is_multi() && self.make_room_fairly(tenant, size, now) {
            return true;
        }
        self.evict(&EvictionGoal { target: size, at_least: size }, budget, now).bytes.0 > 0
    }

    fn evict_pass(
        &self,
        want: ByteLen,
        take_soft_pinned: bool,
        left: &mut u32,
        now: MonotonicTime,
        done: &mut Reclaimed,
    ) {
        let mut oldest = self.candidates();
        while done.bytes < want && *left > 0 {
            let Some(Reverse((_, shard, may_look))) = oldest.pop() else { return };
            let mut state = self.shards[shard].state.write();
            // Twice around: the first look at an object may only take its second chance away.
            let may_look = may_look.min(state.queued().saturating_mul(2));
            let mut budget = may_look.min(STEPS_PER_LOCK).min(*left);
            let granted = budget;
            let next_best = oldest.peek().map_or(u64::MAX, |Reverse((front, ..))| *front);
            let victim = state.victim(now, take_soft_pinned, next_best, &mut budget);
            state.publish_front(&self.fronts[shard]);
            if let Some(slot) = victim {
                let gone = self.evict_victim(state, slot, take_soft_pinned, now);
                done.bytes.0 += gone.freed.0;
                done.keys += gone.keys;
            }
            // An outdated front costs a look too, so that the round ends.
            let looked = (granted - budget).max(1);
            *left = left.saturating_sub(looked);
            let front = self.fronts[shard].load(Ordering::Relaxed);
            if front != NO_FRONT && may_look > looked {
                oldest.push(Reverse((front, shard, may_look - looked)));
            }
        }
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
            None => self.evict_one(&mut state, slot, now),
            Some(group) => {
                drop(state);
                self.evict_group(&group, take_soft_pinned, now)
            }
        }
    }

    fn evict_one(&self, state: &mut ShardState, slot: u32, now: MonotonicTime) -> Evicted {
        let charge = state.slab[slot].memory_bytes();
        self.departs(state, slot, Absence::Evicted);
        let freed = self.erase(state, slot, Leave::Readable, now, &mut Effects::default());
        Evicted { keys: 1, freed, charge }
    }

    /// Evicts a group: all its members but those that a pin or a reference protects, or none if one of them is leased.
    /// Takes one shard after the other, so none may be locked by the caller. Its price is that of its members.
    pub(crate) fn evict_group(&self, group: &Arc<Group>, take_soft_pinned: bool, now: MonotonicTime) -> Evicted {
        let leaving = if take_soft_pinned { Leaving::WithPinned } else { Leaving::ButPinned };
        let mut gone = Evicted::default();
        if !group.begin_to_leave(leaving, now) {
            return gone;
        }
        for member in group.members() {
            let (shard, slot) = ((member >> 32) as usize, member as u32);
            let mut state = self.shards[shard].state.write();
            // The slot may have another owner by now.
            let is_member = |entry: &Entry| entry.membership().is_some_and(|own| Arc::ptr_eq(&own.group, group));
            let is_free = |entry: &Entry| entry.is_finished() && entry.lease_end() <= now;
            let goes = |entry: &Entry| is_member(entry) && is_free(entry) && entry.goes_with_group(leaving, now);
            if state.slab.get(slot).is_some_and(goes) {
                gone.add(self.evict_one(&mut state, slot, now));
            }
        }
        group.end_to_leave();
        gone
    }

    fn candidates(&self) -> BinaryHeap<Candidate> {
        let fronts = self.fronts.iter().map(|front| front.load(Ordering::Relaxed)).enumerate();
        fronts.filter(|&(_, front)| front != NO_FRONT).map(|(shard, front)| Reverse((front, shard, u32::MAX))).collect()
    }
}

fn share_of(capacity: f64, share: f64) -> ByteLen {
    ByteLen((capacity * share.min(1.0)).ceil() as u64)
}
