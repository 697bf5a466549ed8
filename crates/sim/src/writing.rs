//! The decisions of a write, without its I/O: reserve, move, end or revoke, a second place, patience with a busy key.
//!
//! The same rules as `ops/put.rs` of the client, one key at a time. Whoever drives it does what [`Next`] says and tells
//! how it went; time is the client's own.

use std::time::Duration;

use yb_types::{ErrorCode, MonotonicTime};

use crate::reading::Failed;

const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// A held key is waited for at most this part of the call's time.
const BUSY_SHARE: u32 = 4;
/// Time that publishing and revoking have at least.
pub const CLEANUP_TIME: Duration = Duration::from_millis(250);

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The object was written by this call.
    Stored,
    /// The pool has a readable object of this name.
    AlreadyThere,
    /// Another writer holds the key.
    Busy,
    /// Anything else, with the master's code.
    Refused(ErrorCode),
    /// A transfer failed.
    Failed,
    /// The master did not answer.
    Unanswered,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Reserve.
    Start,
    /// Reserve again after a pause.
    Pause(Duration),
    /// Write to all replicas, until then.
    Move(MonotonicTime),
    /// Publish, until then.
    End(MonotonicTime),
    /// Give up; `quiet`: nothing is in flight.
    Revoke {
        /// Nothing of it is in flight.
        quiet: bool,
        /// When the request must be over.
        until: MonotonicTime,
    },
    /// It is over.
    Done(Written),
}

/// A write.
#[derive(Clone, Debug)]
pub struct Writing {
    deadline: MonotonicTime,
    patience: MonotonicTime,
    pause: Duration,
    places: u32,
    /// Whether an object that is there is replaced.
    replaces: bool,
    failed: Option<Failed>,
}

impl Writing {
    /// A write that must be over at `deadline`.
    pub fn until(deadline: MonotonicTime, now: MonotonicTime, replaces: bool) -> Self {
        let patience = now + deadline.since(now) / BUSY_SHARE;
        Writing { deadline, patience, pause: FIRST_PAUSE, places: 0, replaces, failed: None }
    }

    /// When it must be over.
    pub fn deadline(&self) -> MonotonicTime {
        self.deadline
    }

    /// The master reserved space.
    pub fn started(&mut self) -> Next {
        self.places += 1;
        Next::Move(self.deadline)
    }

    /// The master did not.
    pub fn refused(&mut self, code: ErrorCode, now: MonotonicTime) -> Next {
        match code {
            ErrorCode::OBJECT_ALREADY_EXISTS if !self.replaces => Next::Done(Written::AlreadyThere),
            ErrorCode::REPLICA_IS_NOT_READY if now >= self.patience => Next::Done(Written::Busy),
            ErrorCode::REPLICA_IS_NOT_READY => {
                let pause = self.pause.min(self.patience.since(now));
                self.pause = (self.pause * 2).min(LONGEST_PAUSE);
                Next::Pause(pause)
            }
            code => Next::Done(Written::Refused(code)),
        }
    }

    fn cleanup(&self, now: MonotonicTime) -> MonotonicTime {
        self.deadline.max(now + CLEANUP_TIME)
    }

    /// All transfers are over. `failed`: the first failure; `quiet`: nothing is in flight.
    pub fn moved(&mut self, failed: Option<Failed>, quiet: bool, now: MonotonicTime) -> Next {
        self.failed = failed;
        let until = self.cleanup(now);
        if failed.is_some() { Next::Revoke { quiet, until } } else { Next::End(until) }
    }

    /// The revoke was answered or not.
    pub fn revoked(&mut self, answered: bool, now: MonotonicTime) -> Next {
        let second = self.failed.is_some_and(Failed::is_peers_fault) && self.places < 2;
        if second && answered && !self.deadline.since(now).is_zero() {
            Next::Start
        } else {
            Next::Done(Written::Failed)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> MonotonicTime {
        MonotonicTime::from_millis(ms)
    }

    #[test]
    fn a_dead_place_gets_a_second_one_and_no_third() {
        let mut write = Writing::until(ms(3000), ms(1000), false);
        for _ in 0..2 {
            assert_eq!(write.started(), Next::Move(ms(3000)));
            let next = write.moved(Some(Failed::Gone), true, ms(1100));
            assert_eq!(next, Next::Revoke { quiet: true, until: ms(3000) });
            let then = if write.places < 2 { Next::Start } else { Next::Done(Written::Failed) };
            assert_eq!(write.revoked(true, ms(1200)), then);
        }
    }

    #[test]
    fn patience_ends() {
        let mut write = Writing::until(ms(3000), ms(1000), false);
        let busy = ErrorCode::REPLICA_IS_NOT_READY;
        assert_eq!(write.refused(busy, ms(1000)), Next::Pause(FIRST_PAUSE));
        assert_eq!(write.refused(busy, ms(1001)), Next::Pause(FIRST_PAUSE * 2));
        assert_eq!(write.refused(busy, ms(1500)), Next::Done(Written::Busy));
        assert_eq!(write.refused(ErrorCode::OBJECT_ALREADY_EXISTS, ms(1)), Next::Done(Written::AlreadyThere));
        assert_eq!(write.moved(None, true, ms(2900)), Next::End(ms(3150)));
    }
}
