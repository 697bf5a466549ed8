//! Sockets of clients: connecting with a deadline, sending, waiting.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use super::error::RpcError;
use crate::RpcAddress;

/// Starts to connect without waiting. True: the connection stands already.
pub(super) fn start_connecting(address: &RpcAddress) -> io::Result<(Socket, bool)> {
    let (domain, target) = match address {
        RpcAddress::Tcp(tcp) => (Domain::for_address(*tcp), SockAddr::from(*tcp)),
        RpcAddress::Unix(path) => (Domain::UNIX, SockAddr::unix(path)?),
    };
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    if matches!(address, RpcAddress::Tcp(_)) {
        socket.set_tcp_nodelay(true)?;
    }
    match socket.connect(&target) {
        Ok(()) => Ok((socket, true)),
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok((socket, false)),
        Err(error) => Err(error),
    }
}

/// Connects within `limit`.
pub(super) fn connect(address: &RpcAddress, limit: Duration) -> Result<Socket, RpcError> {
    let failed = |error: io::Error| RpcError::Connect { address: address.clone(), reason: error.to_string() };
    let (socket, stands) = start_connecting(address).map_err(failed)?;
    if stands {
        return Ok(socket);
    }
    if !wait(&socket, PollFlags::OUT, limit).map_err(failed)? {
        return Err(RpcError::ConnectTimeout { address: address.clone() });
    }
    match socket.take_error().map_err(failed)? {
        Some(error) => Err(failed(error)),
        None => Ok(socket),
    }
}

/// Waits until the socket is ready for one of `what`; false: `limit` passed. May return early.
pub(super) fn wait(socket: &impl AsFd, what: PollFlags, limit: Duration) -> io::Result<bool> {
    match poll(&mut [PollFd::new(socket, what)], Some(&timespec(limit))) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn timespec(limit: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX), tv_nsec: i64::from(limit.subsec_nanos()) }
}
