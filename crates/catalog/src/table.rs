//! From the hash of a key to its slot: open addressing, one word a place, so that a lookup meets one cache line here.
//!
//! Places are kept in the order of their home (linear probing, removal by shifting back), at most three quarters full, and at least one quarter.
//! Keys are compared by the caller, and only when 32 bits of hash agree.

use crate::entry::NIL;

#[derive(Clone, Copy)]
struct Place {
    word: u32,
    /// `NIL` for an empty place.
    slot: u32,
}

const EMPTY: Place = Place { word: 0, slot: NIL };
const SMALLEST: usize = 8;

pub(crate) struct Table {
    places: Box<[Place]>,
    len: usize,
}

impl Table {
    pub fn new() -> Self {
        Table { places: Box::default(), len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// The slot with this hash that `same` accepts.
    pub fn find(&self, word: u32, mut same: impl FnMut(u32) -> bool) -> Option<u32> {
        if self.places.is_empty() {
            return None;
        }
        let mut at = home(word, self.places.len());
        loop {
            let place = self.places[at];
            if place.slot == NIL {
                return None;
            }
            if place.word == word && same(place.slot) {
                return Some(place.slot);
            }
            at = self.next(at);
        }
    }

    /// Reads the place where the search for a hash begins. Branches on nothing that it read, so that the processor goes
    /// on while the place is on its way.
    pub fn touch_home(&self, word: u32) -> u32 {
        self.places.get(home(word, self.places.len())).map_or(0, |place| place.slot)
    }

    /// Adds a slot that is not in the table.
    pub fn insert(&mut self, word: u32, slot: u32) {
        if (self.len + 1) * 4 > self.places.len() * 3 {
            self.grow();
        }
        self.len += 1;
        self.settle(Place { word, slot });
    }

    /// Takes a slot out; does nothing if it is not there.
    pub fn remove(&mut self, word: u32, slot: u32) {
        if self.places.is_empty() {
            return;
        }
        let mut hole = home(word, self.places.len());
        while self.places[hole].slot != slot {
            if self.places[hole].slot == NIL {
                return;
            }
            hole = self.next(hole);
        }
        self.len -= 1;
        let mut at = self.next(hole);
        while self.places[at].slot != NIL {
            let from = home(self.places[at].word, self.places.len());
            if self.distance(from, at) >= self.distance(hole, at) {
                self.places[hole] = self.places[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.places[hole] = EMPTY;
        if self.len * 4 < self.places.len() && self.places.len() > SMALLEST {
            self.resize(if self.len == 0 { 0 } else { SMALLEST.max(self.len * 2) });
        }
    }

    /// Every slot, in no order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.places.iter().filter(|place| place.slot != NIL).map(|place| place.slot)
    }

    fn grow(&mut self) {
        self.resize(SMALLEST.max(self.places.len() + self.places.len() / 2));
    }

    fn resize(&mut self, size: usize) {
        let old = std::mem::replace(&mut self.places, vec![EMPTY; size].into_boxed_slice());
        old.iter().filter(|place| place.slot != NIL).for_each(|&place| self.settle(place));
    }

    fn settle(&mut self, place: Place) {
        let mut at = home(place.word, self.places.len());
        while self.places[at].slot != NIL {
            at = self.next(at);
        }
        self.places[at] = place;
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.places.len() { 0 } else { at + 1 }
    }

    /// How many steps of [`next`](Self::next) lead from one place to the other.
    fn distance(&self, from: usize, to: usize) -> usize {
        if to >= from { to - from } else { to + self.places.len() - from }
    }
}

/// Spreads hashes over a table of any size.
fn home(word: u32, size: usize) -> usize {
    ((u64::from(word) * size as u64) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn agrees_with_a_map_also_where_hashes_collide() {
        let (mut table, mut map) = (Table::new(), BTreeMap::new());
        let mut random = 1u64;
        for step in 0..60_000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let id = (random >> 33) as u32 % 1500;
            // Four ids share each hash, and hashes crowd at both ends of the range.
            let word = if id % 8 < 4 { (id / 4).wrapping_neg() } else { (id / 4) << 20 };
            let found = table.find(word, |slot| slot == id);
            assert_eq!(found, map.get(&id).map(|_| id), "step {step}");
            if random >> 63 == 0 {
                if map.insert(id, word).is_none() {
                    table.insert(word, id);
                }
            } else {
                table.remove(word, id);
                map.remove(&id);
            }
            assert_eq!(table.len(), map.len());
        }
        let mut slots: Vec<u32> = table.iter().collect();
        slots.sort_unstable();
        assert_eq!(slots, map.into_keys().collect::<Vec<_>>());
    }
}
