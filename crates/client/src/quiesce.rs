//! Space that a given-up write may still reach, and when it may be used again. Pure.
//!
//! A master of ours asks the owner of the memory whether a writer that gave up, or fell silent, is still writing to an
//! extent. The owner says so only after it has seen no transfer there at every look for [`QUIET_FOR`]: longer than a
//! write of ours may take from its reservation to its first byte.

use std::time::Duration;

use yb_types::MonotonicTime;
use yb_wire::messages::{QuiesceConfirmation, QuiesceQuestion};

/// How long nothing must have been seen.
pub(crate) const QUIET_FOR: Duration = Duration::from_secs(5);
/// Questions kept; the master's own timeout answers those beyond.
pub(crate) const MOST_QUESTIONS: usize = 4096;

/// The open questions, each with the time since when its extent has been quiet.
#[derive(Debug, Default)]
pub(crate) struct Questions(Vec<(QuiesceQuestion, MonotonicTime)>);

impl Questions {
    /// Adds what the master asks.
    pub(crate) fn add(&mut self, asked: impl IntoIterator<Item = QuiesceQuestion>, now: MonotonicTime) {
        let room = MOST_QUESTIONS.saturating_sub(self.0.len());
        self.0.extend(asked.into_iter().take(room).map(|question| (question, now)));
    }

    /// Looks at every extent, and takes out those that have been quiet for long enough.
    pub(crate) fn look(
        &mut self,
        now: MonotonicTime,
        is_quiet: impl Fn(&QuiesceQuestion) -> bool,
    ) -> Vec<QuiesceConfirmation> {
        let mut confirmed = Vec::new();
        self.0.retain_mut(|(question, since)| {
            if !is_quiet(question) {
                *since = now;
            }
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
        u32::try_from(MOST_QUESTIONS.saturating_sub(self.0.len())).unwrap_or(0)
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
        assert!(questions.look(later(3), |q| q.address == 1).is_empty());
        let confirmed = questions.look(later(5), |_| true);
        assert_eq!(confirmed.iter().map(|c| c.address).collect::<Vec<_>>(), [1]);
        assert!(questions.look(later(7), |_| true).is_empty());
        assert_eq!(questions.look(later(8), |_| true).len(), 1);
        assert!(questions.look(later(99), |_| true).is_empty(), "each is confirmed once");
    }

    #[test]
    fn a_flood_of_questions_is_bounded() {
        let mut questions = Questions::default();
        questions.add((0..10_000).map(question), MonotonicTime(0));
        assert_eq!(questions.room(), 0);
        assert_eq!(questions.look(MonotonicTime(0) + QUIET_FOR, |_| true).len(), MOST_QUESTIONS);
    }
}
