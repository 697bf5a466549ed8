//! Writers whose unfinished write of a key is gone without their doing, and who may not know it yet.
//!
//! **Problem.** An end names key and client, not the write. If a client could begin a key again while an earlier write
//! of its own is still on its way, the end of the first would publish the bytes of the second before they have arrived.
//!
//! **Rule.** A client has at most one write of a key that it has neither ended nor revoked, given up ones included, so
//! that (key, client) names the write. A record here keeps the client from beginning the key again until it has
//! answered for the old write, or until the release timeout, after which a writer does nothing any more.

use yb_types::{ClientId, ErrorCode, MonotonicTime};

#[derive(Clone, Copy, Debug)]
struct Record {
    /// The key's hash within its shard. Two keys with one hash make a client wait for nothing; that is harmless.
    word: u32,
    writer: ClientId,
    until: MonotonicTime,
    answer: ErrorCode,
}

/// A write that is gone before its writer ended or revoked it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoneWrite {
    /// The key's hash within its shard.
    pub word: u32,
    pub writer: ClientId,
    /// When the writer does nothing any more.
    pub until: MonotonicTime,
    /// What the writer is told when it ends or revokes.
    pub answer: ErrorCode,
}

/// The records of one shard: nearly always none.
#[derive(Debug, Default)]
pub(crate) struct Overtaken {
    records: Vec<Record>,
}

impl Overtaken {
    pub const fn new() -> Self {
        Overtaken { records: Vec::new() }
    }

    /// A write is gone.
    pub fn add(&mut self, gone: GoneWrite, now: MonotonicTime) {
        self.records.retain(|record| record.until > now);
        let GoneWrite { word, writer, until, answer } = gone;
        if until > now {
            self.records.push(Record { word, writer, until, answer });
        }
    }

    /// Whether the writer still owes an answer for a write of the key.
    pub fn owes(&self, word: u32, writer: ClientId, now: MonotonicTime) -> bool {
        self.records.iter().any(|record| record.word == word && record.writer == writer && record.until > now)
    }

    /// The writer ends or revokes; what to answer if that is about a write that is gone.
    pub fn settle(&mut self, word: u32, writer: ClientId, now: MonotonicTime) -> Option<ErrorCode> {
        let owed = |record: &Record| record.word == word && record.writer == writer && record.until > now;
        let at = self.records.iter().position(owed)?;
        Some(self.records.swap_remove(at).answer)
    }
}
