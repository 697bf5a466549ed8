//! One epoll instance and its wake-up: what a serving thread waits on.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec};

use crate::handshake::session::Wants;

/// The token of the wake-up itself.
const WAKE: u64 = u64::MAX;

/// What is ready, in room that is used again.
#[derive(Default)]
pub(crate) struct Ready {
    events: Vec<Event>,
    tokens: Vec<u64>,
}

impl Ready {
    /// The tokens of what is ready.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = u64> + '_ {
        self.tokens.iter().copied()
    }
}

/// Most events taken in one wait.
const MAX_EVENTS: usize = 64;

#[derive(Debug)]
pub(crate) struct Reactor {
    epoll: OwnedFd,
    wake: OwnedFd,
}

fn flags(wants: Wants) -> EventFlags {
    match wants {
        Wants::Read => EventFlags::IN | EventFlags::RDHUP,
        Wants::Write => EventFlags::OUT,
        Wants::Close => EventFlags::empty(),
    }
}

impl Reactor {
    pub(crate) fn new() -> io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        Ok(Reactor { epoll, wake })
    }

    pub(crate) fn add(&self, fd: impl AsFd, token: u64, wants: Wants) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), flags(wants))?)
    }

    /// Reports only the end of a connection.
    pub(crate) fn add_end_of(&self, fd: impl AsFd, token: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(token), EventFlags::RDHUP)?)
    }

    pub(crate) fn change(&self, fd: impl AsFd, token: u64, wants: Wants) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags(wants))?)
    }

    pub(crate) fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Ends the current or next [`Reactor::wait`] early.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    /// Fills `ready` with what is ready, without the wake-up.
    pub(crate) fn wait(&self, ready: &mut Ready, timeout: Option<Duration>) -> io::Result<()> {
        ready.tokens.clear();
        ready.events.clear();
        ready.events.reserve(MAX_EVENTS);
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready.events), timeout.as_ref()) {
            Err(rustix::io::Errno::INTR) => return Ok(()),
            other => other?,
        };
        for event in &ready.events {
            let token = event.data.u64();
            if token == WAKE {
                let _ = rustix::io::read(&self.wake, &mut [0_u8; 8][..]);
            } else {
                ready.tokens.push(token);
            }
        }
        Ok(())
    }
}
