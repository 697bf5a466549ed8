//! Where the next slice of a transfer ends.

use smallvec::SmallVec;

use crate::rails::RailSettings;

/// What of a transfer has not been cut yet.
#[derive(Debug)]
pub(crate) struct Uncut {
    next: u64,
    bytes: u64,
    /// In order, each inside the range.
    borders: SmallVec<[u64; 4]>,
    passed: usize,
}

impl Uncut {
    pub(crate) fn new(bytes: u64, mut borders: SmallVec<[u64; 4]>) -> Self {
        borders.retain(|border| *border > 0 && *border < bytes);
        borders.sort_unstable();
        borders.dedup();
        Uncut { next: 0, bytes, borders, passed: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.bytes
    }

    /// Offset and length of the next slice, if there is one.
    pub(crate) fn peek(&self, settings: &RailSettings) -> Option<(u64, u64)> {
        let end = self.borders.get(self.passed).copied().unwrap_or(self.bytes);
        let left = end - self.next;
        let slice = settings.slice_bytes.max(1);
        let rest = slice / settings.rest_divisor.max(1);
        let len = if left <= slice.saturating_add(rest) { left } else { slice };
        (len > 0).then_some((self.next, len))
    }

    /// Takes it.
    pub(crate) fn take(&mut self, settings: &RailSettings) -> Option<(u64, u64)> {
        let (offset, len) = self.peek(settings)?;
        self.next = offset + len;
        if self.borders.get(self.passed) == Some(&self.next) {
            self.passed += 1;
        }
        Some((offset, len))
    }

    /// Nothing more is to be cut.
    pub(crate) fn drop_rest(&mut self) {
        self.next = self.bytes;
        self.passed = self.borders.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slices_follow_each_other_and_respect_borders(
            bytes in 0_u64..2_000_000,
            borders in prop::collection::vec(0_u64..2_100_000, 0..8),
            slice_bytes in 1000_u64..200_000,
        ) {
            let settings = RailSettings { slice_bytes, ..RailSettings::default() };
            let mut uncut = Uncut::new(bytes, borders.iter().copied().collect());
            let mut at = 0;
            while let Some((offset, len)) = uncut.take(&settings) {
                prop_assert_eq!(offset, at);
                prop_assert!(len <= slice_bytes + slice_bytes / 4);
                prop_assert!(!borders.iter().any(|border| *border > offset && *border < offset + len));
                at += len;
                let ends = at == bytes || borders.contains(&at);
                prop_assert!(ends || len == slice_bytes, "only a last slice has another length");
            }
            prop_assert_eq!(at, bytes);
        }
    }
}
