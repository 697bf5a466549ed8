//! Lookups, leases, removal.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MIB: u64 = 1 << 20;

fn lease_end(pool: &Pool, key: &str) -> MonotonicTime {
    let mut end = None;
    pool.catalog.peek(T, [key], |_, found| end = found.ok().and_then(|view| view.lease_end()));
    end.unwrap()
}

#[test]
fn a_missing_key_is_a_miss() {
    let pool = Pool::with_segment(MIB);
    assert_eq!(pool.get("key"), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert!(!pool.exists("key", Probe::Lease));
    assert_eq!(pool.remove("key", Force::No), Err(ErrorCode::OBJECT_NOT_FOUND));
}

#[test]
fn tenants_do_not_see_each_other() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("key", 10);
    let other = Tenant(7);
    pool.catalog.get_replicas(other, ["key"], pool.now, |_, found| {
        assert_eq!(found.err(), Some(ErrorCode::OBJECT_NOT_FOUND));
    });
    assert_eq!(pool.catalog.remove_all(Some(other), Force::Yes, pool.now), 0);
    assert_eq!(pool.catalog.remove_all(None, Force::Yes, pool.now), 1);
}

#[test]
fn reads_and_existence_lease_and_the_rest_does_not() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("key", 10);
    let start = pool.now;
    assert_eq!(lease_end(&pool, "key"), start, "an end protects nothing");
    pool.advance(SECOND);
    assert!(pool.exists("key", Probe::Only));
    pool.peek("key").unwrap();
    pool.catalog.list(T, ListCursor::default(), 10, |_| {});
    assert_eq!(lease_end(&pool, "key"), start);
    assert!(pool.exists("key", Probe::Lease));
    assert_eq!(lease_end(&pool, "key"), start + 11 * SECOND);
    pool.advance(SECOND);
    pool.get("key").unwrap();
    assert_eq!(lease_end(&pool, "key"), start + 12 * SECOND);
    pool.catalog.get_replicas(T, ["key"], start, |_, found| assert!(found.is_ok()));
    assert_eq!(lease_end(&pool, "key"), start + 12 * SECOND, "a lease never moves back");
}

#[test]
fn answers_of_a_batch_keep_their_order() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("a", 1);
    pool.start(1, "b", 2).unwrap();
    let mut answers = Vec::new();
    pool.catalog.get_replicas(T, ["c", "b", "a", "a"], pool.now, |at, found| {
        assert_eq!(at, answers.len());
        answers.push(found.map(|view| view.size()));
    });
    let (missing, busy) = (Err(ErrorCode::OBJECT_NOT_FOUND), Err(ErrorCode::REPLICA_IS_NOT_READY));
    assert_eq!(answers, [missing, busy, Ok(1), Ok(1)]);
}

#[test]
fn a_lease_stops_a_removal_until_it_ends() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("key", 1000);
    pool.get("key").unwrap();
    assert_eq!(pool.remove("key", Force::No), Err(ErrorCode::OBJECT_HAS_LEASE));
    pool.advance(10 * SECOND);
    assert_eq!(pool.remove("key", Force::No), Ok(()), "a lease has ended when its last moment is now");
    assert_eq!(pool.used(), 0);
}

#[test]
fn a_forced_removal_keeps_the_space_until_the_lease_ends() {
    let mut pool = Pool::with_segment(MIB);
    let old = pool.put("key", 1000);
    pool.get("key").unwrap();
    assert_eq!(pool.remove("key", Force::Yes), Ok(()));
    assert_eq!(pool.get("key"), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert!(pool.effects.quiesce.is_empty(), "no node can speak for a reader");
    let segment = SegmentId(Uuid { first: 1, second: 2 });
    assert!(!pool.catalog.confirm_quiesced(segment, old.replicas[0].1, old.generation));
    let new = pool.put("key", 1000);
    assert_ne!(old.replicas[0].1, new.replicas[0].1);
    pool.advance(9 * SECOND);
    pool.upkeep();
    assert_eq!(pool.used(), 2048);
    pool.advance(SECOND);
    pool.upkeep();
    assert_eq!(pool.used(), 1024);
    pool.catalog.assert_consistent();
}

#[test]
fn a_lease_that_is_longer_than_any_read_does_not_keep_removed_space() {
    let settings = CatalogSettings { lease_ttl: Duration::from_secs(1000), ..CatalogSettings::default() };
    let mut pool = Pool::with(settings, &[("a", 4096)]);
    pool.put("key", 4096);
    pool.get("key").unwrap();
    pool.advance(10 * SECOND);
    assert_eq!(pool.remove("key", Force::No), Err(ErrorCode::OBJECT_HAS_LEASE));
    assert_eq!(pool.remove("key", Force::Yes), Ok(()));
    pool.advance(READ_LIMIT - SECOND);
    assert!(pool.start(1, "next", 4096).is_err(), "it counts from the removal");
    pool.advance(SECOND);
    pool.put("next", 4096);
    pool.catalog.assert_consistent();
}

#[test]
fn pins_do_not_stop_a_removal() {
    let mut pool = Pool::with_segment(MIB);
    pool.config.with_hard_pin = true;
    pool.config.soft_pin_action = SoftPinAction::ENABLE;
    pool.put("key", 1000);
    assert_eq!(pool.catalog.stats().soft_pins, 1);
    assert_eq!(pool.remove("key", Force::No), Ok(()));
    assert_eq!(pool.catalog.stats().soft_pins, 0);
    pool.catalog.assert_consistent();
}

#[test]
fn patterns_search_and_grant_leases() {
    let mut pool = Pool::with_segment(MIB);
    for key in ["model/a/1", "model/b/1", "other", "model/busy"] {
        pool.start(1, key, 10).unwrap();
    }
    for key in ["model/a/1", "model/b/1", "other"] {
        pool.end(1, key).unwrap();
    }
    let pattern = KeyPattern::new(b"del/").unwrap();
    let found = pool.found_by_regex(&pattern).unwrap();
    assert_eq!(found, [b"model/a/1".to_vec(), b"model/b/1".to_vec()]);
    assert_eq!(lease_end(&pool, "model/a/1"), pool.now + 10 * SECOND);
    assert_eq!(lease_end(&pool, "other"), pool.now);

    assert_eq!(pool.remove_by_regex(&KeyPattern::new(b"^").unwrap(), Force::No), Ok(1));
    assert_eq!(pool.remove_by_regex(&pattern, Force::Yes), Ok(2));
    assert_eq!(pool.catalog.stats().keys, 1, "the unfinished put stays");
}

#[test]
fn bad_and_hostile_patterns_are_refused() {
    for pattern in ["(", "[", "(?=x", "(a{1000}){1000}"] {
        assert_eq!(KeyPattern::new(pattern.as_bytes()).err(), Some(ErrorCode::INVALID_PARAMS), "{pattern}");
    }
    assert!(KeyPattern::new(br"^k\d+\.[a-z]{2}$").is_ok());
}

#[test]
fn remove_all_passes_over_what_is_leased_or_busy() {
    let mut pool = Pool::with_segment(MIB);
    for at in 0..100 {
        pool.put(&format!("key-{at}"), 100);
    }
    pool.get("key-5").unwrap();
    pool.start(1, "busy", 100).unwrap();
    assert_eq!(pool.catalog.remove_all(Some(T), Force::No, pool.now), 99);
    assert_eq!(pool.catalog.remove_all(Some(T), Force::Yes, pool.now), 1);
    assert_eq!(pool.catalog.stats().keys, 1);
    pool.catalog.assert_consistent();
}

#[test]
fn a_listing_in_pages_meets_every_readable_key_once() {
    let mut pool = Pool::with_segment(MIB);
    let mut expected: Vec<String> = (0..500).map(|at| format!("key-{at}")).collect();
    for key in &expected {
        pool.put(key, 64);
    }
    pool.start(1, "busy", 64).unwrap();
    let mut listed = Vec::new();
    let mut pages = 0;
    let mut from = Some(ListCursor::default());
    while let Some(at) = from {
        pages += 1;
        from = pool.catalog.list(T, at, 50, |view| listed.push(String::from_utf8(view.key().to_vec()).unwrap()));
    }
    listed.sort();
    expected.sort();
    assert_eq!(listed, expected);
    assert!((5..=10).contains(&pages), "{pages} pages");
}

#[test]
fn a_walk_for_a_pattern_meets_every_key_in_small_steps() {
    let mut pool = Pool::with_segment(MIB);
    (0..500).for_each(|at| drop(pool.put(&format!("key-{at}"), 64)));
    pool.start(1, "key-unfinished", 64).unwrap();
    let pattern = KeyPattern::new(b"^key-(?!1)").unwrap();
    let (mut walk, mut found, mut steps) = (KeyWalk::default(), Vec::new(), 0);
    while pool.catalog.find_keys(T, &pattern, &mut walk, 100, &mut found).unwrap() {
        steps += 1;
    }
    assert!(steps > 10, "{steps} steps over 1024 shards");
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 500 - 111);
    let endless = KeyPattern::new(b"^(?=(.+)+$)(?:.|.)*\\1z").unwrap();
    pool.put(&"k".repeat(64), 64);
    let removed = pool.remove_by_regex(&endless, Force::Yes);
    assert_eq!(removed, Err(ErrorCode::INVALID_PARAMS), "no key may take more than a bounded number of steps");
}

#[test]
fn replicas_are_cleared_by_their_writer_only_and_not_under_a_lease() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB)]);
    pool.config.replica_num = 2;
    for key in ["both", "one", "leased"] {
        pool.put(key, 1024);
    }
    pool.start(1, "unfinished", 1024).unwrap();
    pool.get("leased").unwrap();
    let clear = |pool: &Pool, writer, segment, keys: &[&str]| {
        let mut went = Vec::new();
        pool.catalog.clear_replicas(&pool.caller(writer), segment, keys, |_, yes| went.push(yes));
        went
    };
    let keys = ["both", "one", "leased", "unfinished", "absent"];
    assert_eq!(clear(&pool, 2, None, &keys), [false; 5], "of somebody else");
    assert_eq!(clear(&pool, 1, Some("a"), &["one", "leased"]), [true, false]);
    let left: Vec<String> = pool.peek("one").unwrap().replicas.into_iter().map(|replica| replica.0).collect();
    assert_eq!(left, ["b"]);
    assert_eq!(clear(&pool, 1, Some("a"), &["one"]), [false], "nothing of it is there any more");
    assert_eq!(clear(&pool, 1, Some("nowhere"), &["one"]), [false]);
    assert_eq!(clear(&pool, 1, Some("b"), &["one"]), [true], "the last replica takes the object along");
    assert_eq!(clear(&pool, 1, None, &keys), [true, false, false, false, false]);
    assert_eq!(pool.peek("both"), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(pool.used(), 2 * 2 * 1024);
    pool.catalog.assert_consistent();
}

#[test]
fn a_batch_of_removals_gives_all_its_space_back() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", 1 << 20), ("b", 1 << 20)]);
    let keys: Vec<String> = (0..300).map(|at| format!("key-{at}")).collect();
    keys.iter().for_each(|key| drop(pool.put(key, 1000)));
    pool.get("key-7").unwrap();
    let (mut removed, mut refused) = (0, 0);
    pool.catalog.remove(T, &keys, Force::No, pool.now, |at, result| match result {
        Ok(()) => removed += 1,
        Err(code) => {
            assert_eq!((at, code), (7, ErrorCode::OBJECT_HAS_LEASE));
            refused += 1;
        }
    });
    assert_eq!((removed, refused), (299, 1));
    pool.catalog.assert_consistent();
    assert_eq!(pool.catalog.stats().keys, 1);
    let left = pool.catalog.stats().allocated_bytes;
    assert!((1000..=1024).contains(&left), "{left} bytes are in use by one object");
    // With force the leased one goes too, its space when the lease ends.
    pool.catalog.remove(T, &keys, Force::Yes, pool.now, |_, _| {});
    assert_eq!(pool.catalog.stats().allocated_bytes, left);
    pool.advance(pool.catalog.settings().lease_ttl);
    pool.catalog.upkeep(1000, pool.now, &mut Effects::default());
    assert_eq!(pool.catalog.stats().allocated_bytes, 0);
    pool.catalog.assert_consistent();
}

#[test]
fn a_batch_of_removals_is_remembered() {
    let mut pool = Pool::with_segment(1 << 20);
    let keys: Vec<String> = (0..200).map(|at| format!("key-{at}")).collect();
    keys.iter().for_each(|key| drop(pool.put(key, 64)));
    assert_eq!(pool.catalog.why_absent(T, b"key-0"), Absence::NeverSeen);
    pool.catalog.remove(T, &keys, Force::No, pool.now, |_, result| assert_eq!(result, Ok(())));
    // One in a thousand may have lost its place to another.
    let known = keys.iter().filter(|key| pool.catalog.why_absent(T, key.as_bytes()) == Absence::Removed).count();
    assert!(known > 190, "{known} of 200 are remembered");
}
