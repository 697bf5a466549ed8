//! The decisions of a read, without its I/O: look up, choose a replica, move, look at the lease, go round again.
//!
//! The same rules as `ops/get.rs` of the client, one key at a time. Whoever drives it does what [`Next`] says and tells
//! how it went; time is the client's own.

use std::time::Duration;

use yb_types::MonotonicTime;

/// Times a key is looked up in one call.
const MOST_LOOKUPS: u32 = 2;

/// How a transfer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    /// Nobody took it.
    Unreachable,
    /// The connection broke under way.
    Lost,
    /// The peer's process is gone.
    Gone,
    /// Its time was over.
    TimedOut,
    /// The peer would not: no such memory.
    Refused,
}

impl Failed {
    /// Whether that says something about the peer.
    pub fn is_peers_fault(self) -> bool {
        self != Failed::Refused
    }

    /// Whether no byte of it can arrive any more.
    pub fn leaves_nothing_in_flight(self) -> bool {
        matches!(self, Failed::Unreachable | Failed::Gone)
    }
}

/// How a read ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// The bytes are there.
    Right,
    /// There is no such object.
    Missing,
    /// It is being written.
    Busy,
    /// The lease ended under the read, twice.
    LeaseEnded,
    /// No replica could be read.
    Failed,
    /// The master did not answer.
    Unanswered,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Ask the master.
    LookUp,
    /// Read this replica of the list, until then.
    Move {
        /// Place in the list.
        replica: usize,
        /// End of the attempt.
        until: MonotonicTime,
    },
    /// It is over.
    Done(Read),
}

/// A read.
#[derive(Clone, Debug)]
pub struct Reading {
    deadline: MonotonicTime,
    lookups: u32,
    lease_ends: MonotonicTime,
    order: Vec<usize>,
    at: usize,
    again: bool,
}

impl Reading {
    /// A read that must be over at `deadline`.
    pub fn until(deadline: MonotonicTime) -> Self {
        Reading { deadline, lookups: 0, lease_ends: MonotonicTime(0), order: Vec::new(), at: 0, again: false }
    }

    /// When it must be over.
    pub fn deadline(&self) -> MonotonicTime {
        self.deadline
    }

    /// The object was found: replicas best first, and the end of the lease.
    pub fn found(&mut self, order: Vec<usize>, lease_ends: MonotonicTime, now: MonotonicTime) -> Next {
        self.lookups += 1;
        (self.order, self.at, self.lease_ends) = (order, 0, lease_ends);
        if self.order.is_empty() { Next::Done(Read::Failed) } else { self.attempt(now) }
    }

    fn left(&self, now: MonotonicTime) -> Duration {
        self.deadline.since(now)
    }

    /// The replica that is read now, with time left for the others.
    fn attempt(&self, now: MonotonicTime) -> Next {
        let tries = u32::try_from(self.order.len() - self.at).unwrap_or(1).max(1);
        match self.order.get(self.at) {
            Some(replica) => Next::Move { replica: *replica, until: now + self.left(now) / tries },
            None => Next::Done(Read::Failed),
        }
    }

    /// The transfer failed.
    pub fn failed(&mut self, how: Failed, now: MonotonicTime) -> Next {
        if self.at + 1 < self.order.len() {
            self.at += 1;
        } else if how == Failed::TimedOut && !self.again {
            self.again = true;
        } else {
            return Next::Done(Read::Failed);
        }
        if self.left(now).is_zero() { Next::Done(Read::Failed) } else { self.attempt(now) }
    }

    /// All bytes are there.
    pub fn arrived(&mut self, now: MonotonicTime) -> Next {
        if self.lease_ends > now {
            return Next::Done(Read::Right);
        }
        if self.lookups < MOST_LOOKUPS && !self.left(now).is_zero() {
            self.again = false;
            return Next::LookUp;
        }
        Next::Done(Read::LeaseEnded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> MonotonicTime {
        MonotonicTime::from_millis(ms)
    }

    #[test]
    fn replicas_in_turn_then_the_lease() {
        let mut read = Reading::until(ms(3000));
        assert_eq!(read.found(vec![1, 0], ms(2000), ms(1000)), Next::Move { replica: 1, until: ms(2000) });
        assert_eq!(read.failed(Failed::Gone, ms(1100)), Next::Move { replica: 0, until: ms(3000) });
        assert_eq!(read.arrived(ms(2000)), Next::LookUp);
        assert_eq!(read.found(vec![0], ms(2500), ms(2100)), Next::Move { replica: 0, until: ms(3000) });
        assert_eq!(read.clone().arrived(ms(2499)), Next::Done(Read::Right));
        assert_eq!(read.arrived(ms(2500)), Next::Done(Read::LeaseEnded));
    }

    #[test]
    fn a_failure_of_the_last_replica_is_the_end_but_for_one_timeout() {
        let mut read = Reading::until(ms(3000));
        read.found(vec![0], ms(9000), ms(1000));
        assert_eq!(read.failed(Failed::TimedOut, ms(1500)), Next::Move { replica: 0, until: ms(3000) });
        assert_eq!(read.failed(Failed::TimedOut, ms(2000)), Next::Done(Read::Failed));
        let mut read = Reading::until(ms(3000));
        read.found(vec![0, 1], ms(9000), ms(1000));
        assert_eq!(read.failed(Failed::Lost, ms(3000)), Next::Done(Read::Failed));
    }
}
