//! Memory of the master that what it knows of objects may take.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MIB: u64 = 1 << 20;

/// A master with so much memory for what it knows of objects.
fn pool(objects_memory: u64) -> Pool {
    let settings = CatalogSettings { objects_memory: ByteLen(objects_memory), ..CatalogSettings::default() };
    Pool::with(settings, &[("a", 64 * MIB)])
}

fn weight(pool: &Pool) -> u64 {
    pool.catalog.assert_consistent();
    pool.catalog.stats().objects_memory_bytes
}

#[test]
fn names_that_are_too_long_are_refused() {
    let mut pool = pool(1 << 40);
    pool.start(1, &"k".repeat(65_536), 1).unwrap();
    let refused = pool.start(1, &"k".repeat(65_537), 1).unwrap_err();
    assert_eq!((refused, refused.code()), (PutRefusal::NameTooLong, ErrorCode::INVALID_PARAMS));
    assert!(!refused.is_retryable());
    assert_eq!(pool.upsert_start(1, &"k".repeat(65_537), 1).unwrap_err(), PutRefusal::NameTooLong);
    assert!((65_536..70_000).contains(&weight(&pool)));
}

#[test]
fn small_objects_and_long_keys_fill_the_masters_memory_and_make_room_again() {
    for key_bytes in [10, 512] {
        let mut pool = pool(16 * MIB);
        let name = |number: u32| format!("{number:0key_bytes$}");
        let mut number = 0;
        let refused = loop {
            match pool.start(1, &name(number), 1) {
                Ok(_) => pool.end(1, &name(number)).unwrap(),
                Err(refusal) => break refusal,
            }
            number += 1;
            assert!(number < 70_000, "nothing bounds the memory");
        };
        assert_eq!((refused, refused.code()), (PutRefusal::MasterFull, ErrorCode::NO_AVAILABLE_HANDLE));
        assert!(refused.is_retryable());
        let used = weight(&pool);
        // The fullest of the shards has its share: keys are spread evenly, not exactly.
        assert!((3 * MIB..=16 * MIB).contains(&used), "{used} with keys of {key_bytes}");
        // The janitor was asked, though the pool itself is nearly empty.
        let goal = pool.catalog.eviction_goal(pool.now).unwrap();
        pool.advance(Duration::from_secs(60));
        assert!(pool.catalog.evict(&goal, u32::MAX, pool.now).keys > 0);
        assert!(weight(&pool) < used);
    }
}

#[test]
fn what_goes_takes_its_weight_along() {
    let mut pool = pool(1 << 40);
    for (number, key) in ["short".to_owned(), "l".repeat(5000)].iter().enumerate() {
        pool.start(1, key, 1).unwrap();
        if number == 0 {
            pool.end(1, key).unwrap();
        }
    }
    assert!(weight(&pool) > 5000);
    pool.revoke(1, &"l".repeat(5000)).unwrap();
    assert!(weight(&pool) < 1000);
    pool.remove("short", Force::Yes).unwrap();
    assert_eq!(weight(&pool), 0);
}
