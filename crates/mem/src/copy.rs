//! The copy kernel.
//!
//! Objects of a pool are mostly larger than what the caches keep, so a large copy should not push the caller's own data
//! out, nor first read the destination in order to overwrite it. Stores that go around the cache, with the source
//! prefetched, are twice as fast as `memcpy` here from 64 KiB on when source and destination are cold
//! (`cargo run --release -p yb-transfer --example copy_bench`), and slower when both are small and warm.

use crate::{Span, SpanError};

/// How a copy should treat the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyHint {
    /// The bytes are few, or are needed at once.
    Cached,
    /// The bytes are many: go around the caches.
    Streaming,
}

/// From how many bytes on (of a whole batch) [`CopyHint::for_total`] says [`CopyHint::Streaming`].
pub const STREAMING_FROM: u64 = 256 << 10;

/// Below this a single copy always goes through the caches.
pub(crate) const STREAMING_PIECE: usize = 16 << 10;

impl CopyHint {
    /// The hint for a batch of `total` bytes.
    pub fn for_total(total: u64) -> Self {
        if total >= STREAMING_FROM { CopyHint::Streaming } else { CopyHint::Cached }
    }
}

/// Copies `src` to `dst`. Overlapping ranges are copied as if through a third buffer.
///
/// # Errors
/// When the lengths differ or `dst` may not be written; nothing is copied then.
pub fn copy(dst: Span<'_>, src: Span<'_>, hint: CopyHint) -> Result<(), SpanError> {
    check(dst, src)?;
    let streams = hint == CopyHint::Streaming && dst.len() >= STREAMING_PIECE && are_apart(dst, src);
    if streams && streaming::copy(dst, src) {
        return Ok(());
    }
    // SAFETY: both spans are mapped for their lengths, which are equal; memmove allows overlap.
    unsafe { std::ptr::copy(src.pointer(), dst.pointer(), dst.len()) };
    Ok(())
}

/// Why one span cannot be copied to another.
pub(crate) fn check(dst: Span<'_>, src: Span<'_>) -> Result<(), SpanError> {
    if dst.len() != src.len() {
        return Err(SpanError::LengthMismatch { dst: dst.len() as u64, src: src.len() as u64 });
    }
    if !dst.is_writable() {
        return Err(SpanError::ReadOnly);
    }
    if dst.is_on_device() || src.is_on_device() {
        return Err(SpanError::OnDevice);
    }
    Ok(())
}

/// Whether spans of equal length do not overlap.
pub(crate) fn are_apart(dst: Span<'_>, src: Span<'_>) -> bool {
    dst.address().abs_diff(src.address()) >= dst.len() as u64
}

#[cfg(target_arch = "x86_64")]
mod streaming {
    use std::arch::x86_64::{__m256i, _MM_HINT_T0, _mm_prefetch, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    use crate::Span;

    /// Bytes per round: two cache lines.
    const ROUND: usize = 128;
    /// How far ahead of the loads the source is prefetched; past the end it is a hint that cannot fault.
    const AHEAD: usize = 1024;

    /// Copies spans of equal length that do not overlap. False when the processor cannot; nothing is copied then.
    pub(super) fn copy(dst: Span<'_>, src: Span<'_>) -> bool {
        if !std::arch::is_x86_feature_detected!("avx2") {
            return false;
        }
        let len = dst.len();
        let head = dst.pointer().align_offset(32).min(len);
        let body = (len - head) / ROUND * ROUND;
        let tail = head + body;
        // SAFETY: head, body and tail add up to the length that both spans are mapped for, the spans do not overlap,
        // the body of dst starts at a multiple of 32, and AVX2 was found.
        unsafe {
            std::ptr::copy_nonoverlapping(src.pointer(), dst.pointer(), head);
            rounds(dst.pointer().add(head), src.pointer().add(head), body);
            std::ptr::copy_nonoverlapping(src.pointer().add(tail), dst.pointer().add(tail), len - tail);
        }
        true
    }

    /// # Safety
    /// `len` is a multiple of [`ROUND`], both ranges are mapped and apart, `dst` is a multiple of 32, AVX2 is there.
    #[target_feature(enable = "avx2")]
    unsafe fn rounds(dst: *mut u8, src: *const u8, len: usize) {
        let mut at = 0;
        while at < len {
            // SAFETY: at + ROUND <= len; the prefetch address is never dereferenced.
            unsafe {
                let from = src.add(at);
                let to = dst.add(at).cast::<__m256i>();
                _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD).cast());
                _mm_prefetch::<_MM_HINT_T0>(from.wrapping_add(AHEAD + 64).cast());
                let from = from.cast::<__m256i>();
                let (a, b) = (_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1)));
                let (c, d) = (_mm256_loadu_si256(from.add(2)), _mm256_loadu_si256(from.add(3)));
                _mm256_stream_si256(to, a);
                _mm256_stream_si256(to.add(1), b);
                _mm256_stream_si256(to.add(2), c);
                _mm256_stream_si256(to.add(3), d);
            }
            at += ROUND;
        }
        // Streaming stores are not ordered with ordinary ones: the fence makes them visible before the call returns.
        _mm_sfence();
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod streaming {
    use crate::Span;

    /// Other processors use the C library's copy.
    pub(super) fn copy(_dst: Span<'_>, _src: Span<'_>) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_refuses() {
        let mut to = [0_u8; 4];
        copy(Span::destination(&mut to), Span::source(b"wxyz"), CopyHint::Cached).unwrap();
        assert_eq!(&to, b"wxyz");
        assert_eq!(copy(Span::source(b"ab"), Span::source(b"cd"), CopyHint::Cached), Err(SpanError::ReadOnly));
        assert!(copy(Span::destination(&mut to), Span::source(b"abc"), CopyHint::Cached).is_err());
    }

    #[test]
    fn overlap_is_a_move_even_when_streaming() {
        let mut bytes: Vec<u8> = (0..100_000_u32).map(|i| i as u8).collect();
        let expected = bytes[..90_000].to_vec();
        let all = Span::destination(&mut bytes);
        copy(all.slice(10_000, 90_000).unwrap(), all.slice(0, 90_000).unwrap(), CopyHint::Streaming).unwrap();
        assert_eq!(&bytes[10_000..], expected);
    }

    #[test]
    fn streaming_copies_every_byte_and_no_other() {
        let source: Vec<u8> = (0..70_001_u32).map(|i| (i * 7 + i / 251) as u8).collect();
        for (from, to, len) in [(0, 0, 70_000), (1, 3, 69_990), (5, 31, 16_384), (7, 0, 16_385), (0, 1, 65_537)] {
            let mut target = vec![0xee_u8; 70_100];
            let dst = Span::destination(&mut target).slice(to, len).unwrap();
            copy(dst, Span::source(&source).slice(from, len).unwrap(), CopyHint::Streaming).unwrap();
            assert_eq!(&target[to..to + len], &source[from..from + len]);
            assert!(target[..to].iter().chain(&target[to + len..]).all(|byte| *byte == 0xee));
        }
    }
}
