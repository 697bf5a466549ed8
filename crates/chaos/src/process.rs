//! Processes of a test: started, signalled and ended by their own number.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};
use yb_types::MonotonicTime;

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The machine's monotonic clock: the same for all its processes.
pub fn now() -> MonotonicTime {
    let time = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    MonotonicTime(seconds * 1_000_000_000 + nanos)
}

/// A port of 127.0.0.1 that nobody has now.
///
/// # Errors
/// The system has none left.
pub fn free_port() -> io::Result<u16> {
    yb_env::free_port()
}

/// Asks again and again, for [`PATIENCE`].
///
/// # Errors
/// It never was so, in words.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> io::Result<()> {
    let end = now() + PATIENCE;
    while !is_so() {
        if now() > end {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("not within {PATIENCE:?}: {what}")));
        }
        yb_env::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A process that ends with its owner.
#[derive(Debug)]
pub struct Process {
    child: Child,
    handle: OwnedFd,
    leads_group: bool,
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Process> {
        Process::with(command.spawn()?, false)
    }

    /// Starts it with what it will start itself: launchers of the peer start the real program as a child.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_group(command: &mut Command) -> io::Result<Process> {
        Process::with(command.process_group(0).spawn()?, true)
    }

    fn with(child: Child, leads_group: bool) -> io::Result<Process> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or(io::ErrorKind::InvalidData)?;
        let handle = pidfd_open(pid, PidfdFlags::empty())?;
        Ok(Process { child, handle, leads_group, ended: None })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it reads, if that was piped; once.
    pub fn stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// What it prints, if that was piped; once.
    pub fn stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Sends a signal, to its whole group where it leads one. One that stops has stopped it when this returns.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        if self.ended.is_some() {
            return Err(io::ErrorKind::NotFound.into());
        }
        match i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            Some(pid) if self.leads_group => kill_process_group(pid, signal)?,
            _ => pidfd_send_signal(&self.handle, signal)?,
        }
        if signal == Signal::STOP { wait_until("it stands still", || self.stands_still()) } else { Ok(()) }
    }

    /// Whether each of its threads stands still: those that run when they are to stop go on for a moment.
    fn stands_still(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).into_iter().flatten().flatten();
        let mut states = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("stat")).ok());
        // The state stands behind the name, which is in brackets.
        states.all(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with(['T', 'Z', 'X'])))
    }

    /// Ends it at once, and waits until it has.
    pub fn kill(&mut self) {
        // Fails only if it has ended, which is what is wanted.
        let _ = self.signal(Signal::KILL);
        if self.ended.is_none() {
            self.ended = self.child.wait().ok();
        }
    }

    /// Whether it runs (or stands still).
    pub fn is_running(&mut self) -> bool {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().ok().flatten();
        }
        self.ended.is_none()
    }

    /// How it ended, if it does within a time.
    pub fn ends_within(&mut self, time: Duration) -> Option<ExitStatus> {
        if self.ended.is_none() {
            let mut descriptors = [PollFd::new(&self.handle, PollFlags::IN)];
            let time = Timespec::try_from(time).ok();
            if poll(&mut descriptors, time.as_ref()).is_ok_and(|ready| ready > 0) {
                self.ended = self.child.wait().ok();
            }
        }
        self.ended
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
