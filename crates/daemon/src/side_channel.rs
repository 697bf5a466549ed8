//! One connection of the side channel: who is there, and what windows he hands over.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use yb_mem::{Credentials, peer_credentials, recv_with_fds};
use yb_types::ErrorCode;
use yb_wire::side_channel::{FdAnswer, FdRequest, REGISTER, REQUEST_FD, ShmRegister};

use crate::service::Shared;
use crate::window::Window;

/// Time a connection has for its next bytes, the peer's.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most descriptors that may have come without being used; a healthy dummy sends one per message.
const MOST_FILES: usize = 4;

/// Serves a connection until its other end closes it, or breaks the rules.
pub(crate) fn serve(shared: &Shared, stream: UnixStream) {
    match peer_credentials(&stream) {
        Ok(who) if shared.users.admits(who.uid, shared.own_uid) => {
            if let Err(error) = (Connection { shared, who, stream, files: Vec::new() }).run() {
                tracing::debug!(%error, pid = who.pid, "a connection of the side channel broke");
            }
        }
        Ok(who) => {
            tracing::warn!(uid = who.uid, pid = who.pid, "a user who may not attach was refused (see --dummy_users)");
            refuse(&stream);
        }
        Err(error) => tracing::warn!(%error, "cannot tell who is at the side channel"),
    }
}

/// Answers whatever is asked with a refusal, so that the other end need not wait for its timeout.
fn refuse(stream: &UnixStream) {
    let code = ErrorCode::ILLEGAL_CLIENT.0;
    let _ = rustix::net::send(stream, &code.to_le_bytes(), rustix::net::SendFlags::NOSIGNAL);
}

struct Connection<'s> {
    shared: &'s Shared,
    who: Credentials,
    stream: UnixStream,
    /// Descriptors that came and are not used yet.
    files: Vec<OwnedFd>,
}

impl Connection<'_> {
    fn run(&mut self) -> io::Result<()> {
        self.stream.set_read_timeout(Some(PATIENCE))?;
        self.stream.set_write_timeout(Some(PATIENCE))?;
        let mut kind = [0; 4];
        while self.receive(&mut kind)? {
            match u32::from_le_bytes(kind) {
                REGISTER => {
                    let mut body = [0; ShmRegister::LEN];
                    self.receive_body(&mut body)?;
                    let status = self.register(&ShmRegister::from_bytes(&body));
                    self.send(&status.0.to_le_bytes())?;
                }
                REQUEST_FD => {
                    let mut body = [0; FdRequest::LEN];
                    self.receive_body(&mut body)?;
                    // There is no memory of the daemon that dummies may look into.
                    self.send(&FdAnswer { status: ErrorCode::NOT_SUPPORTED.0, size: 0 }.to_bytes())?;
                }
                kind => return Err(io::Error::other(format!("unknown message {kind}"))),
            }
        }
        Ok(())
    }

    /// Fills `bytes`; false when the other end has closed before the first of them.
    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<bool> {
        let mut got = 0;
        while let Some(rest) = bytes.get_mut(got..).filter(|rest| !rest.is_empty()) {
            match recv_with_fds(&self.stream, rest, &mut self.files) {
                Ok(0) if got == 0 => return Ok(false),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(more) => got += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if self.files.len() > MOST_FILES {
                return Err(io::Error::other("too many descriptors"));
            }
        }
        Ok(true)
    }

    fn receive_body(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        if self.receive(bytes)? { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn send(&self, bytes: &[u8]) -> io::Result<()> {
        let sent = rustix::net::send(&self.stream, bytes, rustix::net::SendFlags::NOSIGNAL)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn register(&mut self, wanted: &ShmRegister) -> ErrorCode {
        let (base, size, client) = (wanted.base, wanted.size, wanted.client_id);
        let Some(file) = self.files.drain(..).next_back() else {
            tracing::warn!(%client, "a window came without its descriptor");
            return ErrorCode::INVALID_PARAMS;
        };
        if base == 0 || base.checked_add(size).is_none() {
            return ErrorCode::INVALID_PARAMS;
        }
        // Only our own user is believed not to take pages away under us.
        let trusted = self.who.uid == self.shared.own_uid;
        let window = match Window::map(&file, base, size, wanted.is_local, trusted) {
            Ok(window) => window,
            Err(error) => {
                tracing::warn!(%error, %client, size, "a window cannot be mapped");
                return ErrorCode::INVALID_PARAMS;
            }
        };
        let now = self.shared.clock.now();
        match self.shared.dummies.add(client, self.who, window, now) {
            Ok(()) => {
                tracing::debug!(%client, base, size, is_local = wanted.is_local, "a window was handed over");
                self.shared.door.look();
                ErrorCode::OK
            }
            Err(code) => {
                tracing::warn!(%client, base, size, %code, "a window was refused");
                code
            }
        }
    }
}
