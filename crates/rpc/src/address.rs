//! Where a server is.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;

/// An address of the RPC wire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum RpcAddress {
    /// TCP over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// A UNIX stream socket of this host.
    Unix(PathBuf),
}

impl RpcAddress {
    /// Reads `host:port` (a name is looked up, the first address wins), `[v6]:port`, or `unix:/path`.
    ///
    /// # Errors
    /// Not of one of these forms, or a name without an address.
    pub fn resolve(text: &str) -> std::io::Result<Self> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(RpcAddress::Unix(path.into()));
        }
        let first = text.to_socket_addrs()?.next();
        first.map(RpcAddress::Tcp).ok_or_else(|| std::io::Error::other(format!("{text:?} has no address")))
    }
}

impl fmt::Display for RpcAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RpcAddress::Tcp(address) => address.fmt(f),
            RpcAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl From<SocketAddr> for RpcAddress {
    fn from(address: SocketAddr) -> Self {
        RpcAddress::Tcp(address)
    }
}
