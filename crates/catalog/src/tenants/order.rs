//! Which objects a tenant has in one shard, oldest use first: for eviction inside the tenant, for its clear and its
//! listing. Kept only while tenants are told apart: 16 bytes an object, no lock but the shard's, which is held anyway.
//!
//! Invariants:
//! - every finished entry of a tenant has exactly one valid record in its tenant's queue; unfinished ones have none;
//! - a record is valid while its slot holds that write, finished; entries leave without looking for their record, and
//!   a queue of which more than half is not valid any more is cleaned;
//! - the occupancy has a tenant's bit of a shard exactly while it has a valid record there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use yb_types::MonotonicTime;

use crate::entry::{Entry, tick};
use crate::key::{SHARDS, Tenant};
use crate::slab::Slab;

const WORDS: usize = SHARDS.div_ceil(64);

/// In which shards each tenant has finished objects.
pub(crate) struct Occupancy(Box<[[AtomicU64; WORDS]]>);

impl Occupancy {
    pub fn new(tenants: usize) -> Self {
        Occupancy((0..tenants).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect())
    }

    fn set(&self, tenant: Tenant, shard: usize, occupied: bool) {
        if let Some(word) = self.0.get(usize::from(tenant.0)).and_then(|words| words.get(shard / 64)) {
            let bit = 1 << (shard % 64);
            if occupied {
                word.fetch_or(bit, Ordering::Relaxed);
            } else {
                word.fetch_and(!bit, Ordering::Relaxed);
            }
        }
    }

    /// The shards from `from` on, once around, in which a tenant has objects.
    pub fn shards(&self, tenant: Tenant, from: usize) -> impl Iterator<Item = usize> + use<'_> {
        let words = self.0.get(usize::from(tenant.0));
        let first = from % SHARDS;
        let ahead = (first / 64..=first / 64 + WORDS).flat_map(move |at| {
            let bits = words.map_or(0, |words| words[at % WORDS].load(Ordering::Relaxed));
            let low = (1u64 << (first % 64)) - 1;
            let mask = match at - first / 64 {
                0 => !low,
                WORDS => low,
                _ => u64::MAX,
            };
            Bits(bits & mask).map(move |bit| at % WORDS * 64 + bit)
        });
        ahead.filter(|shard| *shard < SHARDS)
    }
}

/// The set bits of a word.
struct Bits(u64);

impl Iterator for Bits {
    type Item = usize;
    fn next(&mut self) -> Option<usize> {
        let bit = (self.0 != 0).then(|| self.0.trailing_zeros() as usize)?;
        self.0 &= self.0 - 1;
        Some(bit)
    }
}

/// An object in a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub slot: u32,
    /// The low part of the generation that lay there.
    tag: u32,
    /// The last use that the queue knows of, or when it last passed the object over, in ticks.
    seen: u32,
}

impl Record {
    fn of(slot: u32, entry: &Entry) -> Self {
        Record { slot, tag: entry.generation().0.get() as u32, seen: tick(entry.lease_end()) }
    }

    /// The entry that it means, if that is still there.
    fn entry<'s>(&self, slab: &'s Slab) -> Option<&'s Entry> {
        let entry = slab.get(self.slot)?;
        (entry.is_finished() && entry.generation().0.get() as u32 == self.tag).then_some(entry)
    }
}

#[derive(Default)]
struct Queue {
    records: VecDeque<Record>,
    valid: usize,
}

/// The queues of one shard.
pub(crate) struct TenantOrder {
    shard: usize,
    queues: BTreeMap<Tenant, Queue>,
    occupancy: Arc<Occupancy>,
}

/// A queue shorter than this is not worth cleaning.
const SMALL: usize = 32;

impl TenantOrder {
    pub fn new(shard: usize, occupancy: Arc<Occupancy>) -> Self {
        TenantOrder { shard, queues: BTreeMap::new(), occupancy }
    }

    /// An object became readable.
    pub fn add(&mut self, slot: u32, entry: &Entry) {
        let queue = self.queues.entry(entry.tenant).or_default();
        if queue.valid == 0 {
            self.occupancy.set(entry.tenant, self.shard, true);
        }
        queue.valid += 1;
        queue.records.push_back(Record::of(slot, entry));
    }

    /// A readable object has left; call when it is out of its slot.
    pub fn left(&mut self, tenant: Tenant, slab: &Slab) {
        let Some(queue) = self.queues.get_mut(&tenant) else { return };
        queue.valid = queue.valid.saturating_sub(1);
        if queue.valid == 0 {
            self.queues.remove(&tenant);
            self.occupancy.set(tenant, self.shard, false);
        } else if queue.records.len() > SMALL && queue.records.len() / 2 > queue.valid {
            queue.records.retain(|record| record.entry(slab).is_some());
            queue.records.shrink_to(queue.valid * 2);
        }
    }

    /// What the fronts of shards are compared by, smaller first. The front may not be valid any more.
    pub fn front(&self, tenant: Tenant) -> Option<u32> {
        Some(self.queues.get(&tenant)?.records.front()?.seen)
    }

    /// Records in a tenant's queue, not valid ones included.
    pub fn len(&self, tenant: Tenant) -> usize {
        self.queues.get(&tenant).map_or(0, |queue| queue.records.len())
    }

    /// The object at the front, which stands at the back from here on. Uses up one of `budget` for each record looked
    /// at. `used_since`: whether it was used since the queue last looked.
    pub fn next(&mut self, tenant: Tenant, slab: &Slab, now: MonotonicTime, budget: &mut u32) -> Option<(u32, bool)> {
        let queue = self.queues.get_mut(&tenant)?;
        while *budget > 0 {
            *budget -= 1;
            let mut record = queue.records.pop_front()?;
            if let Some(entry) = record.entry(slab) {
                let used = tick(entry.lease_end());
                let used_since = used > record.seen;
                record.seen = if used_since { used } else { tick(now).saturating_add(1) };
                queue.records.push_back(record);
                return Some((record.slot, used_since));
            }
        }
        None
    }

    /// Panics when an invariant of the module does not hold. `finished`: how many finished entries each tenant has.
    pub fn assert_consistent(&self, slab: &Slab, finished: &BTreeMap<Tenant, usize>) {
        for (tenant, queue) in &self.queues {
            let slots: std::collections::BTreeSet<u32> =
                queue.records.iter().filter(|record| record.entry(slab).is_some()).map(|record| record.slot).collect();
            assert_eq!(Some(&slots.len()), finished.get(tenant), "records of tenant {}", tenant.0);
            assert_eq!(queue.valid, slots.len());
            assert!(slots.iter().all(|slot| slab[*slot].tenant == *tenant));
            assert!(self.occupancy.shards(*tenant, self.shard).next() == Some(self.shard));
        }
        assert!(finished.keys().all(|tenant| self.queues.contains_key(tenant)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn occupied_shards_come_once_around() {
        let occupancy = Occupancy::new(2);
        let tenant = Tenant(1);
        for shard in [0, 3, 63, 64, 500, 1023] {
            occupancy.set(tenant, shard, true);
        }
        let from = |from| occupancy.shards(tenant, from).collect::<Vec<_>>();
        assert_eq!(from(0), [0, 3, 63, 64, 500, 1023]);
        assert_eq!(from(4), [63, 64, 500, 1023, 0, 3]);
        assert_eq!(from(64), [64, 500, 1023, 0, 3, 63]);
        assert_eq!(from(1023), [1023, 0, 3, 63, 64, 500]);
        occupancy.set(tenant, 64, false);
        assert_eq!(from(60), [63, 500, 1023, 0, 3]);
        assert!(occupancy.shards(Tenant(0), 7).next().is_none());
        assert!(occupancy.shards(Tenant::NOBODY, 7).next().is_none());
    }
}
