//! What the connections of one address cost together.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Addresses that are remembered before those without a connection are forgotten.
const REMEMBERED: usize = 1024;

/// One address. Each of its connections holds a reference.
#[derive(Debug, Default)]
pub(crate) struct Guest {
    /// Deferred calls that are open.
    deferred: AtomicUsize,
    /// Bytes of requests that are not whole yet.
    buffered: AtomicUsize,
}

impl Guest {
    /// A call was deferred; returns how many are open.
    pub(crate) fn deferred(&self) -> usize {
        self.deferred.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Deferred calls were answered, or their connection is gone; returns how many are open.
    pub(crate) fn answered(&self, calls: usize) -> usize {
        self.deferred.fetch_sub(calls, Ordering::Relaxed).saturating_sub(calls)
    }

    /// A connection holds `now` bytes, and held `before`; returns what all hold.
    pub(crate) fn holds(&self, before: usize, now: usize) -> usize {
        let change = now.wrapping_sub(before);
        self.buffered.fetch_add(change, Ordering::Relaxed).wrapping_add(change)
    }
}

/// All addresses that have a connection.
#[derive(Debug, Default)]
pub(crate) struct Guests {
    known: BTreeMap<IpAddr, Arc<Guest>>,
    /// Above so many, those without a connection are looked for.
    patience: usize,
}

impl Guests {
    /// A further connection of that address; `None`: it has `most` already.
    pub(crate) fn enter(&mut self, address: IpAddr, most: usize) -> Option<Arc<Guest>> {
        if self.known.len() > self.patience.max(REMEMBERED) {
            self.known.retain(|_, guest| Arc::strong_count(guest) > 1);
            self.patience = self.known.len() * 2;
        }
        let guest = self.known.entry(address.to_canonical()).or_default();
        // One reference is the table's.
        (Arc::strong_count(guest) <= most).then(|| Arc::clone(guest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_has_its_own_measure_and_is_forgotten_when_it_has_left() {
        let mut guests = Guests::default();
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let held: Vec<_> = (0..3).map(|_| guests.enter(address(1), 3).unwrap()).collect();
        assert!(guests.enter(address(1), 3).is_none() && guests.enter(address(2), 3).is_some());
        drop(held);
        assert!(guests.enter(address(1), 3).is_some());
        for n in 0..20_000 {
            assert!(guests.enter(address(n), 1).is_some());
        }
        assert!(guests.known.len() <= REMEMBERED + 2, "{}", guests.known.len());
        let guest = Guest::default();
        assert_eq!((guest.deferred(), guest.deferred(), guest.answered(2)), (1, 2, 0));
        assert_eq!((guest.holds(0, 10), guest.holds(10, 4), guest.holds(4, 0)), (10, 4, 0));
    }
}
