//! A connection on its way, so that no peer's silence holds up the others of a batch.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use socket2::{Domain, Socket, TcpKeepalive, Type};
use yb_secure::{Dialled, Pending};
use yb_types::MonotonicTime;

use crate::EngineSettings;
use crate::segment::PeerAddress;

/// The addresses of a peer that were not tried yet.
#[derive(Debug)]
pub(crate) struct Dial {
    left: std::vec::IntoIter<SocketAddr>,
    /// The one under way.
    to: Option<SocketAddr>,
    /// Set while the connection stands and is being secured.
    pub(crate) securing: Option<Pending>,
    /// When the attempt under way is given up.
    pub(crate) by: MonotonicTime,
}

impl Dial {
    /// Looks the peer's name up.
    pub(crate) fn new(address: &PeerAddress) -> io::Result<Self> {
        let left = crate::handshake::client::resolve(&address.host, address.port)?.into_iter();
        Ok(Dial { left, to: None, securing: None, by: MonotonicTime(0) })
    }

    /// Starts to connect to the next address; `None` when there is no other.
    pub(crate) fn next(&mut self, now: MonotonicTime, settings: &EngineSettings) -> Option<io::Result<Socket>> {
        let address = self.left.next()?;
        (self.to, self.securing) = (Some(address), None);
        self.by = now + settings.connect_timeout;
        Some(start(address, settings.keepalive))
    }

    /// The connection stands: gives it back if it is plain, else begins to secure it.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn secure(
        &mut self,
        stream: Socket,
        now: MonotonicTime,
        settings: &EngineSettings,
    ) -> io::Result<Option<Socket>> {
        let (Some(security), Some(to)) = (&settings.security, self.to) else { return Ok(Some(stream)) };
        match security.dial(stream, to, self.by.since(now))? {
            Dialled::Plain(stream) => Ok(Some(stream)),
            Dialled::Pending(pending) => {
                self.securing = Some(pending);
                Ok(None)
            }
        }
    }
}

fn start(address: SocketAddr, keepalive: Duration) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(keepalive))?;
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => return Err(error),
    }
    Ok(socket)
}

/// What came of an attempt for which the socket is ready.
///
/// # Errors
/// The system's; `ConnectionRefused` also for a socket that has connected to itself, as happens when nobody listens at a
/// port of this host that the kernel then gives to the one who connects.
pub(crate) fn outcome(stream: &Socket) -> io::Result<()> {
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    if stream.peer_addr()?.as_socket() == stream.local_addr()?.as_socket() {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(())
}
