//! The ping thread: tells the daemon that we live, and hands windows over again when it was restarted.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use yb_client::Result;
use yb_types::ClientStatus;
use yb_wire::call;
use yb_wire::messages::{ClientArgs, PingResponse};

use crate::core::Core;

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Pulse {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Pulse {
    pub(crate) fn start(core: Weak<Core>, interval: Duration) -> io::Result<Pulse> {
        let stop = Arc::new(Stop::default());
        let told = Arc::clone(&stop);
        let thread = yb_env::spawn_thread("yb-dummy-pulse", move || run(&core, &told, interval))?;
        Ok(Pulse { stop, thread: Some(thread) })
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        *self.stop.stopped.lock() = true;
        self.stop.changed.notify_all();
        let Some(thread) = self.thread.take() else { return };
        // The last owner of the core may be this very thread.
        if thread.thread().id() != std::thread::current().id() && thread.join().is_err() {
            tracing::error!("the ping thread of a dummy client panicked");
        }
    }
}

fn run(core: &Weak<Core>, stop: &Stop, interval: Duration) {
    loop {
        {
            let mut stopped = stop.stopped.lock();
            if !*stopped {
                stop.changed.wait_for(&mut stopped, interval);
            }
            if *stopped {
                return;
            }
        }
        let Some(core) = core.upgrade() else { return };
        let was_attached = core.attached.load(Ordering::Acquire);
        if let Err(error) = core.beat()
            && was_attached
        {
            tracing::warn!(%error, "the daemon does not answer");
        }
        if !core.link.is_silent() {
            core.withdraw_unused();
        }
    }
}

impl Core {
    /// One ping, and what follows from its answer.
    pub(crate) fn beat(&self) -> Result<()> {
        let pong = self.ping();
        self.link.pinged(&pong);
        let beaten = pong.and_then(|known| {
            let stage = self.stage.read().segment().address();
            if known && self.has(stage)? {
                return Ok(());
            }
            let missing = self.hand_over_again()?;
            tracing::info!(missing, "the daemon was given its windows again");
            Ok(())
        });
        self.attached.store(beaten.is_ok(), Ordering::Release);
        beaten
    }

    /// Whether the daemon knows us.
    fn ping(&self) -> Result<bool> {
        let args = ClientArgs { client_id: self.id };
        let pong = self.link.control::<call::LocalPing, PingResponse>(&args)?;
        Ok(pong.client_status != ClientStatus::NEED_REMOUNT)
    }
}
