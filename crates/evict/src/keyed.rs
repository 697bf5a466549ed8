//! Policies for callers that know keys only.

use std::collections::HashMap;

use yb_types::MonotonicTime;

use crate::optimum::Mixed;
use crate::policy::{Key, Newcomer, Policy, Seen, Slot, Verdict, Victims};

/// A policy with places of its own for keys: what the catalog is to it in a pool.
#[derive(Debug, Default)]
pub struct Keyed<P> {
    policy: P,
    places: Places,
}

#[derive(Debug, Default)]
struct Places {
    slots: HashMap<u64, Slot, Mixed>,
    keys: Vec<Key>,
    vacant: Vec<u32>,
    writes: u32,
}

impl Places {
    fn seen(&self, key: Key) -> Seen {
        self.slots.get(&key.0).map_or(Seen::Missing(key), |slot| Seen::Here(*slot))
    }

    fn take(&mut self, key: Key) -> Newcomer {
        if let Some(slot) = self.slots.get(&key.0) {
            return Newcomer { slot: *slot, key };
        }
        let number = self.vacant.pop().unwrap_or(self.keys.len() as u32);
        self.writes = self.writes.wrapping_add(1);
        let slot = Slot::new(number, self.writes);
        if number as usize == self.keys.len() {
            self.keys.push(key);
        }
        self.keys[number as usize] = key;
        self.slots.insert(key.0, slot);
        Newcomer { slot, key }
    }

    fn give_back(&mut self, key: Key) -> Option<Slot> {
        let slot = self.slots.remove(&key.0)?;
        self.vacant.push(slot.number);
        Some(slot)
    }

    fn key(&self, slot: Slot) -> Key {
        self.keys[slot.number as usize]
    }
}

impl<P: Policy> Keyed<P> {
    /// Around a policy that has no keys yet.
    pub fn new(policy: P) -> Self {
        Keyed { policy, places: Places::default() }
    }

    /// See [`Policy::looked_up`].
    pub fn looked_up(&mut self, keys: &[Key], now: MonotonicTime) {
        let seen: Vec<Seen> = keys.iter().map(|key| self.places.seen(*key)).collect();
        self.policy.looked_up(&seen, now);
    }

    /// See [`Policy::inserted`].
    pub fn inserted(&mut self, keys: &[Key], group: Option<u64>, now: MonotonicTime) {
        let newcomers: Vec<Newcomer> = keys.iter().map(|key| self.places.take(*key)).collect();
        self.policy.inserted(&newcomers, group, now);
    }

    /// See [`Policy::removed`].
    pub fn removed(&mut self, key: Key) {
        if let Some(slot) = self.places.give_back(key) {
            self.policy.removed(slot);
        }
    }

    /// The next victim, see [`Policy::victim`]. `bytes` says what a key would free, or `None` while it is protected;
    /// `budget` keys may be looked at.
    pub fn victim(
        &mut self,
        now: MonotonicTime,
        budget: u32,
        bytes: &mut dyn FnMut(Key) -> Option<u64>,
    ) -> Option<(Key, u64)> {
        let places = &self.places;
        let mut judge = |slot: Slot| match bytes(places.key(slot)) {
            Some(bytes) => Verdict::Goes { key: places.key(slot), bytes },
            None => Verdict::Protected,
        };
        let (slot, bytes) = self.policy.victim(now, &mut Victims::new(budget, &mut judge))?;
        let key = self.places.key(slot);
        self.places.give_back(key);
        Some((key, bytes))
    }

    /// Victims until `need` bytes are free, see [`Policy::victims`].
    pub fn victims(
        &mut self,
        need: u64,
        now: MonotonicTime,
        budget: u32,
        bytes: &mut dyn FnMut(Key) -> Option<u64>,
    ) -> Vec<Key> {
        let (mut keys, mut freed, mut looked) = (Vec::new(), 0u64, 0u32);
        while freed < need {
            let left = budget.saturating_sub(looked);
            let mut count = |key| {
                looked += 1;
                bytes(key)
            };
            let Some((key, bytes)) = self.victim(now, left, &mut count) else { break };
            keys.push(key);
            freed = freed.saturating_add(bytes);
        }
        keys
    }

    /// Where a resident key is kept.
    pub fn slot(&self, key: Key) -> Option<Slot> {
        self.places.slots.get(&key.0).copied()
    }

    /// The key that is kept there.
    pub fn key(&self, slot: Slot) -> Key {
        self.places.key(slot)
    }

    /// The policy itself.
    pub fn policy(&mut self) -> &mut P {
        &mut self.policy
    }
}

impl Policy for Box<dyn Policy> {
    fn looked_up(&mut self, keys: &[Seen], now: MonotonicTime) {
        (**self).looked_up(keys, now);
    }

    fn inserted(&mut self, keys: &[Newcomer], group: Option<u64>, now: MonotonicTime) {
        (**self).inserted(keys, group, now);
    }

    fn removed(&mut self, slot: Slot) {
        (**self).removed(slot);
    }

    fn victim(&mut self, now: MonotonicTime, victims: &mut Victims<'_>) -> Option<(Slot, u64)> {
        (**self).victim(now, victims)
    }

    fn len(&self) -> usize {
        (**self).len()
    }

    fn surplus(&self, capacity: usize) -> usize {
        (**self).surplus(capacity)
    }

    fn steps(&self) -> u64 {
        (**self).steps()
    }
}
