//! The server side of connections, without their sockets: bytes in, replies out, verdicts on what to do next.
//!
//! A backend owns the sockets and drives this with what it read. Invariants: unprocessed input is at most one frame within the
//! limits plus what one read brought; a frame is answered once, in order, or deferred; nothing is read on behalf of a
//! session that is held back.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use yb_types::MonotonicTime;
use yb_wire::TransportError;
use yb_wire::frame::{Frame, FrameError, FrameLimits, Parsed, RESPONSE_HEADER_LEN, RequestHeader, parse_request};

use super::acceptor::Arrival;
use super::counters::{CounterSet, ServerCounters};
use super::guests::Guest;
use super::limits::ServerLimits;
use super::mailbox::Mailbox;
use super::service::{Answer, ListenerTag, Outcome, Reply, Request, Service, SessionId, seal, write_error};

/// Capacity of a session's input buffer that is kept while it is empty.
const KEPT_INPUT: usize = 4096;

/// Requests that a service is shown at once before they are answered.
const FORESEEN: usize = 16;
/// Bytes of requests that are answered (well within a millisecond) before the clock is read again.
const ANSWERED_PER_CLOCK: usize = 4096;
/// A request that is answered however much is unread: its reply cannot be long.
const SMALL_REQUEST: usize = 4096;
/// Unsent bytes that a connection may have however many there are.
const LEAST_UNSENT: usize = 64 << 10;

/// What a backend does with a connection after handing over bytes or room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Go on; `read` says whether to read from the peer, `ready` that whole requests wait for room.
    Keep { read: bool, ready: bool },
    /// Send what is there, then close.
    CloseWhenSent,
}

/// Why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CloseReason {
    PeerLeft,
    Io,
    Unread,
    Stalled,
    BadMagic,
    BadHeader,
    TooLarge,
    Crowded,
    CrowdedAddress,
    Idle,
}

impl CloseReason {
    fn of(error: FrameError) -> Self {
        match error {
            FrameError::BadMagic { .. } => CloseReason::BadMagic,
            FrameError::BadVersion { .. } | FrameError::BadSerializeType { .. } => CloseReason::BadHeader,
            FrameError::BodyTooLarge { .. } | FrameError::AttachmentTooLarge { .. } => CloseReason::TooLarge,
        }
    }
}

#[derive(Debug)]
struct Session {
    id: SessionId,
    tag: ListenerTag,
    peer: Option<SocketAddr>,
    guest: Option<Arc<Guest>>,
    /// Bytes that are not processed yet, and how many of them the server has counted.
    input: Vec<u8>,
    counted: usize,
    deferred: usize,
    /// How many there may be: fewer while the address has too many.
    max_deferred: usize,
    /// At least one whole request came.
    greeted: bool,
    /// The peer will send nothing more.
    ended: bool,
    /// Whole requests wait until the peer reads or deferred calls are answered.
    held: bool,
    watched: bool,
    last_byte: MonotonicTime,
    frame_started: MonotonicTime,
    failure: Option<CloseReason>,
}

/// Where to stop processing.
enum Step {
    /// All whole frames are answered.
    NeedMore,
    /// A limit holds the session back.
    Held,
    Broken(CloseReason),
}

/// All sessions of one worker and the service that answers them.
pub(crate) struct Sessions<S: Service> {
    service: Arc<S>,
    state: S::Worker,
    mailbox: Arc<Mailbox>,
    limits: ServerLimits,
    frame_limits: FrameLimits,
    counters: Arc<ServerCounters>,
    index: usize,
    /// Boxed: a session is taken out while it is worked on.
    slots: Vec<Option<Box<Session>>>,
    free: Vec<u32>,
    next_generation: u32,
    /// Slots that have a deadline: no whole request yet, or inside a frame.
    watched: Vec<u32>,
    /// The time of this turn.
    now: MonotonicTime,
    /// Bytes of requests that were answered since the clock was read.
    answered: usize,
    /// Bytes of replies written in this turn.
    written: usize,
    /// Bytes of replies that peers had not read at the last look.
    pub(crate) unread: usize,
    served_this_turn: bool,
    /// Open connections of this worker; the acceptor counts up, closing counts down.
    load: Arc<AtomicUsize>,
}

impl<S: Service> Sessions<S> {
    pub(crate) fn new(
        service: Arc<S>,
        mailbox: Arc<Mailbox>,
        limits: ServerLimits,
        counters: Arc<ServerCounters>,
        index: usize,
        load: Arc<AtomicUsize>,
    ) -> Self {
        Sessions {
            state: service.worker(index),
            service,
            mailbox,
            frame_limits: FrameLimits { max_body: limits.max_body_bytes, max_attachment: limits.max_attachment_bytes },
            limits,
            counters,
            index,
            slots: Vec::new(),
            free: Vec::new(),
            next_generation: 0,
            watched: Vec::new(),
            now: MonotonicTime(0),
            answered: 0,
            written: 0,
            unread: 0,
            served_this_turn: false,
            load,
        }
    }

    /// The time of this turn.
    pub(crate) fn now(&self) -> MonotonicTime {
        self.now
    }

    pub(crate) fn counters(&self) -> &CounterSet {
        self.counters.worker(self.index)
    }

    /// Starts a turn.
    pub(crate) fn turn_started(&mut self, now: MonotonicTime) {
        (self.now, self.answered, self.written) = (now, 0, 0);
        self.counters().turns.add(1);
    }

    /// To be called before bytes are taken from a socket in the middle of a turn. A request must not be answered with a
    /// time before it was sent: a lease counted from then would end before its reader thinks so.
    pub(crate) fn before_reading(&mut self, clock: &dyn Fn() -> MonotonicTime) {
        if self.answered > ANSWERED_PER_CLOCK {
            (self.now, self.answered) = (clock(), 0);
        }
    }

    /// Ends a turn.
    pub(crate) fn turn_ended(&mut self) {
        if std::mem::take(&mut self.served_this_turn) {
            self.service.turn_ended(&mut self.state, self.now);
        }
    }

    /// Takes a slot for a new connection.
    pub(crate) fn open(&mut self, arrival: Arrival) -> u32 {
        let Arrival { tag, peer, guest } = arrival;
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.next_generation = self.next_generation.wrapping_add(1);
        let session = Session {
            id: SessionId { slot, generation: self.next_generation },
            tag,
            peer,
            guest,
            input: Vec::new(),
            counted: 0,
            deferred: 0,
            max_deferred: self.limits.max_deferred,
            greeted: false,
            ended: false,
            held: false,
            watched: true,
            last_byte: self.now,
            frame_started: self.now,
            failure: None,
        };
        self.watched.push(slot);
        self.slots[slot as usize] = Some(Box::new(session));
        slot
    }

    /// Forgets a connection and counts why. Its slot stays taken until [`Sessions::release`].
    pub(crate) fn close(&mut self, slot: u32, reason: CloseReason) {
        let Some(session) = self.slots.get_mut(slot as usize).and_then(Option::take) else { return };
        if session.watched {
            self.watched.retain(|&s| s != slot);
        }
        self.load.fetch_sub(1, Ordering::Relaxed);
        self.mailbox.forget(session.id, session.deferred);
        if session.counted > 0 {
            self.counters.buffered.fetch_sub(session.counted, Ordering::Relaxed);
        }
        if let Some(guest) = &session.guest {
            guest.holds(session.counted, 0);
            guest.answered(session.deferred);
        }
        let reason = session.failure.unwrap_or(reason);
        let counters = self.counters();
        counters.connections_closed.add(1);
        match reason {
            CloseReason::PeerLeft => {}
            CloseReason::Io => counters.closed_io.add(1),
            CloseReason::Unread => counters.closed_unread.add(1),
            CloseReason::Stalled => counters.closed_stalled.add(1),
            CloseReason::Idle => counters.closed_idle.add(1),
            CloseReason::BadMagic => counters.closed_bad_magic.add(1),
            CloseReason::BadHeader => counters.closed_bad_header.add(1),
            CloseReason::TooLarge => counters.closed_too_large.add(1),
            CloseReason::Crowded => counters.closed_crowded.add(1),
            CloseReason::CrowdedAddress => counters.closed_crowded_address.add(1),
        }
        tracing::debug!(?reason, peer = ?session.peer, "connection closed");
        self.mailbox.closed(session.id);
    }

    /// The backend has no more business with this slot.
    pub(crate) fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Bytes came. Replies are appended to `out`; `unsent` bytes of earlier replies are still on their way.
    pub(crate) fn received(&mut self, slot: u32, bytes: &[u8], out: &mut Vec<u8>, unsent: usize) -> Verdict {
        let Some(mut session) = self.slots.get_mut(slot as usize).and_then(Option::take) else {
            return Verdict::CloseWhenSent;
        };
        self.counters().bytes_received.add(bytes.len() as u64);
        session.last_byte = self.now;
        if session.failure.is_none() {
            if session.input.is_empty() {
                let (used, step) = self.process(&mut session, bytes, out, unsent);
                session.input.extend_from_slice(bytes.get(used..).unwrap_or_default());
                self.after(&mut session, used > 0, step);
            } else {
                session.input.extend_from_slice(bytes);
                self.process_input(&mut session, out, unsent);
            }
        }
        self.put_back(session)
    }

    /// There is room again, or a deferred call was answered: goes on with what waits.
    pub(crate) fn resume(&mut self, slot: u32, out: &mut Vec<u8>, unsent: usize) -> Verdict {
        let Some(mut session) = self.slots.get_mut(slot as usize).and_then(Option::take) else {
            return Verdict::CloseWhenSent;
        };
        if session.held && session.failure.is_none() {
            (session.last_byte, session.frame_started) = (self.now, self.now);
            self.process_input(&mut session, out, unsent);
        }
        self.put_back(session)
    }

    /// The peer sends nothing more.
    pub(crate) fn ended(&mut self, slot: u32) -> Verdict {
        match self.slots.get_mut(slot as usize).and_then(Option::as_mut) {
            Some(session) => {
                session.ended = true;
                session.verdict()
            }
            None => Verdict::CloseWhenSent,
        }
    }

    /// A deferred reply came back. `None`: its connection is gone.
    pub(crate) fn deferred(&mut self, id: SessionId, frame: &[u8], failed: bool, out: &mut Vec<u8>) -> Option<u32> {
        self.counters().deferred_replies.add(1);
        self.counters().failed_handlers.add(u64::from(failed));
        let Some(session) = self.slots.get_mut(id.slot as usize).and_then(Option::as_mut).filter(|s| s.id == id) else {
            self.mailbox.came_late(id);
            return None;
        };
        if session.deferred > 0 {
            session.deferred -= 1;
            let open = session.guest.as_ref().map_or(0, |guest| guest.answered(1));
            session.max_deferred = self.limits.deferred_with(open);
        }
        out.extend_from_slice(frame);
        Some(id.slot)
    }

    /// True when some session has a deadline.
    pub(crate) fn has_deadlines(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Appends the slots whose deadline has passed.
    pub(crate) fn stalled(&self, into: &mut Vec<u32>) {
        let late = |session: &Session| {
            let quiet = self.now.since(session.last_byte) >= self.limits.stalled_frame_timeout;
            quiet || self.now.since(session.frame_started) >= self.limits.frame_timeout
        };
        let stalled = |&&slot: &&u32| self.slots[slot as usize].as_ref().is_some_and(|s| !s.held && late(s));
        into.extend(self.watched.iter().filter(stalled));
    }

    /// Appends the slots that wait for nothing and were silent this long.
    pub(crate) fn idle(&self, longer_than: Duration, into: &mut Vec<u32>) {
        let silent = |s: &&Session| !s.watched && s.deferred == 0 && self.now.since(s.last_byte) >= longer_than;
        into.extend(self.slots.iter().flatten().map(Box::as_ref).filter(silent).map(|session| session.id.slot));
    }

    /// How many slots are taken.
    pub(crate) fn open_count(&self) -> usize {
        self.slots.len().saturating_sub(self.free.len())
    }

    /// All open slots, at the end of the worker.
    pub(crate) fn open_slots(&self) -> Vec<u32> {
        self.slots.iter().flatten().map(|session| session.id.slot).collect()
    }

    fn put_back(&mut self, session: Box<Session>) -> Verdict {
        let (verdict, slot) = (session.verdict(), session.id.slot);
        self.slots[slot as usize] = Some(session);
        verdict
    }

    fn process_input(&mut self, session: &mut Session, out: &mut Vec<u8>, unsent: usize) {
        let mut input = std::mem::take(&mut session.input);
        let (used, step) = self.process(session, &input, out, unsent);
        input.drain(..used);
        if input.is_empty() && input.capacity() > KEPT_INPUT {
            input = Vec::new();
        }
        session.input = input;
        self.after(session, used > 0, step);
    }

    /// Answers whole frames from the front of `bytes`; returns how many bytes they were.
    fn process(&mut self, session: &mut Session, bytes: &[u8], out: &mut Vec<u8>, unsent: usize) -> (usize, Step) {
        let (mut used, mut requests, mut foreseen) = (0, 0, 0usize);
        let max_unsent = self.max_unsent();
        let step = loop {
            if out.len() + unsent > max_unsent || session.deferred >= session.max_deferred {
                break Step::Held;
            }
            let rest = bytes.get(used..).unwrap_or_default();
            let frame = match parse_request(rest, &self.frame_limits) {
                Ok(Parsed::Frame(frame)) => frame,
                Ok(Parsed::NeedMore { .. }) => break Step::NeedMore,
                Err(error) => break Step::Broken(CloseReason::of(error)),
            };
            if frame.len > SMALL_REQUEST && self.unread + self.written > self.budget() {
                break Step::Broken(CloseReason::Crowded);
            }
            let length_before = out.len();
            if foreseen == 0 && rest.len() > frame.len {
                foreseen = self.foresee(session, rest);
            }
            foreseen = foreseen.saturating_sub(1);
            self.answer(session, self.request(session, &frame), frame.header.sequence, out);
            used += frame.len;
            self.answered += frame.len;
            self.written += out.len() - length_before;
            requests += 1;
        };
        if requests > 0 {
            session.greeted = true;
            self.served_this_turn = true;
            self.counters().requests.add(requests);
        }
        (used, step)
    }

    fn request<'f>(&self, session: &Session, frame: &Frame<'f, RequestHeader>) -> Request<'f> {
        Request {
            function: frame.header.function_id,
            body: frame.body,
            attachment: frame.attachment,
            tag: session.tag,
            peer: session.peer,
            now: self.now,
        }
    }

    /// Shows the service the first requests of what one turn brought on several connections, before they are answered one
    /// after the other. What goes on with an earlier read is left out.
    pub(crate) fn foresee_turn<'b>(&mut self, pieces: impl Iterator<Item = (u32, &'b [u8])>) {
        let mut requests: SmallVec<[Request<'b>; FORESEEN]> = SmallVec::new();
        for (slot, bytes) in pieces {
            let Some(session) = self.slots.get(slot as usize).and_then(Option::as_ref) else { continue };
            if !session.input.is_empty() || session.failure.is_some() || bytes.len() > SMALL_REQUEST {
                continue;
            }
            if let Ok(Parsed::Frame(frame)) = parse_request(bytes, &self.frame_limits) {
                requests.push(self.request(session, &frame));
            }
            if requests.len() == FORESEEN {
                self.service.foresee(&mut self.state, &requests);
                requests.clear();
            }
        }
        if requests.len() > 1 {
            self.service.foresee(&mut self.state, &requests);
        }
    }

    /// Shows the service the next requests, if there are several; returns how many.
    fn foresee(&mut self, session: &Session, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        let mut requests: SmallVec<[Request<'_>; FORESEEN]> = SmallVec::new();
        while requests.len() < FORESEEN
            && let Ok(Parsed::Frame(frame)) = parse_request(rest, &self.frame_limits)
        {
            requests.push(self.request(session, &frame));
            rest = rest.get(frame.len..).unwrap_or_default();
        }
        if requests.len() > 1 {
            self.service.foresee(&mut self.state, &requests);
        }
        requests.len()
    }

    fn answer(&mut self, session: &mut Session, request: Request<'_>, sequence: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; RESPONSE_HEADER_LEN]);
        let reply = Reply { out, mailbox: &self.mailbox, session: session.id, sequence };
        let call = || self.service.call(&mut self.state, request, reply);
        // A handler's bug costs its caller an error, not everybody the server.
        let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
            tracing::error!(function = request.function, "a handler panicked");
            Outcome(Answer::Failed { text: "the handler panicked".to_owned() })
        });
        match outcome.0 {
            Answer::Done => seal(out, start, sequence, 0),
            Answer::Deferred => {
                out.truncate(start);
                self.counters().deferred_calls.add(1);
                self.defer(session);
            }
            Answer::Refused { error, text } => {
                out.truncate(start);
                write_error(out, sequence, error, text);
                self.counters().unknown_functions.add(u64::from(error == TransportError::NO_SUCH_FUNCTION));
                self.counters().bad_arguments.add(u64::from(error == TransportError::INVALID_ARGUMENTS));
            }
            Answer::Failed { text } => {
                out.truncate(start);
                write_error(out, sequence, TransportError::HANDLER_FAILED, &text);
                self.counters().failed_handlers.add(1);
            }
        }
    }

    /// Counts a call that is answered later. Where its address has too many, this connection gets no second one before the
    /// first is answered: then it goes on by itself.
    fn defer(&self, session: &mut Session) {
        session.deferred += 1;
        let open = session.guest.as_ref().map_or(0, |guest| guest.deferred());
        session.max_deferred = self.limits.deferred_with(open);
        if session.max_deferred < self.limits.max_deferred {
            self.counters().held_back_by_address.add(1);
        }
    }

    /// Keeps the session's state and its deadline in step with how far processing came.
    fn after(&mut self, session: &mut Session, progressed: bool, step: Step) {
        if progressed {
            session.frame_started = self.now;
        }
        let was_held = std::mem::replace(&mut session.held, matches!(step, Step::Held));
        if session.held && !was_held {
            self.counters().held_back.add(1);
        }
        match step {
            Step::Broken(reason) => session.failure = Some(reason),
            Step::Held if session.input.is_empty() => session.held = false,
            _ => {}
        }
        self.count_input(session);
        let watch = !session.greeted || !session.input.is_empty();
        if watch && !session.watched {
            session.frame_started = self.now;
            self.watched.push(session.id.slot);
        } else if !watch && session.watched {
            self.watched.retain(|&slot| slot != session.id.slot);
        }
        session.watched = watch;
    }

    /// Keeps the count of buffered bytes. When it is too high, connections that hold more than their share give way, so
    /// that those with little to say are not shut out by the others.
    fn count_input(&mut self, session: &mut Session) {
        let waiting = session.input.len();
        if waiting == session.counted {
            return;
        }
        let buffered = &self.counters.buffered;
        let before = buffered.fetch_add(waiting.wrapping_sub(session.counted), Ordering::Relaxed);
        let total = before.wrapping_add(waiting.wrapping_sub(session.counted));
        let of_address = session.guest.as_ref().map_or(0, |guest| guest.holds(session.counted, waiting));
        let grows = waiting > session.counted;
        session.counted = waiting;
        if grows && of_address > self.limits.max_buffered_per_address {
            return self.drop_input(session, CloseReason::CrowdedAddress);
        }
        let share = self.limits.max_buffered_bytes / (self.counters.workers() * self.watched.len().max(1));
        if total > self.limits.max_buffered_bytes && waiting > share {
            self.drop_input(session, CloseReason::Crowded);
        }
    }

    /// Gives up a connection that holds too much.
    fn drop_input(&self, session: &mut Session, reason: CloseReason) {
        session.failure.get_or_insert(reason);
        session.input = Vec::new();
        self.counters.buffered.fetch_sub(session.counted, Ordering::Relaxed);
        if let Some(guest) = &session.guest {
            guest.holds(session.counted, 0);
        }
        session.counted = 0;
    }

    /// Bytes of replies that a connection may leave unread: with many connections only its share of what all may.
    fn max_unsent(&self) -> usize {
        self.limits.max_unsent_bytes.min(self.share().max(LEAST_UNSENT))
    }

    /// This worker's part of the bytes of replies that may be unread.
    pub(crate) fn budget(&self) -> usize {
        self.limits.max_buffered_bytes / self.counters.workers()
    }

    /// The part of one of its connections.
    pub(crate) fn share(&self) -> usize {
        self.budget() / self.open_count().max(1)
    }
}

impl Session {
    fn verdict(&self) -> Verdict {
        if self.failure.is_some() || (self.ended && self.deferred == 0 && !self.held) {
            return Verdict::CloseWhenSent;
        }
        Verdict::Keep { read: !self.held && !self.ended, ready: self.held }
    }
}
