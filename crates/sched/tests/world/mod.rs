//! Rails made of numbers, a driver, and the rules that must hold.

mod checker;
mod scenario;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use checker::Checker;
pub use scenario::{Random, Scenario};
use yb_sched::{
    Completion, Effect, End, Failure, Fault, Finished, Post, RailEvent, RailId, RailScheduler, RailState, RailView,
    SliceId, TransferId,
};
use yb_types::MonotonicTime;

/// What came of one or many runs.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub slices: u64,
    pub completed: u64,
    pub failed: u64,
    pub refused: u64,
    pub no_rail: u64,
    pub too_many_attempts: u64,
    pub timed_out: u64,
    pub cancelled: u64,
    pub recalls: u64,
    pub retries: u64,
    pub probes: u64,
    pub reroutes: u64,
    pub worst_reroute: Duration,
    pub bytes_by_rail: Vec<u64>,
    pub last_views: Vec<RailView>,
    /// By transfer: slices of others that were posted between its arrival and its first.
    pub posts_before_first: Vec<u64>,
    /// Bytes by transfer when the first of them ended.
    pub bytes_when_first_ended: Vec<u64>,
    pub ended_at: Vec<Duration>,
}

impl Report {
    pub fn add(&mut self, other: &Report) {
        self.slices += other.slices;
        self.completed += other.completed;
        self.failed += other.failed;
        self.refused += other.refused;
        self.no_rail += other.no_rail;
        self.too_many_attempts += other.too_many_attempts;
        self.timed_out += other.timed_out;
        self.cancelled += other.cancelled;
        self.recalls += other.recalls;
        self.retries += other.retries;
        self.probes += other.probes;
        self.reroutes += other.reroutes;
        self.worst_reroute = self.worst_reroute.max(other.worst_reroute);
    }

    /// What must have happened often, for a run over many seeds to mean something.
    pub fn met(&self) -> [(&'static str, u64); 9] {
        [
            ("completed", self.completed),
            ("refused", self.refused),
            ("no rail", self.no_rail),
            ("too many attempts", self.too_many_attempts),
            ("timed out", self.timed_out),
            ("cancelled", self.cancelled),
            ("recalls", self.recalls),
            ("probes", self.probes),
            ("reroutes", self.reroutes),
        ]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Submit(usize),
    Cancel(usize),
    Break(usize),
    /// The rail breaks and nobody says so.
    BreakSilently(usize),
    Mend(usize),
    SliceEnds(u64, u8),
    Flushed(u64),
    Probed(usize),
    Wake,
}

const DONE: u8 = 0;
const RAIL_FAULT: u8 = 1;
const REFUSED: u8 = 2;

/// A rail of the world: a link that serves one slice after another.
#[derive(Debug, Default)]
struct Link {
    broken: bool,
    busy_until: u64,
}

/// A rail's event whose consequences are waited for.
struct Rerouting {
    rail: usize,
    since: u64,
    transfers: Vec<u64>,
}

pub struct World {
    scenario: Scenario,
    random: Random,
    scheduler: RailScheduler,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    links: Vec<Link>,
    posted: BTreeMap<u64, Post>,
    /// By number of the scenario.
    ids: BTreeMap<usize, TransferId>,
    checker: Checker,
    rerouting: Vec<Rerouting>,
    report: Report,
}

impl World {
    pub fn run(seed: u64, scenario: Scenario) -> Report {
        let mut world = World {
            random: Random(seed ^ 0x5eed),
            scheduler: RailScheduler::new(scenario.settings),
            now: 1_000_000_000,
            events: BinaryHeap::new(),
            sequence: 0,
            links: Vec::new(),
            posted: BTreeMap::new(),
            ids: BTreeMap::new(),
            checker: Checker::new(scenario.settings, seed),
            rerouting: Vec::new(),
            report: Report {
                bytes_by_rail: vec![0; scenario.rails.len()],
                posts_before_first: vec![0; scenario.transfers.len()],
                ended_at: vec![Duration::ZERO; scenario.transfers.len()],
                ..Report::default()
            },
            scenario,
        };
        world.start();
        world.turn();
        let rails = (0..world.links.len()).filter_map(|rail| world.scheduler.rail(RailId(rail as u32)));
        world.report.last_views = rails.collect();
        world.report
    }

    fn start(&mut self) {
        for spec in self.scenario.rails.clone() {
            self.scheduler.add_rail(MonotonicTime(self.now), spec);
            self.links.push(Link::default());
        }
        for (number, at) in self.scenario.submits.clone().into_iter().enumerate() {
            self.after(at, Event::Submit(number));
        }
        for (number, at) in self.scenario.cancels.clone() {
            self.after(at, Event::Cancel(number));
        }
        for (rail, down, up, silently) in self.scenario.flaps.clone() {
            self.after(down, if silently { Event::BreakSilently(rail) } else { Event::Break(rail) });
            self.after(up, Event::Mend(rail));
        }
    }

    fn after(&mut self, delay: Duration, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((self.now + delay.as_nanos() as u64, self.sequence, event)));
    }

    fn turn(&mut self) {
        let last = self.now + Duration::from_secs(300).as_nanos() as u64;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            assert!(at < last, "seed {}: it does not end", self.checker.seed);
            self.now = self.now.max(at);
            self.happen(event);
            self.drive();
            if let Some(due) = self.scheduler.next_timeout() {
                let planned = self.events.peek().map_or(u64::MAX, |Reverse((at, ..))| *at);
                assert!(due.0 > self.now, "seed {}: a timeout that is over", self.checker.seed);
                let idle = self.scheduler.transfers() == 0 && planned == u64::MAX;
                let all_well = |world: &World| {
                    let view = |rail| world.scheduler.rail(RailId(rail as u32)).unwrap();
                    (0..world.links.len())
                        .all(|rail| view(rail).state == RailState::Healthy || world.links[rail].broken)
                };
                if due.0 < planned && !(idle && all_well(self)) {
                    self.sequence += 1;
                    self.events.push(Reverse((due.0, self.sequence, Event::Wake)));
                }
            }
        }
        let left = self.scheduler.transfers();
        assert!(left == 0, "seed {}: {left} transfers never ended", self.checker.seed);
        assert!(self.posted.is_empty());
    }

    fn happen(&mut self, event: Event) {
        let now = MonotonicTime(self.now);
        match event {
            Event::Wake => {}
            Event::Submit(number) => {
                let mut spec = self.scenario.transfers[number].clone();
                spec.deadline = spec.deadline.map(|deadline| MonotonicTime(self.now + deadline.0));
                let id = self.scheduler.submit(now, spec.clone());
                self.ids.insert(number, id);
                self.checker.submitted(id, spec);
            }
            Event::Cancel(number) => {
                if let Some(id) = self.ids.get(&number).copied()
                    && self.scheduler.cancel(now, id)
                {
                    self.checker.cancelled(id, now);
                }
            }
            Event::Break(rail) => {
                self.links[rail].broken = true;
                let event = if self.random.below(2) == 0 { RailEvent::Down } else { RailEvent::Error };
                self.watch_rerouting(rail);
                self.scheduler.rail_event(now, RailId(rail as u32), event);
            }
            Event::BreakSilently(rail) => self.links[rail].broken = true,
            Event::Mend(rail) => {
                self.links[rail].broken = false;
                self.links[rail].busy_until = self.now;
                self.scheduler.rail_event(now, RailId(rail as u32), RailEvent::PortUp);
            }
            Event::SliceEnds(slice, how) => self.slice_ends(slice, how),
            Event::Flushed(slice) => self.end_slice(slice, Completion::Flushed),
            Event::Probed(rail) => {
                let event = if self.links[rail].broken { RailEvent::Error } else { RailEvent::Up };
                self.scheduler.rail_event(now, RailId(rail as u32), event);
            }
        }
    }

    /// What a link does with a slice when its time has come.
    fn slice_ends(&mut self, slice: u64, how: u8) {
        let Some(post) = self.posted.get(&slice) else { return };
        if self.links[post.rail.0 as usize].broken {
            // Never, or when the queue is flushed.
            return;
        }
        let completion = match how {
            DONE => Completion::Done,
            RAIL_FAULT => Completion::Failed(Fault::Rail),
            _ => Completion::Failed(Fault::Refused),
        };
        self.end_slice(slice, completion);
    }

    fn end_slice(&mut self, slice: u64, completion: Completion) {
        let Some(post) = self.posted.remove(&slice) else { return };
        if completion == Completion::Done {
            self.report.bytes_by_rail[post.rail.0 as usize] += post.len;
        }
        self.checker.ended(&post, completion);
        assert!(self.scheduler.completed(MonotonicTime(self.now), SliceId(slice), completion));
        assert!(!self.scheduler.completed(MonotonicTime(self.now), SliceId(slice), completion), "it is over");
    }

    fn drive(&mut self) {
        while let Some(effect) = self.scheduler.poll(MonotonicTime(self.now)) {
            match effect {
                Effect::Post(post) => self.post(post),
                Effect::Recall { slice, rail } => {
                    self.report.recalls += 1;
                    assert_eq!(self.posted.get(&slice.0).map(|post| post.rail), Some(rail), "only what is posted");
                    let delay = Duration::from_micros(self.random.below(5_000));
                    self.after(delay, Event::Flushed(slice.0));
                }
                Effect::Probe(rail) => {
                    self.report.probes += 1;
                    let posted = self.posted.values().any(|post| post.rail == rail);
                    assert!(!posted, "a rail is probed when nothing is posted on it");
                    // Some probes are never answered.
                    if self.random.below(20) > 0 {
                        let delay = Duration::from_micros(100 + self.random.below(3_000));
                        self.after(delay, Event::Probed(rail.0 as usize));
                    }
                }
                Effect::Finished(finished) => self.finished(finished),
            }
        }
        self.checker.rests(&self.scheduler, &self.scenario, MonotonicTime(self.now));
    }

    fn post(&mut self, post: Post) {
        self.report.slices += 1;
        self.report.retries += u64::from(post.attempt > 0);
        let rail = post.rail.0 as usize;
        let view = self.scheduler.rail(post.rail).unwrap();
        self.checker.rerouted(&post, &self.scheduler, &self.scenario);
        self.checker.posted(&post, view, &self.scenario.rails[rail]);
        assert!(self.posted.insert(post.slice.0, post).is_none(), "a slice is posted once at a time");
        for (number, id) in &self.ids {
            if self.checker.is_unposted(*id) {
                self.report.posts_before_first[*number] += 1;
            }
        }
        let link = &mut self.links[rail];
        let starts = link.busy_until.max(self.now);
        let takes = post.len as u128 * 1_000_000_000 / u128::from(self.scenario.speeds[rail]);
        link.busy_until = starts + takes as u64;
        let ends = link.busy_until - self.now;
        let latency = self.scenario.latencies[rail] + Duration::from_nanos(self.random.below(1_000));
        let chance = self.random.below(1_000_000);
        let how = if chance < self.scenario.failure_ppm[rail] {
            RAIL_FAULT
        } else if chance >= 1_000_000 - self.scenario.refusal_ppm {
            REFUSED
        } else {
            DONE
        };
        self.after(Duration::from_nanos(ends) + latency, Event::SliceEnds(post.slice.0, how));
        self.rerouted(&post, starts);
    }

    /// Looks for the first byte of what was on a rail that broke, on another one.
    fn rerouted(&mut self, post: &Post, starts: u64) {
        let rail = post.rail.0 as usize;
        let report = &mut self.report;
        self.rerouting.retain(|waiting| {
            let is_it = waiting.rail != rail && waiting.transfers.contains(&post.transfer.0);
            if is_it {
                report.reroutes += 1;
                report.worst_reroute = report.worst_reroute.max(Duration::from_nanos(starts - waiting.since));
            }
            !is_it
        });
    }

    /// A rail breaks: from now on its transfers should go on over another that works, if there is one.
    fn watch_rerouting(&mut self, rail: usize) {
        // Whoever waited for this one waits no more: it does not work.
        self.rerouting.clear();
        let view = |rail: usize| self.scheduler.rail(RailId(rail as u32)).unwrap();
        let usable = |other: usize| {
            let state = view(other).state;
            other != rail && !self.links[other].broken && state == RailState::Healthy
        };
        let others: Vec<usize> = (0..self.links.len()).filter(|other| usable(*other)).collect();
        let mut transfers: Vec<u64> =
            self.posted.values().filter(|p| p.rail.0 as usize == rail).map(|p| p.transfer.0).collect();
        transfers.retain(|id| others.iter().any(|other| self.checker.reaches(TransferId(*id), *other, &self.scenario)));
        if !transfers.is_empty() {
            self.rerouting.push(Rerouting { rail, since: self.now, transfers });
        }
    }

    fn finished(&mut self, finished: Finished) {
        let posted = self.posted.values().filter(|post| post.transfer == finished.transfer).count();
        assert_eq!(posted, 0, "seed {}: terminal means that nothing is posted", self.checker.seed);
        if self.report.bytes_when_first_ended.is_empty() {
            let ids: Vec<TransferId> = self.ids.values().copied().collect();
            self.report.bytes_when_first_ended = ids.into_iter().map(|id| self.checker.done(id)).collect();
        }
        let number = self.ids.iter().find(|(_, id)| **id == finished.transfer).map(|(number, _)| *number).unwrap();
        self.report.ended_at[number] = Duration::from_nanos(self.now - 1_000_000_000);
        self.checker.finished(&finished, MonotonicTime(self.now));
        for waiting in &mut self.rerouting {
            waiting.transfers.retain(|transfer| *transfer != finished.transfer.0);
        }
        self.rerouting.retain(|waiting| !waiting.transfers.is_empty());
        let report = &mut self.report;
        match finished.end {
            End::Completed => report.completed += 1,
            End::TimedOut => report.timed_out += 1,
            End::Cancelled => report.cancelled += 1,
            End::Failed(why) => {
                report.failed += 1;
                match why {
                    Failure::Refused => report.refused += 1,
                    Failure::NoRail => report.no_rail += 1,
                    Failure::TooManyAttempts(_) => report.too_many_attempts += 1,
                }
            }
        }
    }
}
