//! A service without sockets and threads: requests are handed in, replies come back, in the caller's order and time.
//! For simulations and tests that want a service's own answers, byte for byte.

use std::sync::Arc;

use yb_wire::frame::RESPONSE_HEADER_LEN;

use super::Service;
use super::mailbox::{Letter, Mailbox};
use super::service::{Answer, Reply, Request, SessionId, seal, write_error};

/// A service, one worker of it, and the answers that it owes.
pub struct Desk<S: Service> {
    service: Arc<S>,
    worker: S::Worker,
    mailbox: Arc<Mailbox>,
    letters: Vec<Letter>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The request that it answers.
    pub sequence: u32,
    frame: Vec<u8>,
}

impl Answered {
    fn of(frame: Vec<u8>) -> Self {
        let number = frame.get(4..8).and_then(|bytes| bytes.try_into().ok());
        Answered { sequence: number.map_or(0, u32::from_le_bytes), frame }
    }

    /// The error code of the header; 0 when the request was answered.
    pub fn error_code(&self) -> u8 {
        self.frame.get(2).copied().unwrap_or(u8::MAX)
    }

    /// What stands after the header.
    pub fn body(&self) -> &[u8] {
        self.frame.get(RESPONSE_HEADER_LEN..).unwrap_or_default()
    }
}

impl<S: Service> Desk<S> {
    /// A desk with one worker.
    ///
    /// # Errors
    /// The operating system's, when it gives no descriptor.
    pub fn new(service: Arc<S>) -> std::io::Result<Self> {
        let worker = service.worker(0);
        Ok(Desk { service, worker, mailbox: Arc::new(Mailbox::new()?), letters: Vec::new() })
    }

    /// Answers a request; `None` when the answer comes [late](Self::late). `sequence` names the request in its answer.
    pub fn call(&mut self, request: Request<'_>, sequence: u32) -> Option<Answered> {
        self.call_over(0, request, sequence)
    }

    /// As [`call`](Self::call), over a connection of this number.
    pub fn call_over(&mut self, connection: u32, request: Request<'_>, sequence: u32) -> Option<Answered> {
        let now = request.now;
        let mut frame = vec![0; RESPONSE_HEADER_LEN];
        let session = session(connection);
        let reply = Reply { out: &mut frame, mailbox: &self.mailbox, session, sequence };
        let outcome = self.service.call(&mut self.worker, request, reply);
        self.service.turn_ended(&mut self.worker, now);
        match outcome.0 {
            Answer::Done => seal(&mut frame, 0, sequence, 0),
            Answer::Deferred => return None,
            Answer::Refused { error, text } => {
                frame.clear();
                write_error(&mut frame, sequence, error, text);
            }
            Answer::Failed { text } => {
                frame.clear();
                write_error(&mut frame, sequence, yb_wire::TransportError::HANDLER_FAILED, &text);
            }
        }
        Some(Answered { sequence, frame })
    }

    /// A connection has ended.
    pub fn hang_up(&mut self, connection: u32) {
        self.mailbox.closed(session(connection));
    }

    /// Takes the answers that came since the last look, in the order in which they were given.
    pub fn late(&mut self) -> Vec<Answered> {
        self.mailbox.take(&mut self.letters);
        let frames = self.letters.drain(..).filter_map(|letter| match letter {
            Letter::Deferred { frame, .. } => Some(Answered::of(frame)),
            _ => None,
        });
        frames.collect()
    }
}

fn session(connection: u32) -> SessionId {
    SessionId { slot: connection, generation: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ListenerTag, Outcome};
    use yb_types::MonotonicTime;

    struct Echo(parking_lot::Mutex<Vec<crate::DeferredReply>>);

    impl Service for Echo {
        type Worker = ();
        fn worker(&self, _: usize) {}
        fn call(&self, (): &mut (), request: Request<'_>, mut reply: Reply<'_>) -> Outcome {
            match request.function {
                1 => {
                    reply.body().extend_from_slice(request.body);
                    reply.done()
                }
                2 => {
                    let (deferred, outcome) = reply.defer();
                    self.0.lock().push(deferred);
                    outcome
                }
                _ => reply.unknown_function(),
            }
        }
    }

    fn request(function: u32) -> Request<'static> {
        let (tag, peer, now) = (ListenerTag(0), None, MonotonicTime(0));
        Request { function, body: b"abc", attachment: &[], tag, peer, now }
    }

    #[test]
    fn answers_come_at_once_late_or_as_refusals() {
        let service = Arc::new(Echo(parking_lot::Mutex::default()));
        let mut desk = Desk::new(Arc::clone(&service)).unwrap();
        let echoed = desk.call(request(1), 7).unwrap();
        assert_eq!((echoed.sequence, echoed.error_code(), echoed.body()), (7, 0, &b"abc"[..]));
        assert!(desk.call(request(2), 8).is_none() && desk.late().is_empty());
        service.0.lock().pop().unwrap().send(|out| out.extend_from_slice(b"later"));
        let late = desk.late();
        assert_eq!((late[0].sequence, late[0].body()), (8, &b"later"[..]));
        let refused = desk.call(request(3), 9).unwrap();
        assert!(refused.sequence == 9 && refused.error_code() != 0);
    }
}
