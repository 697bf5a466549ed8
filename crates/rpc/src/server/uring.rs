//! The io_uring backend: multishot receives, and all sends of a turn in the system call that waits for the next.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use yb_types::MonotonicTime;
use yb_uring::{Buffer, Completion, Patience, Reactor, ReactorSettings};

use super::backend::Backend;
use super::gather::{GATHER_FOR, Gather};
use super::mailbox::Mailbox;
use super::service::{Service, SessionId};
use super::session::{CloseReason, Sessions, Verdict};

/// Output vectors kept for reuse, and the largest capacity of one.
const SPARE: usize = 256;
const KEPT_OUT: usize = 256 << 10;

/// One connection's output. Its socket is the reactor's.
#[derive(Debug)]
struct Line {
    /// Bytes of the send under way that the kernel has not taken.
    in_flight: usize,
    /// Replies that wait behind it.
    pending: Vec<u8>,
    last_sent: MonotonicTime,
    reading: bool,
    /// Whole requests wait for room.
    ready: bool,
    closing: bool,
}

pub(crate) struct UringBackend {
    reactor: Reactor,
    lines: Vec<Option<Line>>,
    out: Vec<u8>,
    spare: Vec<Vec<u8>>,
    /// Lines with a send under way.
    unsent_lines: usize,
    gather: Gather,
    /// Bytes that came one after the other, of different sockets or of one; empty between two turns.
    arrived: Vec<(u32, Buffer)>,
}

impl UringBackend {
    pub(crate) fn new(mailbox: &Mailbox) -> io::Result<Self> {
        let mut reactor = Reactor::new(&ReactorSettings::default())?;
        reactor.watch(mailbox.as_fd().try_clone_to_owned()?)?;
        let (lines, out, spare) = (Vec::new(), Vec::new(), Vec::new());
        Ok(UringBackend { reactor, lines, out, spare, unsent_lines: 0, gather: Gather::default(), arrived: Vec::new() })
    }

    fn line(&mut self, slot: u32) -> Option<&mut Line> {
        self.lines.get_mut(slot as usize)?.as_mut()
    }

    fn unsent(&self, slot: u32) -> usize {
        let line = self.lines.get(slot as usize).and_then(Option::as_ref);
        line.map_or(0, |line| line.in_flight + line.pending.len())
    }

    /// Takes completions up to the next one that is not about bytes that came; answers that one.
    fn next_unless_received(&mut self, arrived: &mut Vec<(u32, Buffer)>) -> Option<Completion> {
        loop {
            match self.reactor.next_completion()? {
                Completion::Received { key, buffer } => arrived.push((key, buffer)),
                other => return Some(other),
            }
        }
    }

    fn received<S: Service>(&mut self, sessions: &mut Sessions<S>, slot: u32, buffer: Buffer) {
        let unsent = self.unsent(slot);
        let verdict = sessions.received(slot, self.reactor.bytes(&buffer), &mut self.out, unsent);
        self.reactor.recycle(buffer);
        self.settle(sessions, slot, verdict);
    }

    /// Starts to send the output and sets what to wait for.
    fn settle<S: Service>(&mut self, sessions: &mut Sessions<S>, slot: u32, verdict: Verdict) {
        sessions.counters().bytes_sent.add(self.out.len() as u64);
        if !self.out.is_empty() && self.queue_output(slot, sessions.now()).is_err() {
            return self.close(sessions, slot, CloseReason::Io);
        }
        let Some(line) = self.line(slot) else { return };
        let read = match verdict {
            Verdict::Keep { read, ready } => {
                line.ready = ready;
                read
            }
            Verdict::CloseWhenSent if line.in_flight == 0 => return self.close(sessions, slot, CloseReason::PeerLeft),
            Verdict::CloseWhenSent => {
                line.closing = true;
                false
            }
        };
        if line.reading != read {
            line.reading = read;
            if self.reactor.receive(slot, read).is_err() {
                self.close(sessions, slot, CloseReason::Io);
            }
        }
    }

    /// Moves the output behind the send under way, or sends it.
    fn queue_output(&mut self, slot: u32, now: MonotonicTime) -> io::Result<()> {
        let Some(line) = self.lines.get_mut(slot as usize).and_then(Option::as_mut) else {
            self.out.clear();
            return Ok(());
        };
        if line.in_flight > 0 {
            line.pending.append(&mut self.out);
            return Ok(());
        }
        line.in_flight = self.out.len();
        line.last_sent = now;
        self.unsent_lines += 1;
        let bytes = std::mem::replace(&mut self.out, self.spare.pop().unwrap_or_default());
        self.reactor.send(slot, bytes, 0)
    }

    fn sent<S: Service>(
        &mut self,
        sessions: &mut Sessions<S>,
        slot: u32,
        mut bytes: Vec<u8>,
        result: io::Result<usize>,
    ) {
        let Ok(taken) = result else { return self.close(sessions, slot, CloseReason::Io) };
        let Some(line) = self.lines.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        line.last_sent = sessions.now();
        line.in_flight = line.in_flight.saturating_sub(taken);
        if line.in_flight > 0 {
            let from = bytes.len() - line.in_flight;
            if self.reactor.send(slot, bytes, from).is_err() {
                self.close(sessions, slot, CloseReason::Io);
            }
            return;
        }
        self.unsent_lines -= 1;
        if !line.pending.is_empty() {
            bytes.clear();
            std::mem::swap(&mut bytes, &mut line.pending);
            line.in_flight = bytes.len();
            self.unsent_lines += 1;
            if self.reactor.send(slot, bytes, 0).is_err() {
                self.close(sessions, slot, CloseReason::Io);
            }
            return;
        }
        let (ready, closing) = (line.ready, line.closing);
        if bytes.capacity() <= KEPT_OUT && self.spare.len() < SPARE {
            bytes.clear();
            self.spare.push(bytes);
        }
        if closing {
            self.close(sessions, slot, CloseReason::PeerLeft);
        } else if ready {
            let verdict = sessions.resume(slot, &mut self.out, 0);
            self.settle(sessions, slot, verdict);
        }
    }
}

impl Backend for UringBackend {
    fn attach(&mut self, slot: u32, socket: OwnedFd) -> io::Result<()> {
        let index = slot as usize;
        if self.lines.len() <= index {
            self.lines.resize_with(index + 1, || None);
        }
        let last_sent = MonotonicTime(0);
        let line = Line { in_flight: 0, pending: Vec::new(), last_sent, reading: true, ready: false, closing: false };
        self.lines[index] = Some(line);
        self.reactor.attach(slot, socket)
    }

    fn turn<S: Service>(
        &mut self,
        sessions: &mut Sessions<S>,
        timeout: Option<Duration>,
        clock: &dyn Fn() -> MonotonicTime,
    ) -> io::Result<bool> {
        let gather = self.gather.wanted(sessions.open_count());
        self.reactor.turn(Patience { timeout, gather, gather_for: GATHER_FOR })?;
        sessions.turn_started(clock());
        let (mut rang, mut received) = (false, 0);
        loop {
            let mut arrived = std::mem::take(&mut self.arrived);
            let other = self.next_unless_received(&mut arrived);
            received += arrived.len() as u64;
            if arrived.len() > 1 {
                sessions.foresee_turn(arrived.iter().map(|(key, buffer)| (*key, self.reactor.bytes(buffer))));
            }
            arrived.drain(..).for_each(|(key, buffer)| self.received(sessions, key, buffer));
            self.arrived = arrived;
            match other {
                None => break,
                Some(Completion::Received { key, buffer }) => self.received(sessions, key, buffer),
                Some(Completion::Sent { key, bytes, result }) => self.sent(sessions, key, bytes, result),
                Some(Completion::Ended { key }) => {
                    let verdict = sessions.ended(key);
                    self.settle(sessions, key, verdict);
                }
                Some(Completion::Failed { key: u32::MAX, error }) => return Err(error),
                Some(Completion::Failed { key, .. }) => self.close(sessions, key, CloseReason::Io),
                Some(Completion::Rang) => rang = true,
                Some(Completion::Released { key }) => sessions.release(key),
            }
        }
        self.gather.met(sessions.now(), received);
        Ok(rang)
    }

    fn deliver<S: Service>(&mut self, sessions: &mut Sessions<S>, session: SessionId, frame: &[u8], failed: bool) {
        let Some(slot) = sessions.deferred(session, frame, failed, &mut self.out) else { return };
        let unsent = self.unsent(slot);
        let verdict = sessions.resume(slot, &mut self.out, unsent);
        self.settle(sessions, slot, verdict);
    }

    fn close<S: Service>(&mut self, sessions: &mut Sessions<S>, slot: u32, reason: CloseReason) {
        let Some(line) = self.lines.get_mut(slot as usize).and_then(Option::take) else { return };
        self.unsent_lines -= usize::from(line.in_flight > 0);
        self.out.clear();
        sessions.close(slot, reason);
        self.reactor.detach(slot);
    }

    fn has_unsent(&self) -> bool {
        self.unsent_lines > 0
    }

    fn each_unread(&self, see: &mut dyn FnMut(u32, usize, MonotonicTime)) {
        for (slot, line) in self.lines.iter().enumerate() {
            if let Some(line) = line.as_ref().filter(|line| line.in_flight > 0) {
                see(slot as u32, line.in_flight + line.pending.len(), line.last_sent);
            }
        }
    }
}
