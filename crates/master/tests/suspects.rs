//! A client tells that it found nobody at a node: what the master believes, and what it finds itself.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::collections::BTreeSet;
use std::time::Duration;

use common::*;
use yb_types::{ErrorCode, ReplicaKind, Segment};
use yb_wire::call;
use yb_wire::messages::*;

/// A node with one object, whose data address is where `listener` is or was.
fn node(rig: &Rig, endpoint: &str, key: &[u8]) -> (Caller, Segment) {
    let caller = rig.caller();
    let mut segment = caller.segment(&format!("node of {endpoint}"), 1 << 20);
    segment.te_endpoint = endpoint.to_owned();
    caller.mount(&segment).unwrap().unwrap();
    caller.put(key, 100).unwrap();
    (caller, segment)
}

fn report(by: &Caller, endpoint: &str) -> ErrorOr<()> {
    let args = ReportSuspectArgs { client_id: by.id, endpoint, reason: "refused" };
    by.call::<call::ReportSuspect, _>(&args, |reply| reply)
}

fn exists(by: &Caller, key: &[u8]) -> bool {
    by.call::<call::ExistKey, _>(&KeyArgs { key, tenant_id: TENANT }, |reply| reply.unwrap())
}

#[test]
fn a_node_at_which_nobody_answers_is_not_offered_and_comes_back_with_a_ping() {
    let rig = Rig::start();
    let gone = format!("127.0.0.1:{}", yb_env::free_port().unwrap());
    let (owner, _) = node(&rig, &gone, b"k");
    let reader = rig.caller();
    assert!(exists(&reader, b"k"));
    assert_eq!(report(&reader, "127.0.0.1:1"), Err(ErrorCode::SEGMENT_NOT_FOUND));
    assert_eq!(report(&reader, &gone), Ok(()));
    assert_eq!(
        reader.put_start(b"more", 1),
        Err(ErrorCode::NO_AVAILABLE_HANDLE),
        "nothing is placed there from now on"
    );
    eventually("the object is not offered", || !exists(&reader, b"k"));
    assert_eq!(rig.metric("yuebing_segments_by_status{status=\"OFFLINE\"}"), 1);
    assert_eq!(rig.metric("master_client_liveness_offline_transitions_total"), 1);
    owner.ping().unwrap();
    assert_eq!(rig.metric("yuebing_segments_by_status{status=\"OK\"}"), 1);
    assert!(exists(&reader, b"k"), "it lives: nothing was lost");
    assert!(reader.put_start(b"more", 1).is_ok());
}

#[test]
fn a_node_at_which_nobody_answers_and_that_does_not_ping_is_forgotten_when_its_time_is_over() {
    let rig = Rig::with(|config| {
        config.catalog.client_ttl = Duration::from_secs(5);
        config.catalog.client_suspicion_ttl = Duration::from_secs(1);
    });
    let gone = format!("127.0.0.1:{}", yb_env::free_port().unwrap());
    let clock = yb_env::Clock::real();
    let heard = clock.now();
    let _owner = node(&rig, &gone, b"k");
    let reader = rig.caller();
    assert_eq!(report(&reader, &gone), Ok(()));
    eventually("it is not offered", || reader.get(b"k").err() == Some(ErrorCode::REPLICA_IS_NOT_READY));
    eventually("its objects are missing", || reader.get(b"k").err() == Some(ErrorCode::OBJECT_NOT_FOUND));
    assert!(clock.now().since(heard) >= Duration::from_secs(6), "not before client_ttl and client_suspicion_ttl_sec");
}

fn report_slow(by: &Caller, endpoint: &str) -> ErrorOr<()> {
    let args = ReportSuspectArgs { client_id: by.id, endpoint, reason: "nothing moved" };
    by.call::<call::ReportSlow, _>(&args, |reply| reply)
}

/// The addresses at which a hundred new objects are.
fn places(by: &Caller, prefix: &str) -> BTreeSet<String> {
    let place = |key: u64| by.put(format!("{prefix}-{key}").as_bytes(), 1).unwrap();
    let places = (0..100).flat_map(place).filter_map(|replica| match replica.kind {
        ReplicaKind::Memory(memory) => Some(memory.buffer.transport_endpoint),
        _ => None,
    });
    places.collect()
}

#[test]
fn a_node_that_takes_nothing_gets_nothing_more_until_it_pings() {
    let rig = Rig::start();
    // The kernel takes connections for a process that stands still: that somebody listens says nothing.
    let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let endpoints = listeners.each_ref().map(|listener| listener.local_addr().unwrap().to_string());
    let (slow, _) = node(&rig, &endpoints[0], b"k");
    let _other = node(&rig, &endpoints[1], b"l");
    let writer = rig.caller();
    assert_eq!(report_slow(&writer, &endpoints[0]), Ok(()));
    assert_eq!(places(&writer, "held").into_iter().collect::<Vec<_>>(), [endpoints[1].clone()]);
    assert!(exists(&writer, b"k"), "readers find out for themselves");
    slow.ping().unwrap();
    assert_eq!(places(&rig.caller(), "back").len(), 2, "who said so waits a moment longer");
}

#[test]
fn a_client_that_calls_all_nodes_slow_again_and_again_stops_no_writes() {
    let rig = Rig::start();
    let listeners = [(); 4].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let endpoints = listeners.each_ref().map(|listener| listener.local_addr().unwrap().to_string());
    let nodes: Vec<_> = endpoints.iter().map(|endpoint| node(&rig, endpoint, endpoint.as_bytes())).collect();
    let (liar, writer) = (rig.caller(), rig.caller());
    let lie = || endpoints.iter().for_each(|endpoint| assert_eq!(report_slow(&liar, endpoint), Ok(())));
    lie();
    assert_eq!(places(&writer, "first").len(), 2, "no more than half are held back");
    nodes.iter().for_each(|(node, _)| assert!(node.ping().is_ok()));
    lie();
    assert_eq!(places(&writer, "second").len(), 4, "its word counted once");
    assert!(rig.metric("yuebing_reports_disbelieved_total") >= 6);
}

#[test]
fn a_node_that_only_one_client_cannot_reach_gets_nothing_of_that_client() {
    let rig = Rig::start();
    let listeners = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let endpoints = listeners.each_ref().map(|listener| listener.local_addr().unwrap().to_string());
    let _nodes = [0, 1].map(|at| node(&rig, &endpoints[at], endpoints[at].as_bytes()));
    let (cut_off, other) = (rig.caller(), rig.caller());
    assert_eq!(report(&cut_off, &endpoints[0]), Ok(()));
    // The master has looked, and others go on.
    eventually("the node is trusted again", || rig.metric("yuebing_suspects_refuted_total") == 1);
    let mut round = 0;
    eventually("others write there", || {
        round += 1;
        places(&other, &format!("other-{round}")).len() == 2
    });
    // Said again it counts for ten seconds.
    assert_eq!(report(&cut_off, &endpoints[0]), Ok(()));
    assert_eq!(places(&cut_off, "cut").into_iter().collect::<Vec<_>>(), [endpoints[1].clone()]);
}

#[test]
fn a_client_that_lies_costs_no_object() {
    let rig = Rig::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let (owner, _) = node(&rig, &endpoint, b"k");
    let liar = rig.caller();
    assert_eq!(report(&liar, &endpoint), Ok(()));
    // The master has looked when it has knocked.
    drop(listener.accept().unwrap());
    assert!(exists(&liar, b"k"), "it is read on while the master looks, and after");
    // Somebody answers: no ping is needed.
    eventually("more is placed there", || liar.put_start(b"more", 1).is_ok());
    drop(owner);
}
