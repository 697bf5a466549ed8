//! What happens when: a queue of events in the order of their time, and of their coming among equals.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use yb_types::MonotonicTime;

struct Entry<E> {
    at: MonotonicTime,
    order: u64,
    event: E,
}

impl<E> PartialEq for Entry<E> {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl<E> Eq for Entry<E> {}

impl<E> PartialOrd for Entry<E> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<E> Ord for Entry<E> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The queue.
pub struct Agenda<E> {
    heap: BinaryHeap<Reverse<Entry<E>>>,
    next: u64,
}

impl<E> Default for Agenda<E> {
    fn default() -> Self {
        Agenda { heap: BinaryHeap::new(), next: 0 }
    }
}

impl<E> Agenda<E> {
    /// Something is to happen.
    pub fn add(&mut self, at: MonotonicTime, event: E) {
        let order = self.next;
        self.next += 1;
        self.heap.push(Reverse(Entry { at, order, event }));
    }

    /// What happens next.
    pub fn pop(&mut self) -> Option<(MonotonicTime, E)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}
