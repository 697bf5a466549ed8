//! Publishing: `PutEnd` and `UpsertEnd` make an object readable whose bytes have arrived; a revoke gives the write up.
//!
//! An upsert is switched to here: the new object takes the place of the old one under the lock of their shard, so a
//! reader gets the one or the other as a whole. The space of the old one is withheld until its leases have ended.

use smallvec::SmallVec;
use yb_types::{ErrorCode, MonotonicTime, ReplicaType};

use crate::catalog::{Caller, Catalog, Leave};
use crate::effects::Effects;
use crate::entry::flag;
use crate::evict::Newcomers;
use crate::key::KeyHash;
use crate::lookup::GROUP;
use crate::planted::{Fault, planted};
use crate::shard::ShardState;
use crate::shares;
use crate::view::ObjectView;

impl Catalog {
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
        let mut ending = Ending { newcomers: Newcomers::new(&self.evictor, caller), filled: 0 };
        let (mut items, mut at) = (items.into_iter(), 0);
        loop {
            let hashed = |(key, checksum): (K, _)| (self.hash(caller.tenant, key.as_ref()), key, checksum);
            let group: SmallVec<[(KeyHash, K, _); GROUP]> = items.by_ref().take(GROUP).map(hashed).collect();
            if group.is_empty() {
                break;
            }
            self.foresee_writes(group.iter().map(|(hash, ..)| *hash));
            for (hash, key, checksum) in group {
                sink(at, self.end_one(caller, which, (hash, key.as_ref(), checksum), &mut ending));
                at += 1;
            }
        }
        self.shares.sub(self.shares.account(caller.client), ending.filled);
        ending.newcomers.announce();
    }

    fn end_one(
        &self,
        caller: &Caller,
        which: ReplicaType,
        (hash, key, checksum): (KeyHash, &[u8], Option<u64>),
        ending: &mut Ending<'_>,
    ) -> Result<(), ErrorCode> {
        let mut state = self.shards[hash.shard].state.write();
        match self.find_own(&mut state, caller, hash, key)? {
            Own::Write(slot) if selects_memory(which) => {
                ending.filled += self.make_readable(&mut state, slot, hash, caller.now, checksum);
                ending.newcomers.add(hash, slot, &state.slab[slot]);
                Ok(())
            }
            Own::Object if !selects_memory(which) => Err(ErrorCode::INVALID_WRITE),
            Own::Write(_) | Own::Object => Ok(()),
        }
    }

    /// The moment from which on readers get these bytes, and no others of the key. Answers what its writer has less of
    /// among its unfinished writes, see [`shares`].
    pub(crate) fn make_readable(
        &self,
        state: &mut ShardState,
        slot: u32,
        hash: KeyHash,
        now: MonotonicTime,
        checksum: Option<u64>,
    ) -> u64 {
        let weight = shares::weight(&state.slab[slot]);
        if let Some(replaced) = state.slab[slot].extras().and_then(|extras| extras.predecessor) {
            self.erase(state, replaced, Leave::Readable, now, &mut Effects::default());
        }
        state.finish(slot, now, checksum);
        if state.slab[slot].has(flag::GROUPED)
            && let Some(membership) = &mut state.slab[slot].extras_mut().group
        {
            self.groups.join(membership, hash.member(slot));
        }
        self.overtake_disk(state, slot, hash, now);
        if self.segments.is_any_fed() {
            self.mention(state, hash.member(slot), slot);
        }
        weight
    }

    /// Gives up puts. Their space stays out of use until the release timeout, or until its node confirms that the
    /// writer is done, see [`Effects::quiesce`]. `sink` gets one result a key, in order: OBJECT_NOT_FOUND,
    /// ILLEGAL_CLIENT for anyone but the creator, INVALID_WRITE when the put has ended.
    pub fn put_revoke<K: AsRef<[u8]>>(
        &self,
        caller: &Caller,
        which: ReplicaType,
        keys: impl IntoIterator<Item = K>,
        effects: &mut Effects,
        mut sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        for (at, key) in keys.into_iter().enumerate() {
            let until = |started| match planted(Fault::FreeOnRevoke) {
                true => caller.now,
                false => started + self.settings.release_timeout,
            };
            sink(at, self.revoke_one(caller, which, key.as_ref(), until, effects));
        }
    }

    /// As [`Catalog::put_revoke`], from a writer that knows that nothing of the puts is in flight any more: their
    /// space is free at once.
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
        let Own::Write(slot) = self.find_own(&mut state, caller, hash, key)? else {
            return Err(ErrorCode::INVALID_WRITE);
        };
        if selects_memory(which) {
            let until = until(state.slab[slot].started());
            self.erase(&mut state, slot, Leave::Unfinished { until, revoked: true }, caller.now, effects);
        }
        Ok(())
    }

    /// Shows the write that the caller has under way under a key: to answer a start again.
    pub fn open_write<R>(&self, caller: &Caller, key: &[u8], show: impl FnOnce(Option<ObjectView<'_>>) -> R) -> R {
        let hash = self.hash(caller.tenant, key);
        let state = self.shards[hash.shard].state.read();
        let table = self.segments.load();
        let write = state.find(caller.tenant, hash.word, key).and_then(|slot| state.write_under_way(slot));
        let own = write.map(|slot| &state.slab[slot]).filter(|entry| entry.creator == caller.client);
        show(own.map(|entry| ObjectView::whole(entry, &table)))
    }

    /// What the caller has under a key: the write that it has under way, or the object that it wrote.
    fn find_own(&self, state: &mut ShardState, caller: &Caller, hash: KeyHash, key: &[u8]) -> Result<Own, ErrorCode> {
        let Caller { tenant, client, now } = *caller;
        let mut found = self.find_live(state, tenant, hash, key, now);
        let write = found.and_then(|slot| state.write_under_way(slot));
        if let Some(write) = write.filter(|&write| state.slab[write].creator == client || planted(Fault::EndForAnybody))
        {
            if found == Some(write) || self.drop_lost_replicas(state, write, now) {
                return Ok(Own::Write(write));
            }
            found = self.find_live(state, tenant, hash, key, now);
        }
        let gone = state.overtaken.settle(hash.word, client, now);
        let slot = found.ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        if let Some(answer) = gone {
            return Err(answer);
        }
        let entry = &state.slab[slot];
        if !entry.is_finished() || entry.creator != client {
            return Err(ErrorCode::ILLEGAL_CLIENT);
        }
        Ok(Own::Object)
    }
}

/// What the ends of a batch do together.
struct Ending<'a> {
    newcomers: Newcomers<'a>,
    /// What the unfinished writes counted for that have ended.
    filled: u64,
}

/// What a client has under a key.
enum Own {
    /// The slot of a write that it has neither ended nor revoked.
    Write(u32),
    /// A readable object that it wrote.
    Object,
}

/// Whether the selector covers memory replicas, the only kind there is so far.
fn selects_memory(which: ReplicaType) -> bool {
    which == ReplicaType::ALL || which == ReplicaType::MEMORY
}
