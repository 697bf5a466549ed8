//! Classes of traffic that share one server by weight.
//!
//! Weighted deficit round robin: a class whose turn it is may take as much as its weight allows, and saves what it could
//! not use for an item too large. A class without items takes no turn, so the server is never idle while anything waits,
//! and saves nothing. Inside a class the larger priority goes first, then the earlier deadline, then the earlier arrival.

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, VecDeque};

use yb_types::MonotonicTime;

/// What a class of weight 1 may take in its turn, in units of cost (bytes).
const QUANTUM: u64 = 64 << 10;

/// A share of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// How many there are: 0 to 7. Larger numbers count as the last.
    pub const COUNT: usize = 8;
    /// What somebody waits for.
    pub const HIGH: TrafficClass = TrafficClass(0);
    /// The default.
    pub const NORMAL: TrafficClass = TrafficClass(1);
    /// What nobody waits for.
    pub const LOW: TrafficClass = TrafficClass(2);
    /// The weights that classes have unless told otherwise.
    pub const WEIGHTS: [u32; TrafficClass::COUNT] = [16, 4, 1, 1, 1, 1, 1, 1];

    fn index(self) -> usize {
        usize::from(self.0).min(TrafficClass::COUNT - 1)
    }
}

impl Default for TrafficClass {
    fn default() -> Self {
        TrafficClass::NORMAL
    }
}

/// Something that waits, and what it asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<T> {
    /// Whose share it takes.
    pub class: TrafficClass,
    /// Goes first inside its class when larger.
    pub priority: i8,
    /// Goes first among equal priorities when earlier; none is last.
    pub deadline: Option<MonotonicTime>,
    /// How much of the share it takes, in bytes; none counts as one.
    pub cost: u64,
    /// What waits.
    pub value: T,
}

impl<T> Item<T> {
    fn key(&self) -> (i8, Reverse<u64>) {
        (self.priority, Reverse(self.deadline.map_or(u64::MAX, |deadline| deadline.0)))
    }
}

struct Entry<T> {
    item: Item<T>,
    arrival: u64,
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.item.key().cmp(&other.item.key()).then(other.arrival.cmp(&self.arrival))
    }
}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for Entry<T> {}

struct Class<T> {
    weight: u64,
    /// What it may still take; saved over turns while something waits.
    credit: u64,
    /// Whether it got its weight for the turn that it has.
    paid: bool,
    /// Whether it has a place in the order of turns. A class that was emptied keeps it until the next item is asked
    /// for: whoever puts back what is left of an item goes on in the same turn.
    listed: bool,
    waiting: BinaryHeap<Entry<T>>,
}

impl<T> Class<T> {
    fn next_cost(&self) -> Option<u64> {
        self.waiting.peek().map(|entry| entry.item.cost.max(1))
    }

    fn pay(&mut self, turns: u64) {
        self.credit = self.credit.saturating_add(turns.saturating_mul(self.weight * QUANTUM));
    }

    /// How many turns it takes until the next item can be paid.
    fn turns(&self) -> u64 {
        let missing = self.next_cost().unwrap_or(0).saturating_sub(self.credit);
        missing.div_ceil(self.weight * QUANTUM)
    }
}

/// Items of all classes that wait for one server.
pub struct ClassQueue<T> {
    classes: [Class<T>; TrafficClass::COUNT],
    /// Classes with items, in order of their turns.
    turns: VecDeque<usize>,
    arrivals: u64,
    len: usize,
}

impl<T> Default for ClassQueue<T> {
    fn default() -> Self {
        Self::new(TrafficClass::WEIGHTS)
    }
}

impl<T> ClassQueue<T> {
    /// An empty queue. A weight of 0 counts as 1: nothing waits for ever.
    pub fn new(weights: [u32; TrafficClass::COUNT]) -> Self {
        let class = |weight: u32| Class {
            weight: u64::from(weight.max(1)),
            credit: 0,
            paid: false,
            listed: false,
            waiting: BinaryHeap::new(),
        };
        ClassQueue { classes: weights.map(class), turns: VecDeque::new(), arrivals: 0, len: 0 }
    }

    /// Changes the share of a class from its next turn on.
    pub fn set_weight(&mut self, class: TrafficClass, weight: u32) {
        if let Some(class) = self.classes.get_mut(class.index()) {
            class.weight = u64::from(weight.max(1));
        }
    }

    /// How many items wait.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True when nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds an item.
    pub fn push(&mut self, item: Item<T>) {
        let index = item.class.index();
        let Some(class) = self.classes.get_mut(index) else { return };
        if !std::mem::replace(&mut class.listed, true) {
            (class.credit, class.paid) = (0, false);
            self.turns.push_back(index);
        }
        self.arrivals += 1;
        class.waiting.push(Entry { item, arrival: self.arrivals });
        self.len += 1;
    }

    /// Takes the item whose turn it is.
    pub fn pop(&mut self) -> Option<Item<T>> {
        let mut poor = 0;
        loop {
            let index = *self.turns.front()?;
            let class = self.classes.get_mut(index)?;
            if class.waiting.is_empty() {
                class.listed = false;
                self.turns.pop_front();
                continue;
            }
            if !class.paid {
                class.pay(1);
                class.paid = true;
            }
            if class.next_cost().is_some_and(|cost| cost <= class.credit) {
                return self.take(index);
            }
            class.paid = false;
            self.turns.rotate_left(1);
            poor += 1;
            if poor >= self.turns.len() {
                self.skip_turns();
                poor = 0;
            }
        }
    }

    fn take(&mut self, index: usize) -> Option<Item<T>> {
        let class = self.classes.get_mut(index)?;
        let item = class.waiting.pop()?.item;
        class.credit -= item.cost.max(1).min(class.credit);
        self.len -= 1;
        Some(item)
    }

    /// Nobody could pay: all turns at once until the first but one of them can.
    fn skip_turns(&mut self) {
        let waiting = |class: &&Class<T>| !class.waiting.is_empty();
        let turns = self.classes.iter().filter(waiting).map(Class::turns).min().unwrap_or(0).saturating_sub(1);
        for class in self.classes.iter_mut().filter(|class| !class.waiting.is_empty()) {
            class.pay(turns);
        }
    }

    /// Takes the first for which `wanted` says so, out of turn; its class pays as far as it can. Looks at all that waits.
    pub fn pop_where(&mut self, wanted: impl Fn(&T) -> bool) -> Option<Item<T>> {
        for index in self.turns.iter().copied() {
            let Some(class) = self.classes.get_mut(index) else { continue };
            let first = class.waiting.iter().filter(|entry| wanted(&entry.item.value)).max().map(|entry| entry.arrival);
            let Some(arrival) = first else { continue };
            let mut waiting = std::mem::take(&mut class.waiting).into_vec();
            let at = waiting.iter().position(|entry| entry.arrival == arrival);
            let taken = at.map(|at| waiting.swap_remove(at).item);
            class.waiting = waiting.into();
            let item = taken?;
            class.credit -= item.cost.min(class.credit);
            self.len -= 1;
            return Some(item);
        }
        None
    }

    /// Takes out everything for which `wanted` says so, in no order.
    pub fn remove_where(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Vec<T> {
        let mut removed = Vec::new();
        for class in &mut self.classes {
            let waiting = std::mem::take(&mut class.waiting);
            let (out, kept): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|entry| wanted(&entry.item.value));
            class.waiting = kept.into();
            removed.extend(out.into_iter().map(|entry| entry.item.value));
        }
        self.len -= removed.len();
        removed
    }
}

impl<T> std::fmt::Debug for ClassQueue<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClassQueue").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(class: u8, cost: u64, value: u32) -> Item<u32> {
        Item { class: TrafficClass(class), priority: 0, deadline: None, cost, value }
    }

    #[test]
    fn inside_a_class_priority_then_deadline_then_arrival() {
        let mut queue = ClassQueue::default();
        let at = |priority, deadline: Option<u64>, value| Item {
            priority,
            deadline: deadline.map(MonotonicTime),
            ..item(1, 1, value)
        };
        for item in
            [at(0, None, 5), at(0, None, 6), at(0, Some(9), 4), at(0, Some(3), 3), at(-1, Some(1), 7), at(3, None, 1)]
        {
            queue.push(item);
        }
        let order: Vec<u32> = std::iter::from_fn(|| queue.pop()).map(|item| item.value).collect();
        assert_eq!(order, [1, 3, 4, 5, 6, 7]);
    }

    /// Bytes taken of each class out of the first `total`, while all have more than enough.
    fn shares(weights: [u32; TrafficClass::COUNT], cost: impl Fn(u64) -> u64, items: usize, total: u64) -> [u64; 8] {
        let mut queue = ClassQueue::new(weights);
        let mut taken = [0; 8];
        let mut number = 0;
        for class in 0..8 {
            for _ in 0..items {
                queue.push(item(class, cost(number), 0));
                number += 1;
            }
        }
        while taken.iter().sum::<u64>() < total {
            let done = queue.pop().unwrap();
            taken[done.class.index()] += done.cost;
            number += 1;
            queue.push(item(done.class.0, cost(number), 0));
        }
        taken
    }

    #[test]
    fn a_class_that_was_idle_has_saved_nothing() {
        let mut queue = ClassQueue::new([1; 8]);
        for _ in 0..1000 {
            queue.push(item(0, QUANTUM, 0));
            assert_eq!(queue.pop().unwrap().class, TrafficClass(0));
        }
        for n in 0..100 {
            queue.push(item(0, QUANTUM, n));
            queue.push(item(1, QUANTUM, n));
        }
        let first: Vec<u8> = (0..10).map(|_| queue.pop().unwrap().class.0).collect();
        assert_eq!(first.iter().filter(|class| **class == 0).count(), 5, "{first:?}");
    }

    #[test]
    fn what_is_wanted_comes_out_of_turn_and_the_rest_in_its_order() {
        let mut queue = ClassQueue::default();
        for n in 0..9 {
            queue.push(item((n % 3) as u8, 10, n));
        }
        let value = |item: Option<Item<u32>>| item.map(|item| item.value);
        assert_eq!(value(queue.pop_where(|n| *n > 3 && n % 3 == 1)), Some(4), "the first of its class");
        assert_eq!(value(queue.pop_where(|n| *n == 100)), None);
        let left: Vec<u32> = std::iter::from_fn(|| value(queue.pop())).collect();
        assert_eq!(left, [0, 3, 6, 1, 7, 2, 5, 8]);
    }

    #[test]
    fn what_is_removed_does_not_come() {
        let mut queue = ClassQueue::default();
        for n in 0..100 {
            queue.push(item((n % 3) as u8, u64::from(n), n));
        }
        let mut removed = queue.remove_where(|n| n % 3 == 1 || n % 2 == 0);
        removed.sort_unstable();
        assert_eq!(removed, (0..100).filter(|n| n % 3 == 1 || n % 2 == 0).collect::<Vec<_>>());
        let mut left: Vec<u32> = std::iter::from_fn(|| queue.pop()).map(|item| item.value).collect();
        left.sort_unstable();
        assert_eq!(left, (0..100).filter(|n| n % 3 != 1 && n % 2 != 0).collect::<Vec<_>>());
        assert!(queue.is_empty());
    }

    proptest! {
        #[test]
        fn classes_share_by_weight(weights in prop::array::uniform8(1_u32..20), size in (16_u64 << 10)..(4 << 20), mixed: bool, items in 1_usize..4) {
            let cost = |number: u64| if mixed { 1 + (number * 7919) % size } else { size };
            let round: u64 = weights.iter().map(|w| u64::from(*w) * QUANTUM).sum();
            let total = 50 * round.max(8 * size);
            let taken = shares(weights, cost, items, total);
            let all: u64 = taken.iter().sum();
            for (weight, bytes) in weights.iter().zip(taken) {
                let due = all as f64 * f64::from(*weight) / f64::from(weights.iter().sum::<u32>());
                let slack = (f64::from(*weight) * QUANTUM as f64 + size as f64) * 2.0;
                prop_assert!((bytes as f64 - due).abs() <= slack, "weight {weight}: {bytes} bytes, {due} due of {all}");
            }
        }

        #[test]
        fn everything_comes_out_once(items in prop::collection::vec((0_u8..10, 0_u64..(64 << 20), -2_i8..3), 0..200)) {
            let mut queue = ClassQueue::default();
            let mut out = Vec::new();
            for (number, (class, cost, priority)) in items.iter().enumerate() {
                queue.push(Item { priority: *priority, ..item(*class, *cost, number as u32) });
                if number % 3 == 0 {
                    out.extend(queue.pop().map(|item| item.value));
                }
            }
            while !queue.is_empty() {
                out.push(queue.pop().unwrap().value);
            }
            out.sort_unstable();
            prop_assert_eq!(out, (0..items.len() as u32).collect::<Vec<_>>());
        }
    }
}
