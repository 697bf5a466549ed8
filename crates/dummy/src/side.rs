//! The side channel: windows are handed over through it.

use std::io;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use yb_client::{Error, Result, Why};
use yb_mem::{recv_with_fds, send_with_fds};
use yb_types::{ClientId, ErrorCode};
use yb_wire::side_channel::{REGISTER, ShmRegister, socket_name};

/// Time the daemon has for its answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The side channel of the daemon with this RPC port.
#[derive(Debug)]
pub(crate) struct SideChannel {
    name: String,
    client_id: ClientId,
}

impl SideChannel {
    pub(crate) fn new(port: u16, client_id: ClientId) -> SideChannel {
        SideChannel { name: socket_name(port), client_id }
    }

    /// Hands `size` bytes of a memory file over, which we have at `base`.
    pub(crate) fn hand_over(&self, file: BorrowedFd<'_>, base: u64, size: u64) -> Result<()> {
        let failed = |error: io::Error| Error::Setup {
            stage: "handing memory to the daemon",
            reason: format!("side channel {}: {error}", self.name),
        };
        let status = self.ask(file, base, size).map_err(failed)?;
        match status {
            ErrorCode::OK => Ok(()),
            ErrorCode::ILLEGAL_CLIENT => Err(Error::Setup {
                stage: "handing memory to the daemon",
                reason: "it takes none from this user (see --dummy_users of the daemon)".to_owned(),
            }),
            code => Err(Error::Refused { rpc: "SHM_REGISTER", code, why: Why::default() }),
        }
    }

    /// One connection per message: the peer's daemon serves one connection at a time.
    fn ask(&self, file: BorrowedFd<'_>, base: u64, size: u64) -> io::Result<ErrorCode> {
        let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(self.name.as_bytes())?)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let message = ShmRegister { client_id: self.client_id, base, size, device_id: -1, is_local: false };
        let kind = send_all(&stream, &REGISTER.to_le_bytes(), &[]);
        // A daemon that takes none from this user says so and closes without reading on: its answer is there all the same.
        match kind.and_then(|()| send_all(&stream, &message.to_bytes(), &[file])) {
            Err(error) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                return Err(error);
            }
            _ => {}
        }
        let (mut status, mut got, mut files) = ([0; 4], 0, Vec::new());
        while let Some(rest) = status.get_mut(got..).filter(|rest| !rest.is_empty()) {
            match recv_with_fds(&stream, rest, &mut files)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => got += more,
            }
        }
        Ok(ErrorCode(i32::from_le_bytes(status)))
    }
}

/// A message is small, the socket's buffer always has room for it.
fn send_all(stream: &UnixStream, bytes: &[u8], files: &[BorrowedFd<'_>]) -> io::Result<()> {
    match send_with_fds(stream, bytes, files)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
