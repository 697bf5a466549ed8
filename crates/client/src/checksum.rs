//! CRC-64/ECMA-182 of an object: most significant bit first, from zero, nothing added at the end.
//!
//! Sixteen bytes a step through sixteen tables. The tables are made at compile time.

use yb_transfer::{LocalBuffer, Span};

const POLYNOMIAL: u64 = 0x42F0_E1EB_A9EA_3693;
/// Bytes of one step, and tables.
const STEP: usize = 16;

static TABLES: [[u64; 256]; STEP] = tables();

const fn tables() -> [[u64; 256]; STEP] {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u64) << 56;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc >> 63 == 1 { (crc << 1) ^ POLYNOMIAL } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < STEP {
        let mut byte = 0;
        while byte < 256 {
            let before: u64 = tables[table - 1][byte];
            tables[table][byte] = (before << 8) ^ tables[0][(before >> 56) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// A checksum in the making.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checksum(u64);

impl Checksum {
    /// The bytes that come next.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let (steps, rest) = bytes.as_chunks::<STEP>();
        for step in steps {
            let block = u128::from_be_bytes(*step) ^ (u128::from(self.0) << 64);
            self.0 = block
                .to_be_bytes()
                .iter()
                .rev()
                .zip(&TABLES)
                .fold(0, |crc, (byte, table)| crc ^ table[usize::from(*byte)]);
        }
        for byte in rest {
            self.0 = (self.0 << 8) ^ TABLES[0][usize::from((self.0 >> 56) as u8 ^ byte)];
        }
    }

    /// The checksum of what was added.
    pub(crate) fn value(self) -> u64 {
        self.0
    }
}

/// The checksum of all parts, one after the other; `None` when the processor cannot reach one of them.
pub(crate) fn of(parts: &[LocalBuffer<'_>]) -> Option<u64> {
    of_spans(parts.iter().map(LocalBuffer::span))
}

/// As [`of`], of memory in pieces.
pub(crate) fn of_spans<'a>(spans: impl IntoIterator<Item = Span<'a>>) -> Option<u64> {
    let mut checksum = Checksum::default();
    for span in spans {
        if span.is_on_device() {
            return None;
        }
        span.look(|bytes| checksum.add(bytes));
    }
    Some(checksum.value())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bit_by_bit(bytes: &[u8]) -> u64 {
        bytes.iter().fold(0, |crc, byte| {
            (0..8).fold(
                crc ^ (u64::from(*byte) << 56),
                |crc: u64, _| {
                    if crc >> 63 == 1 { (crc << 1) ^ POLYNOMIAL } else { crc << 1 }
                },
            )
        })
    }

    #[test]
    fn the_check_value_of_the_standard() {
        assert_eq!(of(&[LocalBuffer::source(b"123456789")]), Some(0x6C40_DF5F_0B49_7347));
        assert_eq!(of(&[]), Some(0));
    }

    proptest! {
        #[test]
        fn parts_of_any_length_give_what_the_definition_gives(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0usize..200) {
            let cut = cut.min(bytes.len());
            let parts = [LocalBuffer::source(&bytes[..cut]), LocalBuffer::source(&bytes[cut..])];
            prop_assert_eq!(of(&parts), Some(bit_by_bit(&bytes)));
        }
    }
}
