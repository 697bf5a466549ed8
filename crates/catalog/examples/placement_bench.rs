//! How evenly each placement fills segments of unequal size, and how many new objects an empty segment gets.
//!
//! `cargo run --release -p yb-catalog --example placement_bench [-- --json]`
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use std::fmt::Write as _;

use yb_catalog::*;
use yb_env::Rng;
use yb_types::*;

const MIB: u64 = 1 << 20;
/// Bytes of the segments, in MiB.
const SEGMENTS: [u64; 16] = [64, 64, 160, 64, 128, 256, 64, 64, 512, 64, 96, 64, 64, 128, 64, 256];
const ROUNDS: usize = 150_000;
const PROBES: u64 = 20_000;
/// Bytes of the segment that joins, in MiB.
const EMPTY: u64 = 64;

struct Pool {
    catalog: Catalog,
    rng: Rng,
    now: MonotonicTime,
    keys: Vec<u64>,
    next: u64,
}

impl Pool {
    fn new(allocation_strategy: AllocationStrategy) -> Pool {
        let settings = CatalogSettings { allocation_strategy, inline_eviction_budget: 0, ..CatalogSettings::default() };
        let catalog = Catalog::new(settings).unwrap();
        let mut pool = Pool { catalog, rng: Rng::seeded(5), now: MonotonicTime::from_millis(1), keys: vec![], next: 0 };
        for (number, size) in (1..).zip(SEGMENTS) {
            pool.mount(number, size * MIB);
        }
        pool
    }

    fn mount(&mut self, number: u64, size: u64) {
        let id = Uuid { first: number, second: 1 };
        let segment = Segment {
            id: SegmentId(id),
            name: format!("node-{number}"),
            base: number << 40,
            size,
            te_endpoint: format!("10.0.0.{number}:1"),
            ..Segment::default()
        };
        self.catalog.mount(segment, ClientId(id), self.now, &mut Effects::default()).unwrap();
    }

    fn caller(&self) -> Caller {
        Caller { tenant: Tenant::DEFAULT, client: ClientId::default(), now: self.now }
    }

    /// Name of the segment that took it.
    fn put(&mut self, size: u64) -> Option<String> {
        self.next += 1;
        let key = self.next.to_be_bytes();
        let config = ReplicateConfig { host_id: "10.0.0.1".to_owned(), ..ReplicateConfig::default() };
        let call = PutCall { caller: self.caller(), config: &config, allow_empty: false, waited: false };
        let mut place = None;
        let mut random = || self.rng.next_u64();
        self.catalog.put_start(&call, [(key, size)], &mut random, &mut Effects::default(), |_, answer| {
            place = answer.ok().and_then(|view| view.replicas().next().map(|r| r.segment.info().name.clone()));
        });
        self.catalog.put_end(&self.caller(), ReplicaType::ALL, [(key, None)], |_, _| ());
        if place.is_some() {
            self.keys.push(self.next);
        }
        place
    }

    fn drop_one(&mut self) {
        let at = (self.rng.next_u64() % self.keys.len() as u64) as usize;
        let key = self.keys.swap_remove(at).to_be_bytes();
        self.catalog.remove(Tenant::DEFAULT, [key], Force::No, self.now, |_, result| result.unwrap());
    }

    fn used(&self) -> u64 {
        self.catalog.segments().iter().map(|segment| segment.used().0).sum()
    }
}

/// Difference of the fullest and the emptiest segment, and the new objects of an empty one over its share of the bytes.
fn measure(strategy: AllocationStrategy) -> (f64, f64) {
    let mut pool = Pool::new(strategy);
    let total: u64 = SEGMENTS.iter().sum::<u64>() * MIB;
    let limit = total * 85 / 100;
    for _ in 0..ROUNDS {
        let size = [4 << 10, 64 << 10, 256 << 10][(pool.rng.next_u64() % 3) as usize];
        while pool.used() + size > limit {
            pool.drop_one();
        }
        pool.put(size);
    }
    let fill: Vec<f64> = pool.catalog.segments().iter().map(|s| s.used().0 as f64 / s.capacity().0 as f64).collect();
    let spread = fill.iter().copied().fold(0.0, f64::max) - fill.iter().copied().fold(1.0, f64::min);
    pool.mount(99, EMPTY * MIB);
    let empty = (0..PROBES).filter(|_| pool.put(1024).as_deref() == Some("node-99")).count() as f64;
    let fair = (EMPTY * MIB) as f64 / (total + EMPTY * MIB) as f64;
    (spread, empty / PROBES as f64 / fair)
}

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let mut out = String::from("{");
    for (name, strategy) in [
        ("balanced", AllocationStrategy::Balanced),
        ("random", AllocationStrategy::Random),
        ("free_ratio_first", AllocationStrategy::FreeRatioFirst),
        ("local_first", AllocationStrategy::LocalFirst),
    ] {
        let (spread, rush) = measure(strategy);
        if json {
            let comma = if out.len() > 1 { ", " } else { "" };
            write!(out, "{comma}\"{name}.fill_spread\": {spread:.4}, \"{name}.empty_over_fair\": {rush:.3}").unwrap();
        } else {
            println!("{name:<18} fill spread {:>6.2} points   empty node gets {rush:.2} x its share", spread * 100.0);
        }
    }
    if json {
        println!("{out}}}");
    }
}
