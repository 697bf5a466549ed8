//! Says that a client is coming, while it does not serve yet.
//!
//! A process that takes memory over may have to sum all of it first, which takes half a minute where there is much. A master
//! that knew the process before it forgets what lies there when it hears nothing for so long. A greeting keeps that from
//! happening and does not make the master send anybody here.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use yb_env::Clock;

use crate::bell::Bell;
use crate::deadline::{CallLimits, Deadline};
use crate::heartbeat::capabilities;
use crate::link::MasterLink;
use crate::{Error, Result};

/// Time that one greeting may take.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Duty {
    link: Arc<MasterLink>,
    clock: Clock,
    interval: Duration,
    bell: Bell,
}

/// Greets the master now and then until it is dropped.
#[derive(Debug)]
pub(crate) struct Herald {
    duty: Arc<Duty>,
    thread: Option<JoinHandle<()>>,
}

impl Herald {
    /// Begins over a connection of its own, every `interval`.
    pub(crate) fn start(link: Arc<MasterLink>, clock: Clock, interval: Duration) -> Result<Herald> {
        let duty = Arc::new(Duty { link, clock, interval, bell: Bell::default() });
        let of_thread = Arc::clone(&duty);
        let thread = yb_env::spawn_thread("yb-herald", move || of_thread.run());
        let thread = thread.map_err(|error| Error::setup("the thread that greets the master", error))?;
        Ok(Herald { duty, thread: Some(thread) })
    }
}

impl Drop for Herald {
    fn drop(&mut self) {
        self.duty.bell.stop();
        self.duty.link.shutdown();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that greets the master panicked");
        }
    }
}

impl Duty {
    fn run(&self) {
        loop {
            match self.greet() {
                Ok(()) => {}
                Err(Error::Closed) => return,
                Err(error) => tracing::debug!(%error, "the master is greeted again"),
            }
            if self.bell.stopped_within(self.interval) {
                return;
            }
        }
    }

    fn greet(&self) -> Result<()> {
        let deadline = || {
            let limits = CallLimits { base: PATIENCE, ..CallLimits::default() };
            Deadline::start(&self.clock, &limits, 0)
        };
        if self.link.hello(capabilities(true), &deadline())?.is_none() {
            // A master of the peer knows pings only, and does not offer less for want of them.
            self.link.ping(&deadline())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use yb_types::ClientId;

    use super::*;
    use crate::config::ClientConfig;
    use crate::setup::link_settings;

    #[test]
    fn a_master_is_greeted_again_and_again_and_ending_waits_for_no_answer() {
        let master = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = master.local_addr().unwrap().to_string();
        let config = ClientConfig { master_address: address, ..ClientConfig::default() };
        let clock = Clock::real();
        let link = MasterLink::new(link_settings(&config, ClientId::default(), 1), clock.clone()).unwrap();
        let herald = Herald::start(link, clock, Duration::from_millis(10)).unwrap();
        // Each greeting that is not answered is followed by another one, over a connection of its own.
        drop((master.accept().unwrap(), master.accept().unwrap()));
        let held = master.accept().unwrap();
        drop(herald);
        drop(held);
    }
}
