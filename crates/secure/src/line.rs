//! One socket with or without TLS on it, while a connection is being secured: exact reads, queued writes.

use std::io::{self, Read, Write};

use rustix::net::RecvFlags;
use rustls::Connection;
use socket2::Socket;

/// The outer side of a connection. The socket does not block.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) socket: Socket,
    pub(crate) tls: Option<Connection>,
    /// Bytes that go out as they are.
    raw: Vec<u8>,
}

impl Line {
    pub(crate) fn new(socket: Socket) -> Self {
        Line { socket, tls: None, raw: Vec::new() }
    }

    /// Looks at the first bytes without taking them.
    pub(crate) fn peek<'b>(&self, buffer: &'b mut [u8; 8]) -> io::Result<&'b [u8]> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match rustix::net::recv(&self.socket, &mut buffer[..], flags)? {
            (_, 0) => Err(io::ErrorKind::UnexpectedEof.into()),
            (_, got) => Ok(buffer.get(..got).unwrap_or_default()),
        }
    }

    /// Queues bytes that go out as they are, before anything of TLS.
    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
    }

    /// Queues bytes for the peer.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.writer().write_all(bytes),
            None => {
                self.raw.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Sends what the socket takes; true: everything is on its way.
    pub(crate) fn flush(&mut self) -> io::Result<bool> {
        while !self.raw.is_empty() {
            match (&self.socket).write(&self.raw) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => drop(self.raw.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let Some(tls) = &mut self.tls else { return Ok(true) };
        while tls.wants_write() {
            match tls.write_tls(&mut &self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Takes bytes past TLS until there are `want`; true: they are there. Never takes more.
    pub(crate) fn take_raw(&mut self, want: usize, into: &mut Vec<u8>) -> io::Result<bool> {
        read_exactly(&mut &self.socket, want, into)
    }

    /// Takes bytes of the peer until there are `want`; true: they are there. Never takes more.
    pub(crate) fn take(&mut self, want: usize, into: &mut Vec<u8>) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return self.take_raw(want, into) };
        loop {
            match read_exactly(&mut tls.reader(), want, into) {
                Ok(false) => {}
                other => return other,
            }
            match tls.read_tls(&mut &self.socket) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {
                    tls.process_new_packets().map_err(io::Error::other)?;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

fn read_exactly(from: &mut impl Read, want: usize, into: &mut Vec<u8>) -> io::Result<bool> {
    while into.len() < want {
        let had = into.len();
        into.resize(want, 0);
        let got = from.read(into.get_mut(had..).unwrap_or_default());
        into.truncate(had + *got.as_ref().unwrap_or(&0));
        match got {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
