//! The table of extents, free and used, in address order.
//!
//! A node is 24 bytes: the two words that chain a free node into its bin hold the owner's word once it is used.
//! The table grows by whole chunks, so that a million extents cost no doubling and no copying.

pub(crate) const NIL: u32 = u32::MAX >> 1;
const USED: u32 = 1 << 31;
const CHUNK: usize = 512;

/// An extent in use, as its allocator knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The number, to be stored compactly.
    pub fn get(self) -> u32 {
        self.0
    }

    /// From a stored number. A number that was never given out is refused by the allocator, not here.
    pub fn from_stored(number: u32) -> Self {
        NodeId(number)
    }
}

#[derive(Clone, Copy)]
struct Node {
    offset: u64,
    before: u32,
    /// The top bit says "used".
    after: u32,
    words: [u32; 2],
}

const VACANT: Node = Node { offset: 0, before: NIL, after: NIL, words: [NIL, NIL] };

pub(crate) struct Nodes {
    chunks: Vec<Box<[Node; CHUNK]>>,
    len: u32,
    vacant: u32,
    end: u64,
}

impl Nodes {
    /// A table whose last extent ends at `end` units.
    pub(crate) fn new(end: u64) -> Self {
        Nodes { chunks: Vec::new(), len: 0, vacant: NIL, end }
    }

    fn at(&self, node: u32) -> &Node {
        &self.chunks[node as usize / CHUNK][node as usize % CHUNK]
    }

    fn at_mut(&mut self, node: u32) -> &mut Node {
        &mut self.chunks[node as usize / CHUNK][node as usize % CHUNK]
    }

    /// A new free node; `None` when all 2^31 numbers are taken.
    pub(crate) fn insert(&mut self, offset: u64, before: u32, after: u32) -> Option<u32> {
        let node = Node { offset, before, after, ..VACANT };
        if self.vacant != NIL {
            let index = self.vacant;
            self.vacant = self.at(index).words[0];
            *self.at_mut(index) = node;
            return Some(index);
        }
        let index = self.len;
        if index >= NIL {
            return None;
        }
        if index as usize / CHUNK == self.chunks.len() {
            self.chunks.push(Box::new([VACANT; CHUNK]));
        }
        self.len += 1;
        *self.at_mut(index) = node;
        Some(index)
    }

    /// Takes a free node out of the table.
    pub(crate) fn retire(&mut self, index: u32) {
        let vacant = self.vacant;
        *self.at_mut(index) = Node { words: [vacant, NIL], ..VACANT };
        self.vacant = index;
    }

    pub(crate) fn is_used(&self, index: u32) -> bool {
        index < self.len && self.at(index).after & USED != 0
    }

    pub(crate) fn set_used(&mut self, index: u32, owner: Option<u64>) {
        let node = self.at_mut(index);
        match owner {
            Some(owner) => {
                node.after |= USED;
                node.words = [owner as u32, (owner >> 32) as u32];
            }
            None => node.after &= !USED,
        }
    }

    pub(crate) fn owner(&self, index: u32) -> u64 {
        let [low, high] = self.at(index).words;
        u64::from(low) | u64::from(high) << 32
    }

    pub(crate) fn offset(&self, index: u32) -> u64 {
        self.at(index).offset
    }

    pub(crate) fn units(&self, index: u32) -> u64 {
        let after = self.after(index);
        let end = if after == NIL { self.end } else { self.at(after).offset };
        end - self.at(index).offset
    }

    pub(crate) fn before(&self, index: u32) -> u32 {
        self.at(index).before
    }

    pub(crate) fn after(&self, index: u32) -> u32 {
        self.at(index).after & !USED
    }

    /// Makes two nodes neighbours; either may be `NIL`.
    pub(crate) fn join(&mut self, left: u32, right: u32) {
        if left != NIL {
            let node = self.at_mut(left);
            node.after = (node.after & USED) | right;
        }
        if right != NIL {
            self.at_mut(right).before = left;
        }
    }

    pub(crate) fn links(&self, index: u32) -> (u32, u32) {
        let [prev, next] = self.at(index).words;
        (prev, next)
    }

    pub(crate) fn set_links(&mut self, index: u32, prev: u32, next: u32) {
        self.at_mut(index).words = [prev, next];
    }

    pub(crate) fn set_prev_free(&mut self, index: u32, prev: u32) {
        self.at_mut(index).words[0] = prev;
    }

    pub(crate) fn set_next_free(&mut self, index: u32, next: u32) {
        self.at_mut(index).words[1] = next;
    }

    pub(crate) fn len(&self) -> u32 {
        self.len
    }
}
