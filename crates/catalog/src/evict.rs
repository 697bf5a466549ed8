//! In which order objects are given up.
//!
//! A shard's readable, not hard-pinned objects stand in a queue. Eviction looks at the front only, so its price is the
//! same for every victim, whatever the number of objects.

use yb_types::MonotonicTime;

use crate::entry::{Entry, tick};
use crate::list::List;
use crate::slab::Slab;

/// What eviction may do with the object at the front.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing protects it.
    Evictable,
    /// A lease or a pin does.
    Protected,
}

/// The order of the victims of one shard. Links live in the entries.
pub(crate) trait EvictionPolicy {
    /// An object became readable.
    fn insert(&mut self, slab: &mut Slab, slot: u32, now: MonotonicTime);
    /// An object goes for another reason.
    fn remove(&mut self, slab: &mut Slab, slot: u32);
    /// The next victim, still in the queue, after looking at no more than `budget` objects, which is used up by as many
    /// as were looked at. Stops when the front comes after `until` in the order of [`front_order`](Self::front_order).
    fn victim(
        &mut self,
        slab: &mut Slab,
        now: MonotonicTime,
        until: u64,
        budget: &mut u32,
        judge: impl FnMut(u32, &Entry) -> Verdict,
    ) -> Option<u32>;
    /// What orders the front of this queue among those of other shards, smaller first; `None` when it is empty.
    fn front_order(&self, slab: &Slab) -> Option<u64>;
    /// Objects in the queue.
    fn len(&self) -> u32;
}

/// First in, first out, with a second chance for what was read since it was last looked at (CLOCK).
pub(crate) struct SecondChance {
    queue: List,
}

impl SecondChance {
    pub const fn new() -> Self {
        SecondChance { queue: List::new() }
    }

    /// Puts the front at the back, and by the next tick, so that it also comes after what joined other queues just now.
    fn rotate(&mut self, slab: &mut Slab, slot: u32, now: MonotonicTime) {
        self.queue.remove(slab, slot);
        slab[slot].queued = tick(now).saturating_add(1);
        self.queue.push_back(slab, slot);
    }
}

impl EvictionPolicy for SecondChance {
    fn insert(&mut self, slab: &mut Slab, slot: u32, now: MonotonicTime) {
        slab[slot].queued = tick(now);
        self.queue.push_back(slab, slot);
    }

    fn remove(&mut self, slab: &mut Slab, slot: u32) {
        self.queue.remove(slab, slot);
    }

    fn victim(
        &mut self,
        slab: &mut Slab,
        now: MonotonicTime,
        until: u64,
        budget: &mut u32,
        mut judge: impl FnMut(u32, &Entry) -> Verdict,
    ) -> Option<u32> {
        while *budget > 0 && self.front_order(slab)? <= until {
            *budget -= 1;
            let slot = self.queue.front()?;
            let visited = slab[slot].take_visited();
            if !visited && judge(slot, &slab[slot]) == Verdict::Evictable {
                return Some(slot);
            }
            self.rotate(slab, slot, now);
        }
        None
    }

    fn front_order(&self, slab: &Slab) -> Option<u64> {
        let entry = &slab[self.queue.front()?];
        Some(u64::from(entry.queued) << 32 | (entry.generation().0.get() & u64::from(u32::MAX)))
    }

    fn len(&self) -> u32 {
        self.queue.len()
    }
}
