//! Settings that may be replaced while everybody reads them.

use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most versions of one value in the life of a process.
const VERSIONS: usize = 1024;

/// A value that is replaced as a whole. Reading is a load and an index, without a lock, through `Deref`; what somebody
/// read stays valid, because old versions are kept. That is why there may be only so many.
pub(crate) struct Live<T> {
    versions: Box<[OnceLock<Box<T>>]>,
    current: AtomicUsize,
    first: T,
}

impl<T> Live<T> {
    pub fn new(first: T) -> Self {
        Live { versions: (0..VERSIONS).map(|_| OnceLock::new()).collect(), current: AtomicUsize::new(0), first }
    }

    /// From now on readers get this value. Gives it back when there were too many versions.
    pub fn replace(&self, value: T) -> Result<(), T> {
        let mut value = Box::new(value);
        for (at, version) in self.versions.iter().enumerate() {
            match version.set(value) {
                Ok(()) => {
                    // Of two replacements at once the later version wins.
                    self.current.fetch_max(at + 1, Ordering::Release);
                    return Ok(());
                }
                Err(back) => value = back,
            }
        }
        Err(*value)
    }

    /// Every version so far.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.first).chain(self.versions.iter().map_while(|version| version.get()).map(Box::as_ref))
    }
}

impl<T> Deref for Live<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self.current.load(Ordering::Acquire) {
            0 => &self.first,
            at => self.versions[at - 1].get().map_or(&self.first, Box::as_ref),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_read_and_the_old_ones_stay() {
        let live = Live::new(1);
        let first: &i32 = &live;
        for next in 2..=VERSIONS as i32 + 1 {
            live.replace(next).unwrap();
            assert_eq!(*live, next);
        }
        assert_eq!(live.replace(0), Err(0));
        assert_eq!((*first, live.all().count()), (1, VERSIONS + 1));
    }
}
