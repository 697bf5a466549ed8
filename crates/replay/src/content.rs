//! What a block contains: bytes that follow from its id alone, made and checked at memory speed.
//!
//! Word `i` of a block is `x ^ (x >> 29)` with `x = start(id) + i * STEP`. `start` spreads the id over 64 bits, so two
//! blocks differ in nearly every word; the position is in every word, so shifted or swapped pieces show as well. The
//! sequence is one addition a word and vectorises.

use yb_env::Rng;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const LANES: usize = 8;
const WORD: usize = 8;

fn start(id: u64) -> u64 {
    Rng::seeded(id).next_u64()
}

fn word(start: u64, index: u64) -> u64 {
    let x = start.wrapping_add(index.wrapping_mul(STEP));
    x ^ (x >> 29)
}

/// Fills `block` with the content of block `id`.
pub fn fill(id: u64, block: &mut [u8]) {
    let start = start(id);
    let (words, tail) = block.as_chunks_mut::<WORD>();
    let mut count = 0;
    for bytes in words.iter_mut() {
        *bytes = word(start, count).to_le_bytes();
        count += 1;
    }
    let last = word(start, count).to_le_bytes();
    tail.copy_from_slice(&last[..tail.len()]);
}

/// How many bytes of `block` differ from the content of block `id`. Zero is the only good answer.
pub fn wrong_bytes(id: u64, block: &[u8]) -> u64 {
    let start = start(id);
    let (groups, rest) = block.as_chunks::<{ LANES * WORD }>();
    let mut wrong = 0;
    for (group, bytes) in groups.iter().enumerate() {
        let first = (group * LANES) as u64;
        let mut difference = 0;
        for (lane, word_bytes) in bytes.as_chunks::<WORD>().0.iter().enumerate() {
            difference |= u64::from_le_bytes(*word_bytes) ^ word(start, first + lane as u64);
        }
        if difference != 0 {
            wrong += count_wrong(start, first, bytes);
        }
    }
    wrong + count_wrong(start, (groups.len() * LANES) as u64, rest)
}

/// Byte by byte, for the tail and for what is already known to be wrong.
fn count_wrong(start: u64, first: u64, bytes: &[u8]) -> u64 {
    let mut wrong = 0;
    for (index, chunk) in bytes.chunks(WORD).enumerate() {
        let want = word(start, first + index as u64).to_le_bytes();
        wrong += chunk.iter().zip(want).filter(|(got, want)| **got != *want).count() as u64;
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn blocks_of_neighbouring_ids_differ_nearly_everywhere() {
        let mut block = vec![0; 64 << 10];
        fill(7, &mut block);
        assert_eq!(wrong_bytes(7, &block), 0);
        let wrong = wrong_bytes(8, &block);
        assert!(wrong as f64 > 0.99 * block.len() as f64, "{wrong}");
    }

    #[test]
    fn a_shifted_block_is_wrong() {
        let mut block = vec![0; 4096 + 64];
        fill(7, &mut block);
        assert!(wrong_bytes(7, &block[64..]) > 4000);
    }

    proptest! {
        #[test]
        fn every_flipped_byte_is_counted(
            id in any::<u64>(),
            len in 0usize..2000,
            flips in proptest::collection::vec(any::<prop::sample::Index>(), 0..5),
        ) {
            let mut block = vec![0; len];
            fill(id, &mut block);
            prop_assert_eq!(wrong_bytes(id, &block), 0);
            if len > 0 {
                let places: std::collections::BTreeSet<usize> = flips.iter().map(|f| f.index(len)).collect();
                for place in &places {
                    block[*place] ^= 0x10;
                }
                prop_assert_eq!(wrong_bytes(id, &block), places.len() as u64);
            }
        }

        #[test]
        fn a_shorter_block_is_a_prefix_of_a_longer_one(id in any::<u64>(), len in 0usize..300) {
            let (mut long, mut short) = (vec![0; 300], vec![0; len]);
            fill(id, &mut long);
            fill(id, &mut short);
            prop_assert_eq!(&long[..len], &short[..]);
        }
    }
}
