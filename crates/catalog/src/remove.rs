//! Removing objects that are readable.
//!
//! A lease stops a removal that is not forced. A forced one takes the key away at once, and the space when the lease of
//! that generation has ended or the longest read is over ([`yb_types::READ_LIMIT`]), so that nobody who still reads sees
//! other bytes.

use smallvec::SmallVec;
use yb_types::{ErrorCode, MonotonicTime};

use crate::catalog::{Caller, Catalog, Leave};
use crate::departed::Absence;
use crate::effects::Effects;
use crate::entry::{Entry, Replica};
use crate::frees::Frees;
use crate::key::{KeyHash, Tenant};
use crate::lookup::GROUP;
use crate::planted::{Fault, planted};
use crate::shard::ShardState;

/// Whether leases count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Force {
    /// A lease protects.
    No,
    /// Removed all the same.
    Yes,
}

impl From<bool> for Force {
    fn from(force: bool) -> Self {
        if force { Force::Yes } else { Force::No }
    }
}

/// What became of objects that were to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// Objects removed.
    pub removed: u64,
    /// Objects that stayed because of a read lease.
    pub leased: u64,
    /// Objects that stayed because somebody writes, copies or uses them.
    pub busy: u64,
}

impl Removal {
    /// Counts one object. One that is not there counts nowhere.
    pub(crate) fn count(&mut self, answer: Result<(), ErrorCode>) {
        match answer {
            Ok(()) => self.removed += 1,
            Err(ErrorCode::OBJECT_NOT_FOUND) => {}
            Err(ErrorCode::OBJECT_HAS_LEASE) => self.leased += 1,
            Err(_) => self.busy += 1,
        }
    }

    pub(crate) fn add(&mut self, other: Removal) {
        self.removed += other.removed;
        self.leased += other.leased;
        self.busy += other.busy;
    }
}

impl Catalog {
    /// Removes keys. `sink` gets one result a key, in order: OBJECT_NOT_FOUND, OBJECT_HAS_LEASE,
    /// REPLICA_IS_NOT_READY for a key that is being written, also with force.
    pub fn remove<K: AsRef<[u8]>>(
        &self,
        tenant: Tenant,
        keys: impl IntoIterator<Item = K>,
        force: Force,
        now: MonotonicTime,
        mut sink: impl FnMut(usize, Result<(), ErrorCode>),
    ) {
        let (mut keys, mut at) = (keys.into_iter(), 0);
        // One object has nobody to come free together with.
        let mut frees = (keys.size_hint() != (1, Some(1))).then(|| Frees::new(&self.departed));
        loop {
            let hashed = |key: K| (self.hash(tenant, key.as_ref()), key);
            let group: SmallVec<[(KeyHash, K); GROUP]> = keys.by_ref().take(GROUP).map(hashed).collect();
            if group.is_empty() {
                break;
            }
            self.foresee_writes(group.iter().map(|(hash, _)| *hash));
            for (hash, key) in group {
                sink(at, self.remove_one(tenant, (hash, key.as_ref()), force, now, frees.as_mut()));
                at += 1;
            }
        }
        self.evictor.relieve();
    }

    fn remove_one(
        &self,
        tenant: Tenant,
        (hash, key): (KeyHash, &[u8]),
        force: Force,
        now: MonotonicTime,
        frees: Option<&mut Frees<'_>>,
    ) -> Result<(), ErrorCode> {
        let mut state = self.shards[hash.shard].state.write();
        let Some(slot) = self.find_live(&mut state, tenant, hash, key, now) else {
            if self.relearning.is_open() {
                self.relearning.note(hash.whole);
            }
            return self.remove_cold(&mut state, (tenant, hash, key), force, now);
        };
        may_remove(&state.slab[slot], force, now)?;
        self.take_out(&mut state, slot, hash, now, frees);
        Ok(())
    }

    /// Gives up replicas that the caller itself wrote and that nobody has a lease on: all of an object, or those in the
    /// segments of a name. `sink` gets for each key, in order, whether something went.
    pub fn clear_replicas<K: AsRef<[u8]>>(
        &self,
        caller: &Caller,
        segment: Option<&str>,
        keys: impl IntoIterator<Item = K>,
        mut sink: impl FnMut(usize, bool),
    ) {
        for (at, key) in keys.into_iter().enumerate() {
            sink(at, self.clear_replicas_of(caller, segment, key.as_ref()).is_some());
        }
        self.evictor.relieve();
    }

    /// Removes a readable object wherever it lies. With `frees` its space comes free with that of others.
    pub(crate) fn take_out(
        &self,
        state: &mut ShardState,
        slot: u32,
        hash: KeyHash,
        now: MonotonicTime,
        frees: Option<&mut Frees<'_>>,
    ) {
        if !state.shelf.is_empty() {
            let shard = &mut *state;
            let entry = &shard.slab[slot];
            shard.shelf.remove(entry.tenant, hash.word, entry.key.as_slice());
        }
        match frees {
            Some(frees) => {
                frees.removed(hash);
                self.erase_gathering(state, slot, hash, now, frees);
            }
            None => {
                self.departed.note(hash, Absence::Removed);
                self.erase(state, slot, Leave::Readable, now, &mut Effects::default());
            }
        }
    }

    /// Removes a key that lies on disks only.
    fn remove_cold(
        &self,
        state: &mut ShardState,
        (tenant, hash, key): (Tenant, KeyHash, &[u8]),
        force: Force,
        now: MonotonicTime,
    ) -> Result<(), ErrorCode> {
        let record = state.shelf.get(tenant, hash.word, key).filter(|record| !record.copies.is_empty());
        let record = record.ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        if force == Force::No && record.lease_end() > now {
            return Err(ErrorCode::OBJECT_HAS_LEASE);
        }
        state.shelf.remove(tenant, hash.word, key);
        self.departed.note(hash, Absence::Removed);
        Ok(())
    }

    /// `None` when nothing was done.
    fn clear_replicas_of(&self, caller: &Caller, segment: Option<&str>, key: &[u8]) -> Option<()> {
        let Caller { tenant, client, now } = *caller;
        let hash = self.hash(tenant, key);
        let mut state = self.shards[hash.shard].state.write();
        let slot = self.find_live(&mut state, tenant, hash, key, now)?;
        let entry = &state.slab[slot];
        if entry.creator != client || may_remove(entry, Force::No, now).is_err() {
            return None;
        }
        let table = self.segments.load();
        let goes = |replica: &Replica| {
            segment.is_none_or(|name| table.live(replica.segment).is_some_and(|segment| segment.info().name == name))
        };
        let (going, all) =
            (entry.replicas.as_slice().iter().filter(|r| goes(r)).count(), entry.replicas.as_slice().len());
        if going == all && segment.is_none() {
            self.take_out(&mut state, slot, hash, now, None);
        } else if going == all {
            self.departs(&state, slot, Absence::Removed);
            self.erase(&mut state, slot, Leave::Readable, now, &mut Effects::default());
        } else {
            self.drop_replicas(&mut state, slot, Leave::Readable, now, goes, &mut Effects::default());
        }
        (going > 0).then_some(())
    }
}

pub(crate) fn may_remove(entry: &Entry, force: Force, now: MonotonicTime) -> Result<(), ErrorCode> {
    if !entry.is_finished() {
        return Err(ErrorCode::REPLICA_IS_NOT_READY);
    }
    if force == Force::No && entry.kept_until() > now && !planted(Fault::RemoveUnderLease) {
        return Err(ErrorCode::OBJECT_HAS_LEASE);
    }
    let is_written = entry.replicas.as_slice().iter().any(|replica| !replica.is_complete());
    if is_written || entry.successor().is_some() {
        return Err(ErrorCode::REPLICA_IS_NOT_READY);
    }
    if entry.extras().is_some_and(|extras| extras.is_copied()) {
        return Err(ErrorCode::OBJECT_HAS_REPLICATION_TASK);
    }
    if entry.is_referenced() {
        return Err(ErrorCode::OBJECT_REPLICA_BUSY);
    }
    Ok(())
}
