//! Vectored socket calls straight from and to spans: one system call for headers and bodies of many requests.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};

use smallvec::SmallVec;

use crate::{Span, SpanError};

/// Most pieces in one call; the kernel takes 1024.
const MAX_PIECES: usize = 256;

type Pieces = SmallVec<[libc::iovec; 32]>;

/// Pieces to send in one call.
#[derive(Default)]
pub struct SendList<'a> {
    pieces: Pieces,
    bytes: usize,
    /// Memory of a device was among the pieces.
    refused: bool,
    memory: PhantomData<&'a [u8]>,
}

/// Pieces to fill in one call.
#[derive(Default)]
pub struct RecvList<'a> {
    pieces: Pieces,
    bytes: usize,
    memory: PhantomData<&'a mut [u8]>,
}

fn message(pieces: &mut Pieces) -> libc::msghdr {
    // SAFETY: msghdr is a plain C structure for which all zero bytes mean "nothing".
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = pieces.as_mut_ptr();
    header.msg_iovlen = pieces.len() as _;
    header
}

fn outcome(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

impl<'a> SendList<'a> {
    /// Bytes in the list.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True when no more pieces fit.
    pub fn is_full(&self) -> bool {
        self.pieces.len() >= MAX_PIECES
    }

    /// Appends bytes; empty ones are left out. Pieces past the limit are left for the next call.
    pub fn push_bytes(&mut self, bytes: &'a [u8]) {
        self.push_span(Span::source(bytes));
    }

    /// Appends a span. Memory of a device makes the list fail.
    pub fn push_span(&mut self, span: Span<'a>) {
        self.refused |= span.is_on_device();
        if !span.is_empty() && !self.is_full() {
            self.pieces.push(libc::iovec { iov_base: span.pointer().cast(), iov_len: span.len() });
            self.bytes += span.len();
        }
    }

    /// Sends as much as the socket takes now, and says how much. Never waits, never raises SIGPIPE.
    ///
    /// # Errors
    /// The system's; `WouldBlock` when the socket is full.
    pub fn send(mut self, socket: impl AsFd) -> io::Result<usize> {
        if self.refused {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, SpanError::OnDevice));
        }
        let header = message(&mut self.pieces);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: every piece was made from memory that is readable for 'a, which outlives this call.
        outcome(unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, flags) })
    }
}

impl<'a> RecvList<'a> {
    /// Bytes of room in the list.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// True when no more pieces fit.
    pub fn is_full(&self) -> bool {
        self.pieces.len() >= MAX_PIECES
    }

    /// Appends room; pieces past the limit are left for the next call.
    pub fn push_bytes(&mut self, bytes: &'a mut [u8]) {
        let span = Span::destination(bytes);
        if !span.is_empty() && !self.is_full() {
            self.pieces.push(libc::iovec { iov_base: span.pointer().cast(), iov_len: span.len() });
            self.bytes += span.len();
        }
    }

    /// Appends a span to fill.
    ///
    /// # Errors
    /// [`SpanError::ReadOnly`], [`SpanError::OnDevice`].
    pub fn push_span(&mut self, span: Span<'a>) -> Result<(), SpanError> {
        if !span.is_writable() {
            return Err(SpanError::ReadOnly);
        }
        if span.is_on_device() {
            return Err(SpanError::OnDevice);
        }
        if !span.is_empty() && !self.is_full() {
            self.pieces.push(libc::iovec { iov_base: span.pointer().cast(), iov_len: span.len() });
            self.bytes += span.len();
        }
        Ok(())
    }

    /// Receives what is there, piece after piece, and says how much: 0 when the peer has closed. Never waits.
    ///
    /// # Errors
    /// The system's; `WouldBlock` when nothing has arrived.
    pub fn receive(mut self, socket: impl AsFd) -> io::Result<usize> {
        let mut header = message(&mut self.pieces);
        // SAFETY: every piece was made from memory that is writable for 'a, which outlives this call.
        outcome(unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn pieces_arrive_in_order_at_their_places() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut send = SendList::default();
        send.push_bytes(b"head");
        send.push_bytes(b"");
        send.push_span(Span::source(b"body"));
        assert_eq!(send.bytes(), 8);
        assert_eq!(send.send(&a).unwrap(), 8);
        let (mut first, mut second) = ([0_u8; 6], [0_u8; 6]);
        let mut recv = RecvList::default();
        recv.push_bytes(&mut first);
        recv.push_span(Span::destination(&mut second)).unwrap();
        assert_eq!(recv.receive(&b).unwrap(), 8);
        assert_eq!((&first, &second[..2]), (b"headbo", &b"dy"[..]));
        assert_eq!(RecvList::default().push_span(Span::source(b"x")), Err(SpanError::ReadOnly));
    }

    #[test]
    fn an_empty_socket_would_block_and_a_closed_one_says_so() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut room = [0_u8; 4];
        let mut recv = RecvList::default();
        recv.push_bytes(&mut room);
        assert_eq!(recv.receive(&b).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        let mut recv = RecvList::default();
        recv.push_bytes(&mut room);
        assert_eq!(recv.receive(&b).unwrap(), 0);
        let mut send = SendList::default();
        send.push_bytes(b"x");
        assert_eq!(send.send(&b).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
