//! Least recently used first.

use yb_types::MonotonicTime;

use crate::arena::{Arena, List};
use crate::policy::{Newcomer, Policy, Seen, Slot, Verdict, Victims};

/// Least recently used first, key by key, in the order of the calls. 12 bytes a key.
#[derive(Debug)]
pub struct Lru {
    nodes: Arena<()>,
    queue: List,
}

impl Lru {
    /// Without keys.
    pub fn new() -> Self {
        Lru { nodes: Arena::new(), queue: List::EMPTY }
    }

    fn renew(&mut self, slot: u32) {
        self.nodes.unlink(&mut self.queue, slot);
        self.nodes.push_back(&mut self.queue, slot);
    }

    fn drop_node(&mut self, number: u32) {
        self.nodes.unlink(&mut self.queue, number);
        self.nodes.release(number);
    }
}

impl Default for Lru {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Lru {
    fn looked_up(&mut self, keys: &[Seen], _now: MonotonicTime) {
        for key in keys {
            if let Seen::Here(slot) = key
                && let Some(number) = self.nodes.find(*slot)
            {
                self.renew(number);
            }
        }
    }

    fn inserted(&mut self, keys: &[Newcomer], _group: Option<u64>, _now: MonotonicTime) {
        for Newcomer { slot, .. } in keys {
            if let Some(number) = self.nodes.find(*slot) {
                self.renew(number);
                continue;
            }
            if let Some(old) = self.nodes.occupant(slot.number) {
                self.drop_node(old);
            }
            let number = self.nodes.add(*slot, ());
            self.nodes.push_back(&mut self.queue, number);
        }
    }

    fn removed(&mut self, slot: Slot) {
        if let Some(number) = self.nodes.find(slot) {
            self.drop_node(number);
        }
    }

    fn victim(&mut self, _now: MonotonicTime, victims: &mut Victims<'_>) -> Option<(Slot, u64)> {
        while victims.left() {
            let number = self.queue.front()?;
            let slot = self.nodes.slot(number);
            match victims.judge(slot) {
                Verdict::Protected => self.renew(number),
                Verdict::Gone => self.drop_node(number),
                Verdict::Goes { bytes, .. } => {
                    self.drop_node(number);
                    return Some((slot, bytes));
                }
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }

    fn steps(&self) -> u64 {
        self.nodes.steps
    }
}
