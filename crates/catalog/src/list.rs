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

    pub fn push_back(&mut self, slab: &mut Slab, slot: u32) {
        (slab[slot].prev, slab[slot].next) = (self.tail, NIL);
        if self.tail == NIL {
            self.head = slot;
        } else {
            slab[self.tail].next = slot;
        }
        self.tail = slot;
        self.len += 1;
    }

    pub fn remove(&mut self, slab: &mut Slab, slot: u32) {
        let (prev, next) = (slab[slot].prev, slab[slot].next);
        if prev == NIL {
            self.head = next;
        } else {
            slab[prev].next = next;
        }
        if next == NIL {
            self.tail = prev;
        } else {
            slab[next].prev = prev;
        }
        (slab[slot].prev, slab[slot].next) = (NIL, NIL);
        self.len -= 1;
    }

    /// The slots from front to back.
    pub fn iter<'a>(&self, slab: &'a Slab) -> impl Iterator<Item = u32> + 'a {
        std::iter::successors(self.front(), |&slot| Some(slab[slot].next).filter(|&next| next != NIL))
    }
}
