//! What a write meets that finds no space.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use std::time::Duration;

use common::*;
use yb_pack::List;
use yb_types::*;
use yb_wire::call;
use yb_wire::messages::*;

const SIZE: u64 = 64 << 10;
const OBJECTS: u64 = 16;

/// A full pool whose puts leave eviction to the janitor.
fn full(put_wait: Duration) -> (Rig, Caller) {
    let rig = Rig::with(|config| {
        config.put_wait = put_wait;
        config.catalog.inline_eviction_budget = 0;
        // Only a put that finds no space starts eviction.
        config.catalog.eviction_high_watermark = 1.0;
        config.catalog.lease_ttl = Duration::from_secs(600);
    });
    let caller = rig.caller();
    caller.give_memory(OBJECTS * SIZE);
    for at in 0..OBJECTS {
        caller.put(format!("old-{at}").as_bytes(), SIZE).unwrap();
    }
    (rig, caller)
}

fn batch(caller: &Caller, keys: &[&[u8]], size: u64) -> Vec<ErrorOr<Vec<ReplicaDescriptor>>> {
    let sizes = vec![size; keys.len()];
    let args = BatchPutStartArgs {
        client_id: caller.id,
        keys: List::from(keys),
        slice_lengths: List::from(&sizes[..]),
        config: ReplicateConfig::default(),
        tenant_id: TENANT,
    };
    caller.call::<call::BatchPutStart, _>(&args, |reply| reply)
}

fn refusals(rig: &Rig, reason: &str) -> String {
    let name = format!("reason=\"{reason}\"");
    let page = rig.page("/metrics");
    page.lines().filter(|line| line.contains(&name)).map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_put_waits_until_the_janitor_has_made_room() {
    let (_rig, caller) = full(Duration::from_secs(9));
    let replicas = caller.put(b"new", SIZE).unwrap();
    assert_eq!((replicas.len(), replicas[0].status), (1, ReplicaStatus::PROCESSING));
    assert!(caller.exists(b"new"));
    let there = (0..OBJECTS).filter(|at| caller.exists(format!("old-{at}").as_bytes())).count() as u64;
    assert_eq!(there, OBJECTS - 1, "one made room");
}

#[test]
fn a_batch_waits_for_those_that_found_no_space_only() {
    let (_rig, caller) = full(Duration::from_secs(9));
    caller.remove(b"old-3", false).unwrap();
    let answers = batch(&caller, &[b"a", b"old-5", b"b", b""], SIZE);
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    let place = |answer: &ErrorOr<Vec<ReplicaDescriptor>>| match &answer.as_ref().unwrap()[0].kind {
        ReplicaKind::Memory(memory) => memory.buffer.buffer_address,
        other => panic!("{other:?}"),
    };
    assert_ne!(place(&answers[0]), place(&answers[2]));
    assert_eq!(answers[1], Err(ErrorCode::OBJECT_ALREADY_EXISTS));
    assert_eq!(answers[3], Err(ErrorCode::INVALID_PARAMS));
    for key in [b"a", b"b"] {
        caller.put_end(key).unwrap();
    }
}

#[test]
fn where_waiting_is_of_no_use_the_answer_comes_at_once() {
    let (rig, caller) = full(Duration::from_secs(9));
    assert_eq!(caller.put_start(b"huge", OBJECTS * SIZE + 1), Err(ErrorCode::NO_AVAILABLE_HANDLE));
    assert_eq!(refusals(&rig, "larger_than_any_segment"), "1");
    for at in 0..OBJECTS {
        caller.get(format!("old-{at}").as_bytes()).unwrap();
    }
    let answers = batch(&caller, &[b"new"], SIZE);
    assert_eq!(answers, [Err(ErrorCode::NO_AVAILABLE_HANDLE)], "everything is leased");
    let starved = rig.metric("master_put_start_alloc_failures_total");
    assert_eq!(starved, 2, "each put once, however often it was tried");
    let there = (0..OBJECTS).filter(|at| caller.exists(format!("old-{at}").as_bytes())).count() as u64;
    assert_eq!(there, OBJECTS);
}

#[test]
fn nobody_waits_where_the_setting_says_so_and_refusals_are_counted_by_reason() {
    let (rig, caller) = full(Duration::ZERO);
    let before = caller.put_start(b"new", SIZE);
    assert_eq!(before, Err(ErrorCode::NO_AVAILABLE_HANDLE));
    assert_eq!(refusals(&rig, "no_space"), "1");
}

#[test]
fn a_large_batch_is_answered_by_another_thread_as_a_small_one_is() {
    let rig = Rig::start();
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    caller.put(b"there", 64).unwrap();
    let names: Vec<Vec<u8>> = (0..60_000).map(|at| format!("key-{at:041}").into_bytes()).collect();
    let mut keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
    keys[59_999] = b"there";
    let args = KeysArgs { keys: List::from(&keys[..]), tenant_id: TENANT };
    let found = caller.call::<call::BatchExistKey, _>(&args, |reply| {
        reply.iter().enumerate().filter(|(_, exists)| **exists == Ok(true)).map(|(at, _)| at).collect::<Vec<_>>()
    });
    assert_eq!(found, [59_999]);
    assert!(rig.page("/metrics").contains("yuebing_slow_lane"), "the slow lane is measured");
}

#[test]
fn a_client_that_fills_nothing_leaves_memory_for_the_others() {
    let rig = Rig::with(|config| config.catalog.unfinished_per_client = Some(ByteLen(4 * SIZE)));
    let (greedy, other) = (rig.caller(), rig.caller());
    greedy.give_memory(OBJECTS * SIZE);
    let keys: Vec<Vec<u8>> = (0..OBJECTS).map(|at| format!("greedy-{at}").into_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let answers = batch(&greedy, &keys, SIZE);
    let refused = Err(ErrorCode::NO_AVAILABLE_HANDLE);
    assert!(answers[..4].iter().all(Result::is_ok) && answers[4..].iter().all(|answer| *answer == refused));
    other.put(b"other", SIZE).unwrap();
    assert_eq!(refusals(&rig, "client_share"), (OBJECTS - 4).to_string());
    let page = rig.page("/metrics");
    let line = format!("yuebing_unfinished_bytes_of_one_client {}", 4 * SIZE);
    assert!(page.lines().any(|found| found == line), "{page}");
}
