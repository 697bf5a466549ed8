//! What has to happen without anyone asking, in small steps: forgetting lost segments, unfinished puts of dead or silent
//! writers, withheld space whose time has come.

use std::collections::VecDeque;
use std::sync::Arc;

use yb_types::{ClientId, ErrorCode, MonotonicTime};

use crate::catalog::{Catalog, Leave};
use crate::effects::Effects;
use crate::entry::Entry;
use crate::key::SHARDS;
use crate::planted::{Fault, planted};
use crate::segment::MountedSegment;
use crate::shard::ShardState;
use crate::sync::atomic::Ordering;

/// A segment that is gone, and how far its objects are forgotten.
struct Sweep {
    segment: Arc<MountedSegment>,
    next: u32,
}

/// A client that is gone, and the next shard to look for its unfinished puts.
#[derive(Clone, Copy)]
struct DeadWriter {
    client: ClientId,
    /// Puts that began later are of one that is back.
    until: MonotonicTime,
    next_shard: usize,
}

/// Work that is waiting.
#[derive(Default)]
pub(crate) struct Chores {
    sweeps: VecDeque<Sweep>,
    dead_writers: VecDeque<DeadWriter>,
    next_reap: usize,
}

impl Chores {
    pub fn add_sweep(&mut self, segment: Arc<MountedSegment>) {
        self.sweeps.push_back(Sweep { segment, next: 0 });
    }

    pub fn add_dead_writer(&mut self, client: ClientId, until: MonotonicTime) {
        self.dead_writers.push_back(DeadWriter { client, until, next_shard: 0 });
    }
}

/// Extents looked at under one lock of a segment.
const SWEEP_CHUNK: u32 = 256;
/// Shards whose unfinished puts are looked at in one step.
const SHARDS_PER_STEP: usize = SHARDS / 16;

impl Catalog {
    /// Does up to about `budget` units of waiting work (an extent, or a shard looked at). Answers whether there is more,
    /// in which case it is worth calling again soon. One caller at a time; meant for a timer of some 10 ms.
    pub fn upkeep(&self, budget: u32, now: MonotonicTime, effects: &mut Effects) -> bool {
        self.evictor.settle();
        self.relearning.look(now);
        self.release_withheld(now, u64::from(budget));
        self.reap_unfinished(now, effects);
        self.tiers_upkeep(now);
        let mut left = budget.saturating_sub(self.expire_copies(budget, now, effects));
        while left > 0 {
            let worked = self.discard_of_dead_writer(now, effects)
                || self.sweep_step(now)
                || self.leave_step(now)
                || self.stand_in_step(now);
            if !worked {
                return false;
            }
            left = left.saturating_sub(SWEEP_CHUNK);
        }
        let chores = self.chores.lock();
        self.leaving.any() || !chores.sweeps.is_empty() || !chores.dead_writers.is_empty()
    }

    /// A client that may lend nothing has ended, or cannot be heard any more, at this time: what it was writing is given up,
    /// as at [`Reach::Offline`](crate::Reach::Offline), so that others may write it. Should it live after all, its ends and
    /// revokes are refused, and what it began since goes on.
    pub fn writer_left(&self, client: ClientId, at: MonotonicTime) {
        self.chores.lock().add_dead_writer(client, at);
    }

    /// Frees some members of a large group; `false` when there is none.
    fn leave_step(&self, now: MonotonicTime) -> bool {
        let worked = self.leaving.any();
        self.leave_on(now);
        worked
    }

    /// Frees withheld extents whose time has come, at most `limit` a segment; answers how many.
    pub(crate) fn release_withheld(&self, now: MonotonicTime, limit: u64) -> u64 {
        let table = self.segments.load();
        let live = table.iter().filter(|segment| segment.is_live());
        let released = live.map(|segment| segment.release_due(now, limit, |withheld| self.is_quiet(withheld))).sum();
        self.counters.add(|c| &c.released, released);
        if released > 0 {
            // What a put lacked a while ago is there now: nobody's object has to go for it. It says so if it is not enough.
            self.starved.store(false, Ordering::Relaxed);
        }
        released
    }

    /// Discards puts older than the release timeout, and ends soft pins, in some shards.
    fn reap_unfinished(&self, now: MonotonicTime, effects: &mut Effects) {
        let first = {
            let mut chores = self.chores.lock();
            let first = chores.next_reap;
            chores.next_reap = (first + SHARDS_PER_STEP) % SHARDS;
            first
        };
        let release = self.settings.release_timeout;
        for shard in &self.shards[first..first + SHARDS_PER_STEP] {
            let is_overdue = |entry: &Entry| entry.started() + release < now;
            if shard.state.read().has_ended_pins(now) {
                shard.state.write().end_pins(now);
            }
            let front = |state: &ShardState| state.unfinished.front().filter(|&slot| is_overdue(&state.slab[slot]));
            if front(&shard.state.read()).is_none() {
                continue;
            }
            let mut state = shard.state.write();
            while let Some(slot) = front(&state) {
                self.discard(&mut state, slot, now, effects);
            }
        }
    }

    /// Discards the unfinished puts of a client that is gone, in some shards. Answers whether there was anything to do.
    fn discard_of_dead_writer(&self, now: MonotonicTime, effects: &mut Effects) -> bool {
        let Some(writer) = self.chores.lock().dead_writers.pop_front() else { return false };
        let DeadWriter { client, until, next_shard } = writer;
        let end = (next_shard + SHARDS_PER_STEP).min(SHARDS);
        for shard in &self.shards[next_shard..end] {
            if shard.state.read().unfinished.len() == 0 {
                continue;
            }
            let mut state = shard.state.write();
            let own = |&slot: &u32| state.slab[slot].creator == client && state.slab[slot].started() <= until;
            let slots: Vec<u32> = state.unfinished.iter(&state.slab).filter(own).collect();
            for slot in slots {
                self.discard(&mut state, slot, now, effects);
            }
        }
        if end < SHARDS {
            self.chores.lock().dead_writers.push_front(DeadWriter { next_shard: end, ..writer });
        }
        true
    }

    fn discard(&self, state: &mut ShardState, slot: u32, now: MonotonicTime, effects: &mut Effects) {
        if self.drop_lost_replicas(state, slot, now) {
            let entry = &state.slab[slot];
            let word = self.hash(entry.tenant, entry.key.as_slice()).word;
            let gone = self.gone_write(entry, word, ErrorCode::OBJECT_NOT_FOUND);
            state.overtaken.add(gone, now);
            let until = if planted(Fault::FreeOfDeadWriter) { now } else { gone.until };
            self.erase(state, slot, Leave::Unfinished { until, revoked: false }, now, effects);
        }
    }

    /// Forgets some of the replicas that a lost segment held. Costs what the segment held, whatever else is stored.
    fn sweep_step(&self, now: MonotonicTime) -> bool {
        let Some(Sweep { segment, next }) = self.chores.lock().sweeps.pop_front() else { return false };
        let mut found = Vec::with_capacity(SWEEP_CHUNK as usize);
        let next = segment.scan(next, SWEEP_CHUNK, &mut found);
        for owned in found {
            let (shard, slot) = ((owned.owner >> 32) as usize, owned.owner as u32);
            let Some(shard) = self.shards.get(shard) else { continue };
            let mut state = shard.state.write();
            if state.slab.get(slot).is_some() {
                self.drop_lost_replicas(&mut state, slot, now);
            }
        }
        self.evictor.relieve();
        match next {
            Some(next) => self.chores.lock().sweeps.push_front(Sweep { segment, next }),
            None => {
                segment.abandon_withheld().for_each(|withheld| self.is_quiet(withheld));
                let mut registry = self.segments.registry();
                self.segments.forget(&mut registry, &segment);
                drop(registry);
                self.settle_stand_ins(now);
            }
        }
        true
    }
}
