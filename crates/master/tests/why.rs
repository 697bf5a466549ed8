//! `yuebing::Why`: what stood in the way of a call, over the wire.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

use std::time::Duration;

use common::*;
use yb_pack::List;
use yb_types::*;
use yb_wire::call;
use yb_wire::messages::*;

const SIZE: u64 = 64 << 10;

fn ask(caller: &Caller, keys: &[&[u8]], code: ErrorCode, room: bool) -> ErrorOr<WhyReply> {
    let questions: Vec<WhyQuestion<'_>> = keys.iter().map(|key| WhyQuestion { key, code }).collect();
    let questions = List::from(&questions[..]);
    let args = WhyArgs { client_id: caller.id, tenant_id: TENANT, questions, room };
    caller.call::<call::Why, _>(&args, |reply| reply)
}

fn one(caller: &Caller, key: &[u8], code: ErrorCode) -> WhyAnswer {
    ask(caller, &[key], code, false).unwrap().answers.remove(0)
}

#[test]
fn the_writer_is_named_and_where_it_is() {
    let rig = Rig::start();
    let (node, writer, reader) = (rig.caller(), rig.caller(), rig.caller());
    let segment = node.give_memory(16 * SIZE);
    writer.call::<call::Attend, _>(&ClientArgs { client_id: writer.id }, |reply| reply).unwrap();
    writer.put_start(b"key", SIZE).unwrap();
    let busy = one(&reader, b"key", ErrorCode::REPLICA_IS_NOT_READY);
    assert_eq!((WhyReason(busy.reason), busy.writer), (WhyReason::WRITER, writer.id));
    assert_eq!((busy.node, busy.owner), (segment.name.clone(), node.id));
    assert!(busy.host.starts_with("127.0.0.1:"), "the address it attends from: {:?}", busy.host);
    assert_eq!(WhyReason(one(&writer, b"key", ErrorCode::REPLICA_IS_NOT_READY).reason), WhyReason::OWN_WRITE);
    writer.put_end(b"key").unwrap();
    assert_eq!(one(&reader, b"key", ErrorCode::REPLICA_IS_NOT_READY), WhyAnswer::default(), "it can be read");
    reader.get(b"key").unwrap();
    let leased = one(&reader, b"key", ErrorCode::OBJECT_HAS_LEASE);
    assert_eq!(WhyReason(leased.reason), WhyReason::LEASE);
    assert!(leased.left_ms > 0 && leased.left_ms <= 600_000, "{leased:?}");
    // One that lends memory is known under that name.
    node.put_start(b"own", SIZE).unwrap();
    assert_eq!(one(&reader, b"own", ErrorCode::REPLICA_IS_NOT_READY).host, segment.name);
}

#[test]
fn space_is_told_with_what_the_client_itself_has_begun() {
    let rig = Rig::with(|config| config.catalog.unfinished_per_client = Some(ByteLen(4 * SIZE)));
    let (greedy, other) = (rig.caller(), rig.caller());
    greedy.give_memory(16 * SIZE);
    for at in 0..4 {
        greedy.put_start(format!("greedy-{at}").as_bytes(), SIZE).unwrap();
    }
    assert_eq!(greedy.put_start(b"more", SIZE), Err(ErrorCode::NO_AVAILABLE_HANDLE));
    let told = ask(&greedy, &[], ErrorCode::NO_AVAILABLE_HANDLE, true).unwrap();
    assert!(told.answers.is_empty());
    let room = told.room.unwrap();
    assert_eq!((room.segments, room.largest, room.capacity), (1, 16 * SIZE, 16 * SIZE));
    assert_eq!((room.own_begun, room.own_limit), (4 * SIZE, 4 * SIZE));
    assert!(room.largest_free >= SIZE && !room.resting, "{room:?}");
    let others = ask(&other, &[], ErrorCode::NO_AVAILABLE_HANDLE, true).unwrap().room.unwrap();
    assert_eq!((others.own_begun, others.own_limit), (0, 4 * SIZE));
}

#[test]
fn nobody_asks_in_the_name_of_a_client_whose_memory_comes_from_another_host() {
    let rig = Rig::start();
    let caller = rig.caller();
    assert!(ask(&caller, &[], ErrorCode::NO_AVAILABLE_HANDLE, true).is_ok());
    let mounted = MountSegmentArgs { segment: caller.segment("there", 16 * SIZE), client_id: caller.id };
    let elsewhere = std::net::Ipv4Addr::new(127, 0, 0, 2);
    caller.call_from::<call::MountSegment>(elsewhere, rig.master.rpc_address(), &mounted);
    assert_eq!(ask(&caller, &[], ErrorCode::NO_AVAILABLE_HANDLE, true), Err(ErrorCode::INVALID_PARAMS));
}

#[test]
fn a_key_of_a_silent_node_is_no_key_that_is_being_written() {
    let rig = Rig::with(|config| {
        config.catalog.client_ttl = Duration::from_secs(3);
        config.catalog.client_suspicion_ttl = Duration::from_secs(3600);
    });
    let (node, reader) = (rig.caller(), rig.caller());
    let segment = node.give_memory(16 * SIZE);
    eventually("a put", || node.ping().is_ok() && node.put(b"key", SIZE).is_ok());
    // From here on it is silent.
    let clock = yb_env::Clock::real();
    let start = clock.now();
    while reader.exists(b"key") {
        assert!(clock.now().since(start) < Duration::from_secs(60), "it is offered for a minute");
        yb_env::sleep(Duration::from_millis(20));
    }
    assert_eq!(reader.get(b"key"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    reader.call::<call::BatchGetReplicaList, _>(
        &KeysArgs { keys: List::from(&[&b"never"[..], b"key"][..]), tenant_id: TENANT },
        |reply| assert_eq!(reply[1].as_ref().err(), Some(&ErrorCode::REPLICA_IS_NOT_READY)),
    );
    for (reason, count) in [("offline", 2), ("being_written", 0), ("never_seen", 1)] {
        assert_eq!(rig.metric(&format!("yuebing_get_misses_total{{reason=\"{reason}\"}}")), count, "{reason}");
    }
    for _ in 0..400 {
        assert!(!reader.exists(b"key"));
    }
    let looked_at = rig.metric("yuebing_exist_misses_total{reason=\"offline\"}");
    assert!(looked_at.is_multiple_of(16) && looked_at > 0, "{looked_at} of 400");
    let silent = one(&reader, b"key", ErrorCode::REPLICA_IS_NOT_READY);
    assert_eq!((WhyReason(silent.reason), silent.node, silent.owner), (WhyReason::SILENT_NODE, segment.name, node.id));
    assert!(silent.age_ms >= 3000, "{} ms", silent.age_ms);
}

#[test]
fn so_many_keys_are_answered_and_no_more() {
    let rig = Rig::start();
    let caller = rig.caller();
    caller.give_memory(16 * SIZE);
    let names: Vec<String> = (0..WHY_KEYS + 10).map(|at| format!("key-{at}")).collect();
    let keys: Vec<&[u8]> = names.iter().map(String::as_bytes).collect();
    let told = ask(&caller, &keys, ErrorCode::REPLICA_IS_NOT_READY, false).unwrap();
    assert_eq!((told.answers.len(), told.room), (WHY_KEYS, None));
    assert!(told.answers.iter().all(|answer| *answer == WhyAnswer::default()));
}
