//! The entries of one shard, in chunks: growing moves nothing and doubles nothing, and a chunk without an entry is given
//! back.
//!
//! Invariants: a chunk is in the list of open chunks exactly when it has memory and a vacant slot; the vacant slots of a
//! chunk are chained through their links.

use std::ops::{Index, IndexMut};

use crate::entry::{Entry, NIL};
use crate::evict::SLOTS_PER_SHARD;
use crate::key::KeyBytes;

/// 30 entries of 136 bytes fill a page: 4080 of 4096 bytes.
const CHUNK: u32 = 30;

struct Chunk {
    /// Empty when its memory is given back.
    entries: Box<[Entry]>,
    vacant: u32,
    taken: u32,
    /// Neighbours in the list of open chunks.
    prev: u32,
    next: u32,
}

pub(crate) struct Slab {
    chunks: Vec<Chunk>,
    /// The first chunk with a vacant slot.
    open: u32,
    /// Numbers of chunks without memory.
    unused: Vec<u32>,
    taken: u32,
    /// Bytes of keys outside the entries.
    long_keys: u64,
}

/// What an object takes of the master's memory beside a long key: its entry, its places in the tables of its shard and its
/// segment, and what the allocator rounds up.
const OBJECT_BYTES: u64 = 256;

impl Slab {
    pub const fn new() -> Self {
        Slab { chunks: Vec::new(), open: NIL, unused: Vec::new(), taken: 0, long_keys: 0 }
    }

    /// Bytes of the master's memory that these objects take, about.
    pub fn weight(&self) -> u64 {
        u64::from(self.taken) * OBJECT_BYTES + self.long_keys
    }

    /// Gives a reserved slot its key.
    pub fn name(&mut self, slot: u32, key: &[u8]) {
        let key = KeyBytes::new(key);
        self.long_keys += key.outside();
        self[slot].key = key;
    }

    /// A vacant slot, to be filled by the caller. `None` when the shard has 4 million entries.
    pub fn reserve(&mut self) -> Option<u32> {
        if self.open == NIL {
            self.grow()?;
        }
        let (at, slot) = (self.open, self.chunk(self.open).vacant);
        let next = self[slot].links().1;
        self[slot].set_links(NIL, NIL);
        let chunk = self.chunk_mut(at);
        chunk.vacant = next;
        chunk.taken += 1;
        self.taken += 1;
        if next == NIL {
            self.close(at);
        }
        Some(slot)
    }

    /// Gives a slot back and hands out what was in it.
    pub fn retire(&mut self, slot: u32) -> Entry {
        let at = slot / CHUNK;
        let vacant = self.chunk(at).vacant;
        let entry = std::mem::replace(&mut self[slot], Entry::vacant(vacant));
        self.long_keys -= entry.key.outside();
        let chunk = self.chunk_mut(at);
        chunk.vacant = slot;
        chunk.taken -= 1;
        let emptied = chunk.taken == 0;
        self.taken -= 1;
        if vacant == NIL {
            self.push_open(at);
        }
        if self.taken == 0 && self.chunks.len() > 1 {
            *self = Slab::new();
        } else if emptied && (self.open != at || self.chunk(at).next != NIL) {
            // One open chunk stays, so that an entry that comes and goes costs no memory calls.
            self.close(at);
            self.chunk_mut(at).entries = Box::default();
            self.unused.push(at);
        }
        entry
    }

    fn grow(&mut self) -> Option<()> {
        let at = match self.unused.pop() {
            Some(at) => at,
            None => {
                let at = u32::try_from(self.chunks.len()).ok()?;
                if (at + 1).checked_mul(CHUNK)? > SLOTS_PER_SHARD {
                    return None;
                }
                self.chunks.push(Chunk { entries: Box::default(), vacant: NIL, taken: 0, prev: NIL, next: NIL });
                at
            }
        };
        let (first, last) = (at * CHUNK, (at + 1) * CHUNK);
        let link = |slot: u32| Entry::vacant(if slot + 1 == last { NIL } else { slot + 1 });
        let chunk = self.chunk_mut(at);
        chunk.entries = (first..last).map(link).collect();
        (chunk.vacant, chunk.taken) = (first, 0);
        self.push_open(at);
        Some(())
    }

    fn chunk(&self, at: u32) -> &Chunk {
        &self.chunks[at as usize]
    }

    fn chunk_mut(&mut self, at: u32) -> &mut Chunk {
        &mut self.chunks[at as usize]
    }

    fn push_open(&mut self, at: u32) {
        let first = std::mem::replace(&mut self.open, at);
        let chunk = self.chunk_mut(at);
        (chunk.prev, chunk.next) = (NIL, first);
        if first != NIL {
            self.chunk_mut(first).prev = at;
        }
    }

    /// Takes a chunk out of the list of those with vacant slots.
    fn close(&mut self, at: u32) {
        let Chunk { prev, next, .. } = *self.chunk(at);
        if prev == NIL {
            self.open = next;
        } else {
            self.chunk_mut(prev).next = next;
        }
        if next != NIL {
            self.chunk_mut(next).prev = prev;
        }
    }

    /// The slot that is handed out next, if there is one already.
    pub fn next_vacant(&self) -> Option<u32> {
        (self.open != NIL).then(|| self.chunk(self.open).vacant)
    }

    /// Slots that there are, vacant ones included.
    pub fn len(&self) -> u32 {
        self.chunks.len() as u32 * CHUNK
    }

    /// The entry in a slot, if the slot exists and is taken.
    pub fn get(&self, slot: u32) -> Option<&Entry> {
        let entry = self.chunks.get((slot / CHUNK) as usize)?.entries.get((slot % CHUNK) as usize)?;
        (!entry.key.as_slice().is_empty()).then_some(entry)
    }
}

impl Index<u32> for Slab {
    type Output = Entry;
    fn index(&self, slot: u32) -> &Entry {
        &self.chunks[(slot / CHUNK) as usize].entries[(slot % CHUNK) as usize]
    }
}

impl IndexMut<u32> for Slab {
    fn index_mut(&mut self, slot: u32) -> &mut Entry {
        &mut self.chunks[(slot / CHUNK) as usize].entries[(slot % CHUNK) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(slab: &mut Slab) -> u32 {
        let slot = slab.reserve().expect("there is room");
        slab.name(slot, b"k");
        slot
    }

    #[test]
    fn slots_are_used_again_and_empty_chunks_go_back() {
        let mut slab = Slab::new();
        let slots: Vec<u32> = (0..3 * CHUNK).map(|_| fill(&mut slab)).collect();
        assert_eq!(slots, (0..3 * CHUNK).collect::<Vec<_>>());
        // A hole in the first chunk, the second one empty, the third one full.
        slab.retire(7);
        (CHUNK..2 * CHUNK).for_each(|slot| drop(slab.retire(slot)));
        assert!(slab.chunks[1].entries.is_empty() && slab.get(CHUNK).is_none() && slab.get(7).is_none());
        assert_eq!(fill(&mut slab), 7);
        assert_eq!(fill(&mut slab), CHUNK, "the number of the chunk that went is taken again");
        // The only chunk with a vacant slot stays though it is empty.
        slab.retire(CHUNK);
        assert_eq!(slab.chunks[1].entries.len(), CHUNK as usize);
        (0..CHUNK).chain(2 * CHUNK..3 * CHUNK).for_each(|slot| drop(slab.retire(slot)));
        assert!(slab.chunks.is_empty(), "nothing is left of an empty slab");
        assert_eq!(fill(&mut slab), 0);
    }
}
