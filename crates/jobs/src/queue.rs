//! The tasks that clients fetch, do and report.
//!
//! A client gets its tasks in the order in which they were made. Deadlines stand in one ordered set, so looking for what
//! is overdue costs what is found.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use yb_types::{ClientId, ErrorCode, MonotonicTime, Uuid};
use yb_wire::messages::TaskStatus;

use crate::work::Work;
use crate::{JobId, Now};

/// A task. Random, so that nobody guesses another's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskId(pub Uuid);

/// How many tasks there may be, and how long they may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// `max_total_finished_tasks`: how many that have ended are remembered.
    pub finished: usize,
    /// `max_total_pending_tasks`: how many may wait.
    pub pending: usize,
    /// `max_total_processing_tasks`: how many may be under way.
    pub processing: usize,
    /// `max_tasks_per_address`: how many asked for from one address may wait or be under way.
    pub per_address: usize,
    /// `pending_task_timeout_sec`: one that waits longer has failed; zero: never.
    pub pending_timeout: Duration,
    /// `processing_task_timeout_sec`: one that takes longer has failed; zero: never.
    pub processing_timeout: Duration,
    /// `max_retry_attempts`: how often its client tries again when there is no space.
    pub max_retry_attempts: u32,
}

impl Default for QueueLimits {
    fn default() -> Self {
        QueueLimits {
            finished: 10_000,
            pending: 10_000,
            processing: 10_000,
            per_address: 5_000,
            pending_timeout: Duration::from_secs(300),
            processing_timeout: Duration::from_secs(300),
            max_retry_attempts: 10,
        }
    }
}

/// For whom a task is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A client asked for it, from this address; the calls name no client. `None`: over a UNIX socket.
    Asked(Option<IpAddr>),
    /// A drain job.
    Drain(JobId),
    /// The drain job of a client that is about to end: without room it is not tried again by the client.
    Leave(JobId),
    /// A hot object.
    Heat,
    /// A replica that was lost.
    Repair,
}

/// One task.
#[derive(Clone, Debug)]
pub struct Task {
    /// Its id.
    pub id: TaskId,
    /// What is to be done.
    pub work: Work,
    /// For whom.
    pub purpose: Purpose,
    /// Who is to do it.
    pub client: ClientId,
    /// How far it is.
    pub status: TaskStatus,
    /// When it was made, milliseconds since 1970.
    pub created_ms: u64,
    /// When it changed last, milliseconds since 1970.
    pub updated_ms: u64,
    /// Why it ended.
    pub message: String,
    /// Its place in the queue of its client.
    place: u64,
    /// When it has failed.
    deadline: Option<MonotonicTime>,
    /// It was given up before its client said how it ended.
    given_up: bool,
}

/// A task that came to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Which.
    pub id: TaskId,
    /// For whom it was.
    pub purpose: Purpose,
    /// What it was.
    pub work: Work,
    /// Done, or given up.
    pub success: bool,
    /// Why.
    pub message: String,
}

/// A task whose client is gone; to be [reassigned](TaskQueue::reassign) or [failed](TaskQueue::fail).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Orphan {
    /// Which.
    pub id: TaskId,
    /// What it is.
    pub work: Work,
    /// For whom.
    pub purpose: Purpose,
}

impl Purpose {
    /// Whose share it counts to.
    fn asker(self) -> Option<IpAddr> {
        match self {
            Purpose::Asked(address) => address,
            _ => None,
        }
    }
}

/// Too many tasks wait, all together or of those asked for from one address. Retry when some were fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many tasks wait; try again when some are done")]
pub struct PendingFull;

/// Why a report was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MarkRefusal {
    /// A task can only be told to have succeeded or failed.
    #[error("a task ends with SUCCESS or FAILED")]
    Status,
    /// Never made, or forgotten.
    #[error("no such task")]
    Unknown,
    /// It is somebody else's.
    #[error("the task belongs to another client")]
    NotYours,
}

impl MarkRefusal {
    /// The peer's code.
    pub fn code(self) -> ErrorCode {
        match self {
            MarkRefusal::Status => ErrorCode::INVALID_PARAMS,
            MarkRefusal::Unknown => ErrorCode::TASK_NOT_FOUND,
            MarkRefusal::NotYours => ErrorCode::ILLEGAL_CLIENT,
        }
    }
}

/// How many tasks there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskCounts {
    /// Waiting.
    pub pending: usize,
    /// Under way.
    pub processing: usize,
    /// Ended and remembered.
    pub finished: usize,
}

/// What all tasks together may hold, the remembered ones too. Keys may be as long as a message.
const TASK_BYTES_MAX: usize = 64 << 20;
/// Of these, the tasks that were asked for from one address and have not ended.
const ADDRESS_BYTES_MAX: usize = TASK_BYTES_MAX / 2;
/// What the tasks of one fetch may hold together, if they are several.
const FETCH_BYTES: usize = 8 << 20;
/// Messages are cut to this many bytes: they come from clients.
const MESSAGE_BYTES: usize = 1024;

/// All tasks.
#[derive(Debug, Default)]
pub struct TaskQueue {
    limits: QueueLimits,
    tasks: BTreeMap<TaskId, Task>,
    /// By client and place.
    pending: BTreeMap<(ClientId, u64), TaskId>,
    /// By client.
    processing: BTreeSet<(ClientId, TaskId)>,
    deadlines: BTreeSet<(MonotonicTime, TaskId)>,
    finished: VecDeque<TaskId>,
    next_place: u64,
    /// Of the work of all of `tasks`.
    bytes: usize,
    /// What was asked for from each address and has not ended.
    shares: BTreeMap<IpAddr, Share>,
    /// Tasks that were refused for the share of their address.
    refused_shares: u64,
}

/// Tasks of one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    tasks: usize,
    bytes: usize,
}

impl TaskQueue {
    /// An empty queue.
    pub fn new(limits: QueueLimits) -> Self {
        TaskQueue { limits, ..TaskQueue::default() }
    }

    /// Its limits.
    pub fn limits(&self) -> &QueueLimits {
        &self.limits
    }

    /// Other limits from now on; deadlines that are set stay.
    pub fn set_limits(&mut self, limits: QueueLimits) {
        self.limits = limits;
    }

    /// How many tasks there are.
    pub fn counts(&self) -> TaskCounts {
        TaskCounts { pending: self.pending.len(), processing: self.processing.len(), finished: self.finished.len() }
    }

    /// Tasks that were refused because too many of their address wait or are under way.
    pub fn refused_shares(&self) -> u64 {
        self.refused_shares
    }

    /// Whether the address that asks may have another task of so many bytes.
    fn has_share(&self, purpose: Purpose, bytes: usize) -> bool {
        let share = purpose.asker().and_then(|address| self.shares.get(&address)).copied().unwrap_or_default();
        purpose.asker().is_none() || (share.tasks < self.limits.per_address && share.bytes + bytes <= ADDRESS_BYTES_MAX)
    }

    /// A task has ended or was withdrawn: its address may ask for another one.
    fn return_share(&mut self, purpose: Purpose, bytes: usize) {
        let Some(address) = purpose.asker() else { return };
        let Some(share) = self.shares.get_mut(&address) else { return };
        (share.tasks, share.bytes) = (share.tasks - 1, share.bytes - bytes);
        if share.tasks == 0 {
            self.shares.remove(&address);
        }
    }

    /// Queues a task for a client.
    ///
    /// # Errors
    /// [`PendingFull`]; nothing changed then.
    pub fn submit(
        &mut self,
        id: TaskId,
        work: Work,
        purpose: Purpose,
        client: ClientId,
        now: Now,
    ) -> Result<(), PendingFull> {
        if self.pending.len() >= self.limits.pending {
            return Err(PendingFull);
        }
        let bytes = work.bytes();
        if !self.has_share(purpose, bytes) {
            self.refused_shares += 1;
            return Err(PendingFull);
        }
        // Those that have ended make room, the oldest first.
        while self.bytes + bytes > TASK_BYTES_MAX && self.forget_oldest() {}
        if self.bytes + bytes > TASK_BYTES_MAX {
            return Err(PendingFull);
        }
        let task = Task {
            id,
            work,
            purpose,
            client,
            status: TaskStatus::PENDING,
            created_ms: now.epoch_ms,
            updated_ms: now.epoch_ms,
            message: String::new(),
            place: 0,
            deadline: None,
            given_up: false,
        };
        self.forget(id);
        self.tasks.insert(id, task);
        self.bytes += bytes;
        if let Some(address) = purpose.asker() {
            let share = self.shares.entry(address).or_default();
            (share.tasks, share.bytes) = (share.tasks + 1, share.bytes + bytes);
        }
        self.enqueue(id, client, now);
        Ok(())
    }

    fn enqueue(&mut self, id: TaskId, client: ClientId, now: Now) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        self.next_place += 1;
        (task.place, task.client, task.status) = (self.next_place, client, TaskStatus::PENDING);
        self.pending.insert((client, task.place), id);
        self.set_deadline(id, self.limits.pending_timeout, now);
    }

    fn set_deadline(&mut self, id: TaskId, after: Duration, now: Now) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let next = (!after.is_zero()).then(|| now.mono + after);
        if let Some(old) = std::mem::replace(&mut task.deadline, next) {
            self.deadlines.remove(&(old, id));
        }
        if let Some(next) = next {
            self.deadlines.insert((next, id));
        }
    }

    /// Forgets the task that ended first; `false` when none is remembered.
    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.finished.pop_front() else { return false };
        self.forget(oldest);
        true
    }

    fn forget(&mut self, id: TaskId) {
        if let Some(task) = self.tasks.remove(&id) {
            self.bytes -= task.work.bytes();
        }
    }

    /// Hands a client its next tasks, at most `most` and not many large ones at once, oldest first.
    pub fn fetch(&mut self, client: ClientId, most: usize, now: Now, mut sink: impl FnMut(&Task)) {
        let mut bytes = 0;
        for _ in 0..most {
            if self.processing.len() >= self.limits.processing {
                return;
            }
            let mut own = self.pending.range((client, 0)..=(client, u64::MAX));
            let Some((&place, &id)) = own.next() else { return };
            let next = self.tasks.get(&id).map_or(0, |task| task.work.bytes());
            if bytes > 0 && bytes + next > FETCH_BYTES {
                return;
            }
            bytes += next;
            self.pending.remove(&place);
            self.processing.insert((client, id));
            self.set_deadline(id, self.limits.processing_timeout, now);
            if let Some(task) = self.tasks.get_mut(&id) {
                (task.status, task.updated_ms) = (TaskStatus::PROCESSING, now.epoch_ms);
                sink(task);
            }
        }
    }

    /// Takes a client's word for how a task ended. `None` when that was known already. A task that was given up, and that
    /// did succeed in the end, is told to have succeeded.
    ///
    /// # Errors
    /// [`MarkRefusal`].
    pub fn mark(
        &mut self,
        client: ClientId,
        id: TaskId,
        status: TaskStatus,
        message: &[u8],
        now: Now,
    ) -> Result<Option<Ended>, MarkRefusal> {
        if status != TaskStatus::SUCCESS && status != TaskStatus::FAILED {
            return Err(MarkRefusal::Status);
        }
        let task = self.tasks.get_mut(&id).ok_or(MarkRefusal::Unknown)?;
        if task.client != client {
            return Err(MarkRefusal::NotYours);
        }
        let message = String::from_utf8_lossy(&message[..message.len().min(MESSAGE_BYTES)]).into_owned();
        if task.status == TaskStatus::PENDING || task.status == TaskStatus::PROCESSING {
            return Ok(self.end(id, status == TaskStatus::SUCCESS, message, now));
        }
        if std::mem::take(&mut task.given_up) && status == TaskStatus::SUCCESS {
            (task.status, task.updated_ms) = (TaskStatus::SUCCESS, now.epoch_ms);
            task.message = format!("late: {message}");
        }
        Ok(None)
    }

    /// Gives up what is overdue.
    pub fn expire(&mut self, now: Now) -> Vec<Ended> {
        let mut ended = Vec::new();
        while let Some(&(deadline, id)) = self.deadlines.first()
            && deadline <= now.mono
        {
            let was_pending = self.tasks.get(&id).is_some_and(|task| task.status == TaskStatus::PENDING);
            let message = if was_pending {
                "timed out: no client fetched it in time"
            } else {
                "timed out: its client did not report in time"
            };
            ended.extend(self.fail(id, message, now));
        }
        ended
    }

    /// Gives a task up. `None` when it has ended, or never was.
    pub fn fail(&mut self, id: TaskId, message: &str, now: Now) -> Option<Ended> {
        let ended = self.end(id, false, message.to_owned(), now);
        if let Some(task) = self.tasks.get_mut(&id).filter(|_| ended.is_some()) {
            task.given_up = true;
        }
        ended
    }

    /// The tasks of a client that is gone. Each stays as it is until it is reassigned or failed.
    pub fn of_client(&self, client: ClientId) -> Vec<Orphan> {
        let pending = self.pending.range((client, 0)..=(client, u64::MAX)).map(|(_, id)| id);
        let least = (client, TaskId::default());
        let processing = self.processing.range(least..).take_while(|(owner, _)| *owner == client).map(|(_, id)| id);
        let tasks = pending.chain(processing).filter_map(|id| self.tasks.get(id));
        tasks.map(|task| Orphan { id: task.id, work: task.work.clone(), purpose: task.purpose }).collect()
    }

    /// Gives a task that has not ended to another client, with work that fits it.
    pub fn reassign(&mut self, id: TaskId, client: ClientId, work: Work, now: Now) {
        let open = |task: &&mut Task| task.status == TaskStatus::PENDING || task.status == TaskStatus::PROCESSING;
        let Some(task) = self.tasks.get_mut(&id).filter(open) else { return };
        self.pending.remove(&(task.client, task.place));
        self.processing.remove(&(task.client, id));
        let (before, after) = (task.work.bytes(), work.bytes());
        self.bytes = self.bytes - before + after;
        if let Some(share) = task.purpose.asker().and_then(|address| self.shares.get_mut(&address)) {
            share.bytes = share.bytes - before + after;
        }
        (task.work, task.updated_ms) = (work, now.epoch_ms);
        self.enqueue(id, client, now);
    }

    /// Takes back a task that nobody has fetched; `false` when somebody has.
    pub fn withdraw(&mut self, id: TaskId) -> bool {
        let Some(task) = self.tasks.get(&id).filter(|task| task.status == TaskStatus::PENDING) else { return false };
        self.pending.remove(&(task.client, task.place));
        if let Some(deadline) = task.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        let (purpose, bytes) = (task.purpose, task.work.bytes());
        self.return_share(purpose, bytes);
        self.forget(id);
        true
    }

    /// A task that is remembered.
    pub fn get(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id)
    }

    /// When something is overdue, if nothing changes.
    pub fn next_deadline(&self) -> Option<MonotonicTime> {
        self.deadlines.first().map(|&(deadline, _)| deadline)
    }

    fn end(&mut self, id: TaskId, success: bool, message: String, now: Now) -> Option<Ended> {
        let open = |task: &&mut Task| task.status == TaskStatus::PENDING || task.status == TaskStatus::PROCESSING;
        let task = self.tasks.get_mut(&id).filter(open)?;
        self.pending.remove(&(task.client, task.place));
        self.processing.remove(&(task.client, id));
        if let Some(deadline) = task.deadline.take() {
            self.deadlines.remove(&(deadline, id));
        }
        task.status = if success { TaskStatus::SUCCESS } else { TaskStatus::FAILED };
        task.updated_ms = now.epoch_ms;
        task.message.clone_from(&message);
        let ended = Ended { id, purpose: task.purpose, work: task.work.clone(), success, message };
        self.return_share(ended.purpose, ended.work.bytes());
        self.finished.push_back(id);
        while self.finished.len() > self.limits.finished && self.forget_oldest() {}
        Some(ended)
    }

    /// Panics when the parts contradict each other; for tests.
    pub fn assert_consistent(&self) {
        assert_eq!(self.tasks.values().map(|task| task.work.bytes()).sum::<usize>(), self.bytes);
        let with = |status: TaskStatus| self.tasks.values().filter(move |task| task.status == status);
        assert_eq!(with(TaskStatus::PENDING).count(), self.pending.len());
        assert_eq!(with(TaskStatus::PROCESSING).count(), self.processing.len());
        assert_eq!(with(TaskStatus::SUCCESS).chain(with(TaskStatus::FAILED)).count(), self.finished.len());
        let mut shares: BTreeMap<IpAddr, Share> = BTreeMap::new();
        for task in with(TaskStatus::PENDING).chain(with(TaskStatus::PROCESSING)) {
            let Some(address) = task.purpose.asker() else { continue };
            let share = shares.entry(address).or_default();
            (share.tasks, share.bytes) = (share.tasks + 1, share.bytes + task.work.bytes());
        }
        assert_eq!(shares, self.shares);
        for task in with(TaskStatus::PENDING) {
            assert_eq!(self.pending.get(&(task.client, task.place)), Some(&task.id));
        }
        for task in self.tasks.values() {
            let open = task.status == TaskStatus::PENDING || task.status == TaskStatus::PROCESSING;
            assert!(open || task.deadline.is_none(), "an ended task has a deadline");
            assert!(task.deadline.is_none_or(|deadline| self.deadlines.contains(&(deadline, task.id))));
        }
        assert_eq!(self.tasks.values().filter(|task| task.deadline.is_some()).count(), self.deadlines.len());
    }
}
