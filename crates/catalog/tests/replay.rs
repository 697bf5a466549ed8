//! A workload played to a whole catalog keeps what the policy alone would keep: what the calls tell is enough.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_evict::{Access, simulate, workload};

const BLOCK: u64 = 64;
const CAPACITY: u64 = 2000;

/// Hits of the blocks of all requests.
fn play(pool: &mut Pool, accesses: &[Access]) -> u64 {
    let start = pool.now;
    let mut hits = 0;
    for access in accesses {
        pool.now = start + Duration::from_nanos(access.at.0);
        let names: Vec<String> = access.keys.iter().map(|key| format!("block-{}", key.0)).collect();
        let mut missing = Vec::new();
        pool.catalog.exist(T, &names, Probe::Lease, pool.now, |at, found| {
            if found { hits += 1 } else { missing.push(names[at].clone()) }
        });
        missing.dedup();
        let items: Vec<(&str, u64)> = missing.iter().map(|name| (name.as_str(), BLOCK)).collect();
        let stored: Vec<bool> = pool.start_many(1, &items).iter().map(Result::is_ok).collect();
        let stored: Vec<String> =
            missing.iter().zip(stored).filter(|(_, ok)| *ok).map(|(name, _)| name.clone()).collect();
        pool.end_many(1, &stored);
    }
    hits
}

#[test]
fn a_catalog_hits_as_often_as_its_policy() {
    let accesses = workload::generate(1, 2500);
    let blocks: usize = accesses.iter().map(|access| access.keys.len()).sum();
    for kind in [PolicyKind::Chain, PolicyKind::Lru] {
        // The blocks of the running request are leased, and no others.
        let settings =
            CatalogSettings { eviction_policy: kind, lease_ttl: Duration::from_nanos(1), ..CatalogSettings::default() };
        let mut pool = Pool::with(settings, &[("a", CAPACITY * BLOCK)]);
        let hits = play(&mut pool, &accesses) as f64 / blocks as f64;
        pool.catalog.assert_consistent();
        let expected = simulate(&accesses, &mut kind.keyed(), CAPACITY as usize, &mut |_| ()).block_hit_ratio();
        assert!((hits - expected).abs() < 0.01, "{kind}: {hits:.4}, the policy alone {expected:.4}");
    }
}
