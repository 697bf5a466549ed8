//! The serving side of an engine: its sockets, bound before anything is published, and what is behind them.

use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use yb_env::Rng;

use crate::control::ControlPort;
use crate::segment::endpoint_fault;
use crate::settings::EngineSettings;
use crate::shm::server::ShmPort;
use crate::tcp::server::DataPort;

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Connections cannot be secured as asked for.
    #[error(transparent)]
    Security(#[from] yb_secure::SecurityError),
    /// A socket could not be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Another process listens at that port.
    #[error("cannot listen on {0}: the port is in use; choose another, or 0 to let the kernel choose")]
    PortInUse(SocketAddr),
    /// Peers could not connect to the advertised host.
    #[error("peers cannot connect to the advertised host {0:?}: a host name or an address is needed, without a port")]
    UnusableHost(String),
    /// Peers cannot be told to connect to "any address".
    #[error("listening on {0} needs an advertised host that peers can connect to")]
    NoAdvertisedHost(SocketAddr),
    /// The memory device of the settings cannot be used.
    #[error("the memory device {path}: {source}")]
    Device {
        /// Where it is.
        path: std::path::PathBuf,
        /// Why.
        source: yb_mem::MapError,
    },
    /// The metadata store did not take the engine's records.
    #[error("the name {name:?} cannot be published: {source}")]
    Metadata {
        /// The engine's name.
        name: String,
        /// Why.
        source: yb_metadata::StoreError,
    },
    /// An engine of that name lives.
    #[error("the name {name:?} is taken: the engine that has it answers at {address}")]
    NameTaken {
        /// The name asked for.
        name: String,
        /// Where the other engine answers.
        address: String,
    },
    /// An engine with a store needs a name, and one with a name needs something to serve.
    #[error("an engine that serves peers through a metadata store needs a name without control characters")]
    NoName,
    /// RDMA is required and cannot be used.
    #[error("RDMA is required and cannot be used: {reason}")]
    Rdma {
        /// One sentence.
        reason: String,
    },
    /// The system refused something else that the engine needs.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// The listening sockets of an engine, bound before anything is published.
pub(crate) struct Sockets {
    pub(crate) handshake: TcpListener,
    pub(crate) data: TcpListener,
    host: String,
    data_threads: usize,
}

fn listen(address: SocketAddr, backlog: i32) -> Result<TcpListener, StartError> {
    let bind = || {
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        if address.ip().is_unspecified() && address.is_ipv6() {
            // Any address means those of IPv4 too, whatever the system's default is.
            socket.set_only_v6(false)?;
        }
        socket.bind(&address.into())?;
        yb_env::end_when_vanished(&socket)?;
        socket.listen(backlog)?;
        socket.set_nonblocking(true)?;
        Ok(TcpListener::from(socket))
    };
    bind().map_err(|source: std::io::Error| match source.kind() {
        std::io::ErrorKind::AddrInUse => StartError::PortInUse(address),
        _ => StartError::Listen { address, source },
    })
}

/// Most ports that are tried in a range.
const PORT_DRAWS: usize = 500;

/// Listens; a port 0 becomes one of the range that the settings allow, or the kernel's choice.
fn listen_within(address: SocketAddr, settings: &EngineSettings) -> Result<TcpListener, StartError> {
    let Some(range) = settings.port_range.as_ref().filter(|range| address.port() == 0 && !range.is_empty()) else {
        return listen(address, settings.backlog);
    };
    let mut rng = Rng::from_entropy();
    let count = u64::from(range.end() - range.start()) + 1;
    let mut refused = None;
    for _ in 0..PORT_DRAWS {
        let port = range.start() + rng.below(count) as u16;
        let mut place = address;
        place.set_port(port);
        match listen(place, settings.backlog) {
            Ok(listener) => return Ok(listener),
            Err(error) => refused = Some(error),
        }
    }
    match refused {
        Some(error) => Err(error),
        None => listen(address, settings.backlog),
    }
}

/// The advertised host without brackets.
fn usable(host: &str) -> Result<String, StartError> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match endpoint_fault(&format!("[{bare}]:1")) {
        None if !bare.contains(':') || bare.split('%').next().is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok()) => {
            Ok(bare.to_owned())
        }
        _ => Err(StartError::UnusableHost(host.to_owned())),
    }
}

/// The host of an address, with its scope where it has one.
fn host_of(address: SocketAddr) -> String {
    match address {
        SocketAddr::V6(v6) if v6.scope_id() != 0 => format!("{}%{}", v6.ip(), v6.scope_id()),
        _ => address.ip().to_string(),
    }
}

impl Sockets {
    pub(crate) fn bind(address: SocketAddr, settings: &EngineSettings) -> Result<Self, StartError> {
        let same_host = || {
            let mut data = address;
            data.set_port(0);
            data
        };
        let data = settings.data_listen.unwrap_or_else(same_host);
        let host = match &settings.advertise_host {
            Some(host) => usable(host)?,
            None if address.ip().is_unspecified() => return Err(StartError::NoAdvertisedHost(address)),
            None => host_of(address),
        };
        Ok(Sockets {
            handshake: listen_within(address, settings)?,
            data: listen_within(data, settings)?,
            host,
            data_threads: settings.data_threads,
        })
    }

    pub(crate) fn serving(&self, shm: bool) -> Result<Serving, StartError> {
        let os = |what| move |source| StartError::Os { what, source };
        let port = self.handshake.local_addr().map_err(os("reading the handshake port"))?.port();
        let data_port = self.data.local_addr().map_err(os("reading the data port"))?.port();
        let host = &self.host;
        let endpoint = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
        Ok(Serving {
            endpoint: endpoint.into(),
            host: host.clone(),
            data_port,
            shm: if shm { open_shm() } else { None },
            control: Arc::new(ControlPort::new().map_err(os("preparing the control thread"))?),
            data: Arc::new(DataPort::new(self.data_threads).map_err(os("preparing the data threads"))?),
        })
    }
}

/// Shared memory is a help, not a need: without it, peers use TCP.
fn open_shm() -> Option<Arc<ShmPort>> {
    match ShmPort::open(Rng::from_entropy()) {
        Ok(port) => Some(Arc::new(port)),
        Err(error) => {
            tracing::warn!(%error, "no shared memory is offered; peers on this host use TCP");
            None
        }
    }
}

/// What a serving engine tells its peers, and the threads behind it.
pub(crate) struct Serving {
    pub(crate) endpoint: Arc<str>,
    pub(crate) host: String,
    pub(crate) data_port: u16,
    pub(crate) shm: Option<Arc<ShmPort>>,
    pub(crate) control: Arc<ControlPort>,
    pub(crate) data: Arc<DataPort>,
}
