//! What an operator asks and changes while the catalog runs: why a key is not there, and other settings.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MIB: u64 = 1 << 20;

fn why(pool: &Pool, key: &str) -> Absence {
    pool.catalog.why_absent(Tenant::DEFAULT, key.as_bytes())
}

#[test]
fn a_miss_says_why() {
    let mut pool = Pool::with_segment(MIB);
    for key in ["evicted", "removed", "kept"] {
        pool.put(key, 1024);
        pool.advance(SECOND);
    }
    let goal = EvictionGoal { target: ByteLen(1), at_least: ByteLen(1) };
    assert_eq!(pool.catalog.evict(&goal, 100, pool.now).keys, 1);
    pool.catalog.remove(Tenant::DEFAULT, [b"removed"], Force::Yes, pool.now, |_, answer| answer.unwrap());
    assert_eq!(why(&pool, "evicted"), Absence::Evicted);
    assert_eq!(why(&pool, "removed"), Absence::Removed);
    assert_eq!(why(&pool, "never"), Absence::NeverSeen);
}

#[test]
fn settings_change_while_it_runs() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("key", 1024);
    let old = pool.catalog.settings().clone();
    let bad = CatalogSettings { eviction_ratio: 2.0, ..old.clone() };
    assert_eq!(pool.catalog.retune(bad), Err(BadSettings::EvictionRatio));
    let lease_ttl = Duration::from_secs(100);
    pool.catalog.retune(CatalogSettings { lease_ttl, hash_seed: 77, ..old.clone() }).unwrap();
    assert_eq!(pool.catalog.settings().hash_seed, old.hash_seed, "keys stay where they are");
    pool.get("key").unwrap();
    pool.advance(99 * SECOND);
    let mut answers = Vec::new();
    pool.catalog.remove(Tenant::DEFAULT, [b"key"], Force::No, pool.now, |_, answer| answers.push(answer));
    assert_eq!(answers, [Err(ErrorCode::OBJECT_HAS_LEASE)]);
}

#[test]
fn steps_of_a_silent_client_are_counted() {
    let mut pool = Pool::with_segment(MIB);
    let mut effects = Effects::default();
    let steps = |pool: &Pool| {
        let stats = pool.catalog.stats();
        (stats.clients_suspected, stats.clients_offline, stats.clients_recovered, stats.clients_expired)
    };
    let mut silent_for = |pool: &mut Pool, seconds: u32| {
        for _ in 0..seconds {
            pool.advance(SECOND);
            pool.catalog.expire_clients(pool.now, &mut effects);
        }
    };
    let owner = pool.catalog.segments()[0].owner();
    pool.catalog.ping(owner, pool.now).unwrap();
    silent_for(&mut pool, 12);
    assert_eq!(steps(&pool), (1, 1, 0, 0));
    pool.catalog.ping(owner, pool.now).unwrap();
    assert_eq!(steps(&pool), (1, 1, 1, 0));
    silent_for(&mut pool, 40);
    assert_eq!(steps(&pool), (2, 2, 1, 1));
}
