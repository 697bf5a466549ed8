//! All connections to one server.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use yb_env::Clock;
use yb_secure::Security;
use yb_types::MonotonicTime;

use super::core::ReplyBody;
use super::driver::{Driver, Order};
use super::error::RpcError;
use super::future::CallFuture;
use super::link::Link;
use super::socket::connect;
use crate::RpcAddress;

/// An idle connection is looked at before use after this long: the server may have restarted.
const IDLE_CHECK: Duration = Duration::from_secs(1);

/// Settings of a client pool.
#[derive(Clone, Debug)]
pub struct ClientSettings {
    /// Most connections of the blocking face. Calls beyond share them, pipelined.
    pub max_connections: usize,
    /// Longest wait for a connection; a call's own deadline cuts it short.
    pub connect_timeout: Duration,
    /// Largest reply taken, in bytes; a larger claim breaks the connection.
    pub max_reply_bytes: u32,
    /// The clock of the deadlines.
    pub clock: Clock,
    /// How TCP connections are secured; `None`: they are plain.
    pub security: Option<Arc<Security>>,
}

impl Default for ClientSettings {
    fn default() -> Self {
        ClientSettings {
            max_connections: 4,
            connect_timeout: Duration::from_secs(5),
            max_reply_bytes: 256 << 20,
            clock: Clock::real(),
            security: None,
        }
    }
}

/// What a request carries, owned.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    /// The encoded arguments.
    pub body: Vec<u8>,
    /// Bytes beside them, as they are; store calls carry none.
    pub attachment: Vec<u8>,
}

impl From<Vec<u8>> for Payload {
    fn from(body: Vec<u8>) -> Self {
        Payload { body, attachment: Vec::new() }
    }
}

/// Calls to one server from any number of threads. Connections are opened when needed, and again after they broke.
#[derive(Debug)]
pub struct ClientPool {
    address: RpcAddress,
    settings: ClientSettings,
    links: Mutex<Links>,
    driver: Mutex<Option<Driver>>,
}

#[derive(Debug, Default)]
struct Links {
    open: Vec<Arc<Link>>,
    /// Connections being opened right now.
    opening: usize,
    shut_down: bool,
}

impl ClientPool {
    /// A pool without connections yet; nothing is sent before the first call.
    pub fn new(address: RpcAddress, settings: ClientSettings) -> Self {
        ClientPool { address, settings, links: Mutex::default(), driver: Mutex::default() }
    }

    /// The server.
    pub fn address(&self) -> &RpcAddress {
        &self.address
    }

    /// The deadline that lies `timeout` ahead.
    pub fn deadline_in(&self, timeout: Duration) -> MonotonicTime {
        self.settings.clock.now() + timeout
    }

    /// Calls `function` with an encoded argument body and waits for the body of the reply, until `deadline` at the latest.
    ///
    /// # Errors
    /// See [`RpcError`]; [`RpcError::retry`] says what a repetition would mean.
    pub fn call(&self, function: u32, body: &[u8], deadline: MonotonicTime) -> Result<ReplyBody, RpcError> {
        self.link(deadline)?.call(function, body, deadline)
    }

    /// The same without waiting: `completed` runs once, on the pool's background thread, and must not block. The payload
    /// is a body, or a [`Payload`] with an attachment.
    pub fn submit<F>(&self, function: u32, payload: impl Into<Payload>, deadline: MonotonicTime, completed: F)
    where
        F: FnOnce(Result<ReplyBody, RpcError>) + Send + 'static,
    {
        let order = Order { function, payload: payload.into(), deadline, completed: Box::new(completed) };
        let mut driver = self.driver.lock();
        if self.links.lock().shut_down {
            drop(driver);
            return order.answer(Err(RpcError::ShutDown));
        }
        if driver.is_none() {
            match Driver::start(self.address.clone(), self.settings.clone()) {
                Ok(started) => *driver = Some(started),
                Err(error) => {
                    drop(driver);
                    let reason = format!("the client's thread cannot start: {error}");
                    return order.answer(Err(RpcError::Connect { address: self.address.clone(), reason }));
                }
            }
        }
        if let Some(driver) = driver.as_ref() {
            driver.submit(order);
        }
    }

    /// The same as a future, for any executor. Dropping the future does not take the call back.
    pub fn call_async(&self, function: u32, body: Vec<u8>, deadline: MonotonicTime) -> CallFuture {
        let (future, promise) = CallFuture::pair();
        self.submit(function, body, deadline, move |result| promise.keep(result));
        future
    }

    /// Ends all calls with [`RpcError::ShutDown`] and closes the connections; later calls fail the same way.
    pub fn shutdown(&self) {
        let links = {
            let mut links = self.links.lock();
            links.shut_down = true;
            std::mem::take(&mut links.open)
        };
        links.iter().for_each(|link| link.close(RpcError::ShutDown));
        let driver = self.driver.lock().take();
        drop(driver);
    }

    /// The connection with the fewest calls under way; a new one while all are busy and more are allowed.
    fn link(&self, deadline: MonotonicTime) -> Result<Arc<Link>, RpcError> {
        let now = self.settings.clock.now();
        {
            let mut links = self.links.lock();
            if links.shut_down {
                return Err(RpcError::ShutDown);
            }
            let mut best: Option<(usize, Arc<Link>)> = None;
            links.open.retain(|link| {
                let Some(load) = link.load().filter(|_| link.still_open(now, IDLE_CHECK)) else { return false };
                if best.as_ref().is_none_or(|(least, _)| load < *least) {
                    best = Some((load, Arc::clone(link)));
                }
                true
            });
            let room = links.open.len() + links.opening < self.settings.max_connections.max(1);
            match best {
                Some((load, link)) if load == 0 || !room => return Ok(link),
                _ => links.opening += 1,
            }
        }
        let opened = self.open(deadline);
        let mut links = self.links.lock();
        links.opening -= 1;
        let link = opened?;
        if links.shut_down {
            return Err(RpcError::ShutDown);
        }
        links.open.push(Arc::clone(&link));
        Ok(link)
    }

    fn open(&self, deadline: MonotonicTime) -> Result<Arc<Link>, RpcError> {
        let left = deadline.since(self.settings.clock.now());
        if left.is_zero() {
            return Err(RpcError::ConnectTimeout { address: self.address.clone() });
        }
        let limit = left.min(self.settings.connect_timeout);
        let mut socket = connect(&self.address, limit)?;
        if let (Some(security), RpcAddress::Tcp(server)) = (&self.settings.security, &self.address) {
            let failed = |reason: String| RpcError::Connect { address: self.address.clone(), reason };
            let left = deadline.since(self.settings.clock.now()).min(limit);
            let dialled = security.dial(socket, *server, left).map_err(|error| failed(error.to_string()))?;
            socket = dialled.wait(left).map_err(|error| RpcError::not_secured(&self.address, &error))?;
        }
        let (address, clock) = (self.address.clone(), self.settings.clock.clone());
        Ok(Arc::new(Link::new(socket, address, clock, self.settings.max_reply_bytes)?))
    }
}

impl Drop for ClientPool {
    fn drop(&mut self) {
        self.shutdown();
    }
}
