//! SIGINT, SIGTERM and SIGHUP as something one can wait for together with other things.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::failure::{Exit, Failure, Outcome};

/// Signals that ask a process to leave. The second one ends it at once.
#[derive(Debug)]
pub struct Signals {
    pipe: UnixStream,
    received: Arc<AtomicBool>,
}

impl Signals {
    /// From now on these signals do not end the process.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn catch() -> Outcome<Signals> {
        Self::register().map_err(|e| Failure::failed(format!("cannot catch signals: {e}")))
    }

    fn register() -> io::Result<Signals> {
        let (pipe, writer) = UnixStream::pair()?;
        pipe.set_nonblocking(true)?;
        let received = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal sets the flag, the second finds it set.
            signal_hook::flag::register_conditional_shutdown(signal, Exit::Interrupted as i32, Arc::clone(&received))?;
            signal_hook::flag::register(signal, Arc::clone(&received))?;
            signal_hook::low_level::pipe::register(signal, writer.try_clone()?)?;
        }
        Ok(Signals { pipe, received })
    }

    /// True if one has arrived.
    pub fn received(&self) -> bool {
        self.received.load(Ordering::SeqCst)
    }

    /// Set when one has arrived.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.received)
    }

    /// Blocks until one arrives.
    pub fn wait(&self) {
        while !self.received() {
            let mut descriptors = [rustix::event::PollFd::new(self, rustix::event::PollFlags::IN)];
            let _ = rustix::event::poll(&mut descriptors, None);
        }
        // Whoever waits for the pipe next must not see this one again.
        let _ = (&self.pipe).read(&mut [0; 16]);
    }
}

/// A file that may not grow any more (`ulimit -f`) is an error of who writes it, as a full disk is, not the end of the process.
pub fn outlive_file_limits() {
    // Whether it arrived is of no interest: the write says so.
    if let Err(error) = signal_hook::flag::register(SIGXFSZ, Arc::default()) {
        tracing::warn!(%error, "a file that reaches its limit of size will end this process");
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
}
