//! The doors to the outside world: clock, randomness, threads, memory, ports, standard error.
//!
//! Every other crate takes time and randomness as arguments. A lint bans the functions of the standard library that
//! this crate wraps, so that a test or a simulation can stand in for the world.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this crate is the one place where they are used"
)]

mod complaint;
mod connections;
mod memory;
mod ports;

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use yb_types::{MonotonicTime, Uuid};

pub use complaint::complain_of;
pub use connections::end_when_vanished;
pub use memory::memory_limit;
pub use ports::free_port;

/// A monotonic clock; clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock(ClockKind);

#[derive(Clone, Debug)]
enum ClockKind {
    Real(Instant),
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// The machine's clock. It starts at one hour, so that subtracting a timeout from "now" cannot reach below zero.
    pub fn real() -> Self {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        Clock(ClockKind::Real(*START.get_or_init(Instant::now)))
    }

    /// A clock that moves only when told.
    ///
    /// ```
    /// use std::time::Duration;
    /// let clock = yb_env::Clock::manual();
    /// let before = clock.now();
    /// clock.advance(Duration::from_secs(5));
    /// assert_eq!(clock.now().since(before), Duration::from_secs(5));
    /// ```
    pub fn manual() -> Self {
        Clock(ClockKind::Manual(Arc::new(AtomicU64::new(3_600_000_000_000))))
    }

    /// The time now.
    pub fn now(&self) -> MonotonicTime {
        match &self.0 {
            ClockKind::Real(start) => {
                let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                MonotonicTime(ns.saturating_add(3_600_000_000_000))
            }
            ClockKind::Manual(ns) => MonotonicTime(ns.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock forward; does nothing to a real one.
    pub fn advance(&self, by: Duration) {
        if let ClockKind::Manual(ns) = &self.0 {
            ns.fetch_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX), Ordering::SeqCst);
        }
    }
}

/// Milliseconds since the UNIX epoch, for timestamps that people or other processes read.
pub fn epoch_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A small seeded random generator (splitmix64): fast, reproducible, not for secrets.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The same seed gives the same sequence.
    pub fn seeded(seed: u64) -> Self {
        Rng(seed)
    }

    /// Seeded from the operating system's randomness.
    pub fn from_entropy() -> Self {
        Rng(std::collections::hash_map::RandomState::new().build_hasher().finish() ^ epoch_millis().rotate_left(32))
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A random id that is not nil.
    pub fn uuid(&mut self) -> Uuid {
        Uuid { first: self.next_u64() | 1, second: self.next_u64() }
    }
}

/// Starts a named thread.
///
/// # Errors
/// The operating system's, when it refuses another thread.
pub fn spawn_thread<F, T>(name: &str, body: F) -> std::io::Result<std::thread::JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Puts the calling thread to sleep. For timers of background threads only; tests wait for events.
pub fn sleep(duration: Duration) {
    std::thread::sleep(duration);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_sequence() {
        let (mut a, mut b) = (Rng::seeded(7), Rng::seeded(7));
        let left: Vec<u64> = (0..8).map(|_| a.next_u64()).collect();
        let right: Vec<u64> = (0..8).map(|_| b.next_u64()).collect();
        assert_eq!(left, right);
        assert!((0..1000).all(|_| a.below(10) < 10));
        assert_eq!(a.below(0), 0);
    }
}
