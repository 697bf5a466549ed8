//! The sending side.
//!
//! Small and large messages take different connections: the peer's server hands out the attachment of an earlier
//! message of a connection in place of data without one. Messages that are under way at once take several, up to the
//! limit, so that a receiver that takes long delays no others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use yb_rpc::{ClientPool, ClientSettings, Payload, RpcAddress, RpcError};
use yb_secure::Security;

/// Most connections to one receiver, of each kind.
const MAX_CONNECTIONS: usize = 16;
/// Receivers that are remembered though nothing is under way to them.
const KEPT_RECEIVERS: usize = 128;

/// What a client may use.
#[derive(Clone, Copy, Debug)]
pub struct ClientLimits {
    /// Connections to one receiver; at least 1, at most 16 of each kind are used.
    pub connections: usize,
    /// Longest time for a message to be taken.
    pub timeout: Duration,
}

/// A message that was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The receiver's address is not `host:port`, or has no address.
    #[error("{address:?} is no address of a receiver: {reason}")]
    Address {
        /// As it was given.
        address: String,
        /// Why.
        reason: String,
    },
    /// The request failed.
    #[error(transparent)]
    Rpc(#[from] RpcError),
}

/// Called with the outcome, once, on a background thread; it must not block.
type Done = Box<dyn FnOnce(Result<(), SendError>) + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Inline,
    Attached,
}

/// Sends messages to any number of receivers. Clones are the same client.
#[derive(Clone, Debug)]
pub struct Client(Arc<Inner>);

/// Connections by receiver and kind.
type Lines = BTreeMap<(SocketAddr, Kind), Vec<Arc<ClientPool>>>;

#[derive(Debug)]
struct Inner {
    limits: ClientLimits,
    security: Option<Arc<Security>>,
    lines: Mutex<Lines>,
}

impl Client {
    /// A client without connections yet.
    pub fn new(limits: ClientLimits) -> Client {
        Client::secured(limits, None)
    }

    /// As [`Client::new`], with connections that are secured.
    pub fn secured(limits: ClientLimits, security: Option<Arc<Security>>) -> Client {
        Client(Arc::new(Inner { limits, security, lines: Mutex::default() }))
    }

    /// Sends a message to the receiver at `address`; `done` learns when it has been taken.
    pub fn send(
        &self,
        address: &str,
        function: u32,
        payload: Payload,
        done: impl FnOnce(Result<(), SendError>) + Send + 'static,
    ) {
        let done: Done = Box::new(done);
        if let Ok(known) = address.parse() {
            return self.send_to(known, function, payload, done);
        }
        // A name may have to be asked for over the network.
        let (client, name) = (self.clone(), address.to_owned());
        let shared = Arc::new(Mutex::new(Some(done)));
        let later = Arc::clone(&shared);
        let started = yb_env::spawn_thread("yb-courier-name", move || {
            let Some(done) = later.lock().take() else { return };
            match resolve(&name) {
                Ok(known) => client.send_to(known, function, payload, done),
                Err(error) => done(Err(error)),
            }
        });
        if let Err(error) = started
            && let Some(done) = shared.lock().take()
        {
            done(Err(SendError::Address { address: address.to_owned(), reason: error.to_string() }));
        }
    }

    fn send_to(&self, address: SocketAddr, function: u32, payload: Payload, done: Done) {
        let kind = if payload.attachment.is_empty() { Kind::Inline } else { Kind::Attached };
        let line = self.line(address, kind);
        let deadline = line.deadline_in(self.0.limits.timeout);
        let held = Arc::clone(&line);
        line.submit(function, payload, deadline, move |result| {
            drop(held);
            done(result.map(drop).map_err(SendError::from));
        });
    }

    /// The peer's receiver sends a tensor back whole.
    fn settings(&self) -> ClientSettings {
        let security = self.0.security.clone();
        ClientSettings { max_connections: 1, max_reply_bytes: u32::MAX, security, ..ClientSettings::default() }
    }

    /// A connection with nothing under way if there is one, or may be another one; else one after the other.
    fn line(&self, address: SocketAddr, kind: Kind) -> Arc<ClientPool> {
        let mut lines = self.0.lines.lock();
        if lines.len() >= KEPT_RECEIVERS && !lines.contains_key(&(address, kind)) {
            lines.retain(|_, lines| lines.iter().any(|line| Arc::strong_count(line) > 1));
        }
        let to = lines.entry((address, kind)).or_default();
        if let Some(idle) = to.iter().find(|line| Arc::strong_count(line) == 1) {
            return Arc::clone(idle);
        }
        if to.len() < self.0.limits.connections.clamp(1, MAX_CONNECTIONS) {
            let settings = self.settings();
            to.push(Arc::new(ClientPool::new(RpcAddress::Tcp(address), settings)));
            to.rotate_right(1);
        } else {
            to.rotate_left(1);
        }
        to.first().map_or_else(|| Arc::new(ClientPool::new(RpcAddress::Tcp(address), self.settings())), Arc::clone)
    }
}

fn resolve(name: &str) -> Result<SocketAddr, SendError> {
    let wrong = |reason: String| SendError::Address { address: name.to_owned(), reason };
    match RpcAddress::resolve(name).map_err(|error| wrong(error.to_string()))? {
        RpcAddress::Tcp(address) => Ok(address),
        RpcAddress::Unix(_) => Err(wrong("a UNIX socket is no receiver".to_owned())),
    }
}
