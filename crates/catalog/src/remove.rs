//! Removing objects that are readable.
//!
//! A lease stops a removal that is not forced. A forced one takes the key away at once, and the space when the lease of
//! that generation has ended, so that nobody who still reads sees other bytes.

use yb_types::{ErrorCode, MonotonicTime};

use crate::catalog::{Catalog, Leave};
use crate::departed::Absence;
use crate::effects::Effects;
use crate::entry::Entry;
use crate::key::Tenant;
use crate::lookup::KeyPattern;
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
        for (at, key) in keys.into_iter().enumerate() {
            sink(at, self.remove_one(tenant, key.as_ref(), force, now));
        }
        self.evictor.relieve();
    }

    fn remove_one(&self, tenant: Tenant, key: &[u8], force: Force, now: MonotonicTime) -> Result<(), ErrorCode> {
        let hash = self.hash(tenant, key);
        let mut state = self.shards[hash.shard].state.write();
        let slot = self.find_live(&mut state, tenant, hash, key, now).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        may_remove(&state.slab[slot], force, now)?;
        self.departs(&state, slot, Absence::Removed);
        self.erase(&mut state, slot, Leave::Readable, now, &mut Effects::default());
        Ok(())
    }

    /// Removes what matches; what may not be removed is passed over. Answers how many objects went. Walks over all
    /// keys, one shard at a time: not for a thread that serves requests.
    pub fn remove_by_regex(&self, tenant: Tenant, pattern: &KeyPattern, force: Force, now: MonotonicTime) -> u64 {
        self.remove_where(force, now, |entry| entry.tenant == tenant && pattern.matches(entry))
    }

    fn remove_where(&self, force: Force, now: MonotonicTime, wanted: impl Fn(&Entry) -> bool) -> u64 {
        let mut removed = 0;
        for shard in &self.shards {
            self.evictor.relieve();
            let mut state = shard.state.write();
            for slot in slots_where(&state, |entry| wanted(entry) && may_remove(entry, force, now).is_ok()) {
                if self.drop_lost_replicas(&mut state, slot, now) {
                    self.departs(&state, slot, Absence::Removed);
                    self.erase(&mut state, slot, Leave::Readable, now, &mut Effects::default());
                    removed += 1;
                }
            }
        }
        removed
    }
}

pub(crate) fn may_remove(entry: &Entry, force: Force, now: MonotonicTime) -> Result<(), ErrorCode> {
    if !entry.is_finished() {
        return Err(ErrorCode::REPLICA_IS_NOT_READY);
    }
    if force == Force::No && entry.kept_until() > now {
        return Err(ErrorCode::OBJECT_HAS_LEASE);
    }
    if entry.successor().is_some() {
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

fn slots_where(state: &ShardState, wanted: impl Fn(&Entry) -> bool) -> Vec<u32> {
    state.slots().filter(|&slot| wanted(&state.slab[slot])).collect()
}
