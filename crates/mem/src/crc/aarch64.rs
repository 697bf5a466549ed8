//! Folding on aarch64: eight words of 16 bytes, multiplied without carry by PMULL.

use std::arch::aarch64::vmull_p64;

use super::{Road, Store, factors, table};

/// Bytes per round.
const ROUND_BYTES: usize = 128;

/// Folds as many bytes as fill whole rounds: the checksum with them behind, and how many they are.
///
/// # Safety
/// The road is readable and, unless nothing is stored, writable.
pub(super) unsafe fn fold(crc: u64, road: Road) -> (u64, usize) {
    let len = road.len / ROUND_BYTES * ROUND_BYTES;
    if len == 0 || !std::arch::is_aarch64_feature_detected!("pmull") {
        return (crc, 0);
    }
    // SAFETY: whole rounds inside the road, and the processor has PMULL.
    (unsafe { rounds(crc, road, len) }, len)
}

/// `word`, moved up by what the factors say, on top of `next`.
#[target_feature(enable = "neon,aes")]
fn onto(word: u128, (upper, lower): (u64, u64), next: u128) -> u128 {
    vmull_p64((word >> 64) as u64, upper) ^ vmull_p64(word as u64, lower) ^ next
}

/// # Safety
/// `len` is a multiple of [`ROUND_BYTES`], not zero, and inside the road.
#[target_feature(enable = "neon,aes")]
unsafe fn rounds(crc: u64, road: Road, len: usize) -> u64 {
    const ROUND: (u64, u64) = factors(8 * ROUND_BYTES as u64);
    const WORD: (u64, u64) = factors(128);
    // Reads 16 bytes, stores them as they are, and gives their word.
    let take = |at: usize| {
        // SAFETY: at + 16 <= len.
        unsafe {
            let bytes = road.from.add(at).cast::<u128>().read_unaligned();
            if road.store != Store::Nowhere {
                road.to.add(at).cast::<u128>().write_unaligned(bytes);
            }
            u128::from_be(bytes)
        }
    };
    let mut words = [take(0), take(16), take(32), take(48), take(64), take(80), take(96), take(112)];
    words[0] ^= u128::from(crc) << 64;
    let mut at = ROUND_BYTES;
    while at < len {
        for (register, held) in words.iter_mut().enumerate() {
            *held = onto(*held, ROUND, take(at + 16 * register));
        }
        at += ROUND_BYTES;
    }
    let [mut all, rest @ ..] = words;
    for next in rest {
        all = onto(all, WORD, next);
    }
    table::word(all)
}
