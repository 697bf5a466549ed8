//! The completion face: one thread that owns one connection and runs the callbacks.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;
use yb_env::spawn_thread;
use yb_secure::{Dialled, Pending};
use yb_types::MonotonicTime;

use super::core::{ClientCore, Parts, ReplyBody};
use super::error::RpcError;
use super::pool::{ClientSettings, Payload};
use super::socket::{start_connecting, timespec};
use crate::RpcAddress;

/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

type Callback = Box<dyn FnOnce(Result<ReplyBody, RpcError>) + Send>;

/// A call to make.
pub(super) struct Order {
    pub(super) function: u32,
    pub(super) payload: Payload,
    pub(super) deadline: MonotonicTime,
    pub(super) completed: Callback,
}

impl Order {
    pub(super) fn answer(self, result: Result<ReplyBody, RpcError>) {
        (self.completed)(result);
    }
}

#[derive(Default)]
struct Orders {
    new: Vec<Order>,
    stop: bool,
}

struct Desk {
    orders: Mutex<Orders>,
    bell: OwnedFd,
}

/// The running thread; dropping it ends all its calls.
pub(super) struct Driver {
    desk: Arc<Desk>,
    thread: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}

impl Driver {
    pub(super) fn start(address: RpcAddress, settings: ClientSettings) -> io::Result<Self> {
        let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let desk = Arc::new(Desk { orders: Mutex::default(), bell });
        let mut run = Run {
            desk: Arc::clone(&desk),
            core: ClientCore::new(address.clone(), settings.max_reply_bytes),
            address,
            settings,
            line: Line::Down,
            out: Vec::new(),
            sent: 0,
            deadlines: BTreeSet::new(),
            buffer: vec![0; READ_BYTES],
        };
        let thread = spawn_thread("yb-rpc-client", move || run.run())?;
        Ok(Driver { desk, thread: Some(thread) })
    }

    pub(super) fn submit(&self, order: Order) {
        let mut orders = self.desk.orders.lock();
        let first = orders.new.is_empty();
        orders.new.push(order);
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

impl Drop for Driver {
    fn drop(&mut self) {
        self.desk.orders.lock().stop = true;
        self.ring();
        let Some(thread) = self.thread.take() else { return };
        // A callback may drop the last handle of the pool: a thread cannot wait for itself.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!("the RPC client's thread panicked");
        }
    }
}

enum Line {
    Down,
    Connecting(Socket, MonotonicTime),
    Securing(Pending, MonotonicTime),
    Up(Socket),
}

struct Run {
    desk: Arc<Desk>,
    address: RpcAddress,
    settings: ClientSettings,
    core: ClientCore<(MonotonicTime, Callback)>,
    line: Line,
    out: Vec<u8>,
    sent: usize,
    /// Deadline and sequence number of every open call.
    deadlines: BTreeSet<(MonotonicTime, u32)>,
    buffer: Vec<u8>,
}

impl Run {
    fn run(&mut self) {
        loop {
            let now = self.settings.clock.now();
            self.expire(now);
            let (bell, readable, writable) = match self.wait(now) {
                Ok(ready) => ready,
                Err(error) => {
                    tracing::error!(%error, "the RPC client's thread cannot wait and stops");
                    return self.fail(&RpcError::ShutDown);
                }
            };
            if bell && !self.take_orders() {
                return self.fail(&RpcError::ShutDown);
            }
            let result = self.advance(readable, writable);
            if let Err(error) = result {
                self.fail(&error);
            }
        }
    }

    /// Waits for orders, the socket or the next deadline. Returns: bell rang, socket readable, socket writable.
    fn wait(&self, now: MonotonicTime) -> io::Result<(bool, bool, bool)> {
        let next = self.deadlines.first().map(|(deadline, _)| *deadline);
        let connect = match &self.line {
            Line::Connecting(_, since) | Line::Securing(_, since) => Some(*since + self.settings.connect_timeout),
            _ => None,
        };
        let until = [next, connect].into_iter().flatten().min();
        // A little longer, so that the deadline has passed when the wait is over.
        let limit = until.map(|until| timespec(until.since(now) + Duration::from_micros(200)));
        let mut waits = vec![PollFd::new(&self.desk.bell, PollFlags::IN)];
        match &self.line {
            Line::Down => {}
            Line::Connecting(socket, _) => waits.push(PollFd::new(socket, PollFlags::OUT)),
            Line::Securing(pending, _) => waits.push(PollFd::new(pending, PollFlags::IN)),
            Line::Up(socket) if self.sent < self.out.len() => {
                waits.push(PollFd::new(socket, PollFlags::IN | PollFlags::OUT));
            }
            Line::Up(socket) => waits.push(PollFd::new(socket, PollFlags::IN)),
        }
        match poll(&mut waits, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let seen = waits.get(1).map_or(PollFlags::empty(), PollFd::revents);
        let bell = waits.first().is_some_and(|bell| !bell.revents().is_empty());
        Ok((bell, seen.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR), seen.intersects(PollFlags::OUT)))
    }

    /// False: stop.
    fn take_orders(&mut self) -> bool {
        let mut count = [0u8; 8];
        // Nothing to read means that the orders were taken before.
        let _ = rustix::io::read(&self.desk.bell, &mut count);
        let (orders, stop) = {
            let mut orders = self.desk.orders.lock();
            (std::mem::take(&mut orders.new), orders.stop)
        };
        for order in orders {
            let bytes = order.payload.body.len().max(order.payload.attachment.len());
            if u32::try_from(bytes).is_err() {
                order.answer(Err(RpcError::TooLarge { bytes }));
                continue;
            }
            let caller = (order.deadline, order.completed);
            let parts = Parts { body: &order.payload.body, attachment: &order.payload.attachment };
            if let Ok(sequence) = self.core.begin_with(order.function, parts, caller, &mut self.out) {
                self.deadlines.insert((order.deadline, sequence));
            }
        }
        !stop
    }

    /// Answers the calls whose time is up.
    fn expire(&mut self, now: MonotonicTime) {
        let mut late = false;
        while let Some(&(deadline, sequence)) = self.deadlines.first() {
            if deadline > now {
                break;
            }
            self.deadlines.pop_first();
            late = true;
            if let Some((_, completed)) = self.core.give_up(sequence) {
                let connecting = !matches!(self.line, Line::Up(_));
                let address = self.address.clone();
                completed(Err(if connecting {
                    RpcError::ConnectTimeout { address }
                } else {
                    RpcError::TimedOut { address }
                }));
            }
        }
        // A server that missed a deadline and owes nothing else gets a new connection, as from the peer's clients.
        if late && self.core.waiting() == 0 {
            self.reset();
        }
    }

    /// Connects, writes and reads as far as it goes without waiting.
    fn advance(&mut self, readable: bool, writable: bool) -> Result<(), RpcError> {
        let failed =
            |address: &RpcAddress, e: io::Error| RpcError::Connect { address: address.clone(), reason: e.to_string() };
        match std::mem::replace(&mut self.line, Line::Down) {
            Line::Down if self.core.waiting() > 0 => {
                let (socket, stands) = start_connecting(&self.address).map_err(|e| failed(&self.address, e))?;
                let now = self.settings.clock.now();
                self.line = if stands { self.connected(socket, now)? } else { Line::Connecting(socket, now) };
            }
            Line::Down => return Ok(()),
            Line::Connecting(socket, since) => {
                if !readable && !writable {
                    if self.settings.clock.now() >= since + self.settings.connect_timeout {
                        return Err(RpcError::ConnectTimeout { address: self.address.clone() });
                    }
                    self.line = Line::Connecting(socket, since);
                    return Ok(());
                }
                if let Some(error) = socket.take_error().unwrap_or_else(Some) {
                    return Err(failed(&self.address, error));
                }
                self.line = self.connected(socket, since)?;
            }
            Line::Securing(pending, since) => match pending.take() {
                Some(Ok(socket)) => self.line = Line::Up(socket),
                Some(Err(error)) => return Err(RpcError::not_secured(&self.address, &error)),
                None if self.settings.clock.now() >= since + self.settings.connect_timeout => {
                    return Err(RpcError::ConnectTimeout { address: self.address.clone() });
                }
                None => {
                    self.line = Line::Securing(pending, since);
                    return Ok(());
                }
            },
            up @ Line::Up(_) => self.line = up,
        }
        self.write()?;
        if readable { self.read() } else { Ok(()) }
    }

    /// A connection stands that was begun at `since`.
    fn connected(&self, socket: Socket, since: MonotonicTime) -> Result<Line, RpcError> {
        let (Some(security), RpcAddress::Tcp(server)) = (&self.settings.security, &self.address) else {
            return Ok(Line::Up(socket));
        };
        match security.dial(socket, *server, self.settings.connect_timeout) {
            Ok(Dialled::Plain(socket)) => Ok(Line::Up(socket)),
            Ok(Dialled::Pending(pending)) => Ok(Line::Securing(pending, since)),
            Err(error) => Err(RpcError::Connect { address: self.address.clone(), reason: error.to_string() }),
        }
    }

    fn write(&mut self) -> Result<(), RpcError> {
        let Line::Up(socket) = &self.line else { return Ok(()) };
        while let Some(rest) = self.out.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match rustix::net::send(socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(taken) => self.sent += taken,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(error) => return Err(self.closed(io::Error::from(error).to_string())),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    fn read(&mut self) -> Result<(), RpcError> {
        let Line::Up(socket) = &self.line else { return Ok(()) };
        let got = match rustix::net::recv(socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(self.closed("the server closed it".to_owned())),
            Ok((_, got)) => got,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(self.closed(io::Error::from(error).to_string())),
        };
        let mut completed = Vec::new();
        let result = self.core.feed(self.buffer.get(..got).unwrap_or_default(), |done| completed.push(done));
        for done in completed {
            let (deadline, callback) = done.caller;
            self.deadlines.remove(&(deadline, done.sequence));
            callback(done.result);
        }
        result
    }

    fn closed(&self, reason: String) -> RpcError {
        RpcError::Closed { address: self.address.clone(), reason }
    }

    fn reset(&mut self) {
        self.line = Line::Down;
        self.core = ClientCore::new(self.address.clone(), self.settings.max_reply_bytes);
        self.deadlines.clear();
        self.out.clear();
        self.sent = 0;
    }

    /// Ends every call with `error`; the next order connects anew.
    fn fail(&mut self, error: &RpcError) {
        let callers: Vec<_> = self.core.fail().collect();
        self.reset();
        callers.into_iter().for_each(|(_, completed)| completed(Err(error.clone())));
    }
}
