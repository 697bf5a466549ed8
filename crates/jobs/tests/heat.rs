//! Which keys become hot, when they are proposed again, and when their other copy may go.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::time::Duration;

use yb_jobs::{HeatMode, HeatSettings, HeatTracker, Heated};
use yb_types::MonotonicTime;

fn ms(ms: u64) -> MonotonicTime {
    MonotonicTime::from_millis(1_000_000 + ms)
}

fn tracker(mode: HeatMode) -> HeatTracker {
    HeatTracker::new(HeatSettings { mode, ..HeatSettings::default() }, 1)
}

fn hits(tracker: &mut HeatTracker, key: &[u8], count: u32, at: MonotonicTime) -> Vec<Heated> {
    let mut cooled = Vec::new();
    (0..count).map(|_| tracker.hit(0, key, at, &mut cooled)).collect()
}

#[test]
fn the_threshold_is_that_of_the_peer() {
    assert_eq!(HeatSettings::default().threshold(), 8);
    let mut tracker = tracker(HeatMode::Enforce);
    let seen = hits(&mut tracker, b"k", 8, ms(0));
    assert_eq!(seen.iter().position(|heated| *heated == Heated::Hot), Some(7));
    assert_eq!(hits(&mut self::tracker(HeatMode::Off), b"k", 100, ms(0)), vec![Heated::No; 100]);
}

#[test]
fn hits_of_another_window_tenant_or_key_do_not_add_up() {
    let mut tracker = tracker(HeatMode::Observe);
    let mut cooled = Vec::new();
    for second in 0..40 {
        // Seven in any ten seconds.
        let now = ms(second * 1429);
        assert_eq!(tracker.hit(0, b"k", now, &mut cooled), Heated::No);
        assert_eq!(tracker.hit(1, b"k", now, &mut cooled), Heated::No);
    }
}

#[test]
fn a_rejected_key_is_proposed_again_within_the_window_an_accepted_one_rests() {
    let mut tracker = tracker(HeatMode::Enforce);
    hits(&mut tracker, b"k", 8, ms(0));
    assert_eq!(hits(&mut tracker, b"k", 1, ms(500)), [Heated::No]);
    assert_eq!(hits(&mut tracker, b"k", 1, ms(1000)), [Heated::Still]);
    tracker.accepted(0, b"k", ms(1001));
    for at in (1002..31_000).step_by(100) {
        assert_eq!(hits(&mut tracker, b"k", 1, ms(at)), [Heated::No], "at {at}");
    }
    let later = hits(&mut tracker, b"k", 20, ms(32_000));
    assert!(later.iter().any(|heated| *heated != Heated::No));
    tracker.evicted(0, b"k", ms(33_000));
    assert!(!tracker.has_grown(0, b"k"));
    assert!(hits(&mut tracker, b"k", 50, ms(92_000)).iter().all(|heated| *heated == Heated::No));
    assert!(hits(&mut tracker, b"k", 50, ms(94_000)).iter().any(|heated| *heated != Heated::No));
}

#[test]
fn the_other_copy_may_go_after_three_cool_windows() {
    let mut tracker = tracker(HeatMode::Enforce);
    hits(&mut tracker, b"k", 8, ms(0));
    tracker.accepted(0, b"k", ms(0));
    let mut cooled = Vec::new();
    let mut cooled_at = None;
    for second in 1..200 {
        tracker.forget_some(ms(second * 1000), &mut cooled);
        if !cooled.is_empty() {
            cooled_at.get_or_insert(second);
        }
    }
    assert_eq!(cooled, [(0, Box::from(&b"k"[..]))]);
    // The first window was hot.
    assert_eq!(cooled_at, Some(40));
    assert_eq!(tracker.tracked(), 0, "then it is forgotten");
}

#[test]
fn memory_is_bounded_and_old_keys_make_room() {
    let settings = HeatSettings { mode: HeatMode::Enforce, tracked_max: 100, ..HeatSettings::default() };
    let mut tracker = HeatTracker::new(settings, 1);
    let mut cooled = Vec::new();
    for number in 0..1000_u32 {
        tracker.hit(0, &number.to_le_bytes(), ms(0), &mut cooled);
    }
    assert_eq!(tracker.tracked(), 100);
    let later = ms(0) + Duration::from_secs(10);
    for number in 1000..1200_u32 {
        tracker.hit(0, &number.to_le_bytes(), later, &mut cooled);
        assert!(tracker.tracked() <= 100);
    }
    // Two old keys are forgotten with each hit.
    let seen = hits(&mut tracker, &1000_u32.to_le_bytes(), 7, later);
    assert_eq!(seen.last(), Some(&Heated::Hot), "new keys found room");
}
