//! Our side of a handshake: one blocking exchange within a deadline.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;
use yb_secure::{Refusal, Security};

use crate::handshake::frame::{Frame, MessageType};
use crate::transport::Limits;
use crate::{EngineSettings, TransferErrorKind};

/// Shortest timeout that the system takes for a socket.
const TICK: Duration = Duration::from_millis(1);

/// A host name without an address.
#[derive(Debug, thiserror::Error)]
#[error("{host:?} has no address ({reason})")]
struct UnknownHost {
    host: String,
    reason: String,
}

/// What kind of failure it is that no connection could be made.
pub(crate) fn kind_of(error: &io::Error) -> TransferErrorKind {
    let unknown = error.get_ref().is_some_and(|inner| inner.is::<UnknownHost>());
    if unknown { TransferErrorKind::UnknownHost } else { TransferErrorKind::Unreachable }
}

/// All addresses of `host:port`. The host may be an IPv6 address with a scope: `fe80::1%eth0`.
///
/// # Errors
/// [`TransferErrorKind::UnknownHost`], as [`kind_of`] tells.
pub(crate) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let unknown = |reason: String| io::Error::other(UnknownHost { host: host.to_owned(), reason });
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(|error| unknown(error.to_string()))?.collect();
    if found.is_empty() { Err(unknown("the resolver found none".to_owned())) } else { Ok(found) }
}

/// Connects to the first address that answers, within `patience` and the deadline.
///
/// # Errors
/// The last address's.
pub(crate) fn connect(host: &str, port: u16, patience: Duration, limits: &Limits<'_>) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    for address in resolve(host, port)? {
        let left = limits.deadline.since(limits.clock.now()).min(patience).max(TICK);
        match TcpStream::connect_timeout(&address, left) {
            // A port of this host at which nobody listens may be given to the very socket that connects to it.
            Ok(stream) if stream.local_addr()? == address => last = io::ErrorKind::ConnectionRefused.into(),
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// A socket whose time is up says "would block", which tells a user nothing.
fn silence(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            io::Error::new(io::ErrorKind::TimedOut, "connected, but no answer in time; is it the port of a handshake?")
        }
        _ => error,
    }
}

/// Sends one message and gives back the JSON of the reply.
///
/// # Errors
/// The socket's; `InvalidData` for a reply of another type or out of bounds; `TimedOut` at the deadline.
pub(crate) fn exchange(
    host: &str,
    port: u16,
    kind: MessageType,
    json: &[u8],
    timing: &Timing,
    limits: &Limits<'_>,
) -> io::Result<Vec<u8>> {
    let mut stream = timing.open(host, port, limits)?;
    stream.set_write_timeout(Some(limits.deadline.since(limits.clock.now()).max(TICK)))?;
    stream.write_all(&Frame::encode(Some(kind), json)).map_err(silence)?;
    let mut bytes = Vec::with_capacity(1024);
    let mut chunk = [0_u8; 16 << 10];
    loop {
        match Frame::parse(&bytes, timing.max_length) {
            Err(error) => {
                let refusal =
                    Refusal::found_in(&bytes).map_or_else(|| error.to_string(), |refusal| refusal.to_string());
                return Err(io::Error::new(io::ErrorKind::InvalidData, refusal));
            }
            Ok(Some(frame)) if frame.kind == Some(kind) => return Ok(frame.json.to_vec()),
            Ok(Some(_)) => return Err(io::Error::new(io::ErrorKind::InvalidData, "reply of another type")),
            Ok(None) => {}
        }
        if limits.over().is_some() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(limits.deadline.since(limits.clock.now()).max(TICK)))?;
        match stream.read(&mut chunk).map_err(silence)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            got => bytes.extend_from_slice(chunk.get(..got).unwrap_or_default()),
        }
    }
}

/// Limits of an exchange.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// How long to wait for a connection.
    pub(crate) connect: Duration,
    /// Longest reply.
    pub(crate) max_length: u64,
    /// How the connection is secured; `None`: it is plain.
    pub(crate) security: Option<Arc<Security>>,
}

impl Timing {
    pub(crate) fn of(settings: &EngineSettings) -> Self {
        Timing {
            connect: settings.connect_timeout,
            max_length: settings.handshake_max_length,
            security: settings.security.clone(),
        }
    }

    /// Connects, and secures the connection where that is asked for.
    fn open(&self, host: &str, port: u16, limits: &Limits<'_>) -> io::Result<Socket> {
        let stream = connect(host, port, self.connect, limits)?;
        let Some(security) = &self.security else { return Ok(stream.into()) };
        let server = stream.peer_addr()?;
        let left = limits.deadline.since(limits.clock.now()).min(self.connect).max(TICK);
        let refused = |error| io::Error::new(io::ErrorKind::PermissionDenied, error);
        let socket = security.dial(stream.into(), server, left)?.wait(left).map_err(refused)?;
        socket.set_nonblocking(false)?;
        Ok(socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_accepts_and_says_nothing_is_told_in_words() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let clock = yb_env::Clock::real();
        let limits = Limits { clock: &clock, deadline: clock.now() + Duration::from_millis(50), cancel: None };
        let timing = Timing { connect: Duration::from_secs(1), max_length: 1 << 20, security: None };
        let port = listener.local_addr().unwrap().port();
        let error = exchange("127.0.0.1", port, MessageType::Probe, b"{}", &timing, &limits).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("handshake"), "{error}");
    }

    #[test]
    fn scopes_are_understood_and_unknown_hosts_told_apart() {
        let found = resolve("fe80::1%lo", 7).unwrap();
        let SocketAddr::V6(address) = found[0] else { panic!("{found:?}") };
        assert_eq!((address.scope_id(), address.port()), (1, 7), "lo is the first interface");
        assert_eq!(resolve("[::1]", 7).unwrap(), ["[::1]:7".parse().unwrap()]);
        for unknown in ["fe80::1%no-such-interface", "no such host.invalid", ""] {
            let error = resolve(unknown, 7).unwrap_err();
            assert_eq!(kind_of(&error), TransferErrorKind::UnknownHost, "{error}");
        }
        assert_eq!(kind_of(&io::ErrorKind::ConnectionRefused.into()), TransferErrorKind::Unreachable);
    }
}
