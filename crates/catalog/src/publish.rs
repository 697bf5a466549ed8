//! Publishing: `PutEnd` and `UpsertEnd` make an object readable whose bytes have arrived; a revoke gives the write up.
//!
//! An upsert is switched to here: the new object takes the place of the old one under the lock of their shard, so a
//! reader gets the one or the other as a whole. The space of the old one is withheld until its leases have ended.

use smallvec::SmallVec;
use yb_types::{ErrorCode, MonotonicTime, ReplicaId, ReplicaType};

use crate::catalog::{Caller, Catalog, Leave};
use crate::effects::Effects;
use crate::entry::{Entry, flag};
use crate::evict::Newcomers;
use crate::key::KeyHash;
use crate::lookup::GROUP;
use crate::naming::{AnyWrite, Naming};
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
        sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        let items = items.into_iter().map(|(key, checksum)| (key, AnyWrite, checksum));
        self.end_all(caller, which, items, sink);
    }

    /// As [`Catalog::put_end`], of just these writes. `items`: key, the first of the replicas that the start was answered
    /// with, checksum. A write that is gone is answered OBJECT_NOT_FOUND, or ILLEGAL_CLIENT where another client has the
    /// key, whatever else the caller has there by now: that does not change.
    pub fn end_writes<K: AsRef<[u8]>>(
        &self,
        caller: &Caller,
        which: ReplicaType,
        items: impl IntoIterator<Item = (K, ReplicaId, Option<u64>)>,
        sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        self.end_all(caller, which, items.into_iter(), sink);
    }

    fn end_all<K: AsRef<[u8]>, N: Naming>(
        &self,
        caller: &Caller,
        which: ReplicaType,
        mut items: impl Iterator<Item = (K, N, Option<u64>)>,
        mut sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        let mut ending = Ending { newcomers: Newcomers::new(&self.evictor, caller), filled: 0 };
        let mut at = 0;
        loop {
            let hashed = |(key, name, checksum): (K, N, _)| {
                let hash = self.hash(caller.tenant, key.as_ref());
                (hash, key, name, checksum)
            };
            let group: SmallVec<[(KeyHash, K, N, _); GROUP]> = items.by_ref().take(GROUP).map(hashed).collect();
            if group.is_empty() {
                break;
            }
            self.foresee_writes(group.iter().map(|(hash, ..)| *hash));
            for (hash, key, name, checksum) in group {
                let about = About { hash, key: key.as_ref(), name };
                sink(at, self.end_one(caller, which, (about, checksum), &mut ending));
                at += 1;
            }
        }
        self.shares.sub(self.shares.account(caller.client), ending.filled);
        ending.newcomers.announce();
    }

    fn end_one<N: Naming>(
        &self,
        caller: &Caller,
        which: ReplicaType,
        (about, checksum): (About<'_, N>, Option<u64>),
        ending: &mut Ending<'_>,
    ) -> Result<(), ErrorCode> {
        let hash = about.hash;
        let mut state = self.shards[hash.shard].state.write();
        match self.find_own(&mut state, caller, about)? {
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
        sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        self.revoke_all((caller, which, Quiet::No), keys.into_iter().map(|key| (key, AnyWrite)), effects, sink);
    }

    /// As [`Catalog::put_revoke`], from a writer that knows that nothing of the puts is in flight any more: their
    /// space is free at once.
    pub fn put_revoke_quiet<K: AsRef<[u8]>>(
        &self,
        caller: &Caller,
        which: ReplicaType,
        keys: impl IntoIterator<Item = K>,
        sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        let keys = keys.into_iter().map(|key| (key, AnyWrite));
        self.revoke_all((caller, which, Quiet::Yes), keys, &mut Effects::default(), sink);
    }

    /// As [`Catalog::put_revoke`] and [`Catalog::put_revoke_quiet`], of just these writes. `writes`: key, and the first of
    /// the replicas that the start was answered with. A write that is gone is answered as by [`Catalog::end_writes`].
    pub fn revoke_writes<K: AsRef<[u8]>>(
        &self,
        caller: &Caller,
        (which, quiet): (ReplicaType, Quiet),
        writes: impl IntoIterator<Item = (K, ReplicaId)>,
        effects: &mut Effects,
        sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        self.revoke_all((caller, which, quiet), writes.into_iter(), effects, sink);
    }

    fn revoke_all<K: AsRef<[u8]>, N: Naming>(
        &self,
        (caller, which, quiet): (&Caller, ReplicaType, Quiet),
        writes: impl Iterator<Item = (K, N)>,
        effects: &mut Effects,
        mut sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        for (at, (key, name)) in writes.enumerate() {
            let key = key.as_ref();
            let about = About { hash: self.hash(caller.tenant, key), key, name };
            sink(at, self.revoke_one((caller, which, quiet), about, effects));
        }
    }

    fn revoke_one<N: Naming>(
        &self,
        (caller, which, quiet): (&Caller, ReplicaType, Quiet),
        about: About<'_, N>,
        effects: &mut Effects,
    ) -> Result<(), ErrorCode> {
        let mut state = self.shards[about.hash.shard].state.write();
        let Own::Write(slot) = self.find_own(&mut state, caller, about)? else {
            return Err(ErrorCode::INVALID_WRITE);
        };
        if selects_memory(which) {
            let is_free = quiet == Quiet::Yes || planted(Fault::FreeOnRevoke);
            let last = state.slab[slot].started() + self.settings.release_timeout;
            let until = if is_free { caller.now } else { last };
            let mut no_questions = Effects::default();
            let effects = if quiet == Quiet::Yes { &mut no_questions } else { effects };
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
    fn find_own<N: Naming>(
        &self,
        state: &mut ShardState,
        caller: &Caller,
        about: About<'_, N>,
    ) -> Result<Own, ErrorCode> {
        let Caller { tenant, client, now } = *caller;
        let About { hash, key, name } = about;
        let is_meant = |entry: &Entry| entry.creator == client && name.names(entry);
        let mut found = self.find_live(state, tenant, hash, key, now);
        let write = found.and_then(|slot| state.write_under_way(slot));
        if let Some(write) = write.filter(|&write| is_meant(&state.slab[write]) || planted(Fault::EndForAnybody)) {
            if found == Some(write) || self.drop_lost_replicas(state, write, now) {
                return Ok(Own::Write(write));
            }
            found = self.find_live(state, tenant, hash, key, now);
        }
        let gone = name.settle(&mut state.overtaken, (hash.word, client), now);
        let slot = found.ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        if let Some(answer) = gone {
            return Err(answer);
        }
        let entry = &state.slab[slot];
        if entry.creator != client {
            return Err(ErrorCode::ILLEGAL_CLIENT);
        }
        if !entry.is_finished() || !name.names(entry) {
            return Err(ErrorCode::OBJECT_NOT_FOUND);
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

/// Which write a request is about.
struct About<'k, N> {
    hash: KeyHash,
    key: &'k [u8],
    name: N,
}

/// Whether a writer knows that nothing of what it gives up is in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// It may be: the space rests.
    No,
    /// Nothing is: the space is free at once.
    Yes,
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
