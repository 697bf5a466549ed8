//! Copies and moves of objects in this client's memory, which the master asks for.
//!
//! A thread of its own asks for tasks once a second, again at once while it gets some, and soon after it got some. The bytes go from this
//! client's segment to the targets in one transfer; the master hears of the copy's end, then of the task's.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use yb_env::Clock;
use yb_jobs::{CopyWork, DynamicLease, MoveWork, Work};
use yb_mem::Crc64;
use yb_transfer::{Engine, Opcode};
use yb_types::{BufferDescriptor, ErrorCode, MonotonicTime, ReplicaDescriptor, Uuid};
use yb_wire::messages::{
    ClientKeyArgs, CopyStartArgs, CopyStartResponse, DynamicReplicaCopyEndArgs, DynamicReplicaCopyStartArgs, ErrorOr,
    FetchTasksArgs, GetReplicaListResponse, KeyArgs, MarkTaskToCompleteArgs, MoveStartArgs, MoveStartResponse,
    NamedCopyArgs, TaskCompleteRequest, TaskStatus, TaskType,
};
use yb_wire::{Call, List, call};

use crate::counters::Counters;
use crate::deadline::{CallLimits, Deadline};
use crate::link::{CorruptReplica, MasterLink, Repeat};
use crate::memory::pieces;
use crate::mover::{Mover, Owner};
use crate::{Error, Result};

/// Between two questions for tasks.
const POLL_PERIOD: Duration = Duration::from_secs(1);
/// The first pause after work, doubled with each question in vain.
const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
/// Tasks taken at a time, as the peer's clients do.
const BATCH: u64 = 16;
/// Pause before a task without space is tried again, times the number of tries.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for one request to the master.
const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Time for the bytes of one task, beside what their number adds.
const TRANSFER_TIME: Duration = Duration::from_secs(10);

/// Time that a copy under way has to end when the client closes.
const STOP_TIME: Duration = Duration::from_millis(300);

/// What the thread works with.
#[derive(Debug)]
pub(crate) struct TaskDuty {
    pub(crate) link: Arc<MasterLink>,
    pub(crate) engine: Engine,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
}

/// The thread.
#[derive(Debug)]
pub(crate) struct TaskWorker {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

/// Ends waits.
#[derive(Debug, Default)]
struct Bell {
    state: Mutex<BellState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct BellState {
    stopped: bool,
    /// The next wait is over at once.
    hurried: bool,
    /// The thread has ended.
    ended: bool,
}

impl Bell {
    /// Waits; true when the thread is to end.
    fn wait(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.stopped && !std::mem::take(&mut state.hurried) {
            self.changed.wait_for(&mut state, time);
            state.hurried = false;
        }
        state.stopped
    }

    /// A pause that nothing but the end cuts short; true when the thread is to end.
    fn pause(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !state.stopped, time);
        state.stopped
    }

    /// Whether the thread has ended after this time.
    fn wait_for_end(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while_for(&mut state, |state| !state.ended, time);
        state.ended
    }

    fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }
}

/// Tells that the thread has ended, however it ends.
struct Ends(Arc<Bell>);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl TaskWorker {
    pub(crate) fn start(duty: TaskDuty) -> Result<Self> {
        let bell = Arc::new(Bell::default());
        let of_thread = Arc::clone(&bell);
        let thread = yb_env::spawn_thread("yb-tasks", move || {
            let ends = Ends(of_thread);
            duty.run(&ends.0);
        })
        .map_err(|error| Error::setup("the thread for copies", error))?;
        Ok(TaskWorker { bell, thread: Some(thread) })
    }

    /// Asks for work now.
    pub(crate) fn hurry(&self) {
        self.bell.state.lock().hurried = true;
        self.bell.changed.notify_all();
    }

    /// Ends the thread after what it is doing, if that does not take long: bytes on their way to a node that stands still are
    /// not waited for.
    pub(crate) fn stop(&mut self) {
        self.bell.state.lock().stopped = true;
        self.bell.changed.notify_all();
        let Some(thread) = self.thread.take() else { return };
        if !self.bell.wait_for_end(STOP_TIME) {
            tracing::warn!("a copy to another node is still under way; it ends without this client");
        } else if thread.join().is_err() {
            tracing::error!("the thread for copies panicked");
        }
    }
}

impl Drop for TaskWorker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A task as it was fetched.
struct Fetched {
    id: Uuid,
    kind: TaskType,
    payload: Vec<u8>,
    retries: u32,
}

/// Where to read and where to write.
struct Begun {
    source: ReplicaDescriptor,
    targets: Vec<ReplicaDescriptor>,
}

/// Why a task failed, for the master.
struct Failure {
    code: Option<ErrorCode>,
    text: String,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = if let Error::Refused { code, .. } = &error { Some(*code) } else { None };
        Failure { code, text: error.to_string() }
    }
}

impl Failure {
    fn of(code: ErrorCode) -> Failure {
        Failure { code: Some(code), text: code.name().unwrap_or("UNKNOWN").to_owned() }
    }
}

impl TaskDuty {
    fn run(&self, bell: &Bell) {
        let mut pause = POLL_PERIOD;
        while !bell.wait(pause) {
            pause = match self.fetch() {
                // Where there was work there is often more in a moment.
                Ok(tasks) if tasks.is_empty() => (pause * 2).clamp(SHORTEST_PAUSE, POLL_PERIOD),
                Ok(tasks) => {
                    tasks.into_iter().for_each(|task| self.work(&task, bell));
                    Duration::ZERO
                }
                Err(Error::Closed) => return,
                // The heartbeat says that the master does not answer.
                Err(_) => POLL_PERIOD,
            };
        }
    }

    fn deadline(&self, base: Duration, bytes: u64) -> Deadline {
        Deadline::start(&self.clock, &CallLimits { base, ..CallLimits::default() }, bytes)
    }

    fn fetch(&self) -> Result<Vec<Fetched>> {
        let args = FetchTasksArgs { client_id: self.link.client_id(), batch_size: BATCH };
        let copy = |reply: ErrorOr<Vec<yb_wire::messages::TaskAssignment<'_>>>| {
            reply.map(|tasks| {
                let owned = |task: &yb_wire::messages::TaskAssignment<'_>| Fetched {
                    id: task.id,
                    kind: task.r#type,
                    payload: task.payload.to_vec(),
                    retries: task.max_retry_attempts,
                };
                tasks.iter().map(owned).collect()
            })
        };
        let deadline = self.deadline(REQUEST_TIME, 0);
        let fetched = self.link.call::<call::FetchTasks, _>(&args, &deadline, Repeat::Never, copy)?;
        fetched.map_err(|code| Error::from_master("FetchTasks", code))
    }

    fn work(&self, task: &Fetched, bell: &Bell) {
        let done = match Work::from_json(task.kind, &task.payload) {
            Ok(work) => self.try_work(&work, task.retries, bell),
            Err(error) => Err(Failure { code: None, text: error.to_string() }),
        };
        let (status, message) = match &done {
            Ok(()) => (TaskStatus::SUCCESS, ""),
            Err(failure) => (TaskStatus::FAILED, failure.text.as_str()),
        };
        self.counters.tasks_done.add(u64::from(done.is_ok()));
        self.counters.tasks_failed.add(u64::from(done.is_err()));
        if done.is_err() {
            tracing::warn!(task = %task.id, message, "a copy or move failed");
        }
        let request = TaskCompleteRequest { id: task.id, status, message: message.as_bytes() };
        let args = MarkTaskToCompleteArgs { client_id: self.link.client_id(), request };
        let told = self.link.command::<call::MarkTaskToComplete>(&args, &self.deadline(REQUEST_TIME, 0));
        if let Err(error) = told {
            tracing::warn!(task = %task.id, %error, "the end of a task could not be told");
        }
    }

    /// Tries again while there is no space, as often as the master wants.
    fn try_work(&self, work: &Work, retries: u32, bell: &Bell) -> std::result::Result<(), Failure> {
        let mut tries = 0;
        loop {
            let done = self.once(work);
            let no_space = matches!(&done, Err(f) if f.code == Some(ErrorCode::NO_AVAILABLE_HANDLE));
            tries += 1;
            if !no_space || tries > retries || bell.pause(PAUSE * tries) {
                return done;
            }
        }
    }

    fn once(&self, work: &Work) -> std::result::Result<(), Failure> {
        let begun = match self.begin(work)? {
            Ok(begun) => begun,
            // A planned copy that is there already.
            Err(ErrorCode::OBJECT_ALREADY_EXISTS) => return Ok(()),
            Err(code) => return Err(Failure::of(code)),
        };
        let moved = self.transfer(work, &begun);
        let told = self.end(work, &begun, moved.is_ok())?;
        moved?;
        told.map_err(Failure::of)
    }

    fn begin(&self, work: &Work) -> Result<ErrorOr<Begun>> {
        let (client_id, deadline) = (self.link.client_id(), self.deadline(REQUEST_TIME, 0));
        let copy = |reply: ErrorOr<CopyStartResponse>| reply.map(|r| Begun { source: r.source, targets: r.targets });
        match work {
            Work::Move(MoveWork { tenant, key, source, target }) => {
                let (tenant_id, src_segment, tgt_segment) = (tenant.as_bytes(), source.as_bytes(), target.as_bytes());
                let args = MoveStartArgs { client_id, key, tenant_id, src_segment, tgt_segment };
                self.link.call::<call::MoveStart, _>(
                    &args,
                    &deadline,
                    Repeat::Never,
                    |reply: ErrorOr<MoveStartResponse>| {
                        reply.map(|r| Begun { source: r.source, targets: r.target.into_iter().collect() })
                    },
                )
            }
            Work::Copy(CopyWork { tenant, key, source, targets, dynamic }) => {
                let names: Vec<&[u8]> = targets.iter().map(String::as_bytes).collect();
                let (tenant_id, src_segment, tgt_segments) =
                    (tenant.as_bytes(), source.as_bytes(), List::from(names.as_slice()));
                let Some(DynamicLease { id, epoch }) = *dynamic else {
                    let args = CopyStartArgs { client_id, key, tenant_id, src_segment, tgt_segments };
                    return self.link.call::<call::CopyStart, _>(&args, &deadline, Repeat::Never, copy);
                };
                let args = DynamicReplicaCopyStartArgs {
                    client_id,
                    key,
                    tenant_id,
                    src_segment,
                    tgt_segments,
                    dynamic_replication_lease_id: id,
                    dynamic_replication_version_epoch: epoch,
                };
                self.link.call::<call::DynamicReplicaCopyStart, _>(&args, &deadline, Repeat::Never, copy)
            }
        }
    }

    /// The checksum that the writer gave, if it can be had: the object stays what it is while it is copied.
    fn written(&self, work: &Work) -> Option<u64> {
        let (tenant, key) = work.object();
        let args = KeyArgs { key, tenant_id: tenant.as_bytes() };
        let deadline = self.deadline(REQUEST_TIME, 0);
        let checksum = |reply: ErrorOr<GetReplicaListResponse>| reply.ok().and_then(|found| found.object_checksum);
        self.link.call::<call::GetReplicaList, _>(&args, &deadline, Repeat::Harmless, checksum).ok().flatten()
    }

    /// Refuses to copy bytes on that are not those that were written.
    fn compare(&self, work: &Work, begun: &Begun, found: Option<Crc64>) -> std::result::Result<(), Failure> {
        let (Some(found), Some(written)) = (found.map(Crc64::value), self.written(work)) else { return Ok(()) };
        if found == written {
            return Ok(());
        }
        let (tenant, key) = work.object();
        self.counters.objects_corrupt.add(1);
        let corrupt = CorruptReplica { tenant: Some(tenant.as_bytes()), key, replica: begun.source.id, written, found };
        match self.link.report_corrupt(&corrupt, &self.deadline(REQUEST_TIME, 0)) {
            Ok(()) => self.counters.corrupt_reported.add(1),
            Err(error) => tracing::warn!(%error, "the master was not told of a replica with other bytes"),
        }
        Err(Failure::of(ErrorCode::CHECKSUM_MISMATCH))
    }

    /// Writes the source's bytes to all targets.
    fn transfer(&self, work: &Work, begun: &Begun) -> std::result::Result<(), Failure> {
        let fail = |text: &str| Failure { code: None, text: text.to_owned() };
        if begun.targets.is_empty() {
            return Ok(());
        }
        let source = begun.source.memory().ok_or_else(|| fail("the source is not in memory"))?;
        if self.engine.name() != Some(source.transport_endpoint.as_str()) {
            return Err(Failure::of(ErrorCode::REPLICA_NOT_IN_LOCAL_MEMORY));
        }
        let local = self.engine.local(source.buffer_address, source.size);
        let local = [local.map_err(|error| Failure { code: None, text: error.to_string() })?];
        let mut mover = Mover::new(Opcode::Write, &self.engine, begun.targets.len());
        for (index, target) in begun.targets.iter().enumerate() {
            let buffer: &BufferDescriptor = target.memory().ok_or_else(|| fail("a target is not in memory"))?;
            if buffer.size != source.size {
                return Err(fail("a target has another size than the source"));
            }
            mover.add_as(Owner { summed: index == 0, ..Owner::plain(0) }, pieces(&local, source.size)?, buffer);
        }
        let until: MonotonicTime = self.deadline(TRANSFER_TIME, source.size).at;
        let moved = mover.run(until);
        match moved.failed.first() {
            Some((_, error)) => Err(Failure { code: None, text: error.to_string() }),
            None => self.compare(work, begun, moved.sums.first().and_then(|(_, sum)| *sum)),
        }
    }

    /// Tells how the copy ended. A planned one has a name; of others a master of ours is told which copy is meant, so that a
    /// late request finds no other one.
    fn end(&self, work: &Work, begun: &Begun, arrived: bool) -> Result<ErrorOr<()>> {
        let (tenant, key) = work.object();
        let is_planned = matches!(work, Work::Copy(CopyWork { dynamic: Some(_), .. }));
        if !is_planned && self.link.names_writes() {
            let (client_id, tenant_id) = (self.link.client_id(), tenant.as_bytes());
            let target = begun.targets.first().map(|target| target.id).unwrap_or_default();
            let args = NamedCopyArgs { client_id, key, tenant_id, target, moves: matches!(work, Work::Move(_)) };
            let told = if arrived { self.tell::<call::EndCopy>(&args) } else { self.tell::<call::RevokeCopy>(&args) };
            if let Some(told) = self.link.unless_unknown(told) {
                return told;
            }
        }
        let args = ClientKeyArgs { client_id: self.link.client_id(), key, tenant_id: tenant.as_bytes() };
        match (work, arrived) {
            (Work::Copy(CopyWork { dynamic: Some(lease), .. }), _) => self.end_dynamic(&args, *lease, arrived),
            (Work::Copy(_), true) => self.tell::<call::CopyEnd>(&args),
            (Work::Copy(_), false) => self.tell::<call::CopyRevoke>(&args),
            (Work::Move(_), true) => self.tell::<call::MoveEnd>(&args),
            (Work::Move(_), false) => self.tell::<call::MoveRevoke>(&args),
        }
    }

    fn end_dynamic(&self, about: &ClientKeyArgs<'_>, lease: DynamicLease, arrived: bool) -> Result<ErrorOr<()>> {
        let ClientKeyArgs { client_id, key, tenant_id } = *about;
        let args = DynamicReplicaCopyEndArgs {
            client_id,
            key,
            tenant_id,
            dynamic_replication_lease_id: lease.id,
            dynamic_replication_version_epoch: lease.epoch,
        };
        if arrived {
            self.tell::<call::DynamicReplicaCopyEnd>(&args)
        } else {
            self.tell::<call::DynamicReplicaCopyRevoke>(&args)
        }
    }

    fn tell<C>(&self, args: &C::Args<'_>) -> Result<ErrorOr<()>>
    where
        C: for<'r> Call<Reply<'r> = ErrorOr<()>>,
    {
        self.link.call::<C, _>(args, &self.deadline(REQUEST_TIME, 0), Repeat::Harmless, |reply| reply)
    }
}
