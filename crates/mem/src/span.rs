//! A range of mapped memory, borrowed.

use std::marker::PhantomData;
use std::ptr::NonNull;

/// A range of memory that stays mapped for `'a` and that others may write at any time.
///
/// It carries no right to look at the bytes as a slice; it is copied, sent or received into by this crate.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    first: NonNull<u8>,
    len: usize,
    writable: bool,
    memory: PhantomData<&'a [u8]>,
}

// SAFETY: a span is an address range that stays mapped for 'a whichever thread uses it; its bytes are only reached
// through raw copies, which are defined to be tearable by other writers (see the crate documentation).
unsafe impl Send for Span<'_> {}
// SAFETY: as above; a shared span gives nothing that an owned one does not.
unsafe impl Sync for Span<'_> {}

/// Why a span was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpanError {
    /// The part reaches over the end of the span.
    #[error("bytes {offset}..+{len} are outside a span of {size} bytes")]
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes of the span.
        size: u64,
    },
    /// A read-only span was to be written.
    #[error("the span is read-only")]
    ReadOnly,
    /// A copy between spans of different lengths.
    #[error("a copy needs equal lengths, got {dst} and {src}")]
    LengthMismatch {
        /// Bytes of the destination.
        dst: u64,
        /// Bytes of the source.
        src: u64,
    },
}

impl<'a> Span<'a> {
    /// Memory to read from.
    pub fn source(bytes: &'a [u8]) -> Self {
        Span { first: NonNull::from(bytes).cast(), len: bytes.len(), writable: false, memory: PhantomData }
    }

    /// Memory to read from or write to.
    pub fn destination(bytes: &'a mut [u8]) -> Self {
        Span { len: bytes.len(), first: NonNull::from(bytes).cast(), writable: true, memory: PhantomData }
    }

    /// A span over raw memory.
    ///
    /// # Safety
    /// `first..first+len` must stay mapped for `'a`, readable, and writable if `writable`; no Rust reference to these
    /// bytes may live while the span is used to write, and none that expects them not to change.
    pub(crate) unsafe fn from_raw(first: NonNull<u8>, len: usize, writable: bool) -> Self {
        Span { first, len, writable, memory: PhantomData }
    }

    /// Bytes in the span.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True for a span of no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the span may be written.
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Address of the first byte, for messages and for comparison.
    pub fn address(&self) -> u64 {
        self.first.as_ptr() as u64
    }

    /// The part `offset..offset+len`.
    ///
    /// # Errors
    /// [`SpanError::OutOfRange`] when the part is not wholly inside.
    pub fn slice(&self, offset: usize, len: usize) -> Result<Span<'a>, SpanError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => {
                // SAFETY: offset <= len of the span, so the result is inside (or one past) the same mapped range.
                let first = unsafe { self.first.add(offset) };
                Ok(Span { first, len, ..*self })
            }
            _ => Err(SpanError::OutOfRange { offset: offset as u64, len: len as u64, size: self.len as u64 }),
        }
    }

    /// The part from `offset` to the end.
    ///
    /// # Errors
    /// [`SpanError::OutOfRange`] when `offset` is past the end.
    pub fn skip(&self, offset: usize) -> Result<Span<'a>, SpanError> {
        self.slice(offset, self.len.saturating_sub(offset))
    }

    /// A copy of the bytes as they are now.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // SAFETY: the span is readable for its length and the new vector does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(self.first.as_ptr(), bytes.as_mut_ptr(), self.len) };
        bytes
    }

    pub(crate) fn pointer(&self) -> *mut u8 {
        self.first.as_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_inside() {
        let bytes = [1_u8, 2, 3, 4];
        let span = Span::source(&bytes);
        assert_eq!(span.slice(1, 2).unwrap().to_vec(), [2, 3]);
        assert_eq!(span.skip(4).unwrap().len(), 0);
        assert!(span.slice(3, 2).is_err());
        assert!(span.slice(usize::MAX, 2).is_err());
        assert!(span.slice(1, usize::MAX).is_err());
    }
}
