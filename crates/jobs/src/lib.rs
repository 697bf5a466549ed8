//! What the master asks clients to do with copies of objects, and how far they are.
//!
//! **Problem.** The master moves no bytes; clients do, when they get round to it, and some die half way. Somebody has to
//! remember what was asked of whom, notice what is not going to happen any more, and tell an operator how a drain stands.
//!
//! **Shape.** Pure: time, random ids and the pool come in as arguments. [`TaskQueue`] keeps the tasks that clients fetch;
//! [`DrainJobs`] empties segments by giving tasks; [`HeatTracker`] finds the objects that deserve another copy.
//!
//! **Invariants**
//! - a task is with one client, and ends once;
//! - everything is bounded, and no operation looks at more than what it is about;
//! - a job ends, and says how.
//!
//! `docs/jobs.md` has the picture.
#![forbid(unsafe_code)]

mod drain;
mod heat;
mod job;
mod queue;
mod repair;
mod work;

pub use drain::{CancelRefusal, CreateRefusal, DrainJobs, DrainReport, DrainRequest, JobStatus};
pub use heat::{HeatMode, HeatSettings, HeatTracker, Heated};
pub use job::{Cursor, Grounds, Lookout, Obstacle, Placing, Scan, Unit, UnitName};
pub use queue::{Ended, MarkRefusal, Orphan, PendingFull, Purpose, QueueLimits, Task, TaskCounts, TaskId, TaskQueue};
pub use repair::{Mending, RepairCounts, RepairSettings, Repairs};
pub use work::{BadPayload, CopyWork, DynamicLease, MoveWork, Work};

use yb_types::{MonotonicTime, Uuid};

/// The time of a call, in both clocks: one for deadlines, one for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// For deadlines.
    pub mono: MonotonicTime,
    /// Milliseconds since 1970.
    pub epoch_ms: u64,
}

/// A drain job. Text form as that of every [`Uuid`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub Uuid);
