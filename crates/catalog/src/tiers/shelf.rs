//! What lies on disks, of one shard's keys. Guarded by the shard's lock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;
use smallvec::SmallVec;
use yb_types::{ClientId, MonotonicTime, ReplicaId};

use super::disk::{Disk, InFlight};
use crate::groups::LeaseGrant;
use crate::key::{KeyHash, Tenant};

/// A copy on a client's disk. Dropping it gives its bytes back to the disk's account.
#[derive(Debug)]
pub(crate) struct DiskCopy {
    pub id: ReplicaId,
    pub disk: Arc<Disk>,
    /// Where the owner answers readers.
    pub endpoint: Box<str>,
    size: u64,
}

impl DiskCopy {
    pub fn new(id: u64, disk: &Arc<Disk>, endpoint: &str, size: u64) -> Self {
        disk.used.fetch_add(size, Ordering::Relaxed);
        DiskCopy { id: ReplicaId(id), disk: Arc::clone(disk), endpoint: endpoint.into(), size }
    }
}

impl Drop for DiskCopy {
    fn drop(&mut self) {
        self.disk.used.fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// The mark of an offload.
#[derive(Debug)]
pub(crate) struct Offload {
    pub disk: Arc<Disk>,
    /// The owner was told and may be writing.
    pub handed: bool,
}

/// The mark of a promotion.
#[derive(Debug)]
pub(crate) struct Promotion {
    /// Who loads.
    pub holder: ClientId,
    /// The generation of the memory that is being filled.
    pub staged: Option<u64>,
    /// It must have ended by then.
    pub until: MonotonicTime,
    pub _counted: InFlight,
}

/// One write that lies on disks, or is on its way.
#[derive(Debug)]
pub(crate) struct Record {
    word: u32,
    pub tenant: Tenant,
    pub key: Box<[u8]>,
    pub size: u64,
    /// Which write.
    pub generation: u64,
    pub checksum: Option<u64>,
    pub data_type: u8,
    lease: AtomicU64,
    pub copies: SmallVec<[DiskCopy; 1]>,
    pub offload: Option<Offload>,
    pub promotion: Option<Promotion>,
}

/// What a record is made of.
pub(crate) struct Write<'a> {
    pub word: u32,
    pub tenant: Tenant,
    pub key: &'a [u8],
    pub size: u64,
    pub generation: u64,
    pub checksum: Option<u64>,
    pub data_type: u8,
}

impl Record {
    fn new(write: &Write<'_>) -> Self {
        Record {
            word: write.word,
            tenant: write.tenant,
            key: write.key.into(),
            size: write.size,
            generation: write.generation,
            checksum: write.checksum,
            data_type: write.data_type,
            lease: AtomicU64::new(0),
            copies: SmallVec::new(),
            offload: None,
            promotion: None,
        }
    }

    /// The copies that can be read now.
    pub fn readable(&self) -> impl Iterator<Item = &DiskCopy> {
        self.copies.iter().filter(|copy| copy.disk.is_alive())
    }

    pub fn is_readable(&self) -> bool {
        self.readable().next().is_some()
    }

    pub fn lease_end(&self) -> MonotonicTime {
        MonotonicTime(self.lease.load(Ordering::Relaxed))
    }

    /// Grants a lease to a reader; works under a shared lock.
    pub fn read(&self, grant: LeaseGrant) {
        self.lease.fetch_max(grant.until.0, Ordering::Relaxed);
    }

    /// Whether it says nothing any more.
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty() && self.offload.is_none() && self.promotion.is_none()
    }

    pub fn copy_of(&self, owner: ClientId) -> Option<&DiskCopy> {
        self.copies.iter().find(|copy| copy.disk.owner == owner)
    }

    pub fn word(&self) -> u32 {
        self.word
    }
}

/// Old bytes that a client has, or may yet report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tombstone {
    /// Two keys with one hash share it: then a copy is not taken up, which costs a load later.
    word: u32,
    owner: ClientId,
}

/// Tombstones of a shard: a million of a master.
const TOMBSTONES: usize = 1024;

/// The records of one shard, and the tombstones.
#[derive(Default)]
pub(crate) struct Shelf {
    records: HashTable<Record>,
    tombstones: VecDeque<Tombstone>,
}

impl Shelf {
    pub const fn new() -> Self {
        Shelf { records: HashTable::new(), tombstones: VecDeque::new() }
    }

    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub fn get(&self, tenant: Tenant, word: u32, key: &[u8]) -> Option<&Record> {
        if self.records.is_empty() {
            return None;
        }
        self.records.find(u64::from(word), |record| record.tenant == tenant && *record.key == *key)
    }

    /// Whether a key can be read from a disk.
    pub fn has_readable(&self, tenant: Tenant, word: u32, key: &[u8]) -> bool {
        self.get(tenant, word, key).is_some_and(Record::is_readable)
    }

    pub fn get_mut(&mut self, tenant: Tenant, word: u32, key: &[u8]) -> Option<&mut Record> {
        self.records.find_mut(u64::from(word), |record| record.tenant == tenant && *record.key == *key)
    }

    /// The record of a write, made if it is missing. A record of another write is gone then.
    pub fn record(&mut self, write: &Write<'_>) -> &mut Record {
        if self.get(write.tenant, write.word, write.key).is_some_and(|record| record.generation != write.generation) {
            self.remove(write.tenant, write.word, write.key);
        }
        let found = self.records.entry(
            u64::from(write.word),
            |record| record.tenant == write.tenant && *record.key == *write.key,
            |record| u64::from(record.word),
        );
        found.or_insert_with(|| Record::new(write)).into_mut()
    }

    /// Takes a key's record away, because its bytes are not those of the key any more. Answers it.
    pub fn remove(&mut self, tenant: Tenant, word: u32, key: &[u8]) -> Option<Record> {
        let same = |record: &Record| record.tenant == tenant && *record.key == *key;
        let (record, _) = self.records.find_entry(u64::from(word), same).ok()?.remove();
        let owners = record.copies.iter().map(|copy| copy.disk.owner);
        let writers = record.offload.iter().filter(|offload| offload.handed).map(|offload| offload.disk.owner);
        for owner in owners.chain(writers) {
            self.bury(word, owner);
        }
        Some(record)
    }

    /// Takes a record away that says nothing any more.
    pub fn settle(&mut self, tenant: Tenant, word: u32, key: &[u8]) {
        let same = |record: &Record| record.tenant == tenant && *record.key == *key && record.is_empty();
        if let Ok(found) = self.records.find_entry(u64::from(word), same) {
            found.remove();
        }
    }

    /// What this client reports of the key from here on, or has of it, is old.
    pub fn bury(&mut self, word: u32, owner: ClientId) {
        let tombstone = Tombstone { word, owner };
        if self.tombstones.contains(&tombstone) {
            return;
        }
        if self.tombstones.len() == TOMBSTONES {
            self.tombstones.pop_front();
        }
        self.tombstones.push_back(tombstone);
    }

    pub fn is_buried(&self, word: u32, owner: ClientId) -> bool {
        self.tombstones.contains(&Tombstone { word, owner })
    }

    /// The client has the old bytes no more.
    pub fn unbury(&mut self, word: u32, owner: ClientId) {
        self.tombstones.retain(|stone| *stone != Tombstone { word, owner });
    }

    pub fn iter(&self) -> impl Iterator<Item = &Record> {
        self.records.iter()
    }

    /// Drops the copies that `is_gone` picks, and the records that say nothing then. Answers the keys whose offload is
    /// over thereby.
    pub fn sweep(
        &mut self,
        is_gone: impl Fn(&Disk) -> bool,
        hash: impl Fn(&Record) -> KeyHash,
    ) -> Vec<(Tenant, KeyHash, Box<[u8]>)> {
        let mut ended = Vec::new();
        self.records.retain(|record| {
            record.copies.retain(|copy| !is_gone(&copy.disk));
            if record.offload.take_if(|offload| is_gone(&offload.disk)).is_some() {
                ended.push((record.tenant, hash(record), record.key.clone()));
            }
            !record.is_empty()
        });
        ended
    }
}
