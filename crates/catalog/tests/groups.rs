//! Groups and pins: renewed together, evicted together, last, or never.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MIB: u64 = 1 << 20;

impl Pool {
    fn put_grouped(&mut self, key: &str, group: &str) {
        self.config.group_ids = Some(vec![group.into()]);
        self.put(key, 1024);
        self.config.group_ids = None;
    }

    fn evict_bytes(&self, bytes: u64) -> Reclaimed {
        let goal = EvictionGoal { target: ByteLen(bytes), at_least: ByteLen(bytes) };
        self.catalog.evict(&goal, 10_000, self.now)
    }
}

#[test]
fn a_read_keeps_the_whole_group() {
    let mut pool = Pool::with_segment(MIB);
    (0..20).for_each(|n| pool.put_grouped(&format!("k{n}"), "g"));
    pool.put_grouped("other", "h");
    pool.get("k7").unwrap();
    pool.advance(9 * SECOND);
    assert_eq!(pool.remove("k3", Force::No), Err(ErrorCode::OBJECT_HAS_LEASE));
    assert_eq!(pool.remove("other", Force::No), Ok(()));
    pool.put_grouped("late", "g");
    assert_eq!(pool.remove("late", Force::No), Ok(()), "an earlier lease is not its own");
    pool.put_grouped("late", "g");
    assert!(pool.exists("k5", Probe::Lease));
    assert_eq!(pool.remove("late", Force::No), Err(ErrorCode::OBJECT_HAS_LEASE));
    pool.advance(10 * SECOND);
    assert_eq!(pool.remove("k3", Force::No), Ok(()));
    pool.catalog.assert_consistent();
}

#[test]
fn the_lease_of_the_group_does_not_withhold_the_space_of_a_member_nobody_reads() {
    let mut pool = Pool::with_segment(MIB);
    pool.put_grouped("a", "g");
    pool.put_grouped("b", "g");
    pool.get("a").unwrap();
    pool.remove("b", Force::Yes).unwrap();
    assert_eq!(pool.used(), 1024);
    pool.remove("a", Force::Yes).unwrap();
    assert_eq!(pool.used(), 1024, "this one is read");
}

#[test]
fn a_group_is_evicted_as_a_whole_or_not_at_all() {
    let mut pool = Pool::with_segment(MIB);
    (0..20).for_each(|n| pool.put_grouped(&format!("g{n}"), "g"));
    (0..5).for_each(|n| pool.put_grouped(&format!("h{n}"), "h"));
    pool.advance(20 * SECOND);
    pool.get("g13").unwrap();
    assert_eq!(pool.evict_bytes(1).keys, 5, "the group with a lease is passed over");
    assert_eq!(pool.evict_bytes(1).keys, 0);
    assert!((0..20).all(|n| pool.exists(&format!("g{n}"), Probe::Only)));
    pool.advance(20 * SECOND);
    let gone = pool.evict_bytes(1);
    assert_eq!((gone.keys, gone.bytes), (20, ByteLen(20 * 1024)));
    assert_eq!((pool.used(), pool.catalog.stats().keys), (0, 0));
    pool.catalog.assert_consistent();
}

#[test]
fn a_large_group_is_unreadable_at_once_and_freed_in_steps() {
    let mut pool = Pool::with_segment(4 * MIB);
    (0..4096).for_each(|n| pool.put_grouped(&format!("g{n}"), "g"));
    pool.advance(20 * SECOND);
    // The put that needs its space finds some at once; not all of it was freed for it.
    let started = pool.start(1, "small", 1024);
    assert!(started.is_ok(), "{started:?}");
    let left = pool.catalog.stats().keys;
    assert!((1000..4000).contains(&left), "{left}");
    assert!((0..4096).all(|n| pool.get(&format!("g{n}")).is_err()), "nobody reads a part of it");
    assert_eq!(pool.catalog.eviction_goal(pool.now), None, "its space is on its way");
    pool.catalog.assert_consistent();
    pool.upkeep();
    assert_eq!(pool.catalog.stats().keys, 1, "the write alone");
    assert_eq!(pool.catalog.stats().evicted_keys, 4096);
    pool.put_grouped("again", "g");
    pool.get("again").unwrap();
    pool.catalog.assert_consistent();
}

#[test]
fn a_put_that_needs_all_of_a_large_group_is_told_that_waiting_helps() {
    let mut pool = Pool::with_segment(8 * MIB);
    (0..8000).for_each(|n| pool.put_grouped(&format!("g{n}"), "g"));
    pool.advance(20 * SECOND);
    assert_eq!(pool.start(1, "large", 7 * MIB), Err(PutRefusal::NoSpace), "and not that nothing may be evicted");
    pool.upkeep();
    pool.start(1, "large", 7 * MIB).unwrap();
    pool.catalog.assert_consistent();
}

#[test]
fn pinned_and_unfinished_members_stay() {
    let mut pool = Pool::with_segment(MIB);
    pool.put_grouped("plain", "g");
    pool.config.with_hard_pin = true;
    pool.put_grouped("hard", "g");
    pool.config.with_hard_pin = false;
    pool.config.soft_pin_action = SoftPinAction::ENABLE;
    pool.put_grouped("soft", "g");
    pool.config.soft_pin_action = SoftPinAction::PRESERVE;
    pool.config.group_ids = Some(vec!["g".into()]);
    pool.start(1, "unfinished", 1024).unwrap();
    pool.advance(20 * SECOND);
    let goal = EvictionGoal { target: ByteLen(2048), at_least: ByteLen(0) };
    assert_eq!(pool.catalog.evict(&goal, 1000, pool.now).keys, 1);
    for key in ["hard", "soft"] {
        assert!(pool.exists(key, Probe::Only), "{key}");
    }
    pool.end(1, "unfinished").unwrap();
    pool.advance(20 * SECOND);
    assert_eq!(pool.evict_bytes(2048).keys, 2);
    assert!(pool.exists("hard", Probe::Lease));
    pool.catalog.assert_consistent();
}

#[test]
fn a_soft_pin_runs_from_the_end_of_the_write_and_ends_by_itself() {
    let mut pool = Pool::with_segment(MIB);
    pool.config.soft_pin_action = SoftPinAction::ENABLE;
    pool.config.soft_pin_ttl_ms = Some(60_000);
    pool.start(1, "key", 1024).unwrap();
    assert_eq!(pool.catalog.stats().soft_pins, 0, "pending");
    pool.advance(20 * SECOND);
    pool.end(1, "key").unwrap();
    pool.advance(50 * SECOND);
    pool.end(1, "key").unwrap();
    pool.get("key").unwrap();
    pool.upkeep();
    assert_eq!(pool.catalog.stats().soft_pins, 1);
    pool.advance(10 * SECOND);
    pool.upkeep();
    assert_eq!(pool.catalog.stats().soft_pins, 0, "neither the second end nor the read moved it");
    pool.config.soft_pin_ttl_ms = Some(0);
    pool.put("zero", 1024);
    assert_eq!(pool.catalog.stats().soft_pins, 0);
    pool.catalog.assert_consistent();
}

#[test]
fn the_longest_soft_pin_does_not_wrap() {
    let settings = CatalogSettings { soft_pin_ttl_max: Duration::MAX, ..CatalogSettings::default() };
    let mut pool = Pool::with(settings, &[("a", MIB)]);
    pool.config.soft_pin_action = SoftPinAction::ENABLE;
    pool.config.soft_pin_ttl_ms = Some(u64::MAX);
    pool.put("key", 1024);
    pool.upkeep();
    assert_eq!(pool.catalog.stats().soft_pins, 1);
    pool.remove("key", Force::No).unwrap();
    assert_eq!(pool.catalog.stats().soft_pins, 0);
}

#[test]
fn readers_and_eviction_at_once_leave_all_of_a_group_or_nothing() {
    const MEMBERS: u64 = 12;
    let mut pool = Pool::with_segment(MIB);
    let (mut stayed, mut went) = (0, 0);
    for round in 0..400u64 {
        for member in 0..MEMBERS {
            let key = format!("m{member}");
            if !pool.exists(&key, Probe::Only) {
                pool.put_grouped(&key, "g");
            }
        }
        pool.advance(20 * SECOND);
        // Some rounds have their winner whatever the scheduler does.
        match round % 10 {
            0 => drop(pool.get("m0")),
            1 => assert_eq!(pool.evict_bytes(1).keys, MEMBERS),
            _ => {}
        }
        let (pool, barrier) = (&pool, &std::sync::Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(move || {
                barrier.wait();
                (0..round % 40).for_each(|_| std::hint::spin_loop());
                let _ = pool.get(&format!("m{}", round % MEMBERS));
            });
            barrier.wait();
            (0..round % 37).for_each(|_| std::hint::spin_loop());
            pool.evict_bytes(1);
        });
        match (0..MEMBERS).filter(|member| pool.exists(&format!("m{member}"), Probe::Only)).count() as u64 {
            MEMBERS => stayed += 1,
            0 => went += 1,
            some => panic!("round {round}: {some} members are left"),
        }
    }
    assert!(stayed > 0 && went > 0, "{stayed} rounds won by the reader, {went} by the eviction");
    pool.catalog.assert_consistent();
}
