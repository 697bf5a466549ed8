//! The entries of one shard, in chunks: growing moves nothing and doubles nothing.

use std::ops::{Index, IndexMut};

use crate::entry::{Entry, NIL};

/// 28 entries of 144 bytes fill a page: 4032 of 4096 bytes.
const CHUNK: usize = 28;

pub(crate) struct Slab {
    chunks: Vec<Box<[Entry]>>,
    vacant: u32,
}

impl Slab {
    pub const fn new() -> Self {
        Slab { chunks: Vec::new(), vacant: NIL }
    }

    /// A vacant slot, to be filled by the caller. `None` when the shard has nearly 2^32 entries.
    pub fn reserve(&mut self) -> Option<u32> {
        if self.vacant == NIL {
            self.grow()?;
        }
        let slot = self.vacant;
        self.vacant = std::mem::replace(&mut self[slot].next, NIL);
        Some(slot)
    }

    /// Gives a slot back and hands out what was in it.
    pub fn retire(&mut self, slot: u32) -> Entry {
        let vacant = self.vacant;
        self.vacant = slot;
        std::mem::replace(&mut self[slot], Entry::vacant(vacant))
    }

    fn grow(&mut self) -> Option<()> {
        let first = u32::try_from(self.chunks.len() * CHUNK).ok()?;
        let last = first.checked_add(CHUNK as u32)?;
        let link = |slot: u32| Entry::vacant(if slot + 1 == last { NIL } else { slot + 1 });
        self.chunks.push((first..last).map(link).collect());
        self.vacant = first;
        Some(())
    }

    /// Slots that there are, vacant ones included.
    pub fn len(&self) -> u32 {
        (self.chunks.len() * CHUNK) as u32
    }

    /// The entry in a slot, if the slot exists and is taken.
    pub fn get(&self, slot: u32) -> Option<&Entry> {
        let entry = self.chunks.get(slot as usize / CHUNK)?.get(slot as usize % CHUNK)?;
        (!entry.key.as_slice().is_empty()).then_some(entry)
    }
}

impl Index<u32> for Slab {
    type Output = Entry;
    fn index(&self, slot: u32) -> &Entry {
        &self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}

impl IndexMut<u32> for Slab {
    fn index_mut(&mut self, slot: u32) -> &mut Entry {
        &mut self.chunks[slot as usize / CHUNK][slot as usize % CHUNK]
    }
}
