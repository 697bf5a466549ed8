//! One deadline a call.
//!
//! A call that moves bytes gets a base time plus the time its bytes take at a modest rate. The deadline is made once
//! when the call starts; every stage is given what is left of it, so that no stage can wait for longer than the call.

use std::time::Duration;

use yb_env::Clock;
use yb_types::MonotonicTime;

/// What a key adds to the time of a call, as if it were so many bytes more: work of both sides that has nothing to do with
/// the object's size.
pub(crate) const KEY_BYTES: u64 = 16 << 10;

/// How long calls may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallLimits {
    /// For everything but the bytes.
    pub base: Duration,
    /// Bytes per second that a transfer is expected to reach at least; 0 counts as 1.
    pub bytes_per_second: u64,
}

impl Default for CallLimits {
    /// 2 s and 100 MB/s.
    fn default() -> Self {
        CallLimits { base: Duration::from_secs(2), bytes_per_second: 100_000_000 }
    }
}

impl CallLimits {
    /// The time for a call that moves `bytes`.
    ///
    /// ```
    /// use std::time::Duration;
    /// assert_eq!(yb_client::CallLimits::default().for_bytes(50_000_000), Duration::from_millis(2500));
    /// ```
    pub fn for_bytes(&self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second.max(1));
        self.base.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// When a call started and when it must be over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    pub(crate) started: MonotonicTime,
    pub(crate) at: MonotonicTime,
}

impl Deadline {
    /// From now on, for a call that moves `bytes`.
    pub(crate) fn start(clock: &Clock, limits: &CallLimits, bytes: u64) -> Self {
        let started = clock.now();
        Deadline { started, at: started + limits.for_bytes(bytes) }
    }

    /// From now on, for a call about so many keys that moves no bytes.
    pub(crate) fn for_keys(clock: &Clock, limits: &CallLimits, keys: usize) -> Self {
        Deadline::start(clock, limits, KEY_BYTES.saturating_mul(keys as u64))
    }

    /// The deadline of the same call once its size is known.
    pub(crate) fn with_bytes(self, limits: &CallLimits, bytes: u64) -> Self {
        Deadline { at: self.started + limits.for_bytes(bytes), ..self }
    }

    /// What is left, zero when over.
    pub(crate) fn left(&self, now: MonotonicTime) -> Duration {
        self.at.since(now)
    }

    /// Since the start.
    pub(crate) fn elapsed(&self, now: MonotonicTime) -> Duration {
        now.since(self.started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_share_one_deadline() {
        let clock = Clock::manual();
        let limits = CallLimits::default();
        let d = Deadline::start(&clock, &limits, 0);
        assert_eq!(d.left(clock.now()), Duration::from_secs(2));
        clock.advance(Duration::from_millis(1500));
        assert_eq!(d.left(clock.now()), Duration::from_millis(500));
        let grown = d.with_bytes(&limits, 100_000_000);
        assert_eq!(grown.left(clock.now()), Duration::from_millis(1500));
        clock.advance(Duration::from_secs(9));
        assert_eq!(d.left(clock.now()), Duration::ZERO);
        assert_eq!(d.elapsed(clock.now()), Duration::from_millis(10_500));
    }

    #[test]
    fn a_rate_of_zero_does_not_divide_by_zero() {
        let limits = CallLimits { bytes_per_second: 0, ..CallLimits::default() };
        assert!(limits.for_bytes(u64::MAX) > Duration::from_secs(1 << 32));
    }
}
