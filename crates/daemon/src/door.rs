//! The thread at the door: lets connections of the side channel in, and notices when a dummy's process ends.

use std::io;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags};

use crate::service::Shared;
use crate::side_channel;

/// How often silent dummies are looked for.
const ROUND: Duration = Duration::from_secs(1);
/// Connections of the side channel at a time; further ones wait in the system's queue.
const MOST_CONNECTIONS: usize = 64;

/// Wakes the thread at the door.
#[derive(Debug)]
pub(crate) struct Bell {
    rope: UnixStream,
    bell: UnixStream,
    closing: AtomicBool,
    /// Connections that are served.
    inside: AtomicUsize,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Bell> {
        let (rope, bell) = UnixStream::pair()?;
        rope.set_nonblocking(true)?;
        bell.set_nonblocking(true)?;
        Ok(Bell { rope, bell, closing: AtomicBool::new(false), inside: AtomicUsize::new(0) })
    }

    /// There is a new dummy to watch, or room for a connection.
    pub(crate) fn look(&self) {
        // Full: it rings already.
        let _ = rustix::net::send(&self.rope, &[1], SendFlags::NOSIGNAL);
    }

    /// The thread is to end.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.look();
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    fn quieten(&self) {
        let mut bytes = [0; 64];
        while matches!(rustix::net::recv(&self.bell, &mut bytes[..], RecvFlags::DONTWAIT), Ok((_, 1..))) {}
    }

    fn has_room(&self) -> bool {
        self.inside.load(Ordering::SeqCst) < MOST_CONNECTIONS
    }
}

/// Listens on an abstract name.
pub(crate) fn listen(name: &str) -> io::Result<UnixListener> {
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name.as_bytes())?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Until the bell says that it is over. `patience`: how long a dummy whose process cannot be seen may be silent.
pub(crate) fn watch(shared: &Arc<Shared>, listener: &UnixListener, patience: Duration) {
    let bell = &shared.door;
    while !bell.is_closing() {
        let (knocks, ended) = match wait(shared, listener) {
            Ok(seen) => seen,
            Err(error) => {
                tracing::error!(%error, "the side channel cannot wait for dummy clients");
                return;
            }
        };
        bell.quieten();
        shared.dummies.forget_ended(ended);
        if knocks {
            let_in(shared, listener);
        }
        shared.dummies.forget_silent(shared.clock.now(), patience);
    }
}

/// Waits for a knock, the bell, the end of a dummy, or the next round: whether somebody knocks, and who ended.
fn wait(shared: &Shared, listener: &UnixListener) -> io::Result<(bool, Vec<yb_types::ClientId>)> {
    let watched = shared.dummies.watched();
    let knock = if shared.door.has_room() { PollFlags::IN } else { PollFlags::empty() };
    let mut waits = vec![PollFd::new(&shared.door.bell, PollFlags::IN), PollFd::new(listener, knock)];
    waits.extend(watched.iter().map(|dummy| PollFd::from_borrowed_fd(dummy.as_fd(), PollFlags::IN)));
    let round = Timespec { tv_sec: ROUND.as_secs().cast_signed(), tv_nsec: 0 };
    match poll(&mut waits, Some(&round)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let happened = |wait: &PollFd<'_>| wait.revents().contains(PollFlags::IN);
    let ended = watched.iter().zip(waits.iter().skip(2)).filter(|(_, wait)| happened(wait)).map(|(dummy, _)| dummy.id);
    Ok((waits.get(1).is_some_and(happened), ended.collect()))
}

/// Gives every connection that waits a thread of its own, as long as there is room.
fn let_in(shared: &Arc<Shared>, listener: &UnixListener) {
    while shared.door.has_room() {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) => {
                tracing::warn!(%error, "a connection of the side channel could not be accepted");
                return;
            }
        };
        // Accepted sockets do not inherit that the listener does not block.
        shared.door.inside.fetch_add(1, Ordering::SeqCst);
        let inside = Inside(Arc::clone(shared));
        let served = yb_env::spawn_thread("yb-daemon-side", move || side_channel::serve(&inside.0, stream));
        if let Err(error) = served {
            tracing::warn!(%error, "cannot start a thread for a connection of the side channel");
        }
    }
}

/// A connection that is served, as long as this lives.
struct Inside(Arc<Shared>);

impl Drop for Inside {
    fn drop(&mut self) {
        self.0.door.inside.fetch_sub(1, Ordering::SeqCst);
        self.0.door.look();
    }
}
