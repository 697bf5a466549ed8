//! What the catalog costs: nanoseconds an object in batches of 128, bytes of memory a key, and what a second thread adds.
//!
//! `cargo run --release -p yb-catalog --example catalog_bench [keys] [--json]`; with `--json` the last line is an object.
#![forbid(unsafe_code)]

mod threads;

use std::time::Duration;

use yb_catalog::*;
use yb_env::{Clock, Rng};
use yb_types::*;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const BATCH: usize = 128;
const SEGMENTS: u64 = 4;
const SIZE: u64 = 64 << 10;
const KEY_BYTES: usize = 45;

struct Bench {
    catalog: Catalog,
    clock: Clock,
    rng: Rng,
    keys: Vec<Vec<u8>>,
}

/// Nanoseconds that this thread has run, so that a busy machine does not count. Where `/proc` is missing, the clock.
fn ran(clock: &Clock) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    ns.map_or_else(|| clock.now().since(MonotonicTime(0)), Duration::from_nanos)
}

/// Resident bytes of this process, 0 where `/proc` is missing.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// A catalog with room for this many objects.
fn pool(count: usize) -> Catalog {
    let settings = CatalogSettings { hash_seed: 42, ..CatalogSettings::default() };
    let catalog = Catalog::new(settings).expect("default settings are consistent");
    let mut effects = Effects::default();
    for number in 1..=SEGMENTS {
        let segment = Segment {
            id: SegmentId(Uuid { first: number, second: 1 }),
            name: format!("node-{number}:17800"),
            base: number << 44,
            size: count as u64 * SIZE / 2,
            te_endpoint: format!("node-{number}:17801"),
            protocol: "tcp".into(),
            ..Segment::default()
        };
        let owner = ClientId(Uuid { first: number, second: 2 });
        catalog.mount(segment, owner, MonotonicTime(1), &mut effects).expect("a fresh segment mounts");
    }
    catalog
}

/// Different keys, in order.
fn keys(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|at| format!("{at:0width$}", width = KEY_BYTES).into_bytes()).collect()
}

/// Brings them into a random order.
fn shuffle(keys: &mut [Vec<u8>], rng: &mut Rng) {
    for at in (1..keys.len()).rev() {
        let other = rng.below(at as u64 + 1) as usize;
        keys.swap(at, other);
    }
}

impl Bench {
    fn new(count: usize) -> Self {
        Bench { catalog: pool(count), clock: Clock::real(), rng: Rng::seeded(7), keys: keys(count) }
    }

    fn measure(&mut self, what: &str, mut step: impl FnMut(&Catalog, &mut Rng, MonotonicTime, &[Vec<u8>])) {
        let begin = ran(&self.clock);
        for batch in self.keys.chunks(BATCH) {
            step(&self.catalog, &mut self.rng, self.clock.now(), batch);
        }
        let took = ran(&self.clock) - begin;
        println!("{what:<42} {:>8.1} ns/object", took.as_nanos() as f64 / self.keys.len() as f64);
    }

    fn run(&mut self) {
        let mut answered = 0u64;
        let before = resident();
        self.put("BatchPutStart + BatchPutEnd of 128", &mut answered);
        let bytes = resident().saturating_sub(before) as f64 / self.keys.len() as f64;
        println!("{:<42} {bytes:>8.1} bytes", "memory a key (45-byte keys, one replica)");
        self.read(&mut answered);
        self.shrink(&mut answered);
        self.put("BatchPutStart + BatchPutEnd, memory warm", &mut answered);
        assert_eq!(answered, self.keys.len() as u64 * 9, "every call must have succeeded");
    }

    fn put(&mut self, what: &str, answered: &mut u64) {
        let client = ClientId(Uuid { first: 77, second: 78 });
        let config = ReplicateConfig::default();
        let mut effects = Effects::default();
        self.measure(what, |catalog, rng, now, keys| {
            let caller = Caller { tenant: Tenant::DEFAULT, client, now };
            let call = PutCall { caller, config: &config, allow_empty: false, waited: false };
            let items = keys.iter().map(|key| (key, SIZE));
            let mut random = || rng.next_u64();
            catalog
                .put_start(&call, items, &mut random, &mut effects, |_, answer| *answered += u64::from(answer.is_ok()));
            let items = keys.iter().map(|key| (key, None));
            catalog.put_end(&caller, ReplicaType::ALL, items, |_, answer| *answered += u64::from(answer.is_ok()));
        });
    }

    fn read(&mut self, answered: &mut u64) {
        for what in ["BatchGetReplicaList of 128, keys in order", "the same, keys in random order"] {
            self.measure(what, |catalog, _, now, keys| {
                catalog.get_replicas(Tenant::DEFAULT, keys, now, |_, found| {
                    let first = found.ok().and_then(|view| view.replicas().next());
                    *answered +=
                        u64::from(first.is_some_and(|r| r.address > 0 && !r.segment.info().te_endpoint.is_empty()));
                });
            });
            shuffle(&mut self.keys, &mut self.rng);
        }
        self.measure("BatchExistKey of 128, random order", |catalog, _, now, keys| {
            catalog.exist(Tenant::DEFAULT, keys, Probe::Lease, now, |_, found| *answered += u64::from(found));
        });
        self.measure("BatchProbeKey of 128, random order", |catalog, _, now, keys| {
            catalog.exist(Tenant::DEFAULT, keys, Probe::Only, now, |_, found| *answered += u64::from(found));
        });
    }

    fn shrink(&mut self, answered: &mut u64) {
        let later = self.clock.now() + Duration::from_secs(60);
        let half = ByteLen(self.keys.len() as u64 / 2 * SIZE);
        let begin = ran(&self.clock);
        let done = self.catalog.evict(&EvictionGoal { target: half, at_least: half }, u32::MAX, later);
        let took = (ran(&self.clock) - begin).as_nanos() as f64 / done.keys.max(1) as f64;
        println!(
            "{:<42} {took:>8.1} ns/victim, {:.2} looked at",
            "eviction of half",
            done.steps as f64 / done.keys as f64
        );
        *answered += done.keys;
        self.measure("BatchRemove of 128 (half are gone)", |catalog, _, _, keys| {
            catalog.remove(Tenant::DEFAULT, keys, Force::No, later, |_, result| *answered += u64::from(result.is_ok()));
        });
        let left = self.catalog.stats();
        assert_eq!((left.keys, left.allocated_bytes), (0, 0));
    }
}

fn main() {
    let count = std::env::args().find_map(|count| count.parse().ok()).unwrap_or(1_000_000);
    println!("{count} keys, {SEGMENTS} segments, one thread");
    Bench::new(count).run();
    let times = threads::run(count);
    if std::env::args().any(|argument| argument == "--json") {
        let field = |(name, times): &(&str, f64)| {
            let word = name.split([' ', ',']).next().unwrap_or(name);
            format!("\"two_threads_{word}\": {times:.3}")
        };
        println!("{{{}}}", times.iter().map(field).collect::<Vec<_>>().join(", "));
    }
}
