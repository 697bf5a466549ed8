//! One worker: its loop, its letters, its deadlines.

use std::sync::Arc;

use yb_env::Clock;

use super::backend::Backend;
use super::limits::{CROWDED_PATIENCE, IDLE_INTERVAL, SWEEP_INTERVAL, ServerLimits};
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
        let (mut next_sweep, mut next_idle) = (now() + SWEEP_INTERVAL, now() + IDLE_INTERVAL);
        loop {
            let unsent = self.backend.has_unsent();
            if !unsent {
                self.sessions.unread = 0;
            }
            let timed = self.sessions.has_deadlines() || unsent || self.limits.idle_timeout.is_some();
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
            if let Some(timeout) = self.limits.idle_timeout.filter(|_| self.sessions.now() >= next_idle) {
                self.sessions.idle(timeout, &mut late);
                late.drain(..).for_each(|slot| self.backend.close(&mut self.sessions, slot, CloseReason::Idle));
                next_idle = self.sessions.now() + IDLE_INTERVAL;
            }
        }
        for slot in self.sessions.open_slots() {
            self.backend.close(&mut self.sessions, slot, CloseReason::PeerLeft);
        }
    }

    /// False: leave the loop.
    fn open_letter(&mut self, letter: Letter) -> bool {
        match letter {
            Letter::Adopt { socket, arrival } => {
                let slot = self.sessions.open(arrival);
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
        self.sessions.stalled(late);
        late.drain(..).for_each(|slot| self.backend.close(&mut self.sessions, slot, CloseReason::Stalled));
        self.sweep_unread(late);
    }

    /// Gives up peers that do not read: in the long run all of them, and soon those that fill the memory.
    fn sweep_unread(&mut self, late: &mut Vec<u32>) {
        let mut total = 0;
        self.backend.each_unread(&mut |_, bytes, _| total += bytes);
        self.sessions.unread = total;
        if total == 0 {
            return;
        }
        let (now, patience) = (self.sessions.now(), self.limits.unsent_timeout);
        let share = if total > self.sessions.budget() { self.sessions.share() } else { usize::MAX };
        let mut crowding = Vec::new();
        self.backend.each_unread(&mut |slot, bytes, since| match now.since(since) {
            silent if silent >= patience => late.push(slot),
            silent if bytes > share && silent >= CROWDED_PATIENCE => crowding.push(slot),
            _ => {}
        });
        late.drain(..).for_each(|slot| self.backend.close(&mut self.sessions, slot, CloseReason::Unread));
        crowding.into_iter().for_each(|slot| self.backend.close(&mut self.sessions, slot, CloseReason::Crowded));
    }
}
