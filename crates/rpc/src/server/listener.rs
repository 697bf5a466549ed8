//! Where a server listens.

use std::fs::Permissions;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;

use socket2::{Domain, Protocol, SockAddr, Socket, Type};

use super::StartError;
use super::service::ListenerTag;
use crate::RpcAddress;

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// Names of congestion controls, see [`unpace`].
const PACING: &str = "bbr";
const UNPACED: &str = "reno";

/// A listener to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Where. TCP port 0 takes any free port, `[::]` also takes IPv4 clients. A UNIX socket file left over by a dead
    /// process is replaced, and the file is removed at the end.
    pub address: RpcAddress,
    /// What `Request::tag` says for its connections.
    pub tag: ListenerTag,
}

impl Listener {
    /// A TCP listener.
    pub fn tcp(address: SocketAddr, tag: ListenerTag) -> Self {
        Listener { address: RpcAddress::Tcp(address), tag }
    }

    /// A UNIX listener.
    pub fn unix(path: impl Into<PathBuf>, tag: ListenerTag) -> Self {
        Listener { address: RpcAddress::Unix(path.into()), tag }
    }
}

/// A listener that is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundListener {
    /// The address with its real port.
    pub address: RpcAddress,
    /// Its tag.
    pub tag: ListenerTag,
}

impl BoundListener {
    /// The TCP address, `None` for a UNIX socket.
    pub fn tcp(&self) -> Option<SocketAddr> {
        match self.address {
            RpcAddress::Tcp(address) => Some(address),
            RpcAddress::Unix(_) => None,
        }
    }
}

/// Listeners that are open and that no server serves yet: who connects waits. For those who must have their ports before
/// they tell anybody of them.
#[derive(Debug)]
pub struct OpenListeners(pub(super) Vec<(OwnedFd, BoundListener)>);

impl OpenListeners {
    /// Opens them all, or none.
    ///
    /// # Errors
    /// [`StartError::Listen`] of the first that cannot be had.
    pub fn open(listeners: &[Listener]) -> Result<Self, StartError> {
        listeners.iter().map(bind).collect::<Result<_, _>>().map(OpenListeners)
    }

    /// The listeners with their real ports, in the order given.
    pub fn bound(&self) -> impl Iterator<Item = &BoundListener> {
        self.0.iter().map(|(_, bound)| bound)
    }
}

/// Binds and listens; the socket does not block.
fn bind(listener: &Listener) -> Result<(OwnedFd, BoundListener), StartError> {
    let failed = |source| StartError::Listen { address: listener.address.clone(), source };
    let (socket, address) = match &listener.address {
        RpcAddress::Tcp(address) => bind_tcp(*address).map_err(failed)?,
        RpcAddress::Unix(path) => bind_unix(path).map_err(failed)?,
    };
    Ok((socket.into(), BoundListener { address, tag: listener.tag }))
}

fn bind_tcp(address: SocketAddr) -> std::io::Result<(Socket, RpcAddress)> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.ip().is_unspecified() && address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    unpace(&socket);
    yb_env::end_when_vanished(&socket)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let real = socket.local_addr()?.as_socket().ok_or_else(|| std::io::Error::other("not an IP address"))?;
    Ok((socket, RpcAddress::Tcp(real)))
}

/// Where the system's choice of congestion control paces what it sends (bbr), takes the one that every kernel has and that
/// does not; connections inherit it from their listener. Pacing costs measuring and timers at each reply, and learns
/// nothing from a few small ones.
fn unpace(socket: &Socket) {
    use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};
    if tcp_congestion(socket).is_ok_and(|name| name.starts_with(PACING))
        && let Err(error) = set_tcp_congestion(socket, UNPACED)
    {
        tracing::debug!(%error, "the listener keeps {PACING}");
    }
}

fn bind_unix(path: &PathBuf) -> std::io::Result<(Socket, RpcAddress)> {
    let address = SockAddr::unix(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    if let Err(error) = socket.bind(&address) {
        // A connect to a file that is no socket is refused like one to a dead socket. Such a file is not ours to remove,
        // nor is a socket at which somebody answers.
        if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
            return Err(error);
        }
        let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        if probe.connect(&address).map_or_else(|e| e.kind() != std::io::ErrorKind::ConnectionRefused, |()| true) {
            return Err(error);
        }
        std::fs::remove_file(path)?;
        socket.bind(&address)?;
    }
    // Nobody can connect before it listens: whatever the umask, it is this user's.
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok((socket, RpcAddress::Unix(path.clone())))
}
