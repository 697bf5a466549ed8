//! A client tells that it read other bytes than were written: whom the master believes.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::*;
use yb_types::{ErrorCode, ReplicaId, ReplicaType};
use yb_wire::messages::*;
use yb_wire::{List, call};

/// What a node says that looks at its memory when it is asked.
const LOOKS: u64 = 8;
const WRITTEN: u64 = 77;

fn hello(node: &Caller, capabilities: u64) {
    let args = HelloArgs { client_id: node.id, node_version: "9", capabilities };
    node.call::<call::Hello, _>(&args, |reply| reply.map(|_| ())).unwrap();
}

/// Writes an object with a checksum; its only replica.
fn put(by: &Caller, key: &[u8]) -> ReplicaId {
    let replicas = by.put_start(key, 100).unwrap();
    let object_meta = ObjectMetaRef { key, object_checksum: Some(WRITTEN) };
    let args = PutEndArgs { client_id: by.id, object_meta, replica_type: ReplicaType::ALL, tenant_id: TENANT };
    by.call::<call::PutEnd, _>(&args, |reply| reply).unwrap();
    replicas[0].id
}

fn report(by: &Caller, key: &[u8], replica: ReplicaId, written: u64) -> ErrorOr<()> {
    let args = ReportCorruptArgs { client_id: by.id, key, tenant_id: TENANT, replica, written, found: 1 };
    by.call::<call::ReportCorrupt, _>(&args, |reply| reply)
}

fn poll(node: &Caller, answers: &[DoubtAnswer]) -> ErrorOr<Vec<DoubtQuestion>> {
    let args = PollDoubtsArgs { client_id: node.id, answers: List::from(answers), limit: 16 };
    node.call::<call::PollDoubts, _>(&args, |reply| reply)
}

#[test]
fn the_node_that_has_the_bytes_decides() {
    let rig = Rig::start();
    let (node, reader, other) = (rig.caller(), rig.caller(), rig.caller());
    hello(&node, LOOKS);
    let segment = node.give_memory(1 << 20);
    let replica = put(&reader, b"k");
    assert_eq!(report(&reader, b"k", replica, WRITTEN + 1), Err(ErrorCode::OBJECT_NOT_FOUND), "another write's");
    assert_eq!(report(&reader, b"j", replica, WRITTEN), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!((report(&reader, b"k", replica, WRITTEN), report(&other, b"k", replica, WRITTEN)), (Ok(()), Ok(())));
    assert!(reader.exists(b"k"), "two clients say so, and the node can still be asked");
    let asked = poll(&node, &[]).unwrap();
    assert_eq!((asked.len(), asked[0].replica, asked[0].size), (1, replica, 100));
    assert_eq!(asked[0].segment_id, segment.id);
    assert_eq!(poll(&node, &[]), Ok(vec![]), "asked once");
    // It finds what was written: the client is the sick one.
    assert_eq!(poll(&node, &[DoubtAnswer { replica, found: WRITTEN }]), Ok(vec![]));
    assert!(reader.exists(b"k"));
    assert_eq!(rig.metric("yuebing_corrupt_refuted_total"), 1);

    // So the node is not asked again for its word, nor for a while about what it found good.
    let (replica, good) = (put(&reader, b"l"), replica);
    let disbelieved = [report(&reader, b"l", replica, WRITTEN), report(&other, b"k", good, WRITTEN)];
    assert_eq!((disbelieved, poll(&node, &[])), ([Ok(()); 2], Ok(vec![])));
    assert_eq!(rig.metric("yuebing_reports_disbelieved_total"), 2);

    report(&other, b"l", replica, WRITTEN).unwrap();
    assert_eq!(poll(&node, &[]).unwrap().len(), 1);
    // Only the owner is asked and heard.
    hello(&other, LOOKS);
    assert_eq!(poll(&other, &[DoubtAnswer { replica, found: 1 }]), Ok(vec![]));
    assert!(reader.exists(b"l"));
    poll(&node, &[DoubtAnswer { replica, found: 1 }]).unwrap();
    assert!(!reader.exists(b"l") && reader.exists(b"k"));
    assert_eq!((rig.metric("yuebing_corrupt_reported_total"), rig.metric("yuebing_corrupt_confirmed_total")), (7, 1));
}

#[test]
fn one_client_makes_a_node_look_at_so_many_replicas_and_no_more_once_it_was_wrong() {
    let rig = Rig::start();
    let (node, liar, other) = (rig.caller(), rig.caller(), rig.caller());
    hello(&node, LOOKS);
    node.give_memory(1 << 20);
    let keys: Vec<String> = (0..100).map(|key| format!("key-{key}")).collect();
    let replicas: Vec<ReplicaId> = keys.iter().map(|key| put(&other, key.as_bytes())).collect();
    for (key, replica) in keys.iter().zip(&replicas) {
        assert_eq!(report(&liar, key.as_bytes(), *replica, WRITTEN), Ok(()));
    }
    assert_eq!(rig.metric("yuebing_reports_disbelieved_total"), 100 - 64);
    let asked = poll(&node, &[]).unwrap();
    assert_eq!(asked.len(), 16);
    let good: Vec<_> = asked.iter().map(|asked| DoubtAnswer { replica: asked.replica, found: WRITTEN }).collect();
    assert_eq!(poll(&node, &good), Ok(vec![]), "what else it said is not looked at");
    assert!(keys.iter().all(|key| other.exists(key.as_bytes())));
}

#[test]
fn of_a_node_that_cannot_be_asked_two_clients_have_to_say_so() {
    let rig = Rig::start();
    let (node, reader, other) = (rig.caller(), rig.caller(), rig.caller());
    node.give_memory(1 << 20);
    let replica = put(&reader, b"k");
    for _ in 0..2 {
        assert_eq!(report(&reader, b"k", replica, WRITTEN), Ok(()));
    }
    assert!(reader.exists(b"k"), "one client's memory may be the sick part");
    assert_eq!(report(&other, b"k", replica, WRITTEN), Ok(()));
    assert!(!reader.exists(b"k"));
    assert_eq!(report(&other, b"k", replica, WRITTEN), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert!(reader.put_start(b"k", 100).is_ok(), "the key can be written again");
    assert_eq!(poll(&node, &[]), Err(ErrorCode::ILLEGAL_CLIENT), "it never said hello");
}
