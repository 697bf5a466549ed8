//! Prints what one addition costs: a counter, a time, and a time of one call in 16.
use std::hint::black_box;

use yb_metrics::Schema;

const ROUNDS: u64 = 50_000_000;

fn main() {
    let mut schema = Schema::default();
    let calls = schema.counter("calls_total", "Calls");
    let times = schema.timings("call_seconds", "Times", "call", &["a", "b", "c", "d"]);
    let metrics = schema.build(2);
    let lane = metrics.lane(0);
    let clock = yb_env::Clock::real();
    let measure = |what: &str, work: &mut dyn FnMut(u64)| {
        let began = clock.now();
        for round in 0..ROUNDS {
            work(black_box(round));
        }
        let nanos = clock.now().since(began).as_nanos() as f64 / ROUNDS as f64;
        println!("{nanos:6.2} ns  {what}");
    };
    measure("nothing", &mut |_| {});
    measure("add to a counter", &mut |_| lane.add(calls, 1));
    measure("add a known time", &mut |round| lane.time(times, (round & 3) as usize, round & 0xffff));
    let mut dice = 1u64;
    measure("dice, and of one call in 16 the clock and a time", &mut |round| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if dice >> 60 == 0 {
            lane.time(times, (round & 3) as usize, clock.now().0 & 0xffff);
        }
    });
}
