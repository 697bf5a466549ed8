//! One shard: a table from key to slot, the entries, and the list of unfinished ones.
//!
//! Invariants (see [`ShardState::assert_consistent`]):
//! - an entry is in the list of unfinished puts until it is finished; then an eviction policy is told of it, unless it
//!   has a hard pin;
//! - the list of unfinished puts is in order of their start;
//! - an entry has the flag of a soft pin exactly when its extras have one; those of finished entries stand in the order
//!   of their deadlines;
//! - an entry is in the table under its key, unless it is the unfinished successor of one that is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use yb_types::MonotonicTime;

use crate::contention::{CountedLock, Waits};
use crate::entry::{Entry, Replica, flag};
use crate::extras::SoftPin;
use crate::key::Tenant;
use crate::list::List;
use crate::overtaken::Overtaken;
use crate::planted::{Fault, planted};
use crate::segments::SegmentTable;
use crate::slab::Slab;
use crate::table::Table;
use crate::tenants::TenantOrder;
use crate::tiers::{Record, Shelf};
use crate::view::ObjectView;

/// What keeps shards of different cores off each other's cache lines.
#[repr(C, align(128))]
pub(crate) struct Shard {
    /// On the cache line of the lock's word. It says nothing: see [`claim`](Self::claim).
    claimed: std::sync::atomic::AtomicU8,
    pub state: CountedLock<ShardState>,
}

pub(crate) struct ShardState {
    table: Table,
    pub slab: Slab,
    pub unfinished: List,
    /// Deadline and slot.
    soft_pins: BTreeSet<(MonotonicTime, u32)>,
    pub overtaken: Overtaken,
    order: Option<Box<TenantOrder>>,
    /// What lies on disks.
    pub shelf: Shelf,
}

impl Shard {
    /// `order`: the objects of each tenant, where tenants are told apart.
    pub fn new(order: Option<TenantOrder>, waits: Arc<Waits>) -> Self {
        Shard {
            claimed: std::sync::atomic::AtomicU8::new(0),
            state: CountedLock::new(
                ShardState {
                    table: Table::new(),
                    slab: Slab::new(),
                    unfinished: List::new(),
                    soft_pins: BTreeSet::new(),
                    overtaken: Overtaken::new(),
                    order: order.map(Box::new),
                    shelf: Shelf::new(),
                },
                waits,
            ),
        }
    }
}

impl Shard {
    /// Begins to fetch the lock's cache line from the core that had it last, without waiting for it: a store is
    /// forgotten by its thread, while taking a lock waits. For those who are about to lock several shards.
    pub fn claim(&self) {
        self.claimed.store(0, std::sync::atomic::Ordering::Relaxed);
    }
}

impl ShardState {
    /// Reads the entries that the next write or its end will change beside its own, and the place of the next one.
    pub fn touch_ends(&self) -> u64 {
        let ends = [self.slab.next_vacant(), self.unfinished.back()];
        ends.into_iter().flatten().fold(0, |all, slot| all ^ self.slab[slot].touch())
    }

    /// The slot of a key.
    pub fn find(&self, tenant: Tenant, word: u32, key: &[u8]) -> Option<u32> {
        self.table.find(word, |slot| self.is_at(slot, tenant, key))
    }

    /// The same, given the first slot of this hash, see [`likely`](Self::likely).
    pub fn find_at(&self, likely: Option<u32>, tenant: Tenant, word: u32, key: &[u8]) -> Option<u32> {
        match likely {
            Some(slot) if !self.is_at(slot, tenant, key) => self.find(tenant, word, key),
            sure => sure,
        }
    }

    fn is_at(&self, slot: u32, tenant: Tenant, key: &[u8]) -> bool {
        let entry = &self.slab[slot];
        entry.tenant == tenant && entry.key.as_slice() == key
    }

    /// Reads where the search for a hash begins, and nothing else.
    pub fn touch_home(&self, word: u32) -> u32 {
        self.table.touch_home(word)
    }

    /// The slot that the search for a hash will most likely end at: keys are not compared.
    pub fn likely(&self, word: u32) -> Option<u32> {
        self.table.find(word, |_| true)
    }

    /// Makes a filled slot known under its key, as an unfinished write.
    pub fn publish(&mut self, slot: u32, word: u32) {
        self.table.insert(word, slot);
        self.unfinished.push_back(&mut self.slab, slot);
    }

    /// Makes a filled slot known as the unfinished write that is to replace a readable object.
    pub fn publish_beside(&mut self, slot: u32, readable: u32) {
        self.slab[slot].set(flag::SUCCESSOR, true);
        self.slab[slot].extras_mut().predecessor = Some(readable);
        self.slab[readable].extras_mut().successor = Some(slot);
        self.unfinished.push_back(&mut self.slab, slot);
    }

    /// The unfinished write of a key, given the slot that the table knows: that one, or its successor.
    pub fn write_under_way(&self, slot: u32) -> Option<u32> {
        let entry = &self.slab[slot];
        if entry.is_finished() { entry.successor() } else { Some(slot) }
    }

    /// Gives an object a soft pin, or takes it away.
    pub fn set_soft_pin(&mut self, slot: u32, pin: Option<SoftPin>) {
        let entry = &mut self.slab[slot];
        let old = entry.soft_pin();
        if old == pin {
            return;
        }
        entry.set(flag::SOFT_PIN, pin.is_some());
        entry.extras_mut().soft_pin = pin;
        entry.settle_extras();
        if let Some(SoftPin::Until(until)) = old {
            self.soft_pins.remove(&(until, slot));
        }
        self.list_soft_pin(slot);
    }

    fn list_soft_pin(&mut self, slot: u32) {
        let entry = &self.slab[slot];
        if let (true, Some(SoftPin::Until(until))) = (entry.is_finished(), entry.soft_pin()) {
            self.soft_pins.insert((until, slot));
        }
    }

    /// Whether a soft pin has come to its end.
    pub fn has_ended_pins(&self, now: MonotonicTime) -> bool {
        self.soft_pins.first().is_some_and(|(until, _)| *until <= now)
    }

    /// Takes the pins away that have come to their end.
    pub fn end_pins(&mut self, now: MonotonicTime) {
        while let Some(&(until, slot)) = self.soft_pins.first()
            && until <= now
        {
            self.set_soft_pin(slot, None);
        }
    }

    /// Turns an unfinished write, one that the table knows, into a readable object.
    pub fn finish(&mut self, slot: u32, now: MonotonicTime, checksum: Option<u64>) {
        self.unfinished.remove(&mut self.slab, slot);
        let entry = &mut self.slab[slot];
        entry.replicas.as_mut_slice().iter_mut().for_each(|replica| replica.complete());
        entry.finish(now, checksum);
        if let Some(SoftPin::Pending(lasts)) = entry.soft_pin() {
            self.set_soft_pin(slot, Some(SoftPin::Until(now + lasts)));
        } else {
            self.list_soft_pin(slot);
        }
        if let Some(order) = &mut self.order {
            order.add(slot, &self.slab[slot]);
        }
    }

    /// Takes an entry out of everything. The unfinished successor of a readable object takes its place under the key.
    pub fn erase(&mut self, slot: u32, word: u32) -> Entry {
        if !self.slab[slot].is_finished() {
            self.unfinished.remove(&mut self.slab, slot);
        }
        self.set_soft_pin(slot, None);
        self.leave_table(slot, word);
        let entry = self.slab.retire(slot);
        if let Some(order) = &mut self.order
            && entry.is_finished()
        {
            order.left(entry.tenant, &self.slab);
        }
        entry
    }

    fn leave_table(&mut self, slot: u32, word: u32) {
        let readable = self.slab[slot].extras().and_then(|extras| extras.predecessor);
        if let Some(readable) = readable {
            self.slab[readable].extras_mut().successor = None;
            self.slab[readable].settle_extras();
            return;
        }
        self.table.remove(word, slot);
        if let Some(next) = self.slab[slot].successor() {
            let entry = &mut self.slab[next];
            entry.set(flag::SUCCESSOR, false);
            entry.extras_mut().predecessor = None;
            entry.settle_extras();
            self.table.insert(word, next);
        }
    }

    /// What lies on disks only.
    pub fn cold<'s>(&'s self, table: &'s SegmentTable) -> impl Iterator<Item = &'s Record> {
        self.shelf.iter().filter(|record| {
            let slot = self.find(record.tenant, record.word(), &record.key);
            slot.is_none_or(|slot| ObjectView::readable(&self.slab[slot], table).is_none())
        })
    }

    /// Whether eviction may take a readable object.
    pub fn is_evictable(&self, slot: u32, take_soft_pinned: bool, now: MonotonicTime) -> bool {
        is_evictable(&self.slab[slot], take_soft_pinned, now)
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

    /// Objects, unfinished puts, soft pins, and the memory that all of it takes.
    pub fn counts(&self) -> [u64; 4] {
        [self.table.len() as u64, u64::from(self.unfinished.len()), self.soft_pins.len() as u64, self.slab.weight()]
    }

    /// The entry of every key, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.table.iter().map(|slot| &self.slab[slot])
    }

    /// The slot of every entry, those of unfinished successors too.
    pub fn all_slots(&self) -> impl Iterator<Item = u32> {
        self.slots().flat_map(|slot| [Some(slot), self.slab[slot].successor()]).flatten()
    }

    /// The slot of every key, in no order.
    pub fn slots(&self) -> impl Iterator<Item = u32> {
        self.table.iter()
    }
}

fn is_evictable(entry: &Entry, take_soft_pinned: bool, now: MonotonicTime) -> bool {
    let pinned = !take_soft_pinned && entry.soft_pin().is_some_and(|pin| pin.holds(now));
    let leased = entry.lease_end() > now || entry.membership().is_some_and(|own| own.group.is_held(now));
    let leased = leased && !planted(Fault::EvictUnderLease);
    let in_use = entry.is_referenced() || entry.is_held(now) || entry.is_being_offloaded();
    !entry.has(flag::HARD_PIN) && !pinned && !leased && !in_use
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
        let (mut unfinished, mut pinned) = (0, 0);
        for slot in self.all_slots() {
            let entry = &self.slab[slot];
            assert!(!entry.key.as_slice().is_empty() && !entry.replicas.as_slice().is_empty());
            unfinished += u32::from(!entry.is_finished());
            let fits = |r: &Replica| r.is_complete() == entry.is_finished() || entry.copier_of(r).is_some();
            assert!(entry.replicas.as_slice().iter().all(fits));
            let extras = entry.extras();
            let pin = extras.and_then(|extras| extras.soft_pin);
            assert_eq!(entry.has(flag::SOFT_PIN), pin.is_some());
            assert_eq!(entry.has(flag::GROUPED), extras.is_some_and(|extras| extras.group.is_some()));
            assert!(extras.is_none_or(|extras| !extras.is_empty()));
            if let (true, Some(SoftPin::Until(until))) = (entry.is_finished(), pin) {
                pinned += 1;
                assert!(self.soft_pins.contains(&(until, slot)));
            }
            if let Some(next) = entry.successor() {
                let next = &self.slab[next];
                assert!(
                    entry.is_finished() && next.has(flag::SUCCESSOR) && next.key.as_slice() == entry.key.as_slice()
                );
                assert_eq!(next.extras().and_then(|extras| extras.predecessor), Some(slot));
            }
        }
        assert_eq!(unfinished, self.unfinished.len());
        assert_eq!(pinned, self.soft_pins.len());
        if let Some(order) = &self.order {
            let mut finished: BTreeMap<Tenant, usize> = BTreeMap::new();
            for entry in self.iter().filter(|entry| entry.is_finished()) {
                *finished.entry(entry.tenant).or_default() += 1;
            }
            order.assert_consistent(&self.slab, &finished);
        }
    }
}
