//! Removing everything, in steps: of one tenant, or of all.
//!
//! A clear of millions of objects must not be felt by anybody else, so it looks at a bounded number of objects under a
//! lock, gives the lock back, and its caller gives way between steps. A tenant's clear costs what the tenant has.

use yb_types::{ErrorCode, MonotonicTime};

use crate::catalog::Catalog;
use crate::key::{SHARDS, Tenant};
use crate::remove::{Force, Removal, may_remove};
use crate::shard::ShardState;

/// Objects looked at under one lock.
const OBJECTS_PER_LOCK: u32 = 64;

/// How far a clear has come. What is written behind it stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClearCursor {
    shard: usize,
    /// Of all: the next slot. Of a tenant: how many of its objects in this shard still have to be looked at.
    within: Option<u32>,
    /// The next shard whose disks are looked at, after all memory.
    shelf: usize,
    /// What became of the objects so far.
    pub tally: Removal,
}

impl Catalog {
    /// Goes on removing everything of a tenant, or of all with `None`; what may not be removed is passed over. Looks at
    /// about `budget` objects. Answers whether there is more to do.
    pub fn clear_step(
        &self,
        whose: Option<Tenant>,
        force: Force,
        cursor: &mut ClearCursor,
        budget: u32,
        now: MonotonicTime,
    ) -> bool {
        self.relearning.end();
        let mut left = budget;
        while left > 0 {
            self.evictor.relieve();
            if cursor.within.is_none() && !self.enter(whose, cursor) {
                return self.clear_shelves(whose, force, cursor, left, now);
            }
            let mut state = self.shards[cursor.shard].state.write();
            let looks = left.min(OBJECTS_PER_LOCK);
            left -= looks;
            let done = match whose.filter(|_| self.tenants.is_multi()) {
                Some(tenant) => self.clear_some_of(&mut state, tenant, force, cursor, looks, now),
                None => self.clear_some(&mut state, whose, force, cursor, looks, now),
            };
            if done {
                cursor.within = None;
                cursor.shard += 1;
            }
        }
        true
    }

    /// Goes on with what lies on disks only. A shard that has nothing there costs one of the budget, so that a clear
    /// without disks ends in the step in which the memory is done.
    fn clear_shelves(
        &self,
        whose: Option<Tenant>,
        force: Force,
        cursor: &mut ClearCursor,
        budget: u32,
        now: MonotonicTime,
    ) -> bool {
        let mut left = budget;
        while cursor.shelf < SHARDS && left > 0 {
            let removed = self.clear_shelf(cursor.shelf, whose, force, now);
            left = left.saturating_sub(if removed.is_some() { OBJECTS_PER_LOCK } else { 1 });
            cursor.tally.add(removed.unwrap_or_default());
            cursor.shelf += 1;
        }
        let done = cursor.shelf == SHARDS;
        if done {
            self.tell_disks_of_clear(whose);
        }
        !done
    }

    /// Removes everything of a tenant, or of all with `None`, at one go: not for a thread that serves requests. Answers
    /// how many objects went.
    pub fn remove_all(&self, tenant: Option<Tenant>, force: Force, now: MonotonicTime) -> u64 {
        let mut cursor = ClearCursor::default();
        while self.clear_step(tenant, force, &mut cursor, u32::MAX, now) {}
        cursor.tally.removed
    }

    /// Goes to the next shard that has something; `false` at the end.
    fn enter(&self, whose: Option<Tenant>, cursor: &mut ClearCursor) -> bool {
        if let Some(tenant) = whose.filter(|_| self.tenants.is_multi()) {
            let mut ahead = self.tenants.occupancy().shards(tenant, cursor.shard);
            match ahead.next().filter(|shard| *shard >= cursor.shard) {
                Some(shard) if cursor.shard < SHARDS => cursor.shard = shard,
                _ => cursor.shard = SHARDS,
            }
        }
        let Some(shard) = self.shards.get(cursor.shard) else { return false };
        let count = whose.filter(|_| self.tenants.is_multi()).map(|tenant| shard.state.read().tenant_len(tenant));
        cursor.within = Some(count.map_or(0, |count| u32::try_from(count).unwrap_or(u32::MAX)));
        true
    }

    /// Looks at some objects of a tenant; answers whether the shard is done.
    fn clear_some_of(
        &self,
        state: &mut ShardState,
        tenant: Tenant,
        force: Force,
        cursor: &mut ClearCursor,
        looks: u32,
        now: MonotonicTime,
    ) -> bool {
        let mut to_do = cursor.within.unwrap_or(0).min(looks);
        cursor.within = cursor.within.map(|within| within - to_do);
        while let Some((slot, _)) = state.next_of_tenant(tenant, now, &mut to_do) {
            cursor.tally.count(self.clear_one(state, slot, force, now));
        }
        // A queue that ended early has nothing more.
        to_do > 0 || cursor.within == Some(0)
    }

    /// Looks at some slots; answers whether the shard is done.
    fn clear_some(
        &self,
        state: &mut ShardState,
        whose: Option<Tenant>,
        force: Force,
        cursor: &mut ClearCursor,
        looks: u32,
        now: MonotonicTime,
    ) -> bool {
        let first = cursor.within.unwrap_or(0);
        let end = first.saturating_add(looks).min(state.slab.len());
        for slot in first..end {
            if state.slab.get(slot).is_some_and(|entry| whose.is_none_or(|whose| entry.tenant == whose)) {
                cursor.tally.count(self.clear_one(state, slot, force, now));
            }
        }
        cursor.within = Some(end);
        end == state.slab.len()
    }

    fn clear_one(&self, state: &mut ShardState, slot: u32, force: Force, now: MonotonicTime) -> Result<(), ErrorCode> {
        // What is not readable yet is no object that stays.
        if !state.slab[slot].is_finished() {
            return Err(ErrorCode::OBJECT_NOT_FOUND);
        }
        may_remove(&state.slab[slot], force, now)?;
        if !self.drop_lost_replicas(state, slot, now) {
            return Err(ErrorCode::OBJECT_NOT_FOUND);
        }
        let entry = &state.slab[slot];
        let hash = self.hash(entry.tenant, entry.key.as_slice());
        self.take_out(state, slot, hash, now, None);
        Ok(())
    }
}
