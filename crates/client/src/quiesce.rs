//! Space that a given-up write may still reach, and when it may be used again. Pure.
//!
//! A master of ours asks the owner of the memory whether a writer that gave up, or fell silent, is still writing to an
//! extent. The owner says so only after it has seen no transfer there at every look for [`QUIET_FOR`]: longer than a
//! write of ours may take from its reservation to its first byte, and than a network keeps bytes while it is cut for some
//! seconds.

use std::time::Duration;

use yb_types::MonotonicTime;
use yb_wire::messages::{QuiesceConfirmation, QuiesceQuestion};

/// How long nothing must have been seen.
pub(crate) const QUIET_FOR: Duration = Duration::from_secs(10);
/// Between two looks no more than this counts: the process was held up, and what came meanwhile was not looked at.
const COUNTED: Duration = Duration::from_secs(2);
/// Questions kept; the master's own timeout answers those beyond.
pub(crate) const MOST_QUESTIONS: usize = 4096;

/// The open questions, each with the time since when its extent has been quiet.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: Vec<(QuiesceQuestion, MonotonicTime)>,
    /// When somebody looked, or asked, last.
    looked: MonotonicTime,
}

impl Questions {
    /// Adds what the master asks.
    pub(crate) fn add(&mut self, asked: impl IntoIterator<Item = QuiesceQuestion>, now: MonotonicTime) {
        let room = MOST_QUESTIONS.saturating_sub(self.open.len());
        if self.open.is_empty() {
            self.looked = now;
        }
        self.open.extend(asked.into_iter().take(room).map(|question| (question, now)));
    }

    /// Looks at every extent, and takes out those that have been quiet for long enough.
    pub(crate) fn look(
        &mut self,
        now: MonotonicTime,
        is_quiet: impl Fn(&QuiesceQuestion) -> bool,
    ) -> Vec<QuiesceConfirmation> {
        let mut confirmed = Vec::new();
        let held_up = now.since(self.looked).saturating_sub(COUNTED);
        self.looked = now;
        self.open.retain_mut(|(question, since)| {
            *since = if is_quiet(question) { now.min(*since + held_up) } else { now };
            let quiet = now.since(*since) >= QUIET_FOR;
            if quiet {
                let QuiesceQuestion { segment_id, address, generation, .. } = *question;
                confirmed.push(QuiesceConfirmation { segment_id, address, generation });
            }
            !quiet
        });
        confirmed
    }

    /// Questions that may be asked for.
    pub(crate) fn room(&self) -> u32 {
        u32::try_from(MOST_QUESTIONS.saturating_sub(self.open.len())).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yb_types::{ClientId, SegmentId};

    fn question(address: u64) -> QuiesceQuestion {
        let (segment_id, writer) = (SegmentId::default(), ClientId::default());
        QuiesceQuestion { segment_id, address, size: 10, generation: 3, writer }
    }

    #[test]
    fn only_what_was_quiet_at_every_look_is_confirmed() {
        let mut questions = Questions::default();
        let start = MonotonicTime::from_millis(1000);
        questions.add([question(1), question(2)], start);
        let later = |seconds| start + Duration::from_secs(seconds);
        let mut looks = |seconds: u64, moves: u64| {
            let confirmed = questions.look(later(seconds), |q| q.address != moves);
            confirmed.iter().map(|c| c.address).collect::<Vec<_>>()
        };
        for second in 1..10 {
            assert!(looks(second, if second == 3 { 2 } else { 0 }).is_empty());
        }
        assert_eq!(looks(10, 0), [1]);
        assert!(looks(11, 0).is_empty() && looks(12, 0).is_empty());
        assert_eq!(looks(13, 0), [2]);
        assert!(looks(99, 0).is_empty(), "each is confirmed once");
    }

    #[test]
    fn a_process_that_stood_still_has_not_looked() {
        let mut questions = Questions::default();
        let start = MonotonicTime::from_millis(1000);
        questions.add([question(1)], start);
        for (seconds, confirmed) in [(1, 0), (100, 0), (102, 0), (104, 0), (106, 0), (107, 1)] {
            assert_eq!(questions.look(start + Duration::from_secs(seconds), |_| true).len(), confirmed, "{seconds}");
        }
    }

    #[test]
    fn a_flood_of_questions_is_bounded() {
        let mut questions = Questions::default();
        questions.add((0..10_000).map(question), MonotonicTime(0));
        assert_eq!(questions.room(), 0);
        let looks =
            (1..=10).map(|second| questions.look(MonotonicTime(0) + Duration::from_secs(second), |_| true).len());
        assert_eq!(looks.sum::<usize>(), MOST_QUESTIONS);
    }
}
