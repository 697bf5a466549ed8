//! Which segments objects go to.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MIB: u64 = 1 << 20;

fn settings(allocation_strategy: AllocationStrategy) -> CatalogSettings {
    CatalogSettings { allocation_strategy, ..CatalogSettings::default() }
}

fn names(found: &Found) -> Vec<&str> {
    found.replicas.iter().map(|replica| replica.0.as_str()).collect()
}

fn on_host(number: u64, name: &str, host: &str) -> Segment {
    Segment { host_id: host.into(), ..segment(number, name, MIB) }
}

#[test]
fn replicas_lie_in_segments_of_different_names_and_fewer_is_a_partial_success() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB), ("a", MIB)]);
    pool.config.replica_num = 3;
    let found = pool.put("key", 100);
    let names: BTreeSet<&str> = found.replicas.iter().map(|r| r.0.as_str()).collect();
    assert_eq!((found.replicas.len(), names.len()), (2, 2));
    assert_eq!(pool.catalog.stats().partial_allocations, 1);
    pool.config.replica_num = u64::MAX;
    assert_eq!(pool.put("more", 100).replicas.len(), 2);
    pool.catalog.assert_consistent();
    assert_eq!(pool.remove("key", Force::No), Ok(()));
    pool.catalog.assert_consistent();
}

#[test]
fn preferred_segments_are_tried_first_and_in_order() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB), ("c", MIB)]);
    pool.config.preferred_segments = vec!["nowhere".into(), "c".into(), "a".into()];
    for at in 0..10 {
        assert_eq!(pool.put(&format!("key-{at}"), 100).replicas[0].0, "c");
    }
    pool.config.replica_num = 2;
    let names = pool.put("two", 100).replicas.into_iter().map(|r| r.0).collect::<Vec<_>>();
    assert_eq!(names, ["c", "a"]);
    pool.config.replica_num = 1;
    pool.config.preferred_segment = "b".into();
    assert_eq!(pool.put("one", 100).replicas[0].0, "b", "the single form replaces the list");
    pool.config.preferred_segment = String::new();
    assert_eq!(pool.put("large", MIB - 2048).replicas[0].0, "c");
    assert_eq!(pool.put("next", MIB - 2048).replicas[0].0, "a", "full ones are passed over");
}

#[test]
fn a_batch_for_one_node_goes_to_one_segment() {
    let names: Vec<String> = (0..16).map(|at| format!("s{at:02}")).collect();
    let segments: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), MIB)).collect();
    let mut pool = Pool::with(CatalogSettings::default(), &segments);
    pool.config.prefer_alloc_in_same_node = true;
    let keys: Vec<String> = (0..20).map(|at| format!("key-{at}")).collect();
    let items: Vec<(&str, u64)> = keys.iter().map(|key| (key.as_str(), 100)).collect();
    let answers = pool.start_many(1, &items);
    let used: BTreeSet<String> = answers.into_iter().map(|answer| answer.unwrap().replicas[0].0.clone()).collect();
    assert_eq!(used.len(), 1);

    let on_host = Segment { host_id: "host-9".into(), ..segment(40, "near", MIB) };
    pool.mount(on_host, 140).unwrap();
    pool.config.host_id = "host-9".into();
    assert_eq!(pool.start(1, "local", 100).unwrap().replicas[0].0, "near");
}

/// The names where twenty new objects of a writer lie, and the fewest copies that one has.
fn places(pool: &mut Pool, writer: u64, prefix: &str) -> (BTreeSet<String>, usize) {
    let keys: Vec<String> = (0..20).map(|at| format!("{prefix}-{at}")).collect();
    let items: Vec<(&str, u64)> = keys.iter().map(|key| (key.as_str(), 100)).collect();
    let mut found: Vec<Found> = pool.start_many(writer, &items[..10]).into_iter().map(Result::unwrap).collect();
    found.extend(items[10..].iter().map(|(key, size)| pool.upsert_start(writer, key, *size).unwrap()));
    let fewest = found.iter().map(|found| found.replicas.len()).min().unwrap();
    (found.into_iter().flat_map(|found| found.replicas).map(|replica| replica.0).collect(), fewest)
}

#[test]
fn what_a_client_cannot_reach_gets_nothing_of_it_while_there_is_room_elsewhere() {
    for strategy in [AllocationStrategy::Balanced, AllocationStrategy::Random, AllocationStrategy::FreeRatioFirst] {
        let mut pool = Pool::with(settings(strategy), &[("a", MIB), ("b", MIB), ("c", MIB)]);
        pool.config.replica_num = 2;
        // The owner of "a".
        assert!(pool.catalog.note_cut(client(1), client(100), pool.now));
        assert_eq!(places(&mut pool, 1, "two"), (BTreeSet::from(["b".into(), "c".into()]), 2));
        assert!(places(&mut pool, 2, "other").0.contains("a"), "it is for one client");
        pool.catalog.note_cut(client(1), client(101), pool.now);
        assert_eq!(places(&mut pool, 1, "one"), (BTreeSet::from(["c".into()]), 1), "fewer copies, not one that fails");
        pool.config.preferred_segments = vec!["a".into()];
        assert_eq!(places(&mut pool, 1, "named").0, BTreeSet::from(["c".into()]));
        pool.catalog.note_cut(client(1), client(102), pool.now);
        assert_eq!(places(&mut pool, 1, "nowhere").1, 2, "as ever where there is nothing else");
        pool.advance(Duration::from_secs(3));
        assert!(places(&mut pool, 1, "later").0.contains("a"), "it is tried again");
        pool.catalog.assert_consistent();
    }
}

#[test]
fn a_place_that_its_writer_cannot_reach_is_taken_when_the_others_are_full() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB)]);
    pool.catalog.note_cut(client(1), client(100), pool.now);
    let homes: Vec<String> =
        (0..2).map(|at| pool.start(1, &format!("{at}"), MIB).unwrap().replicas[0].0.clone()).collect();
    assert_eq!(homes, ["b", "a"]);
}

#[test]
fn random_placement_reaches_every_segment() {
    let names: Vec<String> = (0..8).map(|at| format!("s{at}")).collect();
    let segments: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), MIB)).collect();
    let mut pool = Pool::with(CatalogSettings::default(), &segments);
    let used: BTreeSet<String> = (0..200).map(|at| pool.put(&format!("key-{at}"), 100).replicas[0].0.clone()).collect();
    assert_eq!(used.len(), 8);
}

#[test]
fn a_put_finds_the_only_segment_with_room_among_many() {
    let names: Vec<String> = (0..300).map(|at| format!("s{at}")).collect();
    let segments: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 4096)).collect();
    let mut pool = Pool::with(CatalogSettings::default(), &segments);
    for at in 0..300 {
        pool.start(1, &format!("key-{at}"), 4096).unwrap();
    }
    assert_eq!(pool.used(), 300 * 4096);
}

#[test]
fn free_ratio_first_evens_out() {
    let settings =
        CatalogSettings { allocation_strategy: AllocationStrategy::FreeRatioFirst, ..CatalogSettings::default() };
    let mut pool = Pool::with(settings, &[("small", MIB), ("large", 3 * MIB), ("full", MIB)]);
    pool.config.preferred_segment = "full".into();
    pool.put("filler", MIB / 2);
    pool.config.preferred_segment = String::new();
    for at in 0..400 {
        pool.put(&format!("key-{at}"), 4096);
    }
    let used: Vec<f64> = pool.catalog.segments().iter().map(|s| s.used().0 as f64 / s.capacity().0 as f64).collect();
    assert!((used[0] - used[1]).abs() < 0.02, "{used:?}");
    assert_eq!(used[2], 0.5, "the fuller one is left alone");
}

/// Always the last group that takes it.
struct LastFirst;

impl PlacementPolicy for LastFirst {
    fn place(
        &self,
        view: &PlacementView,
        request: &PlacementRequest<'_>,
        _random: &mut dyn Random,
        attempt: &mut dyn FnMut(usize) -> bool,
    ) {
        (0..view.groups().len()).rev().filter(|&at| attempt(at)).take(request.missing).for_each(drop);
    }
}

#[test]
fn another_placement_can_be_put_in() {
    let mut pool = Pool::new(CatalogSettings::default());
    pool.catalog = Catalog::with_placement(CatalogSettings::default(), Box::new(LastFirst)).unwrap();
    for (number, name) in [(1, "a"), (2, "b"), (3, "c")] {
        pool.mount(segment(number, name, MIB), number).unwrap();
    }
    assert_eq!(pool.put("key", 100).replicas[0].0, "c");
    pool.config.replica_num = 2;
    let names = pool.put("two", 100).replicas.into_iter().map(|r| r.0).collect::<Vec<_>>();
    assert_eq!(names, ["c", "b"]);
}

#[test]
fn replicas_lie_on_different_hosts_where_there_are_any() {
    for strategy in [AllocationStrategy::Balanced, AllocationStrategy::Random, AllocationStrategy::FreeRatioFirst] {
        let mut pool = Pool::new(settings(strategy));
        for (number, name, host) in [(1, "a1", "a"), (2, "a2", "a"), (3, "a3", "a"), (4, "b1", "b"), (5, "c1", "")] {
            pool.mount(on_host(number, name, host), number).unwrap();
        }
        pool.config.replica_num = 2;
        for at in 0..50 {
            let found = pool.put(&format!("two-{at}"), 100);
            let on_a = names(&found).iter().filter(|name| name.starts_with('a')).count();
            assert!(found.replicas.len() == 2 && on_a < 2, "{strategy:?}: {:?}", names(&found));
        }
        pool.config.replica_num = 5;
        assert_eq!(pool.put("five", 100).replicas.len(), 5, "one host is better than no replica");
        pool.config.replica_num = 2;
        pool.config.preferred_segments = vec!["a1".into(), "a2".into()];
        assert_eq!(names(&pool.put("named", 100)), ["a1", "a2"], "what the caller names is done");
        pool.catalog.assert_consistent();
    }
}

#[test]
fn hosts_are_told_from_addresses_if_need_be() {
    let mut pool = Pool::new(settings(AllocationStrategy::Random));
    let endpoints = ["10.0.0.1:7", "10.0.0.1:8", "[fe80::1]:7", "127.0.0.1:1", "localhost:2"];
    for (number, endpoint) in (1..).zip(endpoints) {
        let name = format!("s{number}");
        pool.mount(Segment { te_endpoint: endpoint.into(), ..segment(number, &name, MIB) }, number).unwrap();
    }
    pool.config.replica_num = 4;
    for at in 0..30 {
        let found = pool.put(&format!("key-{at}"), 100);
        let used: BTreeSet<&str> = names(&found).into_iter().collect();
        assert!(used.contains("s3") && used.contains("s4") && used.contains("s5"), "{used:?}");
    }
}

#[test]
fn local_first_goes_by_hosts_in_order_and_turns_within_one() {
    let mut pool = Pool::new(settings(AllocationStrategy::LocalFirst));
    for (number, name, host) in [(1, "a1", "a"), (2, "c1", "c"), (3, "c2", "c"), (4, "d1", "d"), (5, "x", "")] {
        let endpoint = format!("127.0.0.1:{number}");
        pool.mount(Segment { te_endpoint: endpoint, ..on_host(number, name, host) }, number).unwrap();
    }
    let used = |pool: &mut Pool, host: &str, count: usize, size: u64| {
        pool.config.host_id = host.into();
        let at = pool.catalog.stats().keys;
        let used = (0..count).map(|key| pool.put(&format!("{host}-{at}-{key}"), size).replicas[0].0.clone());
        used.collect::<BTreeSet<String>>().into_iter().collect::<Vec<_>>()
    };
    assert_eq!(used(&mut pool, "c", 40, 100), ["c1", "c2"], "turned by the key");
    assert_eq!(used(&mut pool, "b", 40, 100), ["c1", "c2"], "the next host in order");
    assert_eq!(used(&mut pool, "a", 5, 100), ["a1"]);
    assert_eq!(used(&mut pool, "e", 5, 100), ["a1"], "after the last comes the first");
    assert_eq!(used(&mut pool, "", 200, 100).len(), 5, "an unknown writer is nowhere near");
    assert_eq!(used(&mut pool, "d", 1, MIB / 2), ["d1"]);
    assert_eq!(used(&mut pool, "d", 1, MIB * 3 / 4), ["a1"], "full ones are passed over");
    pool.config.preferred_segments = vec!["c1".into()];
    assert_eq!(used(&mut pool, "d", 5, 100), ["c1"], "what the caller names comes first");
    pool.config.preferred_segments.clear();
    pool.config.replica_num = 2;
    let spread: BTreeSet<String> =
        (0..60).flat_map(|at| pool.put(&format!("two-{at}"), 100).replicas).map(|r| r.0).collect();
    assert_eq!(spread.len(), 5, "only single replicas stay near");
}

#[test]
fn one_node_for_a_batch_counts_with_every_strategy() {
    let mut pool = Pool::new(settings(AllocationStrategy::Random));
    for (number, name, host) in [(1, "a", "a"), (2, "b", "b"), (3, "c", "c")] {
        pool.mount(on_host(number, name, host), number).unwrap();
    }
    pool.config.prefer_alloc_in_same_node = true;
    pool.config.host_id = "b".into();
    let used: BTreeSet<String> = (0..30).map(|at| pool.put(&format!("key-{at}"), 100).replicas[0].0.clone()).collect();
    assert_eq!(used.into_iter().collect::<Vec<_>>(), ["b"]);
}

#[test]
fn the_strategy_for_cxl_takes_the_first_preferred_segment_or_nothing() {
    let mut pool = Pool::with(settings(AllocationStrategy::Cxl), &[("a", MIB), ("b", MIB)]);
    assert_eq!(pool.start(1, "key", 100), Err(PutRefusal::PreferredNeeded));
    assert_eq!(PutRefusal::PreferredNeeded.code(), ErrorCode::INVALID_PARAMS);
    pool.config.preferred_segments = vec!["b".into(), "a".into()];
    pool.config.replica_num = 2;
    assert_eq!(names(&pool.put("key", 100)), ["b"]);
    pool.config.preferred_segments = vec!["x".into(), "a".into()];
    assert_eq!(pool.start(1, "other", 100), Err(PutRefusal::NothingEvictable));
}

#[test]
fn the_strategy_for_disks_goes_by_their_free_share() {
    let mut pool = Pool::with(settings(AllocationStrategy::SsdFreeRatioFirst), &[("a", MIB), ("b", MIB), ("c", MIB)]);
    pool.catalog.report_disk(client(100), 1000, 500);
    pool.catalog.report_disk(client(101), 1000, 100);
    pool.catalog.report_disk(client(102), 1000, 2000);
    for at in 0..20 {
        assert_eq!(names(&pool.put(&format!("key-{at}"), 100)), ["b"]);
    }
    pool.catalog.report_disk(client(102), 0, 7);
    assert_eq!(names(&pool.put("unknown", 100)), ["c"], "an unknown disk counts as empty");
}

#[test]
fn a_full_pool_of_many_segments_is_searched_through_before_a_put_is_refused() {
    for strategy in [AllocationStrategy::Balanced, AllocationStrategy::Random, AllocationStrategy::FreeRatioFirst] {
        let settings = CatalogSettings { inline_eviction_budget: 0, ..settings(strategy) };
        let names: Vec<String> = (0..300).map(|at| format!("s{at}")).collect();
        let segments: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 4096)).collect();
        let mut pool = Pool::with(settings, &segments);
        for at in 0..300 {
            pool.start(1, &format!("key-{at}"), 4096).unwrap();
        }
        assert_eq!(pool.start(1, "more", 1).unwrap_err().code(), ErrorCode::NO_AVAILABLE_HANDLE);
        assert_eq!(pool.used(), 300 * 4096);
        pool.catalog.put_revoke_quiet(&pool.caller(1), ReplicaType::ALL, ["key-77"], |_, result| result.unwrap());
        assert!(pool.start(1, "more", 4096).is_ok(), "{strategy:?}");
    }
}

/// Objects come and go until every place was taken several times; answers the filled share of each segment.
fn churn(pool: &mut Pool, keys: &mut Vec<String>, share: f64, rounds: usize) -> Vec<f64> {
    let mut dice = 1u64;
    let mut roll = move |bound: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 16) as usize % bound
    };
    let used = |pool: &Pool| -> u64 { pool.catalog.segments().iter().map(|segment| segment.used().0).sum() };
    let limit = (pool.catalog.stats().capacity_bytes as f64 * share) as u64;
    for _ in 0..rounds {
        while used(pool) + 256 * 1024 > limit {
            let key = keys.swap_remove(roll(keys.len()));
            pool.remove(&key, Force::No).unwrap();
        }
        let key = format!("key-{}-{}", keys.len(), roll(usize::MAX));
        let size = [4096, 64 * 1024, 256 * 1024][roll(3)];
        pool.put(&key, size);
        keys.push(key);
    }
    pool.catalog.segments().iter().map(|s| s.used().0 as f64 / s.capacity().0 as f64).collect()
}

#[test]
fn segments_of_unequal_size_stay_evenly_full_and_an_empty_one_is_not_overrun() {
    let sizes = [("a", 64 * MIB), ("b", 64 * MIB), ("c", 160 * MIB), ("d", 32 * MIB)];
    let settings = CatalogSettings {
        inline_eviction_budget: 0,
        client_ttl: Duration::from_secs(600),
        ..CatalogSettings::default()
    };
    let mut pool = Pool::with(settings, &sizes);
    pool.advance(Duration::from_secs(20));
    pool.catalog.expire_clients(pool.now, &mut pool.effects);
    let mut keys = Vec::new();
    let filled = churn(&mut pool, &mut keys, 0.9, 12_000);
    let (low, high) = (filled.iter().copied().fold(1.0, f64::min), filled.iter().copied().fold(0.0, f64::max));
    assert!(high - low < 0.05, "{filled:?}");

    pool.mount(segment(9, "empty", 40 * MIB), 900).unwrap();
    // Its share grows from half of that of the others to twice as much, as it is the emptiest.
    let fair = 40.0 / 360.0;
    let mut shares = Vec::new();
    for step in 0..5 {
        let names = (0..400).map(|at| pool.put(&format!("new-{step}-{at}"), 4096).replicas[0].0.clone());
        shares.push(names.filter(|name| name == "empty").count() as f64 / 400.0);
        pool.advance(Duration::from_secs(2));
        pool.catalog.expire_clients(pool.now, &mut pool.effects);
    }
    assert!(shares[0] < 0.9 * fair && shares[0] > 0.1 * fair, "{shares:?} of the new objects, {fair} of the bytes");
    assert!(shares[4] < 2.2 * fair && shares[4] > fair, "{shares:?} of the new objects, {fair} of the bytes");
}

#[test]
fn batches_at_the_same_time_keep_apart() {
    let large = 1 << 30;
    let pool = Pool::with(settings(AllocationStrategy::Balanced), &[("a", large), ("b", large)]);
    let config = ReplicateConfig::default();
    let call = PutCall { caller: pool.caller(1), config: &config, allow_empty: false, waited: false };
    let mut dice = 1u64;
    let mut random = || {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        dice
    };
    let put = |keys: &mut dyn ExactSizeIterator<Item = String>, random: &mut dyn Random| {
        let mut last = String::new();
        let items = keys.map(|key| (key, 64));
        let mut random = || random.next_u64();
        pool.catalog.put_start(&call, items, &mut random, &mut Effects::default(), |_, found| {
            last = Found::from(found.unwrap()).replicas[0].0.clone();
        });
        last
    };
    // Keys are taken 16 at a time: when the seventeenth is asked for, the batch is at work in its segment.
    let (mut inner, mut others) = (Vec::new(), Xorshift(7));
    let mut keys = (0..17).map(|at| {
        if at == 16 {
            inner = (0..200).map(|n| put(&mut (0..2).map(|k| format!("inner-{n}-{k}")), &mut others)).collect();
        }
        format!("outer-{at}")
    });
    let outer = put(&mut keys, &mut random);
    drop(keys);
    let together = inner.iter().filter(|name| **name == outer).count();
    // Where both draws are the same segment there is no choice: a quarter.
    assert!((25..75).contains(&together), "{together} of 200 went where another batch was");
}

struct Xorshift(u64);

impl Random for Xorshift {
    fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[test]
fn a_long_list_of_preferred_segments_is_cut_to_those_that_are_there_each_once() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB), ("c", MIB)]);
    let mut config = pool.config.clone();
    config.preferred_segments = (0..300_000).map(|_| String::new()).collect();
    config.preferred_segments.extend(["nowhere", "c", "a", "c", "a"].map(String::from));
    pool.catalog.narrow_preferred(&mut config);
    assert_eq!(config.preferred_segments, ["", "c", "a"], "the first one is the only one that some placements look at");
    pool.config = config;
    assert_eq!(pool.put("key", 100).replicas[0].0, "c");

    let names: Vec<String> = (0..200).map(|at| format!("n{at}")).collect();
    let many: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 4096)).collect();
    let pool = Pool::with(CatalogSettings::default(), &many);
    let mut config = ReplicateConfig { preferred_segments: names.clone(), ..pool.config.clone() };
    pool.catalog.narrow_preferred(&mut config);
    assert_eq!(config.preferred_segments[..], names[..64]);
}
