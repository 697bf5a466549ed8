//! The time in which directories of an earlier master are taken over, and what must not come back in it.

use std::collections::BTreeSet;
use std::time::Duration;

use yb_types::MonotonicTime;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// As long after the start of a master directories are taken over.
const WINDOW: Duration = Duration::from_secs(60);
/// Keys remembered; with more the time is over.
const GONE_MAX: usize = 1 << 20;

/// What left this master while nodes may be unread.
#[derive(Debug, Default)]
pub(crate) struct Relearning {
    open: AtomicBool,
    until: AtomicU64,
    /// Hashes of keys.
    gone: Mutex<BTreeSet<u64>>,
}

impl Relearning {
    /// A master begins to answer.
    pub fn begin(&self, now: MonotonicTime) {
        self.until.store((now + WINDOW).0, Ordering::Relaxed);
        self.open.store(true, Ordering::Release);
    }

    /// Whether keys that leave have to be noted.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// The same, at this time.
    pub fn look(&self, now: MonotonicTime) -> bool {
        if self.is_open() && now.0 >= self.until.load(Ordering::Relaxed) {
            self.end();
        }
        self.is_open()
    }

    /// Nothing is taken over any more.
    pub fn end(&self) {
        self.open.store(false, Ordering::Release);
        self.gone.lock().clear();
    }

    /// A key of this hash left, or was said not to be there.
    #[cold]
    pub fn note(&self, hash: u64) {
        let mut gone = self.gone.lock();
        if gone.len() < GONE_MAX {
            gone.insert(hash);
        } else {
            drop(gone);
            self.end();
        }
    }

    /// A key of this hash only gave way to a newer one of another directory.
    pub fn forgive(&self, hash: u64) {
        self.gone.lock().remove(&hash);
    }

    /// Whether a key of this hash must not come back.
    pub fn is_gone(&self, hash: u64) -> bool {
        !self.is_open() || self.gone.lock().contains(&hash)
    }
}
