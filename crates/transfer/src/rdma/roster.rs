//! Who makes room when a device has too many endpoints (pure).

use std::collections::VecDeque;

use super::settings::EvictionPolicy;

/// The endpoints of a device in the order in which they came.
#[derive(Debug)]
pub(crate) struct Roster<K> {
    policy: EvictionPolicy,
    capacity: usize,
    /// Oldest first; the flag says that it was used since the hand passed.
    entries: VecDeque<(K, bool)>,
    /// Where the next search begins (SIEVE).
    hand: usize,
}

impl<K: PartialEq + Clone> Roster<K> {
    pub(crate) fn new(policy: EvictionPolicy, capacity: usize) -> Self {
        Roster { policy, capacity: capacity.max(1), entries: VecDeque::new(), hand: 0 }
    }

    /// Notes a use.
    pub(crate) fn touch(&mut self, key: &K) {
        if let Some(entry) = self.entries.iter_mut().find(|(other, _)| other == key) {
            entry.1 = true;
        }
    }

    pub(crate) fn add(&mut self, key: K) {
        self.entries.push_back((key, false));
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some(at) = self.entries.iter().position(|(other, _)| other == key) {
            self.entries.remove(at);
            if at < self.hand {
                self.hand -= 1;
            }
        }
    }

    /// The one to remove so that another fits; `None` while there is room, or when all are busy. Only an endpoint for
    /// which `is_quiet` says yes is taken: nothing of it is in flight.
    pub(crate) fn victim(&mut self, is_quiet: impl Fn(&K) -> bool) -> Option<K> {
        if self.entries.len() < self.capacity {
            return None;
        }
        let count = self.entries.len();
        match self.policy {
            EvictionPolicy::Fifo => self.entries.iter().find(|(key, _)| is_quiet(key)).map(|(key, _)| key.clone()),
            EvictionPolicy::Sieve => {
                // Twice round: the first pass may only take marks away.
                for _ in 0..2 * count {
                    let at = self.hand % count;
                    self.hand = at + 1;
                    let Some((key, used)) = self.entries.get_mut(at) else { continue };
                    if *used {
                        *used = false;
                    } else if is_quiet(key) {
                        self.hand = at;
                        return Some(key.clone());
                    }
                }
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(policy: EvictionPolicy) -> Roster<char> {
        let mut roster = Roster::new(policy, 3);
        for key in ['a', 'b', 'c'] {
            assert_eq!(roster.victim(|_| true), None, "there is room");
            roster.add(key);
        }
        roster
    }

    #[test]
    fn the_oldest_goes_first_unless_it_is_busy() {
        let mut roster = full(EvictionPolicy::Fifo);
        roster.touch(&'a');
        assert_eq!(roster.victim(|_| true), Some('a'));
        assert_eq!(roster.victim(|key| *key != 'a'), Some('b'));
        assert_eq!(roster.victim(|_| false), None);
    }

    #[test]
    fn the_sieve_spares_what_was_used() {
        let mut roster = full(EvictionPolicy::Sieve);
        roster.touch(&'a');
        assert_eq!(roster.victim(|_| true), Some('b'));
        roster.remove(&'b');
        roster.add('d');
        roster.touch(&'c');
        assert_eq!(roster.victim(|_| true), Some('d'), "the hand goes on from where it was, past the used one");
        assert_eq!(roster.victim(|_| false), None);
        assert_eq!(roster.victim(|_| true), Some('d'), "the hand stays at a victim until it is removed");
    }

    #[test]
    fn busy_ones_are_never_taken() {
        for policy in [EvictionPolicy::Fifo, EvictionPolicy::Sieve] {
            let mut roster = full(policy);
            for key in ['a', 'b', 'c'] {
                roster.touch(&key);
            }
            assert_eq!(roster.victim(|key| *key == 'c'), Some('c'));
            assert_eq!(roster.entries.len(), 3);
        }
    }
}
