//! The control thread: answers handshakes.
//!
//! Every connection is a small state machine, so a silent client holds up nobody; the oldest silent one makes room
//! when there are too many.

use std::collections::BTreeMap;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use yb_types::MonotonicTime;

use crate::engine::Shared;
use crate::handshake::frame::Frame;
use crate::handshake::reply::{Answer, Mailbox, answer};
use crate::handshake::session::{Session, Wants};
use crate::reactor::Reactor;

const LISTENER: u64 = 0;
const SWEEP: Duration = Duration::from_millis(250);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The control thread, seen from the others.
pub(crate) struct ControlPort {
    pub(crate) reactor: Reactor,
    pub(crate) mailbox: Mutex<Mailbox>,
    stop: AtomicBool,
}

impl ControlPort {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(ControlPort { reactor: Reactor::new()?, mailbox: Mutex::default(), stop: AtomicBool::new(false) })
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.reactor.wake();
    }
}

pub(crate) struct ControlThread {
    shared: Arc<Shared>,
    port: Arc<ControlPort>,
    listener: TcpListener,
    sessions: BTreeMap<u64, (Session, Wants)>,
    next_token: u64,
    swept: MonotonicTime,
}

impl ControlThread {
    pub(crate) fn new(shared: Arc<Shared>, port: Arc<ControlPort>, listener: TcpListener) -> Self {
        let swept = shared.clock.now();
        ControlThread { shared, port, listener, sessions: BTreeMap::new(), next_token: LISTENER + 1, swept }
    }

    /// Serves until the port is stopped.
    pub(crate) fn run(mut self) {
        let port = Arc::clone(&self.port);
        if let Err(error) = port.reactor.add(&self.listener, LISTENER, Wants::Read) {
            tracing::error!(%error, "the handshake port cannot be watched; no peer can open this engine");
        }
        let mut ready = Vec::new();
        while !port.stop.load(Ordering::SeqCst) {
            let timeout = (!self.sessions.is_empty()).then_some(SWEEP);
            if let Err(error) = port.reactor.wait(&mut ready, timeout) {
                tracing::error!(%error, "the control thread cannot wait for its sockets and ends");
                return;
            }
            for token in &ready {
                if *token == LISTENER { self.accept() } else { self.advance(*token) }
            }
            self.sweep();
        }
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => self.adopt(stream),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a handshake");
                    yb_env::sleep(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn adopt(&mut self, stream: TcpStream) {
        if self.sessions.len() >= self.shared.settings.max_handshakes
            && let Some(oldest) = self.sessions.keys().next().copied()
        {
            self.shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            self.close(oldest);
        }
        let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        let token = self.next_token;
        self.next_token += 1;
        if ready.and_then(|()| self.port.reactor.add(&stream, token, Wants::Read)).is_ok() {
            let deadline = self.shared.clock.now() + self.shared.settings.silent_timeout;
            self.sessions.insert(token, (Session::new(stream, deadline), Wants::Read));
        }
    }

    fn advance(&mut self, token: u64) {
        let Some((session, wanted)) = self.sessions.get_mut(&token) else { return };
        let (shared, port) = (&self.shared, &self.port);
        let answered = session.is_answered();
        let wants = session.advance(shared.settings.handshake_max_length, |frame| reply(frame, shared, &port.mailbox));
        if !answered && session.is_answered() {
            session.deadline = shared.clock.now() + shared.settings.progress_timeout;
        }
        if wants == Wants::Close || (wants != *wanted && port.reactor.change(&session.stream, token, wants).is_err()) {
            if !answered && !session.is_answered() {
                shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            }
            return self.close(token);
        }
        *wanted = wants;
    }

    fn sweep(&mut self) {
        let now = self.shared.clock.now();
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let late = self.sessions.iter().filter(|(_, (session, _))| session.deadline <= now);
        let late: Vec<(u64, bool)> = late.map(|(token, (session, _))| (*token, session.is_answered())).collect();
        for (token, answered) in late {
            if !answered {
                self.shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            }
            self.close(token);
        }
    }

    fn close(&mut self, token: u64) {
        if let Some((session, _)) = self.sessions.remove(&token) {
            self.port.reactor.remove(&session.stream);
        }
    }
}

fn reply(frame: &Frame<'_>, shared: &Shared, mailbox: &Mutex<Mailbox>) -> Option<Vec<u8>> {
    match answer(frame, || shared.own_desc().to_json(&crate::metadata::timestamp(yb_env::epoch_millis()))) {
        Answer::Reply(bytes) => Some(bytes),
        Answer::Keep(notification, bytes) => {
            mailbox.lock().put(notification, shared.settings.max_notifications);
            Some(bytes)
        }
        Answer::Close => None,
    }
}
