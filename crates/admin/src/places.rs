//! How many connections stand, together and of each address: one visitor cannot keep all others out.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::refusals::Refusals;

/// Most connections; further ones are closed at once.
const MAX_CONNECTIONS: usize = 1024;
/// Of these, from one address.
const MAX_OF_ONE_ADDRESS: usize = 512;

/// Connections and calls that a server refused, for a metrics page. Clones count into the same.
#[derive(Clone, Debug, Default)]
pub struct DoorCounts(Arc<Counters>);

#[derive(Debug, Default)]
struct Counters {
    open: AtomicU64,
    crowded: AtomicU64,
    crowded_address: AtomicU64,
    calls: Refusals,
}

impl DoorCounts {
    /// Connections open now.
    pub fn open(&self) -> u64 {
        self.0.open.load(Ordering::Relaxed)
    }

    /// Refused so far, by reason: too many together (`crowded`), too many of one address (`crowded_address`).
    pub fn refused(&self) -> [(&'static str, u64); 2] {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [("crowded", of(&self.0.crowded)), ("crowded_address", of(&self.0.crowded_address))]
    }

    /// Calls refused to who made them so far, by reason: without a token or with another one where one is needed, from another
    /// host where none is, at the wrong address.
    pub fn refused_calls(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.calls.counts()
    }

    pub(crate) fn calls(&self) -> &Refusals {
        &self.0.calls
    }
}

/// The connections of one server.
#[derive(Debug, Default)]
pub(crate) struct Places {
    taken: Arc<Mutex<Taken>>,
    counts: DoorCounts,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: BTreeMap<IpAddr, usize>,
}

impl Taken {
    fn leave(&mut self, address: IpAddr) {
        self.all -= 1;
        if let Some(count) = self.by_address.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.by_address.remove(&address);
            }
        }
    }
}

/// The place of one connection; free again when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    address: IpAddr,
    taken: Arc<Mutex<Taken>>,
    counts: DoorCounts,
}

impl Places {
    pub(crate) fn new(counts: DoorCounts) -> Self {
        Places { counts, ..Places::default() }
    }

    /// A further connection of that address; `None`: there is no place.
    pub(crate) fn take(&self, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        // No change of the table leaves it half done.
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_address = taken.by_address.get(&address).copied().unwrap_or(0);
        let refusal = match (taken.all, of_address) {
            (MAX_CONNECTIONS.., _) => Some(&self.counts.0.crowded),
            (_, MAX_OF_ONE_ADDRESS..) => Some(&self.counts.0.crowded_address),
            _ => None,
        };
        if let Some(counter) = refusal {
            counter.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        taken.all += 1;
        taken.by_address.insert(address, of_address + 1);
        self.counts.0.open.fetch_add(1, Ordering::Relaxed);
        Some(Place { address, taken: Arc::clone(&self.taken), counts: self.counts.clone() })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).leave(self.address);
        self.counts.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_has_its_part_and_all_have_theirs() {
        let counts = DoorCounts::default();
        let places = Places::new(counts.clone());
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        let mut own: Vec<_> = (0..MAX_OF_ONE_ADDRESS).map(|_| places.take(address(1)).unwrap()).collect();
        let mapped: IpAddr = "::ffff:0.0.0.1".parse().unwrap();
        assert!(places.take(address(1)).is_none() && places.take(mapped).is_none());
        let others: Vec<_> = (2..).map_while(|n| places.take(address(n))).collect();
        assert_eq!((others.len(), counts.open()), (MAX_CONNECTIONS - MAX_OF_ONE_ADDRESS, 1024));
        assert_eq!(counts.refused(), [("crowded", 1), ("crowded_address", 2)]);
        own.pop();
        assert!(places.take(address(1)).is_some(), "who leaves makes room");
        drop((own, others));
        assert_eq!(counts.open(), 0);
        let taken = places.taken.lock().unwrap();
        assert!(taken.all == 0 && taken.by_address.is_empty());
    }
}
