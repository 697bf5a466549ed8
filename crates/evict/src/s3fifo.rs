//! S3-FIFO: a small queue for newcomers, a main queue, and a list of ghosts.

use yb_types::MonotonicTime;

use crate::arena::{Arena, List};
use crate::policy::{Batch, Key, Policy, Victims};

/// The small queue is to hold one key in so many.
const SMALL_SHARE: usize = 10;
/// Ghosts for each key of the pool.
const GHOSTS_PER_KEY: usize = 8;
const USES_MAX: u8 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Small,
    Main,
    Ghost,
}

#[derive(Clone, Copy, Debug)]
struct Seat {
    place: Place,
    uses: u8,
}

/// S3-FIFO (Yang et al., SOSP 2023) with a long ghost list. Newcomers wait in a small queue; who is used there, or comes
/// back while its ghost is remembered, joins the main queue, where each use earns another round. 24 bytes a key beside
/// the index, and as many for each ghost.
#[derive(Debug)]
pub struct S3Fifo {
    nodes: Arena<Seat>,
    small: List,
    main: List,
    ghosts: List,
    ghosts_max: usize,
}

impl S3Fifo {
    /// For a pool of about `capacity` keys.
    pub fn new(capacity: usize) -> Self {
        let ghosts_max = capacity.saturating_mul(GHOSTS_PER_KEY);
        S3Fifo { nodes: Arena::new(), small: List::EMPTY, main: List::EMPTY, ghosts: List::EMPTY, ghosts_max }
    }

    fn unlink(&mut self, slot: u32) {
        let list = match self.nodes[slot].value.place {
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
            Place::Ghost => &mut self.ghosts,
        };
        self.nodes.unlink(list, slot);
    }

    fn stand(&mut self, slot: u32, place: Place, uses: u8) {
        self.nodes[slot].value = Seat { place, uses };
        let list = match place {
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
            Place::Ghost => &mut self.ghosts,
        };
        self.nodes.push_back(list, slot);
    }

    fn drop_node(&mut self, slot: u32) {
        self.unlink(slot);
        self.nodes.forget_key(slot);
        self.nodes.release(slot);
    }

    fn use_once_more(&mut self, slot: u32) {
        let seat = &mut self.nodes[slot].value;
        seat.uses = (seat.uses + 1).min(USES_MAX);
    }

    /// The key at the front of the queue whose turn it is, after moving those that earned a place on.
    fn candidate(&mut self) -> Option<u32> {
        loop {
            let small_is_full = self.small.len() * SMALL_SHARE > self.len() || self.main.is_empty();
            let slot = if small_is_full { self.small.front()? } else { self.main.front()? };
            let Seat { place, uses } = self.nodes[slot].value;
            if uses == 0 {
                return Some(slot);
            }
            self.unlink(slot);
            self.stand(slot, Place::Main, if place == Place::Main { uses - 1 } else { 0 });
        }
    }

    fn bury(&mut self, slot: u32) {
        let place = self.nodes[slot].value.place;
        if place == Place::Main || self.ghosts_max == 0 {
            self.drop_node(slot);
            return;
        }
        self.unlink(slot);
        self.stand(slot, Place::Ghost, 0);
        if self.ghosts.len() > self.ghosts_max
            && let Some(oldest) = self.ghosts.front()
        {
            self.drop_node(oldest);
        }
    }
}

impl Policy for S3Fifo {
    fn looked_up(&mut self, batch: Batch<'_>, _now: MonotonicTime) {
        for key in batch.keys {
            if let Some(slot) = self.nodes.find(*key)
                && self.nodes[slot].value.place != Place::Ghost
            {
                self.use_once_more(slot);
            }
        }
    }

    fn inserted(&mut self, batch: Batch<'_>, _now: MonotonicTime) {
        for key in batch.keys {
            match self.nodes.find(*key) {
                None => {
                    let slot = self.nodes.add(*key, Seat { place: Place::Small, uses: 0 });
                    self.stand(slot, Place::Small, 0);
                }
                Some(slot) if self.nodes[slot].value.place == Place::Ghost => {
                    self.unlink(slot);
                    self.stand(slot, Place::Main, 0);
                }
                Some(slot) => self.use_once_more(slot),
            }
        }
    }

    fn removed(&mut self, key: Key) {
        if let Some(slot) = self.nodes.find(key)
            && self.nodes[slot].value.place != Place::Ghost
        {
            self.drop_node(slot);
        }
    }

    fn victim(&mut self, _now: MonotonicTime, victims: &mut Victims<'_>) -> Option<(Key, u64)> {
        while victims.left() {
            let slot = self.candidate()?;
            let key = self.nodes[slot].key;
            if let Some(bytes) = victims.judge(key) {
                self.bury(slot);
                return Some((key, bytes));
            }
            let place = self.nodes[slot].value.place;
            self.unlink(slot);
            self.stand(slot, place, 0);
        }
        None
    }

    fn len(&self) -> usize {
        self.small.len() + self.main.len()
    }

    fn steps(&self) -> u64 {
        self.nodes.steps
    }
}
