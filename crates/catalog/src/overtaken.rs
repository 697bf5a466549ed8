//! Writers whose unfinished write of a key is gone without their doing, and who may not know it yet.
//!
//! **Problem.** An end of the peer's clients names key and client, not the write. If a client could begin a key again while
//! an earlier write of its own is still on its way, the end of the first would publish the bytes of the second before they
//! have arrived.
//!
//! **Rule.** A client has at most one write of a key that it has neither ended nor revoked, given up ones included, so
//! that (key, client) names the write; clients of ours [name it themselves](crate::naming). A record here keeps the client from beginning the key again until it has
//! answered for the old write, or until the release timeout, after which a writer does nothing any more.

use std::collections::BTreeMap;

use yb_types::{ClientId, ErrorCode, MonotonicTime};

use crate::planted::{Fault, planted};

/// The key's hash within its shard (two keys with one hash make a client wait for nothing; that is harmless), the
/// writer, and the generation that tells the writes of such a pair apart.
pub(crate) type Name = (u32, ClientId, u64);

#[derive(Clone, Copy, Debug)]
struct Record {
    until: MonotonicTime,
    answer: ErrorCode,
}

/// A write that is gone before its writer ended or revoked it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoneWrite {
    /// The key's hash within its shard.
    pub word: u32,
    pub writer: ClientId,
    /// Which write.
    pub generation: u64,
    /// When the writer does nothing any more.
    pub until: MonotonicTime,
    /// What the writer is told when it ends or revokes.
    pub answer: ErrorCode,
}

/// The records of one shard: nearly always none. There may be many where clients with ever new ids write over each
/// other, so every start finds its own without a look at the others.
#[derive(Debug)]
pub(crate) struct Overtaken {
    records: BTreeMap<Name, Record>,
    /// Records that have passed are dropped when there are so many: a look at all, paid for by those that came since.
    sweep_at: usize,
}

/// The fewest records that are worth a look at all.
const SWEEP_MIN: usize = 32;

impl Overtaken {
    pub const fn new() -> Self {
        Overtaken { records: BTreeMap::new(), sweep_at: SWEEP_MIN }
    }

    /// A write is gone.
    pub fn add(&mut self, gone: GoneWrite, now: MonotonicTime) {
        let GoneWrite { word, writer, generation, until, answer } = gone;
        if self.records.len() >= self.sweep_at {
            self.records.retain(|_, record| record.until > now);
            self.sweep_at = SWEEP_MIN.max(2 * self.records.len());
        }
        if until > now && !planted(Fault::ForgetOvertaken) {
            self.records.insert((word, writer, generation), Record { until, answer });
        }
    }

    /// Whether the writer still owes an answer for a write of the key.
    pub fn owes(&self, word: u32, writer: ClientId, now: MonotonicTime) -> bool {
        !self.records.is_empty() && self.of(word, writer).any(|(_, record)| record.until > now)
    }

    /// The writer ends or revokes; what to answer if that is about a write that is gone.
    pub fn settle(&mut self, word: u32, writer: ClientId, now: MonotonicTime) -> Option<ErrorCode> {
        if self.records.is_empty() {
            return None;
        }
        let name = self.of(word, writer).find(|(_, record)| record.until > now).map(|(name, _)| *name)?;
        self.records.remove(&name).map(|record| record.answer)
    }

    /// As [`Overtaken::settle`], of just this write.
    pub fn settle_named(&mut self, name: Name, now: MonotonicTime) -> Option<ErrorCode> {
        if self.records.is_empty() {
            return None;
        }
        self.records.remove(&name).filter(|record| record.until > now).map(|record| record.answer)
    }

    fn of(&self, word: u32, writer: ClientId) -> impl Iterator<Item = (&Name, &Record)> {
        self.records.range((word, writer, 0)..=(word, writer, u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use yb_types::Uuid;

    use super::*;

    #[test]
    fn records_are_told_apart_and_those_that_passed_go() {
        let client = |first| ClientId(Uuid { first, second: 0 });
        let gone = |writer, until| GoneWrite {
            word: 7,
            writer: client(writer),
            generation: until,
            until: MonotonicTime(until),
            answer: ErrorCode::ILLEGAL_CLIENT,
        };
        let mut overtaken = Overtaken::new();
        for writer in 0..10_000 {
            overtaken.add(gone(writer, 100 + writer), MonotonicTime(writer));
        }
        assert!(overtaken.records.len() <= 250, "{} are kept, 100 count", overtaken.records.len());
        let now = MonotonicTime(9_999);
        assert!(overtaken.owes(7, client(9_950), now) && !overtaken.owes(7, client(9_000), now));
        assert!(!overtaken.owes(8, client(9_950), now));
        overtaken.add(gone(9_950, 20_000), now);
        assert_eq!(overtaken.settle(7, client(9_950), now), Some(ErrorCode::ILLEGAL_CLIENT));
        assert!(overtaken.owes(7, client(9_950), now), "of two writes one is left");
        assert_eq!(overtaken.settle(7, client(9_950), now), Some(ErrorCode::ILLEGAL_CLIENT));
        assert_eq!(overtaken.settle(7, client(9_950), now), None);
        assert!(overtaken.owes(7, client(9_960), now));
        assert_eq!(overtaken.settle_named((7, client(9_960), 1), now), None, "another write");
        assert_eq!(overtaken.settle_named((7, client(9_960), 10_060), now), Some(ErrorCode::ILLEGAL_CLIENT));
        assert!(!overtaken.owes(7, client(9_960), now));
    }
}
