//! Batches of more keys than a master takes in one request go in several.

use std::ops::Range;

use smallvec::SmallVec;

/// Keys that go in one request at most. A master takes so many elements of all lists of a request (a million, as a rule), and a
/// key may stand for several.
pub(crate) const MOST_KEYS: usize = 1 << 14;
/// Bytes of the keys of one request at most.
const MOST_BYTES: usize = 16 << 20;

/// Divides keys of these lengths, in their order. One range, though it be empty, where all go together.
pub(crate) fn portions(lengths: impl ExactSizeIterator<Item = usize>) -> SmallVec<[Range<usize>; 1]> {
    let all = lengths.len();
    let (mut portions, mut start, mut bytes) = (SmallVec::new(), 0, 0usize);
    for (at, length) in lengths.enumerate() {
        let is_full = at - start >= MOST_KEYS || bytes.saturating_add(length) > MOST_BYTES;
        if is_full && at > start {
            portions.push(start..at);
            (start, bytes) = (at, 0);
        }
        bytes = bytes.saturating_add(length);
    }
    portions.push(start..all);
    portions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_are_bounded_by_keys_and_by_bytes_and_leave_nothing_out() {
        let of = |lengths: &[usize]| -> Vec<(usize, usize)> {
            portions(lengths.iter().copied()).into_iter().map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(of(&[]), [(0, 0)]);
        assert_eq!(of(&[1, 2, 3]), [(0, 3)]);
        assert_eq!(of(&vec![1; MOST_KEYS]), [(0, MOST_KEYS)]);
        assert_eq!(of(&vec![1; MOST_KEYS + 1]), [(0, MOST_KEYS), (MOST_KEYS, MOST_KEYS + 1)]);
        // One that is too large alone is for the master to refuse.
        assert_eq!(of(&[1, MOST_BYTES, MOST_BYTES + 1, usize::MAX, 1]), [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5)]);
    }
}
