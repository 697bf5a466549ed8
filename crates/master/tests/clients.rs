//! Segments, liveness, nodes of this project.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::{Caller, Rig, TENANT, eventually};
use yb_admin::MetadataOptions;
use yb_metadata::{HttpStore, Keys, MetadataStore, StoreSettings};
use yb_pack::List;
use yb_rpc::RpcError;
use yb_types::{ClientStatus, ErrorCode, SegmentStatus};
use yb_wire::call;
use yb_wire::messages::*;

fn hello(caller: &Caller, capabilities: u64) {
    let args = HelloArgs { client_id: caller.id, node_version: "test", capabilities };
    caller.call::<call::Hello, _>(&args, |reply| assert!(reply.is_ok()));
}

fn status(caller: &Caller, segment_id: yb_types::SegmentId) -> ErrorOr<SegmentStatus> {
    caller.call::<call::QuerySegmentStatusById, _>(&SegmentIdArgs { segment_id }, |reply| reply)
}

#[test]
fn a_session_starts_as_the_peer_starts_it() {
    let rig = Rig::start();
    let caller = rig.caller();
    caller.call::<call::ServiceReady, _>(&NoArgs {}, |reply| assert_eq!(reply, Ok("2.0.0")));
    caller.call::<call::GetStorageConfig, _>(&NoArgs {}, |reply| assert_eq!(reply.unwrap().fsdir, ""));
    assert_eq!(caller.ping().unwrap().client_status, ClientStatus::NEED_REMOUNT);
    let segment = caller.segment("here", 1 << 20);
    let args = ReMountSegmentArgs { segments: vec![segment.clone()], client_id: caller.id };
    caller.call::<call::ReMountSegment, _>(&args, |reply| assert_eq!(reply, Ok(())));
    assert_eq!(caller.ping().unwrap().client_status, ClientStatus::OK);
    assert_eq!(caller.mount(&segment).unwrap(), Ok(()), "again is ok");
    assert_eq!(status(&caller, segment.id), Ok(SegmentStatus::OK));
    let args = UnmountSegmentArgs { segment_id: segment.id, client_id: caller.id };
    caller.call::<call::UnmountSegment, _>(&args, |reply| assert_eq!(reply, Ok(())));
    caller.call::<call::UnmountSegment, _>(&args, |reply| assert_eq!(reply, Ok(())));
    assert_eq!(status(&caller, segment.id), Err(ErrorCode::SEGMENT_NOT_FOUND));
}

#[test]
fn a_silent_client_is_given_up_and_comes_back() {
    let rig = Rig::with(|config| {
        config.catalog.client_ttl = Duration::from_secs(2);
        config.catalog.client_suspicion_ttl = Duration::ZERO;
    });
    let caller = rig.caller();
    let segment = caller.give_memory(1 << 20);
    caller.put(b"k", 100).unwrap();
    eventually("the segment is gone", || status(&caller, segment.id).is_err());
    assert_eq!(caller.get(b"k"), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(caller.ping().unwrap().client_status, ClientStatus::NEED_REMOUNT);
    assert_eq!(rig.metric("yuebing_clients_expired_total"), 1);
    let args = ReMountSegmentArgs { segments: vec![segment], client_id: caller.id };
    caller.call::<call::ReMountSegment, _>(&args, |reply| assert_eq!(reply, Ok(())));
    assert_eq!(caller.ping().unwrap().client_status, ClientStatus::OK);
}

#[test]
fn what_a_silent_client_left_in_the_metadata_server_goes_with_it() {
    let rig = Rig::with(|config| {
        config.catalog.client_ttl = Duration::from_secs(2);
        config.catalog.client_suspicion_ttl = Duration::ZERO;
        config.metadata = Some(MetadataOptions::from_env("127.0.0.1:0", |_| None));
        config.metadata_cleanup = Some(Keys::default());
    });
    let address = rig.master.metadata_address().unwrap();
    let store = HttpStore::new(&format!("http://{address}/metadata"), &StoreSettings::default()).unwrap();
    let caller = rig.caller();
    let segment = caller.give_memory(1 << 20);
    let keys = Keys::default();
    let records = [keys.segment(&segment.name), keys.rpc_meta(&segment.name), keys.segment("another")];
    for key in &records {
        store.put(key, b"{}", None).unwrap();
    }
    eventually("the segment is gone", || status(&caller, segment.id).is_err());
    eventually("its records are gone", || {
        records.iter().map(|key| store.get(key).unwrap().is_some()).collect::<Vec<_>>() == [false, false, true]
    });
}

#[test]
fn a_graceful_unmount_reads_on_until_its_deadline() {
    let rig = Rig::start();
    let caller = rig.caller();
    let segment = caller.give_memory(1 << 20);
    caller.put(b"k", 100).unwrap();
    let unmount = |client_id, grace_period_ms| {
        let args = GracefulUnmountSegmentArgs { segment_id: segment.id, client_id, grace_period_ms };
        caller.call::<call::GracefulUnmountSegment, _>(&args, |reply| reply)
    };
    assert_eq!(unmount(rig.caller().id, 1), Err(ErrorCode::SEGMENT_NOT_FOUND));
    assert_eq!(unmount(caller.id, 60_000), Ok(()));
    assert_eq!(status(&caller, segment.id), Ok(SegmentStatus::GRACEFULLY_UNMOUNTING));
    assert!(caller.get(b"k").is_ok());
    assert_eq!(caller.put_start(b"more", 1), Err(ErrorCode::NO_AVAILABLE_HANDLE), "nothing is placed there any more");
    assert_eq!(unmount(caller.id, 1), Ok(()), "an earlier deadline wins");
    eventually("the segment is gone", || status(&caller, segment.id).is_err());
}

#[test]
fn ips_of_clients() {
    let rig = Rig::start();
    let caller = rig.caller();
    let mut segment = caller.segment("a", 1 << 20);
    segment.te_endpoint = "10.1.2.3:999".to_owned();
    caller.mount(&segment).unwrap().unwrap();
    let ids = [caller.id, rig.caller().id];
    let args = BatchQueryIpArgs { client_ids: List::from(&ids) };
    caller.call::<call::BatchQueryIp, _>(&args, |reply| {
        assert_eq!(reply.unwrap().0, [(caller.id, vec![b"10.1.2.3".as_slice()])]);
    });
}

#[test]
fn a_node_of_ours_that_cannot_be_reached_is_refused_with_words() {
    let rig = Rig::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let reachable = listener.local_addr().unwrap().to_string();
    let gone = format!("127.0.0.1:{}", yb_env::free_port().unwrap());

    let (ours, peers) = (rig.caller(), rig.caller());
    hello(&ours, 0);
    let mut segment = ours.segment("ours", 1 << 20);
    segment.te_endpoint = gone.clone();
    match ours.mount(&segment) {
        Err(RpcError::Refused { code: 10, message, .. }) => assert!(message.contains(&gone), "{message}"),
        other => panic!("{other:?}"),
    }
    segment.te_endpoint = reachable;
    assert_eq!(ours.mount(&segment).unwrap(), Ok(()));

    let mut segment = peers.segment("peer", 1 << 20);
    segment.te_endpoint = gone;
    assert_eq!(peers.mount(&segment).unwrap(), Ok(()), "the peer's are only counted");
    eventually("the failure is counted", || rig.metric("yuebing_dial_back_failures_total") == 2);
}

#[test]
fn space_of_a_revoked_put_comes_free_on_the_word_of_its_node() {
    let rig = Rig::start();
    let node = rig.caller();
    hello(&node, yb_master::CAPABILITY_QUIESCE);
    node.give_memory(1 << 20);
    let writer = rig.caller();
    writer.put_start(b"k", 1000).unwrap();
    let args =
        PutRevokeArgs { client_id: writer.id, key: b"k", replica_type: yb_types::ReplicaType::ALL, tenant_id: TENANT };
    writer.call::<call::PutRevoke, _>(&args, |reply| assert_eq!(reply, Ok(())));
    assert!(rig.metric("master_put_start_discarded_staging_size") >= 1000, "withheld until somebody knows");
    let poll = |caller: &Caller, confirmed: &[QuiesceConfirmation]| {
        let args = PollQuiesceArgs { client_id: caller.id, confirmed: List::from(confirmed), limit: 10 };
        caller.call::<call::PollQuiesce, _>(&args, |reply| reply)
    };
    let questions = poll(&node, &[]).unwrap();
    assert_eq!((questions.len(), questions[0].size, questions[0].writer), (1, 1000, writer.id));
    let QuiesceQuestion { segment_id, address, generation, .. } = questions[0];
    let confirmation = QuiesceConfirmation { segment_id, address, generation };
    assert_eq!(poll(&writer, &[confirmation]), Err(ErrorCode::ILLEGAL_CLIENT), "only nodes that said hello");
    hello(&writer, 0);
    assert_eq!(poll(&writer, &[confirmation]), Ok(vec![]), "only their own segments");
    assert!(rig.metric("master_put_start_discarded_staging_size") >= 1000);
    assert_eq!(poll(&node, &[confirmation, confirmation]), Ok(vec![]));
    assert_eq!(rig.metric("master_put_start_discarded_staging_size"), 0);
    assert_eq!(rig.metric("yuebing_quiesced_total"), 1);
}

#[test]
fn nobody_is_asked_about_a_writer_that_may_still_write() {
    let rig = Rig::with(|config| config.catalog.discard_timeout = Duration::from_millis(1));
    let node = rig.caller();
    hello(&node, yb_master::CAPABILITY_QUIESCE);
    node.give_memory(1 << 20);
    let listed = rig.page("/api/v1/clients");
    assert!(listed.contains(&format!("\"host\":\"node-{}\"", node.id)), "{listed}");
    rig.caller().put_start(b"k", 1000).unwrap();
    let other = rig.caller();
    eventually("the key is taken over", || other.put_start(b"k", 1000).is_ok());
    assert_eq!(rig.metric("master_put_start_discard_cnt"), 1);
    let args = PollQuiesceArgs { client_id: node.id, confirmed: List::default(), limit: 10 };
    node.call::<call::PollQuiesce, _>(&args, |reply| assert_eq!(reply, Ok(vec![])));
}

#[test]
fn the_advertised_address_is_another_than_the_listen_address() {
    for (given, shown) in [("pool.example", "pool.example:PORT"), ("10.0.0.1:7", "10.0.0.1:7"), ("[::1]", "[::1]:PORT")]
    {
        let rig = Rig::with(|config| config.advertise = Some(given.to_owned()));
        let port = rig.master.rpc_address().port().to_string();
        assert_eq!(rig.master.advertised(), shown.replace("PORT", &port));
    }
}

/// H03: the key of a writer that died is free within two seconds of its time to live, and until then others hear "busy".
#[test]
fn a_writer_that_dies_frees_its_keys_when_it_is_given_up() {
    let ttl = Duration::from_secs(2);
    let rig = Rig::with(|config| config.catalog.client_ttl = ttl);
    let (writer, other) = (rig.caller(), rig.caller());
    // What is lent makes them clients that ping; only the other one goes on with it.
    let clock = yb_env::Clock::real();
    let died = clock.now();
    writer.give_memory(1 << 20);
    other.give_memory(1 << 20);
    writer.put_start(b"k", 1000).unwrap();
    let mut busy = 0;
    let taken = loop {
        other.ping().unwrap();
        match other.put_start(b"k", 1000) {
            Ok(_) => break clock.now().since(died),
            Err(code) => assert_eq!(code, ErrorCode::REPLICA_IS_NOT_READY, "never a false success"),
        }
        busy += 1;
        assert!(clock.now().since(died) < Duration::from_secs(20), "its key stays taken");
        yb_env::sleep(Duration::from_millis(20));
    };
    // The check for silence comes once a second; the rest is for a machine with other work.
    assert!(busy > 0 && taken >= ttl && taken < ttl + Duration::from_secs(2 + 8), "{taken:?}");
    other.put_end(b"k").unwrap();
    assert_eq!(writer.put_end(b"k"), Err(ErrorCode::OBJECT_NOT_FOUND), "and it is not told that its bytes are stored");
}

/// Everybody can learn the ids of clients.
#[test]
fn nobody_says_hello_for_the_client_of_another_host() {
    let rig = Rig::start();
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    hello(&caller, 0);
    let shown = || {
        let page = rig.page("/metrics");
        ["test", "forged"].map(|version| page.contains(&format!("yuebing_nodes_by_version{{version=\"{version}\"}} 1")))
    };
    assert_eq!(shown(), [true, false]);
    let forged = HelloArgs { client_id: caller.id, node_version: "forged", capabilities: u64::MAX };
    caller.call_from::<call::Hello>([127, 0, 0, 2].into(), rig.master.rpc_address(), &forged);
    assert_eq!(shown(), [true, false]);
    // From the host of its memory it may say something new.
    caller.call::<call::Hello, _>(&forged, |reply| assert!(reply.is_ok()));
    assert_eq!(shown(), [false, true]);
}
