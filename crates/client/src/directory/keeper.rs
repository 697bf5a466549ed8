//! The thread that follows what the master tells.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use yb_env::Clock;
use yb_types::{ErrorCode, SegmentId};

use super::segment::CLEAR_FIRST;
use super::{Directories, Followed, Roster};
use crate::bell::Bell;
use crate::deadline::{CallLimits, Deadline};
use crate::lent::Lent;
use crate::link::MasterLink;
use crate::{Error, Result};

/// Pause after an answer that said something.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// Longest pause while there is nothing.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// What one question may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Objects of one answer.
const LIMIT: u32 = 1024;
/// For so long a process that ends in order takes what the master still has to say.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the thread works with.
#[derive(Debug)]
pub(crate) struct KeeperDuty {
    /// A connection of its own.
    pub(crate) link: Arc<MasterLink>,
    pub(crate) clock: Clock,
    pub(crate) lent: Arc<Lent>,
    pub(crate) directories: Arc<Directories>,
}

#[derive(Debug)]
struct Keeping {
    duty: KeeperDuty,
    bell: Bell,
}

/// The running thread; dropping it stops it.
#[derive(Debug)]
pub(crate) struct Keeper {
    keeping: Arc<Keeping>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    pub(crate) fn start(duty: KeeperDuty) -> Result<Keeper> {
        let keeping = Arc::new(Keeping { duty, bell: Bell::default() });
        let of_thread = Arc::clone(&keeping);
        let thread = yb_env::spawn_thread("yb-directory", move || of_thread.run())
            .map_err(|error| Error::setup("the thread of directories", error))?;
        Ok(Keeper { keeping, thread: Some(thread) })
    }

    /// Takes what the master still has to say, so that the next process knows it, and stops.
    pub(crate) fn finish(&mut self) {
        let KeeperDuty { clock, lent, .. } = &self.keeping.duty;
        let until = clock.now() + LAST_WORDS;
        let ids = lent.ids();
        self.keeping.bell.stop();
        // One asks at a time: answers must not overtake each other.
        self.join();
        if self.keeping.duty.clock.now() >= until {
            return self.stop();
        }
        // Errors end it: a master that does not answer has nothing to say.
        let duty = &self.keeping.duty;
        while ids.iter().any(|id| self.keeping.follow(*id) == Ok(true)) && duty.clock.now() < until {}
        self.stop();
    }

    pub(crate) fn stop(&mut self) {
        self.keeping.bell.stop();
        self.keeping.duty.link.shutdown();
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of directories panicked");
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Keeping {
    fn run(&self) {
        let mut pause = SHORTEST_PAUSE;
        while !self.bell.stopped_within(pause) {
            let mut is_news = false;
            for segment in self.duty.lent.ids() {
                match self.follow(segment) {
                    Ok(news) => is_news |= news,
                    Err(Error::Closed) => return,
                    Err(error) => tracing::debug!(%segment, %error, "its directory is asked for again"),
                }
            }
            pause = if is_news { SHORTEST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
        }
    }

    fn deadline(&self) -> Deadline {
        Deadline::start(&self.duty.clock, &CallLimits { base: PATIENCE, ..CallLimits::default() }, 0)
    }

    /// Asks once for a segment. Answers whether there was anything new.
    fn follow(&self, segment: SegmentId) -> Result<bool> {
        let KeeperDuty { link, directories, .. } = &self.duty;
        let Some((mark, was_doubted)) = directories.standing(segment) else { return Ok(false) };
        let followed = link.sync_directory((segment, mark, LIMIT), &self.deadline(), |told| {
            let refused = directories.objects_in(segment);
            let followed = directories.follow(segment, told, was_doubted);
            if told.order == CLEAR_FIRST && refused > 0 && followed == Followed::Noted {
                tracing::warn!(%segment, adopted = 0, refused, "the master does not want what lies in this segment: it had given this node up, its time to learn is over, or something was removed while this node was away");
            }
            followed
        });
        match followed {
            Ok(Followed::Nothing) => Ok(false),
            Ok(Followed::Noted) => Ok(true),
            Ok(Followed::Tell(incarnation)) => self.tell(segment, mark.0, incarnation).map(|()| true),
            Ok(Followed::Introduce) => self.introduce(segment, directories.roster(segment)).map(|()| true),
            // It waits for what others have heard.
            Err(Error::Busy(_)) => self.introduce(segment, directories.unmet(segment)).map(|()| false),
            // This master does not tell what it places there.
            Err(Error::Refused { code: ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS, .. } | Error::Rejected { .. }) => {
                directories.clear(segment);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Tells which roster was heard last, and hears the present one.
    fn introduce(&self, segment: SegmentId, heard: Option<Roster>) -> Result<()> {
        let Some(heard) = heard else { return Ok(()) };
        let roster = self.duty.link.roster(segment, &heard, &self.deadline())?;
        self.duty.directories.hear(segment, roster.into());
        Ok(())
    }

    /// Tells all that is known of a segment, as the life `told_by` of a master told it, to the one of `incarnation`.
    fn tell(&self, segment: SegmentId, told_by: u64, incarnation: u64) -> Result<()> {
        let KeeperDuty { link, directories, .. } = &self.duty;
        let (mut from, mut told, mut refused) = (Some(0), 0, 0);
        while let Some(offset) = from {
            let (answer, next) = directories.page(segment, offset, |page| {
                told += page.len();
                link.tell_directory((segment, told_by), page, false, &self.deadline())
            });
            let unwanted = answer?;
            refused += unwanted.len();
            directories.strike(segment, &unwanted);
            from = next;
        }
        link.tell_directory((segment, told_by), &[], true, &self.deadline())?;
        directories.was_read(segment, incarnation);
        tracing::info!(%segment, objects = told, adopted = told.saturating_sub(refused), refused, "a master that started was told what lies in this segment");
        Ok(())
    }
}
