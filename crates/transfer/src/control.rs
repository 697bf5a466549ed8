//! The control thread: answers handshakes, and hands memory to peers on this host.
//!
//! Every connection is a small state machine, so a silent client holds up nobody; the oldest silent one makes room
//! when there are too many.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::Socket;
use yb_types::MonotonicTime;

use crate::engine::Shared;
use crate::handshake::frame::Frame;
use crate::handshake::reply::{Answer, Answers, Mailbox, answer};
use crate::handshake::session::{Session, Wants};
use crate::reactor::{Reactor, Ready};
use crate::shm::server::{self as shm, ShmPort};

const LISTENER: u64 = 0;
const SHM_LISTENER: u64 = 1;
const FIRST_SESSION: u64 = 2;
const SWEEP: Duration = Duration::from_millis(250);
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The control thread, seen from the others.
pub(crate) struct ControlPort {
    pub(crate) reactor: Reactor,
    pub(crate) mailbox: Mutex<Mailbox>,
    /// Connections that were let in by another thread, and how many are being judged.
    handed_over: Mutex<Vec<Socket>>,
    judged: AtomicUsize,
    stop: AtomicBool,
}

impl ControlPort {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(ControlPort {
            reactor: Reactor::new()?,
            mailbox: Mutex::default(),
            handed_over: Mutex::default(),
            judged: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        })
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
    shm_sessions: BTreeMap<u64, (shm::Session, MonotonicTime)>,
    next_token: u64,
    swept: MonotonicTime,
}

impl ControlThread {
    pub(crate) fn new(shared: Arc<Shared>, port: Arc<ControlPort>, listener: TcpListener) -> Self {
        let swept = shared.clock.now();
        ControlThread {
            shared,
            port,
            listener,
            sessions: BTreeMap::new(),
            shm_sessions: BTreeMap::new(),
            next_token: FIRST_SESSION,
            swept,
        }
    }

    /// Serves until the port is stopped.
    pub(crate) fn run(mut self) {
        let port = Arc::clone(&self.port);
        if let Err(error) = port.reactor.add(&self.listener, LISTENER, Wants::Read) {
            tracing::error!(%error, "the handshake port cannot be watched; no peer can open this engine");
        }
        if let Some(shm) = self.shm()
            && let Err(error) = port.reactor.add(&shm.listener, SHM_LISTENER, Wants::Read)
        {
            tracing::error!(%error, "the shared-memory socket cannot be watched; peers on this host use TCP");
        }
        let mut ready = Ready::default();
        while !port.stop.load(Ordering::SeqCst) {
            let unknown = self.shm_sessions.values().any(|(session, _)| !session.is_known());
            let timeout = (unknown || !self.sessions.is_empty()).then_some(SWEEP);
            if let Err(error) = port.reactor.wait(&mut ready, timeout) {
                tracing::error!(%error, "the control thread cannot wait for its sockets and ends");
                return;
            }
            for token in ready.tokens() {
                match token {
                    LISTENER => self.accept(),
                    SHM_LISTENER => self.accept_shm(),
                    token if self.shm_sessions.contains_key(&token) => self.advance_shm(token),
                    token => self.advance(token),
                }
            }
            for socket in std::mem::take(&mut *port.handed_over.lock()) {
                self.adopt(socket);
            }
            self.sweep();
        }
    }

    fn accept(&mut self) {
        loop {
            match self.listener.accept() {
                Ok((stream, peer)) => self.judge(stream, peer),
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

    /// Lets a connection in, or not.
    fn judge(&mut self, stream: TcpStream, peer: SocketAddr) {
        // Only latency suffers when this fails.
        let _ = stream.set_nodelay(true);
        let Some(security) = &self.shared.settings.security else { return self.adopt(stream.into()) };
        let (port, shared) = (Arc::clone(&self.port), Arc::clone(&self.shared));
        if port.judged.fetch_add(1, Ordering::SeqCst) >= self.shared.settings.max_handshakes {
            port.judged.fetch_sub(1, Ordering::SeqCst);
            shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        security.admit("handshake", stream.into(), peer, move |admitted| {
            port.judged.fetch_sub(1, Ordering::SeqCst);
            match admitted {
                Some(admitted) => {
                    port.handed_over.lock().push(admitted.socket);
                    port.reactor.wake();
                }
                None => drop(shared.counters.refused.fetch_add(1, Ordering::Relaxed)),
            }
        });
    }

    fn adopt(&mut self, stream: Socket) {
        if self.sessions.len() >= self.shared.settings.max_handshakes
            && let Some(oldest) = self.sessions.keys().next().copied()
        {
            self.shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            self.close(oldest);
        }
        let ready = stream.set_nonblocking(true);
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

    fn shm(&self) -> Option<Arc<ShmPort>> {
        self.shared.serving.as_ref().and_then(|serving| serving.shm.clone())
    }

    fn accept_shm(&mut self) {
        let Some(shm) = self.shm() else { return };
        loop {
            match shm.accept() {
                Ok(Some(session)) if self.shm_sessions.len() < self.shared.settings.max_shm_peers => {
                    let token = self.next_token;
                    self.next_token += 1;
                    let deadline = self.shared.clock.now() + self.shared.settings.silent_timeout;
                    if self.port.reactor.add(&session.stream, token, Wants::Read).is_ok() {
                        self.shm_sessions.insert(token, (session, deadline));
                    }
                }
                Ok(_) => {
                    self.shared.counters.refused.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a shared-memory peer");
                    yb_env::sleep(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn advance_shm(&mut self, token: u64) {
        let Some(shm) = self.shm() else { return };
        let Some((session, _)) = self.shm_sessions.get_mut(&token) else { return };
        if session.advance(token, &shm, &self.shared.registry, &self.shared.counters).is_err() {
            self.close_shm(token);
        }
    }

    fn close_shm(&mut self, token: u64) {
        if let Some((session, _)) = self.shm_sessions.remove(&token) {
            self.port.reactor.remove(&session.stream);
        }
        if let Some(shm) = self.shm() {
            shm.forget(token, &self.shared.counters);
        }
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
        let silent = self.shm_sessions.iter().filter(|(_, (session, by))| !session.is_known() && *by <= now);
        for token in silent.map(|(token, _)| *token).collect::<Vec<_>>() {
            self.shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            self.close_shm(token);
        }
    }

    fn close(&mut self, token: u64) {
        if let Some((session, _)) = self.sessions.remove(&token) {
            self.port.reactor.remove(&session.stream);
        }
    }
}

impl Answers for Shared {
    fn own(&self) -> Vec<u8> {
        self.own_desc().to_json(&crate::metadata::timestamp(yb_env::epoch_millis()))
    }

    fn connection(&self, request: &serde_json::Value) -> Option<serde_json::Value> {
        self.paths.connection(request)
    }

    fn met(&self, name: &str) {
        if *name == *self.naming.name
            && let Some(publisher) = &self.naming.publisher
        {
            publisher.met_namesake();
        }
    }
}

fn reply(frame: &Frame<'_>, shared: &Shared, mailbox: &Mutex<Mailbox>) -> Option<Vec<u8>> {
    match answer(frame, shared) {
        Answer::Reply(bytes) => Some(bytes),
        Answer::Keep(notification, bytes) => {
            mailbox.lock().put(notification, shared.settings.max_notifications);
            Some(bytes)
        }
        Answer::Close => None,
    }
}
