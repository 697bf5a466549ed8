//! io_uring for servers of many sockets: one `io_uring_enter` a turn, multishot receives into provided buffers, sends
//! that own their bytes; and [`DiskRing`] for files. The only crate beside `yb-mem` where the kernel is handed raw memory.
//!
//! Invariants that make the face safe:
//! - [`DiskRing::drive`] does not return, nor unwind, while the kernel may touch a span that it was given;
//! - the kernel writes only into buffers of the [`Reactor`]'s own pool that are in its ring, and a buffer is out of the ring
//!   from its [`Received`](Completion::Received) until [`Reactor::recycle`];
//! - the kernel reads only from vectors that the reactor owns until their completion;
//! - a descriptor stays open until the last operation on it has completed; so does the reactor when it is dropped.

mod disk;
mod pool;
mod reactor;

pub use disk::{DiskOp, DiskRing, DiskWork, Way};
pub use pool::Buffer;
pub use reactor::{Completion, Patience, Reactor, ReactorSettings};

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Tries what a server needs, for real: a ring with the flags that [`Reactor`] wants, a multishot receive, a send.
///
/// # Errors
/// The operating system's reason; containers often forbid io_uring, kernels before 6.1 lack parts of it.
pub fn probe() -> io::Result<()> {
    let (near, far) = UnixStream::pair()?;
    let mut reactor = Reactor::new(&ReactorSettings { entries: 8, buffers: 4, buffer_bytes: 64 })?;
    reactor.attach(0, near.into())?;
    reactor.attach(1, far.into())?;
    reactor.send(0, b"probe".to_vec(), 0)?;
    let (mut sent, mut received) = (false, false);
    for _ in 0..50 {
        reactor.turn(Patience::at_most(Some(Duration::from_millis(20))))?;
        while let Some(completion) = reactor.next_completion() {
            match completion {
                Completion::Sent { result, .. } => sent = result? == 5,
                Completion::Received { key: 1, buffer } => {
                    received = reactor.bytes(&buffer) == b"probe";
                    reactor.recycle(buffer);
                }
                Completion::Failed { error, .. } => return Err(error),
                _ => {}
            }
        }
        if sent && received {
            return Ok(());
        }
    }
    Err(io::Error::new(io::ErrorKind::Unsupported, "a multishot receive did not deliver"))
}
