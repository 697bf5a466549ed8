//! Nodes found by the number of the place where the caller keeps the key, and chained in lists by that number: no index
//! of their own, nothing moves, nothing is allocated per key.

use crate::policy::{Key, Slot};

/// "No node" in links.
pub(crate) const NIL: u32 = u32::MAX;
/// [`Node::tag`] of a node that holds nothing.
const VACANT: u32 = 0;
/// Nodes that come and go as one piece of memory.
const CHUNK: usize = 1024;

/// A node: which write of its place it stands for, its neighbours in the one list it stands in, and what the policy
/// keeps of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<T> {
    tag: u32,
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

#[derive(Debug)]
struct Chunk<T> {
    nodes: Box<[Node<T>]>,
    taken: usize,
}

/// All nodes of a policy. A chunk without a taken node is given back.
#[derive(Debug)]
pub(crate) struct Arena<T> {
    chunks: Vec<Option<Chunk<T>>>,
    /// The last chunk that was emptied, so that one key that comes and goes costs no memory calls.
    spare: Option<Chunk<T>>,
    len: usize,
    /// See [`crate::Policy::steps`].
    pub steps: u64,
}

impl<T: Copy + Default> Arena<T> {
    pub fn new() -> Self {
        Arena { chunks: Vec::new(), spare: None, len: 0, steps: 0 }
    }

    /// Nodes that are taken.
    pub fn len(&self) -> usize {
        self.len
    }

    fn get(&self, number: u32) -> Option<&Node<T>> {
        let chunk = self.chunks.get(number as usize / CHUNK)?.as_ref()?;
        Some(&chunk.nodes[number as usize % CHUNK])
    }

    /// The node of a key, if it is still this write of the place.
    pub fn find(&mut self, slot: Slot) -> Option<u32> {
        self.steps += 1;
        self.get(slot.number).is_some_and(|node| node.tag == slot.tag.get()).then_some(slot.number)
    }

    /// Who is in the place of `slot`, an earlier write of it included.
    pub fn occupant(&self, number: u32) -> Option<u32> {
        self.get(number).is_some_and(|node| node.tag != VACANT).then_some(number)
    }

    /// What a node stands for.
    pub fn slot(&self, number: u32) -> Slot {
        Slot::new(number, self[number].tag)
    }

    /// Who stands behind a node in its list, or before it.
    pub fn neighbour(&self, number: u32, before: bool) -> Option<u32> {
        let node = &self[number];
        Some(if before { node.prev } else { node.next }).filter(|other| *other != NIL)
    }

    /// A few bits of the node's tag, to tell later whether the place was given to somebody else.
    pub fn check(&self, number: u32) -> u8 {
        self.get(number).map_or(0, |node| (node.tag ^ (node.tag >> 8) ^ (node.tag >> 16)) as u8)
    }

    /// Takes the node of a place that is free, in no list.
    pub fn add(&mut self, slot: Slot, value: T) -> u32 {
        self.steps += 1;
        let (at, within) = (slot.number as usize / CHUNK, slot.number as usize % CHUNK);
        if at >= self.chunks.len() {
            self.chunks.resize_with(at + 1, || None);
        }
        let spare = &mut self.spare;
        let chunk = self.chunks[at].get_or_insert_with(|| spare.take().unwrap_or_else(Chunk::new));
        chunk.taken += 1;
        self.len += 1;
        chunk.nodes[within] = Node { tag: slot.tag.get(), prev: NIL, next: NIL, value };
        slot.number
    }

    /// Gives back a node that is in no list.
    pub fn release(&mut self, number: u32) {
        self.steps += 1;
        let at = number as usize / CHUNK;
        let Some(Some(chunk)) = self.chunks.get_mut(at) else { return };
        chunk.nodes[number as usize % CHUNK].tag = VACANT;
        chunk.taken -= 1;
        self.len -= 1;
        if chunk.taken == 0 {
            self.spare = self.chunks[at].take();
            while matches!(self.chunks.last(), Some(None)) {
                self.chunks.pop();
            }
        }
    }

    pub fn push_back(&mut self, list: &mut List, number: u32) {
        self.steps += 1;
        let back = list.back;
        let node = &mut self[number];
        (node.prev, node.next) = (back, NIL);
        match back {
            NIL => list.front = number,
            back => self[back].next = number,
        }
        list.back = number;
        list.len += 1;
    }

    pub fn push_front(&mut self, list: &mut List, number: u32) {
        self.steps += 1;
        let front = list.front;
        let node = &mut self[number];
        (node.prev, node.next) = (NIL, front);
        match front {
            NIL => list.back = number,
            front => self[front].prev = number,
        }
        list.front = number;
        list.len += 1;
    }

    pub fn unlink(&mut self, list: &mut List, number: u32) {
        self.steps += 1;
        let Node { prev, next, .. } = self[number];
        match prev {
            NIL => list.front = next,
            prev => self[prev].next = next,
        }
        match next {
            NIL => list.back = prev,
            next => self[next].prev = prev,
        }
        list.len -= 1;
    }
}

impl<T: Copy + Default> Chunk<T> {
    fn new() -> Self {
        let vacant = Node { tag: VACANT, prev: NIL, next: NIL, value: T::default() };
        Chunk { nodes: vec![vacant; CHUNK].into_boxed_slice(), taken: 0 }
    }
}

impl<T> std::ops::Index<u32> for Arena<T> {
    type Output = Node<T>;

    fn index(&self, number: u32) -> &Node<T> {
        match &self.chunks[number as usize / CHUNK] {
            Some(chunk) => &chunk.nodes[number as usize % CHUNK],
            None => unreachable!("links lead to taken nodes only"),
        }
    }
}

impl<T> std::ops::IndexMut<u32> for Arena<T> {
    fn index_mut(&mut self, number: u32) -> &mut Node<T> {
        match &mut self.chunks[number as usize / CHUNK] {
            Some(chunk) => &mut chunk.nodes[number as usize % CHUNK],
            None => unreachable!("links lead to taken nodes only"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_when_the_last_node_of_a_chunk_does() {
        let mut arena: Arena<u32> = Arena::new();
        for number in 0..3 * CHUNK as u32 {
            arena.add(Slot::new(number, 7), number);
        }
        assert_eq!((arena.chunks.len(), arena.find(Slot::new(5, 8)), arena.find(Slot::new(5, 7))), (3, None, Some(5)));
        (0..3 * CHUNK as u32).for_each(|number| arena.release(number));
        assert_eq!((arena.len(), arena.chunks.len()), (0, 0));
        assert_eq!(arena.find(Slot::new(5, 7)), None);
        arena.add(Slot::new(5, 9), 1);
        assert_eq!((arena.occupant(5), arena.occupant(6)), (Some(5), None));
    }
}
