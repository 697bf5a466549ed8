//! What eviction takes, what it leaves, and what it costs.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

fn filled(objects: u64, size: u64, capacity: u64) -> Pool {
    let mut pool = Pool::with_segment(capacity);
    for at in 0..objects {
        pool.put(&format!("key-{at}"), size);
        pool.advance(SECOND / 10);
    }
    pool
}

fn evict(pool: &Pool, bytes: u64) -> Reclaimed {
    let goal = EvictionGoal { target: ByteLen(bytes), at_least: ByteLen(bytes) };
    pool.catalog.evict(&goal, 1 << 20, pool.now)
}

fn left(pool: &Pool, objects: u64) -> Vec<u64> {
    (0..objects).filter(|at| pool.peek(&format!("key-{at}")).is_ok()).collect()
}

#[test]
fn the_oldest_go_first_and_no_more_than_needed() {
    let mut pool = filled(64, 16 * KIB, MIB);
    assert_eq!(evict(&pool, 100 * KIB), Reclaimed { keys: 7, bytes: ByteLen(112 * KIB), steps: 7, exhausted: false });
    assert_eq!(left(&pool, 64), (7..64).collect::<Vec<_>>());
    assert_eq!(pool.used(), 57 * 16 * KIB);
    pool.upkeep();
    pool.catalog.assert_consistent();
    let stats = pool.catalog.stats();
    assert_eq!((stats.evicted_keys, stats.evicted_bytes), (7, 112 * KIB));
}

#[test]
fn what_was_read_goes_after_what_was_not() {
    let mut pool = filled(32, 16 * KIB, MIB);
    for at in [0, 3, 5] {
        pool.get(&format!("key-{at}")).unwrap();
    }
    pool.advance(20 * SECOND);
    assert_eq!(evict(&pool, 5 * 16 * KIB).keys, 5);
    let gone: Vec<u64> = (0..32).filter(|at| !left(&pool, 32).contains(at)).collect();
    assert_eq!(gone, [1, 2, 4, 6, 7]);
    assert_eq!(evict(&pool, MIB).keys, 27, "and then they go like the others");
}

#[test]
fn a_lease_protects_and_a_hard_pin_always() {
    let mut pool = filled(16, 16 * KIB, MIB);
    pool.config.with_hard_pin = true;
    pool.put("pinned", 16 * KIB);
    for at in 0..16 {
        pool.get(&format!("key-{at}")).unwrap();
    }
    let done = evict(&pool, MIB);
    assert_eq!((done.keys, done.exhausted), (0, true));
    assert!(done.steps <= 16 * 4, "a round that cannot help ends soon: {done:?}");
    pool.advance(10 * SECOND);
    assert_eq!(evict(&pool, MIB).keys, 16);
    assert!(pool.get("pinned").is_ok());
    pool.catalog.assert_consistent();
}

#[test]
fn soft_pins_go_last_if_at_all_and_run_out() {
    for allowed in [true, false] {
        let settings = CatalogSettings { evict_soft_pinned: allowed, ..CatalogSettings::default() };
        let mut pool = Pool::with(settings, &[("a", MIB)]);
        pool.config.soft_pin_action = SoftPinAction::ENABLE;
        pool.config.soft_pin_ttl_ms = Some(60_000);
        pool.put("pinned", 16 * KIB);
        pool.config = ReplicateConfig::default();
        pool.advance(SECOND);
        pool.put("plain", 16 * KIB);
        assert_eq!(evict(&pool, 16 * KIB).keys, 1);
        assert!(pool.peek("pinned").is_ok() && pool.peek("plain").is_err());
        assert_eq!(evict(&pool, 16 * KIB).keys, u64::from(allowed));
        pool.advance(60 * SECOND);
        evict(&pool, 16 * KIB);
        assert!(pool.peek("pinned").is_err(), "a pin that ran out protects nothing");
        assert_eq!(pool.catalog.stats().soft_pins, 0);
    }
}

#[test]
fn a_soft_pin_runs_from_the_end_of_the_put() {
    let settings = CatalogSettings { evict_soft_pinned: false, ..CatalogSettings::default() };
    let mut pool = Pool::with(settings, &[("a", MIB)]);
    pool.config.soft_pin_action = SoftPinAction::ENABLE;
    pool.config.soft_pin_ttl_ms = Some(10_000);
    pool.start(1, "key", 16 * KIB).unwrap();
    pool.advance(20 * SECOND);
    pool.end(1, "key").unwrap();
    pool.advance(9 * SECOND);
    assert_eq!(evict(&pool, 1).keys, 0);
    pool.end(1, "key").unwrap();
    pool.advance(2 * SECOND);
    assert_eq!(evict(&pool, 1).keys, 1, "a repeated end does not move it");
    pool.config.soft_pin_ttl_ms = Some(0);
    pool.put("unpinned", 16 * KIB);
    assert_eq!(pool.catalog.stats().soft_pins, 0, "zero means: do not pin");
}

#[test]
fn the_watermark_starts_it_and_it_goes_a_small_step_below() {
    let mut pool = filled(57, 16 * KIB, MIB);
    assert_eq!(pool.catalog.eviction_goal(pool.now), None, "57 of 64 is below 90 %");
    for at in 57..61 {
        pool.put(&format!("key-{at}"), 16 * KIB);
    }
    let goal = pool.catalog.eviction_goal(pool.now).unwrap();
    let expected = ((61.0 / 64.0 - 0.90 + 0.01) * MIB as f64).ceil() as u64;
    assert_eq!(goal.target, ByteLen(expected));
    assert!(goal.at_least < goal.target);
    assert_eq!(pool.catalog.evict(&goal, 1000, pool.now).keys, expected.div_ceil(16 * KIB));
    assert_eq!(pool.catalog.eviction_goal(pool.now), None);
}

#[test]
fn a_put_that_finds_no_space_evicts_just_enough() {
    let mut pool = filled(64, 16 * KIB, MIB);
    pool.put("one more", 16 * KIB);
    assert_eq!(left(&pool, 64), (1..64).collect::<Vec<_>>());
    assert_eq!(pool.catalog.stats().alloc_failures, 0);
    pool.catalog.assert_consistent();
}

#[test]
fn a_put_that_cannot_be_helped_leaves_a_note_for_the_janitor() {
    let mut pool = filled(64, 16 * KIB, MIB);
    for at in 0..64 {
        pool.get(&format!("key-{at}")).unwrap();
    }
    assert_eq!(pool.start(1, "one more", 16 * KIB), Err(PutRefusal::NothingEvictable));
    assert_eq!(left(&pool, 64).len(), 64);
    let goal = pool.catalog.eviction_goal(pool.now).unwrap();
    pool.advance(10 * SECOND);
    pool.catalog.evict(&goal, 1000, pool.now);
    assert!(pool.start(1, "one more", 16 * KIB).is_ok());
}

#[test]
fn a_large_put_gets_a_hole_made_of_several_objects() {
    let mut pool = filled(64, 16 * KIB, MIB);
    pool.put("large", 100 * KIB);
    assert!(left(&pool, 64).len() >= 64 - 4 * 7);
}

#[test]
fn withheld_space_that_is_due_is_taken_before_anything_is_evicted() {
    let mut pool = filled(64, 16 * KIB, MIB);
    pool.get("key-9").unwrap();
    pool.remove("key-9", Force::Yes).unwrap();
    pool.advance(10 * SECOND);
    pool.put("one more", 16 * KIB);
    assert_eq!(left(&pool, 64).len(), 63, "nothing had to go");
}

#[test]
fn the_price_of_a_victim_does_not_grow_with_the_number_of_objects() {
    for objects in [1000, 20_000] {
        let mut pool = Pool::with_segment(objects * 64);
        for at in 0..objects {
            pool.put(&format!("key-{at}"), 64);
        }
        let done = evict(&pool, 500 * 64);
        assert_eq!((done.keys, done.steps), (500, 500));
    }
}

#[test]
fn every_policy_can_be_chosen_and_frees_what_is_asked() {
    for kind in [PolicyKind::Chain, PolicyKind::Lru, PolicyKind::NearLru, PolicyKind::S3Fifo] {
        let settings = CatalogSettings { eviction_policy: kind, ..CatalogSettings::default() };
        let mut pool = Pool::with(settings, &[("a", MIB)]);
        for at in 0..64 {
            pool.put(&format!("key-{at}"), 16 * KIB);
        }
        pool.advance(20 * SECOND);
        pool.remove("key-7", Force::No).unwrap();
        assert_eq!(evict(&pool, 10 * 16 * KIB).keys, 10, "{kind}");
        assert_eq!(evict(&pool, MIB).keys, 53, "{kind}: the rest");
        pool.catalog.assert_consistent();
    }
}

#[test]
fn the_blocks_of_one_batch_go_from_its_end() {
    let mut pool = Pool::with_segment(MIB);
    let keys: Vec<String> = (0..40).map(|at| format!("key-{at}")).collect();
    let items: Vec<(&str, u64)> = keys.iter().map(|key| (key.as_str(), 16 * KIB)).collect();
    assert!(pool.start_many(1, &items).iter().all(Result::is_ok));
    pool.end_many(1, &keys);
    pool.advance(20 * SECOND);
    assert_eq!(evict(&pool, 7 * 16 * KIB).keys, 7);
    assert_eq!(left(&pool, 40), (0..33).collect::<Vec<_>>());
}

#[test]
fn a_write_that_is_abandoned_or_pinned_is_no_candidate() {
    let mut pool = Pool::with_segment(MIB);
    pool.start(1, "unfinished", 16 * KIB).unwrap();
    pool.config.with_hard_pin = true;
    pool.put("pinned", 16 * KIB);
    let done = evict(&pool, MIB);
    assert_eq!((done.keys, done.steps, done.exhausted), (0, 0, true));
}

#[test]
fn what_a_put_lacked_once_costs_nobody_his_object_when_it_came_free_by_itself() {
    let mut pool = filled(16, 64 * KIB, MIB);
    for at in 0..16 {
        pool.get(&format!("key-{at}")).unwrap();
    }
    assert!(pool.start(1, "large", 512 * KIB).is_err(), "everything is leased");
    assert!(pool.catalog.eviction_goal(pool.now).is_some());
    for at in 0..16 {
        pool.remove(&format!("key-{at}"), Force::Yes).unwrap();
    }
    pool.advance(20 * SECOND);
    pool.upkeep();
    pool.put("fresh", 64 * KIB);
    assert_eq!(pool.catalog.eviction_goal(pool.now), None, "the pool is nearly empty");
}

#[test]
fn a_put_that_needs_a_large_part_of_a_segment_evicts_no_more_than_its_size() {
    let mut pool = filled(64, 1 << 10, 64 << 10);
    pool.advance(60 * SECOND);
    // Read ones among the others: no hole as large as that can be made.
    for number in (0..64).step_by(8) {
        pool.get(&format!("key-{number}")).unwrap();
    }
    for _ in 0..2 {
        assert!(pool.start(1, "large", 48 << 10).is_err());
        assert!(pool.catalog.eviction_goal(pool.now).is_none(), "the janitor is not sent either");
    }
    assert!(left(&pool, 64).len() >= 8);
    let mut pool = filled(64, 1 << 10, 64 << 10);
    pool.advance(60 * SECOND);
    for number in (0..64).step_by(8) {
        pool.get(&format!("key-{number}")).unwrap();
    }
    assert!(pool.start(1, "large", 20 << 10).is_err());
    assert!((43..=45).contains(&left(&pool, 64).len()), "{:?}", left(&pool, 64));
}
