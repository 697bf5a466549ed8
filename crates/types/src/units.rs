//! Units: bytes, addresses, time.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteLen(pub u64);

impl fmt::Display for ByteLen {
    /// Exact multiples of a binary unit print in that unit, others with two digits: `64.00 KiB`, `513 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return write!(f, "{} B", self.0);
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while value >= 1024.0 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        write!(f, "{value:.2} {}", UNITS[unit])
    }
}

/// An absolute address inside the owner's process, as it travels in descriptors. Never dereferenced here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentAddress(pub u64);

/// Nanoseconds on a monotonic clock with an arbitrary start. Pure code takes it as an argument.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MonotonicTime(pub u64);

impl MonotonicTime {
    /// Time since `earlier`, zero if `earlier` is later.
    pub fn since(self, earlier: MonotonicTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Whole milliseconds since the clock's start.
    pub fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// From whole milliseconds since the clock's start.
    pub fn from_millis(ms: u64) -> Self {
        MonotonicTime(ms.saturating_mul(1_000_000))
    }
}

impl Add<Duration> for MonotonicTime {
    type Output = MonotonicTime;
    fn add(self, d: Duration) -> MonotonicTime {
        MonotonicTime(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub<Duration> for MonotonicTime {
    type Output = MonotonicTime;
    fn sub(self, d: Duration) -> MonotonicTime {
        MonotonicTime(self.0.saturating_sub(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}
