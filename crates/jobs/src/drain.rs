//! Drain jobs: emptying segments by having their objects moved.
//!
//! A job goes over its segments in passes, from extent to extent, and stops wherever as many moves are under way as it may
//! have. A pass that met nothing is the proof that the segments are empty.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use yb_types::{ClientId, ErrorCode, MonotonicTime, SegmentStatus};

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
    /// The job ends after this time, done or not; `None`: it takes as long as it takes.
    pub within: Option<Duration>,
    /// A client that is about to end asks for it: see [`DrainJobs::leave`].
    pub leaver: Option<ClientId>,
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
    /// Those of them that were dropped: they have other replicas.
    pub dropped_units: u64,
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

/// Time that nodes have to come back to a master that was restarted.
const COMING_BACK: Duration = Duration::from_secs(60);
/// Times a unit may fail.
const TRIES: u8 = 3;
/// Between two passes of which the first moved nothing.
const PAUSE: Duration = Duration::from_millis(500);
/// The same, for a client that is about to end.
const SHORT_PAUSE: Duration = Duration::from_millis(50);
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
    /// Larger than every allowed segment.
    too_large: u64,
    given_up: u64,
    /// Stay where they are: another replica is elsewhere.
    safe: u64,
    /// Passed over: others come first.
    cold: u64,
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
    dropped: u64,
    blocked: u64,
    left: u64,
    migrated: u64,
    active: BTreeMap<TaskId, Unit>,
    /// Failures of units that failed.
    failures: BTreeMap<UnitName, u8>,
    last_error: String,
    pass: Pass,
    /// Objects that were not read for a while are passed over: those that are read come first.
    hot_only: bool,
    /// Bytes of the largest allowed segment, looked at with each pass.
    largest_target: u64,
    /// Met and not looked at yet.
    waiting: VecDeque<Unit>,
    not_before: MonotonicTime,
    progress: MonotonicTime,
    until: Option<MonotonicTime>,
    /// There is more to look at than one step does.
    hurried: bool,
    /// Segments that are not there by now are not waited for.
    settled: MonotonicTime,
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
        self.begin(id, request, members, now);
        Ok(())
    }

    /// Goes on with segments that came back `DRAINING` after a restart of the master; others are passed over.
    pub fn resume(&mut self, id: JobId, request: DrainRequest, grounds: &mut dyn Grounds, now: Now) {
        let mut look = |segment: &String| grounds.look(segment).filter(|look| look.status == SegmentStatus::DRAINING);
        let members: Option<Vec<u32>> = request.segments.iter().map(|name| Some(look(name)?.members)).collect();
        if let Some(members) = members {
            self.begin(id, request, members, now);
            if let Some(job) = self.jobs.get_mut(&id) {
                job.settled = now.mono + COMING_BACK;
            }
        }
    }

    fn begin(&mut self, id: JobId, request: DrainRequest, members: Vec<u32>, now: Now) {
        let job = DrainJob {
            id,
            hot_only: request.leaver.is_some(),
            until: request.within.map(|within| now.mono + within),
            request,
            members,
            status: JobStatus::Created,
            created_ms: now.epoch_ms,
            updated_ms: now.epoch_ms,
            message: "Drain job created".to_owned(),
            succeeded: 0,
            dropped: 0,
            blocked: 0,
            left: 0,
            migrated: 0,
            active: BTreeMap::new(),
            failures: BTreeMap::new(),
            last_error: String::new(),
            pass: Pass::default(),
            largest_target: 0,
            waiting: VecDeque::new(),
            not_before: now.mono,
            progress: now.mono,
            hurried: true,
            settled: now.mono,
        };
        self.jobs.insert(id, job);
        self.running.insert(id);
    }

    /// Lets a client leave that asks for it again and again: the first time a job begins that has its segments emptied as far
    /// as its time allows. Objects with another replica stay where they are, and those that are read come first. The
    /// segments do not take objects again afterwards, however it ends. How it stands, or that of the job of an operator that
    /// empties one of them already.
    ///
    /// # Errors
    /// [`CreateRefusal`]; nothing changed then.
    pub fn leave(
        &mut self,
        id: JobId,
        request: DrainRequest,
        grounds: &mut dyn Grounds,
        now: Now,
    ) -> Result<DrainReport, CreateRefusal> {
        let is_own = |job: &&DrainJob| job.request.leaver.is_some() && job.request.leaver == request.leaver;
        let is_drained = |name: &String| grounds.look(name).is_some_and(|look| look.status == SegmentStatus::DRAINED);
        let drained = request.segments.iter().all(is_drained);
        let meets = |job: &&DrainJob| job.request.segments.iter().any(|name| request.segments.contains(name));
        let counts = |job: &&DrainJob| is_own(job) || !job.status.is_terminal() || drained;
        let found = self.jobs.values().filter(meets).filter(counts).max_by_key(|job| (job.created_ms, job.id));
        if let Some(job) = found {
            return Ok(job.report());
        }
        self.create(id, request, grounds, now)?;
        self.query(id).ok_or(CreateRefusal::NotFound)
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

    /// Lets a segment that was drained take objects again, or one that its client wanted to leave with and that is still here.
    ///
    /// # Errors
    /// [`CreateRefusal::NotFound`]; [`CreateRefusal::NotOk`] for one that is neither DRAINED nor left DRAINING by a job that ended.
    pub fn undo(&self, segment: &str, grounds: &mut dyn Grounds) -> Result<(), CreateRefusal> {
        let mut running = self.running.iter().filter_map(|id| self.jobs.get(id));
        let is_emptied = running.any(|job| job.request.segments.iter().any(|name| name == segment));
        match grounds.look(segment).ok_or(CreateRefusal::NotFound)?.status {
            SegmentStatus::DRAINED | SegmentStatus::DRAINING if !is_emptied => {
                grounds.set_status(segment, SegmentStatus::OK);
                Ok(())
            }
            _ => Err(CreateRefusal::NotOk),
        }
    }

    /// Whether any job is under way.
    pub fn is_idle(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether a job has more to look at: it is to be called again at once.
    pub fn is_hurried(&self) -> bool {
        self.running.iter().filter_map(|id| self.jobs.get(id)).any(|job| job.hurried)
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
            dropped_units: self.dropped,
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
        self.hurried = false;
        if self.until.is_some_and(|until| now.mono >= until) {
            self.end_late(grounds, now);
            return Vec::new();
        }
        if !self.request.segments.iter().all(|segment| grounds.look(segment).is_some_and(|look| look.known)) {
            return Vec::new();
        }
        if self.status == JobStatus::Created {
            self.set_status(JobStatus::Planning, "Drain job planning", now);
        }
        if self.status == JobStatus::Planning {
            self.plan(grounds, now);
        }
        if self.status != JobStatus::Running || now.mono < self.not_before {
            return Vec::new();
        }
        self.go_on(grounds, now)
    }

    fn end_late(&mut self, grounds: &mut dyn Grounds, now: Now) {
        let seconds = self.request.within.unwrap_or_default().as_secs_f64();
        let message =
            format!("Drain job failed: its time of {seconds} s is over; {} objects were not moved", self.left);
        self.end(JobStatus::Failed, message, grounds, now);
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

    /// Counts what there is, and sees whether it can go anywhere.
    fn plan(&mut self, grounds: &mut dyn Grounds, now: Now) {
        self.largest_target = grounds.largest_target(&self.request);
        for _ in 0..PARTS_PER_STEP {
            match self.scan_part(grounds) {
                Some(units) => self.left += units.len() as u64,
                None => {
                    self.pass = Pass::default();
                    self.progress = now.mono;
                    self.set_status(JobStatus::Running, "Drain job running", now);
                    break;
                }
            }
        }
        self.hurried = self.status == JobStatus::Planning;
        if self.left > 0 && self.largest_target == 0 && !self.hurried && now.mono >= self.settled {
            self.end_without_target(grounds, now);
        }
    }

    fn end_without_target(&mut self, grounds: &mut dyn Grounds, now: Now) {
        let whose = if self.request.targets.is_empty() { "no other segment" } else { "none of the allowed segments" };
        let message = format!(
            "Drain job failed: unrecoverable units remain ({} objects have nowhere to go: {whose} is in service)",
            self.left
        );
        self.end(JobStatus::Failed, message, grounds, now);
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
        while !self.status.is_terminal() && now.mono >= self.not_before {
            if !self.fill(&mut parts, &mut sent, grounds, now) {
                break;
            }
            self.end_pass(grounds, now);
        }
        sent
    }

    /// Has as many units moved as may be under way; answers whether the pass has ended.
    fn fill(&mut self, parts: &mut u32, sent: &mut Vec<TaskId>, grounds: &mut dyn Grounds, now: Now) -> bool {
        while !self.pass.ended && self.active.len() < self.request.max_concurrency as usize {
            if let Some(unit) = self.waiting.pop_front() {
                sent.extend(self.try_unit(unit, grounds, now));
                continue;
            }
            if *parts == 0 {
                self.hurried = true;
                return false;
            }
            *parts -= 1;
            match self.scan_part(grounds) {
                Some(units) => self.waiting.extend(units),
                None => self.pass.ended = true,
            }
        }
        self.pass.ended && self.active.is_empty()
    }

    fn try_unit(&mut self, unit: Unit, grounds: &mut dyn Grounds, now: Now) -> Option<TaskId> {
        if self.request.leaver.is_some() {
            let passed_over = if unit.safe { Some(&mut self.pass.safe) } else { None };
            let passed_over = passed_over.or(if self.hot_only && !unit.hot { Some(&mut self.pass.cold) } else { None });
            if let Some(count) = passed_over {
                *count += 1;
                self.pass.met += 1;
                return None;
            }
        }
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
                self.dropped += 1;
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
                let is_too_large = obstacle == Obstacle::NoRoom && unit.size > self.largest_target;
                self.pass.too_large += u64::from(is_too_large);
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
        self.largest_target = grounds.largest_target(&self.request);
        if pass.sent == 0 {
            self.left = pass.met;
        }
        if pass.met == pass.safe {
            let message = match pass.safe {
                0 => "Drain job finished successfully".to_owned(),
                safe => format!("Drain job finished successfully; {safe} objects have other replicas"),
            };
            return self.end(JobStatus::Succeeded, message, grounds, now);
        }
        if self.hot_only {
            // What is read was looked at: now the others.
            self.hot_only = pass.sent > 0;
            return;
        }
        let is_settled = now.mono >= self.settled;
        if pass.sent == 0 && self.largest_target == 0 && pass.no_room > 0 && is_settled {
            return self.end_without_target(grounds, now);
        }
        if let Some(why) = self.why_no_more(&pass, now) {
            let message = format!("Drain job failed: unrecoverable units remain ({why})");
            return self.end(JobStatus::Failed, message, grounds, now);
        }
        if pass.no_room > 0 && pass.sent == 0 {
            self.message = format!("Drain job running: {} objects find no room on an allowed segment", pass.no_room);
        }
        if pass.sent == 0 {
            self.not_before = now.mono + if self.request.leaver.is_some() { SHORT_PAUSE } else { PAUSE };
        }
    }

    /// Why nothing more will be moved, after a pass; `None`: something may.
    fn why_no_more(&self, pass: &Pass, now: Now) -> Option<String> {
        let stays = pass.met - pass.safe;
        let (given_up, too_large, last) = (pass.given_up, pass.too_large, &self.last_error);
        if stays == given_up {
            return Some(format!("{given_up} objects failed {TRIES} times; last: {last}"));
        }
        if stays == given_up + too_large && now.mono >= self.settled {
            let largest = self.largest_target;
            return Some(format!(
                "{too_large} objects are larger than every allowed segment, of which the largest has {largest} bytes; \
                 {given_up} failed"
            ));
        }
        let idle = now.mono.since(self.progress);
        let patience = if self.request.leaver.is_some() { Duration::ZERO } else { NO_ROOM };
        let is_full = pass.no_room > 0 && pass.sent == 0 && idle >= patience;
        (is_full || idle >= STALLED).then(|| {
            format!(
                "nothing could be moved for {} s: {} objects find no room on an allowed segment, {} are being written or \
                 copied, {given_up} failed",
                idle.as_secs(),
                pass.no_room,
                pass.blocked - pass.no_room,
            )
        })
    }

    fn set_status(&mut self, status: JobStatus, message: &str, now: Now) {
        (self.status, self.updated_ms) = (status, now.epoch_ms);
        message.clone_into(&mut self.message);
    }

    fn end(&mut self, status: JobStatus, message: String, grounds: &mut dyn Grounds, now: Now) {
        let then = match status {
            JobStatus::Succeeded => Some(SegmentStatus::DRAINED),
            // Who leaves takes nothing more.
            _ if self.request.leaver.is_some() => None,
            _ => Some(SegmentStatus::OK),
        };
        for (segment, then) in self.request.segments.iter().filter_map(|segment| Some((segment, then?))) {
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
