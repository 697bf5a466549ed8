//! The rules, kept apart from what they judge.

use std::collections::BTreeMap;
use std::time::Duration;

use yb_sched::{
    Completion, End, Failure, Fault, Finished, Post, RailId, RailScheduler, RailSettings, RailSpec, RailState,
    RailView, TransferId, TransferSpec,
};
use yb_types::MonotonicTime;

use super::Scenario;

/// The world's drivers flush a recalled slice within this time.
const FLUSHED_WITHIN: Duration = Duration::from_millis(6);

/// What is known of a transfer's bytes: offset to length.
struct Known {
    spec: TransferSpec,
    posted: BTreeMap<u64, u64>,
    done: BTreeMap<u64, u64>,
    /// Times that the range at an offset failed by its rail's fault.
    failures: BTreeMap<u64, u32>,
    /// The rail that the range at an offset came back from.
    came_back_from: BTreeMap<u64, RailId>,
    was_posted: bool,
    cancelled: Option<MonotonicTime>,
    refused: bool,
}

impl Known {
    fn is_free(&self, offset: u64, len: u64) -> bool {
        let overlaps = |ranges: &BTreeMap<u64, u64>| {
            ranges.range(..offset + len).next_back().is_some_and(|(start, length)| start + length > offset)
        };
        !overlaps(&self.posted) && !overlaps(&self.done)
    }

    fn unposted(&self) -> u64 {
        self.spec.bytes - self.posted.values().sum::<u64>() - self.done.values().sum::<u64>()
    }
}

pub struct Checker {
    pub seed: u64,
    settings: RailSettings,
    open: BTreeMap<u64, Known>,
}

impl Checker {
    pub fn new(settings: RailSettings, seed: u64) -> Self {
        Checker { seed, settings, open: BTreeMap::new() }
    }

    pub fn submitted(&mut self, id: TransferId, spec: TransferSpec) {
        let (posted, done, failures, came_back_from) =
            (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let known =
            Known { spec, posted, done, failures, came_back_from, was_posted: false, cancelled: None, refused: false };
        assert!(self.open.insert(id.0, known).is_none());
    }

    pub fn cancelled(&mut self, id: TransferId, now: MonotonicTime) {
        self.open.get_mut(&id.0).unwrap().cancelled = Some(now);
    }

    pub fn is_unposted(&self, id: TransferId) -> bool {
        self.open.get(&id.0).is_some_and(|known| !known.was_posted)
    }

    pub fn done(&self, id: TransferId) -> u64 {
        self.open.get(&id.0).map_or(0, |known| known.done.values().sum())
    }

    pub fn reaches(&self, id: TransferId, rail: usize, scenario: &Scenario) -> bool {
        let Some(known) = self.open.get(&id.0) else { return false };
        let distance = known.spec.distances.get(rail).copied().unwrap_or(scenario.rails[rail].distance);
        distance != RailSpec::UNREACHABLE
    }

    pub fn posted(&mut self, post: &Post, view: RailView, spec: &RailSpec) {
        let seed = self.seed;
        let known = self.open.get_mut(&post.transfer.0).expect("only open transfers are posted");
        assert!(known.is_free(post.offset, post.len), "seed {seed}: {post:?} is under way or has arrived");
        assert!(post.len > 0 && post.offset + post.len <= known.spec.bytes, "seed {seed}: {post:?}");
        let inside = |border: &&u64| **border > post.offset && **border < post.offset + post.len;
        assert!(!known.spec.borders.iter().any(|b| inside(&b)), "seed {seed}: {post:?} reaches over a border");
        assert!(known.cancelled.is_none(), "seed {seed}: a cancelled transfer is posted");
        assert!(matches!(view.state, RailState::Healthy | RailState::Suspect), "seed {seed}: {view:?}");
        let longest = self.settings.slice_bytes + self.settings.slice_bytes / self.settings.rest_divisor;
        assert!(view.slices <= spec.window_slices.max(1), "seed {seed}: {view:?}");
        assert!(view.slices == 1 || view.bytes <= spec.window_bytes + longest, "seed {seed}: {view:?}");
        known.posted.insert(post.offset, post.len);
        known.was_posted = true;
    }

    /// A slice that came back goes to another rail, if another takes one.
    pub fn rerouted(&self, post: &Post, scheduler: &RailScheduler, scenario: &Scenario) {
        let Some(known) = self.open.get(&post.transfer.0) else { return };
        if known.came_back_from.get(&post.offset) == Some(&post.rail) {
            let other = |rail: &usize| *rail != post.rail.0 as usize && self.reaches(post.transfer, *rail, scenario);
            let open = self.open_rails(scheduler, scenario);
            assert!(!open.iter().any(other), "seed {}: {post:?} goes where it came from", self.seed);
        }
    }

    pub fn ended(&mut self, post: &Post, completion: Completion) {
        let known = self.open.get_mut(&post.transfer.0).expect("a transfer is open while a slice of it is posted");
        assert_eq!(known.posted.remove(&post.offset), Some(post.len));
        match completion {
            Completion::Done => assert!(known.done.insert(post.offset, post.len).is_none()),
            Completion::Failed(Fault::Refused) => known.refused = true,
            Completion::Failed(Fault::Rail) | Completion::Flushed => {
                *known.failures.entry(post.offset).or_default() += 1;
                known.came_back_from.insert(post.offset, post.rail);
            }
            Completion::Returned => drop(known.came_back_from.insert(post.offset, post.rail)),
        }
    }

    pub fn finished(&mut self, finished: &Finished, now: MonotonicTime) {
        let seed = self.seed;
        let known = self.open.remove(&finished.transfer.0).expect("a transfer ends once");
        assert!(known.posted.is_empty());
        let done: u64 = known.done.values().sum();
        assert_eq!(finished.bytes, done, "seed {seed}");
        match finished.end {
            End::Completed => {
                let mut next = 0;
                for (offset, len) in &known.done {
                    assert_eq!(*offset, next, "seed {seed}: every byte arrives once");
                    next += len;
                }
                assert_eq!(next, known.spec.bytes, "seed {seed}");
            }
            End::TimedOut => assert!(known.spec.deadline.is_some_and(|deadline| deadline <= now), "seed {seed}"),
            End::Cancelled => assert!(known.cancelled.is_some(), "seed {seed}"),
            End::Failed(Failure::Refused) => assert!(known.refused, "seed {seed}"),
            End::Failed(Failure::TooManyAttempts(_)) => {
                let worst = known.failures.values().max().copied().unwrap_or(0);
                assert!(worst > self.settings.max_attempts, "seed {seed}: given up after {worst} failures");
            }
            End::Failed(Failure::NoRail) => {}
        }
    }

    /// The rails that take a slice now.
    fn open_rails(&self, scheduler: &RailScheduler, scenario: &Scenario) -> Vec<usize> {
        let settings = &self.settings;
        let takes = |rail: usize| {
            let (view, spec) = (scheduler.rail(RailId(rail as u32)).unwrap(), scenario.rails[rail]);
            let horizon = u128::from(view.bytes_per_second) * settings.horizon.as_nanos() / 1_000_000_000;
            let window = spec.window_bytes.min(horizon as u64);
            let room = view.slices < spec.window_slices && view.bytes + settings.slice_bytes <= window;
            matches!(view.state, RailState::Healthy | RailState::Suspect) && (view.slices == 0 || room)
        };
        (0..scenario.rails.len()).filter(|rail| takes(*rail)).collect()
    }

    /// Nothing is to be done now: whatever waits has no rail that takes it.
    pub fn rests(&self, scheduler: &RailScheduler, scenario: &Scenario, now: MonotonicTime) {
        for known in self.open.values() {
            let given_up = [known.cancelled, known.spec.deadline].into_iter().flatten().min();
            let late = |since: MonotonicTime| since + self.settings.recall_after + FLUSHED_WITHIN < now;
            assert!(!given_up.is_some_and(late), "seed {}: given up and still under way", self.seed);
        }
        let open = self.open_rails(scheduler, scenario);
        if open.is_empty() {
            return;
        }
        for (id, known) in &self.open {
            let ends = known.cancelled.is_some() || known.refused || known.spec.deadline.is_some();
            let gave_up = known.failures.values().any(|failures| *failures > self.settings.max_attempts);
            if ends || gave_up || known.unposted() == 0 {
                continue;
            }
            let could = open.iter().any(|rail| self.reaches(TransferId(*id), *rail, scenario));
            assert!(!could, "seed {}: {} bytes wait beside an open rail", self.seed, known.unposted());
        }
    }
}
