//! Sixteen bytes a step through sixteen tables, which are made at compile time.

use super::by_x;

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
            crc = by_x(crc);
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

/// The checksum of bytes that have the checksum `crc`, with these behind them.
pub(super) fn add(mut crc: u64, bytes: &[u8]) -> u64 {
    let (steps, rest) = bytes.as_chunks::<STEP>();
    for step in steps {
        crc = word(u128::from_be_bytes(*step) ^ (u128::from(crc) << 64));
    }
    for byte in rest {
        crc = (crc << 8) ^ TABLES[0][usize::from((crc >> 56) as u8 ^ byte)];
    }
    crc
}

/// The checksum of one word.
pub(super) fn word(word: u128) -> u64 {
    let bytes = word.to_be_bytes();
    bytes.iter().rev().zip(&TABLES).fold(0, |crc, (byte, table)| crc ^ table[usize::from(*byte)])
}
