//! Folding on x86-64: four registers of 64 bytes where the processor multiplies in all of their lanes at once, else eight
//! of 16 bytes.
//!
//! Registers hold words with their first byte at the top, as the polynomial has it. A word that is moved up by the
//! length of a round is the sum of its halves times two constants.

use std::arch::x86_64::{
    __m128i, __m512i, _MM_HINT_T0, _mm_clmulepi64_si128, _mm_cvtsi128_si64, _mm_loadu_si128, _mm_prefetch,
    _mm_set_epi8, _mm_set_epi64x, _mm_sfence, _mm_shuffle_epi8, _mm_storeu_si128, _mm_stream_si128, _mm_unpackhi_epi64,
    _mm_xor_si128, _mm512_broadcast_i32x4, _mm512_clmulepi64_epi128, _mm512_extracti32x4_epi32, _mm512_loadu_si512,
    _mm512_shuffle_epi8, _mm512_storeu_si512, _mm512_stream_si512, _mm512_ternarylogic_epi64, _mm512_xor_si512,
    _mm512_zextsi128_si512,
};

use super::{Road, Store, factors, table};

/// Bytes per round of the wide kernel, and of the narrow one.
const WIDE: usize = 256;
const NARROW: usize = 128;
/// How far ahead of the loads the source is prefetched; past the end it is a hint that cannot fault.
const AHEAD: usize = 1024;
/// `a ^ b ^ c`, as a table of three bits.
const XOR3: i32 = 0x96;

const NOWHERE: u8 = 0;
const CACHED: u8 = 1;
const STREAMING: u8 = 2;

/// A kernel: from a checksum to that with whole rounds of the road behind, and how many bytes those were.
#[cfg(test)]
pub(super) type Kernel = unsafe fn(u64, Road) -> (u64, usize);

/// Those that this processor has.
#[cfg(test)]
pub(super) fn kernels() -> Vec<Kernel> {
    let mut kernels: Vec<Kernel> = Vec::new();
    if has_wide() {
        kernels.push(|crc, road| {
            // SAFETY: the processor has it, and the caller promised the rest.
            unsafe { by_store_wide(crc, road) }
        });
    }
    if has_narrow() {
        kernels.push(|crc, road| {
            // SAFETY: as above.
            unsafe { by_store_narrow(crc, road) }
        });
    }
    kernels
}

fn has_wide() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx512f") && has!("avx512bw") && has!("vpclmulqdq") && has!("pclmulqdq")
}

fn has_narrow() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("pclmulqdq")
}

/// Folds as many bytes as fill whole rounds.
///
/// # Safety
/// The road is readable and, unless nothing is stored, writable; with streaming stores its end is a multiple of 64.
pub(super) unsafe fn fold(crc: u64, road: Road) -> (u64, usize) {
    if road.len >= WIDE && has_wide() {
        // SAFETY: the processor has it, and the caller promised the rest.
        return unsafe { by_store_wide(crc, road) };
    }
    if road.len >= NARROW && has_narrow() {
        // SAFETY: as above.
        return unsafe { by_store_narrow(crc, road) };
    }
    (crc, 0)
}

/// # Safety
/// As [`fold`], and the processor has AVX-512 (F, BW) and VPCLMULQDQ.
unsafe fn by_store_wide(crc: u64, road: Road) -> (u64, usize) {
    let len = road.len / WIDE * WIDE;
    if len == 0 {
        return (crc, 0);
    }
    // SAFETY: whole rounds inside the road.
    let crc = unsafe {
        match road.store {
            Store::Nowhere => wide::<NOWHERE>(crc, road.from, road.to, len),
            Store::Cached => wide::<CACHED>(crc, road.from, road.to, len),
            Store::Streaming => wide::<STREAMING>(crc, road.from, road.to, len),
        }
    };
    (crc, len)
}

/// # Safety
/// As [`fold`], and the processor has AVX2 and PCLMULQDQ.
unsafe fn by_store_narrow(crc: u64, road: Road) -> (u64, usize) {
    let len = road.len / NARROW * NARROW;
    if len == 0 {
        return (crc, 0);
    }
    // SAFETY: whole rounds inside the road.
    let crc = unsafe {
        match road.store {
            Store::Nowhere => narrow::<NOWHERE>(crc, road.from, road.to, len),
            Store::Cached => narrow::<CACHED>(crc, road.from, road.to, len),
            Store::Streaming => narrow::<STREAMING>(crc, road.from, road.to, len),
        }
    };
    (crc, len)
}

/// The factors of both halves in one register.
#[target_feature(enable = "sse2")]
fn both((upper, lower): (u64, u64)) -> __m128i {
    _mm_set_epi64x(upper.cast_signed(), lower.cast_signed())
}

/// Turns the order of the bytes in a word round.
#[target_feature(enable = "sse2")]
fn turning() -> __m128i {
    _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
}

/// `word`, moved up by what the factors say, on top of `next`.
#[target_feature(enable = "avx2,pclmulqdq")]
fn onto(word: __m128i, factors: __m128i, next: __m128i) -> __m128i {
    let upper = _mm_clmulepi64_si128::<0x11>(word, factors);
    let lower = _mm_clmulepi64_si128::<0x00>(word, factors);
    _mm_xor_si128(_mm_xor_si128(upper, lower), next)
}

#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq")]
fn onto_wide(words: __m512i, factors: __m512i, next: __m512i) -> __m512i {
    let upper = _mm512_clmulepi64_epi128::<0x11>(words, factors);
    let lower = _mm512_clmulepi64_epi128::<0x00>(words, factors);
    _mm512_ternarylogic_epi64::<XOR3>(upper, lower, next)
}

/// The checksum of a word in a register.
#[target_feature(enable = "sse2")]
fn finish(word: __m128i) -> u64 {
    let upper = _mm_cvtsi128_si64(_mm_unpackhi_epi64(word, word)).cast_unsigned();
    let lower = _mm_cvtsi128_si64(word).cast_unsigned();
    table::word(u128::from(upper) << 64 | u128::from(lower))
}

/// # Safety
/// `len` is a multiple of [`WIDE`] and not zero; both ranges as [`fold`] says.
#[target_feature(enable = "avx512f,avx512bw,vpclmulqdq,avx2,pclmulqdq")]
unsafe fn wide<const STORE: u8>(crc: u64, from: *const u8, to: *mut u8, len: usize) -> u64 {
    const ROUND: (u64, u64) = factors(8 * WIDE as u64);
    const REGISTER: (u64, u64) = factors(512);
    const WORD: (u64, u64) = factors(128);
    let turning = _mm512_broadcast_i32x4(turning());
    let round = _mm512_broadcast_i32x4(both(ROUND));
    // Reads 64 bytes, stores them as they are, and gives their words.
    let take = |at: usize| {
        // SAFETY: at + 64 <= len; where stores stream, `to` is a multiple of 64 and so is `at`.
        unsafe {
            let bytes = _mm512_loadu_si512(from.add(at).cast());
            match STORE {
                CACHED => _mm512_storeu_si512(to.add(at).cast(), bytes),
                STREAMING => _mm512_stream_si512(to.add(at).cast(), bytes),
                _ => {}
            }
            _mm512_shuffle_epi8(bytes, turning)
        }
    };
    let before = _mm512_zextsi128_si512(_mm_set_epi64x(crc.cast_signed(), 0));
    let mut words = [_mm512_xor_si512(take(0), before), take(64), take(128), take(192)];
    let mut at = WIDE;
    while at < len {
        for line in 0..4 {
            _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at + AHEAD + 64 * line).cast());
        }
        for (register, word) in words.iter_mut().enumerate() {
            *word = onto_wide(*word, round, take(at + 64 * register));
        }
        at += WIDE;
    }
    if STORE == STREAMING {
        // Streaming stores are not ordered with ordinary ones: the fence makes them visible before the call returns.
        _mm_sfence();
    }
    let register = _mm512_broadcast_i32x4(both(REGISTER));
    let [first, second, third, last] = words;
    let all = onto_wide(onto_wide(onto_wide(first, register, second), register, third), register, last);
    let word = both(WORD);
    let (a, b) = (_mm512_extracti32x4_epi32::<0>(all), _mm512_extracti32x4_epi32::<1>(all));
    let (c, d) = (_mm512_extracti32x4_epi32::<2>(all), _mm512_extracti32x4_epi32::<3>(all));
    finish(onto(onto(onto(a, word, b), word, c), word, d))
}

/// # Safety
/// `len` is a multiple of [`NARROW`] and not zero; both ranges as [`fold`] says.
#[target_feature(enable = "avx2,pclmulqdq")]
unsafe fn narrow<const STORE: u8>(crc: u64, from: *const u8, to: *mut u8, len: usize) -> u64 {
    const ROUND: (u64, u64) = factors(8 * NARROW as u64);
    const WORD: (u64, u64) = factors(128);
    let (turning, round, word) = (turning(), both(ROUND), both(WORD));
    // Reads 16 bytes, stores them as they are, and gives their word.
    let take = |at: usize| {
        // SAFETY: at + 16 <= len; where stores stream, `to` is a multiple of 64 and `at` one of 16.
        unsafe {
            let bytes = _mm_loadu_si128(from.add(at).cast());
            match STORE {
                CACHED => _mm_storeu_si128(to.add(at).cast(), bytes),
                STREAMING => _mm_stream_si128(to.add(at).cast(), bytes),
                _ => {}
            }
            _mm_shuffle_epi8(bytes, turning)
        }
    };
    let mut words = [take(0), take(16), take(32), take(48), take(64), take(80), take(96), take(112)];
    words[0] = _mm_xor_si128(words[0], _mm_set_epi64x(crc.cast_signed(), 0));
    let mut at = NARROW;
    while at < len {
        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at + AHEAD).cast());
        _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(at + AHEAD + 64).cast());
        for (register, held) in words.iter_mut().enumerate() {
            *held = onto(*held, round, take(at + 16 * register));
        }
        at += NARROW;
    }
    if STORE == STREAMING {
        // As in the wide kernel.
        _mm_sfence();
    }
    let [mut all, rest @ ..] = words;
    for next in rest {
        all = onto(all, word, next);
    }
    finish(all)
}
