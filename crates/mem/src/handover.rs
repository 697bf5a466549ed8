//! Descriptors over a UNIX socket, and who is at its other end.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

/// Most descriptors in one message; the kernel's limit is 253.
const MAX_FDS: usize = 64;

/// Who is at the other end of a UNIX socket, as the kernel saw it at connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credentials {
    /// Process id, 0 when it is in another pid namespace.
    pub pid: i32,
    /// User id.
    pub uid: u32,
}

impl Credentials {
    /// True when the other end runs under our own user id.
    pub fn is_same_user(&self) -> bool {
        self.uid == rustix::process::geteuid().as_raw()
    }
}

/// Asks the kernel who is at the other end.
///
/// # Errors
/// The system's, for instance when it is not a UNIX socket.
pub fn peer_credentials(socket: impl AsFd) -> io::Result<Credentials> {
    let mut cred = MaybeUninit::<libc::ucred>::zeroed();
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the buffer has the size that is passed. getsockopt writes at most that many bytes. The safe wrapper of
    // rustix is not used, because it makes a process id of 0 (another pid namespace) an invalid value.
    let result = unsafe {
        libc::getsockopt(
            std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd()),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            cred.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: ucred is three integers, valid from any bytes.
    let cred = unsafe { cred.assume_init() };
    Ok(Credentials { pid: cred.pid, uid: cred.uid })
}

/// Sends bytes and at most 64 descriptors with their first byte; says how many bytes went.
///
/// # Errors
/// The system's; `InvalidInput` for too many descriptors or no bytes.
pub fn send_with_fds(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    if fds.len() > MAX_FDS || bytes.is_empty() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives bytes, and appends the descriptors that came with them to `fds`; 0 bytes when the peer has closed.
///
/// # Errors
/// The system's.
pub fn recv_with_fds(socket: impl AsFd, bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            fds.extend(rights);
        }
    }
    Ok(message.bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ControlPage, MemorySegment, SegmentOptions};
    use std::os::unix::net::UnixStream;

    #[test]
    fn descriptors_arrive_with_their_bytes() {
        let (a, b) = UnixStream::pair().unwrap();
        assert!(peer_credentials(&a).unwrap().is_same_user());
        let page = ControlPage::create([0; 16]).unwrap();
        let segment = MemorySegment::create(4096, SegmentOptions::default()).unwrap();
        assert_eq!(send_with_fds(&a, b"two", &[page.file(), segment.file()]).unwrap(), 3);
        let (mut bytes, mut fds) = ([0_u8; 8], Vec::new());
        assert_eq!(recv_with_fds(&b, &mut bytes, &mut fds).unwrap(), 3);
        assert_eq!(fds.len(), 2);
        assert_eq!(ControlPage::of_peer(fds.remove(0)).unwrap().counter(), page.counter());
    }
}
