//! The server: listeners, an acceptor thread, and workers that own their connections.

mod acceptor;
mod backend;
mod counters;
mod desk;
mod epoll;
mod gather;
mod guests;
mod limits;
mod listener;
mod mailbox;
mod service;
mod session;
mod uring;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use yb_env::{Clock, spawn_thread};
use yb_secure::Security;

use crate::RpcAddress;

use acceptor::{Acceptor, Entrance};
pub use counters::{CounterSnapshot, ServerCounters};
pub use desk::{Answered, Desk};
use epoll::EpollBackend;
pub use limits::ServerLimits;
pub use listener::{BoundListener, Listener, OpenListeners};
use mailbox::{Letter, Mailbox};
pub use service::{DeferredReply, ListenerTag, Outcome, Reply, Request, Service};
use session::Sessions;
use uring::UringBackend;
use worker::Worker;

/// Which kernel interface the workers use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// io_uring if a probe at start succeeds, else epoll.
    #[default]
    Auto,
    /// epoll.
    Epoll,
    /// io_uring; the start fails where it is not available.
    Uring,
}

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Worker threads, at least 1.
    pub workers: usize,
    /// The kernel interface.
    pub backend: BackendChoice,
    /// Cores that the workers are pinned to, in turn; empty: not pinned.
    pub cores: Vec<usize>,
    /// What a peer may cost.
    pub limits: ServerLimits,
    /// The clock behind `Request::now` and the deadlines.
    pub clock: Clock,
    /// Who may connect over TCP, and how; `None`: everybody, over the plain wire.
    pub security: Option<Arc<Security>>,
}

impl Default for ServerSettings {
    fn default() -> Self {
        ServerSettings {
            workers: 1,
            backend: BackendChoice::Auto,
            cores: Vec::new(),
            limits: ServerLimits::default(),
            clock: Clock::real(),
            security: None,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener could not be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// What was to be bound.
        address: RpcAddress,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A worker could not be set up.
    #[error("cannot start an RPC worker: {0}")]
    Worker(#[from] std::io::Error),
    /// io_uring was asked for and is not available.
    #[error("io_uring is not available here ({0}); choose epoll or auto")]
    NoUring(std::io::Error),
}

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    listeners: Vec<BoundListener>,
    counters: Arc<ServerCounters>,
    limit: ConnectionLimit,
    mailboxes: Vec<Arc<Mailbox>>,
    acceptor: Acceptor,
    threads: Vec<JoinHandle<()>>,
    backend: BackendChoice,
}

/// How many connections a running server lets in; clones are of the same server.
#[derive(Clone, Debug)]
pub struct ConnectionLimit(Arc<Entrance>);

impl ConnectionLimit {
    /// From now on no more than `most`; those that are open stay.
    pub fn set(&self, most: usize) {
        self.0.max_connections.store(most, Ordering::Relaxed);
    }
}

impl Server {
    /// Binds the listeners, then starts the workers and the acceptor.
    ///
    /// # Errors
    /// See [`StartError`]; nothing keeps running after one.
    pub fn start<S: Service>(
        settings: ServerSettings,
        listeners: &[Listener],
        service: Arc<S>,
    ) -> Result<Server, StartError> {
        Server::start_on(settings, OpenListeners::open(listeners)?, service)
    }

    /// Starts the workers and the acceptor on listeners that are open.
    ///
    /// # Errors
    /// See [`StartError`]; nothing keeps running after one.
    pub fn start_on<S: Service>(
        settings: ServerSettings,
        listeners: OpenListeners,
        service: Arc<S>,
    ) -> Result<Server, StartError> {
        let backend = choose(settings.backend)?;
        let OpenListeners(bound) = listeners;
        let workers = settings.workers.max(1);
        let counters = Arc::new(ServerCounters::new(workers));
        let mut started = Vec::new();
        for index in 0..workers {
            let worker = start_worker(&settings, backend, index, &service, &counters);
            match worker {
                Ok(worker) => started.push(worker),
                Err(error) => {
                    stop_workers(started);
                    return Err(error.into());
                }
            }
        }
        let doors = started.iter().map(|w| (Arc::clone(&w.mailbox), Arc::clone(&w.load))).collect();
        let addresses = bound.iter().map(|(_, bound)| bound.clone()).collect();
        let ServerLimits { max_connections, max_connections_per_address, tcp_no_delay, .. } = settings.limits;
        let entrance = Arc::new(Entrance {
            max_connections: AtomicUsize::new(max_connections),
            max_connections_per_address,
            tcp_no_delay,
            security: settings.security.clone(),
        });
        let acceptor = Acceptor::start(bound, doors, Arc::clone(&entrance), Arc::clone(&counters));
        let acceptor = match acceptor {
            Ok(acceptor) => acceptor,
            Err(error) => {
                stop_workers(started);
                return Err(error.into());
            }
        };
        let (mailboxes, threads) = started.into_iter().map(|w| (w.mailbox, w.thread)).unzip();
        let limit = ConnectionLimit(entrance);
        Ok(Server { listeners: addresses, counters, limit, mailboxes, acceptor, threads, backend })
    }

    /// The listeners with their real ports, in the order given.
    pub fn listeners(&self) -> &[BoundListener] {
        &self.listeners
    }

    /// A handle on the number of connections that are let in.
    pub fn connection_limit(&self) -> ConnectionLimit {
        self.limit.clone()
    }

    /// The counters; they outlive the server.
    pub fn counters(&self) -> Arc<ServerCounters> {
        Arc::clone(&self.counters)
    }

    /// The backend in use: never `Auto`.
    pub fn backend(&self) -> BackendChoice {
        self.backend
    }

    /// Stops listening, closes every connection and waits for the threads. Deferred replies that come later vanish.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.acceptor.stop();
        self.mailboxes.iter().for_each(|mailbox| mailbox.post(Letter::Stop));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("an RPC worker panicked");
            }
        }
    }
}

struct StartedWorker {
    mailbox: Arc<Mailbox>,
    load: Arc<AtomicUsize>,
    thread: JoinHandle<()>,
}

fn stop_workers(started: Vec<StartedWorker>) {
    for worker in started {
        worker.mailbox.post(Letter::Stop);
        // A worker that panicked has stopped as well.
        let _ = worker.thread.join();
    }
}

fn choose(wanted: BackendChoice) -> Result<BackendChoice, StartError> {
    if wanted == BackendChoice::Epoll {
        return Ok(wanted);
    }
    // On a thread of its own: what the kernel does to end a ring interrupts system calls of the thread that used it.
    let probed = spawn_thread("yb-rpc-probe", yb_uring::probe)?.join();
    match probed.unwrap_or_else(|_| Err(std::io::Error::other("the probe panicked"))) {
        Ok(()) => Ok(BackendChoice::Uring),
        Err(error) if wanted == BackendChoice::Uring => Err(StartError::NoUring(error)),
        Err(error) => {
            tracing::info!(%error, "io_uring is not available, using epoll");
            Ok(BackendChoice::Epoll)
        }
    }
}

/// Starts one worker and waits until its backend stands.
fn start_worker<S: Service>(
    settings: &ServerSettings,
    backend: BackendChoice,
    index: usize,
    service: &Arc<S>,
    counters: &Arc<ServerCounters>,
) -> std::io::Result<StartedWorker> {
    let mailbox = Arc::new(Mailbox::new()?);
    let load = Arc::new(AtomicUsize::new(0));
    let sessions = Sessions::new(
        Arc::clone(service),
        Arc::clone(&mailbox),
        settings.limits.clone(),
        Arc::clone(counters),
        index,
        Arc::clone(&load),
    );
    let core = settings.cores.get(index % settings.cores.len().max(1)).copied();
    let (box_of_thread, limits, clock) = (Arc::clone(&mailbox), settings.limits.clone(), settings.clock.clone());
    let (ready, stands) = mpsc::channel();
    let thread = spawn_thread(&format!("yb-rpc-{index}"), move || {
        pin(core);
        let mailbox = box_of_thread;
        // The ring belongs to the thread that made it, so the backend is made here.
        match backend {
            BackendChoice::Uring => match UringBackend::new(&mailbox) {
                Ok(backend) => {
                    // The starter waits for this.
                    let _ = ready.send(Ok(()));
                    Worker { sessions, backend, mailbox, limits, clock }.run();
                }
                Err(error) => drop(ready.send(Err(error))),
            },
            _ => match EpollBackend::new(Arc::clone(&mailbox)) {
                Ok(backend) => {
                    let _ = ready.send(Ok(()));
                    Worker { sessions, backend, mailbox, limits, clock }.run();
                }
                Err(error) => drop(ready.send(Err(error))),
            },
        }
    })?;
    match stands.recv() {
        Ok(Ok(())) => Ok(StartedWorker { mailbox, load, thread }),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(std::io::Error::other("the worker died while starting")),
    }
}

fn pin(core: Option<usize>) {
    let Some(core) = core else { return };
    let mut set = rustix::thread::CpuSet::new();
    set.set(core);
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        tracing::warn!(%error, core, "an RPC worker cannot be pinned");
    }
}
