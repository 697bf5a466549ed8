//! One call of one client.

use yb_types::MonotonicTime;

/// A key of the workload, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u32);

/// One attempt to write; its value names it. No two attempts of a history have the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Write(pub u64);

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Write unless something is there.
    Put {
        /// This attempt.
        write: Write,
        /// Copies asked for.
        copies: u8,
    },
    /// Write in the place of what is there.
    Upsert {
        /// This attempt.
        write: Write,
        /// Copies asked for.
        copies: u8,
    },
    /// Read the whole value.
    Get,
    /// Ask whether something is there.
    Exists,
    /// Remove what is there.
    Remove,
}

impl Call {
    /// Its name, as in the text of a history.
    pub fn name(self) -> &'static str {
        match self {
            Call::Put { .. } => "put",
            Call::Upsert { .. } => "upsert",
            Call::Get => "get",
            Call::Exists => "exists",
            Call::Remove => "remove",
        }
    }

    /// The attempt to write that it is.
    pub fn write(self) -> Option<Write> {
        match self {
            Call::Put { write, .. } | Call::Upsert { write, .. } => Some(write),
            _ => None,
        }
    }

    /// Copies asked for; 0 for what is no write.
    pub fn copies(self) -> u8 {
        match self {
            Call::Put { copies, .. } | Call::Upsert { copies, .. } => copies,
            _ => 0,
        }
    }
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Written by this call.
    Stored,
    /// A put that found an object and wrote nothing.
    Exists,
    /// A put by a client that does not tell [`Outcome::Stored`] from [`Outcome::Exists`].
    Accepted,
    /// A get that brought the whole value of this write.
    Read(Write),
    /// Something is there.
    Present,
    /// Nothing is there.
    Absent,
    /// Removed by this call.
    Removed,
    /// Nothing was changed, for this reason (busy, no room).
    Refused(Box<str>),
    /// Not known what happened.
    Failed(Box<str>),
    /// A get that brought something else than the whole value of one write.
    Wrong(Box<str>),
}

impl Outcome {
    /// Its name, as in the text of a history; errors by their kind.
    pub fn name(&self) -> String {
        match self {
            Outcome::Stored => "stored".to_owned(),
            Outcome::Exists => "exists".to_owned(),
            Outcome::Accepted => "accepted".to_owned(),
            Outcome::Read(_) => "read".to_owned(),
            Outcome::Present => "present".to_owned(),
            Outcome::Absent => "absent".to_owned(),
            Outcome::Removed => "removed".to_owned(),
            Outcome::Refused(kind) => format!("refused {kind}"),
            Outcome::Failed(kind) => format!("failed {kind}"),
            Outcome::Wrong(_) => "wrong".to_owned(),
        }
    }

    /// A put or upsert that was told that the key is readable now.
    pub fn is_success(&self) -> bool {
        matches!(self, Outcome::Stored | Outcome::Exists | Outcome::Accepted)
    }
}

/// A call and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who asked.
    pub client: u32,
    /// About which key.
    pub key: Key,
    /// What.
    pub call: Call,
    /// When it began.
    pub started: MonotonicTime,
    /// When it was answered, and what; `None`: never, its client was killed, or hangs.
    pub ended: Option<(MonotonicTime, Outcome)>,
}

impl Operation {
    /// The answer.
    pub fn outcome(&self) -> Option<&Outcome> {
        self.ended.as_ref().map(|(_, outcome)| outcome)
    }

    /// When it was answered; for ever later if never.
    pub fn end(&self) -> MonotonicTime {
        self.ended.as_ref().map_or(MonotonicTime(u64::MAX), |(end, _)| *end)
    }
}
