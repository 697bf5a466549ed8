//! A count of the bytes that large calls hold while they are worked on: copied arguments, and answers that grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much all large calls together may hold, and how much they do.
#[derive(Debug)]
pub(crate) struct Bulk {
    limit: usize,
    held: AtomicUsize,
}

impl Bulk {
    pub(crate) fn new(limit: usize) -> Arc<Bulk> {
        Arc::new(Bulk { limit, held: AtomicUsize::new(0) })
    }

    /// The part of one call; nothing at first.
    pub(crate) fn part(self: &Arc<Self>) -> Part {
        Part { bulk: Arc::clone(self), bytes: 0 }
    }
}

/// What one call holds. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    bulk: Arc<Bulk>,
    bytes: usize,
}

impl Part {
    /// Holds more; `false` when all calls together would hold too much, and nothing changed then.
    pub(crate) fn grow(&mut self, bytes: usize) -> bool {
        let fits = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= self.bulk.limit);
        let grown = self.bulk.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).is_ok();
        self.bytes += if grown { bytes } else { 0 };
        grown
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.bulk.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_calls_together_hold_no_more_than_the_limit() {
        let bulk = Bulk::new(100);
        let (mut a, mut b) = (bulk.part(), bulk.part());
        assert!(a.grow(60) && b.grow(40));
        assert!(!a.grow(1) && !b.grow(usize::MAX));
        drop(b);
        assert!(a.grow(40) && !a.grow(1));
        drop(a);
        assert!(bulk.part().grow(100), "everything was given back");
    }
}
