//! One worker: its loop, its letters, its deadlines.

use std::sync::Arc;

use yb_env::Clock;
use yb_types::MonotonicTime;

use super::backend::Backend;
use super::limits::{SWEEP_INTERVAL, ServerLimits};
use super::mailbox::{Letter, Mailbox};
use super::service::Service;
use super::session::{CloseReason, Sessions};

/// What a worker needs beside its backend.
pub(crate) struct Worker<S: Service, B: Backend> {
    pub(crate) sessions: Sessions<S>,
    pub(crate) backend: B,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) limits: ServerLimits,
    pub(crate) clock: Clock,
}

impl<S: Service, B: Backend> Worker<S, B> {
    /// Runs until told to stop.
    pub(crate) fn run(mut self) {
        let clock = self.clock.clone();
        let now = || clock.now();
        let (mut letters, mut late) = (Vec::new(), Vec::new());
        let mut next_sweep = now() + SWEEP_INTERVAL;
        loop {
            let timed = self.sessions.has_deadlines() || self.backend.has_unsent();
            match self.backend.turn(&mut self.sessions, timed.then_some(SWEEP_INTERVAL), &now) {
                Ok(rang) if rang => self.mailbox.take(&mut letters),
                Ok(_) => {}
                Err(error) => {
                    tracing::error!(%error, "an RPC worker cannot wait for events and stops");
                    break;
                }
            }
            let mut go_on = true;
            letters.drain(..).for_each(|letter| go_on &= self.open_letter(letter));
            if !go_on {
                break;
            }
            self.sessions.turn_ended();
            if timed && self.sessions.now() >= next_sweep {
                self.sweep(&mut late);
                next_sweep = self.sessions.now() + SWEEP_INTERVAL;
            }
        }
        for slot in self.sessions.open_slots() {
            self.backend.close(&mut self.sessions, slot, CloseReason::PeerLeft);
        }
    }

    /// False: leave the loop.
    fn open_letter(&mut self, letter: Letter) -> bool {
        match letter {
            Letter::Adopt { socket, tag, peer } => {
                let slot = self.sessions.open(tag, peer);
                if let Err(error) = self.backend.attach(slot, socket) {
                    tracing::warn!(%error, "a new connection cannot be watched and is closed");
                    self.sessions.close(slot, CloseReason::Io);
                    self.sessions.release(slot);
                }
            }
            Letter::Deferred { session, frame, failed } => {
                self.backend.deliver(&mut self.sessions, session, &frame, failed);
            }
            Letter::Stop => return false,
        }
        true
    }

    fn sweep(&mut self, late: &mut Vec<u32>) {
        let now: MonotonicTime = self.sessions.now();
        self.sessions.stalled(late);
        late.drain(..).for_each(|slot| self.backend.close(&mut self.sessions, slot, CloseReason::Stalled));
        if self.backend.has_unsent() {
            self.backend.unread(now, self.limits.unsent_timeout, late);
            late.drain(..).for_each(|slot| self.backend.close(&mut self.sessions, slot, CloseReason::Unread));
        }
    }
}
