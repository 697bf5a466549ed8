//! The caller's memory in a call: parts that together hold one object.

use smallvec::{SmallVec, smallvec};
use yb_transfer::{LocalBuffer, MemorySegment, Span};

use crate::{Error, Result};

/// Memory inside one registered buffer, by address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MemoryRange {
    /// First address in this process.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

impl MemoryRange {
    /// All of a segment.
    pub fn of(segment: &MemorySegment) -> Self {
        MemoryRange { address: segment.address(), len: segment.len() }
    }

    /// The part `offset..offset+len`, for what it is worth: whether it is registered is checked when it is used.
    pub fn part(self, offset: u64, len: u64) -> Self {
        MemoryRange { address: self.address.wrapping_add(offset), len }
    }
}

/// Parts of the caller's memory, in the order of the object's bytes.
pub type Parts<'a> = SmallVec<[LocalBuffer<'a>; 1]>;

/// One object to write.
#[derive(Debug)]
pub struct PutItem<'a> {
    /// Its name.
    pub key: &'a [u8],
    /// Its bytes.
    pub from: Parts<'a>,
}

impl<'a> PutItem<'a> {
    /// An object in one piece.
    pub fn new(key: &'a [u8], value: &'a [u8]) -> Self {
        PutItem { key, from: smallvec![LocalBuffer::source(value)] }
    }

    pub(crate) fn len(&self) -> u64 {
        total(&self.from)
    }
}

/// One object to read.
#[derive(Debug)]
pub struct GetItem<'a> {
    /// Its name.
    pub key: &'a [u8],
    /// Where its bytes go; may be longer than the object.
    pub into: Parts<'a>,
}

impl<'a> GetItem<'a> {
    /// Into one slice.
    pub fn new(key: &'a [u8], into: &'a mut [u8]) -> Self {
        GetItem { key, into: smallvec![LocalBuffer::destination(into)] }
    }
}

/// Bytes of all parts.
pub(crate) fn total(parts: &[LocalBuffer<'_>]) -> u64 {
    parts.iter().map(LocalBuffer::len).sum()
}

/// A piece of an object in the caller's memory.
pub(crate) struct Piece<'a> {
    /// Its first byte in the object.
    pub(crate) offset: u64,
    /// The memory.
    pub(crate) span: Span<'a>,
}

/// The first `size` bytes of `parts`, piece by piece; pieces of no bytes are left out.
///
/// # Errors
/// [`Error::BufferTooSmall`] when the parts hold less.
pub(crate) fn pieces<'a>(parts: &'a [LocalBuffer<'_>], size: u64) -> Result<SmallVec<[Piece<'a>; 1]>> {
    let too_small = || Error::BufferTooSmall { object: size, buffer: total(parts) };
    let mut found = SmallVec::new();
    let mut offset = 0;
    for part in parts {
        let len = part.len().min(size - offset);
        if len > 0 {
            let span = part.span().slice(0, len as usize).map_err(|_| too_small())?;
            found.push(Piece { offset, span });
            offset += len;
        }
    }
    if offset == size { Ok(found) } else { Err(too_small()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_cover_every_byte_once(lens in proptest::collection::vec(0usize..50, 0..6), size in 0u64..200) {
            let memory: Vec<Vec<u8>> = lens.iter().map(|len| vec![0; *len]).collect();
            let parts: Parts<'_> = memory.iter().map(|m| LocalBuffer::source(m)).collect();
            match pieces(&parts, size) {
                Ok(pieces) => {
                    let mut at = 0;
                    for piece in &pieces {
                        prop_assert_eq!(piece.offset, at);
                        prop_assert!(!piece.span.is_empty());
                        at += piece.span.len() as u64;
                    }
                    prop_assert_eq!(at, size);
                }
                Err(_) => prop_assert!(total(&parts) < size),
            }
        }
    }
}
