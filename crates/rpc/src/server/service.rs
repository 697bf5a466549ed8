//! What a server serves: the service trait, requests, and the ways to answer.

use std::net::SocketAddr;
use std::sync::Arc;

use yb_types::MonotonicTime;

use super::mailbox::{Letter, Mailbox};
use crate::frame::{REPLY_HEADER, ReplyHeader};

/// Which listener a connection came through; the number that [`super::Listener`] was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListenerTag(pub u32);

/// A connection of one worker. Slots are reused, generations are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// One whole request. Borrowed: nothing of it outlives the call.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Function id from the header.
    pub function: u32,
    /// Argument body; empty for calls without arguments.
    pub body: &'a [u8],
    /// Attachment; store calls carry none.
    pub attachment: &'a [u8],
    /// The listener that the connection came through.
    pub tag: ListenerTag,
    /// The peer, `None` on a UNIX socket.
    pub peer: Option<SocketAddr>,
    /// The time at the start of this turn.
    pub now: MonotonicTime,
}

/// Answers requests. One value serves all workers; state of one worker lives in `Worker`.
pub trait Service: Send + Sync + 'static {
    /// State of one worker: its metrics, scratch space.
    type Worker: Send + 'static;

    /// Makes the state of worker `index`.
    fn worker(&self, index: usize) -> Self::Worker;

    /// Answers one request. Runs on the worker's thread: it must not block. What takes long is deferred
    /// ([`Reply::defer`]) and done on another thread.
    fn call(&self, worker: &mut Self::Worker, request: Request<'_>, reply: Reply<'_>) -> Outcome;

    /// Called after each turn that had requests; the place to publish what `call` gathered.
    fn turn_ended(&self, worker: &mut Self::Worker, now: MonotonicTime) {
        let _ = (worker, now);
    }
}

/// How a request was answered. Only a [`Reply`] makes one.
#[derive(Debug)]
#[must_use = "the server needs the outcome to finish the frame"]
pub struct Outcome(pub(crate) Answer);

#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Deferred,
    Refused { code: u8, text: &'static str },
    Failed { text: String },
}

/// The answer to one request, written straight into the connection's output.
#[derive(Debug)]
pub struct Reply<'a> {
    pub(crate) out: &'a mut Vec<u8>,
    pub(crate) mailbox: &'a Arc<Mailbox>,
    pub(crate) session: SessionId,
    pub(crate) sequence: u32,
}

/// Transport code: the arguments do not decode.
pub(crate) const BAD_ARGUMENTS: u8 = 4;
/// Transport code: the handler failed.
pub(crate) const HANDLER_FAILED: u8 = 10;
/// Transport code: no such function.
pub(crate) const UNKNOWN_FUNCTION: u8 = 11;
/// Transport code: the message is too large.
pub(crate) const TOO_LARGE: u8 = 14;

impl Reply<'_> {
    /// Where the body goes: append to it, and touch nothing before its present end.
    pub fn body(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// The body is complete (or is empty).
    pub fn done(self) -> Outcome {
        Outcome(Answer::Done)
    }

    /// No such function: error 11, the connection stays.
    pub fn unknown_function(self) -> Outcome {
        Outcome(Answer::Refused { code: UNKNOWN_FUNCTION, text: "the rpc function not registered" })
    }

    /// The arguments do not decode: error 4, the connection stays.
    pub fn bad_arguments(self) -> Outcome {
        Outcome(Answer::Refused { code: BAD_ARGUMENTS, text: "invalid rpc arg" })
    }

    /// The handler cannot answer at all: error 10. Business failures are part of the body instead, for a client of the peer
    /// closes its connection on any transport error.
    pub fn failed(self, text: impl Into<String>) -> Outcome {
        Outcome(Answer::Failed { text: text.into() })
    }

    /// Answer later, from any thread. What was appended to the body so far is dropped.
    pub fn defer(self) -> (DeferredReply, Outcome) {
        let token = DeferredReply {
            mailbox: Arc::clone(self.mailbox),
            session: self.session,
            sequence: self.sequence,
            open: true,
        };
        (token, Outcome(Answer::Deferred))
    }
}

/// The right, and the duty, to answer one request later. Dropped without an answer it sends error 10.
#[derive(Debug)]
pub struct DeferredReply {
    mailbox: Arc<Mailbox>,
    session: SessionId,
    sequence: u32,
    open: bool,
}

impl DeferredReply {
    /// Sends the body that `write` appends. A connection that is gone by now swallows it.
    pub fn send(mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = vec![0; REPLY_HEADER];
        write(&mut frame);
        seal(&mut frame, 0, self.sequence);
        self.post(frame, false);
    }

    /// Error 10 with a text for people.
    pub fn fail(mut self, text: &str) {
        self.post_failure(text);
    }

    fn post_failure(&mut self, text: &str) {
        let mut frame = Vec::new();
        write_error(&mut frame, self.sequence, HANDLER_FAILED, text);
        self.post(frame, true);
    }

    fn post(&mut self, frame: Vec<u8>, failed: bool) {
        self.open = false;
        self.mailbox.post(Letter::Deferred { session: self.session, frame, failed });
    }
}

impl Drop for DeferredReply {
    fn drop(&mut self) {
        if self.open {
            self.post_failure("the request was given up");
        }
    }
}

/// Fills in the header of the reply that starts at `start`; its body is everything after it. A body too long for the
/// wire becomes error 14.
pub(crate) fn seal(out: &mut Vec<u8>, start: usize, sequence: u32) {
    let body = out.len().saturating_sub(start + REPLY_HEADER);
    match u32::try_from(body) {
        Ok(body) => {
            let header = ReplyHeader { error: 0, sequence, body, attachment: 0 }.encode();
            if let Some(place) = out.get_mut(start..start + REPLY_HEADER) {
                place.copy_from_slice(&header);
            }
        }
        Err(_) => {
            out.truncate(start);
            write_error(out, sequence, TOO_LARGE, "the reply exceeds 4 GiB");
        }
    }
}

/// Head of a struct_pack string with its literal, size width 1 and 2: code 0x9dcffa76, metainfo, literal `80 0c`.
const STRING_HEAD: [[u8; 8]; 2] =
    [[0x77, 0xfa, 0xcf, 0x9d, 0x04, 0x80, 0x0c, 0x00], [0x77, 0xfa, 0xcf, 0x9d, 0x0c, 0x80, 0x0c, 0x00]];

/// Appends an error reply: its body is a struct_pack string. Texts beyond 64 KiB are cut.
pub(crate) fn write_error(out: &mut Vec<u8>, sequence: u32, code: u8, text: &str) {
    let text = &text.as_bytes()[..text.len().min(usize::from(u16::MAX))];
    let length = text.len() as u16;
    let wide = text.len() > 255;
    let body = 8 + if wide { 2 } else { 1 } + u32::from(length);
    out.extend_from_slice(&ReplyHeader { error: code, sequence, body, attachment: 0 }.encode());
    out.extend_from_slice(&STRING_HEAD[usize::from(wide)]);
    let size = length.to_le_bytes();
    out.extend_from_slice(if wide { &size } else { &size[..1] });
    out.extend_from_slice(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_replies_are_byte_for_byte_the_peers() {
        let mut out = Vec::new();
        write_error(&mut out, 48, UNKNOWN_FUNCTION, "the rpc function not registered");
        // Recorded from the wheel 0.3.14.
        let recorded = "15000b0030000000280000000000000077facf9d04800c001f746865207270632066756e6374696f6e206e6f742072656769737465726564";
        let hex: String = out.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, recorded);
    }

    #[test]
    fn long_error_texts_use_the_wider_size() {
        let mut out = Vec::new();
        write_error(&mut out, 1, 10, &"x".repeat(300));
        assert_eq!(out.len(), 16 + 8 + 2 + 300);
        assert_eq!(out[8..12], 310u32.to_le_bytes());
        assert_eq!(out[20], 0x0c);
        assert_eq!(out[24..26], 300u16.to_le_bytes());
    }
}
