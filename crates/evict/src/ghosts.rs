//! What is remembered of keys that are gone: five bytes each, in sets of one cache line.

use crate::arena::mix;
use crate::policy::Key;

const WAYS: usize = 12;
/// Ticks of the policy in one tick of a ghost.
const COARSE: u32 = 6;

/// What a key was when it was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ghost {
    /// Class of its last access.
    pub class: u8,
    /// Accesses, up to 7.
    pub uses: u8,
    /// Ticks since its last access, within one coarse tick.
    pub age: u32,
}

/// Twelve ghosts. A vacant place has the tag 0.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Set {
    tags: [u16; WAYS],
    seen: [u16; WAYS],
    facts: [u8; WAYS],
}

/// Sets that are allocated as one.
const PAGE: usize = 1024;

/// Beyond so many ghosts (5.6 MB) there are only [`FEW_PER_KEY`]: what comes back to a large pool was there long ago.
const MANY: usize = 1 << 20;
const FEW_PER_KEY: usize = 2;

/// So many ghosts for each resident key. A newcomer takes the place of the oldest of its set. Two keys are taken for one
/// another with a chance of 12 in 65,535. Memory is taken where ghosts are buried, not before.
#[derive(Debug)]
pub(crate) struct Ghosts {
    per_key: usize,
    /// Resident keys that the sets are made for.
    keys: usize,
    sets: usize,
    pages: Vec<Option<Box<[Set]>>>,
}

const VACANT: Set = Set { tags: [0; WAYS], seen: [0; WAYS], facts: [0; WAYS] };

impl Ghosts {
    /// None yet, and none ever when `per_key` is 0.
    pub fn new(per_key: usize) -> Self {
        Ghosts { per_key, keys: 0, sets: 0, pages: Vec::new() }
    }

    /// Makes room for the ghosts of so many resident keys. Forgets them all when there are many more or far fewer keys
    /// than the sets were made for.
    pub fn fit(&mut self, keys: usize) {
        if keys <= self.keys * 2 && keys >= self.keys / 8 {
            return;
        }
        let at_most = keys.saturating_mul(self.per_key);
        let sets = at_most.min(MANY.max(keys.saturating_mul(FEW_PER_KEY))).div_ceil(WAYS);
        *self = Ghosts { per_key: self.per_key, keys, sets, pages: vec![None; sets.div_ceil(PAGE)] };
    }

    /// Forgets all and gives their memory back.
    pub fn clear(&mut self) {
        *self = Ghosts::new(self.per_key);
    }

    fn place(&self, key: Key) -> Option<(usize, u16)> {
        let hash = mix(key);
        let set = ((u128::from(hash) * self.sets as u128) >> 64) as usize;
        (self.sets > 0).then_some((set, (hash as u16).max(1)))
    }

    /// Remembers a key that was last accessed at `seen`.
    pub fn bury(&mut self, key: Key, class: u8, uses: u8, seen: u32, now: u32) {
        let Some((set, tag)) = self.place(key) else { return };
        let page = self.pages[set / PAGE].get_or_insert_with(|| vec![VACANT; PAGE].into_boxed_slice());
        let set = &mut page[set % PAGE];
        let coarse = (now >> COARSE) as u16;
        let oldest = (0..WAYS)
            .max_by_key(
                |way| if set.tags[*way] == 0 { u32::MAX } else { u32::from(coarse.wrapping_sub(set.seen[*way])) },
            )
            .unwrap_or(0);
        set.tags[oldest] = tag;
        set.seen[oldest] = (seen >> COARSE) as u16;
        set.facts[oldest] = class << 3 | uses.min(7);
    }

    /// What is remembered of a key, which is forgotten thereby.
    pub fn recall(&mut self, key: Key, now: u32) -> Option<Ghost> {
        let (set, tag) = self.place(key)?;
        let set = &mut self.pages[set / PAGE].as_mut()?[set % PAGE];
        let way = set.tags.iter().position(|other| *other == tag)?;
        set.tags[way] = 0;
        let coarse = ((now >> COARSE) as u16).wrapping_sub(set.seen[way]);
        Some(Ghost { class: set.facts[way] >> 3, uses: set.facts[way] & 7, age: u32::from(coarse) << COARSE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_is_a_cache_line() {
        assert_eq!(size_of::<Set>(), 64);
    }

    #[test]
    fn what_was_buried_is_recalled_once() {
        let mut ghosts = Ghosts::new(2);
        ghosts.fit(12);
        ghosts.bury(Key(7), 27, 9, 640, 700);
        assert_eq!(ghosts.recall(Key(8), 1280), None);
        assert_eq!(ghosts.recall(Key(7), 1280), Some(Ghost { class: 27, uses: 7, age: 640 }));
        assert_eq!(ghosts.recall(Key(7), 1280), None);
    }

    #[test]
    fn the_oldest_make_room_and_no_room_is_no_error() {
        let mut ghosts = Ghosts::new(1);
        ghosts.fit(WAYS);
        for key in 0..=WAYS as u64 {
            ghosts.bury(Key(key), 1, 1, (key as u32) << COARSE, 100 << COARSE);
        }
        assert_eq!(ghosts.recall(Key(0), 100 << COARSE), None);
        assert!((1..=WAYS as u64).all(|key| ghosts.recall(Key(key), 100 << COARSE).is_some()));
        ghosts.bury(Key(1), 1, 1, 1, 1);
        ghosts.fit(2 * WAYS);
        assert!(ghosts.recall(Key(1), 1).is_some(), "nearly as many keys: nothing is forgotten");
        ghosts.bury(Key(1), 1, 1, 1, 1);
        ghosts.fit(20 * WAYS);
        assert!(ghosts.recall(Key(1), 1).is_none(), "made anew for many more keys");
        let mut none = Ghosts::new(0);
        none.fit(100);
        none.bury(Key(1), 1, 1, 1, 1);
        assert_eq!(none.recall(Key(1), 1), None);
    }
}
