//! One connection to our handshake port, driven by the control thread.

use std::io::{self, Read, Write};
use std::net::Shutdown;

use socket2::Socket;
use yb_types::MonotonicTime;

use crate::handshake::frame::Frame;

/// What the session waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    /// Bytes from the peer.
    Read,
    /// Room to send.
    Write,
    /// Nothing: drop it.
    Close,
}

/// Reads one frame, sends one reply, waits for the peer to close.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) stream: Socket,
    /// Closed when it is still here then.
    pub(crate) deadline: MonotonicTime,
    received: Vec<u8>,
    reply: Option<Vec<u8>>,
    sent: usize,
}

impl Session {
    pub(crate) fn new(stream: Socket, deadline: MonotonicTime) -> Self {
        Session { stream, deadline, received: Vec::new(), reply: None, sent: 0 }
    }

    /// True when the peer has been answered.
    pub(crate) fn is_answered(&self) -> bool {
        self.reply.is_some()
    }

    /// Goes on as far as the socket lets it. `answer` turns a frame into a reply, or `None` to close.
    pub(crate) fn advance(&mut self, limit: u64, answer: impl FnOnce(&Frame<'_>) -> Option<Vec<u8>>) -> Wants {
        let step = self.step(limit, answer);
        match step {
            Ok(wants) => wants,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                if self.reply.as_ref().is_some_and(|reply| self.sent < reply.len()) {
                    Wants::Write
                } else {
                    Wants::Read
                }
            }
            Err(_) => Wants::Close,
        }
    }

    fn step(&mut self, limit: u64, answer: impl FnOnce(&Frame<'_>) -> Option<Vec<u8>>) -> io::Result<Wants> {
        let mut chunk = [0_u8; 16 << 10];
        while self.reply.is_none() {
            if let Some(frame) = Frame::parse(&self.received, limit).map_err(io::Error::other)? {
                let Some(reply) = answer(&frame) else { return Ok(Wants::Close) };
                self.reply = Some(reply);
                break;
            }
            match self.stream.read(&mut chunk)? {
                0 => return Ok(Wants::Close),
                got => self.received.extend_from_slice(chunk.get(..got).unwrap_or_default()),
            }
        }
        while let Some(rest) = self.reply.as_ref().and_then(|reply| reply.get(self.sent..)).filter(|r| !r.is_empty()) {
            self.sent += self.stream.write(rest)?;
            if self.reply.as_ref().is_some_and(|reply| self.sent == reply.len()) {
                self.stream.shutdown(Shutdown::Write)?;
            }
        }
        // The peer closes first, so that its side does not see a reset before it has read the reply.
        while self.stream.read(&mut chunk)? > 0 {}
        Ok(Wants::Close)
    }
}
