//! One connection to our data port, driven by a data thread.
//!
//! Requests are served strictly in order. Bytes of a write are received at their final address, and the headers behind
//! them in the same call; answers to several requests leave in one call. A write is not started while answers to
//! earlier reads wait, so that those show memory as it was.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use socket2::Socket;
use yb_mem::{Access, CopyHint, RecvList, Registry, SendList, Span};
use yb_secure::{Admitted, Passage};

use crate::Opcode;
use crate::device::{Body, Gpus};
use crate::handshake::session::Wants;
use crate::stats::Counters;
use crate::tcp::wire::{HEADER_LEN, Header, STATUS_LEN, Status};

/// Room for headers: about 40 of them.
const INBOX: usize = 1024;
/// Bytes that one session may move before others get their turn.
const BUDGET: usize = 4 << 20;
/// Answers that may wait before reading stops.
const MAX_ANSWERS: usize = 64;
/// Status frames that leave at the latest, though more requests are here already.
const STATUSES_AT_ONCE: usize = 32;

/// What a session is doing, for the question whether a range is quiet.
#[derive(Debug)]
pub(crate) struct Activity {
    stream: Arc<Socket>,
    /// What is between the socket and the network.
    passage: Option<Arc<Passage>>,
    /// Set while received bytes are not told apart yet: they may be the header of a write to anywhere.
    unsettled: AtomicBool,
    address: AtomicU64,
    len: AtomicU64,
}

impl Activity {
    fn begin(&self, address: u64, len: u64) {
        self.address.store(address, Ordering::SeqCst);
        self.len.store(len, Ordering::SeqCst);
    }

    fn end(&self) {
        self.len.store(0, Ordering::SeqCst);
    }

    /// True when the session is not writing into the range, and holds no bytes that it has not looked at.
    pub(crate) fn is_quiet(&self, address: u64, len: u64) -> bool {
        // In this order: bytes leave the socket only after the flag is set, which is taken back only after a write among
        // them is announced.
        let on_the_way = self.passage.as_ref().is_some_and(|passage| !passage.is_quiet());
        let unread = rustix::io::ioctl_fionread(&*self.stream).unwrap_or(0);
        let unsettled = self.unsettled.load(Ordering::SeqCst);
        let (busy_at, busy) = (self.address.load(Ordering::SeqCst), self.len.load(Ordering::SeqCst));
        let apart = busy_at.saturating_add(busy) <= address || address.saturating_add(len) <= busy_at;
        !on_the_way && unread == 0 && !unsettled && (busy == 0 || apart)
    }
}

/// A write whose bytes are arriving.
#[derive(Debug)]
struct Incoming {
    body: Body,
    done: usize,
    version_2: bool,
}

/// An answer on its way out.
#[derive(Debug)]
struct Answer {
    status: Option<[u8; STATUS_LEN]>,
    body: Option<Body>,
}

impl Answer {
    fn len(&self) -> usize {
        self.status.map_or(0, |status| status.len()) + self.body.as_ref().map_or(0, |body| body.len() as usize)
    }
}

/// What a session needs of its engine.
pub(crate) struct Host<'a> {
    pub(crate) registry: &'a Registry,
    pub(crate) served: &'a Counters,
    pub(crate) gpus: &'a Arc<Gpus>,
}

#[derive(Debug)]
pub(crate) struct Session {
    stream: Arc<Socket>,
    activity: Arc<Activity>,
    inbox: Box<[u8; INBOX]>,
    parsed: usize,
    filled: usize,
    incoming: Option<Incoming>,
    answers: VecDeque<Answer>,
    sent: usize,
    /// Set after a rejected or nonsensical request: no more is read.
    closing: bool,
    /// Bytes moved since it was last asked.
    pub(crate) progress: usize,
}

impl Session {
    pub(crate) fn new(admitted: Admitted) -> Self {
        let stream = Arc::new(admitted.socket);
        let activity = Arc::new(Activity {
            stream: Arc::clone(&stream),
            passage: admitted.passage,
            unsettled: AtomicBool::new(false),
            address: AtomicU64::new(0),
            len: AtomicU64::new(0),
        });
        Session {
            stream,
            activity,
            inbox: Box::new([0; INBOX]),
            parsed: 0,
            filled: 0,
            incoming: None,
            answers: VecDeque::new(),
            sent: 0,
            closing: false,
            progress: 0,
        }
    }

    pub(crate) fn stream(&self) -> &Socket {
        &self.stream
    }

    pub(crate) fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// True between requests, with nothing received and nothing to send.
    pub(crate) fn is_idle(&self) -> bool {
        self.incoming.is_none() && self.answers.is_empty() && self.parsed == self.filled
    }

    /// True when no request has been begun, though a part of a header may be here.
    pub(crate) fn is_between_requests(&self) -> bool {
        self.incoming.is_none() && self.answers.is_empty()
    }

    /// True in the middle of a write.
    pub(crate) fn is_writing(&self) -> bool {
        self.incoming.is_some()
    }

    /// True when it uses a region that is to be released.
    pub(crate) fn holds_wanted(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.body.is_wanted_back())
            || self.answers.iter().any(|answer| answer.body.as_ref().is_some_and(Body::is_wanted_back))
    }

    /// Goes on as far as the socket and the budget allow.
    pub(crate) fn advance(&mut self, host: &Host<'_>) -> Wants {
        self.activity.unsettled.store(true, Ordering::SeqCst);
        let wants = self.go_on(host);
        self.activity.unsettled.store(self.parsed != self.filled, Ordering::SeqCst);
        wants
    }

    fn go_on(&mut self, host: &Host<'_>) -> Wants {
        let mut moved = 0;
        while moved < BUDGET {
            self.parse(host);
            if self.closing && self.answers.is_empty() {
                return Wants::Close;
            }
            let step = if self.must_answer() {
                self.send(host)
            } else {
                match self.receive(host) {
                    // Nothing more is here: what was put off leaves now, in one call.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.answers.is_empty() => {
                        self.send(host)
                    }
                    Ok(0) if !self.answers.is_empty() => {
                        self.closing = true;
                        continue;
                    }
                    other => other,
                }
            };
            match step {
                Ok(0) => return Wants::Close,
                Ok(bytes) => {
                    moved += bytes;
                    self.progress += bytes;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Wants::Close,
            }
        }
        // When the budget ended with the last answer, nothing but this looks at what waited behind it: those bytes have
        // left the socket, so it will not become readable for them.
        self.parse(host);
        match self.answers.is_empty() {
            true if self.closing => Wants::Close,
            true => Wants::Read,
            false => Wants::Write,
        }
    }

    /// Status frames of writes wait for their neighbours while more is arriving, bytes of reads do not.
    fn must_answer(&self) -> bool {
        self.closing
            || self.answers.len() >= STATUSES_AT_ONCE
            || self.answers.iter().any(|answer| answer.body.is_some())
    }

    /// Turns received headers into answers, up to a write that needs bytes or must wait.
    fn parse(&mut self, host: &Host<'_>) {
        while self.incoming.is_none() && !self.closing && self.answers.len() < MAX_ANSWERS {
            let Some(bytes) = self.inbox.get(self.parsed..self.filled).and_then(|rest| rest.first_chunk()) else {
                break;
            };
            let Ok(header) = Header::decode(bytes) else {
                self.closing = true;
                return;
            };
            let reads_wait = self.answers.iter().any(|answer| answer.body.is_some());
            if header.op == Opcode::Write && reads_wait {
                return;
            }
            self.parsed += HEADER_LEN;
            let pinned = host.registry.pin(header.address, header.size, Access::Remote).map_err(io::Error::other);
            match pinned.and_then(|pin| Body::new(pin, host.gpus)) {
                Ok(body) => self.begin(header, body, host),
                Err(_) => self.reject(header, host),
            }
        }
        if self.parsed == self.filled {
            (self.parsed, self.filled) = (0, 0);
        } else if self.parsed > 0 && self.incoming.is_none() {
            self.inbox.copy_within(self.parsed..self.filled, 0);
            (self.parsed, self.filled) = (0, self.filled - self.parsed);
        }
    }

    fn begin(&mut self, header: Header, body: Body, host: &Host<'_>) {
        match header.op {
            Opcode::Read => {
                let status = header.version_2.then(|| Status::Ok.encode());
                self.answers.push_back(Answer { status, body: Some(body) });
            }
            Opcode::Write => {
                self.activity.begin(header.address, header.size);
                self.incoming = Some(Incoming { body, done: 0, version_2: header.version_2 });
                self.take_from_inbox(host);
            }
        }
    }

    fn reject(&mut self, header: Header, host: &Host<'_>) {
        host.served.failed();
        self.closing = true;
        if header.version_2 {
            self.answers.push_back(Answer { status: Some(Status::Rejected.encode()), body: None });
        }
    }

    /// Bytes of the write that came in with its header.
    fn take_from_inbox(&mut self, host: &Host<'_>) {
        let Some(incoming) = &mut self.incoming else { return };
        let here = self.inbox.get(self.parsed..self.filled).unwrap_or_default();
        let Ok(take) = store(&mut incoming.body, here) else {
            self.closing = true;
            return;
        };
        incoming.done = take;
        self.parsed += take;
        self.finish_write(host);
    }

    fn finish_write(&mut self, host: &Host<'_>) {
        let whole = self.incoming.take_if(|incoming| incoming.done as u64 == incoming.body.len());
        let Some(incoming) = whole else { return };
        self.activity.end();
        host.served.succeeded(Opcode::Write, incoming.body.len());
        if incoming.version_2 {
            self.answers.push_back(Answer { status: Some(Status::Ok.encode()), body: None });
        }
    }

    fn receive(&mut self, host: &Host<'_>) -> io::Result<usize> {
        let mut list = RecvList::default();
        let (mut body, mut is_last) = (0, true);
        if let Some(incoming) = &self.incoming {
            // All that came with the header was taken, so the inbox is free for what follows the body.
            (self.parsed, self.filled) = (0, 0);
            let room = incoming.body.room(incoming.done)?;
            body = room.len();
            is_last = (incoming.done + body) as u64 == incoming.body.len();
            list.push_span(room).map_err(io::Error::other)?;
        }
        if is_last {
            list.push_bytes(self.inbox.get_mut(self.filled..).unwrap_or_default());
        }
        let got = list.receive(&*self.stream)?;
        let stored = got.min(body);
        self.filled += got - stored;
        if let Some(incoming) = &mut self.incoming {
            incoming.body.arrived(incoming.done, stored)?;
            incoming.done += stored;
        }
        self.finish_write(host);
        Ok(got)
    }

    fn send(&mut self, host: &Host<'_>) -> io::Result<usize> {
        let mut list = SendList::default();
        let mut skip = self.sent;
        for answer in &mut self.answers {
            let status = answer.status.as_ref().map_or(&[][..], |status| &status[..]);
            list.push_bytes(status.get(skip..).unwrap_or_default());
            skip = skip.saturating_sub(status.len());
            if let Some(body) = &mut answer.body {
                let (from, total) = (skip.min(body.len() as usize), body.len() as usize);
                let at_hand = body.outgoing(from)?;
                list.push_span(at_hand);
                if from + at_hand.len() < total {
                    break;
                }
            }
            skip = 0;
        }
        let mut sent = list.send(&*self.stream)?;
        let moved = sent;
        sent += self.sent;
        while self.answers.front().is_some_and(|answer| answer.len() <= sent) {
            let Some(answer) = self.answers.pop_front() else { break };
            sent -= answer.len();
            if let Some(body) = answer.body {
                host.served.succeeded(Opcode::Read, body.len());
            }
        }
        self.sent = sent;
        Ok(moved)
    }
}

/// Puts the first bytes of a write into their place: as many as there are, and belong to it.
fn store(body: &mut Body, bytes: &[u8]) -> io::Result<usize> {
    let mut done = 0;
    loop {
        let room = body.room(done)?;
        let part = bytes.get(done..).unwrap_or_default();
        let take = part.len().min(room.len());
        if take == 0 {
            return Ok(done);
        }
        let source = Span::source(part.get(..take).unwrap_or_default());
        let target = room.slice(0, take).map_err(io::Error::other)?;
        yb_mem::copy(target, source, CopyHint::Cached).map_err(io::Error::other)?;
        body.arrived(done, take)?;
        done += take;
    }
}
