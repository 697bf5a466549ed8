//! What a type must tell to travel.

use crate::{DecodeError, Literal, Reader, Version, Writer};

/// The version numbers of the `compatible` members that a type holds at any depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels(u32);

impl Levels {
    /// No compatible member.
    pub const NONE: Levels = Levels(0);

    /// One level, 0 to 31.
    #[inline]
    pub const fn one(level: u8) -> Levels {
        Levels(1 << (level & 31))
    }

    /// Levels of either.
    #[must_use]
    #[inline]
    pub const fn or(self, other: Levels) -> Levels {
        Levels(self.0 | other.0)
    }

    /// True without any.
    #[inline]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// True if `level` is one of them.
    #[inline]
    pub const fn contains(self, level: u8) -> bool {
        self.0 & Levels::one(level).0 != 0
    }

    /// The levels in ascending order, which is the order of the values on the wire.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..32).filter(move |level| self.contains(*level))
    }
}

/// A type that can be described and encoded.
///
/// Values of `compatible` members are not part of the payload; they follow it, level by level, in payload order.
pub trait Pack {
    /// The fewest bytes a value takes in any generation; caps element counts when decoding.
    const MIN_BYTES: usize;

    /// Appends the type's literal.
    fn literal(version: Version, out: &mut Literal);

    /// Appends the type's name in the notation of the wire description, for docs.
    fn describe(version: Version, out: &mut String);

    /// Levels of the compatible members inside.
    fn levels(_version: Version) -> Levels {
        Levels::NONE
    }

    /// Appends the payload.
    fn write(&self, w: &mut Writer<'_>);

    /// Appends the values of the compatible members of one level.
    fn write_compat(&self, _w: &mut Writer<'_>, _level: u8) {}

    /// Literal of a sequence of this type. Only `u8` differs: its sequences are strings.
    #[doc(hidden)]
    fn sequence_literal(version: Version, out: &mut Literal) {
        out.push(Literal::SEQUENCE);
        Self::literal(version, out);
    }

    /// Name of a sequence of this type.
    #[doc(hidden)]
    fn describe_sequence(version: Version, out: &mut String) {
        out.push_str("vector<");
        Self::describe(version, out);
        out.push('>');
    }

    /// Payload of a sequence, without its size.
    #[doc(hidden)]
    fn write_sequence(items: &[Self], w: &mut Writer<'_>)
    where
        Self: Sized,
    {
        for item in items {
            item.write(w);
        }
    }
}

/// A type that can be decoded from bytes that live for `'a`.
pub trait Unpack<'a>: Pack + Sized {
    /// Reads the payload.
    ///
    /// # Errors
    /// When the bytes end early, name no known alternative, or break a limit.
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError>;

    /// Reads the values of the compatible members of one level.
    ///
    /// # Errors
    /// When a value is announced but cut short.
    fn read_compat(&mut self, _r: &mut Reader<'a>, _level: u8) -> Result<(), DecodeError> {
        Ok(())
    }

    /// Reads `count` values.
    #[doc(hidden)]
    fn read_sequence(r: &mut Reader<'a>, count: usize) -> Result<Vec<Self>, DecodeError> {
        let mut items = Vec::with_capacity(count);
        for _ in 0..count {
            items.push(Self::read(r)?);
        }
        Ok(items)
    }

    /// Steps over `count` values, checking them.
    #[doc(hidden)]
    fn skip_sequence(r: &mut Reader<'a>, count: usize) -> Result<(), DecodeError> {
        for _ in 0..count {
            Self::read(r)?;
        }
        Ok(())
    }

    /// Takes one element of a sequence out of the element budget; bytes of strings are free.
    #[doc(hidden)]
    const COUNTED: bool = true;
}

/// A type that is copied as its C memory image: natural alignment, padding included.
pub trait MemoryCopied: Pack {
    /// Bytes of the image.
    const SIZE: usize;
    /// Alignment in bytes.
    const ALIGN: usize;
}
