//! The registered disks, with what their owners are to do.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use yb_types::{ClientId, ErrorCode, MonotonicTime};

use super::sketch::Sketch;
use crate::key::{KeyHash, Tenant};

/// A key that a client is to write down or to load, and of which write.
#[derive(Clone, Debug)]
pub(crate) struct Task {
    pub hash: KeyHash,
    pub tenant: Tenant,
    pub key: Box<[u8]>,
    pub size: u64,
    pub generation: u64,
}

const ALIVE: u8 = 0;
/// The owner fell silent: nothing is read there, and everything is there again when it comes back in time.
const SILENT: u8 = 1;
const GONE: u8 = 2;

/// One registration of a client's disk.
#[derive(Debug)]
pub(crate) struct Disk {
    pub owner: ClientId,
    state: AtomicU8,
    /// Bytes of objects there.
    pub used: AtomicU64,
    pub capacity: AtomicU64,
    pub boxes: Mutex<Boxes>,
}

/// What waits for the owner's next heartbeats.
#[derive(Debug, Default)]
pub(crate) struct Boxes {
    pub enabled: bool,
    pub offload: VecDeque<Task>,
    pub promote: VecDeque<Task>,
    pub remove_all: bool,
    silent_since: MonotonicTime,
}

impl Disk {
    fn new(owner: ClientId) -> Self {
        Disk {
            owner,
            state: AtomicU8::new(ALIVE),
            used: AtomicU64::new(0),
            capacity: AtomicU64::new(0),
            boxes: Mutex::default(),
        }
    }

    pub fn is_alive(&self) -> bool {
        self.state.load(Ordering::Relaxed) == ALIVE
    }

    pub fn is_gone(&self) -> bool {
        self.state.load(Ordering::Relaxed) == GONE
    }

    /// Queues what is to be written down.
    ///
    /// # Errors
    /// The peer's: UNABLE_OFFLOADING while it is off, KEYS_ULTRA_LIMIT when too much waits.
    pub fn post(&self, task: Task, limit: usize) -> Result<(), ErrorCode> {
        let mut boxes = self.boxes.lock();
        if !boxes.enabled || !self.is_alive() {
            return Err(ErrorCode::UNABLE_OFFLOADING);
        }
        if boxes.offload.len() >= limit {
            return Err(ErrorCode::KEYS_ULTRA_LIMIT);
        }
        boxes.offload.push_back(task);
        Ok(())
    }
}

/// Counts a promotion while it lives.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<AtomicUsize>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A read of an object that lies on disks only.
#[derive(Debug)]
pub(crate) struct Wish {
    pub task: Task,
    pub tries: u32,
    pub not_before: MonotonicTime,
}

/// A mark that must not stand for ever.
#[derive(Debug)]
pub(crate) struct Deadline {
    pub at: MonotonicTime,
    pub task: Task,
    /// Else of an offload.
    pub promotion: bool,
}

/// Everything about disks that does not belong to one shard.
#[derive(Default)]
pub(crate) struct Tiers {
    disks: Mutex<BTreeMap<ClientId, Arc<Disk>>>,
    /// Some copies lie on disks that are gone.
    pub unswept: AtomicBool,
    pub promotions: Arc<AtomicUsize>,
    pub wishes: Mutex<VecDeque<Wish>>,
    pub sketch: Mutex<Sketch>,
    pub deadlines: Mutex<VecDeque<Deadline>>,
    /// Offloads queued in this round of eviction.
    pub round: AtomicUsize,
}

impl Tiers {
    /// Registers a disk, or finds it; it is alive again.
    pub fn register(&self, owner: ClientId, enabled: bool) {
        let mut disks = self.disks.lock();
        let disk = disks.entry(owner).or_insert_with(|| Arc::new(Disk::new(owner)));
        disk.state.store(ALIVE, Ordering::Relaxed);
        disk.boxes.lock().enabled = enabled;
    }

    /// A registered disk whose owner is heard of.
    pub fn disk(&self, owner: ClientId) -> Option<Arc<Disk>> {
        self.disks.lock().get(&owner).filter(|disk| disk.is_alive()).cloned()
    }

    /// Bytes of objects on all disks, and bytes that these hold.
    pub fn bytes(&self) -> (u64, u64) {
        let disks = self.disks.lock();
        let sum = |read: fn(&Disk) -> &AtomicU64| disks.values().map(|disk| read(disk).load(Ordering::Relaxed)).sum();
        (sum(|disk| &disk.used), sum(|disk| &disk.capacity))
    }

    pub fn all(&self) -> Vec<Arc<Disk>> {
        self.disks.lock().values().cloned().collect()
    }

    /// Takes a disk away; its copies are read no more from here on.
    pub fn remove(&self, owner: ClientId) {
        if let Some(disk) = self.disks.lock().remove(&owner) {
            disk.state.store(GONE, Ordering::Relaxed);
            *disk.boxes.lock() = Boxes::default();
            self.unswept.store(true, Ordering::Relaxed);
        }
    }

    /// The owner stopped pinging.
    pub fn silence(&self, owner: ClientId, now: MonotonicTime) {
        if let Some(disk) = self.disks.lock().get(&owner) {
            disk.state.store(SILENT, Ordering::Relaxed);
            *disk.boxes.lock() = Boxes { silent_since: now, ..Boxes::default() };
        }
    }

    /// Takes the disks away whose owners were silent since before `before`.
    pub fn bury_silent(&self, before: MonotonicTime) {
        let is_late = |disk: &Arc<Disk>| !disk.is_alive() && disk.boxes.lock().silent_since < before;
        let late: Vec<ClientId> =
            self.disks.lock().iter().filter(|(_, disk)| is_late(disk)).map(|(&owner, _)| owner).collect();
        late.into_iter().for_each(|owner| self.remove(owner));
    }

    /// Counts one more promotion, unless there are too many.
    pub fn begin_promotion(&self, limit: usize) -> Option<InFlight> {
        let begun = self.promotions.fetch_add(1, Ordering::Relaxed);
        let counted = InFlight(Arc::clone(&self.promotions));
        (begun < limit).then_some(counted)
    }
}
