//! Looks at replicas in this client's memory at which readers found other bytes than were written.
//!
//! A thread of its own, for a ping must not wait for it: whoever reports healthy replicas again and again, large ones,
//! would take this client out of the pool. It sums no more than a share of the time, so that it takes no core either.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use yb_env::Clock;
use yb_mem::Crc64;
use yb_transfer::Engine;
use yb_wire::messages::{DoubtAnswer, DoubtQuestion};

use crate::bell::Bell;
use crate::counters::Counters;
use crate::deadline::{CallLimits, Deadline};
use crate::link::MasterLink;
use crate::{Error, Result};

/// Replicas that are looked at before the master hears of it.
const AT_A_TIME: u32 = 4;
/// It rests so many times as long as it has summed.
const REST: u32 = 3;
/// Time for one request.
const PATIENCE: Duration = Duration::from_secs(1);

/// What the thread works with.
#[derive(Debug)]
pub(crate) struct LookDuty {
    pub(crate) link: Arc<MasterLink>,
    pub(crate) engine: Engine,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    /// Between two questions whether there is something.
    pub(crate) interval: Duration,
}

#[derive(Debug)]
struct Looking {
    duty: LookDuty,
    bell: Bell,
}

/// The thread.
#[derive(Debug)]
pub(crate) struct Looker {
    looking: Arc<Looking>,
    thread: Option<JoinHandle<()>>,
}

impl Looker {
    pub(crate) fn start(duty: LookDuty) -> Result<Looker> {
        let looking = Arc::new(Looking { duty, bell: Bell::default() });
        let of_thread = Arc::clone(&looking);
        let thread = yb_env::spawn_thread("yb-looker", move || of_thread.run())
            .map_err(|error| Error::setup("the thread that looks at replicas in doubt", error))?;
        Ok(Looker { looking, thread: Some(thread) })
    }
}

impl Drop for Looker {
    fn drop(&mut self) {
        self.looking.bell.stop();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that looks at replicas in doubt panicked");
        }
    }
}

impl Looking {
    fn run(&self) {
        while !self.bell.stopped_within(self.duty.interval) {
            match self.look_at_all() {
                Ok(()) => {}
                Err(Error::Closed) => return,
                Err(error) => tracing::debug!(%error, "questions about replicas in doubt wait"),
            }
        }
    }

    fn ask(&self, answers: &[DoubtAnswer]) -> Result<Vec<DoubtQuestion>> {
        let limits = CallLimits { base: PATIENCE, ..CallLimits::default() };
        self.duty.link.poll_doubts(answers, AT_A_TIME, &Deadline::start(&self.duty.clock, &limits, 0))
    }

    /// Tells the master what lies where readers found other bytes than were written, as long as it asks.
    fn look_at_all(&self) -> Result<()> {
        let mut asked = self.ask(&[])?;
        while !asked.is_empty() {
            let mut answers = Vec::new();
            for question in &asked {
                let began = self.duty.clock.now();
                answers.extend(self.look(question));
                if self.bell.stopped_within(self.duty.clock.now().since(began) * REST) {
                    return Err(Error::Closed);
                }
            }
            self.duty.counters.doubts_looked_at.add(answers.len() as u64);
            asked = self.ask(&answers)?;
        }
        Ok(())
    }

    fn look(&self, question: &DoubtQuestion) -> Option<DoubtAnswer> {
        let memory = self.duty.engine.local(question.address, question.size).ok()?;
        let found = Crc64::of(memory.span())?.value();
        Some(DoubtAnswer { replica: question.replica, found })
    }
}
