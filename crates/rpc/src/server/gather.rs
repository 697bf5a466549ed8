//! How many requests a busy worker waits for before it wakes up.
//!
//! Problem: with many clients of one request each, a worker that wakes up for every request spends more on falling asleep and
//! waking up than on answers. So while requests come fast, it sleeps until a few are there, as network cards hold back
//! their interrupts. Invariants: it asks for fewer than should come within [`GATHER_FOR`], and for no more than a part of its
//! connections, and no request waits longer than `GATHER_FOR`; a worker that is not busy answers every request at once.

use std::time::Duration;

use yb_types::MonotonicTime;

/// The longest that a request waits for others.
pub(crate) const GATHER_FOR: Duration = Duration::from_micros(100);
/// More than that at once saves little.
const MOST: u64 = 16;
/// It waits for so many fewer than should come in that time. So it begins at one request in some 12 microseconds, when answers
/// take a worker two fifths of its time, and waits for more of them the faster they come.
const FEWER: u64 = 6;
/// So many connections for one event that is waited for: a few that ask in turn are not held back.
const CONNECTIONS_PER_EVENT: usize = 4;
/// Fewer connections than this are not held back at all.
const CONNECTIONS: usize = 16;
/// Parts of one event in which the estimate is kept.
const PARTS: u64 = 256;

/// The estimate of one worker.
#[derive(Debug, Default)]
pub(crate) struct Gather {
    /// Events within [`GATHER_FOR`], in [`PARTS`] of one: an average over the last turns.
    expected: u64,
    /// What the turn waits for, if for more than one.
    asked: u32,
    last: MonotonicTime,
}

impl Gather {
    /// A turn that began at `now` has met this many events.
    pub(crate) fn met(&mut self, now: MonotonicTime, events: u64) {
        let gap = u64::try_from(now.since(self.last).as_nanos()).unwrap_or(u64::MAX).max(1);
        self.last = now;
        let at_this_rate = events.saturating_mul(PARTS).saturating_mul(GATHER_FOR.as_nanos() as u64) / gap;
        let capped = at_this_rate.min(4 * MOST * PARTS);
        self.expected = match self.expected - self.expected / 4 + capped / 4 {
            // It waited for more than came: that must not happen often.
            _ if events < u64::from(self.asked) => capped.min(self.expected / 2),
            average => average,
        };
    }

    /// How many events to wait for, at least 1.
    pub(crate) fn wanted(&mut self, connections: usize) -> u32 {
        let most = if connections < CONNECTIONS { 1 } else { MOST.min((connections / CONNECTIONS_PER_EVENT) as u64) };
        let wanted = (self.expected / PARTS).saturating_sub(FEWER).clamp(1, most) as u32;
        self.asked = if wanted > 1 { wanted } else { 0 };
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is wanted after events at this distance, each met by a turn of its own that did not wait for more.
    fn wanted_at(distance: Duration, connections: usize) -> u32 {
        let (mut gather, mut now) = (Gather::default(), MonotonicTime(0));
        for _ in 0..50 {
            now = now + distance;
            gather.met(now, 1);
        }
        gather.wanted(connections)
    }

    #[test]
    fn only_a_busy_worker_waits_for_several() {
        assert_eq!(wanted_at(Duration::from_secs(1), 64), 1);
        assert_eq!(wanted_at(Duration::from_micros(14), 64), 1);
        let at_ten = wanted_at(Duration::from_micros(10), 64);
        assert!((3..=4).contains(&at_ten), "{at_ten}");
        let at_five = wanted_at(Duration::from_micros(5), 64);
        assert!((13..=14).contains(&at_five), "{at_five}");
        assert_eq!(wanted_at(Duration::from_micros(5), 32), 8, "one for four connections");
        assert_eq!(wanted_at(Duration::from_nanos(100), 1000), MOST as u32);
        assert_eq!(wanted_at(Duration::from_nanos(100), 15), 1, "a few connections are not held back");
    }

    #[test]
    fn waiting_in_vain_ends_it_soon() {
        let (mut gather, mut now) = (Gather::default(), MonotonicTime(0));
        for _ in 0..50 {
            now = now + Duration::from_micros(20);
            gather.met(now, 16);
        }
        assert_eq!(gather.wanted(1000), MOST as u32);
        now = now + GATHER_FOR;
        gather.met(now, 1);
        assert_eq!(gather.wanted(1000), 1);
    }
}
