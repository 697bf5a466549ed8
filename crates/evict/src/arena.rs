//! Nodes found by key and chained in lists by index, so that nothing moves and nothing is allocated per key.

use hashbrown::HashTable;

use crate::policy::Key;

/// "No node" in links.
pub(crate) const NIL: u32 = u32::MAX;

/// A node: the key, its neighbours in the one list it stands in, and what the policy keeps of it.
#[derive(Debug)]
pub(crate) struct Node<T> {
    pub key: Key,
    prev: u32,
    next: u32,
    pub value: T,
}

/// Both ends of a list.
#[derive(Clone, Debug)]
pub(crate) struct List {
    front: u32,
    back: u32,
    len: usize,
}

impl List {
    pub const EMPTY: List = List { front: NIL, back: NIL, len: 0 };

    pub fn front(&self) -> Option<u32> {
        (self.front != NIL).then_some(self.front)
    }

    pub fn back(&self) -> Option<u32> {
        (self.back != NIL).then_some(self.back)
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Mixes a number into one that is spread over 64 bits.
pub(crate) fn mix(key: Key) -> u64 {
    let x = (key.0 ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb) ^ (x >> 32)
}

/// All nodes of a policy.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    nodes: Vec<Node<T>>,
    index: HashTable<u32>,
    vacant: u32,
    /// See [`crate::Policy::steps`].
    pub steps: u64,
}

impl<T> Arena<T> {
    pub fn new() -> Self {
        Arena { nodes: Vec::new(), index: HashTable::new(), vacant: NIL, steps: 0 }
    }

    /// Keys that can be found.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn find(&mut self, key: Key) -> Option<u32> {
        self.steps += 1;
        self.index.find(mix(key), |slot| self.nodes[*slot as usize].key == key).copied()
    }

    /// A node for a key that is not there yet, in no list.
    pub fn add(&mut self, key: Key, value: T) -> u32 {
        self.steps += 1;
        let node = Node { key, prev: NIL, next: NIL, value };
        let slot = if self.vacant == NIL {
            self.nodes.push(node);
            (self.nodes.len() - 1) as u32
        } else {
            let slot = self.vacant;
            self.vacant = self[slot].next;
            self.nodes[slot as usize] = node;
            slot
        };
        let nodes = &self.nodes;
        self.index.insert_unique(mix(key), slot, |slot| mix(nodes[*slot as usize].key));
        slot
    }

    /// Makes the node's key unknown; the node stays.
    pub fn forget_key(&mut self, slot: u32) {
        self.steps += 1;
        let hash = mix(self[slot].key);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == slot) {
            entry.remove();
        }
    }

    /// Gives back a node that is in no list and whose key is forgotten.
    pub fn release(&mut self, slot: u32) {
        self.nodes[slot as usize].next = self.vacant;
        self.vacant = slot;
    }

    pub fn push_back(&mut self, list: &mut List, slot: u32) {
        self.steps += 1;
        let back = list.back;
        let node = &mut self.nodes[slot as usize];
        (node.prev, node.next) = (back, NIL);
        match back {
            NIL => list.front = slot,
            back => self.nodes[back as usize].next = slot,
        }
        list.back = slot;
        list.len += 1;
    }

    pub fn push_front(&mut self, list: &mut List, slot: u32) {
        self.steps += 1;
        let front = list.front;
        let node = &mut self.nodes[slot as usize];
        (node.prev, node.next) = (NIL, front);
        match front {
            NIL => list.back = slot,
            front => self.nodes[front as usize].prev = slot,
        }
        list.front = slot;
        list.len += 1;
    }

    pub fn unlink(&mut self, list: &mut List, slot: u32) {
        self.steps += 1;
        let Node { prev, next, .. } = self.nodes[slot as usize];
        match prev {
            NIL => list.front = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NIL => list.back = prev,
            next => self.nodes[next as usize].prev = prev,
        }
        list.len -= 1;
    }
}

impl<T> std::ops::Index<u32> for Arena<T> {
    type Output = Node<T>;

    fn index(&self, slot: u32) -> &Node<T> {
        &self.nodes[slot as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, slot: u32) -> &mut Node<T> {
        &mut self.nodes[slot as usize]
    }
}
