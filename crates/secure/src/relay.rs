//! The bytes of a secured connection between its TLS socket and the socket that the protocol code works on.
//!
//! Protocol code knows nothing of TLS: it gets one end of a socket pair, and this moves bytes between the other end and
//! the network. Invariants: at most one buffer a direction waits; the end of one side reaches the other after the bytes
//! before it; a peer that is cut off in the middle is an end as well, which every protocol here notices by its lengths.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::net::{RecvFlags, SendFlags};
use rustls::Connection;
use socket2::Socket;

/// Rounds of one relay before others get their turn; each moves one buffer a direction at most.
const ROUNDS: usize = 16;
/// Bytes of a header of a TLS record.
const RECORD_HEADER: usize = 5;

/// Whether bytes of a connection are on their way between the network and the protocol code.
#[derive(Debug)]
pub struct Passage {
    outer: Socket,
    unsettled: AtomicBool,
}

impl Passage {
    /// True when no byte is held that the protocol code has not been given. Bytes that it was given and has not read
    /// lie in its own socket: that is to be looked at after this.
    pub fn is_quiet(&self) -> bool {
        // In this order: bytes leave the outer socket only after the flag is set.
        let unread = rustix::io::ioctl_fionread(&self.outer).unwrap_or(0);
        unread == 0 && !self.unsettled.load(Ordering::SeqCst)
    }
}

/// Follows the records of TLS in what the network brings: is one in the middle of arriving?
#[derive(Debug, Default)]
struct Records {
    header: Vec<u8>,
    left: usize,
}

impl Records {
    fn saw(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.left > 0 {
                let skip = self.left.min(bytes.len());
                self.left -= skip;
                bytes = bytes.get(skip..).unwrap_or_default();
                continue;
            }
            let take = (RECORD_HEADER - self.header.len()).min(bytes.len());
            self.header.extend_from_slice(bytes.get(..take).unwrap_or_default());
            bytes = bytes.get(take..).unwrap_or_default();
            if let [_, _, _, high, low] = self.header[..] {
                self.left = usize::from(u16::from_be_bytes([high, low]));
                self.header.clear();
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.left == 0 && self.header.is_empty()
    }
}

/// Reads from the network and tells [`Records`].
struct Watched<'a> {
    socket: &'a Socket,
    records: &'a mut Records,
}

impl Read for Watched<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let got = (&mut &*self.socket).read(buffer)?;
        self.records.saw(buffer.get(..got).unwrap_or_default());
        Ok(got)
    }
}

/// What a relay waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Interest {
    pub(crate) outer_in: bool,
    pub(crate) outer_out: bool,
    pub(crate) inner_in: bool,
    pub(crate) inner_out: bool,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Relay {
    outer: Socket,
    inner: Socket,
    tls: Connection,
    passage: Arc<Passage>,
    records: Records,
    /// What the protocol code's socket did not take.
    to_inner: Vec<u8>,
    inner_sent: usize,
    outer_ended: bool,
    inner_ended: bool,
    told_inner: bool,
    told_outer: bool,
    /// The system says that nothing will come or go there any more, and says it for ever.
    inner_gone: bool,
    outer_gone: bool,
}

/// One of the two sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Outer,
    Inner,
}

impl Relay {
    /// Both sockets do not block. The records before this were whole: the handshake's.
    pub(crate) fn new(outer: Socket, inner: Socket, mut tls: Connection) -> io::Result<Self> {
        let passage = Arc::new(Passage { outer: outer.try_clone()?, unsettled: AtomicBool::new(true) });
        tls.set_buffer_limit(None);
        Ok(Relay {
            outer,
            inner,
            tls,
            passage,
            records: Records::default(),
            to_inner: Vec::new(),
            inner_sent: 0,
            outer_ended: false,
            inner_ended: false,
            told_inner: false,
            told_outer: false,
            inner_gone: false,
            outer_gone: false,
        })
    }

    pub(crate) fn passage(&self) -> &Arc<Passage> {
        &self.passage
    }

    pub(crate) fn outer(&self) -> &Socket {
        &self.outer
    }

    pub(crate) fn inner(&self) -> &Socket {
        &self.inner
    }

    /// The socket was hung up; true: that is new, and it is not to be waited for any more.
    pub(crate) fn hung_up(&mut self, side: Side) -> bool {
        let gone = match side {
            Side::Outer => &mut self.outer_gone,
            Side::Inner => &mut self.inner_gone,
        };
        !std::mem::replace(gone, true)
    }

    /// Whether the socket can still be waited for.
    pub(crate) fn is_watched(&self, side: Side) -> bool {
        match side {
            Side::Outer => !self.outer_gone,
            Side::Inner => !self.inner_gone,
        }
    }

    /// Moves what can be moved; `None`: the connection is over.
    pub(crate) fn advance(&mut self, scratch: &mut [u8]) -> Option<Interest> {
        self.passage.unsettled.store(true, Ordering::SeqCst);
        // A socket that was hung up wakes nobody again: what it still holds, a buffer at most, is moved now or with the
        // other side's next event.
        let rounds = if self.outer_gone || self.inner_gone { usize::MAX } else { ROUNDS };
        for _ in 0..rounds {
            match self.round(scratch) {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::debug!(%error, "a secured connection broke");
                    return None;
                }
            }
        }
        let held = !self.records.is_whole() || !self.to_inner.is_empty() || self.outer_ended && !self.told_inner;
        self.passage.unsettled.store(held, Ordering::SeqCst);
        let (no_more_in, no_more_out) = (self.told_inner || self.inner_gone, self.told_outer || self.outer_gone);
        if no_more_in && no_more_out {
            return None;
        }
        Some(Interest {
            outer_in: self.to_inner.is_empty() && !self.outer_ended,
            outer_out: self.tls.wants_write(),
            inner_in: !self.tls.wants_write() && !self.inner_ended,
            inner_out: !self.to_inner.is_empty(),
        })
    }

    /// One buffer each way; true: something moved.
    fn round(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        let inwards = self.inwards(scratch)?;
        let outwards = self.outwards(scratch)?;
        Ok(inwards || outwards)
    }

    fn inwards(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        if self.to_inner.is_empty() {
            let moved = self.decrypt(scratch)?;
            if !moved {
                return Ok(false);
            }
        }
        self.feed_inner()
    }

    /// Takes decrypted bytes, from the network where none wait.
    fn decrypt(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        loop {
            match self.tls.reader().read(scratch) {
                // The peer said that it sends no more.
                Ok(0) => self.outer_ended = true,
                Ok(got) => {
                    self.to_inner.extend_from_slice(scratch.get(..got).unwrap_or_default());
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // Cut off without a word.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.outer_ended = true,
                Err(error) => return Err(error),
            }
            if self.outer_ended {
                if !std::mem::replace(&mut self.told_inner, true) {
                    // The protocol code may have closed its end already.
                    let _ = self.inner.shutdown(Shutdown::Write);
                }
                return Ok(false);
            }
            let mut network = Watched { socket: &self.outer, records: &mut self.records };
            match self.tls.read_tls(&mut network) {
                Ok(_) => {
                    self.tls.process_new_packets().map_err(io::Error::other)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn feed_inner(&mut self) -> io::Result<bool> {
        let rest = self.to_inner.get(self.inner_sent..).unwrap_or_default();
        match rustix::net::send(&self.inner, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(sent) => self.inner_sent += sent,
            Err(rustix::io::Errno::AGAIN) => return Ok(false),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if self.inner_sent == self.to_inner.len() {
            self.to_inner.clear();
            self.inner_sent = 0;
        }
        Ok(true)
    }

    fn outwards(&mut self, scratch: &mut [u8]) -> io::Result<bool> {
        let mut moved = false;
        if !self.tls.wants_write() && !self.inner_ended {
            match rustix::net::recv(&self.inner, &mut scratch[..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) => {
                    self.inner_ended = true;
                    self.tls.send_close_notify();
                }
                Ok((_, got)) => self.tls.writer().write_all(scratch.get(..got).unwrap_or_default())?,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut &self.outer) {
                Ok(_) => moved = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(moved),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.inner_ended && !std::mem::replace(&mut self.told_outer, true) {
            // The peer may have left already.
            let _ = self.outer.shutdown(Shutdown::Write);
        }
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_followed_however_they_are_cut() {
        let stream: Vec<u8> = [3usize, 0, 300, 1]
            .into_iter()
            .flat_map(|len| [vec![23, 3, 3, (len >> 8) as u8, len as u8], vec![7; len]].concat())
            .collect();
        for cut in [1, 2, 5, 7, 64, stream.len()] {
            let mut records = Records::default();
            let mut seen = 0;
            for piece in stream.chunks(cut) {
                records.saw(piece);
                seen += piece.len();
                let whole = [8, 13, 318, 324].contains(&seen);
                assert_eq!(records.is_whole(), whole, "after {seen} in pieces of {cut}");
            }
        }
    }
}
