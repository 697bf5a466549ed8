//! Memory whose pages the ring keeps at hand: parts of registered regions that files are read into or written from again
//! and again. The first use of a part is counted, the second pins it.

use std::collections::BTreeSet;

use yb_mem::RegionInfo;
use yb_uring::DiskRing;

use crate::file::lane::BOUNCE_SLOT;

/// Bytes of a part.
pub(crate) const PART: u64 = 4 << 20;
/// Most parts that a lane keeps.
pub(crate) const FIXED_SLOTS: u16 = 64;
/// Parts that are remembered as used once.
const REMEMBERED: usize = 4096;

/// A registered region, with a number that is never used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fixable {
    pub(crate) id: u64,
    pub(crate) info: RegionInfo,
}

impl Fixable {
    /// The parts of the region that `address..address+len` lies in, if it lies in the region.
    fn parts(&self, address: u64, len: u64) -> Option<std::ops::RangeInclusive<u64>> {
        let offset = address.checked_sub(self.info.address)?;
        let last = offset.checked_add(len)?.checked_sub(1).filter(|last| *last < self.info.len)?;
        Some(offset / PART..=last / PART)
    }
}

/// The region that holds all of a range, and the parts that it lies in. The regions are in the order of their addresses.
fn covering(regions: &[Fixable], address: u64, len: u64) -> Option<(&Fixable, std::ops::RangeInclusive<u64>)> {
    let after = regions.partition_point(|region| region.info.address <= address);
    let region = regions.get(after.checked_sub(1)?)?;
    Some((region, region.parts(address, len)?))
}

/// The parts that one lane keeps.
#[derive(Debug, Default)]
pub(crate) struct FixedRegions {
    /// By slot: region number and part.
    places: Vec<Option<(u64, u64)>>,
    /// The slot that is given away next.
    next: usize,
    used_once: BTreeSet<(u64, u64)>,
    refused: bool,
}

impl FixedRegions {
    /// Notes the use of a range, and pins what is used again.
    pub(crate) fn prepare(&mut self, ring: &mut DiskRing, regions: &[Fixable], address: u64, len: u64) {
        let slots = ring.slots().saturating_sub(usize::from(BOUNCE_SLOT) + 1);
        if slots == 0 || self.refused {
            return;
        }
        self.places.resize(slots, None);
        let Some((region, parts)) = covering(regions, address, len) else { return };
        for part in parts.take(slots) {
            let key = (region.id, part);
            if self.places.contains(&Some(key)) {
                continue;
            }
            if self.used_once.remove(&key) {
                self.pin(ring, region, part);
            } else {
                if self.used_once.len() >= REMEMBERED {
                    self.used_once.clear();
                }
                self.used_once.insert(key);
            }
        }
    }

    fn pin(&mut self, ring: &mut DiskRing, region: &Fixable, part: u64) {
        let slot = self.next;
        self.next = (self.next + 1) % self.places.len();
        if let Some(place) = self.places.get_mut(slot) {
            let first = part * PART;
            let fixed = ring.fix_region(Self::number(slot), &region.info, first, PART.min(region.info.len - first));
            *place = fixed.is_ok().then_some((region.id, part));
            if let Err(error) = fixed {
                tracing::info!(%error, "memory is not fixed for io_uring: its pages are looked up at each operation");
                self.refused = true;
            }
        }
    }

    /// Lets go of the parts of all but these regions.
    pub(crate) fn keep_only(&mut self, ring: &mut DiskRing, regions: &[Fixable]) {
        let known = |id: u64| regions.iter().any(|region| region.id == id);
        for (slot, place) in self.places.iter_mut().enumerate() {
            if place.take_if(|(id, _)| !known(*id)).is_some() {
                ring.unfix(Self::number(slot));
            }
        }
        self.used_once.retain(|(id, _)| known(*id));
    }

    /// The slot in which all of a range is fixed.
    pub(crate) fn slot(&self, regions: &[Fixable], address: u64, len: u64) -> Option<u16> {
        if self.places.iter().all(Option::is_none) {
            return None;
        }
        let (region, parts) = covering(regions, address, len)?;
        let key = Some((region.id, *parts.start())).filter(|_| parts.start() == parts.end())?;
        self.places.iter().position(|place| *place == Some(key)).map(Self::number)
    }

    fn number(place: usize) -> u16 {
        BOUNCE_SLOT + 1 + place as u16
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use yb_mem::{Access, Location, MemorySegment, Registry, SegmentOptions};

    fn region(id: u64, len: u64) -> Fixable {
        let segment = Arc::new(MemorySegment::create(len, SegmentOptions::default()).unwrap());
        let info =
            Registry::default().prepare_segment(Arc::clone(&segment), Access::Local, Location::default()).unwrap();
        // The memory stays for as long as the test runs.
        std::mem::forget(segment);
        Fixable { id, info }
    }

    #[test]
    fn the_second_use_pins_a_part_and_a_gone_region_is_let_go() {
        let Ok(mut ring) = DiskRing::new(2, BOUNCE_SLOT + 1 + 2) else { return println!("skipped: no io_uring here") };
        if ring.slots() == 0 {
            return println!("skipped: this io_uring has no slots");
        }
        let (long, short) = (region(1, 3 * PART + 5), region(2, PART));
        let base = long.info.address;
        let mut regions = [long, short.clone()];
        regions.sort_by_key(|region| region.info.address);
        let mut fixed = FixedRegions::default();
        fixed.prepare(&mut ring, &regions, base + PART + 1, 10);
        assert_eq!(fixed.slot(&regions, base + PART, 10), None);
        fixed.prepare(&mut ring, &regions, base + PART, PART);
        assert_eq!(fixed.slot(&regions, base + PART, 10), Some(BOUNCE_SLOT + 1));
        assert_eq!(fixed.slot(&regions, base + PART, PART + 1), None, "over the end of the part");
        assert_eq!(fixed.slot(&regions, base + 3 * PART, 6), None, "over the end of the region");
        for _ in 0..2 {
            fixed.prepare(&mut ring, &regions, base + 2 * PART, PART + 5);
            fixed.prepare(&mut ring, &regions, base - 1, 4);
        }
        assert_eq!(fixed.places, [Some((1, 3)), Some((1, 2))], "two slots serve the last two parts");
        fixed.keep_only(&mut ring, &[short]);
        assert_eq!(fixed.places, [None, None]);
        assert_eq!(fixed.slot(&regions, base + 2 * PART, 10), None);
    }
}
