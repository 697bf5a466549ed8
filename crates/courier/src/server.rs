//! The receiving side.
//!
//! Messages are handed to the receiver on threads of their own, so that one that takes long keeps no connection waiting
//! but its own: each connection belongs to one of the threads, which keeps its order.

use std::hash::BuildHasher;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Queue, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use foldhash::fast::FixedState;
use yb_rpc::{
    DeferredReply, Listener, ListenerTag, Outcome, Reply, Request, RpcAddress, ServerLimits, ServerSettings, Service,
};
use yb_secure::Security;

use crate::message::{Message, NotAMessage, answer, read};
use crate::tensor::TensorHead;

/// Most threads that hand messages out.
const MAX_THREADS: usize = 64;
/// Longest body; data beyond go in the attachment.
const MAX_BODY: u32 = 64 << 20;
/// Longest attachment.
const MAX_ATTACHMENT: u32 = 2 << 30;
/// Bytes of unfinished messages of all connections together.
const MAX_BUFFERED: usize = 4 << 30;
/// Messages of one connection that wait for the receiver.
const MAX_WAITING: usize = 16;
/// A connection may be silent this long before its first message and inside one.
const STALL: Duration = Duration::from_secs(10);
/// The time for one message to arrive.
const MESSAGE_TIME: Duration = Duration::from_secs(300);

/// A message that was taken off the wire, with its own bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Who sent it.
    pub from: Option<SocketAddr>,
    /// Type and shape, when it is a tensor.
    pub head: Option<TensorHead>,
    /// All its bytes.
    pub whole: Vec<u8>,
    /// Where the elements of a tensor begin in them; 0 for data.
    pub elements_at: usize,
}

impl Taken {
    fn of(message: Message<'_>, from: Option<SocketAddr>) -> Taken {
        match message {
            Message::Data(bytes) => Taken { from, head: None, whole: bytes.to_vec(), elements_at: 0 },
            Message::Tensor { head, elements, whole } => {
                Taken { from, head: Some(head), whole: whole.to_vec(), elements_at: whole.len() - elements.len() }
            }
        }
    }

    /// The elements of a tensor, or the data.
    pub fn elements(&self) -> &[u8] {
        self.whole.get(self.elements_at..).unwrap_or_default()
    }
}

/// Takes messages. Called on several threads; the sender is answered when it returns.
pub trait Receiver: Send + Sync + 'static {
    /// Takes one message.
    fn receive(&self, message: Taken);
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is not `host:port`, or has no address.
    #[error("{address:?} cannot be listened on: {source}")]
    Address {
        /// As it was given.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The RPC server did not start.
    #[error(transparent)]
    Rpc(#[from] yb_rpc::StartError),
    /// No more threads.
    #[error("starting a thread: {0}")]
    Thread(#[from] std::io::Error),
}

struct Work {
    message: Taken,
    reply: DeferredReply,
    body: Vec<u8>,
    attachment: &'static [u8],
}

struct Desk {
    threads: Vec<Sender<Work>>,
    hasher: FixedState,
}

impl Desk {
    fn thread_of(&self, from: Option<SocketAddr>) -> Option<&Sender<Work>> {
        let thread = self.hasher.hash_one(from) % self.threads.len().max(1) as u64;
        self.threads.get(thread as usize)
    }
}

impl Service for Desk {
    type Worker = ();

    fn worker(&self, _: usize) {}

    fn call(&self, (): &mut (), request: Request<'_>, reply: Reply<'_>) -> Outcome {
        let message = match read(request.function, request.body, request.attachment) {
            Ok(message) => Taken::of(message, request.peer),
            Err(NotAMessage::OtherFunction) => return reply.unknown_function(),
            Err(NotAMessage::Argument(_)) => return reply.bad_arguments(),
        };
        let (body, attachment) = answer(request.function, !request.attachment.is_empty());
        let (reply, outcome) = reply.defer();
        if let Some(thread) = self.thread_of(request.peer) {
            // A thread that is gone drops the reply, which answers the sender.
            let _ = thread.send(Work { message, reply, body, attachment });
        }
        outcome
    }
}

/// A running server; dropping it stops it.
pub struct Server {
    rpc: Option<yb_rpc::Server>,
    threads: Vec<JoinHandle<()>>,
    port: u16,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Server {
    /// Listens on `address` (`host:port`; no host: all of IPv4) and hands messages to `receiver` on up to `threads`
    /// threads.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(address: &str, threads: usize, receiver: Arc<dyn Receiver>) -> Result<Server, StartError> {
        Server::start_secured(address, threads, receiver, None)
    }

    /// As [`Server::start`], for those that `security` lets in.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_secured(
        address: &str,
        threads: usize,
        receiver: Arc<dyn Receiver>,
        security: Option<Arc<Security>>,
    ) -> Result<Server, StartError> {
        let full = if address.starts_with(':') { format!("0.0.0.0{address}") } else { address.to_owned() };
        let listen =
            RpcAddress::resolve(&full).map_err(|source| StartError::Address { address: address.to_owned(), source })?;
        let mut desk = Desk { threads: Vec::new(), hasher: FixedState::default() };
        let mut handles = Vec::new();
        for _ in 0..threads.clamp(1, MAX_THREADS) {
            let (sender, queue) = channel();
            let receiver = Arc::clone(&receiver);
            handles.push(yb_env::spawn_thread("yb-courier", move || hand_out(&queue, receiver.as_ref()))?);
            desk.threads.push(sender);
        }
        let settings = ServerSettings { limits: limits(), security, ..ServerSettings::default() };
        let listener = Listener { address: listen, tag: ListenerTag(0) };
        let rpc = yb_rpc::Server::start(settings, &[listener], Arc::new(desk))?;
        let port = rpc.listeners().first().and_then(|bound| match &bound.address {
            RpcAddress::Tcp(address) => Some(address.port()),
            RpcAddress::Unix(_) => None,
        });
        Ok(Server { rpc: Some(rpc), threads: handles, port: port.unwrap_or(0) })
    }

    /// The port listened on.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // With the RPC server goes the desk, and with the desk the queues.
        drop(self.rpc.take());
        let current = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // A receiver may stop its own server: a thread cannot wait for itself.
            if thread.thread().id() != current && thread.join().is_err() {
                tracing::error!("a thread that hands messages out panicked");
            }
        }
    }
}

fn limits() -> ServerLimits {
    ServerLimits {
        max_body_bytes: MAX_BODY,
        max_attachment_bytes: MAX_ATTACHMENT,
        max_buffered_bytes: MAX_BUFFERED,
        max_deferred: MAX_WAITING,
        stalled_frame_timeout: STALL,
        frame_timeout: MESSAGE_TIME,
        ..ServerLimits::default()
    }
}

fn hand_out(queue: &Queue<Work>, receiver: &dyn Receiver) {
    for work in queue {
        receiver.receive(work.message);
        work.reply.send_with(&work.body, work.attachment);
    }
}
