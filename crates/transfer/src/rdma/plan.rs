//! How jobs are cut where the memory behind them is cut, on either side (pure).

use std::sync::Arc;

use super::memory::Keys;

/// Memory with one key a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyedRange {
    pub(crate) address: u64,
    pub(crate) len: u64,
    pub(crate) keys: Arc<Keys>,
}

/// A part of a job with memory of one piece on each side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// First byte, counted from the job's.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) lkeys: Arc<Keys>,
    pub(crate) rkeys: Arc<Keys>,
}

/// The range of a sorted list that holds `address`.
fn holding(ranges: &[KeyedRange], address: u64) -> Option<&KeyedRange> {
    let after = ranges.partition_point(|range| range.address <= address);
    let range = ranges.get(after.checked_sub(1)?)?;
    (address - range.address < range.len).then_some(range)
}

/// Whether the ranges (sorted by address) hold all of `address..address+len` without a gap.
pub(crate) fn covers(ranges: &[KeyedRange], address: u64, len: u64) -> bool {
    let Some(end) = address.checked_add(len) else { return false };
    let mut at = address;
    while at < end {
        match holding(ranges, at) {
            Some(range) => at = range.address.saturating_add(range.len),
            None => return false,
        }
    }
    true
}

/// Cuts a job of `len` bytes. `None` when a side does not hold all of it.
pub(crate) fn cut(local: (&[KeyedRange], u64), remote: (&[KeyedRange], u64), len: u64) -> Option<Vec<Part>> {
    local.1.checked_add(len)?;
    remote.1.checked_add(len)?;
    let mut parts = Vec::new();
    let mut offset = 0;
    while offset < len {
        let (ours, theirs) = (local.1 + offset, remote.1 + offset);
        let (our_range, their_range) = (holding(local.0, ours)?, holding(remote.0, theirs)?);
        let our_rest = our_range.len - (ours - our_range.address);
        let their_rest = their_range.len - (theirs - their_range.address);
        let part = (len - offset).min(our_rest).min(their_rest);
        let (lkeys, rkeys) = (Arc::clone(&our_range.keys), Arc::clone(&their_range.keys));
        parts.push(Part { offset, len: part, lkeys, rkeys });
        offset += part;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(cuts: &[u64], base: u64) -> Vec<KeyedRange> {
        let mut address = base;
        let mut ranges = Vec::new();
        for (key, len) in cuts.iter().enumerate() {
            let keys = Arc::new(Keys::from_slice(&[key as u32]));
            ranges.push(KeyedRange { address, len: *len, keys });
            address += len;
        }
        ranges
    }

    #[test]
    fn a_gap_or_a_wrap_is_no_cover() {
        let mut list = ranges(&[10, 10], 100);
        assert!(covers(&list, 100, 20) && covers(&list, 119, 1));
        assert!(!covers(&list, 99, 2) && !covers(&list, 119, 2) && !covers(&list, u64::MAX, 2));
        list[1].address = 111;
        assert!(!covers(&list, 100, 20));
        assert_eq!(cut((&list, 100), (&list, 100), 20), None);
        assert_eq!(cut((&list, u64::MAX - 1), (&list, 100), 20), None);
        assert_eq!(cut((&list, 100), (&list, 111), 10).unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn every_byte_is_in_one_part_with_the_keys_of_its_memory(
            local in prop::collection::vec(1_u64..50, 1..6),
            remote in prop::collection::vec(1_u64..50, 1..6),
            skip in 0_u64..40,
        ) {
            let (ours, theirs) = (ranges(&local, 1000), ranges(&remote, 5000));
            let room = local.iter().sum::<u64>().min(remote.iter().sum());
            prop_assume!(room > skip);
            let len = room - skip;
            let parts = cut((&ours, 1000 + skip), (&theirs, 5000), len).unwrap();
            let mut at = 0;
            for part in &parts {
                prop_assert_eq!(part.offset, at);
                prop_assert!(part.len > 0);
                for place in [at, at + part.len - 1] {
                    prop_assert_eq!(&holding(&ours, 1000 + skip + place).unwrap().keys, &part.lkeys);
                    prop_assert_eq!(&holding(&theirs, 5000 + place).unwrap().keys, &part.rkeys);
                }
                at += part.len;
            }
            prop_assert_eq!(at, len);
        }
    }
}
