//! A range of mapped memory, borrowed.

use std::marker::PhantomData;
use std::ptr::NonNull;

/// Bytes of one piece of [`Span::look`].
const LOOK_BYTES: usize = 4096;

/// A range of memory that stays mapped for `'a` and that others may write at any time.
///
/// It carries no right to look at the bytes as a slice; it is copied, sent or received into by this crate.
#[derive(Clone, Copy, Debug)]
pub struct Span<'a> {
    first: NonNull<u8>,
    len: usize,
    writable: bool,
    on_device: bool,
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
    /// The CPU was to read or write memory of a device.
    #[error("memory of a device is out of the CPU's reach")]
    OnDevice,
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
        Span {
            first: NonNull::from(bytes).cast(),
            len: bytes.len(),
            writable: false,
            on_device: false,
            memory: PhantomData,
        }
    }

    /// Memory to read from or write to.
    pub fn destination(bytes: &'a mut [u8]) -> Self {
        Span {
            len: bytes.len(),
            first: NonNull::from(bytes).cast(),
            writable: true,
            on_device: false,
            memory: PhantomData,
        }
    }

    /// A span over raw memory.
    ///
    /// # Safety
    /// `first..first+len` must stay mapped for `'a`, readable, and writable if `writable`; no Rust reference to these
    /// bytes may live while the span is used to write, and none that expects them not to change.
    pub(crate) unsafe fn from_raw(first: NonNull<u8>, len: usize, writable: bool) -> Self {
        Span { first, len, writable, on_device: false, memory: PhantomData }
    }

    /// A span over memory of a device that the CPU cannot reach. Everything here refuses it; a device's driver copies it.
    ///
    /// # Safety
    /// `address..address+len` must stay memory of a device for `'a`. An address of zero gives a span of no bytes.
    pub unsafe fn on_device(address: u64, len: usize) -> Self {
        match NonNull::new(address as *mut u8) {
            Some(first) => Span { first, len, writable: true, on_device: true, memory: PhantomData },
            None => Span { first: NonNull::dangling(), len: 0, writable: true, on_device: true, memory: PhantomData },
        }
    }

    /// The same range, marked as memory of a device if it is.
    pub(crate) fn marked(self, on_device: bool) -> Self {
        Span { on_device, ..self }
    }

    /// Whether it is memory of a device that the CPU cannot reach.
    pub fn is_on_device(&self) -> bool {
        self.on_device
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

    /// A copy of the bytes as they are now; no bytes for memory of a device.
    pub fn to_vec(&self) -> Vec<u8> {
        if self.on_device {
            return Vec::new();
        }
        let mut bytes = vec![0; self.len];
        // SAFETY: the span is readable for its length and the new vector does not overlap it.
        unsafe { std::ptr::copy_nonoverlapping(self.first.as_ptr(), bytes.as_mut_ptr(), self.len) };
        bytes
    }

    /// Shows the bytes as they are now, in order and in short pieces, each copied first so that nobody changes it while it
    /// is looked at; nothing for memory of a device.
    pub fn look(&self, mut see: impl FnMut(&[u8])) {
        let mut piece = [0_u8; LOOK_BYTES];
        let mut at = 0;
        while at < self.len && !self.on_device {
            let len = LOOK_BYTES.min(self.len - at);
            // SAFETY: at + len <= self.len, the span is readable for its length, and the piece is at least as long and
            // does not overlap it.
            unsafe { std::ptr::copy_nonoverlapping(self.first.as_ptr().add(at), piece.as_mut_ptr(), len) };
            see(&piece[..len]);
            at += len;
        }
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
        let long: Vec<u8> = (0..10_000_u32).map(|i| i as u8).collect();
        let mut seen = Vec::new();
        Span::source(&long).look(|piece| seen.extend_from_slice(piece));
        assert_eq!(seen, long);
        assert!(span.slice(1, usize::MAX).is_err());
    }

    #[test]
    fn memory_of_a_device_is_refused_by_everything_that_would_touch_it() {
        // SAFETY: nothing here reaches the range; that is what is tested.
        let device = unsafe { Span::on_device(4096, 8) };
        let (mut bytes, file) = ([7_u8; 8], std::fs::File::open("/dev/zero").unwrap());
        let part = device.slice(4, 4).unwrap();
        assert!(part.is_on_device() && part.to_vec().is_empty());
        assert_eq!(
            crate::copy(Span::destination(&mut bytes), device, crate::CopyHint::Cached),
            Err(SpanError::OnDevice)
        );
        assert_eq!(crate::copy(device, Span::source(&bytes), crate::CopyHint::Streaming), Err(SpanError::OnDevice));
        assert!(crate::read_at(&file, device, 0).is_err() && crate::write_at(&file, device, 0).is_err());
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(crate::RecvList::default().push_span(device), Err(SpanError::OnDevice));
        let mut send = crate::SendList::default();
        send.push_span(device);
        assert!(send.send(&near).is_err());
        // SAFETY: a range of no bytes.
        assert!(unsafe { Span::on_device(0, 8) }.is_empty());
    }
}
