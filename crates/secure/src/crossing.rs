//! The loop of a porter: connections that are being secured, refused ones that leave, and those with TLS.

use std::collections::BTreeMap;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use socket2::{Domain, Socket, Type};
use yb_types::MonotonicTime;

use crate::line::Line;
use crate::porter::{Admitted, Desk, Order, Task, Tools};
use crate::relay::{Interest, Relay, Side};
use crate::shake::{SecureError, Step};
use crate::watch::Why;

/// Event data of the bell; sockets are below.
const BELL: u64 = u64::MAX;
/// How often deadlines are looked at.
const SWEEP: Duration = Duration::from_millis(100);
/// How often files and the time of the certificate are looked at, also when nobody connects.
const LOOK: Duration = Duration::from_secs(60);
/// How long a refused peer may take to read why.
const LINGER: Duration = Duration::from_millis(500);
/// Bytes moved at once.
const SCRATCH: usize = 128 << 10;
const EVENTS: usize = 128;

/// A connection that is being secured.
struct Shaking {
    line: Line,
    task: Task,
    deadline: MonotonicTime,
}

/// A connection and how far it has come.
enum Crossing {
    Shaking(Box<Shaking>),
    /// Told why it is refused; closed when it has read that, or soon.
    Leaving {
        line: Box<Line>,
        deadline: MonotonicTime,
    },
    Relaying {
        relay: Box<Relay>,
        interest: Interest,
    },
}

impl Crossing {
    fn deadline(&self) -> Option<MonotonicTime> {
        match self {
            Crossing::Shaking(shaking) => Some(shaking.deadline),
            Crossing::Leaving { deadline, .. } => Some(*deadline),
            Crossing::Relaying { .. } => None,
        }
    }
}

/// The state of the thread.
pub(crate) struct Run {
    desk: Arc<Desk>,
    poll: OwnedFd,
    tools: Tools,
    /// By number; event data are twice the number for the outer socket, and one more for the inner.
    crossings: BTreeMap<u64, Crossing>,
    next: u64,
    /// How many of them have a deadline.
    timed: usize,
    swept: MonotonicTime,
    looked: MonotonicTime,
    scratch: Box<[u8]>,
}

impl Run {
    pub(crate) fn new(desk: Arc<Desk>, tools: Tools) -> io::Result<Self> {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poll, &desk.bell, EventData::new_u64(BELL), EventFlags::IN)?;
        let (crossings, swept) = (BTreeMap::new(), MonotonicTime(0));
        let scratch = vec![0; SCRATCH].into_boxed_slice();
        let looked = tools.clock.now();
        Ok(Run { desk, poll, tools, crossings, next: 0, timed: 0, swept, looked, scratch })
    }

    pub(crate) fn run(mut self) {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        while !self.desk.stop.load(Ordering::SeqCst) {
            events.clear();
            let limit = if self.timed > 0 { SWEEP } else { LOOK };
            let limit = Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: i64::from(limit.subsec_nanos()) };
            match epoll::wait(&self.poll, spare_capacity(&mut events), Some(&limit)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "secured connections cannot be waited for and end");
                    break;
                }
            }
            for event in &events {
                match event.data.u64() {
                    BELL => self.take_orders(),
                    data => self.woken(data, event.flags),
                }
            }
            self.sweep();
        }
        // Those that wait are told.
        self.desk.stop.store(true, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.desk.orders.lock());
        waiting.into_iter().for_each(|order| order.task.fail(SecureError::TimedOut));
        for crossing in std::mem::take(&mut self.crossings).into_values() {
            if let Crossing::Shaking(shaking) = crossing {
                shaking.task.fail(SecureError::TimedOut);
            }
        }
    }

    fn take_orders(&mut self) {
        let mut count = [0u8; 8];
        // Nothing to read means that the orders were taken before.
        let _ = rustix::io::read(&self.desk.bell, &mut count);
        let orders = std::mem::take(&mut *self.desk.orders.lock());
        for Order { socket, task, deadline } in orders {
            let number = self.next;
            self.next += 1;
            let data = EventData::new_u64(number * 2);
            let ready = socket.set_nonblocking(true);
            let ready = ready.and_then(|()| Ok(epoll::add(&self.poll, &socket, data, flags_of(&task, true))?));
            match ready {
                Ok(()) => {
                    self.timed += 1;
                    let shaking = Box::new(Shaking { line: Line::new(socket), task, deadline });
                    self.crossings.insert(number, Crossing::Shaking(shaking));
                    self.advance(number);
                }
                Err(error) => {
                    self.desk.load.fetch_sub(1, Ordering::Relaxed);
                    task.fail(error.into());
                }
            }
        }
    }

    fn woken(&mut self, data: u64, flags: EventFlags) {
        let number = data / 2;
        if flags.intersects(EventFlags::HUP | EventFlags::ERR)
            && let Some(Crossing::Relaying { relay, .. }) = self.crossings.get_mut(&number)
        {
            let side = if data.is_multiple_of(2) { Side::Outer } else { Side::Inner };
            if relay.hung_up(side) {
                let socket = if side == Side::Outer { relay.outer() } else { relay.inner() };
                let _ = epoll::delete(&self.poll, socket);
            }
        }
        self.advance(number);
    }

    fn advance(&mut self, number: u64) {
        let Some(crossing) = self.crossings.remove(&number) else { return };
        let was_timed = crossing.deadline().is_some();
        let next = match crossing {
            Crossing::Shaking(shaking) => self.shake(number, shaking),
            Crossing::Leaving { line, deadline } => self.leave(line, deadline),
            Crossing::Relaying { mut relay, interest } => {
                let wanted = relay.advance(&mut self.scratch);
                let watched = wanted.filter(|wanted| self.wait_for(number, &relay, Some(interest), *wanted));
                watched.map(|interest| Crossing::Relaying { relay, interest })
            }
        };
        let is_timed = next.as_ref().is_some_and(|crossing| crossing.deadline().is_some());
        self.timed = self.timed + usize::from(is_timed) - usize::from(was_timed);
        match next {
            Some(crossing) => drop(self.crossings.insert(number, crossing)),
            None => drop(self.desk.load.fetch_sub(1, Ordering::Relaxed)),
        }
    }

    fn shake(&mut self, number: u64, shaking: Box<Shaking>) -> Option<Crossing> {
        let Shaking { mut line, mut task, deadline } = *shaking;
        let step = match &mut task {
            Task::Serve { shake, .. } => shake.advance(&mut line),
            Task::Dial { shake, .. } => shake.advance(&mut line),
        };
        match step {
            Ok(Step::Wait) => {
                let flushed = line.flush();
                let flags = flags_of(&task, *flushed.as_ref().unwrap_or(&true));
                let waiting = epoll::modify(&self.poll, &line.socket, EventData::new_u64(number * 2), flags);
                match flushed.and_then(|_| Ok(waiting?)) {
                    Ok(()) => Some(Crossing::Shaking(Box::new(Shaking { line, task, deadline }))),
                    Err(error) => self.fail(task, error.into()),
                }
            }
            Ok(Step::Secured) => self.secured(number, line, task),
            Ok(Step::Plain) => {
                let _ = epoll::delete(&self.poll, &line.socket);
                self.tools.watch.plain();
                task.succeed(Admitted { socket: line.socket, passage: None });
                None
            }
            Ok(Step::PlainRefused) => self.refuse(number, line, task, Why::Plain),
            Ok(Step::Refused(refusal)) => self.refuse(number, line, task, Why::Failed(refusal.into())),
            Err(error) => self.fail(task, error),
        }
    }

    fn fail(&self, task: Task, error: SecureError) -> Option<Crossing> {
        let left = matches!(&task, Task::Serve { shake, .. } if shake.is_opening());
        self.count(&task, &if left { Why::Left } else { Why::Failed(error.clone()) });
        task.fail(error);
        None
    }

    fn secured(&mut self, number: u64, line: Line, task: Task) -> Option<Crossing> {
        if matches!(task, Task::Serve { .. }) {
            self.tools.watch.secured();
        }
        let Line { socket, tls, .. } = line;
        let Some(tls) = tls else {
            let _ = epoll::delete(&self.poll, &socket);
            task.succeed(Admitted { socket, passage: None });
            return None;
        };
        let pair = Socket::pair(Domain::UNIX, Type::STREAM, None).and_then(|(inner, theirs)| {
            inner.set_nonblocking(true)?;
            theirs.set_nonblocking(true)?;
            Ok((Box::new(Relay::new(socket, inner, tls)?), theirs))
        });
        let (mut relay, theirs) = match pair {
            Ok(both) => both,
            Err(error) => {
                task.fail(error.into());
                return None;
            }
        };
        let wanted = relay.advance(&mut self.scratch);
        let Some(interest) = wanted.filter(|wanted| self.wait_for(number, &relay, None, *wanted)) else {
            task.fail(SecureError::Broken("it ended at once".to_owned()));
            return None;
        };
        task.succeed(Admitted { socket: theirs, passage: Some(Arc::clone(relay.passage())) });
        Some(Crossing::Relaying { relay, interest })
    }

    /// Waits for what the relay wants; false: it cannot be.
    fn wait_for(&self, number: u64, relay: &Relay, before: Option<Interest>, wanted: Interest) -> bool {
        if before == Some(wanted) {
            return true;
        }
        let (outer, inner) = (EventData::new_u64(number * 2), EventData::new_u64(number * 2 + 1));
        let (outer_flags, inner_flags) =
            (flags(wanted.outer_in, wanted.outer_out), flags(wanted.inner_in, wanted.inner_out));
        let outer_set =
            !relay.is_watched(Side::Outer) || epoll::modify(&self.poll, relay.outer(), outer, outer_flags).is_ok();
        let inner_set = match before {
            _ if !relay.is_watched(Side::Inner) => true,
            None => epoll::add(&self.poll, relay.inner(), inner, inner_flags).is_ok(),
            Some(_) => epoll::modify(&self.poll, relay.inner(), inner, inner_flags).is_ok(),
        };
        outer_set && inner_set
    }

    /// The refusal is on its way: whoever waits is told now, the peer gets the time to read it.
    fn refuse(&mut self, number: u64, line: Line, task: Task, why: Why) -> Option<Crossing> {
        self.count(&task, &why);
        task.fail(if let Why::Failed(error) = why { error } else { SecureError::TimedOut });
        let deadline = self.tools.clock.now() + LINGER;
        epoll::modify(&self.poll, &line.socket, EventData::new_u64(number * 2), EventFlags::IN).ok()?;
        self.leave(Box::new(line), deadline)
    }

    /// Reads what the peer still says, so that closing does not wipe out the refusal on its way.
    fn leave(&mut self, mut line: Box<Line>, deadline: MonotonicTime) -> Option<Crossing> {
        if line.flush().ok()? {
            line.socket.shutdown(Shutdown::Write).ok()?;
        }
        loop {
            match rustix::net::recv(&line.socket, &mut self.scratch[..], RecvFlags::DONTWAIT) {
                Ok((_, got)) if got > 0 => {}
                Err(Errno::AGAIN) => return Some(Crossing::Leaving { line, deadline }),
                Err(Errno::INTR) => {}
                _ => return None,
            }
        }
    }

    fn count(&self, task: &Task, why: &Why) {
        if let Task::Serve { plane, peer, .. } = task {
            self.tools.watch.refused(plane, *peer, why, self.tools.clock.now());
        }
    }

    fn sweep(&mut self) {
        let now = self.tools.clock.now();
        if now.since(self.looked) >= LOOK {
            self.looked = now;
            drop(self.tools.safe.look());
        }
        if self.timed == 0 || now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        let late = self.crossings.iter().filter(|(_, crossing)| crossing.deadline().is_some_and(|by| by <= now));
        for number in late.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.timed -= 1;
            self.desk.load.fetch_sub(1, Ordering::Relaxed);
            if let Some(Crossing::Shaking(shaking)) = self.crossings.remove(&number) {
                self.count(&shaking.task, &Why::Silent);
                shaking.task.fail(SecureError::TimedOut);
            }
        }
    }
}

/// What a connection that is being secured waits for; `sent`: all that was to be sent.
fn flags_of(task: &Task, sent: bool) -> EventFlags {
    let mut wanted = flags(true, !sent);
    // The first bytes are looked at and left in the socket: they would end every wait that is not for news.
    wanted.set(EventFlags::ET, matches!(task, Task::Serve { shake, .. } if shake.is_opening()));
    wanted
}

fn flags(read: bool, write: bool) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, read);
    flags.set(EventFlags::OUT, write);
    flags
}
