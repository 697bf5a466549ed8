//! Least recently used first.

use yb_types::MonotonicTime;

use crate::arena::{Arena, List};
use crate::policy::{Batch, Key, Policy, Victims};

/// Least recently used first, key by key, in the order of the calls. 16 bytes a key beside the index.
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

    fn drop_node(&mut self, slot: u32) {
        self.nodes.unlink(&mut self.queue, slot);
        self.nodes.forget_key(slot);
        self.nodes.release(slot);
    }
}

impl Default for Lru {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Lru {
    fn looked_up(&mut self, batch: Batch<'_>, _now: MonotonicTime) {
        for key in batch.keys {
            if let Some(slot) = self.nodes.find(*key) {
                self.renew(slot);
            }
        }
    }

    fn inserted(&mut self, batch: Batch<'_>, _now: MonotonicTime) {
        for key in batch.keys {
            match self.nodes.find(*key) {
                Some(slot) => self.renew(slot),
                None => {
                    let slot = self.nodes.add(*key, ());
                    self.nodes.push_back(&mut self.queue, slot);
                }
            }
        }
    }

    fn removed(&mut self, key: Key) {
        if let Some(slot) = self.nodes.find(key) {
            self.drop_node(slot);
        }
    }

    fn victim(&mut self, _now: MonotonicTime, victims: &mut Victims<'_>) -> Option<(Key, u64)> {
        while victims.left() {
            let slot = self.queue.front()?;
            let key = self.nodes[slot].key;
            if let Some(bytes) = victims.judge(key) {
                self.drop_node(slot);
                return Some((key, bytes));
            }
            self.renew(slot);
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
