//! Memory of another process of this host, read and written through the kernel.
//!
//! The kernel allows it where it allows debugging: the same user, no dumpable flag taken away, and with Yama's
//! `ptrace_scope` 1 only if the other process has named us (see [`allow_reader`]).

use std::io;

use crate::control::NONCE_LEN;
use crate::{ControlPage, Span, SpanError};

/// Another process, known to be the owner of a control page.
#[derive(Debug)]
pub struct PeerProcess {
    pid: libc::pid_t,
}

/// Why a process cannot be read and written.
#[derive(Debug, thiserror::Error)]
pub enum PeerProcessError {
    /// The socket names no process.
    #[error("its process is in another pid namespace")]
    NoPid,
    /// It is this process: its memory is reached by pointers.
    #[error("it is this process")]
    Own,
    /// The kernel refuses, or there is no such process.
    #[error("the kernel does not allow to read process {pid}: {source}")]
    Refused {
        /// Its number.
        pid: i32,
        /// The system's answer.
        source: io::Error,
    },
    /// Something else is at that address: the number means another process here.
    #[error("process {0} is not the owner of the control page")]
    NotTheOwner(i32),
}

impl PeerProcess {
    /// The process `pid` if it is another one and has `page` mapped with its nonce at `nonce_address`.
    ///
    /// # Errors
    /// [`PeerProcessError`].
    pub fn of_owner(pid: i32, page: &ControlPage, nonce_address: u64) -> Result<Self, PeerProcessError> {
        if pid <= 0 {
            return Err(PeerProcessError::NoPid);
        }
        if u32::try_from(pid) == Ok(std::process::id()) {
            return Err(PeerProcessError::Own);
        }
        let process = PeerProcess { pid };
        let mut found = [0_u8; NONCE_LEN];
        let mut done = 0;
        while done < NONCE_LEN {
            let rest = Span::destination(found.get_mut(done..).unwrap_or_default());
            let got = process.read(nonce_address.wrapping_add(done as u64), rest);
            done += got.map_err(|source| PeerProcessError::Refused { pid, source })?;
        }
        if found == page.nonce() { Ok(process) } else { Err(PeerProcessError::NotTheOwner(pid)) }
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Copies from `remote` there to `local` here, and says how much: at least a byte.
    ///
    /// # Errors
    /// The system's: `EFAULT` where nothing is mapped, `ESRCH` when the process has gone, `EPERM`.
    pub fn read(&self, remote: u64, local: Span<'_>) -> io::Result<usize> {
        if !local.is_writable() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, SpanError::ReadOnly));
        }
        let (here, there) = ends(remote, local);
        // SAFETY: `here` is memory that is mapped and writable for the borrow of the span; `there` is in another process,
        // where the kernel checks every page.
        outcome(unsafe { libc::process_vm_readv(self.pid, &raw const here, 1, &raw const there, 1, 0) })
    }

    /// Copies from `local` here to `remote` there, and says how much: at least a byte.
    ///
    /// # Errors
    /// As [`PeerProcess::read`].
    pub fn write(&self, remote: u64, local: Span<'_>) -> io::Result<usize> {
        let (here, there) = ends(remote, local);
        // SAFETY: `here` is memory that is mapped and readable for the borrow of the span; `there` is in another process,
        // where the kernel checks every page, so nothing of this process changes.
        outcome(unsafe { libc::process_vm_writev(self.pid, &raw const here, 1, &raw const there, 1, 0) })
    }
}

fn ends(remote: u64, local: Span<'_>) -> (libc::iovec, libc::iovec) {
    let len = local.len();
    let here = libc::iovec { iov_base: local.pointer().cast(), iov_len: len };
    (here, libc::iovec { iov_base: remote as *mut libc::c_void, iov_len: len })
}

fn outcome(result: isize) -> io::Result<usize> {
    match usize::try_from(result) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Lets the process `pid` read and write our memory where Yama restricts that to parents. Yama knows one such process at
/// a time: the last call counts. Does nothing where there is no Yama, or the other process has no number here.
pub fn allow_reader(pid: i32) {
    if let Ok(pid) = libc::c_ulong::try_from(pid)
        && pid > 0
    {
        // SAFETY: the call takes a number and touches no memory.
        unsafe { libc::prctl(libc::PR_SET_PTRACER, pid, 0, 0, 0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn only_the_owner_of_the_page_is_taken_for_it() {
        let page = ControlPage::create(*b"sixteen bytes ok").unwrap();
        let of = |pid, address| PeerProcess::of_owner(pid, &page, address);
        assert!(matches!(of(0, page.nonce_address()), Err(PeerProcessError::NoPid)));
        let own = std::process::id() as i32;
        assert!(matches!(of(own, page.nonce_address()), Err(PeerProcessError::Own)));
        // A child of ours may be read, but has no such page there.
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let refused = of(child.id() as i32, page.nonce_address());
        assert!(matches!(refused, Err(PeerProcessError::Refused { .. })), "{refused:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        let gone = of(child.id() as i32, page.nonce_address());
        assert!(matches!(gone, Err(PeerProcessError::Refused { .. })), "{gone:?}");
    }

    #[test]
    fn nobody_is_allowed_without_a_number() {
        allow_reader(0);
        allow_reader(-1);
        let process = PeerProcess { pid: i32::MAX };
        assert!(process.read(4096, Span::source(b"x")).is_err(), "read-only memory is not written");
        assert_eq!(process.write(4096, Span::source(b"x")).unwrap_err().raw_os_error(), Some(libc::ESRCH));
    }
}
