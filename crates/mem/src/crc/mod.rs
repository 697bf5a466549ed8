//! CRC-64/ECMA-182 of memory, alone or while it is copied.
//!
//! Most significant bit first, from zero, nothing added at the end: what the peer's clients put into `object_checksum`.
//! Bytes are taken as a polynomial and folded by carry-less multiplication, [`x86`] in 64-byte or 16-byte words and
//! [`aarch64`] in 16-byte words; other processors, heads and tails go through [`table`]. A copy folds the very words that it
//! stores, so that memory is read once and the sum is that of the bytes which arrived.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod table;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::copy::{STREAMING_PIECE, are_apart, check};
use crate::{CopyHint, Span, SpanError};

/// The polynomial without its highest term.
const POLYNOMIAL: u64 = 0x42F0_E1EB_A9EA_3693;
/// Bytes of one piece that goes through the stack.
const PIECE: usize = 4096;

/// The checksum of bytes that follow one another, and how many they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crc64 {
    value: u64,
    len: u64,
}

/// How the words that were read are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Store {
    Nowhere,
    Cached,
    Streaming,
}

/// Where bytes come from and go to.
#[derive(Clone, Copy)]
struct Road {
    from: *const u8,
    /// Not looked at when nothing is stored.
    to: *mut u8,
    len: usize,
    store: Store,
}

impl Crc64 {
    /// The checksum of a span; `None` when the processor cannot reach it.
    pub fn of(span: Span<'_>) -> Option<Self> {
        let mut sum = Crc64::default();
        sum.add_span(span).ok()?;
        Some(sum)
    }

    /// The bytes that come next.
    pub fn add(&mut self, bytes: &[u8]) {
        let road = Road { from: bytes.as_ptr(), to: std::ptr::null_mut(), len: bytes.len(), store: Store::Nowhere };
        // SAFETY: the slice is readable for its length, and nothing is stored.
        unsafe { self.pass(road) };
    }

    /// As [`Crc64::add`], of memory that others may change meanwhile: each byte is read once.
    ///
    /// # Errors
    /// [`SpanError::OnDevice`]; nothing is added then.
    pub fn add_span(&mut self, span: Span<'_>) -> Result<(), SpanError> {
        if span.is_on_device() {
            return Err(SpanError::OnDevice);
        }
        let road = Road { from: span.pointer(), to: std::ptr::null_mut(), len: span.len(), store: Store::Nowhere };
        // SAFETY: the span is mapped and readable for its length, and nothing is stored.
        unsafe { self.pass(road) };
        Ok(())
    }

    /// The checksum of these bytes with those of `next` behind them.
    pub fn then(self, next: Crc64) -> Crc64 {
        if self.value == 0 {
            return Crc64 { value: next.value, len: self.len + next.len };
        }
        // Bytes behind move these up by that many powers of x.
        let moved = times(self.value, power(next.len.wrapping_mul(8)));
        Crc64 { value: moved ^ next.value, len: self.len + next.len }
    }

    /// The checksum.
    pub fn value(self) -> u64 {
        self.value
    }

    /// Bytes that were added.
    pub fn len(self) -> u64 {
        self.len
    }

    /// True when no byte was added.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// # Safety
    /// `from` is readable for `len` bytes; unless nothing is stored, `to` is writable for as many and they do not overlap.
    unsafe fn pass(&mut self, road: Road) {
        let head = if road.store == Store::Streaming { road.to.align_offset(64).min(road.len) } else { 0 };
        // SAFETY: head, body and tail are parts of the road one after the other.
        unsafe {
            self.through_the_stack(Road { len: head, ..road });
            let rest = road.skip(head);
            let done = self.fold(rest);
            self.through_the_stack(rest.skip(done));
        }
        self.len += road.len as u64;
    }

    /// Folds whole rounds of a road with what the processor has for it; how many bytes that were.
    ///
    /// # Safety
    /// As [`Crc64::pass`]; with streaming stores `to` is a multiple of 64.
    #[cfg(target_arch = "x86_64")]
    unsafe fn fold(&mut self, road: Road) -> usize {
        // SAFETY: as promised to us.
        let (value, done) = unsafe { x86::fold(self.value, road) };
        self.value = value;
        done
    }

    /// # Safety
    /// As [`Crc64::pass`].
    #[cfg(target_arch = "aarch64")]
    unsafe fn fold(&mut self, road: Road) -> usize {
        // SAFETY: as promised to us.
        let (value, done) = unsafe { aarch64::fold(self.value, road) };
        self.value = value;
        done
    }

    /// # Safety
    /// None is asked for: nothing is done.
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    unsafe fn fold(&mut self, _road: Road) -> usize {
        0
    }

    /// # Safety
    /// As [`Crc64::pass`].
    unsafe fn through_the_stack(&mut self, road: Road) {
        let mut piece = [0_u8; PIECE];
        let mut at = 0;
        while at < road.len {
            let len = PIECE.min(road.len - at);
            // SAFETY: at + len is inside the road, and the piece is on our own stack.
            unsafe { std::ptr::copy_nonoverlapping(road.from.add(at), piece.as_mut_ptr(), len) };
            let bytes = piece.get(..len).unwrap_or_default();
            self.value = table::add(self.value, bytes);
            if road.store != Store::Nowhere {
                // SAFETY: as above, for the other end of the road.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), road.to.add(at), len) };
            }
            at += len;
        }
    }
}

impl Road {
    /// What is left behind the first `len` bytes.
    ///
    /// # Safety
    /// The road has so many.
    unsafe fn skip(self, len: usize) -> Road {
        let to = if self.store == Store::Nowhere { self.to } else { self.to.wrapping_add(len) };
        // SAFETY: as promised.
        Road { from: unsafe { self.from.add(len) }, to, len: self.len - len, ..self }
    }
}

/// Copies `src` to `dst` as [`crate::copy`] does, and adds the bytes that were copied to `sum`.
///
/// # Errors
/// As [`crate::copy`]; nothing is copied or added then.
pub fn copy_summed(dst: Span<'_>, src: Span<'_>, hint: CopyHint, sum: &mut Crc64) -> Result<(), SpanError> {
    check(dst, src)?;
    if !are_apart(dst, src) {
        crate::copy(dst, src, hint)?;
        return sum.add_span(dst);
    }
    let streams = hint == CopyHint::Streaming && dst.len() >= STREAMING_PIECE;
    let store = if streams { Store::Streaming } else { Store::Cached };
    let road = Road { from: src.pointer(), to: dst.pointer(), len: dst.len(), store };
    // SAFETY: both spans are mapped for the same length, `dst` may be written, and they do not overlap.
    unsafe { sum.pass(road) };
    Ok(())
}

/// The product of two polynomials, modulo the sum's.
const fn times(a: u64, b: u64) -> u64 {
    let (mut product, mut bit) = (0_u64, 64);
    while bit > 0 {
        bit -= 1;
        product = by_x(product);
        if (b >> bit) & 1 == 1 {
            product ^= a;
        }
    }
    product
}

const fn by_x(a: u64) -> u64 {
    let carry = if a >> 63 == 1 { POLYNOMIAL } else { 0 };
    (a << 1) ^ carry
}

/// `x` to the power of `n`, modulo the sum's polynomial.
const fn power(mut n: u64) -> u64 {
    let (mut power, mut square) = (1, 2);
    while n > 0 {
        if n & 1 == 1 {
            power = times(power, square);
        }
        square = times(square, square);
        n >>= 1;
    }
    power
}

/// What moves a 16-byte word up by `bits`: the factors of its upper and of its lower half.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const fn factors(bits: u64) -> (u64, u64) {
    (power(bits + 64), power(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bit_by_bit(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |crc, byte| (0..8).fold(crc ^ (u64::from(*byte) << 56), |crc, _| by_x(crc)))
    }

    fn bytes(len: usize) -> Vec<u8> {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..len).map(|_| next()).collect()
    }

    fn sum(bytes: &[u8]) -> Crc64 {
        let mut sum = Crc64::default();
        sum.add(bytes);
        sum
    }

    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(sum(b"123456789"), Crc64 { value: 0x6C40_DF5F_0B49_7347, len: 9 });
        assert_eq!(sum(b""), Crc64::default());
    }

    #[test]
    fn any_length_at_any_address_gives_what_the_definition_gives() {
        let all = bytes(5000);
        for len in (0..600).chain([1023, 1024, 1025, 2047, 4095, 4096, 4097, 4999]) {
            for from in [0, 1, 7] {
                let part = &all[from.min(5000 - len)..][..len];
                assert_eq!(sum(part).value(), bit_by_bit(part), "{len} bytes from {from}");
            }
        }
    }

    #[test]
    fn parts_one_after_the_other_and_parts_put_together_give_the_sum_of_the_whole() {
        let all = bytes(3000);
        for cut in [0, 1, 15, 16, 255, 256, 257, 1500, 2999, 3000] {
            let (front, back) = all.split_at(cut);
            let mut continued = sum(front);
            continued.add(back);
            assert_eq!(continued, sum(&all), "{cut}");
            assert_eq!(sum(front).then(sum(back)), sum(&all), "{cut}");
        }
        assert_eq!(sum(&[0; 9]).then(sum(b"123456789")).len(), 18);
    }

    #[test]
    fn a_copy_arrives_whole_and_its_sum_is_that_of_what_arrived() {
        let source = bytes(70_001);
        for hint in [CopyHint::Cached, CopyHint::Streaming] {
            for (from, to, len) in [(0, 0, 70_000), (1, 3, 69_990), (5, 31, 16_384), (7, 0, 300), (0, 1, 9)] {
                let mut target = vec![0xee_u8; 70_100];
                let dst = Span::destination(&mut target).slice(to, len).unwrap();
                let mut sum = Crc64::default();
                copy_summed(dst, Span::source(&source).slice(from, len).unwrap(), hint, &mut sum).unwrap();
                assert_eq!(&target[to..to + len], &source[from..from + len]);
                assert!(target[..to].iter().chain(&target[to + len..]).all(|byte| *byte == 0xee));
                assert_eq!(sum, self::sum(&source[from..from + len]));
            }
        }
    }

    #[test]
    fn what_overlaps_is_moved_and_what_cannot_be_copied_is_refused() {
        let mut moved = bytes(100_000);
        let expected = moved[..90_000].to_vec();
        let all = Span::destination(&mut moved);
        let (dst, src) = (all.slice(10_000, 90_000).unwrap(), all.slice(0, 90_000).unwrap());
        let mut total = Crc64::default();
        copy_summed(dst, src, CopyHint::Streaming, &mut total).unwrap();
        assert_eq!((&moved[10_000..], total), (&expected[..], sum(&expected)));
        assert_eq!(
            copy_summed(Span::source(b"ab"), Span::source(b"cd"), CopyHint::Cached, &mut total),
            Err(SpanError::ReadOnly)
        );
        // SAFETY: nothing here reaches the range; that is what is tested.
        let device = unsafe { Span::on_device(4096, 8) };
        assert_eq!((Crc64::of(device), total), (None, sum(&expected)));
    }

    #[cfg(target_arch = "aarch64")]
    #[test]
    fn the_kernel_folds_whole_rounds_where_the_processor_can_and_agrees_with_the_table() {
        let (all, can) = (bytes(4096 + 64), std::arch::is_aarch64_feature_detected!("pmull"));
        for len in [0, 1, 127, 128, 255, 256, 257, 1000, 4096] {
            let (part, mut to) = (&all[3..3 + len], vec![0_u8; len]);
            let road = Road { from: part.as_ptr(), to: to.as_mut_ptr(), len, store: Store::Cached };
            // SAFETY: both vectors have that length.
            let (value, done) = unsafe { aarch64::fold(7, road) };
            assert_eq!(done, if can { len / 128 * 128 } else { 0 }, "{len}, PMULL: {can}");
            assert_eq!(value, table::add(7, &part[..done]), "{len}");
            assert_eq!(to[..done], part[..done]);
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_kernel_of_this_processor_agrees_with_the_table() {
        let all = bytes(4096 + 64);
        for kernel in x86::kernels() {
            for len in [0, 1, 127, 128, 255, 256, 257, 511, 512, 1000, 4096] {
                let (part, mut to) = (&all[3..3 + len], vec![0_u8; len]);
                let road = Road { from: part.as_ptr(), to: to.as_mut_ptr(), len, store: Store::Cached };
                // SAFETY: both vectors have that length, and the kernel is one that the processor has.
                let (value, done) = unsafe { kernel(7, road) };
                assert!(done <= len && len - done < 256);
                assert_eq!(value, table::add(7, &part[..done]), "{len}");
                assert_eq!(to[..done], part[..done]);
            }
        }
    }
}
