//! The epoll backend: level-triggered, one `recv` and one `send` per readable connection and turn.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use yb_types::MonotonicTime;

use super::backend::Backend;
use super::mailbox::Mailbox;
use super::service::{Service, SessionId};
use super::session::{CloseReason, Sessions, Verdict};

/// Most bytes read from one connection in a turn.
const READ_BYTES: usize = 64 << 10;
/// Most events taken in a turn.
const EVENTS: usize = 512;
/// Capacity of the output buffer that is kept between turns.
const KEPT_OUT: usize = 1 << 20;
/// Event data of the mailbox's bell; slots are below.
const BELL: u64 = u64::MAX;

#[derive(Debug)]
struct Socket {
    socket: OwnedFd,
    /// Replies that the kernel has not taken, from `sent` on.
    pending: Vec<u8>,
    sent: usize,
    last_sent: MonotonicTime,
    interest: epoll::EventFlags,
    closing: bool,
}

impl Socket {
    fn unsent(&self) -> usize {
        self.pending.len() - self.sent
    }
}

pub(crate) struct EpollBackend {
    epoll: OwnedFd,
    sockets: Vec<Option<Socket>>,
    events: Vec<epoll::Event>,
    scratch: Box<[u8]>,
    out: Vec<u8>,
    unsent_sockets: usize,
    /// Keeps the bell's descriptor open.
    _mailbox: Arc<Mailbox>,
}

impl EpollBackend {
    pub(crate) fn new(mailbox: Arc<Mailbox>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, mailbox.as_fd(), epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)?;
        Ok(EpollBackend {
            epoll,
            sockets: Vec::new(),
            events: Vec::with_capacity(EVENTS),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            out: Vec::new(),
            unsent_sockets: 0,
            _mailbox: mailbox,
        })
    }

    fn socket(&mut self, slot: u32) -> Option<&mut Socket> {
        self.sockets.get_mut(slot as usize)?.as_mut()
    }

    fn readable<S: Service>(&mut self, sessions: &mut Sessions<S>, slot: u32) {
        let Some(socket) = self.sockets.get_mut(slot as usize).and_then(Option::as_mut) else { return };
        match rustix::net::recv(&socket.socket, &mut *self.scratch, RecvFlags::empty()) {
            Ok((_, 0)) => {
                let verdict = sessions.ended(slot);
                self.settle(sessions, slot, verdict);
            }
            Ok((_, got)) => {
                let unsent = socket.unsent();
                let verdict = sessions.received(slot, &self.scratch[..got], &mut self.out, unsent);
                self.settle(sessions, slot, verdict);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.close(sessions, slot, CloseReason::Io),
        }
    }

    fn writable<S: Service>(&mut self, sessions: &mut Sessions<S>, slot: u32) {
        let Some(socket) = self.socket(slot) else { return };
        if socket.closing {
            return self.settle(sessions, slot, Verdict::CloseWhenSent);
        }
        // Sends what is pending first, then asks the session what else waits.
        match self.transmit(slot, sessions.now()) {
            Ok(unsent) => {
                let verdict = sessions.resume(slot, &mut self.out, unsent);
                self.settle(sessions, slot, verdict);
            }
            Err(_) => self.close(sessions, slot, CloseReason::Io),
        }
    }

    /// Sends the output, lets the session go on as long as its output is taken, and sets what to wait for.
    fn settle<S: Service>(&mut self, sessions: &mut Sessions<S>, slot: u32, mut verdict: Verdict) {
        loop {
            let sent = self.out.len();
            sessions.counters().bytes_sent.add(sent as u64);
            let Ok(unsent) = self.transmit(slot, sessions.now()) else {
                return self.close(sessions, slot, CloseReason::Io);
            };
            match verdict {
                Verdict::CloseWhenSent if unsent == 0 => return self.close(sessions, slot, CloseReason::PeerLeft),
                Verdict::Keep { ready: true, .. } if unsent == 0 && sent > 0 => {
                    verdict = sessions.resume(slot, &mut self.out, 0);
                }
                _ => break,
            }
        }
        if self.update_interest(slot, verdict).is_err() {
            self.close(sessions, slot, CloseReason::Io);
        }
    }

    fn update_interest(&mut self, slot: u32, verdict: Verdict) -> io::Result<()> {
        let Some(socket) = self.sockets.get_mut(slot as usize).and_then(Option::as_mut) else { return Ok(()) };
        socket.closing = verdict == Verdict::CloseWhenSent;
        let mut wanted = epoll::EventFlags::empty();
        wanted.set(epoll::EventFlags::IN, matches!(verdict, Verdict::Keep { read: true, .. }));
        wanted.set(epoll::EventFlags::OUT, socket.unsent() > 0);
        if wanted != socket.interest {
            epoll::modify(&self.epoll, &socket.socket, epoll::EventData::new_u64(u64::from(slot)), wanted)?;
            socket.interest = wanted;
        }
        Ok(())
    }

    /// Gives the kernel what is pending and what is in `out`; returns the bytes that it did not take.
    fn transmit(&mut self, slot: u32, now: MonotonicTime) -> io::Result<usize> {
        let Some(socket) = self.sockets.get_mut(slot as usize).and_then(Option::as_mut) else {
            self.out.clear();
            return Ok(0);
        };
        let had_unsent = socket.unsent() > 0;
        let result = if had_unsent {
            socket.pending.append(&mut self.out);
            send_all(&socket.socket, &socket.pending[socket.sent..]).map(|taken| {
                socket.sent += taken;
                if taken > 0 {
                    socket.last_sent = now;
                }
            })
        } else {
            send_all(&socket.socket, &self.out).map(|taken| {
                if taken < self.out.len() {
                    socket.pending = self.out[taken..].to_vec();
                    socket.sent = 0;
                    socket.last_sent = now;
                }
            })
        };
        self.out.clear();
        if self.out.capacity() > KEPT_OUT {
            self.out = Vec::new();
        }
        if socket.unsent() == 0 && socket.sent > 0 {
            (socket.pending, socket.sent) = (Vec::new(), 0);
        }
        match (had_unsent, socket.unsent() > 0) {
            (false, true) => self.unsent_sockets += 1,
            (true, false) => self.unsent_sockets -= 1,
            _ => {}
        }
        let unsent = socket.unsent();
        result.map(|()| unsent)
    }
}

/// Sends as much as the kernel takes now.
fn send_all(socket: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
        match rustix::net::send(socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
            Ok(taken) => sent += taken,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(sent)
}

impl Backend for EpollBackend {
    fn attach(&mut self, slot: u32, socket: OwnedFd) -> io::Result<()> {
        let interest = epoll::EventFlags::IN;
        epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(u64::from(slot)), interest)?;
        let index = slot as usize;
        if self.sockets.len() <= index {
            self.sockets.resize_with(index + 1, || None);
        }
        let last_sent = MonotonicTime(0);
        self.sockets[index] =
            Some(Socket { socket, pending: Vec::new(), sent: 0, last_sent, interest, closing: false });
        Ok(())
    }

    fn turn<S: Service>(
        &mut self,
        sessions: &mut Sessions<S>,
        timeout: Option<Duration>,
        clock: &dyn Fn() -> MonotonicTime,
    ) -> io::Result<bool> {
        let timeout = timeout.map(|t| Timespec { tv_sec: t.as_secs() as i64, tv_nsec: i64::from(t.subsec_nanos()) });
        self.events.clear();
        match epoll::wait(&self.epoll, spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        sessions.turn_started(clock());
        let mut rang = false;
        for index in 0..self.events.len() {
            let event = self.events[index];
            let (data, flags) = (event.data.u64(), event.flags);
            if data == BELL {
                rang = true;
                continue;
            }
            let slot = data as u32;
            if flags.intersects(epoll::EventFlags::OUT) {
                self.writable(sessions, slot);
            }
            let closed = epoll::EventFlags::ERR | epoll::EventFlags::HUP;
            if flags.intersects(epoll::EventFlags::IN) {
                sessions.before_reading(clock);
                self.readable(sessions, slot);
            } else if flags.intersects(closed) {
                self.close(sessions, slot, CloseReason::Io);
            }
        }
        Ok(rang)
    }

    fn deliver<S: Service>(&mut self, sessions: &mut Sessions<S>, session: SessionId, frame: &[u8], failed: bool) {
        let Some(slot) = sessions.deferred(session, frame, failed, &mut self.out) else { return };
        sessions.counters().bytes_sent.add(frame.len() as u64);
        match self.transmit(slot, sessions.now()) {
            Ok(unsent) => {
                let verdict = sessions.resume(slot, &mut self.out, unsent);
                self.settle(sessions, slot, verdict);
            }
            Err(_) => self.close(sessions, slot, CloseReason::Io),
        }
    }

    fn close<S: Service>(&mut self, sessions: &mut Sessions<S>, slot: u32, reason: CloseReason) {
        let Some(socket) = self.sockets.get_mut(slot as usize).and_then(Option::take) else { return };
        self.unsent_sockets -= usize::from(socket.unsent() > 0);
        self.out.clear();
        sessions.close(slot, reason);
        sessions.release(slot);
    }

    fn has_unsent(&self) -> bool {
        self.unsent_sockets > 0
    }

    fn each_unread(&self, see: &mut dyn FnMut(u32, usize, MonotonicTime)) {
        for (slot, socket) in self.sockets.iter().enumerate() {
            if let Some(socket) = socket.as_ref().filter(|socket| socket.unsent() > 0) {
                see(slot as u32, socket.unsent(), socket.last_sent);
            }
        }
    }
}
