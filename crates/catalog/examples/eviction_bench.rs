//! What eviction and memory cost inside the catalog:
//!
//! - `memory [keys]`: bytes a key when loaded, after the pool was turned over (ghosts included), and what is left after
//!   everything was removed;
//! - `victims`: nanoseconds a victim in pools of 10,000 to 5,000,000 keys, median of 51 rounds;
//! - `threads [keys]`: a mixed load with one thread and with two.
//!
//! `cargo run --release -p yb-catalog --example eviction_bench -- memory 1000000`
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use yb_catalog::*;
use yb_env::{Clock, Rng};
use yb_types::*;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: usize = 128;
const SEGMENTS: u64 = 4;
const SIZE: u64 = 64 << 10;
const WRITER: ClientId = ClientId(Uuid { first: 77, second: 78 });

/// A key of 45 bytes.
fn key(number: u64) -> [u8; 45] {
    let mut key = [b'0'; 45];
    for (place, digit) in key.iter_mut().rev().zip(number.to_string().into_bytes().into_iter().rev()) {
        *place = digit;
    }
    key
}

/// Resident bytes of this process, 0 where `/proc` is missing.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// A pool that holds so many objects.
fn pool(objects: u64) -> Catalog {
    let settings = CatalogSettings { hash_seed: 42, ..CatalogSettings::default() };
    let catalog = Catalog::new(settings).expect("default settings are consistent");
    for number in 1..=SEGMENTS {
        let segment = Segment {
            id: SegmentId(Uuid { first: number, second: 1 }),
            name: format!("node-{number}:17800"),
            base: number << 44,
            size: objects.div_ceil(SEGMENTS) * SIZE,
            te_endpoint: format!("node-{number}:17801"),
            protocol: "tcp".into(),
            ..Segment::default()
        };
        let owner = ClientId(Uuid { first: number, second: 2 });
        catalog.mount(segment, owner, MonotonicTime(1), &mut Effects::default()).expect("a fresh segment mounts");
    }
    catalog
}

/// Puts the keys of a range in batches, and lets the policy hear of it as the janitor would.
fn put(catalog: &Catalog, keys: std::ops::Range<u64>, rng: &mut Rng, now: MonotonicTime) -> u64 {
    let caller = Caller { tenant: Tenant::DEFAULT, client: WRITER, now };
    let config = ReplicateConfig::default();
    let call = PutCall { caller, config: &config, allow_empty: false, waited: false };
    let mut effects = Effects::default();
    let mut stored = 0;
    for first in keys.clone().step_by(BATCH) {
        let batch: Vec<[u8; 45]> = (first..keys.end.min(first + BATCH as u64)).map(key).collect();
        let items = batch.iter().map(|key| (key, SIZE));
        catalog.put_start(&call, items, &mut || rng.next_u64(), &mut effects, |_, answer| {
            stored += u64::from(answer.is_ok());
        });
        let items = batch.iter().map(|key| (key, None));
        catalog.put_end(&caller, ReplicaType::ALL, items, |_, _| ());
        if first % (1 << 16) == 0 {
            catalog.upkeep(4096, now, &mut effects);
        }
    }
    catalog.upkeep(4096, now, &mut effects);
    stored
}

fn memory(keys: u64) {
    let (clock, mut rng) = (Clock::real(), Rng::seeded(7));
    let start = resident();
    let catalog = pool(keys);
    let stored = put(&catalog, 0..keys, &mut rng, clock.now());
    let bytes = |label: &str| {
        let held = resident().saturating_sub(start);
        println!("{label:<52} {:>8.1} bytes a key, {:>6} MiB", held as f64 / keys as f64, held >> 20);
    };
    println!("{stored} of {keys} keys of 45 bytes, one replica, {SEGMENTS} segments");
    bytes("loaded");
    put(&catalog, keys..keys * 2, &mut rng, clock.now());
    bytes("turned over once: every key evicted, with ghosts");
    let removed = catalog.remove_all(None, Force::Yes, clock.now() + Duration::from_secs(60));
    for _ in 0..40 {
        catalog.upkeep(1 << 20, clock.now(), &mut Effects::default());
        drop(std::hint::black_box(Vec::<u8>::with_capacity(2 << 20)));
        yb_env::sleep(Duration::from_millis(100));
    }
    println!("{removed} removed, {} left", catalog.stats().keys);
    bytes("after remove_all");
}

/// Nanoseconds a victim, median of rounds; after each, as many keys are put as went.
fn victim_cost(keys: u64) -> f64 {
    const VICTIMS: u64 = 400;
    const ROUNDS: u64 = 51;
    let (clock, mut rng) = (Clock::real(), Rng::seeded(7));
    let catalog = pool(keys);
    put(&catalog, 0..keys, &mut rng, clock.now());
    let mut next = keys;
    let mut costs: Vec<f64> = (0..ROUNDS)
        .map(|round| {
            let later = clock.now() + Duration::from_secs(60 + round);
            let begin = clock.now();
            let done = catalog.evict(&EvictionGoal::just(ByteLen(VICTIMS * SIZE)), u32::MAX, later);
            let took = clock.now().since(begin);
            put(&catalog, next..next + done.keys, &mut rng, later);
            next += done.keys;
            took.as_nanos() as f64 / done.keys.max(1) as f64
        })
        .collect();
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

fn victims() {
    let base = victim_cost(10_000);
    println!("{:>9} keys {base:>8.0} ns a victim", 10_000);
    for keys in [100_000, 1_000_000, 5_000_000] {
        let cost = victim_cost(keys);
        println!("{keys:>9} keys {cost:>8.0} ns a victim, {:.2} of 10,000 keys", cost / base);
    }
}

/// Objects a second that `threads` threads handle together: each batch of 128 is put, looked up twice, and removed.
fn mixed(catalog: &Catalog, keys: u64, threads: u64) -> f64 {
    let (clock, done) = (Clock::real(), AtomicU64::new(0));
    let begin = clock.now();
    let end = begin + Duration::from_secs(3);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (clock, done) = (clock.clone(), &done);
            scope.spawn(move || {
                let mut rng = Rng::seeded(thread);
                let mut round = 0;
                while clock.now() < end {
                    let now = clock.now();
                    let read: Vec<[u8; 45]> = (0..BATCH).map(|_| key(rng.below(keys))).collect();
                    catalog.get_replicas(Tenant::DEFAULT, &read, now, |_, _| ());
                    catalog.exist(Tenant::DEFAULT, &read, Probe::Lease, now, |_, _| ());
                    let first = keys + (thread << 40) + round * BATCH as u64;
                    put(catalog, first..first + BATCH as u64, &mut rng, now);
                    let written: Vec<[u8; 45]> = (first..first + BATCH as u64).map(key).collect();
                    catalog.remove(Tenant::DEFAULT, &written, Force::No, now, |_, _| ());
                    done.fetch_add(4 * BATCH as u64, Ordering::Relaxed);
                    round += 1;
                }
            });
        }
    });
    done.load(Ordering::Relaxed) as f64 / clock.now().since(begin).as_secs_f64()
}

fn threads(keys: u64) {
    let catalog = pool(keys * 2);
    put(&catalog, 0..keys, &mut Rng::seeded(7), Clock::real().now());
    let one = mixed(&catalog, keys, 1);
    let two = mixed(&catalog, keys, 2);
    println!("one thread {one:>12.0} objects/s, two {two:>12.0}, {:.2} times", two / one);
}

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let keys = args.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    match what.as_str() {
        "memory" => memory(keys),
        "victims" => victims(),
        "threads" => threads(keys),
        other => println!("what is {other:?}? There are: memory, victims, threads"),
    }
}
