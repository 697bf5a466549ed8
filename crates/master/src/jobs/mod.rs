//! Tasks, drain jobs and hot objects: their books, and the thread that goes on with them.
//!
//! RPC workers only touch the queue of tasks and leave notes; whatever reads segments or chooses targets happens on the
//! thread.

mod grounds;
mod heat;
mod repair;
mod report;

use std::time::Duration;

use parking_lot::Mutex;
use yb_catalog::{Loss, Random};
use yb_env::Rng;
use yb_jobs::{
    CancelRefusal, CreateRefusal, DrainJobs, DrainReport, DrainRequest, Ended, HeatSettings, JobId, Now, PendingFull,
    Purpose, QueueLimits, RepairCounts, RepairSettings, Repairs, TaskId, TaskQueue, Work,
};
use yb_types::{ClientId, MonotonicTime};

use self::grounds::MasterGrounds;
pub(crate) use self::heat::Heat;
pub(crate) use self::report::MasterJobs;
use crate::shared::Shared;
use crate::waker::Waker;

/// How tasks and hot objects are dealt with.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobSettings {
    /// Limits of the queue of tasks.
    pub tasks: QueueLimits,
    /// What makes an object hot.
    pub heat: HeatSettings,
    /// How fast lost replicas are made again.
    pub repair: RepairSettings,
}

/// The books. Order of locks: drains or repairs, then tasks; notes and the random numbers are locked alone.
pub(crate) struct Jobs {
    pub(crate) tasks: Mutex<TaskQueue>,
    drains: Mutex<DrainJobs>,
    repairs: Mutex<Repairs<Loss>>,
    notes: Mutex<Notes>,
    pub(crate) heat: Heat,
    rng: Mutex<Rng>,
    pub(crate) waker: Waker,
}

/// What happened since the thread last looked.
#[derive(Default)]
struct Notes {
    ended: Vec<Ended>,
    left: Vec<(ClientId, Left)>,
}

/// Why a client's tasks are looked at.
pub(crate) enum Left {
    /// The client was given up.
    Client,
    /// It does not ping, and may come back.
    Silent,
    /// Its segment of this name is gone.
    Segment(String),
}

/// Between two looks while a drain has more to look at.
const HURRIED_PERIOD: Duration = Duration::from_millis(1);
/// Between two looks while a drain runs.
const BUSY_PERIOD: Duration = Duration::from_millis(500);
/// Between two looks otherwise.
const IDLE_PERIOD: Duration = Duration::from_secs(1);
/// While hot objects are looked for, or lost replicas are made again.
const HEAT_PERIOD: Duration = Duration::from_millis(100);

/// Moves under way at a time of a client that is about to end: it works on them one after the other, and asks for some at a time.
const LEAVERS_MOVES: u32 = 64;
/// Moves under way at a time of a drain that an earlier master began.
const RESUMED_MOVES: u32 = 16;
/// What a client that is about to end may ask for at most.
const LEAVERS_TIME: Duration = Duration::from_secs(24 * 3600);

/// The time of a call in both clocks.
pub(crate) fn both_clocks(now: MonotonicTime) -> Now {
    Now { mono: now, epoch_ms: yb_env::epoch_millis() }
}

impl Jobs {
    pub(crate) fn new(settings: JobSettings) -> Jobs {
        let mut rng = Rng::from_entropy();
        Jobs {
            tasks: Mutex::new(TaskQueue::new(settings.tasks)),
            drains: Mutex::default(),
            repairs: Mutex::new(Repairs::new(settings.repair)),
            notes: Mutex::default(),
            heat: Heat::new(settings.heat, rng.next_u64()),
            rng: Mutex::new(rng),
            waker: Waker::default(),
        }
    }

    /// Gives a client work.
    pub(crate) fn give(&self, work: Work, purpose: Purpose, client: ClientId, now: Now) -> Result<TaskId, PendingFull> {
        let id = TaskId(self.rng.lock().uuid());
        self.tasks.lock().submit(id, work, purpose, client, now)?;
        Ok(id)
    }

    /// Somebody waits for the end of this task.
    pub(crate) fn note_ended(&self, ended: Ended) {
        if !matches!(ended.purpose, Purpose::Asked(_)) {
            self.notes.lock().ended.push(ended);
            self.waker.wake();
        }
    }

    /// A client cannot do some of its tasks any more: they go to others or fail.
    pub(crate) fn note_left(&self, client: ClientId, left: Left) {
        self.notes.lock().left.push((client, left));
        self.waker.wake();
    }

    pub(crate) fn create_drain(&self, shared: &Shared, request: DrainRequest) -> Result<JobId, CreateRefusal> {
        let id = JobId(self.rng.lock().uuid());
        let (now, segments) = (both_clocks(shared.clock.now()), request.segments.join(", "));
        self.drains.lock().create(id, request, &mut MasterGrounds { shared, now }, now)?;
        tracing::info!(job = %id.0, segments, "drain job created");
        self.waker.wake();
        Ok(id)
    }

    /// Has the segments of a client that is about to end emptied as far as `within` allows; to be called again and again.
    pub(crate) fn leave(
        &self,
        shared: &Shared,
        client: ClientId,
        within: Duration,
    ) -> Result<DrainReport, CreateRefusal> {
        let segments = shared.catalog.names_of(client);
        let request = DrainRequest {
            segments,
            max_concurrency: LEAVERS_MOVES,
            within: Some(within.min(LEAVERS_TIME)),
            leaver: Some(client),
            ..DrainRequest::default()
        };
        let (id, now) = (JobId(self.rng.lock().uuid()), both_clocks(shared.clock.now()));
        let report = self.drains.lock().leave(id, request, &mut MasterGrounds { shared, now }, now)?;
        if report.id == id {
            tracing::info!(job = %id.0, %client, segments = report.segments.join(", "), "a client leaves: its segments are emptied");
            self.waker.wake();
        }
        Ok(report)
    }

    pub(crate) fn cancel_drain(&self, shared: &Shared, id: JobId) -> Result<(), CancelRefusal> {
        let now = both_clocks(shared.clock.now());
        self.drains.lock().cancel(id, &mut MasterGrounds { shared, now }, now)
    }

    /// Lets a drained segment take objects again.
    pub(crate) fn undo_drain(&self, shared: &Shared, segment: &str) -> Result<(), CreateRefusal> {
        let now = both_clocks(shared.clock.now());
        self.drains.lock().undo(segment, &mut MasterGrounds { shared, now })
    }

    pub(crate) fn query_drain(&self, id: JobId) -> Option<DrainReport> {
        self.drains.lock().query(id)
    }

    /// What came of the repairs of lost replicas.
    pub(crate) fn repairs(&self) -> RepairCounts {
        self.repairs.lock().counts()
    }

    /// Whether lost replicas are made again.
    pub(crate) fn repairs_losses(&self) -> bool {
        self.repairs.lock().is_on()
    }

    pub(crate) fn drains(&self) -> Vec<DrainReport> {
        self.drains.lock().list()
    }

    pub(crate) fn random(&self) -> impl Random {
        let mut rng = Rng::seeded(self.rng.lock().next_u64());
        move || rng.next_u64()
    }

    /// One look at everything. Answers when to look again.
    fn round(&self, shared: &Shared) -> Duration {
        let now = both_clocks(shared.clock.now());
        let notes = std::mem::take(&mut *self.notes.lock());
        let mut ended = notes.ended;
        for (client, left) in notes.left {
            self.orphan(shared, client, &left, now, &mut ended);
        }
        ended.extend(self.tasks.lock().expire(now));
        for ended in &ended {
            self.heat.task_ended(shared, ended);
        }
        let mut drains = self.drains.lock();
        for name in shared.catalog.take_resumed() {
            tracing::info!(segment = name, "a drain goes on that the master before this one began");
            let request =
                DrainRequest { segments: vec![name], max_concurrency: RESUMED_MOVES, ..DrainRequest::default() };
            drains.resume(JobId(self.rng.lock().uuid()), request, &mut MasterGrounds { shared, now }, now);
        }
        for ended in &ended {
            drains.task_ended(ended, now);
        }
        drains.step(&mut MasterGrounds { shared, now }, now);
        let (busy, hurried) = (!drains.is_idle(), drains.is_hurried());
        drop(drains);
        let repairing = {
            let mut repairs = self.repairs.lock();
            ended.iter().for_each(|ended| repairs.task_ended(ended.id, ended.success));
            repair::step(&mut repairs, shared, now);
            !repairs.is_idle()
        };
        self.heat.propose(shared, now);
        if hurried {
            HURRIED_PERIOD
        } else if self.heat.is_on() || repairing {
            HEAT_PERIOD
        } else if busy {
            BUSY_PERIOD
        } else {
            IDLE_PERIOD
        }
    }

    /// Gives the tasks that a client cannot do any more to others who can.
    fn orphan(&self, shared: &Shared, client: ClientId, left: &Left, now: Now, ended: &mut Vec<Ended>) {
        let orphans = self.tasks.lock().of_client(client);
        let is_lost = |name: &str| match left {
            Left::Segment(gone) => gone == name && shared.catalog.look_at(name).is_none(),
            Left::Client | Left::Silent => true,
        };
        for orphan in orphans.into_iter().filter(|orphan| is_lost(orphan.work.source())) {
            match self.another_source(shared, client, &orphan.work) {
                Some((owner, work)) => self.tasks.lock().reassign(orphan.id, owner, work, now),
                None if matches!(left, Left::Silent) => {}
                None => {
                    let message = match left {
                        Left::Segment(_) => "the segment of the source is gone",
                        _ => "the client that was to do it is gone",
                    };
                    ended.extend(self.tasks.lock().fail(orphan.id, message, now));
                }
            }
        }
    }

    /// A copy can be read from any replica; a move, and a planned copy, only from theirs.
    fn another_source(&self, shared: &Shared, gone: ClientId, work: &Work) -> Option<(ClientId, Work)> {
        let Work::Copy(copy) = work else { return None };
        if copy.dynamic.is_some() {
            return None;
        }
        let tenant = shared.catalog.tenants().reader(copy.tenant.as_bytes()).ok()?;
        let targets: Vec<&str> = copy.targets.iter().map(String::as_str).collect();
        let source = shared.catalog.copy_source(tenant, &copy.key, &targets, &mut self.random()).ok()?;
        let work = Work::Copy(yb_jobs::CopyWork { source: source.segment, ..copy.clone() });
        (source.owner != gone).then_some((source.owner, work))
    }
}

/// Runs until the waker is stopped.
pub(crate) fn run(shared: &Shared) {
    let mut period = IDLE_PERIOD;
    while shared.jobs.waker.wait(period) {
        period = shared.jobs.round(shared);
    }
}
