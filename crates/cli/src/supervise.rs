//! Child processes of this command: started, watched, ended; never left behind.
//!
//! Invariants:
//! - a child is ended through its process descriptor, so a number that the system has given to somebody else is never
//!   hit;
//! - children are in process groups of their own: Ctrl-C reaches this command only, which ends them in order;
//! - each child dies with its parent, however that ends (see [`die_with_parent`]).

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use yb_env::Clock;
use yb_types::MonotonicTime;

use crate::failure::{Failure, Outcome};
use crate::signals::Signals;

/// Environment variable that tells a child of whom it is one.
pub const PARENT: &str = "YUEBING_PARENT";
/// How long a child may take to end after it was asked to.
const LEAVE: Duration = Duration::from_secs(10);

/// A running child.
#[derive(Debug)]
pub struct Member {
    /// What it is, for people: `master`, `node 1`.
    pub name: String,
    child: Child,
    descriptor: OwnedFd,
    ended: Option<ExitStatus>,
}

impl Member {
    /// Starts this same binary with other arguments.
    pub fn start(name: &str, arguments: &[OsString], stderr: Stdio) -> Outcome<Member> {
        let failed = |e: io::Error| Failure::failed(format!("cannot start the {name}: {e}"));
        let binary = std::env::current_exe().map_err(failed)?;
        let mut child = Command::new(binary)
            .args(arguments)
            .env(PARENT, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .process_group(0)
            .spawn()
            .map_err(failed)?;
        let opened = Pid::from_raw(child.id().cast_signed())
            .ok_or(io::ErrorKind::NotFound.into())
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from));
        match opened {
            Ok(descriptor) => Ok(Member { name: name.to_owned(), child, descriptor, ended: None }),
            Err(error) => {
                // Not reaped yet, so the number is still this child's.
                child.kill().and_then(|()| child.wait()).map_err(failed)?;
                Err(failed(error))
            }
        }
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended
    }

    fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            // It may end at this moment; then there is nobody to tell.
            let _ = pidfd_send_signal(&self.descriptor, signal);
        }
    }
}

/// What a wait ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A signal asks this command to leave.
    Signal,
    /// The member of this index ended.
    Ended(usize),
    /// The time is over.
    Timeout,
}

/// Waits until a signal arrives, a member ends, or the deadline passes.
pub fn wait(members: &mut [Member], signals: &Signals, deadline: Option<MonotonicTime>) -> Outcome<Event> {
    let clock = Clock::real();
    loop {
        if signals.received() {
            return Ok(Event::Signal);
        }
        if let Some(index) = members.iter_mut().position(|m| m.ended().is_some()) {
            return Ok(Event::Ended(index));
        }
        let left = deadline.map(|d| d.since(clock.now()));
        if left.is_some_and(|l| l.is_zero()) {
            return Ok(Event::Timeout);
        }
        let mut descriptors = vec![PollFd::new(signals, PollFlags::IN)];
        descriptors.extend(members.iter().map(|m| PollFd::from_borrowed_fd(m.descriptor.as_fd(), PollFlags::IN)));
        let left = left.and_then(|l| Timespec::try_from(l).ok());
        match poll(&mut descriptors, left.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(Failure::failed(format!("cannot wait for child processes: {error}"))),
        }
    }
}

/// Asks members to leave, from the last to the first, and waits for each; ends those that do not.
///
/// The names of those that had to be killed.
pub fn end(members: &mut [Member]) -> Vec<String> {
    let clock = Clock::real();
    let mut killed = Vec::new();
    // All but the first leave at once, then the first: nodes say goodbye to a master that still answers.
    let (first, others) = members.split_at_mut(members.len().min(1));
    for group in [others, first] {
        group.iter_mut().for_each(|member| member.signal(Signal::TERM));
        let deadline = clock.now() + LEAVE;
        for member in group {
            if !wait_ended(member, &clock, deadline) {
                member.signal(Signal::KILL);
                killed.push(member.name.clone());
                member.ended = member.child.wait().ok();
            }
        }
    }
    killed
}

fn wait_ended(member: &mut Member, clock: &Clock, deadline: MonotonicTime) -> bool {
    while member.ended().is_none() {
        let Ok(left) = Timespec::try_from(deadline.since(clock.now())) else { return false };
        if left.tv_sec == 0 && left.tv_nsec == 0 {
            return false;
        }
        let mut descriptors = [PollFd::from_borrowed_fd(member.descriptor.as_fd(), PollFlags::IN)];
        match poll(&mut descriptors, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// If this process is a member of an embedded pool, the kernel ends it together with its parent.
pub fn die_with_parent() -> Outcome {
    let Some(parent) = std::env::var(PARENT).ok().and_then(|text| text.parse::<i32>().ok()) else {
        return Ok(());
    };
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|e| Failure::failed(format!("cannot be told of the end of the parent process: {e}")))?;
    // The parent may have ended before the line above.
    match rustix::process::getppid() {
        Some(now) if now.as_raw_nonzero().get() == parent => Ok(()),
        _ => Err(Failure::failed("the parent process has ended already")),
    }
}
