//! Whole bodies: head, metainfo, total length, literal, payload, values of compatible members.

use crate::{DecodeError, Levels, Limits, Literal, Pack, Reader, SizeWidth, Unpack, Version, literal_code};

/// Bit 0 of the head: a metainfo byte follows.
pub(crate) const HEAD_HAS_METAINFO: u32 = 1;
/// Bit 2 of the metainfo byte: the literal is in the body.
pub(crate) const METAINFO_LITERAL: u8 = 1 << 2;
/// Shift of the size width selector in the metainfo byte.
pub(crate) const METAINFO_WIDTH_SHIFT: u8 = 3;
/// Bits 1..0 of the metainfo byte: width of the total length, 0 = absent.
pub(crate) const METAINFO_TOTAL_MASK: u8 = 3;

/// What a type is on the wire of one generation. Made once, then used for every message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyType {
    version: Version,
    literal: Vec<u8>,
    code: u32,
    wrapped_code: u32,
    levels: Levels,
}

impl BodyType {
    /// Computes it for `T`.
    pub fn of<T: Pack>(version: Version) -> BodyType {
        let mut literal = Literal::default();
        T::literal(version, &mut literal);
        let literal = literal.0;
        let wrapped = wrap(&literal);
        BodyType {
            version,
            code: literal_code(&literal),
            wrapped_code: literal_code(&wrapped),
            levels: T::levels(version),
            literal,
        }
    }

    /// The generation.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The type literal; empty for the arguments of a function that has none.
    pub fn literal(&self) -> &[u8] {
        &self.literal
    }

    /// The type code.
    pub fn code(&self) -> u32 {
        self.code
    }

    /// Levels of compatible members.
    pub fn levels(&self) -> Levels {
        self.levels
    }

    /// True for the arguments of a function without any: its body is empty and has no code.
    pub fn is_absent(&self) -> bool {
        self.literal.is_empty()
    }

    /// True if a body with this code is of this type, bare or wrapped in a one-element tuple (the peer takes both).
    pub fn accepts(&self, code: u32) -> bool {
        code == self.code || code == self.wrapped_code
    }
}

fn wrap(literal: &[u8]) -> Vec<u8> {
    let mut wrapped = Vec::with_capacity(literal.len() + 2);
    wrapped.push(Literal::STRUCT);
    wrapped.extend_from_slice(literal);
    wrapped.push(Literal::END);
    wrapped
}

/// The type code a body begins with, `None` if it is shorter than a head.
pub fn peek_code(body: &[u8]) -> Option<u32> {
    body.first_chunk::<4>().map(|head| u32::from_le_bytes(*head) & !1)
}

/// Decodes a body.
///
/// # Errors
/// When it is of another type, cut short, or beyond a limit. Trailing bytes are no error.
pub fn decode<'a, T: Unpack<'a>>(body: &'a [u8], ty: &BodyType, limits: Limits) -> Result<T, DecodeError> {
    if ty.is_absent() {
        return T::read(&mut Reader::new(&[], ty.version, SizeWidth::One, limits));
    }
    let (mut reader, has_total) = open(body, ty, limits)?;
    let mut value = T::read(&mut reader)?;
    if has_total {
        for level in ty.levels.iter() {
            value.read_compat(&mut reader, level)?;
        }
    }
    Ok(value)
}

/// Checks everything before the payload and returns a reader that stands on it.
fn open<'a>(body: &'a [u8], ty: &BodyType, limits: Limits) -> Result<(Reader<'a>, bool), DecodeError> {
    let mut prefix = Reader::new(body, ty.version, SizeWidth::One, limits);
    let head = u32::from_le_bytes(prefix.array()?);
    let code = head & !HEAD_HAS_METAINFO;
    if !ty.accepts(code) {
        return Err(DecodeError::WrongCode { expected: ty.code, found: code });
    }
    let metainfo = if head & HEAD_HAS_METAINFO != 0 { prefix.byte()? } else { 0 };
    let total = match metainfo & METAINFO_TOTAL_MASK {
        0 => None,
        1 => Some(u64::from(u16::from_le_bytes(prefix.array()?))),
        2 => Some(u64::from(u32::from_le_bytes(prefix.array()?))),
        _ => Some(u64::from_le_bytes(prefix.array()?)),
    };
    if metainfo & METAINFO_LITERAL != 0 {
        check_literal(&mut prefix, ty, code)?;
    }
    let width = SizeWidth::from_selector(metainfo >> METAINFO_WIDTH_SHIFT);
    let mut reader = Reader::new(body, ty.version, width, limits).starting_at(prefix.position());
    if let Some(total) = total {
        reader.set_compat_end(usize::try_from(total).unwrap_or(usize::MAX));
    }
    Ok((reader, total.is_some()))
}

fn check_literal(prefix: &mut Reader<'_>, ty: &BodyType, code: u32) -> Result<(), DecodeError> {
    let wrapped;
    let expected = if code == ty.code {
        &ty.literal
    } else {
        wrapped = wrap(&ty.literal);
        &wrapped
    };
    let found = prefix.take(expected.len())?;
    if found != expected.as_slice() || prefix.byte()? != 0 {
        return Err(DecodeError::WrongLiteral { code });
    }
    Ok(())
}
