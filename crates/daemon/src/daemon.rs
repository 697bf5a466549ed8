//! A running daemon.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use yb_client::Client;
use yb_env::Clock;
use yb_rpc::{Listener, ListenerTag, OpenListeners, Server, ServerLimits, ServerSettings};
use yb_secure::Security;
use yb_wire::side_channel::{port_of, socket_name};

use crate::door::{self, Bell};
use crate::dummies::Dummies;
use crate::hands::Hands;
use crate::host::ThisHost;
use crate::service::{DaemonService, Shared};
use crate::users::Users;

/// Hands that a daemon has at least: that many calls may wait at a time.
const LEAST_HANDS: usize = 16;
/// Hands for each RPC thread beyond that.
const HANDS_PER_THREAD: usize = 16;

/// How a daemon is set up.
#[derive(Clone, Debug)]
pub struct DaemonSettings {
    /// Where RPC calls arrive; port 0 takes any free one.
    pub listen: SocketAddr,
    /// Abstract name of the side channel, without the zero byte before it; `None`: the one that dummies derive from the RPC port.
    pub socket_name: Option<String>,
    /// RPC threads; calls that wait have threads of their own.
    pub threads: usize,
    /// Who may attach.
    pub users: Users,
    /// How long a dummy whose process cannot be seen may be silent.
    pub patience: Duration,
    /// Who may call, and how; `None`: everybody who reaches the port, over the plain wire.
    pub security: Option<Arc<Security>>,
}

impl DaemonSettings {
    /// With the peer's defaults, for RPC at `listen`.
    pub fn at(listen: SocketAddr) -> Self {
        let (users, patience) = (Users::default(), Duration::from_secs(10));
        DaemonSettings { listen, socket_name: None, threads: 1, users, patience, security: None }
    }

    /// For dummies that know the name of the side channel: RPC on loopback, at the port from which dummies derive this
    /// name; at a free one when they could derive it from none.
    ///
    /// ```
    /// let port = |name: &str| yb_daemon::DaemonSettings::behind(name).listen.port();
    /// assert_eq!((port("@mooncake_client_50052.sock"), port("@another")), (50052, 0));
    /// ```
    pub fn behind(socket_name: &str) -> Self {
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port_of(socket_name).unwrap_or_default()));
        DaemonSettings { socket_name: Some(socket_name.to_owned()), ..DaemonSettings::at(listen) }
    }
}

/// Why a daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The RPC server did not start.
    #[error("serving dummy clients: {0}")]
    Rpc(#[from] yb_rpc::StartError),
    /// The side channel could not be opened; often another daemon has the name.
    #[error("the side channel {name} of dummy clients: {source}")]
    SideChannel {
        /// Its name.
        name: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// What a daemon holds for dummies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DaemonStats {
    /// Dummies attached.
    pub dummies: usize,
    /// Their windows.
    pub windows: usize,
    /// Bytes of these.
    pub window_bytes: u64,
}

/// The doors of a daemon, open but with nobody behind them yet: dummies that call wait. A node has them before it tells the
/// master of itself, so that a node whose port is taken disturbs nobody.
#[derive(Debug)]
pub struct Doors {
    settings: DaemonSettings,
    rpc: OpenListeners,
    socket_name: String,
    side_channel: UnixListener,
}

impl Doors {
    /// Opens both.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind.
    pub fn open(settings: &DaemonSettings) -> Result<Doors, StartError> {
        let rpc = OpenListeners::open(&[Listener::tcp(settings.listen, ListenerTag(0))])?;
        let port = rpc.bound().next().and_then(|bound| bound.tcp()).unwrap_or(settings.listen).port();
        let socket_name = settings.socket_name.clone().unwrap_or_else(|| socket_name(port));
        let side_channel = door::listen(&socket_name).map_err(|source| broken(&socket_name, source))?;
        Ok(Doors { settings: settings.clone(), rpc, socket_name, side_channel })
    }

    /// A daemon behind them; `client` does the work.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind.
    pub fn serve(self, client: Client) -> Result<Daemon, StartError> {
        let Doors { settings, rpc, socket_name, side_channel } = self;
        let shared = Arc::new(Shared {
            client,
            dummies: Dummies::default(),
            door: Bell::new().map_err(|source| broken("", source))?,
            clock: Clock::real(),
            users: settings.users.clone(),
            own_uid: rustix::process::geteuid().as_raw(),
        });
        let hands = Hands::new(LEAST_HANDS.max(settings.threads * HANDS_PER_THREAD));
        let service = Arc::new(DaemonService { shared: Arc::clone(&shared), hands, host: ThisHost::default() });
        let of_rpc = ServerSettings {
            workers: settings.threads,
            // Values of a put may travel inside the call.
            limits: ServerLimits { max_body_bytes: u32::MAX, max_buffered_bytes: 8 << 30, ..ServerLimits::default() },
            security: settings.security.clone(),
            ..ServerSettings::default()
        };
        let server = Server::start_on(of_rpc, rpc, Arc::clone(&service))?;
        let address = server.listeners().first().and_then(|bound| bound.tcp()).unwrap_or(settings.listen);
        let patience = settings.patience;
        let watch = yb_env::spawn_thread("yb-daemon-door", move || door::watch(&shared, &side_channel, patience))
            .map_err(|source| broken(&socket_name, source))?;
        Ok(Daemon { server: Some(server), service, address, socket_name, watch: Some(watch) })
    }
}

fn broken(name: &str, source: std::io::Error) -> StartError {
    StartError::SideChannel { name: name.to_owned(), source }
}

/// A daemon; it ends when dropped. The client under it stays with whoever made it.
#[derive(Debug)]
pub struct Daemon {
    server: Option<Server>,
    service: Arc<DaemonService>,
    address: SocketAddr,
    socket_name: String,
    watch: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Opens both doors. `client` does the work.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind.
    pub fn start(settings: &DaemonSettings, client: Client) -> Result<Daemon, StartError> {
        Doors::open(settings)?.serve(client)
    }

    /// Where RPC calls arrive.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Abstract name of the side channel.
    pub fn socket_name(&self) -> &str {
        &self.socket_name
    }

    /// What it holds for dummies now.
    pub fn stats(&self) -> DaemonStats {
        let (dummies, windows, window_bytes) = self.service.shared.dummies.totals();
        DaemonStats { dummies, windows, window_bytes }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.server.take());
        self.service.hands.close();
        self.service.shared.door.close();
        if let Some(watch) = self.watch.take()
            && watch.join().is_err()
        {
            tracing::error!("the thread at the door of the daemon panicked");
        }
    }
}
