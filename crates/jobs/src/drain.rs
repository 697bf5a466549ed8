//! Drain jobs: emptying segments by having their objects moved.
//!
//! A job goes over its segments in passes, from extent to extent, and stops wherever as many moves are under way as it may
//! have. A pass that met nothing is the proof that the segments are empty.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use yb_types::{ErrorCode, MonotonicTime, SegmentStatus};

use crate::job::{Cursor, Grounds, Obstacle, Placing, Unit, UnitName};
use crate::queue::{Ended, TaskId};
use crate::{JobId, Now};

/// What an operator asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainRequest {
    /// Names of the segments to empty.
    pub segments: Vec<String>,
    /// Names of the segments that may take the objects; empty: all others.
    pub targets: Vec<String>,
    /// Moves under way at a time.
    pub max_concurrency: u32,
}

/// How a job stands. Numbers of the peer's HTTP interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum JobStatus {
    /// Nothing was done yet.
    Created = 0,
    /// Counting the objects.
    Planning = 1,
    /// Moving them.
    Running = 2,
    /// The segments are empty.
    Succeeded = 3,
    /// Given up.
    Failed = 4,
    /// Called off.
    Canceled = 5,
}

impl JobStatus {
    /// The peer's word.
    pub fn name(self) -> &'static str {
        match self {
            JobStatus::Created => "CREATED",
            JobStatus::Planning => "PLANNING",
            JobStatus::Running => "RUNNING",
            JobStatus::Succeeded => "SUCCEEDED",
            JobStatus::Failed => "FAILED",
            JobStatus::Canceled => "CANCELED",
        }
    }

    /// Whether nothing will change any more.
    pub fn is_terminal(self) -> bool {
        matches!(self, JobStatus::Succeeded | JobStatus::Failed | JobStatus::Canceled)
    }
}

/// Why a job was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateRefusal {
    /// No segment, one twice, no concurrency, or a target that is to be drained.
    #[error("name each segment once, targets other than these, and a concurrency above 0")]
    Params,
    /// A segment or a target is not mounted.
    #[error("a segment or target is not mounted")]
    NotFound,
    /// A segment or a target is not in status OK.
    #[error("a segment or target is not in status OK")]
    NotOk,
}

impl CreateRefusal {
    /// The peer's code.
    pub fn code(self) -> ErrorCode {
        match self {
            CreateRefusal::Params => ErrorCode::INVALID_PARAMS,
            CreateRefusal::NotFound => ErrorCode::SEGMENT_NOT_FOUND,
            CreateRefusal::NotOk => ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS,
        }
    }
}

/// Why a job was not cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CancelRefusal {
    /// Never created, or forgotten.
    #[error("no such job")]
    Unknown,
    /// It has ended.
    #[error("the job has ended")]
    Terminal,
    /// Moves are under way. No new one starts for a while: try again in a moment.
    #[error("moves are under way; no new one starts for 10 s, so try again in a moment")]
    Active,
}

impl CancelRefusal {
    /// The peer's code.
    pub fn code(self) -> ErrorCode {
        match self {
            CancelRefusal::Unknown => ErrorCode::JOB_NOT_FOUND,
            _ => ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS,
        }
    }
}

/// A job for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Its id.
    pub id: JobId,
    /// How it stands.
    pub status: JobStatus,
    /// When it was created, milliseconds since 1970.
    pub created_ms: u64,
    /// When it changed last, milliseconds since 1970.
    pub updated_ms: u64,
    /// The segments it empties.
    pub segments: Vec<String>,
    /// Objects moved, or dropped as duplicates.
    pub succeeded_units: u64,
    /// Objects that failed three times.
    pub failed_units: u64,
    /// Objects that could not be moved when last met.
    pub blocked_units: u64,
    /// Moves under way.
    pub active_units: u64,
    /// Objects still there, as far as is known.
    pub left_units: u64,
    /// Bytes moved.
    pub migrated_bytes: u64,
    /// One line.
    pub message: String,
}

/// Times a unit may fail.
const TRIES: u8 = 3;
/// Between two passes of which the first moved nothing.
const PAUSE: Duration = Duration::from_millis(500);
/// A job that finds no room for anything this long gives up.
const NO_ROOM: Duration = Duration::from_secs(60);
/// A job that gets nowhere for another reason this long gives up: longer than an unfinished put or copy lasts.
const STALLED: Duration = Duration::from_secs(900);
/// No new moves after a refused cancel.
const CANCEL_WISH: Duration = Duration::from_secs(10);
/// Parts of a scan in one step.
const PARTS_PER_STEP: u32 = 32;
/// Ended jobs kept.
const KEPT: usize = 1000;

/// What one pass over all segments met.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    segment: usize,
    cursor: Cursor,
    ended: bool,
    met: u64,
    sent: u64,
    blocked: u64,
    no_room: u64,
    given_up: u64,
}

#[derive(Debug)]
struct DrainJob {
    id: JobId,
    request: DrainRequest,
    /// Segments of each name when the job began.
    members: Vec<u32>,
    status: JobStatus,
    created_ms: u64,
    updated_ms: u64,
    message: String,
    succeeded: u64,
    blocked: u64,
    left: u64,
    migrated: u64,
    active: BTreeMap<TaskId, Unit>,
    /// Failures of units that failed.
    failures: BTreeMap<UnitName, u8>,
    last_error: String,
    pass: Pass,
    /// Met and not looked at yet.
    waiting: VecDeque<Unit>,
    not_before: MonotonicTime,
    progress: MonotonicTime,
}

/// All jobs: those that run, and the last that ended.
#[derive(Debug, Default)]
pub struct DrainJobs {
    jobs: BTreeMap<JobId, DrainJob>,
    running: BTreeSet<JobId>,
    by_task: BTreeMap<TaskId, JobId>,
    ended: VecDeque<JobId>,
}

impl DrainJobs {
    /// Creates a job: its segments take nothing more from here on.
    ///
    /// # Errors
    /// [`CreateRefusal`]; nothing changed then.
    pub fn create(
        &mut self,
        id: JobId,
        request: DrainRequest,
        grounds: &mut dyn Grounds,
        now: Now,
    ) -> Result<(), CreateRefusal> {
        let members = check(&request, grounds)?;
        for segment in &request.segments {
            grounds.set_status(segment, SegmentStatus::DRAINING);
        }
        let job = DrainJob {
            id,
            request,
            members,
            status: JobStatus::Created,
            created_ms: now.epoch_ms,
            updated_ms: now.epoch_ms,
            message: "Drain job created".to_owned(),
            succeeded: 0,
            blocked: 0,
            left: 0,
            migrated: 0,
            active: BTreeMap::new(),
            failures: BTreeMap::new(),
            last_error: String::new(),
            pass: Pass::default(),
            waiting: VecDeque::new(),
            not_before: now.mono,
            progress: now.mono,
        };
        self.jobs.insert(id, job);
        self.running.insert(id);
        Ok(())
    }

    /// How a job stands.
    pub fn query(&self, id: JobId) -> Option<DrainReport> {
        self.jobs.get(&id).map(DrainJob::report)
    }

    /// Every job that is remembered, newest first.
    pub fn list(&self) -> Vec<DrainReport> {
        let mut all: Vec<DrainReport> = self.jobs.values().map(DrainJob::report).collect();
        all.sort_by_key(|job| std::cmp::Reverse((job.created_ms, job.id)));
        all
    }

    /// Calls a job off; its segments take objects again.
    ///
    /// # Errors
    /// [`CancelRefusal`].
    pub fn cancel(&mut self, id: JobId, grounds: &mut dyn Grounds, now: Now) -> Result<(), CancelRefusal> {
        let job = self.jobs.get_mut(&id).ok_or(CancelRefusal::Unknown)?;
        if job.status.is_terminal() {
            return Err(CancelRefusal::Terminal);
        }
        let withdrawn: Vec<TaskId> = job.active.keys().copied().filter(|task| grounds.withdraw(*task)).collect();
        for task in withdrawn {
            job.active.remove(&task);
            self.by_task.remove(&task);
        }
        if !job.active.is_empty() {
            job.not_before = now.mono + CANCEL_WISH;
            return Err(CancelRefusal::Active);
        }
        job.end(JobStatus::Canceled, "Drain job canceled".to_owned(), grounds, now);
        self.retire(id);
        Ok(())
    }

    /// Whether any job is under way.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Goes on with every job; to be called every 500 ms, and when a task of a drain has ended.
    pub fn step(&mut self, grounds: &mut dyn Grounds, now: Now) {
        let running: Vec<JobId> = self.running.iter().copied().collect();
        for id in running {
            let Some(job) = self.jobs.get_mut(&id) else { continue };
            let sent = job.step(grounds, now);
            let ended = job.status.is_terminal();
            self.by_task.extend(sent.into_iter().map(|task| (task, id)));
            if ended {
                self.retire(id);
            }
        }
    }

    /// A task that was given for a job has ended.
    pub fn task_ended(&mut self, ended: &Ended, now: Now) {
        let job = self.by_task.remove(&ended.id).and_then(|id| self.jobs.get_mut(&id));
        if let Some(job) = job {
            job.task_ended(ended, now);
        }
    }

    fn retire(&mut self, id: JobId) {
        self.running.remove(&id);
        self.ended.push_back(id);
        self.by_task.retain(|_, job| *job != id);
        while self.ended.len() > KEPT {
            if let Some(oldest) = self.ended.pop_front() {
                self.jobs.remove(&oldest);
            }
        }
    }
}

/// The checks of the peer, in its order; answers how many segments each name has.
fn check(request: &DrainRequest, grounds: &mut dyn Grounds) -> Result<Vec<u32>, CreateRefusal> {
    let unique: BTreeSet<&String> = request.segments.iter().collect();
    if request.segments.is_empty() || unique.len() != request.segments.len() || request.max_concurrency == 0 {
        return Err(CreateRefusal::Params);
    }
    let mut ok = |segment: &String| {
        let look = grounds.look(segment).ok_or(CreateRefusal::NotFound)?;
        if look.status == SegmentStatus::OK { Ok(look.members) } else { Err(CreateRefusal::NotOk) }
    };
    let members = request.segments.iter().map(&mut ok).collect::<Result<Vec<u32>, _>>()?;
    for target in &request.targets {
        if unique.contains(target) {
            return Err(CreateRefusal::Params);
        }
        ok(target)?;
    }
    Ok(members)
}

impl DrainJob {
    fn report(&self) -> DrainReport {
        DrainReport {
            id: self.id,
            status: self.status,
            created_ms: self.created_ms,
            updated_ms: self.updated_ms,
            segments: self.request.segments.clone(),
            succeeded_units: self.succeeded,
            failed_units: self.given_up(),
            blocked_units: self.blocked,
            active_units: self.active.len() as u64,
            left_units: self.left,
            migrated_bytes: self.migrated,
            message: self.message.clone(),
        }
    }

    fn given_up(&self) -> u64 {
        self.failures.values().filter(|&&times| times >= TRIES).count() as u64
    }

    /// Answers the tasks that were given.
    fn step(&mut self, grounds: &mut dyn Grounds, now: Now) -> Vec<TaskId> {
        if let Some(lost) = self.lost_segment(grounds) {
            let message = format!(
                "Drain job failed: segment {lost} went away; of its objects {} were not moved and are lost unless they had \
                 another replica",
                self.left
            );
            self.end(JobStatus::Failed, message, grounds, now);
            return Vec::new();
        }
        match self.status {
            JobStatus::Created => {
                self.set_status(JobStatus::Planning, "Drain job planning", now);
                self.plan(grounds, now);
                Vec::new()
            }
            JobStatus::Planning => {
                self.plan(grounds, now);
                Vec::new()
            }
            _ if now.mono < self.not_before => Vec::new(),
            _ => self.go_on(grounds, now),
        }
    }

    fn lost_segment(&self, grounds: &mut dyn Grounds) -> Option<String> {
        let intact = |segment: &str, members: u32| {
            let look = grounds.look(segment)?;
            let readable =
                look.status == SegmentStatus::DRAINING || look.status == SegmentStatus::GRACEFULLY_UNMOUNTING;
            (readable && look.members >= members).then_some(())
        };
        let mut intact = intact;
        let segments = self.request.segments.iter().zip(&self.members);
        segments.into_iter().find(|(segment, members)| intact(segment, **members).is_none()).map(|(s, _)| s.clone())
    }

    /// Counts what there is.
    fn plan(&mut self, grounds: &mut dyn Grounds, now: Now) {
        for _ in 0..PARTS_PER_STEP {
            match self.scan_part(grounds) {
                Some(units) => self.left += units.len() as u64,
                None => {
                    self.pass = Pass::default();
                    self.progress = now.mono;
                    self.set_status(JobStatus::Running, "Drain job running", now);
                    return;
                }
            }
        }
    }

    /// The next part of the pass; `None` at its end.
    fn scan_part(&mut self, grounds: &mut dyn Grounds) -> Option<Vec<Unit>> {
        let segment = self.request.segments.get(self.pass.segment)?;
        let scan = grounds.scan(segment, self.pass.cursor);
        match scan.next {
            Some(next) => self.pass.cursor = next,
            None => (self.pass.segment, self.pass.cursor) = (self.pass.segment + 1, Cursor::default()),
        }
        Some(scan.units)
    }

    fn go_on(&mut self, grounds: &mut dyn Grounds, now: Now) -> Vec<TaskId> {
        let mut sent = Vec::new();
        let mut parts = PARTS_PER_STEP;
        while !self.pass.ended && self.active.len() < self.request.max_concurrency as usize {
            if let Some(unit) = self.waiting.pop_front() {
                sent.extend(self.try_unit(unit, grounds, now));
                continue;
            }
            if parts == 0 {
                return sent;
            }
            parts -= 1;
            match self.scan_part(grounds) {
                Some(units) => self.waiting.extend(units),
                None => self.pass.ended = true,
            }
        }
        if self.pass.ended && self.active.is_empty() {
            self.end_pass(grounds, now);
        }
        sent
    }

    fn try_unit(&mut self, unit: Unit, grounds: &mut dyn Grounds, now: Now) -> Option<TaskId> {
        if self.failures.get(&unit.name).is_some_and(|&times| times >= TRIES) {
            self.pass.met += 1;
            self.pass.given_up += 1;
            return None;
        }
        let placing = match unit.obstacle {
            Some(obstacle) => Placing::Blocked(obstacle),
            None => grounds.send(self.id, &unit, &self.request),
        };
        match placing {
            Placing::Gone => return None,
            Placing::Dropped => {
                self.succeeded += 1;
                self.moved_on(now);
            }
            Placing::Task(task) => {
                self.pass.sent += 1;
                self.active.insert(task, unit);
                self.pass.met += 1;
                self.updated_ms = now.epoch_ms;
                return Some(task);
            }
            Placing::Blocked(obstacle) => {
                self.pass.blocked += 1;
                self.pass.no_room += u64::from(obstacle == Obstacle::NoRoom);
                self.blocked = self.blocked.max(self.pass.blocked);
            }
        }
        self.pass.met += 1;
        None
    }

    fn moved_on(&mut self, now: Now) {
        self.left = self.left.saturating_sub(1);
        self.progress = now.mono;
        self.updated_ms = now.epoch_ms;
    }

    fn task_ended(&mut self, ended: &Ended, now: Now) {
        let Some(unit) = self.active.remove(&ended.id) else { return };
        if ended.success {
            self.succeeded += 1;
            self.migrated += unit.size;
            self.failures.remove(&unit.name);
            self.moved_on(now);
        } else {
            self.last_error.clone_from(&ended.message);
            *self.failures.entry(unit.name).or_default() += 1;
            self.updated_ms = now.epoch_ms;
        }
    }

    /// Everything was looked at once, and nothing is under way.
    fn end_pass(&mut self, grounds: &mut dyn Grounds, now: Now) {
        let pass = std::mem::take(&mut self.pass);
        self.blocked = pass.blocked;
        if pass.sent == 0 {
            self.left = pass.met;
        }
        if pass.met == 0 {
            return self.end(JobStatus::Succeeded, "Drain job finished successfully".to_owned(), grounds, now);
        }
        if pass.met == pass.given_up {
            let message = format!(
                "Drain job failed: unrecoverable units remain ({} objects failed {TRIES} times; last: {})",
                pass.given_up, self.last_error
            );
            return self.end(JobStatus::Failed, message, grounds, now);
        }
        let idle = now.mono.since(self.progress);
        if pass.no_room > 0 && idle >= NO_ROOM || idle >= STALLED {
            let message = format!(
                "Drain job failed: unrecoverable units remain (nothing could be moved for {} s: {} objects find no room on an \
                 allowed segment, {} are being written or copied, {} failed)",
                idle.as_secs(),
                pass.no_room,
                pass.blocked - pass.no_room,
                pass.given_up
            );
            return self.end(JobStatus::Failed, message, grounds, now);
        }
        if pass.sent == 0 {
            self.not_before = now.mono + PAUSE;
        }
    }

    fn set_status(&mut self, status: JobStatus, message: &str, now: Now) {
        (self.status, self.updated_ms) = (status, now.epoch_ms);
        message.clone_into(&mut self.message);
    }

    fn end(&mut self, status: JobStatus, message: String, grounds: &mut dyn Grounds, now: Now) {
        let then = if status == JobStatus::Succeeded { SegmentStatus::DRAINED } else { SegmentStatus::OK };
        for segment in &self.request.segments {
            grounds.set_status(segment, then);
        }
        for task in self.active.keys() {
            grounds.withdraw(*task);
        }
        self.active.clear();
        self.waiting.clear();
        self.set_status(status, &message, now);
    }
}
