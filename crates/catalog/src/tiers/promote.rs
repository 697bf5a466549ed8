//! Objects on their way back from disks into memory.

use yb_types::{ClientId, ErrorCode, MonotonicTime, ReplicateConfig};

use super::disk::{Deadline, Task, Wish};
use super::offload::Errand;
use super::shelf::{Promotion, Record};
use super::sketch::retry_at;
use crate::catalog::{Caller, Catalog, Leave};
use crate::effects::{Effects, PutRefusal};
use crate::evict::Newcomers;
use crate::key::KeyHash;
use crate::placement::Random;
use crate::put::{Manner, PutCall};
use crate::shard::ShardState;
use crate::view::ObjectView;

/// Reads of objects on disks that are looked at later; more are forgotten.
const WISHES: usize = 50_000;
/// How often a wish that was refused is looked at again.
const TRIES: u32 = 8;
/// Wishes looked at in one step.
const WISHES_PER_STEP: usize = 128;

/// A client wants memory for an object that lies on its disk.
#[derive(Clone, Copy, Debug)]
pub struct PromotionCall<'a> {
    /// Who, for whom, when.
    pub caller: Caller,
    /// The key.
    pub key: &'a [u8],
    /// Bytes of the object.
    pub size: u64,
    /// Segment names to try first.
    pub preferred: &'a [String],
}

impl Catalog {
    /// An object that lies on disks only was read. What comes of it is decided later, outside of the lookup.
    pub(crate) fn wish_for(&self, record: &Record, hash: KeyHash, now: MonotonicTime) {
        if !self.settings.tiers.promotion_on_hit || record.promotion.is_some() {
            return;
        }
        let mut wishes = self.tiers.wishes.lock();
        let heard = wishes.len() < WISHES;
        self.counters.add(|c| if heard { &c.promotions_wished } else { &c.promotions_unheard }, 1);
        if heard {
            wishes.push_back(Wish { task: task_of(record, hash), tries: 0, not_before: now });
        }
    }

    /// Decides about some of the reads of objects that lie on disks only. Answers how many were looked at.
    pub(crate) fn grant_wishes(&self, now: MonotonicTime) -> usize {
        let most = self.tiers.wishes.lock().len().min(WISHES_PER_STEP);
        for _ in 0..most {
            let Some(mut wish) = self.tiers.wishes.lock().pop_front() else { break };
            if wish.not_before > now {
                self.tiers.wishes.lock().push_back(wish);
                continue;
            }
            let threshold = self.settings.tiers.promotion_admission_threshold;
            if wish.tries == 0 && self.tiers.sketch.lock().count(wish.task.hash.whole) < threshold {
                self.counters.add(|c| &c.promotions_cold, 1);
                continue;
            }
            if !self.try_promote(&wish.task, now) && wish.tries < TRIES {
                wish.not_before = retry_at(now, wish.tries);
                wish.tries += 1;
                self.tiers.wishes.lock().push_back(wish);
            }
        }
        most
    }

    /// Asks the owner of a copy to load it. `false`: not now.
    fn try_promote(&self, task: &Task, now: MonotonicTime) -> bool {
        let capacity = self.segments.capacity().0 as f64;
        if self.allocated().0 as f64 >= capacity * self.settings.eviction_high_watermark {
            self.counters.add(|c| &c.promotions_no_room, 1);
            return false;
        }
        let Some(counted) = self.tiers.begin_promotion(self.settings.tiers.promotion_queue_limit) else {
            self.counters.add(|c| &c.promotions_capped, 1);
            return false;
        };
        let mut state = self.shards[task.hash.shard].state.write();
        let is_hot = state.find(task.tenant, task.hash.word, &task.key).is_some();
        let Some(record) = state.shelf.get_mut(task.tenant, task.hash.word, &task.key) else { return true };
        if is_hot || record.generation != task.generation || record.promotion.is_some() {
            return true;
        }
        let Some(disk) = record.readable().next().map(|copy| std::sync::Arc::clone(&copy.disk)) else { return false };
        disk.boxes.lock().promote.push_back(task.clone());
        let until = self.expect_promotion(task.clone(), now);
        record.promotion = Some(Promotion { holder: disk.owner, staged: None, until, _counted: counted });
        self.counters.add(|c| &c.promotions_admitted, 1);
        true
    }

    /// Until when a promotion must have ended, or have made a step.
    fn expect_promotion(&self, task: Task, now: MonotonicTime) -> MonotonicTime {
        let at = now + self.settings.release_timeout;
        self.tiers.deadlines.lock().push_back(Deadline { at, task, promotion: true });
        at
    }

    /// What a client is to load now, a bounded number of objects.
    ///
    /// # Errors
    /// SEGMENT_NOT_FOUND for a client without a disk.
    pub fn promotion_heartbeat(&self, client: ClientId, now: MonotonicTime) -> Result<Vec<Errand>, ErrorCode> {
        let disk = self.tiers.disk(client).ok_or(ErrorCode::SEGMENT_NOT_FOUND)?;
        self.grant_wishes(now);
        let most = self.settings.tiers.promotion_max_per_heartbeat.max(1);
        let mut errands = Vec::new();
        while errands.len() < most {
            let Some(task) = disk.boxes.lock().promote.pop_front() else { break };
            let state = self.shards[task.hash.shard].state.read();
            let record = state.shelf.get(task.tenant, task.hash.word, &task.key);
            let waits = |record: &Record| {
                let promotion = record.promotion.as_ref();
                record.generation == task.generation
                    && promotion.is_some_and(|p| p.holder == client && p.staged.is_none())
            };
            if record.is_some_and(waits) {
                errands.push(Errand { tenant: task.tenant, key: task.key, size: task.size });
            }
        }
        Ok(errands)
    }

    /// A client that has an object on its disk is going to load it, although nobody asked it to.
    ///
    /// # Errors
    /// OBJECT_NOT_FOUND; PROMOTION_ALREADY_EXISTS when the object is in memory or on its way there; INVALID_PARAMS for a
    /// client that does not have it.
    pub fn register_prefetch(&self, caller: &Caller, key: &[u8]) -> Result<(), ErrorCode> {
        let hash = self.hash(caller.tenant, key);
        let mut state = self.shards[hash.shard].state.write();
        if self.find_live(&mut state, caller.tenant, hash, key, caller.now).is_some() {
            return Err(ErrorCode::PROMOTION_ALREADY_EXISTS);
        }
        let record = state.shelf.get_mut(caller.tenant, hash.word, key).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        if record.promotion.is_some() {
            return Err(ErrorCode::PROMOTION_ALREADY_EXISTS);
        }
        if record.copy_of(caller.client).is_none() {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        let counted = self.tiers.begin_promotion(self.settings.tiers.promotion_queue_limit);
        let counted = counted.ok_or(ErrorCode::KEYS_ULTRA_LIMIT)?;
        let until = self.expect_promotion(task_of(record, hash), caller.now);
        record.promotion = Some(Promotion { holder: caller.client, staged: None, until, _counted: counted });
        self.counters.add(|c| &c.promotions_admitted, 1);
        Ok(())
    }

    /// Takes memory for an object that its holder is going to load. Until the end of it, readers go to the disk. `sink` gets
    /// the object with its replica.
    ///
    /// # Errors
    /// OBJECT_NOT_FOUND; REPLICA_IS_NOT_READY when nobody wants the object loaded, it is in memory, or memory is taken
    /// already; INVALID_PARAMS for anyone but the holder, or another size; those of a put for quota and space.
    pub fn promotion_start(
        &self,
        call: &PromotionCall<'_>,
        random: &mut impl Random,
        effects: &mut Effects,
        mut sink: impl FnMut(ObjectView<'_>),
    ) -> Result<(), ErrorCode> {
        let (caller, hash) = (call.caller, self.hash(call.caller.tenant, call.key));
        let data_type = {
            let mut state = self.shards[hash.shard].state.write();
            let is_hot = self.find_live(&mut state, caller.tenant, hash, call.key, caller.now).is_some();
            may_stage(&state, call, hash, is_hot)?
        };
        let config = ReplicateConfig {
            preferred_segments: call.preferred.to_vec(),
            data_type: yb_types::ObjectDataType(data_type),
            ..ReplicateConfig::default()
        };
        let put = PutCall { caller, config: &config, allow_empty: true, waited: false };
        let (mut begun, mut staged) = (Err(PutRefusal::CatalogFull), None);
        self.write_start(
            &put,
            Manner::Promotion,
            [(call.key, call.size)].into_iter(),
            random,
            effects,
            &mut |_, answer| {
                begun = answer.map(|view| {
                    staged = Some(view.generation().0.get());
                    sink(view);
                });
            },
        );
        begun.map_err(|refusal| match refusal {
            PutRefusal::Busy | PutRefusal::Exists | PutRefusal::OwnWriteOpen => ErrorCode::REPLICA_IS_NOT_READY,
            refusal => refusal.code(),
        })?;
        let mut state = self.shards[hash.shard].state.write();
        let record = state.shelf.get_mut(caller.tenant, hash.word, call.key);
        let record = record.filter(|record| record.promotion.as_ref().is_some_and(|p| p.holder == caller.client));
        let Some(record) = record else {
            // Removed in between.
            self.drop_staged(&mut state, hash, call.key, caller, staged, effects);
            return Err(ErrorCode::OBJECT_NOT_FOUND);
        };
        let until = self.expect_promotion(task_of(record, hash), caller.now);
        if let Some(promotion) = &mut record.promotion {
            (promotion.staged, promotion.until) = (staged, until);
        }
        Ok(())
    }

    /// The holder loaded the object: it is read from memory from here on, under a lease for a start.
    ///
    /// # Errors
    /// OBJECT_NOT_FOUND; REPLICA_IS_NOT_READY when no memory was taken for it, or that was lost; INVALID_PARAMS for anyone
    /// but the holder.
    pub fn promotion_end(&self, caller: &Caller, key: &[u8]) -> Result<(), ErrorCode> {
        let hash = self.hash(caller.tenant, key);
        let mut state = self.shards[hash.shard].state.write();
        let live = self.find_live(&mut state, caller.tenant, hash, key, caller.now);
        let Some(record) = state.shelf.get_mut(caller.tenant, hash.word, key) else {
            return Err(if live.is_some() { ErrorCode::REPLICA_IS_NOT_READY } else { ErrorCode::OBJECT_NOT_FOUND });
        };
        let Some(promotion) = &record.promotion else { return Err(ErrorCode::REPLICA_IS_NOT_READY) };
        let Some(staged) = promotion.staged else { return Err(ErrorCode::REPLICA_IS_NOT_READY) };
        if promotion.holder != caller.client {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        let checksum = record.checksum;
        let Some(slot) = live.filter(|&slot| is_staged(&state, slot, staged)) else {
            if let Some(record) = state.shelf.get_mut(caller.tenant, hash.word, key) {
                record.promotion = None;
            }
            state.shelf.settle(caller.tenant, hash.word, key);
            return Err(ErrorCode::REPLICA_IS_NOT_READY);
        };
        let mut newcomers = Newcomers::new(&self.evictor, caller);
        let filled = self.make_readable(&mut state, slot, hash, caller.now, checksum);
        self.shares.sub(self.shares.account(state.slab[slot].creator), filled);
        state.slab[slot].grant(caller.now + self.settings.lease_ttl);
        newcomers.add(hash, slot, &state.slab[slot]);
        self.counters.add(|c| &c.promotions_completed, 1);
        self.counters.add(|c| &c.promotions_completed_bytes, state.slab[slot].size);
        drop(state);
        newcomers.announce();
        Ok(())
    }

    /// The holder could not load the object, or gave up.
    ///
    /// # Errors
    /// OBJECT_NOT_FOUND; INVALID_PARAMS for anyone but the holder.
    pub fn promotion_failed(&self, caller: &Caller, key: &[u8], effects: &mut Effects) -> Result<(), ErrorCode> {
        let hash = self.hash(caller.tenant, key);
        let mut state = self.shards[hash.shard].state.write();
        let Some(record) = state.shelf.get_mut(caller.tenant, hash.word, key) else {
            let is_hot = state.find(caller.tenant, hash.word, key).is_some();
            return if is_hot { Ok(()) } else { Err(ErrorCode::OBJECT_NOT_FOUND) };
        };
        match &record.promotion {
            None => return Ok(()),
            Some(promotion) if promotion.holder != caller.client => return Err(ErrorCode::INVALID_PARAMS),
            Some(_) => {}
        }
        self.counters.add(|c| &c.promotions_failed, 1);
        let staged = record.promotion.take().and_then(|promotion| promotion.staged);
        state.shelf.settle(caller.tenant, hash.word, key);
        self.drop_staged(&mut state, hash, key, *caller, staged, effects);
        Ok(())
    }

    /// Gives memory up that was taken for a promotion; its holder begins no further transfer.
    fn drop_staged(
        &self,
        state: &mut ShardState,
        hash: KeyHash,
        key: &[u8],
        caller: Caller,
        staged: Option<u64>,
        effects: &mut Effects,
    ) {
        let slot = state.find(caller.tenant, hash.word, key);
        if let Some(slot) = slot.filter(|&slot| staged.is_some_and(|staged| is_staged(state, slot, staged))) {
            let until = state.slab[slot].started() + self.settings.release_timeout;
            self.erase(state, slot, Leave::Unfinished { until, revoked: true }, caller.now, effects);
        }
    }

    /// Takes the mark of a promotion away that nobody ended; the memory goes as that of any write that is given up.
    pub(super) fn unmark_promotion(&self, state: &mut ShardState, task: &Task, now: MonotonicTime) {
        let Some(record) = state.shelf.get_mut(task.tenant, task.hash.word, &task.key) else { return };
        let is_due = record.promotion.as_ref().is_some_and(|promotion| promotion.until <= now);
        if record.generation == task.generation && is_due {
            self.counters.add(|c| &c.promotions_expired, 1);
            record.promotion = None;
            state.shelf.settle(task.tenant, task.hash.word, &task.key);
        }
    }
}

/// Whether memory may be taken; answers what the bytes are.
fn may_stage(state: &ShardState, call: &PromotionCall<'_>, hash: KeyHash, is_hot: bool) -> Result<u8, ErrorCode> {
    let Some(record) = state.shelf.get(call.caller.tenant, hash.word, call.key) else {
        return Err(if is_hot { ErrorCode::REPLICA_IS_NOT_READY } else { ErrorCode::OBJECT_NOT_FOUND });
    };
    match &record.promotion {
        Some(promotion) if !is_hot && promotion.staged.is_none() => {
            let is_right = promotion.holder == call.caller.client && record.size == call.size;
            if is_right { Ok(record.data_type) } else { Err(ErrorCode::INVALID_PARAMS) }
        }
        _ => Err(ErrorCode::REPLICA_IS_NOT_READY),
    }
}

fn is_staged(state: &ShardState, slot: u32, staged: u64) -> bool {
    let entry = &state.slab[slot];
    !entry.is_finished() && entry.generation().0.get() == staged
}

fn task_of(record: &Record, hash: KeyHash) -> Task {
    let Record { tenant, size, generation, .. } = *record;
    Task { hash, tenant, key: record.key.clone(), size, generation }
}
