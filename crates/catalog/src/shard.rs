//! One shard: a table from key to slot, the entries, and the two lists that every entry is in one of.
//!
//! Invariants (see [`ShardState::assert_consistent`]):
//! - an entry is in the list of unfinished puts until it is finished; then it is in the eviction queue, unless it has a
//!   hard pin;
//! - the list of unfinished puts is in order of their start;
//! - an entry has the flag of a soft pin exactly when its extras have one; the shard counts them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use yb_types::MonotonicTime;

use crate::contention::{CountedLock, Waits};
use crate::entry::{Entry, Replica, flag};
use crate::evict::{EvictionPolicy, SecondChance, Verdict};
use crate::extras::SoftPin;
use crate::key::Tenant;
use crate::list::List;
use crate::slab::Slab;
use crate::table::Table;
use crate::tenants::TenantOrder;

/// What keeps shards of different cores off each other's cache lines.
#[repr(align(128))]
pub(crate) struct Shard {
    pub state: CountedLock<ShardState>,
}

pub(crate) struct ShardState {
    table: Table,
    pub slab: Slab,
    pub unfinished: List,
    queue: SecondChance,
    soft_pins: u32,
    front: u64,
    order: Option<Box<TenantOrder>>,
}

/// "The queue is empty" among the fronts.
pub(crate) const NO_FRONT: u64 = u64::MAX;

impl Shard {
    /// `order`: the objects of each tenant, where tenants are told apart.
    pub fn new(order: Option<TenantOrder>, waits: Arc<Waits>) -> Self {
        Shard {
            state: CountedLock::new(
                ShardState {
                    table: Table::new(),
                    slab: Slab::new(),
                    unfinished: List::new(),
                    queue: SecondChance::new(),
                    soft_pins: 0,
                    front: NO_FRONT,
                    order: order.map(Box::new),
                },
                waits,
            ),
        }
    }
}

impl ShardState {
    /// The slot of a key.
    pub fn find(&self, tenant: Tenant, word: u32, key: &[u8]) -> Option<u32> {
        self.table.find(word, |slot| {
            let entry = &self.slab[slot];
            entry.tenant == tenant && entry.key.as_slice() == key
        })
    }

    /// Reads where the search for a hash begins, and nothing else.
    pub fn touch_home(&self, word: u32) -> u32 {
        self.table.touch_home(word)
    }

    /// The slot that the search for a hash will most likely end at: keys are not compared.
    pub fn likely(&self, word: u32) -> Option<u32> {
        self.table.find(word, |_| true)
    }

    /// Makes a filled slot known under its key, as an unfinished put.
    pub fn publish(&mut self, slot: u32, word: u32, soft_pin: Option<SoftPin>) {
        self.table.insert(word, slot);
        self.unfinished.push_back(&mut self.slab, slot);
        self.set_soft_pin(slot, soft_pin);
    }

    /// The soft pin of an object.
    pub fn soft_pin(&self, slot: u32) -> Option<SoftPin> {
        soft_pin(&self.slab[slot])
    }

    /// Gives an object a soft pin, or takes it away.
    pub fn set_soft_pin(&mut self, slot: u32, pin: Option<SoftPin>) {
        let entry = &mut self.slab[slot];
        let had = entry.has(flag::SOFT_PIN);
        if had || pin.is_some() {
            entry.set(flag::SOFT_PIN, pin.is_some());
            entry.extras_mut().soft_pin = pin;
            entry.settle_extras();
            self.soft_pins = self.soft_pins + u32::from(pin.is_some()) - u32::from(had);
        }
    }

    /// Turns an unfinished put into a readable object.
    pub fn finish(&mut self, slot: u32, now: MonotonicTime, checksum: Option<u64>) {
        self.unfinished.remove(&mut self.slab, slot);
        let entry = &mut self.slab[slot];
        entry.replicas.as_mut_slice().iter_mut().for_each(|replica| replica.complete());
        entry.finish(now, checksum);
        if let Some(SoftPin::Pending(lasts)) = self.soft_pin(slot) {
            self.set_soft_pin(slot, Some(SoftPin::Until(now + lasts)));
        }
        if !self.slab[slot].has(flag::HARD_PIN) {
            self.queue.insert(&mut self.slab, slot, now);
        }
        if let Some(order) = &mut self.order {
            order.add(slot, &self.slab[slot]);
        }
    }

    /// Takes an entry out of everything.
    pub fn erase(&mut self, slot: u32, word: u32) -> Entry {
        let entry = &self.slab[slot];
        if !entry.is_finished() {
            self.unfinished.remove(&mut self.slab, slot);
        } else if !entry.has(flag::HARD_PIN) {
            self.queue.remove(&mut self.slab, slot);
        }
        self.table.remove(word, slot);
        self.set_soft_pin(slot, None);
        let entry = self.slab.retire(slot);
        if let Some(order) = &mut self.order
            && entry.is_finished()
        {
            order.left(entry.tenant, &self.slab);
        }
        entry
    }

    /// The next object that eviction may take, see [`EvictionPolicy::victim`].
    pub fn victim(&mut self, now: MonotonicTime, take_soft_pinned: bool, until: u64, budget: &mut u32) -> Option<u32> {
        let ShardState { queue, slab, .. } = self;
        queue.victim(slab, now, until, budget, |_, entry| {
            let pinned = !take_soft_pinned && soft_pin(entry).is_some_and(|pin| pin.holds(now));
            if entry.lease_end() > now || pinned || entry.is_referenced() {
                Verdict::Protected
            } else {
                Verdict::Evictable
            }
        })
    }

    /// Whether eviction may take a readable object.
    pub fn is_evictable(&self, slot: u32, take_soft_pinned: bool, now: MonotonicTime) -> bool {
        let entry = &self.slab[slot];
        let pinned = !take_soft_pinned && soft_pin(entry).is_some_and(|pin| pin.holds(now));
        !entry.has(flag::HARD_PIN) && !pinned && entry.lease_end() <= now && !entry.is_referenced()
    }

    /// What the fronts of a tenant's objects are compared by among shards, smaller first.
    pub fn tenant_front(&self, tenant: Tenant) -> Option<u32> {
        self.order.as_ref()?.front(tenant)
    }

    /// How often [`next_of_tenant`](Self::next_of_tenant) has to be called to meet every object of a tenant.
    pub fn tenant_len(&self, tenant: Tenant) -> usize {
        self.order.as_ref().map_or(0, |order| order.len(tenant))
    }

    /// The next object of a tenant, oldest use first; it stands last from here on. Uses up one of `budget` for each
    /// record looked at. Also says whether the object was used since it was last looked at.
    pub fn next_of_tenant(&mut self, tenant: Tenant, now: MonotonicTime, budget: &mut u32) -> Option<(u32, bool)> {
        self.order.as_mut()?.next(tenant, &self.slab, now, budget)
    }

    /// Objects, unfinished puts, and soft pins.
    pub fn counts(&self) -> [u64; 3] {
        [self.table.len() as u64, u64::from(self.unfinished.len()), u64::from(self.soft_pins)]
    }

    /// Objects in the eviction queue.
    pub fn queued(&self) -> u32 {
        self.queue.len()
    }

    /// Shows the order of the queue's front to those who choose a shard; writes only when it changed.
    pub fn publish_front(&mut self, shown: &AtomicU64) {
        let front = self.queue.front_order(&self.slab).unwrap_or(NO_FRONT);
        if front != self.front {
            self.front = front;
            shown.store(front, Ordering::Relaxed);
        }
    }

    /// Every entry, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.table.iter().map(|slot| &self.slab[slot])
    }

    /// The slot of every entry, in no order.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.table.iter()
    }
}

/// The soft pin of an object. The flag spares the others a look at their extras.
fn soft_pin(entry: &Entry) -> Option<SoftPin> {
    if entry.has(flag::SOFT_PIN) { entry.extras()?.soft_pin } else { None }
}

impl ShardState {
    /// Panics when an invariant of the module does not hold.
    pub fn assert_consistent(&self) {
        let mut started = MonotonicTime(0);
        for slot in self.unfinished.iter(&self.slab) {
            let entry = &self.slab[slot];
            assert!(!entry.is_finished() && entry.started() >= started);
            started = entry.started();
        }
        let (mut unfinished, mut queued, mut pinned) = (0, 0, 0);
        for entry in self.iter() {
            assert!(!entry.key.as_slice().is_empty() && !entry.replicas.as_slice().is_empty());
            unfinished += u32::from(!entry.is_finished());
            queued += u32::from(entry.is_finished() && !entry.has(flag::HARD_PIN));
            let pin = entry.extras().and_then(|extras| extras.soft_pin);
            assert_eq!(entry.has(flag::SOFT_PIN), pin.is_some());
            assert!(entry.extras().is_none_or(|extras| !extras.is_empty()));
            pinned += u32::from(pin.is_some());
            let fits = |r: &Replica| r.is_complete() == entry.is_finished() || entry.copier_of(r).is_some();
            assert!(entry.replicas.as_slice().iter().all(fits));
        }
        assert_eq!((unfinished, queued), (self.unfinished.len(), self.queue.len()));
        assert_eq!(pinned, self.soft_pins);
        if let Some(order) = &self.order {
            let mut finished: BTreeMap<Tenant, usize> = BTreeMap::new();
            for entry in self.iter().filter(|entry| entry.is_finished()) {
                *finished.entry(entry.tenant).or_default() += 1;
            }
            order.assert_consistent(&self.slab, &finished);
        }
    }
}
