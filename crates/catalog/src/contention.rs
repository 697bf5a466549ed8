//! A lock that knows how often and how long somebody waited for it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use yb_types::MonotonicTime;

/// Tells the time to those who measure waits.
pub type WaitClock = Box<dyn Fn() -> MonotonicTime + Send + Sync>;

/// Waits for all locks of one kind. The time of waits is known from when a clock was given.
#[derive(Default)]
pub(crate) struct Waits {
    count: AtomicU64,
    nanos: AtomicU64,
    clock: OnceLock<WaitClock>,
}

impl Waits {
    /// Gives the clock; the first one stays.
    pub fn measure_with(&self, clock: WaitClock) {
        let _ = self.clock.set(clock);
    }

    /// How many waits there were, and their nanoseconds.
    pub fn so_far(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.nanos.load(Ordering::Relaxed))
    }

    /// Only who has to wait comes here.
    #[cold]
    fn wait<G>(&self, lock: impl FnOnce() -> G) -> G {
        let now = || self.clock.get().map_or(MonotonicTime(0), |clock| clock());
        let began = now();
        let guard = lock();
        self.count.fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(now().since(began).as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        guard
    }
}

/// A read-write lock whose waits are counted; one that is free costs what it did.
pub(crate) struct CountedLock<T> {
    lock: RwLock<T>,
    waits: Arc<Waits>,
}

impl<T> CountedLock<T> {
    pub fn new(value: T, waits: Arc<Waits>) -> Self {
        CountedLock { lock: RwLock::new(value), waits }
    }

    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        match self.lock.try_read() {
            Some(guard) => guard,
            None => self.waits.wait(|| self.lock.read()),
        }
    }

    /// Also for a thread that holds the lock for reading already.
    #[inline]
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
        match self.lock.try_read_recursive() {
            Some(guard) => guard,
            None => self.waits.wait(|| self.lock.read_recursive()),
        }
    }

    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        match self.lock.try_write() {
            Some(guard) => guard,
            None => self.waits.wait(|| self.lock.write()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;

    #[test]
    fn only_who_waits_is_counted() {
        let waits = Arc::new(Waits::default());
        let lock = CountedLock::new(0, Arc::clone(&waits));
        drop((lock.read(), lock.read_recursive()));
        *lock.write() += 1;
        assert_eq!(waits.so_far(), (0, 0));
        let ticks = AtomicU64::new(0);
        waits.measure_with(Box::new(move || MonotonicTime(7 * ticks.fetch_add(1, Ordering::Relaxed))));
        waits.wait(|| *lock.write() += 1);
        assert_eq!(waits.so_far(), (1, 7));
        assert_eq!(*lock.read(), 2);
    }
}
