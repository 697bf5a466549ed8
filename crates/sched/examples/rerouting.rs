//! How long bytes wait, at worst, from a rail's error event to their first byte on another rail: the seeded simulation of
//! the tests, with the number printed as one JSON object.
//!
//! `cargo run --release -p yb-sched --example rerouting [SEEDS]`

#[allow(dead_code, clippy::unwrap_used, reason = "the world of the tests; this program uses a part of it")]
#[path = "../tests/world/mod.rs"]
mod world;

use world::{Report, Scenario, World};

fn main() {
    let seeds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10_000);
    let mut total = Report::default();
    for seed in 0..seeds {
        total.add(&World::run(seed, Scenario::random(seed)));
    }
    let worst_ms = total.worst_reroute.as_secs_f64() * 1e3;
    println!("{{\"seeds\":{seeds},\"reroutes\":{},\"worst_reroute_ms\":{worst_ms:.6}}}", total.reroutes);
}
