//! Appends payload bytes; keeps the one size width of the message right.

use crate::Version;

/// Bytes of every size field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeWidth {
    /// Counts below 256.
    One,
    /// Counts below 65 536.
    Two,
    /// Counts below 2^32.
    Four,
    /// Anything.
    Eight,
}

impl SizeWidth {
    /// The smallest width that holds `count`.
    pub fn for_count(count: u64) -> SizeWidth {
        match count {
            0..=0xff => SizeWidth::One,
            0x100..=0xffff => SizeWidth::Two,
            0x1_0000..=0xffff_ffff => SizeWidth::Four,
            _ => SizeWidth::Eight,
        }
    }

    /// Bytes of a size field.
    #[inline]
    pub fn bytes(self) -> usize {
        1 << self.selector()
    }

    /// The two bits that stand for it in the metainfo byte.
    pub fn selector(self) -> u8 {
        match self {
            SizeWidth::One => 0,
            SizeWidth::Two => 1,
            SizeWidth::Four => 2,
            SizeWidth::Eight => 3,
        }
    }

    /// From the two bits of the metainfo byte; higher bits are ignored.
    pub fn from_selector(bits: u8) -> SizeWidth {
        match bits & 3 {
            0 => SizeWidth::One,
            1 => SizeWidth::Two,
            2 => SizeWidth::Four,
            _ => SizeWidth::Eight,
        }
    }
}

/// A value that has no encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// A variant holds an alternative that the generation does not know.
    #[error("{variant} does not exist on the wire of this generation (ordinal {}); leave the value out or use a newer one", version.0)]
    NoSuchAlternative {
        /// Name of the alternative.
        variant: &'static str,
        /// The generation.
        version: Version,
    },
    /// The body does not fit the 32-bit length of a frame.
    #[error("body of {len} bytes is longer than a frame can hold; split the batch")]
    TooLong {
        /// Bytes.
        len: usize,
    },
}

/// Where a size field stands and what it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    pub(crate) at: usize,
    pub(crate) count: u64,
}

/// Appends values to a buffer.
///
/// Sizes are written with the width chosen at the start. A size that does not fit is noted ([`Writer::longest`]); the
/// owner of the writer then starts over with a wider one, or widens in place if marks are kept.
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
    version: Version,
    width: SizeWidth,
    longest: u64,
    marks: Option<&'o mut Vec<Mark>>,
    failure: Option<EncodeError>,
}

impl<'o> Writer<'o> {
    /// A writer that appends to `out`.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>, version: Version, width: SizeWidth) -> Self {
        Writer { out, version, width, longest: 0, marks: None, failure: None }
    }

    #[inline]
    pub(crate) fn with_marks(
        out: &'o mut Vec<u8>,
        version: Version,
        width: SizeWidth,
        marks: &'o mut Vec<Mark>,
    ) -> Self {
        Writer { out, version, width, longest: 0, marks: Some(marks), failure: None }
    }

    /// Generation to encode for.
    #[inline]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The largest count written.
    #[inline]
    pub fn longest(&self) -> u64 {
        self.longest
    }

    #[inline]
    pub(crate) fn failure(self) -> Option<EncodeError> {
        self.failure
    }

    /// Notes that a value cannot be encoded; the whole message then fails.
    pub fn fail(&mut self, error: EncodeError) {
        self.failure.get_or_insert(error);
    }

    /// Appends raw bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends one byte.
    #[inline]
    pub fn byte(&mut self, byte: u8) {
        self.out.push(byte);
    }

    /// Appends `n` zero bytes.
    #[inline]
    pub fn zeros(&mut self, n: usize) {
        self.out.resize(self.out.len() + n, 0);
    }

    /// Appends a size field.
    #[inline]
    pub fn size(&mut self, count: usize) {
        let count = count as u64;
        self.longest = self.longest.max(count);
        if let Some(marks) = self.marks.as_deref_mut() {
            marks.push(Mark { at: self.out.len(), count });
        }
        // Counts that do not fit are cut here; the owner sees `longest` and writes the message again.
        match self.width {
            SizeWidth::One => self.out.push(count as u8),
            SizeWidth::Two => self.out.extend_from_slice(&(count as u16).to_le_bytes()),
            SizeWidth::Four => self.out.extend_from_slice(&(count as u32).to_le_bytes()),
            SizeWidth::Eight => self.out.extend_from_slice(&count.to_le_bytes()),
        }
    }
}
