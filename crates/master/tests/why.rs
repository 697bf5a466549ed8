//! `yuebing::Why`: what stood in the way of a call, over the wire.
#![allow(clippy::unwrap_used, reason = "a test that fails should stop where it fails")]

mod common;

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
