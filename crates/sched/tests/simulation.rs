//! The scheduler against synthetic rails: thousands of seeds, everything checked after every step.

#![allow(clippy::unwrap_used, reason = "test code")]

mod world;

use std::time::Duration;

use world::{Report, Scenario, World};
use yb_sched::{RailSettings, RailSpec, RailState, TrafficClass, TransferSpec};

const SEEDS: u64 = 10_000;

#[test]
fn ten_thousand_seeds() {
    let mut total = Report::default();
    for seed in 0..SEEDS {
        total.add(&World::run(seed, Scenario::random(seed)));
    }
    println!("{total:#?}");
    assert!(total.worst_reroute < Duration::from_millis(50), "worst rerouting {:?}", total.worst_reroute);
    // What is never met is not tested.
    for (what, count) in total.met() {
        assert!(count > 100, "only {count} times: {what}");
    }
}

/// Rails that never fail, and as many transfers as are told.
fn calm(rails: &[(u64, u8)], transfers: Vec<TransferSpec>) -> Scenario {
    let rails = rails.iter().map(|(speed, distance)| RailSpec::new(*speed, *distance)).collect();
    Scenario::calm(rails, transfers, RailSettings::default())
}

#[test]
fn rails_share_by_their_speed() {
    let report = World::run(1, calm(&[(1 << 30, 0), (3 << 30, 0)], vec![TransferSpec::new(1 << 28)]));
    let [slow, fast] = report.bytes_by_rail[..] else { panic!() };
    let share = fast as f64 / (slow + fast) as f64;
    assert!((0.72..0.78).contains(&share), "the fast rail moved {share} of the bytes");
}

#[test]
fn a_far_rail_helps_only_when_the_near_one_has_enough() {
    let report = World::run(1, calm(&[(1 << 30, 0), (1 << 30, 1)], vec![TransferSpec::new(256 << 10)]));
    assert_eq!(report.bytes_by_rail, [256 << 10, 0]);
    let report = World::run(1, calm(&[(1 << 30, 0), (1 << 30, 1)], vec![TransferSpec::new(1 << 28)]));
    let [near, far] = report.bytes_by_rail[..] else { panic!() };
    assert!(far > near / 2, "both are busy when there is enough: {near} and {far}");
}

#[test]
fn the_speed_of_a_rail_is_learnt() {
    // Both say that they are equally fast; one is a quarter of what it says.
    let scenario = calm(&[(4 << 30, 0), (4 << 30, 0)], vec![TransferSpec::new(1 << 29)]).really(0, 1 << 30);
    let report = World::run(1, scenario);
    let learnt = report.last_views[0].bytes_per_second as f64 / f64::from(1 << 30);
    assert!((0.9..1.1).contains(&learnt), "{learnt} of the real speed");
    let [slow, fast] = report.bytes_by_rail[..] else { panic!() };
    assert!(fast as f64 / slow as f64 > 3.0, "{slow} and {fast} bytes");
}

#[test]
fn small_transfers_do_not_wait_behind_large_ones() {
    let mut transfers = vec![TransferSpec::new(1 << 28); 4];
    transfers.push(TransferSpec::new(64));
    let report = World::run(1, calm(&[(1 << 30, 0)], transfers));
    let small = report.posts_before_first.last().unwrap();
    assert!(*small <= 5 + 128, "{small} slices went first");
}

#[test]
fn classes_share_the_rails_by_weight() {
    let of = |class| TransferSpec { class, ..TransferSpec::new(1 << 26) };
    let classes = [TrafficClass::HIGH, TrafficClass::NORMAL, TrafficClass::LOW];
    let mut scenario = calm(&[(1 << 30, 0), (1 << 30, 0)], classes.map(of).to_vec());
    // The first to come fills the windows alone.
    scenario.rails.iter_mut().for_each(|rail| rail.window_slices = 4);
    let report = World::run(1, scenario);
    let weights = classes.map(|class| f64::from(TrafficClass::WEIGHTS[usize::from(class.0)]));
    // While all three have work: until the first of them ends.
    let moved = report.bytes_when_first_ended;
    let all: u64 = moved.iter().sum();
    for (bytes, weight) in moved.iter().zip(weights) {
        let (share, due) = (*bytes as f64 / all as f64, weight / weights.iter().sum::<f64>());
        assert!((share - due).abs() < 0.03, "{share} of the bytes, {due} due: {moved:?}");
    }
}

#[test]
fn rails_that_flap_in_turn_lose_nothing() {
    let mut scenario = calm(&[(1 << 30, 0), (1 << 30, 0)], vec![TransferSpec::new(1 << 28)]);
    for flap in 0..50_u64 {
        let down = Duration::from_millis(3 + flap * 4);
        scenario = scenario.flap((flap % 2) as usize, down, down + Duration::from_millis(2));
    }
    let report = World::run(3, scenario);
    assert_eq!((report.completed, report.failed), (1, 0));
    assert!(report.recalls > 50, "{} slices were under way when a rail went down", report.recalls);
    assert!(report.last_views.iter().all(|view| view.slices == 0));
}

#[test]
fn without_any_rail_a_transfer_is_given_up_and_the_next_at_once() {
    let mut scenario = calm(&[(1 << 30, 0)], vec![TransferSpec::new(1 << 28), TransferSpec::new(1 << 20)]);
    scenario = scenario.flap(0, Duration::from_millis(1), Duration::from_secs(20));
    scenario.submit_at(1, Duration::from_secs(10));
    let report = World::run(4, scenario);
    assert_eq!((report.completed, report.no_rail), (0, 2));
    assert!(report.ended_at[0] < Duration::from_secs(6) && report.ended_at[1] < Duration::from_millis(10_010));
    assert_eq!(report.last_views[0].state, RailState::Healthy, "it came back");
}
