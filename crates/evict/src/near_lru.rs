//! What the peer does: the lease that ended first goes first, in rounds, below a watermark.

use std::time::Duration;

use yb_types::MonotonicTime;

use crate::arena::{Arena, List};
use crate::policy::{Newcomer, Policy, Seen, Slot, Verdict, Victims};

/// How long the peer's read leases last.
const LEASE: Duration = Duration::from_secs(10);
/// `eviction_high_watermark_ratio`.
const WATERMARK: f64 = 0.9;
/// `eviction_ratio`.
const RATIO: f64 = 0.05;

/// The peer's order: by the end of the read lease. A read moves the end, a put does not, so there are two queues, each in
/// order, and the front that ends first goes. What is leased stays. Rounds start above the watermark and take a share of
/// the keys, as the peer does; its choice among equal ends is by chance, ours is the older. 32 bytes a key.
#[derive(Debug)]
pub struct NearLru {
    nodes: Arena<Lease>,
    put: List,
    read: List,
}

#[derive(Clone, Copy, Debug, Default)]
struct Lease {
    end: MonotonicTime,
    read: bool,
}

impl NearLru {
    /// Without keys.
    pub fn new() -> Self {
        NearLru { nodes: Arena::new(), put: List::EMPTY, read: List::EMPTY }
    }

    fn queue(&mut self, read: bool) -> (&mut Arena<Lease>, &mut List) {
        (&mut self.nodes, if read { &mut self.read } else { &mut self.put })
    }

    fn unlink(&mut self, slot: u32) {
        let (nodes, list) = self.queue(self.nodes[slot].value.read);
        nodes.unlink(list, slot);
    }

    fn stand(&mut self, slot: u32, lease: Lease) {
        self.nodes[slot].value = lease;
        let (nodes, list) = self.queue(lease.read);
        nodes.push_back(list, slot);
    }

    fn front(&self) -> Option<u32> {
        match (self.put.front(), self.read.front()) {
            (Some(put), Some(read)) => {
                Some(if self.nodes[read].value.end < self.nodes[put].value.end { read } else { put })
            }
            (put, read) => put.or(read),
        }
    }

    fn drop_node(&mut self, slot: u32) {
        self.unlink(slot);
        self.nodes.release(slot);
    }
}

impl Default for NearLru {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for NearLru {
    fn looked_up(&mut self, keys: &[Seen], now: MonotonicTime) {
        for key in keys {
            if let Seen::Here(slot) = key
                && let Some(number) = self.nodes.find(*slot)
            {
                self.unlink(number);
                self.stand(number, Lease { end: now + LEASE, read: true });
            }
        }
    }

    fn inserted(&mut self, keys: &[Newcomer], _group: Option<u64>, now: MonotonicTime) {
        for Newcomer { slot, .. } in keys {
            if self.nodes.find(*slot).is_some() {
                continue;
            }
            if let Some(old) = self.nodes.occupant(slot.number) {
                self.drop_node(old);
            }
            let lease = Lease { end: now, read: false };
            let number = self.nodes.add(*slot, lease);
            self.stand(number, lease);
        }
    }

    fn removed(&mut self, slot: Slot) {
        if let Some(number) = self.nodes.find(slot) {
            self.drop_node(number);
        }
    }

    fn victim(&mut self, now: MonotonicTime, victims: &mut Victims<'_>) -> Option<(Slot, u64)> {
        while victims.left() {
            let number = self.front()?;
            if self.nodes[number].value.end > now {
                return None;
            }
            let slot = self.nodes.slot(number);
            match victims.judge(slot) {
                Verdict::Gone => self.drop_node(number),
                Verdict::Goes { bytes, .. } => {
                    self.drop_node(number);
                    return Some((slot, bytes));
                }
                Verdict::Protected => {
                    self.unlink(number);
                    self.stand(number, Lease { end: now, read: false });
                }
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }

    fn surplus(&self, capacity: usize) -> usize {
        let used = self.len() as f64 / capacity.max(1) as f64;
        if used <= WATERMARK {
            return 0;
        }
        (RATIO.max(used - WATERMARK + RATIO) * self.len() as f64) as usize
    }

    fn steps(&self) -> u64 {
        self.nodes.steps
    }
}
