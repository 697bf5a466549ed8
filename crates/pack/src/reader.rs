//! Takes payload bytes apart; every count is checked before anything is allocated.

use crate::{SizeWidth, Unpack, Version};

/// Bounds for one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Elements of all lists, maps and so on of a message together. Bytes of strings do not count.
    pub max_elements: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { max_elements: 1 << 20 }
    }
}

/// A body that is not what it should be. The peer's server answers transport error 4 and keeps the connection.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The body ends inside a value.
    #[error("body ends at byte {at}, {needed} more expected")]
    Truncated {
        /// Where.
        at: usize,
        /// Bytes that are missing there, as far as known.
        needed: usize,
    },
    /// The body is of another type.
    #[error("body has type code {found:08x}, expected {expected:08x}: other function, or other generation of the wire")]
    WrongCode {
        /// Code of the expected type.
        expected: u32,
        /// Code in the body.
        found: u32,
    },
    /// The code is right but the literal in clear is not.
    #[error("type literal in the body differs from that of type code {code:08x}")]
    WrongLiteral {
        /// The code.
        code: u32,
    },
    /// More elements than allowed.
    #[error("{count} elements, the limit for a whole message is {limit}")]
    TooManyElements {
        /// Elements announced, with those before.
        count: u64,
        /// The setting.
        limit: u32,
    },
    /// More elements announced than the body can hold.
    #[error("{count} elements announced with {remaining} bytes left")]
    CountBeyondBody {
        /// Elements announced.
        count: u64,
        /// Bytes left.
        remaining: usize,
    },
    /// A variant index out of range.
    #[error("alternative {index} of {variant} does not exist in this generation")]
    NoSuchAlternative {
        /// Name of the variant type.
        variant: &'static str,
        /// The index.
        index: u8,
    },
    /// A text that must be UTF-8 is not.
    #[error("text at byte {at} is not UTF-8")]
    NotUtf8 {
        /// Where.
        at: usize,
    },
}

/// Reads values from a body.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    buf: &'a [u8],
    pos: usize,
    version: Version,
    width: SizeWidth,
    limits: Limits,
    elements: u64,
    compat_end: usize,
}

impl<'a> Reader<'a> {
    /// A reader over `buf`, from its start.
    #[inline]
    pub fn new(buf: &'a [u8], version: Version, width: SizeWidth, limits: Limits) -> Self {
        Reader { buf, pos: 0, version, width, limits, elements: 0, compat_end: 0 }
    }

    pub(crate) fn starting_at(mut self, pos: usize) -> Self {
        self.pos = pos.min(self.buf.len());
        self
    }

    pub(crate) fn set_compat_end(&mut self, end: usize) {
        self.compat_end = end.min(self.buf.len());
    }

    /// Generation to decode for.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Bytes of every size field.
    #[inline]
    pub fn width(&self) -> SizeWidth {
        self.width
    }

    /// Position in the body.
    #[inline]
    pub fn position(&self) -> usize {
        self.pos
    }

    /// Bytes left.
    #[inline]
    pub fn remaining(&self) -> usize {
        self.buf.len() - self.pos
    }

    /// The body between two positions of this reader.
    pub(crate) fn slice(&self, from: usize, to: usize) -> &'a [u8] {
        self.buf.get(from..to).unwrap_or_default()
    }

    /// Takes `n` bytes.
    ///
    /// # Errors
    /// When fewer are left.
    #[inline]
    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        match self.buf.get(self.pos..).and_then(|rest| rest.get(..n)) {
            Some(bytes) => {
                self.pos += n;
                Ok(bytes)
            }
            None => Err(DecodeError::Truncated { at: self.buf.len(), needed: n.saturating_sub(self.remaining()) }),
        }
    }

    /// Takes `N` bytes as an array.
    ///
    /// # Errors
    /// When fewer are left.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.buf.get(self.pos..).and_then(|rest| rest.first_chunk::<N>()) {
            Some(bytes) => {
                self.pos += N;
                Ok(*bytes)
            }
            None => Err(DecodeError::Truncated { at: self.buf.len(), needed: N - self.remaining() }),
        }
    }

    /// Takes one byte.
    ///
    /// # Errors
    /// At the end.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads a size field.
    ///
    /// # Errors
    /// When it is cut short.
    #[inline]
    pub fn size(&mut self) -> Result<u64, DecodeError> {
        Ok(match self.width {
            SizeWidth::One => u64::from(self.byte()?),
            SizeWidth::Two => u64::from(u16::from_le_bytes(self.array()?)),
            SizeWidth::Four => u64::from(u32::from_le_bytes(self.array()?)),
            SizeWidth::Eight => u64::from_le_bytes(self.array()?),
        })
    }

    /// Reads a size field and that many bytes.
    ///
    /// # Errors
    /// When they are cut short.
    #[inline]
    pub fn string(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.size()?;
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.take(len)
    }

    /// Reads the size of a list whose elements take at least `min_bytes` each.
    ///
    /// # Errors
    /// When so many cannot follow, or the message holds more elements than allowed.
    #[inline]
    pub fn count(&mut self, min_bytes: usize) -> Result<usize, DecodeError> {
        let count = self.size()?;
        let remaining = self.remaining();
        if count.saturating_mul(min_bytes as u64) > remaining as u64 {
            return Err(DecodeError::CountBeyondBody { count, remaining });
        }
        self.elements = self.elements.saturating_add(count);
        if self.elements > u64::from(self.limits.max_elements) {
            return Err(DecodeError::TooManyElements { count: self.elements, limit: self.limits.max_elements });
        }
        // Bounded by a u32 just above.
        Ok(count as usize)
    }

    /// Reads the value of one compatible member. Past the announced total length every member is absent.
    ///
    /// # Errors
    /// When a value is announced but cut short.
    pub fn compat_value<T: Unpack<'a>>(&mut self) -> Result<Option<T>, DecodeError> {
        if self.pos >= self.compat_end {
            return Ok(None);
        }
        Option::<T>::read(self)
    }
}
