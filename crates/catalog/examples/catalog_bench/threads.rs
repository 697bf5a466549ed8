//! The same work by one thread and by two, over one catalog.

use std::sync::{Barrier, Mutex};
use std::time::Duration;

use super::*;

/// Most threads that are tried.
const THREADS: usize = 2;

/// What one thread does with one batch of keys.
type Step = fn(&Catalog, &mut Rng, MonotonicTime, &[Vec<u8>]) -> usize;

const STEPS: [(&str, Step); 4] =
    [("put start + end", put), ("get, random order", get), ("exist, random order", exist), ("remove", remove)];

/// Time per step: the longest of the threads, by the clock and by what they ran.
#[derive(Clone, Copy, Default)]
struct Took {
    wall: Duration,
    ran: Duration,
}

/// Prints the throughput of every step with one thread and with two, and answers how many times the one the other is, by
/// the clock.
pub fn run(count: usize) -> Vec<(&'static str, f64)> {
    println!("\nmillions of objects a second in batches of {BATCH}; by the clock, and by the time that threads ran");
    println!("{:<24} {:>15} {:>15} {:>15}", "", "1 thread", format!("{THREADS} threads"), "times");
    let (one, more) = (all_steps(count, 1), all_steps(count, THREADS));
    let sum =
        |times: &[Took]| times.iter().fold(Took::default(), |a, b| Took { wall: a.wall + b.wall, ran: a.ran + b.ran });
    let rows = STEPS.iter().map(|(name, _)| *name).zip(one.iter().copied().zip(more.iter().copied()));
    let rows = rows.chain([("all of it", (sum(&one), sum(&more)))]);
    let show = |(name, (one, more)): (&'static str, (Took, Took))| {
        let rate = |took: Duration| count as f64 / took.as_secs_f64() / 1e6;
        let pair = |a: f64, b: f64| format!("{a:.2} / {b:.2}");
        println!(
            "{name:<24} {:>15} {:>15} {:>15}",
            pair(rate(one.wall), rate(one.ran)),
            pair(rate(more.wall), rate(more.ran)),
            pair(rate(more.wall) / rate(one.wall), rate(more.ran) / rate(one.ran)),
        );
        (name, rate(more.wall) / rate(one.wall))
    };
    rows.map(show).collect()
}

/// Every step over all keys, shared out among the threads, on a catalog of its own.
fn all_steps(count: usize, threads: usize) -> Vec<Took> {
    let catalog = pool(count);
    let mut keys = keys(count);
    let mut rng = Rng::seeded(7);
    let mut took = Vec::new();
    for (name, step) in STEPS {
        shuffle(&mut keys, &mut rng);
        let (barrier, longest) = (Barrier::new(threads), Mutex::new(Took::default()));
        std::thread::scope(|scope| {
            for part in keys.chunks(count.div_ceil(threads)) {
                let (catalog, barrier, longest, mut rng) = (&catalog, &barrier, &longest, Rng::seeded(rng.next_u64()));
                scope.spawn(move || {
                    let clock = Clock::real();
                    barrier.wait();
                    let (begin, ran_before) = (clock.now(), ran(&clock));
                    let done: usize = part.chunks(BATCH).map(|keys| step(catalog, &mut rng, clock.now(), keys)).sum();
                    assert_eq!(done, part.len(), "{name}: every call must have succeeded");
                    let mut longest = longest.lock().expect("no thread has panicked");
                    longest.wall = longest.wall.max(clock.now().since(begin));
                    longest.ran = longest.ran.max(ran(&clock) - ran_before);
                });
            }
        });
        took.push(longest.into_inner().expect("no thread has panicked"));
    }
    took
}

fn put(catalog: &Catalog, rng: &mut Rng, now: MonotonicTime, keys: &[Vec<u8>]) -> usize {
    let config = ReplicateConfig::default();
    let caller = Caller { tenant: Tenant::DEFAULT, client: ClientId(Uuid { first: 77, second: 78 }), now };
    let call = PutCall { caller, config: &config, allow_empty: false, waited: false };
    let (mut effects, mut started, mut ended) = (Effects::default(), 0, 0);
    let mut random = || rng.next_u64();
    let items = keys.iter().map(|key| (key, SIZE));
    catalog.put_start(&call, items, &mut random, &mut effects, |_, answer| started += usize::from(answer.is_ok()));
    let items = keys.iter().map(|key| (key, None));
    catalog.put_end(&caller, ReplicaType::ALL, items, |_, answer| ended += usize::from(answer.is_ok()));
    started.min(ended)
}

fn get(catalog: &Catalog, _: &mut Rng, now: MonotonicTime, keys: &[Vec<u8>]) -> usize {
    let mut found = 0;
    catalog.get_replicas(Tenant::DEFAULT, keys, now, |_, answer| {
        found += usize::from(answer.is_ok_and(|view| view.replicas().next().is_some_and(|r| r.address > 0)));
    });
    found
}

fn exist(catalog: &Catalog, _: &mut Rng, now: MonotonicTime, keys: &[Vec<u8>]) -> usize {
    let mut found = 0;
    catalog.exist(Tenant::DEFAULT, keys, Probe::Lease, now, |_, yes| found += usize::from(yes));
    found
}

fn remove(catalog: &Catalog, _: &mut Rng, now: MonotonicTime, keys: &[Vec<u8>]) -> usize {
    let mut removed = 0;
    let later = now + Duration::from_secs(60);
    catalog.remove(Tenant::DEFAULT, keys, Force::No, later, |_, result| removed += usize::from(result.is_ok()));
    removed
}
