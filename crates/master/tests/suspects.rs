//! A client tells that it found nobody at a node: what the master believes, and what it finds itself.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::time::{Duration, Instant};

use common::*;
use yb_types::{ErrorCode, Segment};
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
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
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
    owner.ping().unwrap();
    assert!(exists(&reader, b"k"), "it lives: nothing was lost");
    assert!(reader.put_start(b"more", 1).is_ok());
}

#[test]
fn a_node_at_which_nobody_answers_and_that_does_not_ping_is_forgotten_when_its_time_is_over() {
    let rig = Rig::with(|config| {
        config.catalog.client_ttl = Duration::from_secs(5);
        config.catalog.client_suspicion_ttl = Duration::from_secs(1);
    });
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let heard = Instant::now();
    let _owner = node(&rig, &gone, b"k");
    let reader = rig.caller();
    assert_eq!(report(&reader, &gone), Ok(()));
    eventually("it is not offered", || reader.get(b"k").err() == Some(ErrorCode::REPLICA_IS_NOT_READY));
    eventually("its objects are missing", || reader.get(b"k").err() == Some(ErrorCode::OBJECT_NOT_FOUND));
    assert!(heard.elapsed() >= Duration::from_secs(6), "not before client_ttl and client_suspicion_ttl_sec");
}

#[test]
fn a_node_that_takes_nothing_gets_nothing_more_until_it_pings() {
    let rig = Rig::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let (owner, _) = node(&rig, &endpoint, b"k");
    let writer = rig.caller();
    let args = ReportSuspectArgs { client_id: writer.id, endpoint: &endpoint, reason: "nothing moved" };
    assert_eq!(writer.call::<call::ReportSlow, _>(&args, |reply| reply), Ok(()));
    assert_eq!(writer.put_start(b"more", 1), Err(ErrorCode::NO_AVAILABLE_HANDLE));
    assert!(exists(&writer, b"k"), "readers find out for themselves");
    // The kernel takes connections for a process that stands still: that somebody listens says nothing.
    assert_eq!(writer.put_start(b"more", 1), Err(ErrorCode::NO_AVAILABLE_HANDLE));
    owner.ping().unwrap();
    assert!(writer.put_start(b"more", 1).is_ok());
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
