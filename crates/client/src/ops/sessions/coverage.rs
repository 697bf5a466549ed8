//! Which bytes of an object have been written. Pure.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of bytes, joined where they touch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Coverage {
    /// First byte to one past the last; no two touch.
    ranges: BTreeMap<u64, u64>,
}

impl Coverage {
    /// Adds `offset..offset+len`.
    pub(crate) fn add(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        let (mut first, mut end) = (offset, offset.saturating_add(len));
        while let Some((start, stop)) = self.ranges.range(..=end).next_back().map(|(start, stop)| (*start, *stop)) {
            if stop < first {
                break;
            }
            self.ranges.remove(&start);
            (first, end) = (first.min(start), end.max(stop));
        }
        self.ranges.insert(first, end);
    }

    /// What is missing of `0..size`, in order.
    pub(crate) fn holes(&self, size: u64) -> Vec<Range<u64>> {
        let mut holes = Vec::new();
        let mut at = 0;
        for (start, end) in &self.ranges {
            if *start > at {
                holes.push(at..*start);
            }
            at = *end;
        }
        if at < size {
            holes.push(at..size);
        }
        holes
    }

    /// Whether any byte of `range` is here.
    pub(crate) fn touches(&self, range: &Range<u64>) -> bool {
        let before = self.ranges.range(..range.end).next_back();
        before.is_some_and(|(_, end)| *end > range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn holes_are_the_bytes_that_nobody_added(added in proptest::collection::vec((0u64..60, 0u64..20), 0..12)) {
            let mut coverage = Coverage::default();
            let mut bytes = [false; 80];
            for (offset, len) in &added {
                coverage.add(*offset, *len);
                bytes[*offset as usize..(offset + len) as usize].fill(true);
            }
            let mut missing = [false; 80];
            for hole in coverage.holes(80) {
                prop_assert!(!hole.is_empty() && !coverage.touches(&hole));
                missing[hole.start as usize..hole.end as usize].fill(true);
            }
            prop_assert!(bytes.iter().zip(&missing).all(|(there, missing)| there != missing));
            for byte in 0..80 {
                prop_assert_eq!(coverage.touches(&(byte..byte + 1)), bytes[byte as usize]);
            }
        }
    }
}
