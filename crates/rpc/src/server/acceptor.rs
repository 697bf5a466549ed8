//! The thread that takes new connections and hands each to the worker with the fewest.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;
use socket2::Socket;
use yb_env::spawn_thread;
use yb_secure::Security;

use super::counters::ServerCounters;
use super::guests::{Guest, Guests};
use super::listener::BoundListener;
use super::mailbox::{Letter, Mailbox};
use super::service::ListenerTag;
use crate::RpcAddress;

/// Connections taken from one listener before the others are looked at.
const BURST: usize = 256;
/// Pause after an accept failed for want of resources; the connection waits in the backlog.
const OUT_OF_RESOURCES_MS: i64 = 20;

type Door = (Arc<Mailbox>, Arc<AtomicUsize>);

/// The running acceptor.
#[derive(Debug)]
pub(super) struct Acceptor {
    thread: Option<JoinHandle<()>>,
    stop: Arc<OwnedFd>,
}

struct State {
    listeners: Vec<(OwnedFd, BoundListener)>,
    doors: Vec<Door>,
    limits: Arc<Entrance>,
    counters: Arc<ServerCounters>,
    /// One thread uses them.
    guests: Mutex<Guests>,
}

/// A connection that was let in.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) tag: ListenerTag,
    /// `None` on a UNIX socket.
    pub(crate) peer: Option<SocketAddr>,
    /// The measure of its address; `None` on a UNIX socket.
    pub(crate) guest: Option<Arc<Guest>>,
}

/// What the acceptor needs to know of the limits.
#[derive(Debug)]
pub(super) struct Entrance {
    pub(super) max_connections: AtomicUsize,
    pub(super) max_connections_per_address: usize,
    pub(super) tcp_no_delay: bool,
    pub(super) security: Option<Arc<Security>>,
}

impl Acceptor {
    pub(super) fn start(
        listeners: Vec<(OwnedFd, BoundListener)>,
        doors: Vec<Door>,
        limits: Arc<Entrance>,
        counters: Arc<ServerCounters>,
    ) -> io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let stopped = Arc::clone(&stop);
        let state = State { listeners, doors, limits, counters, guests: Mutex::default() };
        let thread = spawn_thread("yb-rpc-accept", move || state.run(&stopped))?;
        Ok(Acceptor { thread: Some(thread), stop })
    }

    /// Closes the listeners and waits for the thread.
    pub(super) fn stop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        // Cannot fail: the counter starts at zero and is written once.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if thread.join().is_err() {
            tracing::error!("the RPC acceptor panicked");
        }
    }
}

impl State {
    fn run(self, stop: &OwnedFd) {
        loop {
            let mut waits: Vec<PollFd<'_>> = vec![PollFd::new(stop, PollFlags::IN)];
            waits.extend(self.listeners.iter().map(|(socket, _)| PollFd::new(socket, PollFlags::IN)));
            match poll(&mut waits, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the RPC acceptor cannot wait and stops");
                    break;
                }
            }
            let ready: Vec<bool> = waits.iter().map(|wait| !wait.revents().is_empty()).collect();
            if ready.first().copied().unwrap_or(true) {
                break;
            }
            for ((socket, bound), _) in self.listeners.iter().zip(&ready[1..]).filter(|(_, ready)| **ready) {
                if let Err(error) = self.take(socket, bound) {
                    self.counters.acceptor().accept_errors.add(1);
                    tracing::warn!(%error, listener = %bound.address, "cannot take a connection");
                    let pause = rustix::event::Timespec { tv_sec: 0, tv_nsec: OUT_OF_RESOURCES_MS * 1_000_000 };
                    // Waits for the stop signal or the pause; the loop looks at the signal itself.
                    let _ = poll(&mut [PollFd::new(stop, PollFlags::IN)], Some(&pause));
                }
            }
        }
        for (_, bound) in &self.listeners {
            if let RpcAddress::Unix(path) = &bound.address {
                // Someone may have removed it before us.
                let _ = std::fs::remove_file(path);
            }
        }
    }

    /// Takes what waits at one listener.
    fn take(&self, listener: &OwnedFd, bound: &BoundListener) -> io::Result<()> {
        for _ in 0..BURST {
            match rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok(socket) => self.hand_over(socket, bound),
                Err(Errno::AGAIN) => return Ok(()),
                // The peer gave up while waiting.
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn hand_over(&self, socket: OwnedFd, bound: &BoundListener) {
        let counters = self.counters.acceptor();
        let open: usize = self.doors.iter().map(|(_, load)| load.load(Ordering::Relaxed)).sum();
        if open >= self.limits.max_connections.load(Ordering::Relaxed) {
            counters.connections_refused.add(1);
            return;
        }
        let socket = Socket::from(socket);
        let mut peer: Option<SocketAddr> = None;
        let mut guest = None;
        if bound.tcp().is_some() {
            peer = socket.peer_addr().ok().and_then(|address| address.as_socket());
            // Who has left already is nobody's guest.
            let Some(address) = peer else { return };
            guest = self.guests.lock().enter(address.ip(), self.limits.max_connections_per_address);
            if guest.is_none() {
                counters.connections_refused_by_address.add(1);
                return;
            }
            // Only latency suffers when this fails.
            let _ = socket.set_tcp_nodelay(self.limits.tcp_no_delay);
        }
        let Some((mailbox, load)) = self.doors.iter().min_by_key(|(_, load)| load.load(Ordering::Relaxed)) else {
            return;
        };
        load.fetch_add(1, Ordering::Relaxed);
        counters.connections_accepted.add(1);
        let arrival = Arrival { tag: bound.tag, peer, guest };
        match (&self.limits.security, peer) {
            (Some(security), Some(peer)) => {
                let (mailbox, load, counters) = (Arc::clone(mailbox), Arc::clone(load), Arc::clone(&self.counters));
                security.admit("rpc", socket, peer, move |admitted| match admitted {
                    Some(admitted) => mailbox.post(Letter::Adopt { socket: admitted.socket.into(), arrival }),
                    None => {
                        load.fetch_sub(1, Ordering::Relaxed);
                        counters.turned_away.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            _ => mailbox.post(Letter::Adopt { socket: socket.into(), arrival }),
        }
    }
}
