//! The peer's end of the shared-memory socket: every step ends with the call's limits.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use smallvec::SmallVec;
use yb_mem::recv_with_fds;

use crate::shm::wire::{ENTRY_LEN, Entry, LIST_HEAD, ListHead};
use crate::transport::Limits;

/// How long an owner may take to answer, whatever the call allows.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Shortest timeout that the system takes for a socket.
const TICK: Duration = Duration::from_millis(1);

/// What an owner offers: every region, with its memory file if it has one.
pub(crate) struct List {
    pub(crate) head: ListHead,
    pub(crate) regions: Vec<(Entry, Option<OwnedFd>)>,
}

fn patience(limits: &Limits<'_>) -> Duration {
    limits.deadline.since(limits.clock.now()).min(ANSWER_TIMEOUT).max(TICK)
}

/// Connects to an abstract name. The result never blocks.
pub(crate) fn connect(name: &str, limits: &Limits<'_>) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // A full backlog makes connecting wait, for as long as sending may.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(patience(limits)))?;
    rustix::net::connect(&socket, &address)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(UnixStream::from(socket))
}

/// Sends a message that the socket's buffer always has room for.
pub(crate) fn send(socket: &UnixStream, bytes: &[u8]) -> io::Result<()> {
    match rustix::net::send(socket, bytes, SendFlags::NOSIGNAL)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}

/// Receives the control page and the list.
pub(crate) fn receive_list(socket: &UnixStream, limits: &Limits<'_>) -> io::Result<(OwnedFd, List)> {
    let limits = &Limits { deadline: limits.deadline.min(limits.clock.now() + ANSWER_TIMEOUT), ..*limits };
    let mut files = Vec::new();
    let mut head = [0_u8; LIST_HEAD];
    receive_exact(socket, &mut head, &mut files, limits)?;
    let head = ListHead::decode(&head).map_err(io::Error::other)?;
    let mut bytes = vec![0_u8; head.regions as usize * ENTRY_LEN];
    receive_exact(socket, &mut bytes, &mut files, limits)?;
    let mut files = files.into_iter();
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "descriptors are missing");
    let page = files.next().ok_or_else(missing)?;
    let mut regions = Vec::with_capacity(head.regions as usize);
    for bytes in bytes.chunks_exact(ENTRY_LEN) {
        let entry = Entry::decode(bytes).map_err(io::Error::other)?;
        let file = if entry.mappable { Some(files.next().ok_or_else(missing)?) } else { None };
        regions.push((entry, file));
    }
    Ok((page, List { head, regions }))
}

fn receive_exact(
    socket: &UnixStream,
    mut bytes: &mut [u8],
    files: &mut Vec<OwnedFd>,
    limits: &Limits<'_>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match recv_with_fds(socket, bytes, files) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => bytes = bytes.get_mut(got..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => wait(socket, limits)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until bytes are here.
fn wait(socket: &UnixStream, limits: &Limits<'_>) -> io::Result<()> {
    if limits.over().is_some() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut polled: SmallVec<[PollFd<'_>; 2]> = SmallVec::new();
    polled.push(PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN));
    if let Some(wake) = limits.cancel.and_then(|cancel| cancel.wake()) {
        polled.push(PollFd::from_borrowed_fd(wake, PollFlags::IN));
    }
    match rustix::event::poll(&mut polled, Timespec::try_from(patience(limits)).ok().as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
