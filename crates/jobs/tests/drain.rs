//! Drain jobs on a pool in memory: every way a job can end, and what it costs.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use yb_jobs::{
    CancelRefusal, CreateRefusal, Cursor, DrainJobs, DrainReport, DrainRequest, Ended, Grounds, JobId, JobStatus,
    Lookout, MoveWork, Now, Obstacle, Placing, Purpose, Scan, TaskId, Unit, UnitName, Work,
};
use yb_types::{ClientId, MonotonicTime, SegmentStatus, Uuid};

/// What the pool holds: keys of each segment, and what is in the way of some.
#[derive(Default)]
struct Pool {
    segments: BTreeMap<String, (SegmentStatus, BTreeSet<String>)>,
    obstacles: BTreeMap<String, Obstacle>,
    hot: BTreeSet<String>,
    safe: BTreeSet<String>,
    no_room: bool,
    /// Of each object.
    size: u64,
    /// Keys in the order in which they were sent.
    sent: Vec<String>,
    tasks: BTreeMap<TaskId, (String, String)>,
    fetched: BTreeSet<TaskId>,
    next_task: u64,
    scanned: usize,
    /// What lies there is not known yet.
    unread: bool,
}

impl Pool {
    fn new(segments: &[(&str, usize)]) -> Pool {
        let with = |(name, count): &(&str, usize)| {
            let keys = (0..*count).map(|n| format!("{name}-{n}")).collect();
            ((*name).to_owned(), (SegmentStatus::OK, keys))
        };
        Pool { segments: segments.iter().map(with).collect(), size: 100, ..Pool::default() }
    }

    fn status(&self, name: &str) -> SegmentStatus {
        self.segments[name].0
    }

    fn left(&self, name: &str) -> usize {
        self.segments[name].1.len()
    }

    /// Ends every task that is open.
    fn work(&mut self, success: bool) -> Vec<Ended> {
        let tasks = std::mem::take(&mut self.tasks);
        let ended = tasks.into_iter().map(|(id, (segment, key))| {
            if success {
                self.segments.get_mut(&segment).unwrap().1.remove(&key);
            }
            let work = MoveWork {
                tenant: "default".into(),
                key: key.into_bytes().into(),
                source: segment,
                target: "t".into(),
            };
            let message = if success { "" } else { "no route" }.to_owned();
            Ended { id, purpose: Purpose::Asked(None), work: Work::Move(work), success, message }
        });
        ended.collect()
    }
}

const PART: usize = 10;

impl Grounds for Pool {
    fn look(&mut self, segment: &str) -> Option<Lookout> {
        self.segments.get(segment).map(|(status, _)| Lookout { status: *status, members: 1, known: !self.unread })
    }

    fn set_status(&mut self, segment: &str, status: SegmentStatus) {
        if let Some(place) = self.segments.get_mut(segment) {
            place.0 = status;
        }
    }

    fn scan(&mut self, segment: &str, from: Cursor) -> Scan {
        let keys = &self.segments[segment].1;
        let part: Vec<&String> = keys.iter().skip(from.0 as usize).take(PART).collect();
        self.scanned += part.len();
        let units = part.iter().map(|key| Unit {
            name: UnitName { segment: segment.into(), tenant: "default".into(), key: key.as_bytes().into() },
            size: self.size,
            obstacle: self.obstacles.get(*key).copied(),
            hot: self.hot.contains(*key),
            safe: self.safe.contains(*key),
        });
        Scan { units: units.collect(), next: (part.len() == PART).then_some(Cursor(from.0 + PART as u64)) }
    }

    fn largest_target(&mut self, request: &DrainRequest) -> u64 {
        let is_target = |name: &String| {
            !request.segments.contains(name) && (request.targets.is_empty() || request.targets.contains(name))
        };
        let in_service =
            |(name, (status, _)): (&String, &(SegmentStatus, _))| *status == SegmentStatus::OK && is_target(name);
        if self.segments.iter().any(in_service) { 1000 } else { 0 }
    }

    fn send(&mut self, _: JobId, unit: &Unit, _: &DrainRequest) -> Placing {
        let key = String::from_utf8(unit.name.key.to_vec()).unwrap();
        if !self.segments[&unit.name.segment].1.contains(&key) {
            return Placing::Gone;
        }
        if self.no_room {
            return Placing::Blocked(Obstacle::NoRoom);
        }
        self.sent.push(key.clone());
        self.next_task += 1;
        let task = TaskId(Uuid { first: self.next_task, second: 0 });
        self.tasks.insert(task, (unit.name.segment.clone(), key));
        Placing::Task(task)
    }

    fn withdraw(&mut self, task: TaskId) -> bool {
        !self.fetched.contains(&task) && self.tasks.remove(&task).is_some()
    }
}

fn at(ms: u64) -> Now {
    Now { mono: MonotonicTime(0) + Duration::from_millis(ms), epoch_ms: ms }
}

const JOB: JobId = JobId(Uuid { first: 1, second: 1 });

fn request(segments: &[&str], max_concurrency: u32) -> DrainRequest {
    let segments = segments.iter().map(|s| (*s).to_owned()).collect();
    DrainRequest { segments, max_concurrency, ..DrainRequest::default() }
}

fn start(pool: &mut Pool, segments: &[&str]) -> DrainJobs {
    let mut jobs = DrainJobs::default();
    jobs.create(JOB, request(segments, 4), pool, at(0)).expect("valid");
    jobs
}

/// Steps every 500 ms, and lets clients work in between, until the job ends.
fn run(jobs: &mut DrainJobs, pool: &mut Pool, until_ms: u64, success: impl Fn(u64) -> bool) -> DrainReport {
    let mut ms = 500;
    while ms < until_ms {
        jobs.step(pool, at(ms));
        let report = jobs.query(JOB).expect("known");
        assert!(report.active_units <= 4);
        if report.status.is_terminal() {
            return report;
        }
        for ended in pool.work(success(ms)) {
            jobs.task_ended(&ended, at(ms));
        }
        ms += 500;
    }
    jobs.query(JOB).expect("known")
}

#[test]
fn all_objects_are_moved_and_the_segments_are_drained() {
    let mut pool = Pool::new(&[("a", 33), ("b", 7), ("t", 3)]);
    let mut jobs = start(&mut pool, &["a", "b"]);
    assert_eq!(jobs.query(JOB).unwrap().status, JobStatus::Created);
    assert_eq!((pool.status("a"), pool.status("t")), (SegmentStatus::DRAINING, SegmentStatus::OK));
    let report = run(&mut jobs, &mut pool, 60_000, |_| true);
    assert_eq!((report.status, report.message.as_str()), (JobStatus::Succeeded, "Drain job finished successfully"));
    assert_eq!((report.succeeded_units, report.migrated_bytes, report.left_units), (40, 4000, 0));
    assert_eq!((pool.status("a"), pool.status("b")), (SegmentStatus::DRAINED, SegmentStatus::DRAINED));
    assert!(jobs.is_idle());
    // Counted, moved, and a look or two at what is left: not once for each step.
    assert!(pool.scanned < 4 * 40, "{} units looked at", pool.scanned);
}

#[test]
fn what_is_not_known_yet_is_not_taken_for_empty() {
    let mut pool = Pool::new(&[("a", 0), ("b", 0)]);
    pool.unread = true;
    let mut jobs = start(&mut pool, &["a"]);
    assert!(!run(&mut jobs, &mut pool, 5000, |_| true).status.is_terminal());
    assert_eq!(pool.status("a"), SegmentStatus::DRAINING);
    let read = Pool::new(&[("a", 3), ("b", 0)]);
    pool.segments = read.segments;
    pool.segments.get_mut("a").unwrap().0 = SegmentStatus::DRAINING;
    pool.unread = false;
    assert_eq!(run(&mut jobs, &mut pool, 60_000, |_| true).succeeded_units, 3);
    assert_eq!(pool.status("a"), SegmentStatus::DRAINED);
}

#[test]
fn a_unit_that_fails_three_times_ends_the_job_and_the_segment_is_used_again() {
    let mut pool = Pool::new(&[("a", 3), ("t", 0)]);
    let mut jobs = start(&mut pool, &["a"]);
    let report = run(&mut jobs, &mut pool, 60_000, |_| false);
    assert_eq!((report.status, report.failed_units, report.succeeded_units), (JobStatus::Failed, 3, 0));
    assert!(
        report.message.starts_with("Drain job failed: unrecoverable units remain")
            && report.message.contains("no route")
    );
    assert_eq!((pool.status("a"), pool.left("a")), (SegmentStatus::OK, 3));
}

#[test]
fn a_failure_now_and_then_does_not_matter() {
    let mut pool = Pool::new(&[("a", 20), ("t", 0)]);
    let mut jobs = start(&mut pool, &["a"]);
    let report = run(&mut jobs, &mut pool, 60_000, |ms| ms % 1500 != 0);
    assert_eq!((report.status, report.succeeded_units, pool.left("a")), (JobStatus::Succeeded, 20, 0));
}

#[test]
fn losing_the_segment_is_no_success() {
    let mut pool = Pool::new(&[("a", 20), ("t", 0)]);
    let mut jobs = start(&mut pool, &["a"]);
    let _ = run(&mut jobs, &mut pool, 2000, |_| true);
    let left = pool.left("a");
    assert!(left > 0 && left < 20);
    pool.segments.remove("a");
    let report = run(&mut jobs, &mut pool, 60_000, |_| true);
    assert_eq!((report.status, report.left_units), (JobStatus::Failed, left as u64));
    assert!(report.message.contains(&format!("of its objects {left} were not moved")), "{}", report.message);
    // Also when it came back meanwhile.
    let mut pool = Pool::new(&[("a", 20), ("t", 0)]);
    let mut jobs = start(&mut pool, &["a"]);
    let _ = run(&mut jobs, &mut pool, 2000, |_| true);
    pool.set_status("a", SegmentStatus::OK);
    assert_eq!(run(&mut jobs, &mut pool, 60_000, |_| true).status, JobStatus::Failed);
}

#[test]
fn what_is_in_the_way_is_waited_for() {
    let mut pool = Pool::new(&[("a", 5), ("t", 0)]);
    pool.obstacles.insert("a-1".into(), Obstacle::Unfinished);
    pool.obstacles.insert("a-2".into(), Obstacle::Busy);
    let mut jobs = start(&mut pool, &["a"]);
    let report = run(&mut jobs, &mut pool, 30_000, |_| true);
    assert_eq!((report.status, report.blocked_units, report.succeeded_units), (JobStatus::Running, 2, 3));
    pool.obstacles.clear();
    let mut ms = 30_000;
    while !jobs.is_idle() {
        ms += 500;
        jobs.step(&mut pool, at(ms));
        for ended in pool.work(true) {
            jobs.task_ended(&ended, at(ms));
        }
        assert!(ms < 40_000);
    }
    assert_eq!(jobs.query(JOB).unwrap().status, JobStatus::Succeeded);
}

#[test]
fn a_job_without_room_gives_up_and_says_so() {
    let mut pool = Pool::new(&[("a", 5), ("t", 0)]);
    pool.no_room = true;
    let mut jobs = start(&mut pool, &["a"]);
    let report = run(&mut jobs, &mut pool, 120_000, |_| true);
    assert_eq!((report.status, report.blocked_units), (JobStatus::Failed, 5));
    assert!(report.message.contains("5 objects find no room"), "{}", report.message);
    assert!(report.updated_ms >= 60_000 && pool.status("a") == SegmentStatus::OK);
}

#[test]
fn a_job_without_a_target_fails_at_once_and_says_why() {
    let mut pool = Pool::new(&[("a", 5)]);
    let mut jobs = start(&mut pool, &["a"]);
    let report = run(&mut jobs, &mut pool, 1_100, |_| true);
    assert_eq!((report.status, report.left_units, pool.status("a")), (JobStatus::Failed, 5, SegmentStatus::OK));
    assert!(
        report.message.contains("5 objects have nowhere to go: no other segment is in service"),
        "{}",
        report.message
    );
    // Nothing has to go anywhere.
    let mut pool = Pool::new(&[("a", 0)]);
    let mut jobs = start(&mut pool, &["a"]);
    assert_eq!(run(&mut jobs, &mut pool, 1_100, |_| true).status, JobStatus::Succeeded);
    // The last target goes while the job runs.
    let mut pool = Pool::new(&[("a", 20), ("t", 0)]);
    let mut jobs = start(&mut pool, &["a"]);
    let _ = run(&mut jobs, &mut pool, 1_100, |_| true);
    pool.segments.remove("t");
    pool.no_room = true;
    let report = run(&mut jobs, &mut pool, 3_000, |_| true);
    assert!(report.status == JobStatus::Failed && report.message.contains("nowhere to go"), "{}", report.message);
}

#[test]
fn what_is_larger_than_every_target_is_not_waited_for() {
    let mut pool = Pool::new(&[("a", 5), ("t", 0)]);
    (pool.no_room, pool.size) = (true, 2000);
    let mut jobs = start(&mut pool, &["a"]);
    let report = run(&mut jobs, &mut pool, 2_100, |_| true);
    assert_eq!(report.status, JobStatus::Failed, "{}", report.message);
    assert!(report.message.contains("5 objects are larger than every allowed segment"), "{}", report.message);
}

#[test]
fn a_job_ends_when_its_time_is_over() {
    let mut pool = Pool::new(&[("a", 5), ("t", 0)]);
    pool.obstacles.insert("a-1".into(), Obstacle::Busy);
    let mut jobs = DrainJobs::default();
    let within = Some(Duration::from_secs(3));
    jobs.create(JOB, DrainRequest { within, ..request(&["a"], 4) }, &mut pool, at(0)).unwrap();
    let report = run(&mut jobs, &mut pool, 10_000, |_| true);
    assert_eq!((report.status, report.updated_ms, report.left_units), (JobStatus::Failed, 3000, 1));
    assert!(report.message.contains("its time of 3 s is over; 1 objects were not moved"), "{}", report.message);
    assert_eq!(pool.status("a"), SegmentStatus::OK);
}

/// Steps every 50 ms, and lets clients work in between, until the job ends.
fn leave(jobs: &mut DrainJobs, pool: &mut Pool, request: &DrainRequest) -> DrainReport {
    for ms in (0..20_000).step_by(50) {
        let report = jobs.leave(JOB, request.clone(), pool, at(ms)).unwrap();
        if report.status.is_terminal() {
            return report;
        }
        jobs.step(pool, at(ms));
        for ended in pool.work(true) {
            jobs.task_ended(&ended, at(ms));
        }
    }
    panic!("it does not end: {:?}", jobs.query(JOB));
}

fn leaving(segments: &[&str]) -> DrainRequest {
    let leaver = Some(ClientId(Uuid { first: 7, second: 7 }));
    DrainRequest { leaver, within: Some(Duration::from_secs(3)), ..request(segments, 4) }
}

#[test]
fn who_leaves_has_what_is_read_moved_first_and_what_is_elsewhere_not_at_all() {
    let mut pool = Pool::new(&[("a", 30), ("t", 0)]);
    pool.hot = ["a-29", "a-17", "a-3"].map(String::from).into();
    pool.safe = ["a-3", "a-4", "a-5"].map(String::from).into();
    let mut jobs = DrainJobs::default();
    let report = leave(&mut jobs, &mut pool, &leaving(&["a"]));
    assert_eq!((report.status, report.succeeded_units, pool.left("a")), (JobStatus::Succeeded, 27, 3));
    assert!(report.message.contains("3 objects have other replicas") && report.updated_ms < 1000, "{report:?}");
    assert_eq!(pool.sent[..2], ["a-17", "a-29"]);
    assert_eq!(pool.status("a"), SegmentStatus::DRAINED);
}

#[test]
fn who_leaves_does_not_wait_for_room_and_takes_nothing_afterwards() {
    let mut pool = Pool::new(&[("a", 5), ("t", 0)]);
    pool.no_room = true;
    let mut jobs = DrainJobs::default();
    let report = leave(&mut jobs, &mut pool, &leaving(&["a"]));
    assert_eq!((report.status, pool.status("a")), (JobStatus::Failed, SegmentStatus::DRAINING));
    assert!(report.updated_ms < 500 && report.message.contains("5 objects find no room"), "{report:?}");
    // It is still here after all.
    assert_eq!((jobs.undo("a", &mut pool), pool.status("a")), (Ok(()), SegmentStatus::OK));
    let draining = start(&mut pool, &["a"]);
    assert_eq!(draining.undo("a", &mut pool), Err(CreateRefusal::NotOk), "that one is to be called off");
    let mut alone = Pool::new(&[("a", 5)]);
    let report = leave(&mut DrainJobs::default(), &mut alone, &leaving(&["a"]));
    assert!(report.updated_ms < 500 && report.message.contains("nowhere to go"), "{report:?}");
}

#[test]
fn who_leaves_while_an_operator_drains_it_waits_for_that_job() {
    let mut pool = Pool::new(&[("a", 9), ("t", 0)]);
    let mut jobs = start(&mut pool, &["a"]);
    let report = jobs.leave(JobId(Uuid { first: 3, second: 3 }), leaving(&["a"]), &mut pool, at(10)).unwrap();
    assert_eq!((report.id, jobs.list().len()), (JOB, 1));
    assert_eq!(leave(&mut jobs, &mut pool, &leaving(&["a"])).status, JobStatus::Succeeded);
}

#[test]
fn a_drain_that_goes_on_after_a_restart_waits_for_the_others_to_come_back() {
    let mut pool = Pool::new(&[("a", 5)]);
    pool.set_status("a", SegmentStatus::DRAINING);
    pool.no_room = true;
    let mut jobs = DrainJobs::default();
    jobs.resume(JOB, request(&["nowhere"], 4), &mut pool, at(0));
    assert!(jobs.is_idle());
    jobs.resume(JOB, request(&["a"], 4), &mut pool, at(0));
    assert_eq!(run(&mut jobs, &mut pool, 20_000, |_| true).status, JobStatus::Running);
    pool.segments.insert("t".into(), (SegmentStatus::OK, BTreeSet::new()));
    pool.no_room = false;
    let mut ms = 20_000;
    while !jobs.is_idle() {
        ms += 500;
        jobs.step(&mut pool, at(ms));
        pool.work(true).iter().for_each(|ended| jobs.task_ended(ended, at(ms)));
        assert!(ms < 25_000);
    }
    assert_eq!(pool.status("a"), SegmentStatus::DRAINED);
}

#[test]
fn nothing_blocks_for_ever() {
    let mut pool = Pool::new(&[("a", 1), ("t", 0)]);
    pool.obstacles.insert("a-0".into(), Obstacle::Busy);
    let mut jobs = start(&mut pool, &["a"]);
    assert_eq!(run(&mut jobs, &mut pool, 2_000_000, |_| true).status, JobStatus::Failed);
}

#[test]
fn cancel_takes_back_what_nobody_fetched_and_waits_for_the_rest() {
    let mut pool = Pool::new(&[("a", 20), ("t", 0)]);
    let mut jobs = start(&mut pool, &["a"]);
    jobs.step(&mut pool, at(500));
    jobs.step(&mut pool, at(1000));
    let first = *pool.tasks.keys().next().unwrap();
    pool.fetched.insert(first);
    assert_eq!(jobs.cancel(JOB, &mut pool, at(1100)), Err(CancelRefusal::Active));
    assert_eq!((jobs.query(JOB).unwrap().active_units, pool.tasks.len()), (1, 1));
    for ended in pool.work(true) {
        jobs.task_ended(&ended, at(1200));
    }
    jobs.step(&mut pool, at(1500));
    assert!(pool.tasks.is_empty(), "no new moves after a refused cancel");
    assert_eq!(jobs.cancel(JOB, &mut pool, at(1600)), Ok(()));
    let report = jobs.query(JOB).unwrap();
    assert_eq!((report.status, report.message.as_str()), (JobStatus::Canceled, "Drain job canceled"));
    assert_eq!((pool.status("a"), pool.left("a")), (SegmentStatus::OK, 19));
    assert_eq!(jobs.cancel(JOB, &mut pool, at(1700)), Err(CancelRefusal::Terminal));
    assert_eq!(jobs.cancel(JobId::default(), &mut pool, at(1700)), Err(CancelRefusal::Unknown));
}

#[test]
fn what_cannot_be_drained_is_refused() {
    let mut pool = Pool::new(&[("a", 1), ("b", 1), ("t", 0)]);
    let mut jobs = DrainJobs::default();
    let mut create = |segments: &[&str], targets: &[&str], concurrency| {
        let request = DrainRequest {
            targets: targets.iter().map(|t| (*t).to_owned()).collect(),
            ..request(segments, concurrency)
        };
        jobs.create(JobId(Uuid { first: 9, second: concurrency.into() }), request, &mut pool, at(0))
    };
    assert_eq!(create(&[], &[], 4), Err(CreateRefusal::Params));
    assert_eq!(create(&["a", "a"], &[], 4), Err(CreateRefusal::Params));
    assert_eq!(create(&["a"], &[], 0), Err(CreateRefusal::Params));
    assert_eq!(create(&["a"], &["a"], 4), Err(CreateRefusal::Params));
    assert_eq!(create(&["nowhere"], &[], 4), Err(CreateRefusal::NotFound));
    assert_eq!(create(&["a"], &["nowhere"], 4), Err(CreateRefusal::NotFound));
    assert_eq!(create(&["a"], &["t"], 4), Ok(()));
    assert_eq!(create(&["a"], &[], 4), Err(CreateRefusal::NotOk));
    assert_eq!(create(&["b"], &["a"], 4), Err(CreateRefusal::NotOk));
}

#[test]
fn old_jobs_are_forgotten() {
    let mut pool = Pool::new(&[("a", 0), ("t", 0)]);
    let mut jobs = DrainJobs::default();
    for number in 0..1010 {
        let id = JobId(Uuid { first: number, second: 0 });
        pool.set_status("a", SegmentStatus::OK);
        jobs.create(id, request(&["a"], 4), &mut pool, at(number)).unwrap();
        for step in 1..5 {
            jobs.step(&mut pool, at(number + step));
        }
        assert_eq!(jobs.query(id).unwrap().status, JobStatus::Succeeded);
    }
    assert_eq!(jobs.list().len(), 1000);
    assert!(jobs.query(JobId(Uuid { first: 9, second: 0 })).is_none());
}
