//! The invariants of the whole catalog, for tests.

use std::collections::BTreeMap;

use crate::catalog::Catalog;
use crate::entry::flag;
use crate::key::Tenant;
use crate::shares::weight;

impl Catalog {
    /// Panics when the parts of the catalog contradict each other. Only for tests at rest: it locks one part after the
    /// other and expects nobody to work meanwhile.
    pub fn assert_consistent(&self) {
        let (mut keys, mut unfinished, mut soft_pins) = (0, 0, 0);
        let mut open = 0;
        let mut owned: BTreeMap<(u32, u64), u64> = BTreeMap::new();
        let mut charged: BTreeMap<Tenant, (u64, u64)> = BTreeMap::new();
        for (at, shard) in self.shards.iter().enumerate() {
            let state = shard.state.read();
            state.assert_consistent();
            keys += state.slots().count() as u64;
            for slot in state.all_slots() {
                let entry = &state.slab[slot];
                let sums = charged.entry(entry.tenant).or_default();
                *sums = (sums.0 + 1, sums.1 + entry.memory_bytes());
                unfinished += u64::from(!entry.is_finished());
                open += if entry.is_finished() { 0 } else { weight(entry) };
                soft_pins += u64::from(entry.is_finished() && entry.has(flag::SOFT_PIN));
                for replica in entry.replicas.as_slice() {
                    let owner = (at as u64) << 32 | u64::from(slot);
                    assert!(
                        owned.insert((replica.segment, replica.offset), owner).is_none(),
                        "two owners of an extent"
                    );
                }
            }
        }
        let stats = self.stats();
        assert_eq!((stats.keys, stats.unfinished, stats.soft_pins), (keys, unfinished, soft_pins));
        let resting: u64 = self.segments.load().iter().map(|segment| segment.withheld_for_writers()).sum();
        assert_eq!(self.shares.sum(), open + resting, "what clients have reserved and not filled");
        self.assert_space_is_owned(owned);
        self.assert_charges(&charged);
    }

    /// Every account says what its tenant's objects use.
    fn assert_charges(&self, charged: &BTreeMap<Tenant, (u64, u64)>) {
        for number in 0..u16::MAX {
            let Some(account) = self.tenants.account(Tenant(number)) else { return };
            let expected = charged.get(&Tenant(number)).copied().unwrap_or_default();
            assert_eq!((account.objects(), account.charged()), expected, "the ledger of tenant {number}");
        }
    }

    /// Every extent in use has the owner that it names, and the other way round.
    fn assert_space_is_owned(&self, mut owned: BTreeMap<(u32, u64), u64>) {
        let table = self.segments.load();
        for segment in table.iter().filter(|segment| segment.is_live()) {
            let mut found = Vec::new();
            let mut next = Some(0);
            while let Some(from) = next {
                next = segment.scan(from, u32::MAX, &mut found);
            }
            let mut used = segment.withheld().0;
            for extent in found {
                used += extent.extent.len;
                assert_eq!(owned.remove(&(segment.index(), extent.extent.offset)), Some(extent.owner));
            }
            assert_eq!(segment.used().0, used, "an extent in use has no owner");
        }
        assert!(owned.keys().all(|&(index, _)| table.live(index).is_none()), "a replica without an extent");
    }
}
