//! Replicas whose bytes are not those that were written.

use yb_types::{ClientId, ErrorCode, MonotonicTime, ReplicaId, SegmentId};

use crate::catalog::{Catalog, Leave};
use crate::departed::Absence;
use crate::effects::Effects;
use crate::key::Tenant;

/// A replica as its readers know it.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaName<'k> {
    /// Whose key.
    pub tenant: Tenant,
    /// The object.
    pub key: &'k [u8],
    /// The replica's number, never given again.
    pub replica: ReplicaId,
    /// The checksum of the object, as its writer gave it.
    pub checksum: u64,
}

/// Where a replica lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaPlace {
    /// The segment.
    pub segment: SegmentId,
    /// Whose it is.
    pub owner: ClientId,
    /// Absolute address in the owner's process.
    pub address: u64,
    /// Bytes of the object.
    pub size: u64,
    /// The segment's name: the node's address, mostly.
    pub name: String,
}

impl Catalog {
    /// Where a readable replica lies; `None` when it is not there any more, or its object has another checksum.
    pub fn place_of(&self, name: &ReplicaName<'_>) -> Option<ReplicaPlace> {
        let mut place = None;
        self.peek(name.tenant, [name.key], |_, found| {
            let Some(view) = found.ok().filter(|view| view.checksum() == Some(name.checksum)) else { return };
            place = view.replicas().find(|replica| replica.id == name.replica).map(|replica| ReplicaPlace {
                segment: replica.segment.info().id,
                owner: replica.segment.owner(),
                address: replica.address,
                size: replica.size,
                name: replica.segment.info().name.clone(),
            });
        });
        place
    }

    /// Takes a replica away whose bytes are known to be bad; with the last one its object goes. Space comes free when the
    /// leases on it have ended.
    ///
    /// # Errors
    /// `OBJECT_NOT_FOUND` when it is not there; `OBJECT_REPLICA_BUSY` while the object is copied or moved.
    pub fn quarantine(
        &self,
        name: &ReplicaName<'_>,
        now: MonotonicTime,
        effects: &mut Effects,
    ) -> Result<(), ErrorCode> {
        let hash = self.hash(name.tenant, name.key);
        let mut state = self.shards[hash.shard].state.write();
        let slot = self.find_live(&mut state, name.tenant, hash, name.key, now).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        let entry = &state.slab[slot];
        let is_bad = |id: ReplicaId| id == name.replica;
        let replicas = entry.replicas.as_slice();
        let there = entry.is_finished() && replicas.iter().any(|replica| replica.is_complete() && is_bad(replica.id()));
        if !there || entry.checksum() != Some(name.checksum) {
            return Err(ErrorCode::OBJECT_NOT_FOUND);
        }
        if entry.is_referenced() || entry.extras().is_some_and(|extras| extras.is_copied()) {
            return Err(ErrorCode::OBJECT_REPLICA_BUSY);
        }
        if replicas.iter().all(|replica| is_bad(replica.id())) {
            self.departs(&state, slot, Absence::Lost);
            self.erase(&mut state, slot, Leave::Readable, now, effects);
            self.counters.add(|c| &c.lost_keys, 1);
        } else {
            let had = replicas.len();
            self.drop_replicas(&mut state, slot, Leave::Readable, now, |replica| is_bad(replica.id()), effects);
            self.note_loss(&state, slot, had);
        }
        Ok(())
    }
}
