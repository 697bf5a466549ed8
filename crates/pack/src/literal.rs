//! Type literals: the byte string that describes a type, and the code that is made from it.

use md5::{Digest, Md5};

/// A type literal under construction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Literal(pub Vec<u8>);

impl Literal {
    /// `char`, the element of strings.
    pub const CHAR: u8 = 0x0c;
    /// Nothing at all.
    pub const VOID: u8 = 0xfa;
    /// Starts a struct, pair or tuple.
    pub const STRUCT: u8 = 0xfd;
    /// Ends a struct or a variant.
    pub const END: u8 = 0xff;
    /// Starts a string.
    pub const STRING: u8 = 0x80;
    /// Starts a fixed array.
    pub const ARRAY: u8 = 0x81;
    /// Starts a map.
    pub const MAP: u8 = 0x82;
    /// Starts a sequence.
    pub const SEQUENCE: u8 = 0x84;
    /// Starts an optional.
    pub const OPTIONAL: u8 = 0x85;
    /// Starts a variant.
    pub const VARIANT: u8 = 0x86;
    /// Starts an expected.
    pub const EXPECTED: u8 = 0x87;

    /// Appends one byte.
    pub fn push(&mut self, byte: u8) {
        self.0.push(byte);
    }

    /// Appends a number in base 127, least significant digit first; the last digit carries the high bit, and no digit
    /// is a zero byte.
    pub fn push_size(&mut self, mut n: usize) {
        while n >= 127 {
            // The remainder is below 127.
            self.0.push((n % 127) as u8 + 1);
            n /= 127;
        }
        self.0.push((n as u8).wrapping_add(129));
    }
}

/// The code of a type: the first four bytes of the MD5 of its literal, big-endian, with bit 0 cleared.
pub fn literal_code(literal: &[u8]) -> u32 {
    digest_head(literal) & !1
}

/// The id of a function: the first four bytes of the MD5 of its qualified name, big-endian.
pub fn name_code(name: &str) -> u32 {
    digest_head(name.as_bytes())
}

fn digest_head(bytes: &[u8]) -> u32 {
    let digest = Md5::digest(bytes);
    u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_no_zero_byte() {
        for n in [0usize, 1, 8, 64, 126, 127, 128, 254, 16_129, 2_048_383] {
            let mut literal = Literal::default();
            literal.push_size(n);
            assert!(!literal.0.contains(&0), "{n}");
        }
        let mut literal = Literal::default();
        literal.push_size(8);
        literal.push_size(64);
        assert_eq!(literal.0, [0x89, 0xc1]);
    }

    #[test]
    fn codes_of_the_worked_example() {
        assert_eq!(name_code("mooncake::WrappedMasterService::ExistKey"), 0x8938_5f09);
        assert_eq!(literal_code(&[0xfd, 0x80, 0x0c, 0x80, 0x0c, 0xff]), 0x7cf9_1ed8);
        assert_eq!(literal_code(&[0x87, 0x0b, 0x01]), 0x90e8_00d2);
    }
}
