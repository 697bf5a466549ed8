//! Where segments were mounted from: one address mounts only so many, under however many names of clients.
//!
//! Whoever can reach the master can make clients up, and each segment costs memory and time of the master until its client
//! is given up. What an address mounts under one client is bounded by the catalog; this bounds the address.

use std::collections::BTreeMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use yb_types::SegmentId;

/// The segments that are mounted over TCP, by the address of the connection that mounted them.
#[derive(Debug)]
pub(crate) struct Origins {
    max: usize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_segment: BTreeMap<SegmentId, IpAddr>,
    counts: BTreeMap<IpAddr, usize>,
    refused: u64,
}

impl Table {
    fn leave(&mut self, id: SegmentId) {
        let Some(address) = self.by_segment.remove(&id) else { return };
        if let Some(count) = self.counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&address);
            }
        }
    }
}

impl Origins {
    /// Each address may have so many.
    pub(crate) fn new(max: usize) -> Self {
        Origins { max, table: Mutex::default() }
    }

    /// Counts new segments for an address, all or none; `false`: they are too many.
    pub(crate) fn enter(&self, address: IpAddr, new: &[SegmentId]) -> bool {
        let mut table = self.table.lock();
        let has = table.counts.get(&address).copied().unwrap_or(0);
        if !new.is_empty() && has + new.len() > self.max {
            table.refused += 1;
            return false;
        }
        for id in new {
            table.leave(*id);
            table.by_segment.insert(*id, address);
            *table.counts.entry(address).or_default() += 1;
        }
        true
    }

    /// Whether a segment may have been mounted from an address: not if it was from another.
    pub(crate) fn may_be_of(&self, id: SegmentId, address: IpAddr) -> bool {
        self.table.lock().by_segment.get(&id).is_none_or(|origin| *origin == address)
    }

    /// A segment is gone, or was not mounted after all.
    pub(crate) fn leave(&self, id: SegmentId) {
        self.table.lock().leave(id);
    }

    /// Mounts that were refused, and the most segments that one address has.
    pub(crate) fn figures(&self) -> (u64, usize) {
        let table = self.table.lock();
        (table.refused, table.counts.values().copied().max().unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use yb_types::Uuid;

    use super::*;

    #[test]
    fn an_address_has_only_so_many_and_gets_room_when_some_go() {
        let origins = Origins::new(2);
        let [one, other]: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let id = |second| SegmentId(Uuid { first: 1, second });
        assert!(origins.enter(one, &[id(1), id(2)]) && origins.enter(one, &[]));
        assert!(!origins.enter(one, &[id(3)]) && origins.enter(other, &[id(3)]));
        assert!(origins.may_be_of(id(1), one) && !origins.may_be_of(id(1), other) && origins.may_be_of(id(9), other));
        assert_eq!(origins.figures(), (1, 2));
        origins.leave(id(1));
        origins.leave(id(1));
        assert!(!origins.enter(one, &[id(4), id(5)]) && origins.enter(one, &[id(4)]));
        // The same memory, mounted again from elsewhere.
        assert!(origins.enter(other, &[id(4)]) && origins.enter(one, &[id(6)]));
        (1..=6).for_each(|n| origins.leave(id(n)));
        assert!(origins.table.lock().counts.is_empty());
    }
}
