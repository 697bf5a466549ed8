//! Locks and atomic words of the catalog: those of `parking_lot` and `std`, or, with the feature `shuttle`, stand-ins
//! whose every step is a point where a test's scheduler may let another thread go first.
//!
//! All locks come from here, and the atomic words that threads decide by. Mere counters need not.

#[cfg(not(feature = "shuttle"))]
pub(crate) use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(feature = "shuttle"))]
pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
}

/// Lets those who wait for a lock have it for a moment.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn give_turn<T>(guard: &mut MutexGuard<'_, T>) {
    MutexGuard::bump(guard);
}

/// The explorer lets others go first by itself.
#[cfg(feature = "shuttle")]
pub(crate) fn give_turn<T>(_guard: &mut MutexGuard<'_, T>) {}

#[cfg(feature = "shuttle")]
pub(crate) use explored::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};

#[cfg(feature = "shuttle")]
mod explored {
    use std::sync::PoisonError;

    pub(crate) use shuttle::sync::{MutexGuard, RwLockReadGuard, RwLockWriteGuard, atomic};

    /// As `parking_lot::Mutex`, as far as it is used.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }

    /// As `parking_lot::RwLock`, as far as it is used. A second lock for reading by one thread is refused by the
    /// explorer, so tests under it keep the keys of a batch in different shards.
    pub(crate) struct RwLock<T>(shuttle::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> Self {
            RwLock(shuttle::sync::RwLock::new(value))
        }

        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
            self.read()
        }

        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().unwrap_or_else(PoisonError::into_inner)
        }

        pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
            self.0.try_read().ok()
        }

        pub fn try_read_recursive(&self) -> Option<RwLockReadGuard<'_, T>> {
            self.try_read()
        }

        pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
            self.0.try_write().ok()
        }
    }
}
