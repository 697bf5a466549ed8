//! The seam between a worker's loop and the kernel: who waits, reads and writes. Both backends do the same things.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use yb_types::MonotonicTime;

use super::service::{Service, SessionId};
use super::session::{CloseReason, Sessions};

/// Owns the sockets of one worker; slots are those of its [`Sessions`].
pub(crate) trait Backend {
    /// Takes a connected, non-blocking socket and starts to read from it.
    fn attach(&mut self, slot: u32, socket: OwnedFd) -> io::Result<()>;

    /// Waits for events, at most `timeout` (`None`: for ever), then feeds the sessions and sends their replies.
    /// `clock` is asked once, after the wait. True: the mailbox has rung.
    fn turn<S: Service>(
        &mut self,
        sessions: &mut Sessions<S>,
        timeout: Option<Duration>,
        clock: &dyn Fn() -> MonotonicTime,
    ) -> io::Result<bool>;

    /// Sends a deferred reply and goes on with what waited for it.
    fn deliver<S: Service>(&mut self, sessions: &mut Sessions<S>, session: SessionId, frame: &[u8], failed: bool);

    /// Closes a connection; what is unsent is dropped.
    fn close<S: Service>(&mut self, sessions: &mut Sessions<S>, slot: u32, reason: CloseReason);

    /// True when some peer has not read all its replies.
    fn has_unsent(&self) -> bool;

    /// Shows every slot with unread replies: how many bytes, and when its peer last read.
    fn each_unread(&self, see: &mut dyn FnMut(u32, usize, MonotonicTime));
}
