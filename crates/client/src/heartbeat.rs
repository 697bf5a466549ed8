//! Membership of the pool: segments that this client lent, and the pings that keep them there.
//!
//! The thread has a connection of its own: no data call can sit in front of a ping. It sleeps on a condition, so that
//! `close` never waits for a timer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use yb_env::Clock;
use yb_transfer::Engine;
use yb_types::{ClientId, ClientStatus, STORE_VERSION, SegmentId};

use crate::bell::Bell;
use crate::counters::Counters;
use crate::deadline::{CallLimits, Deadline};
use crate::directory::{Directories, Keeper, KeeperDuty};
use crate::lent::Lent;
use crate::link::{CAPABILITY_DIRECTORY, CAPABILITY_FILLED, CAPABILITY_LOOKS, CAPABILITY_QUIESCE, MasterLink};
use crate::looker::{LookDuty, Looker};
use crate::quiesce::Questions;
use crate::tasks::{TaskDuty, TaskWorker};
use crate::{Error, Result};

/// Failed pings in a row after which the session starts anew.
const PINGS_BEFORE_RECONNECT: u32 = 3;
/// Time that one unmount may take when the client closes.
const LEAVE_TIME: Duration = Duration::from_millis(500);
/// How long memory of a segment that left may still be in use before it is left to its last user.
const RELEASE_TIME: Duration = Duration::from_secs(1);

/// What a heartbeat works with.
#[derive(Debug)]
pub(crate) struct Pulse {
    /// A connection of its own.
    pub(crate) link: Arc<MasterLink>,
    pub(crate) clock: Clock,
    /// Between two pings.
    pub(crate) interval: Duration,
    pub(crate) counters: Arc<Counters>,
    /// Knows who writes to the segments.
    pub(crate) engine: Engine,
    pub(crate) client_id: ClientId,
    /// Puts of this client that are under way.
    pub(crate) puts: Arc<AtomicUsize>,
    /// The master is one of ours and asks about given-up writes.
    pub(crate) asks: bool,
    /// What is lent.
    pub(crate) lent: Arc<Lent>,
    /// What lies in it.
    pub(crate) directories: Arc<Directories>,
}

/// What the thread and its owner share.
#[derive(Debug)]
struct Beat {
    pulse: Pulse,
    questions: Mutex<Questions>,
    healthy: AtomicBool,
    bell: Bell,
}

/// The segments of one client and their heartbeat.
#[derive(Debug)]
pub(crate) struct Membership {
    beat: Arc<Beat>,
    tasks: TaskWorker,
    looker: Option<Looker>,
    keeper: Option<Keeper>,
    thread: Option<JoinHandle<()>>,
}

impl Membership {
    /// Starts the heartbeat of mounted segments. `keeper`: their directories are kept over this connection.
    pub(crate) fn start(pulse: Pulse, keeper: Option<Arc<MasterLink>>) -> Result<Self> {
        let beat = Arc::new(Beat {
            pulse,
            questions: Mutex::default(),
            healthy: AtomicBool::new(true),
            bell: Bell::default(),
        });
        let Pulse { link, engine, clock, counters, interval, .. } = &beat.pulse;
        let (link, counters) = (Arc::clone(link), Arc::clone(counters));
        let look = || LookDuty {
            link: Arc::clone(&link),
            engine: engine.clone(),
            clock: clock.clone(),
            counters: Arc::clone(&counters),
            interval: *interval,
        };
        let looker = beat.pulse.asks.then(|| Looker::start(look())).transpose()?;
        let duty = TaskDuty { link, engine: engine.clone(), clock: clock.clone(), counters };
        let tasks = TaskWorker::start(duty)?;
        let Pulse { clock, lent, directories, .. } = &beat.pulse;
        let (lent, directories) = (Arc::clone(lent), Arc::clone(directories));
        let keep = |link| Keeper::start(KeeperDuty { link, clock: clock.clone(), lent, directories });
        let keeper = keeper.map(keep).transpose()?;
        let of_thread = Arc::clone(&beat);
        let thread = yb_env::spawn_thread("yb-heartbeat", move || of_thread.run())
            .map_err(|error| Error::setup("the heartbeat thread", error))?;
        Ok(Membership { beat, tasks, looker, keeper, thread: Some(thread) })
    }

    /// Whether the last ping was answered.
    pub(crate) fn is_healthy(&self) -> bool {
        self.beat.healthy.load(Ordering::Relaxed)
    }

    /// Looks for work at once, not when its time comes.
    pub(crate) fn hurry(&self) {
        self.tasks.hurry();
    }

    /// Stops the heartbeat and takes the segments out of the pool. A master that does not answer drops them in time.
    pub(crate) fn leave(mut self, link: &MasterLink) {
        self.stop();
        let limits = CallLimits { base: LEAVE_TIME, ..CallLimits::default() };
        for id in self.beat.pulse.lent.ids() {
            let deadline = Deadline::start(&self.beat.pulse.clock, &limits, 0);
            if let Err(error) = link.unmount(id, &deadline) {
                tracing::warn!(segment = %id, %error, "unmount failed; the master drops the segment in time");
                if matches!(error, Error::MasterUnreachable(_)) {
                    break;
                }
            }
        }
    }

    /// Ends without a word to the master: another process comes with the same memory.
    pub(crate) fn hand_over(mut self) {
        if let Some(mut keeper) = self.keeper.take() {
            keeper.finish();
        }
    }

    fn stop(&mut self) {
        self.beat.bell.stop();
        // A ping that waits for a dead master ends now.
        self.beat.pulse.link.shutdown();
        self.tasks.stop();
        drop(self.looker.take());
        drop(self.keeper.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the heartbeat thread panicked");
        }
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Beat {
    fn run(&self) {
        let mut failures = 0;
        let mut reported = false;
        while !self.bell.stopped_within(self.pulse.interval) {
            match self.once(failures) {
                Ok(()) => {
                    if reported {
                        tracing::info!(master = self.pulse.link.address(), "the master answers again");
                    }
                    (failures, reported) = (0, false);
                    self.healthy.store(true, Ordering::Relaxed);
                    self.pulse.counters.pings.add(1);
                }
                Err(Error::Closed) => return,
                Err(error) => {
                    failures += 1;
                    self.healthy.store(false, Ordering::Relaxed);
                    self.pulse.counters.failed_pings.add(1);
                    if !reported {
                        tracing::warn!(%error, "the master does not answer pings; trying on");
                        reported = true;
                    }
                }
            }
        }
    }

    fn deadline(&self) -> Deadline {
        let limits = CallLimits { base: self.pulse.interval.max(Duration::from_millis(200)), ..CallLimits::default() };
        Deadline::start(&self.pulse.clock, &limits, 0)
    }

    fn once(&self, failures: u32) -> Result<()> {
        if failures >= PINGS_BEFORE_RECONNECT {
            check_version(&self.pulse.link, &self.deadline())?;
        }
        if let Some(by) = self.pulse.engine.name_taken_by() {
            self.give_up_segments(&by)?;
        }
        if self.pulse.link.ping(&self.deadline())? == ClientStatus::NEED_REMOUNT {
            let directories = &self.pulse.directories;
            let keeps = self.pulse.asks && {
                let capabilities = capabilities(directories.introduce());
                let master = self.pulse.link.hello(capabilities, &self.deadline())?;
                master.is_some_and(|(_, capabilities)| capabilities & CAPABILITY_DIRECTORY != 0)
            };
            // Mooncake's master asks for it with the first ping too.
            let was_known = self.pulse.counters.pings.get() > 0;
            if was_known {
                // The master forgot to whom it gave our memory, or is another one, and will give it to others after a while.
                self.pulse.engine.end_writes();
                // It may have been away for long: another one may have come in its name.
                if let Some(by) = self.pulse.engine.confirm_name() {
                    self.give_up_segments(&by)?;
                }
            }
            // Nothing is mounted or unmounted in between.
            let _turn = self.pulse.lent.turn();
            let segments = self.pulse.lent.mounted();
            directories.before_mount(keeps);
            let count = segments.len();
            self.pulse.link.remount(segments, &self.deadline())?;
            self.pulse.counters.remounts.add(1);
            if was_known {
                tracing::info!(segments = count, "the master had lost sight of this client; mounted again");
            }
        }
        self.release_departed();
        if self.pulse.asks
            && let Err(error) = self.answer_questions()
        {
            tracing::debug!(%error, "questions about given-up writes wait");
        }
        Ok(())
    }

    /// Another engine has our name, so whoever is sent to our segments asks that one: they leave the pool before the next
    /// ping, which would bring them back.
    fn give_up_segments(&self, by: &str) -> Result<()> {
        let pulse = &self.pulse;
        let _turn = pulse.lent.turn();
        let ids = pulse.lent.ids();
        if !ids.is_empty() {
            let (name, segments) = (pulse.engine.name().unwrap_or_default(), ids.len());
            let text = "another client has taken the name of this one: its segments leave the pool";
            tracing::error!(name, by, segments, "{text}");
        }
        for id in ids {
            match pulse.link.unmount(id, &self.deadline()) {
                Err(error @ (Error::MasterUnreachable(_) | Error::Closed)) => return Err(error),
                // A master that refuses does not know the segment.
                _ => self.release(id),
            }
        }
        Ok(())
    }

    /// Gives the memory back of segments whose grace time is over.
    fn release_departed(&self) {
        let pulse = &self.pulse;
        for id in pulse.lent.leaving() {
            match pulse.link.has_segment(id, &self.deadline()) {
                Ok(true) => {}
                Ok(false) => self.release(id),
                Err(error) => tracing::debug!(segment = %id, %error, "whether a segment has left is asked again"),
            }
        }
    }

    /// Gives the memory back of a segment that the master does not have any more.
    fn release(&self, id: SegmentId) {
        let pulse = &self.pulse;
        pulse.directories.remove(id);
        if let Some(address) = pulse.lent.remove(id)
            && let Err(error) = pulse.engine.unregister(address, RELEASE_TIME)
        {
            tracing::warn!(segment = %id, %error, "the memory of a segment that left is still in use");
        }
    }

    /// Tells the master which extents of given-up writes are quiet.
    fn answer_questions(&self) -> Result<()> {
        let pulse = &self.pulse;
        let mut questions = self.questions.lock();
        let own_puts = pulse.puts.load(Ordering::SeqCst);
        let confirmed = questions.look(pulse.clock.now(), |question| {
            let by_us = question.writer == pulse.client_id && own_puts > 0;
            !by_us && pulse.engine.is_quiesced(question.address, question.size, Some(question.writer))
        });
        let asked = pulse.link.poll_quiesce(&confirmed, questions.room(), &self.deadline())?;
        questions.add(asked, pulse.clock.now());
        pulse.counters.quiesced.add(confirmed.len() as u64);
        Ok(())
    }
}

/// What a client that lends memory tells of itself. `brings`: it has something to tell that an earlier master told it.
pub(crate) fn capabilities(brings: bool) -> u64 {
    CAPABILITY_QUIESCE | CAPABILITY_DIRECTORY | CAPABILITY_LOOKS | if brings { CAPABILITY_FILLED } else { 0 }
}

/// The first request of every session: both sides must be of one store version.
pub(crate) fn check_version(link: &MasterLink, deadline: &Deadline) -> Result<()> {
    let theirs = link.service_ready(deadline)?;
    if theirs == STORE_VERSION {
        return Ok(());
    }
    Err(Error::Incompatible { master: link.address().to_owned(), theirs, ours: STORE_VERSION })
}
