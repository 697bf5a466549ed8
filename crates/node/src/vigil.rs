//! Waiting for a master that is not there yet.

use std::time::Duration;

use yb_client::{AwaitedMaster, AwaitingPage};
use yb_env::Clock;
use yb_types::MonotonicTime;

use crate::{NodeConfig, NodeError};

/// Pauses between two tries: the first, and the longest.
const PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_secs(1)];
/// Pauses between two lines of the log: the first, and the longest.
const WORDS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(160)];
/// Within this, whoever ends the waiting is heard.
const HEED: Duration = Duration::from_millis(50);

/// How long a master may be away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MasterWait {
    /// As long as it takes.
    Unlimited,
    /// So long; zero: not at all.
    Limited(Duration),
}

impl MasterWait {
    /// Who finds no master ends.
    pub const NONE: MasterWait = MasterWait::Limited(Duration::ZERO);

    fn is_over(self, waited: Duration) -> bool {
        matches!(self, MasterWait::Limited(limit) if waited >= limit)
    }
}

/// A value that doubles up to a bound.
#[derive(Debug)]
struct Growing {
    next: Duration,
    most: Duration,
}

impl Growing {
    fn within([next, most]: [Duration; 2]) -> Self {
        Growing { next, most }
    }

    fn take(&mut self) -> Duration {
        let now = self.next;
        self.next = (now * 2).min(self.most);
        now
    }
}

/// The lines of the log about a master that is waited for.
#[derive(Debug)]
struct Words {
    began: MonotonicTime,
    due: MonotonicTime,
    between: Growing,
}

impl Words {
    fn from(now: MonotonicTime) -> Self {
        Words { began: now, due: now, between: Growing::within(WORDS) }
    }

    fn say(&mut self, now: MonotonicTime, master: &str, reason: &str) {
        if now < self.due {
            return;
        }
        self.due = now + self.between.take();
        let waited = now.since(self.began).as_secs();
        tracing::warn!(event = "waiting_for_master", master, waited, "waiting for the master: {reason}");
    }
}

/// The wait for a node's master, from the start of the node on.
pub(crate) struct Vigil<'a> {
    config: &'a NodeConfig,
    master: AwaitedMaster,
    clock: Clock,
    began: MonotonicTime,
    words: Words,
}

impl<'a> Vigil<'a> {
    pub(crate) fn begin(config: &'a NodeConfig) -> Self {
        let clock = Clock::real();
        let began = clock.now();
        Vigil { config, master: AwaitedMaster::of(config.probe()), clock, began, words: Words::from(began) }
    }

    /// Returns when the master answers, or at once when nobody is to wait. Nothing of the node's is held meanwhile but its
    /// page; `goes_on` is asked twenty times a second.
    ///
    /// # Errors
    /// [`NodeError::NoMaster`]: the time is over; [`NodeError::Ended`]: `goes_on` said no; [`NodeError::Client`]: what
    /// waiting does not mend.
    pub(crate) fn keep(&mut self, goes_on: &mut dyn FnMut() -> bool) -> Result<(), NodeError> {
        if self.config.master_wait == MasterWait::NONE {
            return Ok(());
        }
        let (mut pauses, mut page) = (Growing::within(PAUSES), None);
        while let Some(reason) = self.master.absence()? {
            if self.is_over() {
                return Err(NodeError::NoMaster { master: self.master.address().to_owned(), reason });
            }
            self.words.say(self.clock.now(), self.master.address(), &reason);
            if page.is_none() {
                page = self.config.page_at()?.map(AwaitingPage::at).transpose()?;
            }
            if !rests(&self.clock, pauses.take(), goes_on) {
                return Err(NodeError::Ended);
            }
        }
        Ok(())
    }

    /// Whether the time for it is over.
    pub(crate) fn is_over(&self) -> bool {
        self.config.master_wait.is_over(self.clock.now().since(self.began))
    }
}

/// Sleeps in short parts; false: it is to end.
fn rests(clock: &Clock, pause: Duration, goes_on: &mut dyn FnMut() -> bool) -> bool {
    let end = clock.now() + pause;
    loop {
        if !goes_on() {
            return false;
        }
        let left = end.since(clock.now());
        if left.is_zero() {
            return true;
        }
        yb_env::sleep(left.min(HEED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let mut pauses = Growing::within(PAUSES);
        let taken: Vec<u128> = (0..7).map(|_| pauses.take().as_millis()).collect();
        assert_eq!(taken, [50, 100, 200, 400, 800, 1000, 1000]);
    }

    #[test]
    fn a_limit_of_zero_is_over_at_once_and_none_never() {
        let hour = Duration::from_secs(3600);
        assert!(MasterWait::Limited(Duration::ZERO).is_over(Duration::ZERO));
        assert!(!MasterWait::Limited(hour).is_over(hour / 2) && MasterWait::Limited(hour).is_over(hour));
        assert!(!MasterWait::Unlimited.is_over(hour * 100_000));
    }
}
