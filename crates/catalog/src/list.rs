//! Doubly linked lists through the entries of a slab: no memory of their own beside head and tail.

use crate::entry::NIL;
use crate::slab::Slab;

pub(crate) struct List {
    head: u32,
    tail: u32,
    len: u32,
}

impl List {
    pub const fn new() -> Self {
        List { head: NIL, tail: NIL, len: 0 }
    }

    pub fn len(&self) -> u32 {
        self.len
    }

    pub fn front(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    pub fn back(&self) -> Option<u32> {
        (self.tail != NIL).then_some(self.tail)
    }

    pub fn push_back(&mut self, slab: &mut Slab, slot: u32) {
        slab[slot].set_links(self.tail, NIL);
        if self.tail == NIL {
            self.head = slot;
        } else {
            let before = slab[self.tail].links().0;
            slab[self.tail].set_links(before, slot);
        }
        self.tail = slot;
        self.len += 1;
    }

    pub fn remove(&mut self, slab: &mut Slab, slot: u32) {
        let (prev, next) = slab[slot].links();
        if prev == NIL {
            self.head = next;
        } else {
            let before = slab[prev].links().0;
            slab[prev].set_links(before, next);
        }
        if next == NIL {
            self.tail = prev;
        } else {
            let after = slab[next].links().1;
            slab[next].set_links(prev, after);
        }
        slab[slot].set_links(NIL, NIL);
        self.len -= 1;
    }

    /// The slots from front to back.
    pub fn iter<'a>(&self, slab: &'a Slab) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(self.front(), |&slot| Some(slab[slot].links().1).filter(|&next| next != NIL))
    }
}
