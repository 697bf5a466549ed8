//! The table of extents, free and used, in address order.
//!
//! A node is 24 bytes: the two words that chain a free node into its bin hold the owner's word once it is used.
//! The table grows and shrinks by whole chunks, so that a million extents cost no doubling and no copying, and a segment
//! that was emptied gives its bookkeeping back.

pub(crate) const NIL: u32 = u32::MAX >> 1;
const USED: u32 = 1 << 31;
/// On `before`: the extent is cut into pages, see `pages`.
const RUN: u32 = 1 << 31;
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
    /// The top bit says "cut into pages".
    before: u32,
    /// The top bit says "used".
    after: u32,
    words: [u32; 2],
}

const VACANT: Node = Node { offset: 0, before: NIL, after: NIL, words: [NIL, NIL] };

struct Chunk {
    nodes: [Node; CHUNK],
    /// Nodes that stand for an extent.
    live: u32,
    /// First vacant place, chained through `words[0]`; `NIL` when there is none.
    vacant: u32,
    /// Neighbours in the list of chunks with a vacant place.
    before: u32,
    after: u32,
}

pub(crate) struct Nodes {
    chunks: Vec<Option<Box<Chunk>>>,
    /// First chunk with a vacant place.
    room: u32,
    /// Places of chunks that were given back.
    dropped: Vec<u32>,
    end: u64,
}

impl Nodes {
    /// A table whose last extent ends at `end` units.
    pub(crate) fn new(end: u64) -> Self {
        Nodes { chunks: Vec::new(), room: NIL, dropped: Vec::new(), end }
    }

    fn find(&self, node: u32) -> Option<&Node> {
        let chunk = self.chunks.get(node as usize / CHUNK)?.as_ref()?;
        Some(&chunk.nodes[node as usize % CHUNK])
    }

    fn at(&self, node: u32) -> &Node {
        self.find(node).unwrap_or(&VACANT)
    }

    /// Changes a node of a chunk that is there; others are never named by the tables of this crate.
    fn with(&mut self, node: u32, change: impl FnOnce(&mut Node)) {
        if let Some(Some(chunk)) = self.chunks.get_mut(node as usize / CHUNK) {
            change(&mut chunk.nodes[node as usize % CHUNK]);
        }
    }

    /// A new free node; `None` when all numbers are taken.
    pub(crate) fn insert(&mut self, offset: u64, before: u32, after: u32) -> Option<u32> {
        if self.room == NIL {
            self.add_chunk()?;
        }
        let number = self.room;
        let chunk = self.chunks.get_mut(number as usize)?.as_mut()?;
        let place = chunk.vacant;
        let node = &mut chunk.nodes[place as usize];
        chunk.vacant = node.words[0];
        chunk.live += 1;
        *node = Node { offset, before, after, ..VACANT };
        if chunk.vacant == NIL {
            self.unlink(number);
        }
        Some(number * CHUNK as u32 + place)
    }

    /// Takes a free node out of the table.
    pub(crate) fn retire(&mut self, index: u32) {
        let (number, place) = (index / CHUNK as u32, index % CHUNK as u32);
        let Some(Some(chunk)) = self.chunks.get_mut(number as usize) else { return };
        let was_full = chunk.vacant == NIL;
        chunk.nodes[place as usize] = Node { words: [chunk.vacant, NIL], ..VACANT };
        chunk.vacant = place;
        chunk.live -= 1;
        let is_empty = chunk.live == 0;
        if was_full {
            self.link(number);
        }
        // One chunk with room stays, so that a table at the brim of a chunk does not come and go with each call.
        if is_empty && (self.room != number || self.chunk(number).after != NIL) {
            self.unlink(number);
            self.chunks[number as usize] = None;
            self.dropped.push(number);
        }
    }

    fn chunk(&self, number: u32) -> ChunkLinks {
        let chunk = self.chunks.get(number as usize).and_then(Option::as_ref);
        chunk.map_or(ChunkLinks { before: NIL, after: NIL }, |c| ChunkLinks { before: c.before, after: c.after })
    }

    fn add_chunk(&mut self) -> Option<()> {
        let number = self.dropped.pop().or_else(|| u32::try_from(self.chunks.len()).ok())?;
        if number >= NIL / CHUNK as u32 {
            return None;
        }
        let mut chunk = Box::new(Chunk { nodes: [VACANT; CHUNK], live: 0, vacant: 0, before: NIL, after: NIL });
        for (next, node) in (1..CHUNK as u32).zip(&mut chunk.nodes) {
            node.words[0] = next;
        }
        if number as usize == self.chunks.len() {
            self.chunks.push(None);
        }
        self.chunks[number as usize] = Some(chunk);
        self.link(number);
        Some(())
    }

    fn link(&mut self, number: u32) {
        let after = self.room;
        self.set_chunk_links(number, |chunk| (chunk.before, chunk.after) = (NIL, after));
        self.set_chunk_links(after, |chunk| chunk.before = number);
        self.room = number;
    }

    fn unlink(&mut self, number: u32) {
        let ChunkLinks { before, after } = self.chunk(number);
        self.set_chunk_links(before, |chunk| chunk.after = after);
        self.set_chunk_links(after, |chunk| chunk.before = before);
        if self.room == number {
            self.room = after;
        }
    }

    fn set_chunk_links(&mut self, number: u32, change: impl FnOnce(&mut Chunk)) {
        if let Some(Some(chunk)) = self.chunks.get_mut(number as usize) {
            change(chunk);
        }
    }

    pub(crate) fn is_used(&self, index: u32) -> bool {
        self.find(index).is_some_and(|node| node.after & USED != 0)
    }

    /// Whether the extent is cut into pages.
    pub(crate) fn is_run(&self, index: u32) -> bool {
        self.at(index).before & RUN != 0
    }

    /// Marks an extent in use as cut into pages; freeing it ends that.
    pub(crate) fn set_run(&mut self, index: u32) {
        self.with(index, |node| node.before |= RUN);
    }

    pub(crate) fn set_used(&mut self, index: u32, owner: Option<u64>) {
        self.with(index, |node| match owner {
            Some(owner) => {
                node.after |= USED;
                node.words = [owner as u32, (owner >> 32) as u32];
            }
            None => {
                node.after &= !USED;
                node.before &= !RUN;
            }
        });
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
        self.at(index).before & !RUN
    }

    pub(crate) fn after(&self, index: u32) -> u32 {
        self.at(index).after & !USED
    }

    /// Makes two nodes neighbours; either may be `NIL`.
    pub(crate) fn join(&mut self, left: u32, right: u32) {
        if left != NIL {
            self.with(left, |node| node.after = (node.after & USED) | right);
        }
        if right != NIL {
            self.with(right, |node| node.before = (node.before & RUN) | left);
        }
    }

    pub(crate) fn links(&self, index: u32) -> (u32, u32) {
        let [prev, next] = self.at(index).words;
        (prev, next)
    }

    pub(crate) fn set_links(&mut self, index: u32, prev: u32, next: u32) {
        self.with(index, |node| node.words = [prev, next]);
    }

    pub(crate) fn set_prev_free(&mut self, index: u32, prev: u32) {
        self.with(index, |node| node.words[0] = prev);
    }

    pub(crate) fn set_next_free(&mut self, index: u32, next: u32) {
        self.with(index, |node| node.words[1] = next);
    }

    /// Places of the table; numbers from here on were never given out.
    pub(crate) fn len(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    /// Bytes of memory that the table takes.
    pub(crate) fn memory(&self) -> usize {
        let chunks = self.chunks.len() - self.dropped.len();
        chunks * size_of::<Chunk>() + self.chunks.capacity() * size_of::<usize>() + self.dropped.capacity() * 4
    }
}

#[derive(Clone, Copy)]
struct ChunkLinks {
    before: u32,
    after: u32,
}
