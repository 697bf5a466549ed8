//! The thread that secures connections and moves the bytes of those with TLS.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};
use socket2::Socket;
use yb_env::{Clock, spawn_thread};
use yb_types::MonotonicTime;

use crate::crossing::Run;
use crate::material::Safe;
use crate::relay::Passage;
use crate::shake::{ClientShake, SecureError, ServerShake};
use crate::watch::Watch;

/// A connection that may be used now.
#[derive(Debug)]
pub struct Admitted {
    /// The plain protocol is spoken here. It does not block.
    pub socket: Socket,
    /// What is between this socket and the network; `None`: nothing is.
    pub passage: Option<Arc<Passage>>,
}

/// Runs once, on the porter's thread: it must not block.
pub(crate) type Then<T> = Box<dyn FnOnce(T) + Send>;

/// What is to be done with a new connection.
pub(crate) enum Task {
    /// Secure one that came in.
    Serve { shake: ServerShake, plane: &'static str, peer: IpAddr, then: Then<Option<Admitted>> },
    /// Secure one that was made.
    Dial { shake: ClientShake, then: Then<Result<Admitted, SecureError>> },
}

/// A connection to secure.
pub(crate) struct Order {
    pub(crate) socket: Socket,
    pub(crate) task: Task,
    pub(crate) deadline: MonotonicTime,
}

/// What the thread and those who give it work share.
pub(crate) struct Desk {
    pub(crate) orders: Mutex<Vec<Order>>,
    pub(crate) bell: OwnedFd,
    pub(crate) stop: AtomicBool,
    /// Connections in the care of the thread.
    pub(crate) load: AtomicUsize,
}

/// What the thread goes by.
pub(crate) struct Tools {
    pub(crate) clock: Clock,
    pub(crate) watch: Arc<Watch>,
    pub(crate) safe: Arc<Safe>,
}

/// The running thread; dropping it cuts its connections off.
pub(crate) struct Porter {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Porter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Porter").finish_non_exhaustive()
    }
}

impl Porter {
    pub(crate) fn start(tools: Tools) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let (stop, load) = (AtomicBool::new(false), AtomicUsize::new(0));
        let desk = Arc::new(Desk { orders: Mutex::default(), bell, stop, load });
        let run = Run::new(Arc::clone(&desk), tools)?;
        let thread = spawn_thread("yb-porter", move || run.run())?;
        Ok(Porter { desk, thread: Some(thread) })
    }

    /// Connections in its care.
    pub(crate) fn load(&self) -> usize {
        self.desk.load.load(Ordering::Relaxed)
    }

    /// Takes a connection over; it is refused at `deadline`.
    pub(crate) fn take(&self, socket: Socket, task: Task, deadline: MonotonicTime) {
        self.desk.load.fetch_add(1, Ordering::Relaxed);
        let mut orders = self.desk.orders.lock();
        orders.push(Order { socket, task, deadline });
        let first = orders.len() == 1;
        drop(orders);
        if first {
            self.ring();
        }
    }

    fn ring(&self) {
        // Fails only when the count is at its maximum, and then the thread is awake.
        let _ = rustix::io::write(&self.desk.bell, &1u64.to_ne_bytes());
    }
}

impl Drop for Porter {
    fn drop(&mut self) {
        self.desk.stop.store(true, Ordering::SeqCst);
        self.ring();
        let Some(thread) = self.thread.take() else { return };
        // What a connection was for may hold the last handle: a thread cannot wait for itself.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!("a thread that secures connections panicked");
        }
    }
}

impl Task {
    pub(crate) fn succeed(self, admitted: Admitted) {
        match self {
            Task::Serve { then, .. } => then(Some(admitted)),
            Task::Dial { then, .. } => then(Ok(admitted)),
        }
    }

    pub(crate) fn fail(self, error: SecureError) {
        match self {
            Task::Serve { then, .. } => then(None),
            Task::Dial { then, .. } => then(Err(error)),
        }
    }
}
