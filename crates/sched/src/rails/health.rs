//! One rail: how fast it is, how far it is trusted, what it has.

use std::time::Duration;

use yb_types::MonotonicTime;

use crate::rails::choice::CLOSED;
use crate::rails::{RailSettings, RailSpec, RailState, RailView};

/// Successes in a row that make a suspect rail healthy.
const FORGIVEN_AFTER: u32 = 16;

/// A rail that stayed healthy for so many of its last pauses starts with the shortest again.
const PAUSES_TO_FORGET: u32 = 10;

/// A sample moves the estimate by one part in so many.
const LEARNING: u64 = 8;

/// The estimate stays within these factors of the link's speed.
const SLOWEST: u64 = 64;
const FASTEST: u64 = 4;

/// First and last of the slices posted on a rail, by key; zero = none.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PostedList {
    pub(crate) first: u64,
    pub(crate) last: u64,
}

#[derive(Debug)]
pub(crate) struct Rail {
    pub(crate) spec: RailSpec,
    pub(crate) state: RailState,
    pub(crate) posted: PostedList,
    /// When a pause or a probe ends.
    pub(crate) due: MonotonicTime,
    bytes: u64,
    slices: u32,
    /// Bytes in a second.
    estimate: u64,
    /// Since when the link has been busy without a gap, as far as completions tell, and what it moved since.
    busy: Option<(MonotonicTime, u64)>,
    errors: u32,
    last_error: MonotonicTime,
    successes: u32,
    backoff: Duration,
    healthy_since: MonotonicTime,
}

impl Rail {
    pub(crate) fn new(spec: RailSpec, now: MonotonicTime) -> Self {
        Rail {
            spec,
            state: RailState::Healthy,
            posted: PostedList::default(),
            due: now,
            bytes: 0,
            slices: 0,
            estimate: spec.bytes_per_second.max(1),
            busy: None,
            errors: 0,
            last_error: now,
            successes: 0,
            backoff: Duration::ZERO,
            healthy_since: now,
        }
    }

    pub(crate) fn view(&self) -> RailView {
        RailView { state: self.state, bytes: self.bytes, slices: self.slices, bytes_per_second: self.estimate }
    }

    pub(crate) fn is_usable(&self) -> bool {
        matches!(self.state, RailState::Healthy | RailState::Suspect)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slices == 0
    }

    /// How long a slice would take that is posted now, in nanoseconds with penalties; [`CLOSED`] when it takes none.
    pub(crate) fn score(&self, distance: u8, settings: &RailSettings) -> u64 {
        let slice = settings.slice_bytes.max(1);
        let horizon = u128::from(self.estimate) * settings.horizon.as_nanos() / 1_000_000_000;
        let window = self.spec.window_bytes.min(u64::try_from(horizon).unwrap_or(u64::MAX));
        let full =
            self.slices > 0 && (self.slices >= self.spec.window_slices || self.bytes.saturating_add(slice) > window);
        if !self.is_usable() || full || distance == RailSpec::UNREACHABLE {
            return CLOSED;
        }
        let [near, far, farthest] = settings.penalties;
        let penalty = match distance {
            0 => near,
            1 => far,
            _ => farthest,
        };
        let suspect = if self.state == RailState::Suspect { settings.suspect_penalty } else { 1 };
        let time = u128::from(self.bytes + slice) * 1_000_000_000 / u128::from(self.estimate);
        let score = time * u128::from(penalty.max(1)) * u128::from(suspect.max(1));
        u64::try_from(score).unwrap_or(CLOSED).min(CLOSED - 1)
    }

    pub(crate) fn charge(&mut self, len: u64) {
        self.bytes += len;
        self.slices += 1;
    }

    /// A slice is over, in whatever way.
    pub(crate) fn discharge(&mut self, len: u64) {
        self.bytes -= len.min(self.bytes);
        self.slices = self.slices.saturating_sub(1);
    }

    /// A slice has arrived; [`Rail::discharge`] was called for it. Learns the speed only from gaps between completions
    /// during which others waited: neither queueing nor the way there and back is in them.
    pub(crate) fn succeeded(&mut self, now: MonotonicTime, len: u64) {
        if let Some((since, moved)) = &mut self.busy {
            *moved += len;
            let nanos = u64::try_from(now.since(*since).as_nanos()).unwrap_or(u64::MAX);
            if nanos > 0 {
                let sample = u128::from(*moved) * 1_000_000_000 / u128::from(nanos);
                let sample = u64::try_from(sample).unwrap_or(u64::MAX);
                let speed = self.spec.bytes_per_second.max(1);
                let bounds = (speed / SLOWEST).max(1)..=speed.saturating_mul(FASTEST);
                let sample = sample.clamp(*bounds.start(), *bounds.end());
                let moved_by = self.estimate.abs_diff(sample) / LEARNING;
                self.estimate =
                    if sample > self.estimate { self.estimate + moved_by } else { self.estimate - moved_by };
                self.busy = None;
            }
        }
        if self.busy.is_none() && self.slices > 0 {
            self.busy = Some((now, 0));
        }
        if self.slices == 0 {
            self.busy = None;
        }
        self.successes = self.successes.saturating_add(1);
        if self.state == RailState::Suspect && self.successes >= FORGIVEN_AFTER {
            self.state = RailState::Healthy;
            self.errors = 0;
        }
    }

    /// A slice failed by the rail's fault. True when the rail is to be paused.
    pub(crate) fn failed(&mut self, now: MonotonicTime, settings: &RailSettings) -> bool {
        self.busy = None;
        self.successes = 0;
        if now.since(self.last_error) > settings.suspect_window {
            self.errors = 0;
        }
        self.errors += 1;
        self.last_error = now;
        if self.state == RailState::Healthy {
            self.state = RailState::Suspect;
        }
        self.state == RailState::Suspect && self.errors >= settings.suspect_errors.max(1)
    }

    /// Takes nothing for a while: twice as long as the last time, unless it was well for long since.
    pub(crate) fn pause(&mut self, now: MonotonicTime, settings: &RailSettings) {
        let was_well = self.is_usable() && now.since(self.healthy_since) > self.backoff * PAUSES_TO_FORGET;
        let next = if was_well { Duration::ZERO } else { self.backoff.saturating_mul(2) };
        self.backoff = next.max(settings.backoff_min).min(settings.backoff_max.max(settings.backoff_min));
        self.state = RailState::Paused;
        self.due = now + self.backoff;
        self.busy = None;
    }

    pub(crate) fn probe(&mut self, now: MonotonicTime, settings: &RailSettings) {
        self.state = RailState::Probing;
        self.due = now + settings.probe_timeout;
    }

    pub(crate) fn heal(&mut self, now: MonotonicTime) {
        self.state = RailState::Healthy;
        self.errors = 0;
        self.successes = 0;
        self.healthy_since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: RailSettings = RailSettings {
        slice_bytes: 64 << 10,
        rest_divisor: 4,
        max_attempts: 8,
        penalties: [1, 5, 10],
        suspect_penalty: 4,
        suspect_errors: 3,
        suspect_window: Duration::from_secs(5),
        backoff_min: Duration::from_millis(10),
        backoff_max: Duration::from_millis(100),
        probe_timeout: Duration::from_secs(2),
        slice_timeout: Duration::from_secs(4),
        recall_after: Duration::from_millis(200),
        patience: Duration::from_secs(5),
        horizon: Duration::from_millis(5),
        class_weights: [1; 8],
    };

    fn at(millis: u64) -> MonotonicTime {
        MonotonicTime::from_millis(1_000_000 + millis)
    }

    fn rail() -> Rail {
        Rail::new(RailSpec::new(1_000_000_000, 0), at(0))
    }

    #[test]
    fn failures_that_follow_each_other_pause_a_rail_and_old_ones_are_forgotten() {
        let mut rail = rail();
        assert!(!rail.failed(at(0), &SETTINGS) && !rail.failed(at(1), &SETTINGS));
        assert_eq!(rail.state, RailState::Suspect);
        assert!(rail.failed(at(2), &SETTINGS), "the third");
        let mut rail = self::rail();
        for failure in 0..10 {
            assert!(!rail.failed(at(failure * 5_001), &SETTINGS), "none is held against it for so long");
        }
        let mut rail = self::rail();
        rail.failed(at(0), &SETTINGS);
        rail.failed(at(1), &SETTINGS);
        for _ in 0..FORGIVEN_AFTER {
            assert_eq!(rail.state, RailState::Suspect);
            rail.succeeded(at(2), 1);
        }
        assert_eq!(rail.state, RailState::Healthy);
        assert!(!rail.failed(at(3), &SETTINGS), "it starts anew");
    }

    #[test]
    fn pauses_double_up_to_a_limit_and_start_anew_after_a_long_time_of_health() {
        let mut rail = rail();
        let mut now = 0;
        for expected in [10, 20, 40, 80, 100, 100] {
            rail.pause(at(now), &SETTINGS);
            assert_eq!(rail.due, at(now + expected));
            now += expected;
            rail.probe(at(now), &SETTINGS);
            rail.heal(at(now));
        }
        now += 1_001;
        rail.pause(at(now), &SETTINGS);
        assert_eq!(rail.due, at(now + 10), "it was well for ten pauses");
    }

    #[test]
    fn a_score_is_the_time_that_a_slice_takes_with_penalties() {
        let settings = RailSettings { slice_bytes: 1_000_000, ..SETTINGS };
        let mut rail = rail();
        let millisecond = 1_000_000;
        assert_eq!(rail.score(0, &settings), millisecond);
        assert_eq!((rail.score(1, &settings), rail.score(2, &settings)), (5 * millisecond, 10 * millisecond));
        assert_eq!(rail.score(RailSpec::UNREACHABLE, &settings), CLOSED);
        rail.charge(2_000_000);
        assert_eq!(rail.score(0, &settings), 3 * millisecond);
        rail.failed(at(0), &settings);
        assert_eq!(rail.score(0, &settings), 12 * millisecond, "suspect");
        rail.charge(3_000_000);
        assert_eq!(rail.score(0, &settings), CLOSED, "it has enough for five milliseconds");
        rail.discharge(5_000_000);
        rail.discharge(1);
        rail.pause(at(0), &settings);
        assert_eq!(rail.score(0, &settings), CLOSED);
    }

    #[test]
    fn one_slice_alone_teaches_nothing_about_the_speed() {
        let mut rail = rail();
        for n in 0..100 {
            rail.charge(64);
            rail.discharge(64);
            rail.succeeded(at(n * 10), 64);
        }
        assert_eq!(rail.view().bytes_per_second, 1_000_000_000);
    }
}
