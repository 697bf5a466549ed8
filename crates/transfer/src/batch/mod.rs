//! Batches: what was submitted, where it stands, and the way to the workers.
//!
//! A batch has room for a fixed number of tasks. A submission fills some of it, is cut into chunks, and the chunks wait
//! by traffic class for a worker. Workers count what they have done in the batch, so asking costs the same however many
//! tasks there are. A task is terminal when the transports have returned from its last chunk and its memory was let go.

pub(crate) mod plan;
pub(crate) mod queue;
pub(crate) mod table;
pub(crate) mod tasks;

use crate::{BatchOutcome, TransferError, TransferErrorKind};

/// Most batches that may be open at once.
pub(crate) const MAX_BATCHES: usize = 65_536;

/// Most tasks of one batch.
pub(crate) const MAX_TASKS: usize = 1 << 20;

/// Names an open batch: 16 bits slot, 16 bits engine, 32 bits generation. Never zero, never given out twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BatchId(pub u64);

impl BatchId {
    fn new(slot: usize, engine: u16, generation: u32) -> Self {
        BatchId(u64::from(generation) << 32 | u64::from(engine) << 16 | slot as u64 & 0xffff)
    }

    fn slot(self) -> usize {
        (self.0 & 0xffff) as usize
    }

    fn engine(self) -> u16 {
        (self.0 >> 16) as u16
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Where a batch stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchStatus {
    /// Not started, or in flight.
    Waiting,
    /// Terminal: nothing can touch its memory any more.
    Done(BatchOutcome),
}

/// Where a task stands. All but [`TaskState::Waiting`] are terminal: nothing can touch its memory any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Not started, or in flight.
    Waiting,
    /// Every byte has arrived.
    Completed,
    /// It failed.
    Failed(TransferError),
    /// Its deadline passed first.
    TimedOut,
    /// It was cancelled first.
    Cancelled,
}

impl TaskState {
    /// True when nothing can touch the task's memory any more.
    pub fn is_terminal(&self) -> bool {
        *self != TaskState::Waiting
    }
}

/// Where a task stands, and how far it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStatus {
    /// Its state.
    pub state: TaskState,
    /// Bytes that have arrived.
    pub bytes: u64,
}

/// What became of the notification of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NotificationState {
    /// The batch has none.
    #[default]
    None,
    /// It is sent when every task has completed.
    Waiting,
    /// The peer has it.
    Sent,
    /// It was not sent, because a task did not complete.
    NotSent,
    /// The peer did not take it.
    Failed,
}

/// How far a batch is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchProgress {
    /// Tasks submitted.
    pub total: usize,
    /// Tasks that are terminal, in whatever way.
    pub done: usize,
    /// Tasks that are terminal and not completed.
    pub failed: usize,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// What became of the notification.
    pub notification: NotificationState,
}

impl BatchProgress {
    /// True when nothing can touch the memory of the batch any more and its notification is decided. A batch without
    /// tasks is terminal.
    pub fn is_terminal(&self) -> bool {
        self.done == self.total && self.notification != NotificationState::Waiting
    }
}

/// Why a call about a batch was refused. Nothing has changed then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// No such id was ever given out.
    #[error("no such batch: the id was never given out")]
    Unknown,
    /// The batch was released before.
    #[error("the batch was released before: its id is stale")]
    Released,
    /// The id is of another engine.
    #[error("the batch belongs to another engine")]
    OtherEngine,
    /// The batch has no such task.
    #[error("the batch has {total} tasks, and no task {index}")]
    NoSuchTask {
        /// What was asked for.
        index: usize,
        /// Tasks submitted.
        total: usize,
    },
    /// The batch has no room for so many tasks.
    #[error("{wanted} more tasks do not fit into a batch of {capacity}, of which {used} are used")]
    Full {
        /// Tasks to submit.
        wanted: usize,
        /// Tasks submitted before.
        used: usize,
        /// Room of the batch.
        capacity: usize,
    },
    /// A batch cannot be that large.
    #[error("a batch has at most {MAX_TASKS} tasks, not {0}")]
    TooLarge(usize),
    /// Too many batches are open; release some.
    #[error("{MAX_BATCHES} batches are open; release some")]
    TooMany,
    /// The batch is not terminal; wait for it or cancel it first.
    #[error("the batch is still in flight; wait for it or cancel it first")]
    Busy,
    /// The engine is shutting down.
    #[error("the engine takes no more batches")]
    Closed,
}

impl BatchError {
    /// Mooncake's number for this failure.
    pub fn code(self) -> i32 {
        match self {
            BatchError::TooMany | BatchError::Full { .. } | BatchError::TooLarge(_) => -2,
            BatchError::Busy => -4,
            _ => -1,
        }
    }
}

/// How a task ended, as a state.
fn state_of(result: Result<(), &TransferError>) -> TaskState {
    match result {
        Ok(()) => TaskState::Completed,
        Err(error) if error.kind() == TransferErrorKind::TimedOut => TaskState::TimedOut,
        Err(error) if error.kind() == TransferErrorKind::Cancelled => TaskState::Cancelled,
        Err(error) => TaskState::Failed(error.clone()),
    }
}
