//! Our side of a handshake: one blocking exchange within a deadline.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::Duration;

use crate::handshake::frame::{Frame, MessageType};
use crate::transport::Limits;

/// Shortest timeout that the system takes for a socket.
const TICK: Duration = Duration::from_millis(1);

/// All addresses of `host:port`.
///
/// # Errors
/// The resolver's, or `NotFound` for a name without an address.
pub(crate) fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    if found.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(found) }
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
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
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
    timing: Timing,
    limits: &Limits<'_>,
) -> io::Result<Vec<u8>> {
    let mut stream = connect(host, port, timing.connect, limits)?;
    stream.set_write_timeout(Some(limits.deadline.since(limits.clock.now()).max(TICK)))?;
    stream.write_all(&Frame::encode(Some(kind), json))?;
    let mut bytes = Vec::with_capacity(1024);
    let mut chunk = [0_u8; 16 << 10];
    loop {
        match Frame::parse(&bytes, timing.max_length) {
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            Ok(Some(frame)) if frame.kind == Some(kind) => return Ok(frame.json.to_vec()),
            Ok(Some(_)) => return Err(io::Error::new(io::ErrorKind::InvalidData, "reply of another type")),
            Ok(None) => {}
        }
        if limits.over().is_some() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(limits.deadline.since(limits.clock.now()).max(TICK)))?;
        match stream.read(&mut chunk)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            got => bytes.extend_from_slice(chunk.get(..got).unwrap_or_default()),
        }
    }
}

/// Limits of an exchange.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    /// How long to wait for a connection.
    pub(crate) connect: Duration,
    /// Longest reply.
    pub(crate) max_length: u64,
}
