//! S3-FIFO: a small queue for newcomers, a main queue, and a list of ghosts.

use yb_types::MonotonicTime;

use crate::arena::{Arena, List};
use crate::ghosts::Ghosts;
use crate::policy::{Newcomer, Policy, Seen, Slot, Verdict, Victims};

/// The small queue is to hold one key in so many.
const SMALL_SHARE: usize = 10;
/// Ghosts for each key of the pool.
const GHOSTS_PER_KEY: usize = 8;
const USES_MAX: u8 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Small,
    Main,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seat {
    place: Place,
    uses: u8,
}

/// S3-FIFO (Yang et al., SOSP 2023) with a long ghost list. Newcomers wait in a small queue; who is used there, or comes
/// back while its ghost is remembered, joins the main queue, where each use earns another round. 16 bytes a key, and 43
/// for its share of the ghosts.
#[derive(Debug)]
pub struct S3Fifo {
    nodes: Arena<Seat>,
    small: List,
    main: List,
    ghosts: Ghosts,
    /// Time for the ghosts, in keys evicted.
    evicted: u32,
}

impl S3Fifo {
    /// Without keys.
    pub fn new() -> Self {
        S3Fifo {
            nodes: Arena::new(),
            small: List::EMPTY,
            main: List::EMPTY,
            ghosts: Ghosts::new(GHOSTS_PER_KEY),
            evicted: 0,
        }
    }

    fn unlink(&mut self, number: u32) {
        let list = match self.nodes[number].value.place {
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
        };
        self.nodes.unlink(list, number);
    }

    fn stand(&mut self, number: u32, place: Place, uses: u8) {
        self.nodes[number].value = Seat { place, uses };
        let list = match place {
            Place::Small => &mut self.small,
            Place::Main => &mut self.main,
        };
        self.nodes.push_back(list, number);
    }

    fn drop_node(&mut self, number: u32) {
        self.unlink(number);
        self.nodes.release(number);
    }

    fn use_once_more(&mut self, number: u32) {
        let seat = &mut self.nodes[number].value;
        seat.uses = (seat.uses + 1).min(USES_MAX);
    }

    /// The key at the front of the queue whose turn it is, after moving those that earned a place on.
    fn candidate(&mut self) -> Option<u32> {
        loop {
            let small_is_full = self.small.len() * SMALL_SHARE > self.len() || self.main.is_empty();
            let number = if small_is_full { self.small.front()? } else { self.main.front()? };
            let Seat { place, uses } = self.nodes[number].value;
            if uses == 0 {
                return Some(number);
            }
            self.unlink(number);
            self.stand(number, Place::Main, if place == Place::Main { uses - 1 } else { 0 });
        }
    }
}

impl Default for S3Fifo {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for S3Fifo {
    fn looked_up(&mut self, keys: &[Seen], _now: MonotonicTime) {
        for key in keys {
            if let Seen::Here(slot) = key
                && let Some(number) = self.nodes.find(*slot)
            {
                self.use_once_more(number);
            }
        }
    }

    fn inserted(&mut self, keys: &[Newcomer], _group: Option<u64>, _now: MonotonicTime) {
        for Newcomer { slot, key } in keys {
            if let Some(number) = self.nodes.find(*slot) {
                self.use_once_more(number);
                continue;
            }
            if let Some(old) = self.nodes.occupant(slot.number) {
                self.drop_node(old);
            }
            let place = if self.ghosts.recall(*key, self.evicted).is_some() { Place::Main } else { Place::Small };
            let number = self.nodes.add(*slot, Seat { place, uses: 0 });
            self.stand(number, place, 0);
        }
    }

    fn removed(&mut self, slot: Slot) {
        if let Some(number) = self.nodes.find(slot) {
            self.drop_node(number);
        }
    }

    fn victim(&mut self, _now: MonotonicTime, victims: &mut Victims<'_>) -> Option<(Slot, u64)> {
        while victims.left() {
            let number = self.candidate()?;
            let slot = self.nodes.slot(number);
            let place = self.nodes[number].value.place;
            match victims.judge(slot) {
                Verdict::Gone => self.drop_node(number),
                Verdict::Goes { key, bytes } => {
                    self.drop_node(number);
                    if place == Place::Small {
                        self.evicted = self.evicted.wrapping_add(1);
                        self.ghosts.fit(self.len());
                        self.ghosts.bury(key, 0, 0, self.evicted, self.evicted);
                    }
                    return Some((slot, bytes));
                }
                Verdict::Protected => {
                    self.unlink(number);
                    self.stand(number, place, 0);
                }
            }
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
