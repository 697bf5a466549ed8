//! Objects on their way to disks, and what their owners say of them.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use yb_types::{ClientId, ErrorCode, MonotonicTime, ReplicaId, ReplicaType};

use super::disk::{Deadline, Disk, Task};
use super::shelf::{DiskCopy, Offload, Record, Write};
use crate::catalog::{Caller, Catalog, Leave};
use crate::departed::Absence;
use crate::effects::Effects;
use crate::entry::Entry;
use crate::key::{KeyHash, Tenant};
use crate::remove::{Force, Removal};
use crate::shard::ShardState;

/// Objects handed out in one answer: a client asks again after some seconds.
const ERRANDS_AT_ONCE: usize = 8192;
/// Bytes of keys in one answer.
const KEY_BYTES_AT_ONCE: usize = 4 << 20;

/// Something that a client is to do with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errand {
    /// Whose key.
    pub tenant: Tenant,
    /// The key.
    pub key: Box<[u8]>,
    /// Bytes of the object.
    pub size: u64,
}

/// What a client says of one object that it was to write down, or that it found on its disk.
#[derive(Clone, Copy, Debug)]
pub struct Offloaded<'a> {
    /// Whose key.
    pub tenant: Tenant,
    /// The key.
    pub key: &'a [u8],
    /// Bytes on its disk; `None`: it could not write them.
    pub size: Option<u64>,
    /// Where the client answers readers, `host:port`.
    pub endpoint: &'a str,
}

impl Catalog {
    /// Registers the disk of a client; repeating it only says whether objects may be offloaded there.
    ///
    /// # Errors
    /// UNABLE_OFFLOAD when the feature is off.
    pub fn mount_disk(&self, client: ClientId, enabled: bool) -> Result<(), ErrorCode> {
        if !self.settings.tiers.enable_offload {
            return Err(ErrorCode::UNABLE_OFFLOAD);
        }
        self.tiers.register(client, enabled);
        Ok(())
    }

    /// Takes the disk of a client away: what lies there is read no more from here on, and forgotten in steps.
    ///
    /// # Errors
    /// UNABLE_OFFLOAD when the feature is off.
    pub fn unmount_disk(&self, client: ClientId) -> Result<(), ErrorCode> {
        if !self.settings.tiers.enable_offload {
            return Err(ErrorCode::UNABLE_OFFLOAD);
        }
        self.tiers.remove(client);
        Ok(())
    }

    /// Bytes that the disk of a client has.
    ///
    /// # Errors
    /// INVALID_PARAMS when negative, SEGMENT_NOT_FOUND for a client without a disk.
    pub fn report_ssd(&self, client: ClientId, bytes: i64) -> Result<(), ErrorCode> {
        let capacity = u64::try_from(bytes).map_err(|_| ErrorCode::INVALID_PARAMS)?;
        let disk = self.tiers.disk(client).ok_or(ErrorCode::SEGMENT_NOT_FOUND)?;
        disk.capacity.store(capacity, Ordering::Relaxed);
        let used = i64::try_from(disk.used.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
        self.report_disk(client, bytes, used);
        Ok(())
    }

    /// Whether the client is to delete all its files; asking clears it.
    pub fn poll_remove_all(&self, client: ClientId) -> bool {
        self.tiers.disk(client).is_some_and(|disk| std::mem::take(&mut disk.boxes.lock().remove_all))
    }

    /// Registered disks, bytes of objects there, and bytes that they have.
    pub fn disk_totals(&self) -> (u64, u64, u64) {
        let sum = |of: fn(&Disk) -> u64| self.tiers.all().iter().map(|disk| of(disk)).sum::<u64>();
        (sum(|_| 1), sum(|d| d.used.load(Ordering::Relaxed)), sum(|d| d.capacity.load(Ordering::Relaxed)))
    }

    /// What a client is to write down now: a bounded number of objects, the rest with its next call. Says whether the
    /// client goes on offloading; if not, what waited is dropped.
    ///
    /// # Errors
    /// SEGMENT_NOT_FOUND for a client without a disk: it registers again and tells what it has.
    pub fn offload_heartbeat(&self, client: ClientId, enabled: bool) -> Result<Vec<Errand>, ErrorCode> {
        let disk = self.tiers.disk(client).ok_or(ErrorCode::SEGMENT_NOT_FOUND)?;
        let tasks: Vec<Task> = {
            let mut boxes = disk.boxes.lock();
            boxes.enabled = enabled;
            let mut bytes = 0;
            let fits = |task: &&Task| {
                bytes += task.key.len();
                bytes <= KEY_BYTES_AT_ONCE
            };
            let count = boxes.offload.iter().take(ERRANDS_AT_ONCE).take_while(fits).count();
            let count = if enabled { count } else { boxes.offload.len() };
            boxes.offload.drain(..count).collect()
        };
        let mut errands = Vec::with_capacity(if enabled { tasks.len() } else { 0 });
        for task in tasks {
            let mut state = self.shards[task.hash.shard].state.write();
            if !enabled {
                self.unmark_offload(&mut state, &task);
            } else if let Some(offload) = marked(&mut state, &task)
                && offload.disk.owner == client
            {
                offload.handed = true;
                errands.push(Errand { tenant: task.tenant, key: task.key, size: task.size });
            }
        }
        Ok(errands)
    }

    /// What a client wrote down, or found on its disk. A copy is taken up when it is certain that its bytes are those of the key:
    /// the mark of the offload says so, or no other write of the key is known. Everything else is passed over.
    ///
    /// # Errors
    /// SEGMENT_NOT_FOUND for a client without a disk.
    pub fn offloaded<'a>(
        &self,
        client: ClientId,
        items: impl IntoIterator<Item = Offloaded<'a>>,
    ) -> Result<(), ErrorCode> {
        let disk = self.tiers.disk(client);
        for item in items {
            let hash = self.hash(item.tenant, item.key);
            let mut state = self.shards[hash.shard].state.write();
            match (&disk, item.size) {
                (Some(disk), Some(size)) => self.take_up(&mut state, hash, &item, size, disk),
                (_, None) => self.give_up_offload(&mut state, hash, &item, client),
                (None, Some(_)) => {}
            }
        }
        disk.map(drop).ok_or(ErrorCode::SEGMENT_NOT_FOUND)
    }

    fn give_up_offload(&self, state: &mut ShardState, hash: KeyHash, item: &Offloaded<'_>, client: ClientId) {
        state.shelf.unbury(hash.word, client);
        let Some(record) = state.shelf.get_mut(item.tenant, hash.word, item.key) else { return };
        if record.offload.take_if(|offload| offload.disk.owner == client).is_some() {
            self.offload_ended(state, hash, item.tenant, item.key);
        }
    }

    fn take_up(&self, state: &mut ShardState, hash: KeyHash, item: &Offloaded<'_>, size: u64, disk: &Arc<Disk>) {
        let (tenant, word, key) = (item.tenant, hash.word, item.key);
        if state.shelf.is_buried(word, disk.owner) {
            self.counters.add(|c| &c.stale_disk_copies, 1);
            return;
        }
        let hot = state.find(tenant, word, key);
        let record = state.shelf.get_mut(tenant, word, key);
        let is_marked =
            record.as_ref().and_then(|record| record.offload.as_ref()).is_some_and(|o| o.disk.owner == disk.owner);
        let is_known = record.as_ref().is_some_and(|record| record.size == size && (is_marked || hot.is_none()));
        match record {
            Some(record) if is_known => {
                let id = self.next_id.0.fetch_add(1, Ordering::Relaxed);
                record.offload.take_if(|offload| offload.disk.owner == disk.owner);
                add_copy(record, id, disk, item.endpoint);
            }
            // Refreshes what is known already: a client that came back tells all it has.
            Some(record) if record.size == size && record.copy_of(disk.owner).is_some() => {
                let id = record.copy_of(disk.owner).map_or(0, |copy| copy.id.0);
                add_copy(record, id, disk, item.endpoint);
            }
            Some(_) => {
                self.counters.add(|c| &c.stale_disk_copies, 1);
                if is_marked {
                    self.give_up_offload(state, hash, item, disk.owner);
                }
            }
            // Nothing says that what was found on a disk has the bytes of the object that was written since.
            None if hot.is_some() || self.tenants.is_closed(tenant) => {
                self.counters.add(|c| &c.stale_disk_copies, 1);
            }
            None => {
                let generation = self.next_id.0.fetch_add(1, Ordering::Relaxed);
                let write = Write { word, tenant, key, size, generation, checksum: None, data_type: 0 };
                add_copy(state.shelf.record(&write), generation, disk, item.endpoint);
            }
        }
        if is_marked {
            self.offload_ended(state, hash, tenant, key);
        }
    }

    /// Queues an object for its owner's disk. Answers whether it is under way now.
    pub(crate) fn offload(&self, state: &mut ShardState, slot: u32, now: MonotonicTime) -> bool {
        let entry = &state.slab[slot];
        if entry.is_being_offloaded() {
            return true;
        }
        let hash = self.hash(entry.tenant, entry.key.as_slice());
        let Some(disk) = self.disk_for(entry) else { return false };
        let task = task_of(entry, hash);
        if disk.post(task.clone(), self.settings.tiers.offloading_queue_limit).is_err() {
            return false;
        }
        // Only now: a mark without an errand would keep the object for ever.
        let write = write_of(&state.slab[slot], hash.word);
        let generation = write.generation;
        let record = state.shelf.record(&write);
        debug_assert_eq!(record.generation, generation);
        record.offload = Some(Offload { disk, handed: false });
        let at = now + self.settings.release_timeout;
        self.tiers.deadlines.lock().push_back(Deadline { at, task, promotion: false });
        state.slab[slot].extras_mut().offloading = true;
        true
    }

    /// The disk of a client that holds a replica.
    fn disk_for(&self, entry: &Entry) -> Option<Arc<Disk>> {
        let table = self.segments.load();
        let readable = entry.replicas.as_slice().iter().filter(|replica| replica.is_complete());
        readable.filter_map(|replica| table.live(replica.segment)).find_map(|segment| self.tiers.disk(segment.owner()))
    }

    /// A write became readable: what disks have of the key is of another one, unless it came from there.
    pub(crate) fn overtake_disk(&self, state: &mut ShardState, slot: u32, hash: KeyHash, now: MonotonicTime) {
        let entry = &state.slab[slot];
        let (tenant, generation) = (entry.tenant, entry.generation().0.get());
        if !state.shelf.is_empty() {
            let shard = &mut *state;
            let key = shard.slab[slot].key.as_slice();
            let promoted = shard.shelf.get_mut(tenant, hash.word, key).filter(|record| {
                record.promotion.as_ref().is_some_and(|promotion| promotion.staged == Some(generation))
            });
            match promoted {
                Some(record) => {
                    record.generation = generation;
                    record.promotion = None;
                    return;
                }
                None => drop(shard.shelf.remove(tenant, hash.word, key)),
            }
        }
        if self.settings.tiers.enable_offload && !self.settings.tiers.offload_on_evict {
            self.offload(state, slot, now);
        }
    }

    /// Whether eviction is to wait for a disk first: the object is queued for one and stays until it is there. One that
    /// cannot be written down stays too, unless eviction is told to go on without.
    pub(crate) fn offload_first(&self, state: &mut ShardState, slot: u32, now: MonotonicTime) -> bool {
        let tiers = &self.settings.tiers;
        if !tiers.enable_offload || !tiers.offload_on_evict {
            return false;
        }
        let entry = &state.slab[slot];
        let word = self.hash(entry.tenant, entry.key.as_slice()).word;
        if state.shelf.get(entry.tenant, word, entry.key.as_slice()).is_some_and(Record::is_readable) {
            return false;
        }
        let cap = (tiers.offloading_queue_limit as f64 * tiers.offload_cap_ratio) as usize;
        if tiers.offload_force_evict && self.tiers.round.load(Ordering::Relaxed) >= cap {
            return false;
        }
        let queued = self.offload(state, slot, now);
        self.tiers.round.fetch_add(usize::from(queued), Ordering::Relaxed);
        queued || !tiers.offload_force_evict
    }

    /// Removes what lies on disks only, of a tenant or of all, in one shard. Answers what became of them; `None` where nothing
    /// lies on a disk.
    pub(crate) fn clear_shelf(
        &self,
        shard: usize,
        whose: Option<Tenant>,
        force: Force,
        now: MonotonicTime,
    ) -> Option<Removal> {
        let shard = &self.shards[shard];
        if shard.state.read().shelf.is_empty() {
            return None;
        }
        let mut state = shard.state.write();
        let table = self.segments.load();
        let mut leased = 0;
        let goes = |record: &&Record| {
            let meant = whose.is_none_or(|whose| record.tenant == whose);
            let stays = meant && force == Force::No && record.lease_end() > now;
            leased += u64::from(stays && !record.copies.is_empty());
            meant && !stays
        };
        let keys: Vec<(Tenant, u32, Box<[u8]>)> =
            state.cold(&table).filter(goes).map(|record| (record.tenant, record.word(), record.key.clone())).collect();
        let removed = keys.iter().filter(|(tenant, word, key)| {
            state.shelf.remove(*tenant, *word, key).is_some_and(|record| !record.copies.is_empty())
        });
        Some(Removal { removed: removed.count() as u64, leased, busy: 0 })
    }

    /// Everything was removed: the owners of disks are told when they ask. Not after the clear of one tenant: their answer
    /// is to delete all files, also those of other tenants.
    pub(crate) fn tell_disks_of_clear(&self, whose: Option<Tenant>) {
        if whose.is_none() || !self.tenants.is_multi() {
            for disk in self.tiers.all() {
                disk.boxes.lock().remove_all = true;
            }
        }
    }

    /// Gives the memory of an object up that lies on a disk too, whatever pins it has. Answers whether it is in no memory
    /// now.
    pub fn cool(&self, caller: &Caller, key: &[u8]) -> bool {
        let (hash, now) = (self.hash(caller.tenant, key), caller.now);
        let mut state = self.shards[hash.shard].state.write();
        let on_disk = state.shelf.get(caller.tenant, hash.word, key).filter(|record| record.is_readable());
        let Some(generation) = on_disk.map(|record| record.generation) else { return false };
        let Some(slot) = self.find_live(&mut state, caller.tenant, hash, key, now) else { return true };
        let entry = &state.slab[slot];
        let is_same = entry.is_finished() && entry.generation().0.get() == generation;
        let is_busy = entry.is_referenced() || entry.is_being_offloaded() || entry.successor().is_some();
        if !is_same || is_busy || entry.kept_until() > now {
            return false;
        }
        self.departs(&state, slot, Absence::Evicted);
        self.erase(&mut state, slot, Leave::Readable, now, &mut Effects::default());
        true
    }

    /// The owner of a disk deleted its copy. `id`: only if it is this one. Answers whether one was there.
    ///
    /// # Errors
    /// INVALID_PARAMS for replicas that lie on no disk, OBJECT_NOT_FOUND.
    pub fn evict_disk(
        &self,
        caller: &Caller,
        key: &[u8],
        which: ReplicaType,
        id: Option<ReplicaId>,
    ) -> Result<bool, ErrorCode> {
        if which != ReplicaType::DISK && which != ReplicaType::LOCAL_DISK {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        let hash = self.hash(caller.tenant, key);
        let mut state = self.shards[hash.shard].state.write();
        state.shelf.unbury(hash.word, caller.client);
        let hot = state.find(caller.tenant, hash.word, key);
        let Some(record) = state.shelf.get_mut(caller.tenant, hash.word, key) else {
            return hot.map(|_| false).ok_or(ErrorCode::OBJECT_NOT_FOUND);
        };
        let is_meant = |copy: &DiskCopy| copy.disk.owner == caller.client && id.is_none_or(|id| copy.id == id);
        let before = record.copies.len();
        if which == ReplicaType::LOCAL_DISK {
            record.copies.retain(|copy| !is_meant(copy));
        }
        let gone = record.copies.len() < before;
        state.shelf.settle(caller.tenant, hash.word, key);
        Ok(gone)
    }

    /// Takes the mark of an offload away, if it is still about that write.
    pub(super) fn unmark_offload(&self, state: &mut ShardState, task: &Task) {
        let Some(record) = state.shelf.get_mut(task.tenant, task.hash.word, &task.key) else { return };
        if record.generation == task.generation && record.offload.take().is_some() {
            self.offload_ended(state, task.hash, task.tenant, &task.key);
        }
    }

    /// An offload is over: the object may be evicted again.
    pub(super) fn offload_ended(&self, state: &mut ShardState, hash: KeyHash, tenant: Tenant, key: &[u8]) {
        if let Some(slot) = state.find(tenant, hash.word, key)
            && state.slab[slot].is_being_offloaded()
        {
            state.slab[slot].extras_mut().offloading = false;
            state.slab[slot].settle_extras();
        }
        state.shelf.settle(tenant, hash.word, key);
    }
}

fn add_copy(record: &mut Record, id: u64, disk: &Arc<Disk>, endpoint: &str) {
    record.copies.retain(|copy| copy.disk.owner != disk.owner);
    let size = record.size;
    record.copies.push(DiskCopy::new(id, disk, endpoint, size));
}

fn marked<'s>(state: &'s mut ShardState, task: &Task) -> Option<&'s mut Offload> {
    let record = state.shelf.get_mut(task.tenant, task.hash.word, &task.key)?;
    if record.generation == task.generation { record.offload.as_mut() } else { None }
}

fn task_of(entry: &Entry, hash: KeyHash) -> Task {
    let generation = entry.generation().0.get();
    Task { hash, tenant: entry.tenant, key: entry.key.as_slice().into(), size: entry.size, generation }
}

fn write_of(entry: &Entry, word: u32) -> Write<'_> {
    Write {
        word,
        tenant: entry.tenant,
        key: entry.key.as_slice(),
        size: entry.size,
        generation: entry.generation().0.get(),
        checksum: entry.checksum(),
        data_type: entry.data_type,
    }
}
