//! A big client goes away (H08).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use yb_env::{Clock, spawn_thread};
use yb_pack::List;
use yb_types::{ClientId, ErrorCode, ReplicaType, ReplicateConfig, Segment, SegmentStatus};
use yb_wire::call;
use yb_wire::messages::*;

use crate::common::{Caller, TENANT};
use crate::ground::*;

const NODE_BYTES: u64 = 512 * MIB;
const BATCH: usize = 1000;
const SIZE: u64 = 64;

fn keys() -> usize {
    if full() { 1_500_000 } else { 200_000 }
}

fn key(node: &str, number: usize) -> Vec<u8> {
    format!("{node}-{number:08}").into_bytes()
}

/// Puts the keys of one node there, in batches.
fn load(caller: &Caller, node: &str, segment: &Segment, count: usize) {
    let config = ReplicateConfig { preferred_segments: vec![segment.name.clone()], ..ReplicateConfig::default() };
    for first in (0..count).step_by(BATCH) {
        let names: Vec<Vec<u8>> = (first..(first + BATCH).min(count)).map(|number| key(node, number)).collect();
        let refs: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let lengths = vec![SIZE; refs.len()];
        let start = BatchPutStartArgs {
            client_id: caller.id,
            keys: List::from(&refs),
            slice_lengths: List::from(&lengths),
            config: config.clone(),
            tenant_id: TENANT,
        };
        caller.call::<call::BatchPutStart, _>(&start, |reply| reply.into_iter().for_each(|one| drop(one.unwrap())));
        let metas: Vec<ObjectMetaRef<'_>> =
            refs.iter().map(|key| ObjectMetaRef { key, object_checksum: None }).collect();
        let end = BatchPutEndArgs {
            client_id: caller.id,
            object_metas: List::from(&metas),
            replica_type: ReplicaType::ALL,
            tenant_id: TENANT,
        };
        caller.call::<call::BatchPutEnd, _>(&end, |reply| reply.into_iter().for_each(|one| one.unwrap()));
    }
}

/// How many of a node's keys exist.
fn existing(caller: &Caller, node: &str, range: std::ops::Range<usize>) -> usize {
    let names: Vec<Vec<u8>> = range.map(|number| key(node, number)).collect();
    let mut found = 0;
    for part in names.chunks(20_000) {
        let refs: Vec<&[u8]> = part.iter().map(Vec::as_slice).collect();
        let args = KeysArgs { keys: List::from(&refs), tenant_id: TENANT };
        found +=
            caller.call::<call::BatchExistKey, _>(&args, |reply| reply.iter().filter(|one| **one == Ok(true)).count());
    }
    found
}

/// Writes and removes batch after batch of D's until told to stop; answers how many batches.
fn turn_over(caller: &Caller, small: &Segment, stop: &AtomicBool) -> usize {
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return round;
        }
        load(caller, "turnover", small, BATCH);
        let names: Vec<Vec<u8>> = (0..BATCH).map(|number| key("turnover", number)).collect();
        let refs: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let args = BatchRemoveArgs { keys: List::from(&refs), force: true, tenant_id: TENANT };
        let removed =
            caller.call::<call::BatchRemove, _>(&args, |reply| reply.iter().filter(|one| one.is_ok()).count());
        assert_eq!(removed, BATCH);
        yb_env::sleep(Duration::from_millis(50));
    }
    unreachable!("rounds do not end")
}

/// The probes of a time: each an exist, a put of 64 bytes and a ping.
#[derive(Default)]
struct Probes {
    single: Vec<Duration>,
    batch: Vec<Duration>,
}

/// Probes every 20 ms, and asks for 20,000 keys each second, until told to stop.
fn probe(master: &MasterProcess, id: ClientId, round: u64, stop: &AtomicBool) -> Probes {
    let caller = master.caller_as(id);
    let clock = Clock::real();
    let mut probes = Probes::default();
    let many: Vec<Vec<u8>> = (0..20_000.min(keys() / 2)).map(|number| key("b", number)).collect();
    for turn in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let begin = clock.now();
        assert!(caller.exists(&key("b", turn % (keys() / 2))));
        let mine = format!("probe-{round}-{turn}").into_bytes();
        caller.put(&mine, SIZE).unwrap();
        caller.ping().unwrap();
        probes.single.push(clock.now().since(begin));
        caller.remove(&mine, true).unwrap();
        if turn % 50 == 0 {
            let refs: Vec<&[u8]> = many.iter().map(Vec::as_slice).collect();
            let args = KeysArgs { keys: List::from(&refs), tenant_id: TENANT };
            let begin = clock.now();
            caller.call::<call::BatchExistKey, _>(&args, |reply| assert!(reply.iter().all(|one| *one == Ok(true))));
            probes.batch.push(clock.now().since(begin));
        }
        yb_env::sleep(Duration::from_millis(20));
    }
    probes.single.sort();
    probes.batch.sort();
    probes
}

fn report(name: &str, probes: &Probes) {
    let (single, batch) = (&probes.single, &probes.batch);
    let last = single.last().copied().unwrap_or_default();
    println!("{name}: probe p50 {:?} p99 {:?} max {last:?}", quantile(single, 0.5), quantile(single, 0.99));
    println!("  batch of 20,000 p50 {:?} max {:?}", quantile(batch, 0.5), quantile(batch, 1.0));
}

#[test]
fn a_big_client_goes_and_nobody_else_notices() {
    let master = Arc::new(MasterProcess::start(&["--client_ttl=3", "--eviction_high_watermark_ratio=0.95"]));
    let (a, b, d) = (master.caller(), master.caller(), master.caller());
    let before = master.resident_bytes();
    let (on_a, on_b) = (a.give_memory(NODE_BYTES), b.give_memory(NODE_BYTES));
    let small = d.give_memory(MIB);
    let mut pinging: Vec<Process> = [a.id, b.id, d.id].into_iter().map(|id| pinging_process(&master, id)).collect();
    let half = keys() / 2;
    load(&b, "b", &on_b, half);
    let with_b = master.resident_bytes();
    load(&a, "a", &on_a, half);
    let with_both = master.resident_bytes();
    assert_eq!((existing(&d, "a", 0..half), existing(&d, "b", 0..half)), (half, half));

    let (stop_turning, turned, place) = (Arc::new(AtomicBool::new(false)), master.caller_as(d.id), small.clone());
    let told = Arc::clone(&stop_turning);
    let turning = spawn_thread("turnover", move || turn_over(&turned, &place, &told)).unwrap();
    let probe_for = |seconds: u64, round: u64| {
        let stop = Arc::new(AtomicBool::new(false));
        let (probed, told, id) = (Arc::clone(&master), Arc::clone(&stop), d.id);
        let probing = spawn_thread("probe", move || probe(&probed, id, round, &told)).unwrap();
        (probing, stop, Duration::from_secs(seconds))
    };
    let (probing, stop, lasts) = probe_for(if full() { 10 } else { 3 }, 1);
    yb_env::sleep(lasts);
    stop.store(true, Ordering::Relaxed);
    let calm = probing.join().unwrap();

    let (probing, stop, lasts) = probe_for(if full() { 60 } else { 10 }, 2);
    // A's process dies; its memory is gone with it.
    drop(pinging.remove(0));
    yb_env::sleep(lasts);
    stop.store(true, Ordering::Relaxed);
    let storm = probing.join().unwrap();
    stop_turning.store(true, Ordering::Relaxed);
    let batches = turning.join().unwrap();
    assert!(batches > 10, "{batches} batches were turned over");

    wait_until("A's segment is gone", || status(&d, &on_a) == Err(ErrorCode::SEGMENT_NOT_FOUND));
    assert_eq!(existing(&d, "a", 0..half), 0);
    assert_eq!(existing(&d, "b", 0..half), half);
    for (owner, segment) in [(&b, &on_b), (&d, &small)] {
        assert_eq!(status(owner, segment), Ok(SegmentStatus::OK), "nobody else is lost");
    }
    // What the last of A's keys left is forgotten in steps.
    wait_until("only B's keys are counted", || master.metric("master_key_count") as usize == half);
    report("baseline", &calm);
    report("while A goes", &storm);
    let mib = |bytes: u64| bytes >> 20;
    let (now, ratio) = (master.resident_bytes(), |of: &Probes| quantile(&of.single, 0.99).as_secs_f64());
    println!("  p99 {:.1}x of the baseline (should: <= 5x, no probe above 100 ms)", ratio(&storm) / ratio(&calm));
    println!(
        "  memory: {} MiB empty, {} with B, {} with A and B, {} after (should: near {})",
        mib(before),
        mib(with_b),
        mib(with_both),
        mib(now),
        mib(with_b)
    );
}

fn status(caller: &Caller, segment: &Segment) -> ErrorOr<SegmentStatus> {
    caller.call::<call::QuerySegmentStatusById, _>(&SegmentIdArgs { segment_id: segment.id }, |reply| reply)
}
