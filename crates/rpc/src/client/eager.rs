//! How long a caller looks for its reply before it sleeps.
//!
//! Problem: falling asleep and being woken up again costs as much as a whole request to an idle master on the same host. So
//! a caller whose replies have come soon looks for the next one a few times first. Invariants: nobody looks while replies are
//! slow (the server is busy, or far away), nor on a machine with one processor, which the server needs; a look never
//! blocks, and there are at most [`GLANCES`] a call, some 40 microseconds.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Looks before a caller sleeps; each is a system call of about a third of a microsecond.
const GLANCES: u32 = 128;
/// Replies that take longer than this on average are slept for.
const SOON: Duration = Duration::from_micros(60);
/// One slow reply counts for no more than this, so that a pause of the server is soon forgotten.
const SLOWEST: Duration = Duration::from_micros(480);
/// A new reply makes up one part in so many of the average.
const MEMORY: u32 = 8;

/// What one connection has learned.
#[derive(Debug)]
pub(super) struct Eager {
    /// Nanoseconds from request to reply, an average of the last ones.
    typical: AtomicU32,
    alone: bool,
}

impl Eager {
    /// `processors`: those that this process may run on.
    pub(super) fn new(processors: usize) -> Self {
        Eager { typical: AtomicU32::new(0), alone: processors < 2 }
    }

    /// How often to look for the next reply before sleeping.
    pub(super) fn glances(&self) -> u32 {
        let soon = u128::from(self.typical.load(Ordering::Relaxed)) < SOON.as_nanos();
        if soon && !self.alone { GLANCES } else { 0 }
    }

    /// A reply came after so long.
    pub(super) fn took(&self, time: Duration) {
        let time = u32::try_from(time.min(SLOWEST).as_nanos()).unwrap_or(u32::MAX);
        let before = self.typical.load(Ordering::Relaxed);
        // Two at once may lose one of the two: it is an average.
        self.typical.store(before - before / MEMORY + time / MEMORY, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_is_answered_soon_looks() {
        let eager = Eager::new(2);
        assert_eq!((eager.glances(), Eager::new(1).glances()), (GLANCES, 0));
        (0..30).for_each(|_| eager.took(Duration::from_micros(20)));
        assert_eq!(eager.glances(), GLANCES);
        (0..30).for_each(|_| eager.took(Duration::from_millis(5)));
        assert_eq!(eager.glances(), 0, "a busy server is slept for");
        (0..60).for_each(|_| eager.took(Duration::from_micros(20)));
        assert_eq!(eager.glances(), GLANCES, "and forgiven");
    }
}
