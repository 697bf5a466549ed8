//! Values of which every byte can be judged: a head that names key, write and length, and a body made from the two.

use yb_history::{Key, Outcome, Write};

/// Bytes of the head, and of the shortest value.
pub const HEAD: usize = 32;

const MARK: u64 = 0x7965_7562_696e_6721;

/// The value of a write; at least [`HEAD`] bytes.
pub fn make(key: Key, write: Write, len: usize) -> Vec<u8> {
    let len = len.max(HEAD);
    let mut value = Vec::with_capacity(len + 8);
    for word in [MARK, u64::from(key.0), write.0, len as u64] {
        value.extend_from_slice(&word.to_le_bytes());
    }
    fill(&mut value, write.0.rotate_left(24) ^ u64::from(key.0), len);
    value
}

/// Bytes that differ by seed and place, without a head.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(len + 8);
    fill(&mut value, seed, len);
    value
}

fn fill(value: &mut Vec<u8>, seed: u64, len: usize) {
    let mut state = seed;
    while value.len() < len {
        // Splitmix64, here so that it is compiled into the loop.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value.extend_from_slice(&(word ^ (word >> 31)).to_le_bytes());
    }
    value.truncate(len);
}

/// Which write these bytes are, if they are the whole value of one of this key.
pub fn judge(key: Key, bytes: &[u8]) -> Outcome {
    let wrong = |what: String| Outcome::Wrong(what.into());
    let Some(head) = bytes.get(..HEAD) else { return wrong(format!("{} bytes", bytes.len())) };
    let word = |at: usize| head[at * 8..].iter().take(8).rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    if word(0) != MARK || word(1) != u64::from(key.0) {
        return wrong(format!("{} bytes that begin with {:#x}, key {}", bytes.len(), word(0), word(1)));
    }
    let (write, len) = (Write(word(2)), word(3));
    if len != bytes.len() as u64 {
        return wrong(format!("{} bytes of the {len} of write {}", bytes.len(), write.0));
    }
    let wanted = make(key, write, bytes.len());
    match bytes.iter().zip(&wanted).position(|(got, wanted)| got != wanted) {
        None => Outcome::Read(write),
        Some(at) => wrong(format!("write {} of {len} bytes differs from byte {at} on", write.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let value = make(Key(3), Write(9), 1000);
        assert_eq!(judge(Key(3), &value), Outcome::Read(Write(9)));
        for at in [0, 8, 16, 24, 31, 32, 500, 999] {
            let mut other = value.clone();
            other[at] ^= 1;
            assert!(matches!(judge(Key(3), &other), Outcome::Wrong(_)), "byte {at}");
        }
        assert!(matches!(judge(Key(4), &value), Outcome::Wrong(_)));
        assert!(matches!(judge(Key(3), &value[..999]), Outcome::Wrong(_)));
        assert!(matches!(judge(Key(3), &[]), Outcome::Wrong(_)));
        let mixed = [&value[..500], &make(Key(3), Write(10), 1000)[500..]].concat();
        assert!(matches!(judge(Key(3), &mixed), Outcome::Wrong(_)));
    }
}
