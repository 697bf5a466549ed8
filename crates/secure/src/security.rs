//! What a process part uses: who may connect to it, and how it connects to others.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use socket2::Socket;
use yb_env::Clock;

use crate::hello::{Mode, Refusal};
use crate::material::{Material, Safe};
use crate::networks::Networks;
use crate::porter::{Admitted, Porter, Task, Tools};
use crate::settings::{SecurityError, SecuritySettings};
use crate::shake::{ClientRules, ClientShake, SecureError, ServerRules, ServerShake};
use crate::watch::{SecurityStats, Watch, Why};

/// How long a connection that came in may take until it is secured.
const PATIENCE: Duration = Duration::from_secs(2);
/// Most connections that are being secured, or are secured by TLS, at the same time.
const MOST: usize = 32_768;
/// Most threads that secure connections and encrypt.
const THREADS: usize = 4;

/// Secret, TLS and addresses of one part of a process. Its threads start with the first connection that needs them.
pub struct Security {
    settings: SecuritySettings,
    plain_from: Arc<Networks>,
    plain_to: Networks,
    safe: Arc<Safe>,
    watch: Arc<Watch>,
    clock: Clock,
    porters: OnceLock<Vec<Porter>>,
}

impl fmt::Debug for Security {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Security").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Two are the same when they were set up the same way.
impl PartialEq for Security {
    fn eq(&self, other: &Self) -> bool {
        self.settings == other.settings
    }
}

impl Eq for Security {}

impl Security {
    /// As the environment of this process says; see [`SecuritySettings::from_env`] and [`Security::open`].
    ///
    /// # Errors
    /// As there.
    pub fn from_env() -> Result<Option<Arc<Self>>, SecurityError> {
        Security::open(&SecuritySettings::from_env(|name| std::env::var(name).ok())?)
    }

    /// Reads all files. `None`: nothing is asked for, everybody speaks the plain wire, and nothing of this crate runs.
    ///
    /// # Errors
    /// What cannot be had as asked for; see [`SecurityError`].
    pub fn open(settings: &SecuritySettings) -> Result<Option<Arc<Self>>, SecurityError> {
        settings.check()?;
        if settings.is_plain() {
            return Ok(None);
        }
        let clock = Clock::real();
        let safe = Arc::new(Safe::open(settings, clock.clone())?);
        let from = settings.plain_from.clone();
        let plain_from = from.unwrap_or_else(|| if settings.secures() { Networks::none() } else { Networks::Any });
        Ok(Some(Arc::new(Security {
            plain_from: Arc::new(plain_from),
            plain_to: settings.plain_to.clone().unwrap_or_else(Networks::none),
            settings: settings.clone(),
            safe,
            watch: Arc::default(),
            clock,
            porters: OnceLock::new(),
        })))
    }

    /// Whether this process can take connections as it makes them.
    ///
    /// # Errors
    /// It makes TLS connections, but has no certificate to show to those who connect to it.
    pub fn can_serve(&self) -> Result<(), SecurityError> {
        let material = self.safe.material();
        if material.client.is_some() && material.server.is_none() {
            let text = "tls_ca without tls_cert and tls_key: nobody could connect to this process by TLS";
            return Err(SecurityError::Conflict(text));
        }
        Ok(())
    }

    /// How secured connections that come in must be; `None`: there are none.
    fn serving(&self, material: &Material) -> Option<Mode> {
        let mode = Mode { secret: material.secret.is_some(), tls: material.server.is_some() };
        (mode.secret || mode.tls).then_some(mode)
    }

    /// How connections to that address are made; `None`: plain.
    fn dialling(&self, material: &Material, to: IpAddr) -> Option<Mode> {
        let mode = Mode { secret: material.secret.is_some(), tls: material.client.is_some() };
        ((mode.secret || mode.tls) && !self.plain_to.contains(to)).then_some(mode)
    }

    /// What came of the connections that were taken.
    pub fn stats(&self) -> SecurityStats {
        let under_way = self.porters.get().into_iter().flatten().map(Porter::load).sum::<usize>() as u64;
        SecurityStats { in_care: under_way, ..self.watch.counters.stats() }
    }

    /// When the own certificate ends, in seconds since 1970, for a metrics page; 0: there is none.
    pub fn certificate_ends(&self) -> u64 {
        self.safe.ends().map_or(0, |end| end.as_secs())
    }

    /// Whether the plain wire is taken from that address. For protocols that know nothing else, such as HTTP; a refusal is
    /// counted and logged.
    pub fn takes_plain(&self, plane: &'static str, peer: IpAddr) -> bool {
        let taken = self.plain_from.contains(peer);
        if taken {
            self.watch.plain();
        } else {
            self.watch.refused(plane, peer, &Why::Plain, self.clock.now());
        }
        taken
    }

    /// Judges a connection that came in; `then` gets what may be used, or `None`, at once or on another thread, and must
    /// not block. `plane` is its name in the log.
    pub fn admit<F>(&self, plane: &'static str, socket: Socket, peer: SocketAddr, then: F)
    where
        F: FnOnce(Option<Admitted>) + Send + 'static,
    {
        let material = self.safe.material();
        let peer = peer.ip().to_canonical();
        let Some(mode) = self.serving(&material) else {
            let taken = self.takes_plain(plane, peer);
            return then(taken.then_some(Admitted { socket, passage: None }));
        };
        let Some(porter) = self.porter() else {
            let why = Why::Failed(SecureError::Refused(Refusal::Crowded));
            self.watch.refused(plane, peer, &why, self.clock.now());
            return then(None);
        };
        let rules = ServerRules { mode, material, plain_from: Arc::clone(&self.plain_from), peer };
        let task = Task::Serve { shake: ServerShake::new(rules), plane, peer, then: Box::new(then) };
        porter.take(socket, task, self.clock.now() + PATIENCE);
    }

    /// Secures a connection that was made; `None`: connections to that address are plain, and the socket is returned.
    ///
    /// # Errors
    /// No descriptor or thread; or too many connections.
    pub fn dial(&self, socket: Socket, server: SocketAddr, limit: Duration) -> io::Result<Dialled> {
        let material = self.safe.material();
        let Some(mode) = self.dialling(&material, server.ip()) else { return Ok(Dialled::Plain(socket)) };
        let porter = self.porter().ok_or_else(|| io::Error::other("too many secured connections"))?;
        let desk = Arc::new(Slot {
            result: Mutex::new(None),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        });
        let rules = ClientRules { mode, material, tls_name: self.settings.tls_name.clone(), server: server.ip() };
        let slot = Arc::clone(&desk);
        let then = move |result: Result<Admitted, SecureError>| {
            *slot.result.lock() = Some(result.map(|admitted| admitted.socket));
            // The count starts at zero and is written once.
            let _ = rustix::io::write(&slot.bell, &1u64.to_ne_bytes());
        };
        let task = Task::Dial { shake: ClientShake::new(rules), then: Box::new(then) };
        porter.take(socket, task, self.clock.now() + limit);
        Ok(Dialled::Pending(Pending(desk)))
    }

    /// Whether connections to that address are secured.
    pub fn secures(&self, to: IpAddr) -> bool {
        self.dialling(&self.safe.material(), to).is_some()
    }

    /// The porter with the least to do; `None`: all have too much, or no thread can be had.
    fn porter(&self) -> Option<&Porter> {
        let start = || {
            let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get).min(THREADS);
            let tools =
                || Tools { clock: self.clock.clone(), watch: Arc::clone(&self.watch), safe: Arc::clone(&self.safe) };
            let porters = (0..threads).map(|_| Porter::start(tools()));
            let started: io::Result<Vec<Porter>> = porters.collect();
            started.unwrap_or_else(|error| {
                tracing::error!(%error, "connections cannot be secured: no threads");
                Vec::new()
            })
        };
        let porters = self.porters.get_or_init(start);
        let total: usize = porters.iter().map(Porter::load).sum();
        porters.iter().min_by_key(|porter| porter.load()).filter(|_| total < MOST)
    }
}

/// A connection that was made.
#[derive(Debug)]
pub enum Dialled {
    /// It stays plain.
    Plain(Socket),
    /// It is being secured.
    Pending(Pending),
}

impl Dialled {
    /// Waits until it can be used. The socket does not block.
    ///
    /// # Errors
    /// Why it is not secured.
    pub fn wait(self, limit: Duration) -> Result<Socket, SecureError> {
        match self {
            Dialled::Plain(socket) => Ok(socket),
            Dialled::Pending(pending) => pending.wait(limit),
        }
    }
}

#[derive(Debug)]
struct Slot {
    result: Mutex<Option<Result<Socket, SecureError>>>,
    bell: OwnedFd,
}

/// A connection that is being secured. Its descriptor can be read from as soon as there is a result.
#[derive(Debug)]
pub struct Pending(Arc<Slot>);

impl Pending {
    /// The result, once; `None`: not yet.
    pub fn take(&self) -> Option<Result<Socket, SecureError>> {
        self.0.result.lock().take()
    }

    fn wait(&self, limit: Duration) -> Result<Socket, SecureError> {
        let clock = Clock::real();
        let until = clock.now() + limit;
        loop {
            if let Some(result) = self.take() {
                return result;
            }
            let left = until.since(clock.now());
            if left.is_zero() {
                return Err(SecureError::TimedOut);
            }
            let wait = Timespec::try_from(left).ok();
            // An error or a signal: the loop looks again.
            let _ = poll(&mut [PollFd::new(&self.0.bell, PollFlags::IN)], wait.as_ref());
        }
    }
}

impl AsFd for Pending {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }
}
