//! One connection of the blocking face. The threads that call over it do all its work: each writes its own frame, and
//! one of those that wait, the leader, reads for all.
//!
//! Invariants: at most one thread writes and one leads at a time; while calls wait there is a leader, or a thread that is
//! about to become one; a caller is answered exactly once (reply, deadline or failure of the connection).

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use socket2::Socket;
use yb_env::Clock;
use yb_types::MonotonicTime;

use super::core::{ClientCore, ReplyBody};
use super::eager::Eager;
use super::error::RpcError;
use super::socket::wait;
use crate::RpcAddress;

/// A blocking read returns at least this often, so that a leader can look at its deadline.
const READ_TICK: Duration = Duration::from_millis(100);
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;

type CallResult = Result<ReplyBody, RpcError>;

/// A caller that sleeps.
#[derive(Debug, Default)]
pub(super) struct Waiter {
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum News {
    #[default]
    None,
    /// The last leader has left; this caller reads now.
    Lead,
    Done(CallResult),
}

impl Waiter {
    fn tell(&self, news: News) {
        *self.news.lock() = news;
        self.changed.notify_one();
    }
}

#[derive(Debug)]
struct State {
    core: ClientCore<Arc<Waiter>>,
    /// Frames of callers that came while another thread was writing.
    queue: Vec<u8>,
    writing: bool,
    led: bool,
    dead: Option<RpcError>,
    /// A deadline passed on this connection: no new calls, closed when the last caller has left.
    retired: bool,
    last_used: MonotonicTime,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Link {
    socket: Socket,
    address: RpcAddress,
    state: Mutex<State>,
    read_buffer: Mutex<Box<[u8]>>,
    clock: Clock,
    eager: Eager,
}

impl Link {
    pub(super) fn new(socket: Socket, address: RpcAddress, clock: Clock, max_reply: u32) -> Result<Self, RpcError> {
        let failed = |e: std::io::Error| RpcError::Connect { address: address.clone(), reason: e.to_string() };
        socket.set_nonblocking(false).map_err(failed)?;
        socket.set_read_timeout(Some(READ_TICK)).map_err(failed)?;
        let state = State {
            core: ClientCore::new(address.clone(), max_reply),
            queue: Vec::new(),
            writing: false,
            led: false,
            dead: None,
            retired: false,
            last_used: clock.now(),
        };
        let read_buffer = Mutex::new(vec![0; READ_BYTES].into_boxed_slice());
        let eager = Eager::new(std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get));
        Ok(Link { socket, address, state: Mutex::new(state), read_buffer, clock, eager })
    }

    /// `None`: of no use for new calls. Else how many calls are under way.
    pub(super) fn load(&self) -> Option<usize> {
        let state = self.state.lock();
        (state.dead.is_none() && !state.retired).then(|| state.core.waiting())
    }

    /// For a connection that has been idle for a while: false if the server has closed it.
    pub(super) fn still_open(&self, now: MonotonicTime, idle: Duration) -> bool {
        if now.since(self.state.lock().last_used) < idle {
            return true;
        }
        let mut byte = [0u8; 1];
        let seen = rustix::net::recv(&self.socket, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        matches!(seen, Err(Errno::AGAIN)) || matches!(seen, Ok((_, got)) if got > 0)
    }

    /// One call, from frame to reply.
    pub(super) fn call(&self, function: u32, body: &[u8], deadline: MonotonicTime) -> CallResult {
        let waiter = Arc::new(Waiter::default());
        let mut state = self.state.lock();
        if let Some(error) = &state.dead {
            return Err(error.clone());
        }
        state.last_used = self.clock.now();
        let State { core, queue, .. } = &mut *state;
        let sequence = core.begin(function, body, Arc::clone(&waiter), queue)?;
        if !state.writing {
            state = self.write_queue(state, deadline);
        }
        let lead = !state.led && state.dead.is_none();
        state.led |= lead;
        drop(state);
        let result = if lead { self.lead(&waiter, deadline) } else { self.follow(&waiter, deadline) };
        result.unwrap_or_else(|| self.give_up(sequence, &waiter))
    }

    /// Ends every call and the connection.
    pub(super) fn close(&self, error: RpcError) {
        self.die(error);
    }

    /// Writes frames until the queue is empty; other callers may add to it meanwhile.
    fn write_queue<'a>(&'a self, mut state: MutexGuard<'a, State>, deadline: MonotonicTime) -> MutexGuard<'a, State> {
        state.writing = true;
        let mut spare = Vec::new();
        while !state.queue.is_empty() && state.dead.is_none() {
            std::mem::swap(&mut state.queue, &mut spare);
            drop(state);
            let written = self.write(&spare, deadline);
            spare.clear();
            if let Err(error) = written {
                self.die(error);
            }
            state = self.state.lock();
        }
        if state.queue.capacity() == 0 && spare.capacity() <= READ_BYTES {
            state.queue = spare;
        }
        state.writing = false;
        state
    }

    fn write(&self, bytes: &[u8], deadline: MonotonicTime) -> Result<(), RpcError> {
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            match rustix::net::send(&self.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(taken) => sent += taken,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    let left = deadline.since(self.clock.now());
                    // Half a frame is on the wire: the connection cannot be used any more.
                    if left.is_zero() || !wait(&self.socket, PollFlags::OUT, left).map_err(|e| self.closed(&e))? {
                        return Err(RpcError::TimedOut { address: self.address.clone() });
                    }
                }
                Err(error) => return Err(self.closed(&error.into())),
            }
        }
        Ok(())
    }

    /// Reads for all until the own reply has come. `None`: the deadline passed.
    fn lead(&self, own: &Waiter, deadline: MonotonicTime) -> Option<CallResult> {
        let mut buffer = self.read_buffer.lock();
        let (mut glances, began) = (self.eager.glances(), self.clock.now());
        let result = loop {
            if let News::Done(result) = std::mem::take(&mut *own.news.lock()) {
                break Some(result);
            }
            let left = deadline.since(self.clock.now());
            if left.is_zero() {
                break None;
            }
            let read = if glances == 0 { self.read_once(&mut buffer, left) } else { self.glance(&mut buffer) };
            glances = glances.saturating_sub(1);
            if let Err(error) = read {
                self.die(error);
            }
        };
        drop(buffer);
        self.eager.took(self.clock.now().since(began));
        let mut state = self.state.lock();
        state.led = false;
        if result.is_some() {
            self.pass_lead(&mut state);
        }
        result
    }

    fn pass_lead(&self, state: &mut State) {
        if state.led || state.dead.is_some() {
            return;
        }
        if let Some(next) = state.core.any_waiting() {
            next.tell(News::Lead);
            state.led = true;
        }
    }

    /// One read, at most about `left` long; hands out what came.
    fn read_once(&self, buffer: &mut [u8], left: Duration) -> Result<(), RpcError> {
        if left < READ_TICK && !wait(&self.socket, PollFlags::IN, left).map_err(|e| self.closed(&e))? {
            return Ok(());
        }
        self.take(buffer, RecvFlags::empty())
    }

    /// Looks for bytes without waiting; hands out what came.
    fn glance(&self, buffer: &mut [u8]) -> Result<(), RpcError> {
        std::hint::spin_loop();
        self.take(buffer, RecvFlags::DONTWAIT)
    }

    fn take(&self, buffer: &mut [u8], how: RecvFlags) -> Result<(), RpcError> {
        let got = match rustix::net::recv(&self.socket, &mut *buffer, how) {
            Ok((_, 0)) => {
                let reason = "the server closed it".to_owned();
                return Err(RpcError::Closed { address: self.address.clone(), reason });
            }
            Ok((_, got)) => got,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(self.closed(&error.into())),
        };
        let bytes = buffer.get(..got).unwrap_or_default();
        self.state.lock().core.feed(bytes, |done| done.caller.tell(News::Done(done.result)))
    }

    /// Sleeps until the reply is there or the lead is handed over. `None`: the deadline passed.
    fn follow(&self, own: &Waiter, deadline: MonotonicTime) -> Option<CallResult> {
        let mut news = own.news.lock();
        loop {
            match std::mem::take(&mut *news) {
                News::Done(result) => return Some(result),
                News::Lead => {
                    drop(news);
                    return self.lead(own, deadline);
                }
                News::None => {}
            }
            let left = deadline.since(self.clock.now());
            if left.is_zero() {
                return None;
            }
            own.changed.wait_for(&mut news, left);
        }
    }

    /// The deadline passed. The reply, or the lead, may have come in the same moment.
    fn give_up(&self, sequence: u32, own: &Waiter) -> CallResult {
        let mut state = self.state.lock();
        state.core.give_up(sequence);
        state.retired = true;
        let result = match std::mem::take(&mut *own.news.lock()) {
            News::Done(result) => Some(result),
            News::Lead => {
                state.led = false;
                None
            }
            News::None => None,
        };
        self.pass_lead(&mut state);
        result.unwrap_or_else(|| Err(RpcError::TimedOut { address: self.address.clone() }))
    }

    fn closed(&self, error: &std::io::Error) -> RpcError {
        RpcError::Closed { address: self.address.clone(), reason: error.to_string() }
    }

    fn die(&self, error: RpcError) {
        let mut state = self.state.lock();
        let error = state.dead.get_or_insert(error).clone();
        state.core.fail().for_each(|waiter| waiter.tell(News::Done(Err(error.clone()))));
        // A leader asleep in a read wakes up.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}
