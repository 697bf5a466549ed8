//! A write storm into a small pool (H07).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use yb_env::{Clock, Rng, spawn_thread};
use yb_types::{ErrorCode, ReplicateConfig};
use yb_wire::call;
use yb_wire::messages::PutStartArgs;

use crate::common::{Caller, TENANT};
use crate::ground::*;

const WRITERS: u64 = 8;
const NODES: [u64; 3] = [64 * MIB, 64 * MIB, 160 * MIB];
const CAPACITY: f64 = (288 * MIB) as f64;
/// Put with a retryable refusal: the pool is full for the moment.
const RETRYABLE: [ErrorCode; 1] = [ErrorCode::NO_AVAILABLE_HANDLE];

struct Storm {
    master: Arc<MasterProcess>,
    bytes: Arc<Bytes>,
    nodes: Vec<Caller>,
}

/// What a storm came to.
#[derive(Default)]
struct Tally {
    stored: AtomicU64,
    refused: AtomicU64,
    latencies: Mutex<Vec<Duration>>,
}

impl Storm {
    fn start() -> Storm {
        let flags = ["--eviction_high_watermark_ratio=0.9", "--eviction_ratio=0.05", "--default_kv_lease_ttl=2000"];
        let master = MasterProcess::start(&[&flags[..], &["--client_ttl=600"]].concat());
        let nodes = NODES.map(|size| {
            let node = master.caller();
            node.give_memory(size);
            node
        });
        Storm { master: Arc::new(master), bytes: Arc::default(), nodes: nodes.into() }
    }

    /// Eight writers put objects of these sizes until so many bytes are through, or until told to stop.
    fn blow(&self, run: &str, total: u64, size: fn(&mut Rng) -> u64, stop: &Arc<AtomicBool>) -> Tally {
        let tally = Arc::new(Tally::default());
        let through = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (tally, through, stop) = (Arc::clone(&tally), Arc::clone(&through), Arc::clone(stop));
                let (caller, bytes, run) = (self.master.caller(), Arc::clone(&self.bytes), run.to_owned());
                let body = move || {
                    let (mut rng, clock) = (Rng::seeded(writer + 1), Clock::real());
                    let mut took = Vec::new();
                    for number in 0.. {
                        let size = size(&mut rng);
                        if through.fetch_add(size, Ordering::Relaxed) >= total || stop.load(Ordering::Relaxed) {
                            break;
                        }
                        let key = format!("{run}-{writer}-{number}").into_bytes();
                        let begin = clock.now();
                        match put(&caller, &bytes, &key, size, &ReplicateConfig::default()) {
                            Ok(()) => tally.stored.fetch_add(1, Ordering::Relaxed),
                            Err(code) => {
                                assert!(RETRYABLE.contains(&code), "{code}");
                                tally.refused.fetch_add(1, Ordering::Relaxed)
                            }
                        };
                        took.push(clock.now().since(begin));
                    }
                    tally.latencies.lock().unwrap().extend(took);
                };
                spawn_thread("writer", body).unwrap()
            })
            .collect();
        let mut lowest = f64::MAX;
        let mut filled = false;
        while threads.iter().any(|thread| !thread.is_finished()) {
            yb_env::sleep(Duration::from_millis(100));
            let used = self.master.metric("master_allocated_bytes") / CAPACITY;
            assert!(used <= 1.0, "{used} of the capacity is used");
            filled |= used > 0.85;
            lowest = if filled { lowest.min(used) } else { lowest };
        }
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let tally = Arc::into_inner(tally).unwrap();
        self.report(run, &tally, lowest);
        tally
    }

    fn report(&self, run: &str, tally: &Tally, lowest: f64) {
        let (stored, refused) = (tally.stored.load(Ordering::Relaxed), tally.refused.load(Ordering::Relaxed));
        let mut took = tally.latencies.lock().unwrap();
        took.sort();
        let (p50, p99) = (quantile(&took, 0.5), quantile(&took, 0.99));
        println!("{run}: {stored} stored, {refused} refused, lowest use once full {lowest:.3} (should: >= 0.80)");
        println!("  put p50 {p50:?}, p99 {p99:?} = {:.1}x (should: <= 20x)", p99.as_secs_f64() / p50.as_secs_f64());
    }
}

fn megabyte(_: &mut Rng) -> u64 {
    MIB
}

fn mixed(rng: &mut Rng) -> u64 {
    match rng.below(10) {
        0..7 => 4096,
        7..9 => 256 << 10,
        _ => 3 * MIB,
    }
}

fn nearly_all(tally: &Tally) {
    let (stored, refused) = (tally.stored.load(Ordering::Relaxed), tally.refused.load(Ordering::Relaxed));
    assert!(refused * 1000 <= stored + refused, "{refused} of {} puts were refused", stored + refused);
}

#[test]
fn a_storm_of_puts_is_taken_in() {
    let storm = Storm::start();
    let total = if full() { 4096 * MIB } else { 1024 * MIB };
    let never = Arc::new(AtomicBool::new(false));
    nearly_all(&storm.blow("uniform", total, megabyte, &never));
    nearly_all(&storm.blow("mixed", total, mixed, &never));
}

#[test]
fn what_is_read_survives_the_storm() {
    let storm = Storm::start();
    let one = ReplicateConfig::default();
    let kept: Vec<Vec<u8>> = (0..172).map(|number| format!("kept-{number}").into_bytes()).collect();
    kept.iter().for_each(|key| put(&storm.nodes[0], &storm.bytes, key, MIB, &one).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let (reader, bytes, done) = (storm.master.caller(), Arc::clone(&storm.bytes), Arc::clone(&stop));
    let lasts = Duration::from_secs(if full() { 10 } else { 4 });
    let read_all = move || {
        let clock = Clock::real();
        let begin = clock.now();
        let mut reads = 0;
        while clock.now().since(begin) < lasts {
            for key in &kept {
                assert_eq!(read(&reader, &bytes, key, &[key]), Outcome::Right, "{:?}", String::from_utf8_lossy(key));
                reads += 1;
            }
        }
        done.store(true, Ordering::Relaxed);
        reads
    };
    // Every lease is granted before the storm begins.
    let reading = spawn_thread("reader", read_all).unwrap();
    wait_until("all were read", || storm.master.metric("master_get_replica_list_requests_total") >= 172.0);
    storm.blow("under leases", u64::MAX, megabyte, &stop);
    let reads = reading.join().unwrap();
    assert!(reads >= 2 * 172, "{reads} reads");
}

#[test]
fn more_copies_than_nodes_evict_nothing() {
    let storm = Storm::start();
    let writer = &storm.nodes[0];
    let one = ReplicateConfig::default();
    (0..100).for_each(|n| put(writer, &storm.bytes, format!("old-{n}").as_bytes(), MIB, &one).unwrap());
    let evicted = storm.master.metric("master_evicted_key_count");
    let clock = Clock::real();
    let begin = clock.now();
    // As the peer: as many copies as there are nodes, and the answer shows how many.
    let start = PutStartArgs {
        client_id: writer.id,
        key: b"copies",
        slice_length: MIB,
        config: ReplicateConfig { replica_num: 4, ..ReplicateConfig::default() },
        tenant_id: TENANT,
    };
    let replicas = writer.call::<call::PutStart, _>(&start, |reply| reply).unwrap();
    assert!(clock.now().since(begin) < Duration::from_secs(1), "it answers at once");
    let nodes: BTreeSet<&str> = replicas.iter().map(|r| r.memory().unwrap().transport_endpoint.as_str()).collect();
    assert_eq!((nodes.len(), replicas.len()), (3, 3));
    assert_eq!(storm.master.metric("master_evicted_key_count"), evicted);
}
