//! What is told of calls that failed: a count for each reason, and a line in the log, one for each reason and second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use yb_types::MonotonicTime;

use crate::{Error, Reason};

/// Between two lines of one reason.
const PAUSE: Duration = Duration::from_secs(1);
/// Bytes of a key that a line shows.
const KEY_SHOWN: usize = 128;

/// Failed objects by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureCounts([u64; Reason::ALL.len()]);

impl FailureCounts {
    /// How many objects a call failed for, for this reason.
    pub fn of(&self, reason: Reason) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or_default()
    }

    /// Every reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL.iter().copied().zip(self.0.iter().copied())
    }
}

/// One reason, as it is being counted.
#[derive(Debug, Default)]
struct Tally {
    count: AtomicU64,
    /// When the next line may be written.
    quiet_until: AtomicU64,
    /// What had been counted when the last line was written.
    told: AtomicU64,
}

/// All reasons.
#[derive(Debug, Default)]
pub(crate) struct Failures([Tally; Reason::ALL.len()]);

impl Failures {
    /// Counts the failure of one object; says so in the log, unless the same was said a moment ago. A miss is no news.
    pub(crate) fn note(&self, call: &'static str, key: &[u8], error: &Error, now: impl FnOnce() -> MonotonicTime) {
        if let Some(untold) = self.count(error.reason(), now) {
            tell(call, key, error, untold);
        }
    }

    /// How many failures of its kind were not told, if this one is to be.
    fn count(&self, reason: Reason, now: impl FnOnce() -> MonotonicTime) -> Option<u64> {
        let tally = self.0.get(reason as usize)?;
        let count = tally.count.fetch_add(1, Ordering::Relaxed) + 1;
        if reason == Reason::Missing {
            return None;
        }
        let (now, until) = (now(), tally.quiet_until.load(Ordering::Relaxed));
        if now.0 < until {
            return None;
        }
        let next = (now + PAUSE).0;
        tally.quiet_until.compare_exchange(until, next, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        let told = tally.told.swap(count, Ordering::Relaxed);
        Some(count.saturating_sub(told + 1))
    }

    pub(crate) fn counts(&self) -> FailureCounts {
        FailureCounts(std::array::from_fn(|index| self.0[index].count.load(Ordering::Relaxed)))
    }
}

/// One line, its fields in one order: `grep reason=transfer` finds all of them.
fn tell(call: &'static str, key: &[u8], error: &Error, untold: u64) {
    let shown = key.get(..KEY_SHOWN).unwrap_or(key).escape_ascii();
    let finding = error.finding();
    tracing::warn!(
        reason = error.reason().word(),
        code = error.code().0,
        call,
        key = %shown,
        peer = error.peer().unwrap_or("-"),
        stage = error.stage().unwrap_or("-"),
        cause = error.cause().unwrap_or("-"),
        node = finding.and_then(|finding| finding.node.as_deref()).unwrap_or("-"),
        writer = %finding.and_then(|finding| finding.writer).map_or_else(|| "-".to_owned(), |writer| writer.to_string()),
        retryable = error.retryable(),
        elapsed_ms = error.elapsed().map_or(0, |elapsed| u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)),
        untold,
        "call failed: {error}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_failure_is_counted_and_one_a_second_is_told() {
        let failures = Failures::default();
        let at = |ms: u64| MonotonicTime(1) + Duration::from_millis(ms);
        let told: Vec<Option<u64>> =
            [0, 1, 999, 1000, 1001, 5000].into_iter().map(|ms| failures.count(Reason::Busy, || at(ms))).collect();
        assert_eq!(told, [Some(0), None, None, Some(2), None, Some(1)]);
        assert_eq!(failures.count(Reason::NoRoom, || at(5000)), Some(0), "each reason has its own pause");
        assert_eq!(failures.count(Reason::Missing, || at(5000)), None, "a miss is counted and not told");
        let counts = failures.counts();
        assert_eq!([Reason::Busy, Reason::NoRoom, Reason::Missing].map(|reason| counts.of(reason)), [6, 1, 1]);
        assert_eq!(counts.iter().map(|(_, count)| count).sum::<u64>(), 8);
    }
}
