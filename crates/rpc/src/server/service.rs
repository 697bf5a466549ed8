//! What a server serves: the service trait, requests, and the ways to answer.

use std::net::SocketAddr;
use std::sync::Arc;

use yb_types::MonotonicTime;
use yb_wire::frame::{RESPONSE_HEADER_LEN, ResponseHeader};
use yb_wire::{Form, TransportError, encode_error_reply};

use super::mailbox::{Letter, Mailbox};

/// Which listener a connection came through; the number that [`super::Listener`] was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ListenerTag(pub u32);

/// A connection of one worker. Slots are reused, generations are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

    /// Several requests have arrived together and will be handed to `call` one after the other. A service whose answers wait
    /// for main memory can fetch it for all of them here. Changes nothing; most services leave it out.
    fn foresee(&self, worker: &mut Self::Worker, requests: &[Request<'_>]) {
        let _ = (worker, requests);
    }

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
    Refused { error: TransportError, text: &'static str },
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

impl Reply<'_> {
    /// Where the body goes: append to it, and touch nothing before its present end.
    pub fn body(&mut self) -> &mut Vec<u8> {
        self.out
    }

    /// Has something done, on the worker's thread, when the connection that asks has ended. One thing a connection: `false`
    /// when there is one already, which stays.
    pub fn when_closed(&self, farewell: impl FnOnce() + Send + 'static) -> bool {
        self.mailbox.when_closed(self.session, Box::new(farewell))
    }

    /// The body is complete (or is empty).
    pub fn done(self) -> Outcome {
        Outcome(Answer::Done)
    }

    /// No such function: error 11, the connection stays.
    pub fn unknown_function(self) -> Outcome {
        Outcome(Answer::Refused { error: TransportError::NO_SUCH_FUNCTION, text: "the rpc function not registered" })
    }

    /// The arguments do not decode: error 4, the connection stays.
    pub fn bad_arguments(self) -> Outcome {
        Outcome(Answer::Refused { error: TransportError::INVALID_ARGUMENTS, text: "invalid rpc arg" })
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
    /// Whether the connection is still there: nobody needs an answer otherwise, and long work for it may stop.
    pub fn is_wanted(&self) -> bool {
        !self.mailbox.is_gone(self.session)
    }

    /// Sends the body that `write` appends. A connection that is gone by now swallows it.
    pub fn send(mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut frame = vec![0; RESPONSE_HEADER_LEN];
        write(&mut frame);
        seal(&mut frame, 0, self.sequence, 0);
        self.post(frame, false);
    }

    /// Sends a body and an attachment.
    pub fn send_with(mut self, body: &[u8], attachment: &[u8]) {
        let mut frame = vec![0; RESPONSE_HEADER_LEN];
        frame.extend_from_slice(body);
        frame.extend_from_slice(attachment);
        seal(&mut frame, 0, self.sequence, attachment.len());
        self.post(frame, false);
    }

    /// Answers as a service would have answered at once: `call` gets a reply to write to.
    pub fn answer(mut self, call: impl FnOnce(Reply<'_>) -> Outcome) {
        let mut frame = vec![0; RESPONSE_HEADER_LEN];
        let reply = Reply { out: &mut frame, mailbox: &self.mailbox, session: self.session, sequence: self.sequence };
        match call(reply).0 {
            Answer::Done => {
                seal(&mut frame, 0, self.sequence, 0);
                self.post(frame, false);
            }
            // Whoever deferred it holds the duty now.
            Answer::Deferred => self.open = false,
            Answer::Refused { error, text } => {
                frame.clear();
                write_error(&mut frame, self.sequence, error, text);
                self.post(frame, true);
            }
            Answer::Failed { text } => self.post_failure(&text),
        }
    }

    /// Error 10 with a text for people.
    pub fn fail(mut self, text: &str) {
        self.post_failure(text);
    }

    fn post_failure(&mut self, text: &str) {
        let mut frame = Vec::new();
        write_error(&mut frame, self.sequence, TransportError::HANDLER_FAILED, text);
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

/// Fills in the header of the reply that starts at `start`; its last `attachment` bytes are the attachment, the rest
/// after the header is its body. What is too long for the wire becomes error 14.
pub(crate) fn seal(out: &mut Vec<u8>, start: usize, sequence: u32, attachment: usize) {
    let body = out.len().saturating_sub(start + RESPONSE_HEADER_LEN + attachment);
    match u32::try_from(body).and_then(|body| Ok((body, u32::try_from(attachment)?))) {
        Ok((body_len, attachment_len)) => {
            let header = ResponseHeader { error_code: 0, message_type: 0, sequence, body_len, attachment_len };
            if let Some(place) = out.get_mut(start..start + RESPONSE_HEADER_LEN) {
                place.copy_from_slice(&header.to_bytes());
            }
        }
        Err(_) => {
            out.truncate(start);
            write_error(out, sequence, TransportError::MESSAGE_TOO_LARGE, "the reply exceeds 4 GiB");
        }
    }
}

/// Appends an error reply, in the form that the peer's server uses.
pub(crate) fn write_error(out: &mut Vec<u8>, sequence: u32, error: TransportError, text: &str) {
    encode_error_reply(sequence, error, text, Form::Literal, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_replies_are_byte_for_byte_the_peers() {
        let mut out = Vec::new();
        write_error(&mut out, 48, TransportError::NO_SUCH_FUNCTION, "the rpc function not registered");
        // Recorded from the wheel 0.3.14.
        let recorded = "15000b0030000000280000000000000077facf9d04800c001f746865207270632066756e6374696f6e206e6f742072656769737465726564";
        let hex: String = out.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, recorded);
    }
}
