//! Plain reads and writes of files straight from and to spans.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use crate::{Span, SpanError};

fn outcome(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

fn reachable(span: Span<'_>) -> io::Result<()> {
    if span.is_on_device() { Err(io::Error::new(io::ErrorKind::InvalidInput, SpanError::OnDevice)) } else { Ok(()) }
}

fn position(offset: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))
}

/// Reads from `offset` of the file into the span, and says how many bytes came: fewer at the end of the file, 0 past it.
///
/// # Errors
/// The system's; `PermissionDenied` when the span may not be written.
pub fn read_at(file: impl AsFd, span: Span<'_>, offset: u64) -> io::Result<usize> {
    if !span.is_writable() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the span is read-only"));
    }
    reachable(span)?;
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the span is mapped and writable for its length during the call.
    outcome(unsafe { libc::pread(file, span.pointer().cast(), span.len(), position(offset)?) })
}

/// Writes the span to `offset` of the file, and says how many bytes were taken.
///
/// # Errors
/// The system's.
pub fn write_at(file: impl AsFd, span: Span<'_>, offset: u64) -> io::Result<usize> {
    reachable(span)?;
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the span is mapped and readable for its length during the call.
    outcome(unsafe { libc::pwrite(file, span.pointer().cast(), span.len(), position(offset)?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::MemfdFlags;

    #[test]
    fn bytes_go_to_their_offsets_and_back() {
        let file = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(write_at(&file, Span::source(b"abcdef"), 10).unwrap(), 6);
        let mut room = [9; 8];
        assert_eq!(read_at(&file, Span::destination(&mut room), 12).unwrap(), 4);
        assert_eq!(&room, b"cdef\x09\x09\x09\x09");
        assert_eq!(read_at(&file, Span::destination(&mut room), 99).unwrap(), 0);
        assert!(read_at(&file, Span::source(b"x"), 0).is_err());
        assert!(write_at(&file, Span::source(b"x"), u64::MAX).is_err());
    }
}
