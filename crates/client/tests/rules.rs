//! The rules of `docs/client.md`, each against a master that does what the test tells it.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[path = "common/scripted.rs"]
mod scripted;

use std::time::Duration;

use common::{MIB, bytes, config, free_port, node, one_is_quick, plain, requester, short, wait_until};
use scripted::{Script, ScriptedMaster};
use yb_client::{
    Client, ClientConfig, Duplicates, Error, Fragment, GetItem, Health, LocalBuffer, MemoryRange, PutItem, PutOutcome,
    RangesItem, Why,
};
use yb_env::Clock;
use yb_master::{Master, MasterConfig};
use yb_types::{ErrorCode, ObjectDataType, ReplicaId, ReplicateConfig, SoftPinAction};
use yb_wire::Rpc;

fn master() -> ScriptedMaster {
    with(|_| ())
}

fn with(change: impl FnOnce(&mut Script)) -> ScriptedMaster {
    let mut script = Script::default();
    change(&mut script);
    ScriptedMaster::start(script)
}

#[test]
fn a_missing_object_an_empty_one_a_dead_node_and_a_dead_master_are_four_answers() {
    let master = master();
    let node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    assert_eq!(client.get("missing"), Err(Error::NotFound));
    client.put("empty", b"", &plain()).unwrap();
    assert_eq!(client.get("empty"), Ok(Vec::new()));
    assert_eq!(client.size("empty"), Ok(0));

    client.put("there", b"bytes", &plain()).unwrap();
    // Gone without a word: the master still lists its replica.
    master.script(|script| script.silent = Some(Rpc::UnmountSegment));
    node.close();
    drop(node);
    match client.get("there") {
        Err(Error::Transfer(failure)) => assert!(failure.retryable, "{failure}"),
        other => panic!("{other:?}"),
    }
    let address = master.address.clone();
    drop(master);
    let is_lost = || match client.get("there") {
        Err(Error::MasterUnreachable(failure)) => assert_eq!(failure.address, address),
        other => panic!("{other:?}"),
    };
    assert!(one_is_quick(Duration::from_secs(1), is_lost), "no deadline is waited for");
}

#[test]
fn a_silent_master_costs_one_deadline() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = Client::connect(ClientConfig { limits: short(), ..config(&master.address) }).unwrap();
    master.script(|script| script.silent = Some(Rpc::GetReplicaList));
    let (clock, mut calls) = (Clock::real(), 0);
    let times_out = || {
        let before = clock.now();
        assert_eq!(client.get("k").unwrap_err().code(), ErrorCode::RPC_TIMEOUT);
        assert!(clock.now().since(before) >= Duration::from_millis(500));
        calls += 1;
    };
    assert!(one_is_quick(Duration::from_millis(1100), times_out), "twice its deadline is 1.2 seconds");
    assert_eq!(client.metrics().master_failures, calls);
}

#[test]
fn the_next_replica_is_read_in_the_same_call() {
    let master = with(|script| script.replicas = 2);
    let (first, second) = (node(&master.address, 16 * MIB), node(&master.address, 16 * MIB));
    let client = requester(&master.address);
    let keys: Vec<String> = (0..20).map(|i| format!("k{i}")).collect();
    for (i, key) in keys.iter().enumerate() {
        client.put(key, &bytes(i as u64, 1000), &plain()).unwrap();
    }
    first.close();
    drop(first);
    for (i, key) in keys.iter().enumerate() {
        assert!(client.get(key).unwrap() == bytes(i as u64, 1000));
    }
    let values = client.batch_get(&keys);
    assert!(values.into_iter().enumerate().all(|(i, value)| value.unwrap() == bytes(i as u64, 1000)));
    let fallbacks = client.metrics().replica_fallbacks;
    assert!((1..=20).contains(&fallbacks), "the dead node is remembered and asked last: {fallbacks}");
    drop(second);
}

#[test]
fn bytes_that_arrive_after_the_lease_are_read_again_or_refused() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    client.put("k", b"value", &plain()).unwrap();
    master.script(|script| script.leases_ms = vec![0, 10_000]);
    assert_eq!(client.get("k"), Ok(b"value".to_vec()));
    assert_eq!(client.metrics().lease_retries, 1);
    master.script(|script| script.leases_ms = vec![0]);
    assert_eq!(client.get("k"), Err(Error::LeaseExpired));
    let mut into = [0; 16];
    assert_eq!(client.get_into("k", &mut into), Err(Error::LeaseExpired));
    assert_eq!(client.batch_get(&["k", "none"]), [Err(Error::LeaseExpired), Err(Error::NotFound)]);
}

#[test]
fn bytes_whose_replica_is_still_there_after_the_lease_are_right() {
    let master = with(|script| script.first_id = ReplicaId::NEVER_REUSED);
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    client.put("k", b"value", &plain()).unwrap();
    // Every lease ends before the bytes are there; the id says that they are the object's all the same.
    master.script(|script| script.leases_ms = vec![0]);
    assert_eq!(client.get("k"), Ok(b"value".to_vec()));
    assert_eq!((client.metrics().lease_retries, client.metrics().leases_renewed), (0, 1));
    // Another object took the key while the first was read: that one is read instead.
    client.put("other", b"other", &plain()).unwrap();
    master.script(|script| script.then_gives = Some(("k", "other")));
    assert_eq!(client.get("k"), Ok(b"other".to_vec()));
    assert_eq!(client.metrics().lease_retries, 1);
}

#[test]
fn the_leases_of_a_long_read_are_renewed_while_it_lasts() {
    let mut settings = MasterConfig::embedded();
    settings.catalog.lease_ttl = Duration::from_millis(20);
    let master = Master::start(settings).unwrap();
    let address = master.rpc_address().to_string();
    let node = node(&address, 160 * MIB);
    let client = Client::connect(ClientConfig { shared_memory: false, ..config(&address) }).unwrap();
    let value = bytes(3, 96 << 20);
    client.put("long", &value, &plain()).unwrap();
    // A reader that is slower than its lease: it gets its bytes over a socket, again until a renewal came in between.
    wait_until("a read that outlives half of its lease", || {
        assert!(client.get("long").unwrap() == value);
        client.metrics().leases_renewed > 0
    });
    let counted = client.metrics();
    assert_eq!((counted.failed_reads, counted.lease_retries), (0, 0));
    drop(node);
}

#[test]
fn what_was_looked_up_is_read_without_asking_again_while_the_lease_lasts() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    client.put("k", b"value", &plain()).unwrap();
    let lookup = client.query("k").unwrap();
    let mut into = vec![0; lookup.size().unwrap() as usize];
    assert_eq!(client.get_known(GetItem::new(b"k", &mut into), lookup.clone()), Ok(5));
    assert_eq!(into, b"value");
    assert_eq!(master.script(|script| script.count(Rpc::GetReplicaList)), 1);
    let stale = yb_client::Lookup { lease_ends: yb_types::MonotonicTime(0), ..lookup };
    assert_eq!(client.get_known(GetItem::new(b"k", &mut into), stale), Ok(5));
    assert_eq!(master.script(|script| script.count(Rpc::GetReplicaList)), 2);
}

#[test]
fn a_held_key_is_waited_for_a_while() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = Client::connect(ClientConfig { limits: short(), ..config(&master.address) }).unwrap();
    master.script(|script| script.busy.insert(b"soon".to_vec(), 2));
    assert_eq!(client.put("soon", b"v", &plain()), Ok(PutOutcome::Stored));
    assert_eq!(client.metrics().busy_waits, 2);
    master.script(|script| script.busy.insert(b"held".to_vec(), usize::MAX));
    let (clock, mut turn) = (Clock::real(), 0);
    let is_busy = || {
        let before = clock.now();
        turn += 1;
        let answers = client.batch_put(&[(format!("free{turn}").as_str(), "v"), ("held", "v")], &plain());
        assert_eq!(answers, [Ok(PutOutcome::Stored), Err(Error::Busy(Why::default()))]);
        assert!(clock.now().since(before) >= Duration::from_millis(100));
        assert!(answers[1].as_ref().is_err_and(Error::retryable));
    };
    assert!(one_is_quick(Duration::from_millis(600), is_busy));
}

#[test]
fn a_put_that_cannot_be_written_is_revoked() {
    let master = master();
    master.script(|script| script.add_dead_segment(&format!("127.0.0.1:{}", free_port())));
    let client = requester(&master.address);
    match client.put("k", b"value", &plain()) {
        Err(Error::Transfer(failure)) => assert_eq!(failure.stage, "connect"),
        other => panic!("{other:?}"),
    }
    // Other places were tried, as each failed at once.
    assert_eq!(master.script(|script| (script.count(Rpc::PutStart), script.count(Rpc::PutRevoke))), (4, 4));
    assert_eq!(master.script(|script| script.count(Rpc::BatchPutRevokeQuiet)), 1, "asked once whether it is known");
    assert!(!master.script(|script| script.knows("k")));
}

#[test]
fn a_put_on_a_dead_node_gets_a_second_place() {
    let master = master();
    master.script(|script| script.add_dead_segment(&format!("127.0.0.1:{}", free_port())));
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    assert_eq!(client.put("k", b"value", &plain()), Ok(PutOutcome::Stored));
    assert_eq!(client.get("k"), Ok(b"value".to_vec()));
}

#[test]
fn a_put_goes_on_to_other_places_while_all_that_fail_do_so_at_once() {
    let master = master();
    (0..3).for_each(|_| master.script(|script| script.add_dead_segment(&format!("127.0.0.1:{}", free_port()))));
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    assert_eq!(client.put("k", b"value", &plain()), Ok(PutOutcome::Stored));
    assert_eq!(client.get("k"), Ok(b"value".to_vec()));
}

#[test]
fn one_failed_key_of_a_batch_takes_no_other_with_it() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    let large = vec![1; 17 * MIB as usize];
    let small = bytes(1, 1000);
    let items: [(&str, &[u8]); 4] = [("a", &small), ("large", &large), ("", &small), ("b", &small)];
    let answers = client.batch_put(&items, &plain());
    assert_eq!(answers[0], Ok(PutOutcome::Stored));
    assert!(matches!(answers[1], Err(Error::NoSpace(_))));
    assert_eq!(answers[2].as_ref().unwrap_err().code(), ErrorCode::INVALID_PARAMS);
    assert_eq!(answers[3], Ok(PutOutcome::Stored));
    let read = client.batch_get(&["a", "", "large", "b"]);
    assert_eq!(read[0].as_ref(), Ok(&small));
    assert_eq!(read[1].as_ref().unwrap_err().code(), ErrorCode::INVALID_PARAMS);
    assert_eq!((&read[2], &read[3]), (&Err(Error::NotFound), &Ok(small)));
}

#[test]
fn a_refused_publication_is_no_success() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    master.script(|script| script.put_end = Some(ErrorCode::INVALID_WRITE));
    assert_eq!(client.put("k", b"v", &plain()).unwrap_err().code(), ErrorCode::INVALID_WRITE);
    assert_eq!(client.exists("k"), Ok(false));
}

#[test]
fn a_batch_is_one_request_per_phase() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    let items: Vec<(String, Vec<u8>)> = (0..100).map(|i| (format!("k{i}"), bytes(i, 500))).collect();
    assert!(client.batch_put(&items, &plain()).iter().all(Result::is_ok));
    let keys: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).collect();
    assert!(client.batch_get(&keys).iter().all(Result::is_ok));
    let of = [Rpc::BatchPutStart, Rpc::BatchPutEnd, Rpc::BatchGetReplicaList];
    assert_eq!(master.script(|script| of.map(|rpc| script.count(rpc))), [1, 1, 1]);
    assert_eq!(master.script(|script| script.count(Rpc::PutStart)), 0);
}

#[test]
fn a_repeated_key_is_written_once_and_answered_everywhere() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    let first = client.batch_put(&[("k", "1"), ("other", "x"), ("k", "2")], &plain());
    assert_eq!(first, [Ok(PutOutcome::Stored), Ok(PutOutcome::Stored), Ok(PutOutcome::Stored)]);
    assert_eq!(client.get("k"), Ok(b"1".to_vec()));
    let items = [PutItem::new(b"last", b"1"), PutItem::new(b"last", b"2")];
    let last = client.batch_put_items(&items, &plain(), Duplicates::LastWins);
    assert_eq!(last, [Ok(PutOutcome::Stored), Ok(PutOutcome::Stored)]);
    assert_eq!(client.get("last"), Ok(b"2".to_vec()));
    assert_eq!(client.batch_get(&["k", "k"]), [Ok(b"1".to_vec()), Ok(b"1".to_vec())]);
}

#[test]
fn registered_memory_is_written_and_read_by_address() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    let from = bytes(3, 10_000);
    let memory = [client.allocate_buffer(10_000).unwrap(), client.allocate_buffer(10_000).unwrap()];
    let [source, target] = [&memory[0], &memory[1]].map(|segment| MemoryRange::of(segment));
    client.put("fill", &from, &plain()).unwrap();
    client.get_into_range("fill", source).unwrap();
    let part = MemoryRange::part;
    assert_eq!(client.put_from("k", part(source, 100, 500), &plain()), Ok(PutOutcome::Stored));
    assert_eq!(client.get_into_range("k", part(target, 7, 600)), Ok(500));
    let into = memory[1].span().to_vec();
    assert_eq!(into[7..507], from[100..600]);
    assert!(into[507..].iter().all(|byte| *byte == 0), "nothing past the object is written");

    let outside = part(source, 9_000, 2_000);
    assert_eq!(client.put_from("x", outside, &plain()).unwrap_err().code(), ErrorCode::INVALID_PARAMS);
    let null = MemoryRange { address: 0, len: 10 };
    let items = [("k1", part(source, 0, 10)), ("x", null), ("k2", part(source, 10, 10))];
    let stored = client.batch_put_from(&items, &plain());
    assert_eq!((stored[0].is_ok(), stored[1].is_ok(), stored[2].is_ok()), (true, false, true));
    let items = [("k", null), ("k2", part(target, 0, 10)), ("k", part(target, 0, 499))];
    let read = client.batch_get_into(&items);
    assert!(matches!(read[0], Err(Error::Invalid(_))));
    assert_eq!(read[1], Ok(10));
    assert_eq!(read[2], Err(Error::BufferTooSmall { object: 500, buffer: 499 }));

    client.unregister_buffer(target.address).unwrap();
    assert!(client.unregister_buffer(target.address).is_err());
    assert!(client.get_into_range("k", target).is_err());
    client.unregister_buffer(source.address).unwrap();
}

#[test]
fn parts_are_gathered_and_scattered() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    assert_eq!(client.put_parts("k", &[b"ab", b"", b"cde"], &plain()), Ok(PutOutcome::Stored));
    assert_eq!(client.get("k"), Ok(b"abcde".to_vec()));
    let (mut one, mut two) = ([0; 1], [0; 9]);
    let into = smallvec::smallvec![
        yb_client::LocalBuffer::destination(&mut one),
        yb_client::LocalBuffer::destination(&mut two)
    ];
    assert_eq!(client.batch_get_items([GetItem { key: b"k", into }]), [Ok(5)]);
    assert_eq!((&one, &two), (b"a", b"bcde\0\0\0\0\0"));
}

#[test]
fn a_master_of_another_version_is_refused_with_both_versions() {
    let master = with(|script| script.version = "9.9.9".into());
    let error = Client::connect(config(&master.address)).unwrap_err();
    assert_eq!(error.code(), ErrorCode::INVALID_VERSION);
    assert!(error.to_string().contains("9.9.9") && error.to_string().contains("2.0.0"), "{error}");
}

#[test]
fn setup_without_a_master_says_so_in_time() {
    let says_so = || {
        let error = Client::connect(config(&format!("127.0.0.1:{}", free_port()))).unwrap_err();
        assert!(matches!(error, Error::MasterUnreachable(_)), "{error}");
    };
    assert!(one_is_quick(Duration::from_secs(1), says_so));
}

#[test]
fn a_forgotten_client_mounts_again_and_a_dead_master_shows_in_the_health() {
    let master = master();
    let node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    wait_until("the first ping", || node.metrics().pings > 0);
    assert_eq!((node.health(), client.health()), (Health::Healthy, Health::Healthy));
    master.script(|script| script.forget = 1);
    wait_until("a remount", || node.metrics().remounts == 1);
    assert_eq!(master.script(|script| script.count(Rpc::ReMountSegment)), 1);
    drop(master);
    wait_until("the node notices", || node.health() == Health::MasterUnreachable);
    assert_eq!(client.health(), Health::MasterUnreachable);
}

#[test]
fn close_is_prompt_final_and_repeatable() {
    let master = master();
    let mut nodes: Vec<Client> = (0..5).map(|_| node(&master.address, 16 * MIB)).collect();
    let (mut left, mut closed) = (nodes.iter(), 0);
    let close_one = || {
        left.next().unwrap().close();
        closed += 1;
    };
    assert!(one_is_quick(Duration::from_millis(500), close_one));
    assert_eq!(master.script(|script| script.count(Rpc::UnmountSegment)), closed);
    let node = nodes.remove(0);
    node.close();
    assert_eq!(node.health(), Health::Closed);
    assert_eq!(node.get("k"), Err(Error::Closed));
    assert_eq!(node.put("k", b"v", &plain()), Err(Error::Closed));
    assert_eq!(node.batch_get(&["a", "b"]), [Err(Error::Closed), Err(Error::Closed)]);
    assert_eq!(node.batch_exists(&["a"]), [Err(Error::Closed)]);
    assert_eq!(node.remove_all(true), Err(Error::Closed));
}

#[test]
fn closing_with_a_dead_master_is_prompt_too() {
    let master = master();
    let nodes: Vec<Client> = (0..5).map(|_| node(&master.address, 16 * MIB)).collect();
    drop(master);
    wait_until("the nodes notice", || nodes.iter().all(|node| node.health() == Health::MasterUnreachable));
    let mut left = nodes.iter();
    assert!(one_is_quick(Duration::from_secs(1), || left.next().unwrap().close()));
}

#[test]
fn the_asynchronous_face_gives_the_same_answers() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address).asynchronous();
    let puts: Vec<_> = (0..10u8).map(|i| client.put(vec![b'k', i], vec![i; 100], plain())).collect();
    assert!(puts.into_iter().all(|put| common::block_on(put) == Ok(PutOutcome::Stored)));
    assert_eq!(common::block_on(client.get(vec![b'k', 3])), Ok(vec![3; 100]));
    assert_eq!(common::block_on(client.get(b"none".to_vec())), Err(Error::NotFound));
}

#[test]
fn many_threads_read_what_they_wrote() {
    let master = with(|script| script.replicas = 2);
    let _nodes = [node(&master.address, 64 * MIB), node(&master.address, 64 * MIB)];
    let client = requester(&master.address);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let client = &client;
            scope.spawn(move || {
                for turn in 0..40 {
                    let key = format!("{thread}-{turn}");
                    let value = bytes(thread * 1000 + turn, 1 + (turn as usize * 997) % 40_000);
                    assert_eq!(client.put(&key, &value, &plain()), Ok(PutOutcome::Stored));
                    assert!(client.get(&key).unwrap() == value);
                }
            });
        }
    });
    assert_eq!(client.metrics().objects_written, 320);
}

#[test]
fn other_bytes_than_the_writers_are_not_given_out() {
    let master = with(|script| script.replicas = 2);
    let _nodes = (node(&master.address, 16 * MIB), node(&master.address, 16 * MIB));
    let careful = requester(&master.address);
    careful.put("k", b"123456789", &plain()).unwrap();
    master.script(|script| script.checksum = Some(0x6C40_DF5F_0B49_7347));
    assert_eq!(careful.get("k"), Ok(b"123456789".to_vec()));
    master.script(|script| script.checksum = Some(7));
    let error = careful.get("k").unwrap_err();
    assert_eq!(error, Error::Corrupt { found: 0x6C40_DF5F_0B49_7347, written: 7 });
    assert_eq!(error.code(), ErrorCode::CHECKSUM_MISMATCH);
    assert_eq!(careful.metrics().replica_fallbacks, 1, "the other replica was tried");
    let careless = Client::connect(ClientConfig { checksum: false, ..config(&master.address) }).unwrap();
    assert_eq!(careless.get("k"), Ok(b"123456789".to_vec()), "nobody asked to compare");
}

#[test]
fn everything_a_configuration_says_reaches_the_master_for_its_own_key() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    let texts = |names: [&str; 3]| Some(names.map(str::to_owned).to_vec());
    let asked = ReplicateConfig {
        soft_pin_action: SoftPinAction::ENABLE,
        soft_pin_ttl_ms: Some(77),
        with_hard_pin: true,
        preferred_segment: "old:1".into(),
        prefer_alloc_in_same_node: true,
        data_type: ObjectDataType::TENSOR,
        group_ids: texts(["g0", "g1", "g2"]),
        session_ids: texts(["s0", "s1", "s2"]),
        residency_affinity_ids: texts(["r0", "r1", "r2"]),
        preferred_hca_names: Some(vec!["mlx5_0".into()]),
        per_key_preferred_hca_names: Some(vec![vec!["h0".into()], Vec::new(), vec!["h2".into()]]),
        ..plain()
    };
    // The first is written for the second of its name too, and the entries of the keys that are sent go along.
    client.batch_put(&[("a", "v"), ("a", "v"), ("b", "v")], &asked);
    let sent = master.script(|script| script.configs.pop()).unwrap();
    assert_eq!(sent.group_ids, Some(vec!["g0".into(), "g2".into()]));
    assert_eq!(sent.session_ids, Some(vec!["s0".into(), "s2".into()]));
    assert_eq!(sent.residency_affinity_ids, Some(vec!["r0".into(), "r2".into()]));
    assert_eq!(sent.per_key_preferred_hca_names, Some(vec![vec!["h0".into()], vec!["h2".into()]]));
    assert_eq!(sent.preferred_segments, ["old:1"], "the older name for it");
    let rest = ReplicateConfig {
        group_ids: sent.group_ids.clone(),
        session_ids: sent.session_ids.clone(),
        residency_affinity_ids: sent.residency_affinity_ids.clone(),
        per_key_preferred_hca_names: sent.per_key_preferred_hca_names.clone(),
        preferred_segments: sent.preferred_segments.clone(),
        ..asked.clone()
    };
    assert_eq!(sent, rest);

    let one = ReplicateConfig {
        group_ids: None,
        residency_affinity_ids: None,
        session_ids: Some(vec!["s".into()]),
        ..plain()
    };
    client.upsert("up", b"v", &one).unwrap();
    assert_eq!(master.script(|script| script.configs.pop()), Some(one));
    assert_eq!(
        codes(client.put_session_start(&["ps"], &[8], &ReplicateConfig { with_hard_pin: true, ..plain() })),
        [0]
    );
    assert!(master.script(|script| script.configs.pop()).unwrap().with_hard_pin);
    let refused = [
        ReplicateConfig { session_ids: Some(vec!["a".into(), "b".into()]), ..plain() },
        ReplicateConfig { session_ids: Some(vec!["a".repeat(257)]), ..plain() },
        ReplicateConfig { residency_affinity_ids: Some(Vec::new()), ..plain() },
        ReplicateConfig { prefer_alloc_in_same_node: true, replica_num: 2, ..plain() },
    ];
    for config in refused {
        assert_eq!(client.put("refused", b"v", &config).unwrap_err().code(), ErrorCode::INVALID_PARAMS);
    }
    assert_eq!(master.script(|script| script.configs.pop()), None, "refused before anything is sent");
}

#[test]
fn a_snapshot_and_a_session_ask_the_master_once() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    client.put("k", b"0123456789", &plain()).unwrap();
    let asked = || master.script(|script| script.count(Rpc::GetReplicaList));
    let snapshot = client.ranges_snapshot(&["k"]);
    assert_eq!(codes(client.get_session_start(&["k"])), [0]);
    let before = asked();
    for _ in 0..10 {
        let (mut first, mut second) = ([0; 3], [0; 3]);
        assert_eq!(client.batch_get_ranges_of(&snapshot, range(&mut first)), [[Ok(3)]]);
        assert_eq!(client.get_session_read(range(&mut second)), [Ok(3)]);
        assert_eq!((&first, &second), (b"234", b"234"));
    }
    assert_eq!(asked(), before);
    // Half of the lease is over: one request renews it.
    master.script(|script| script.leases_ms = vec![0, 10_000]);
    let stale = client.ranges_snapshot(&["k"]);
    let before = asked();
    let mut memory = [0; 3];
    assert_eq!(client.batch_get_ranges_of(&stale, range(&mut memory)), [[Ok(3)]]);
    assert_eq!((asked(), &memory), (before + 1, b"234"));
}

fn codes<T>(answers: Vec<Result<T, Error>>) -> Vec<i32> {
    answers.into_iter().map(|answer| answer.map_or_else(|error| error.code().0, |_| 0)).collect()
}

/// Three bytes of `k` from the third on.
fn range(memory: &mut [u8]) -> Vec<yb_client::RangesItem<'_>> {
    let memory = yb_client::LocalBuffer::destination(memory);
    vec![yb_client::RangesItem { key: b"k", fragments: vec![yb_client::Fragment { offset: 2, memory }] }]
}

#[test]
fn a_node_started_again_at_its_address_gives_no_bytes_to_an_old_lease() {
    let (master, port) = (master(), free_port());
    let again = || {
        let config = ClientConfig {
            local_hostname: format!("127.0.0.1:{port}"),
            global_segment_size: 16 * MIB,
            ..config(&master.address)
        };
        Client::connect(config).unwrap()
    };
    let reader = requester(&master.address);
    let first = again();
    reader.put("k", &bytes(1, 100_000), &plain()).unwrap();
    let found = reader.query("k").unwrap();
    first.close();
    drop(first);
    let _second = again();
    // Nobody compares a range: the address alone has to say that it is of another life.
    let mut part = vec![1; 1000];
    let fragments = vec![Fragment { offset: 5000, memory: LocalBuffer::destination(&mut part) }];
    let snapshot = reader.ranges_snapshot(&["k"]);
    let answers = reader.batch_get_ranges_of(&snapshot, vec![RangesItem { key: b"k", fragments }]);
    assert!(answers[0][0].is_err(), "{answers:?}");
    let mut whole = vec![1; 100_000];
    let read = reader.get_known(GetItem::new(b"k", &mut whole), found);
    assert!(matches!(read, Err(Error::Transfer(_))), "{read:?}");
}

/// A node that stands still: its kernel takes connections, and nobody reads them.
fn silent_node(master: &ScriptedMaster) -> std::net::TcpListener {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    master.script(|script| script.add_dead_segment(&endpoint));
    listener
}

/// As many bytes of an object as there is room for.
fn first_bytes<'a>(key: &'a str, memory: &'a mut [u8]) -> RangesItem<'a> {
    let fragments = vec![Fragment { offset: 0, memory: LocalBuffer::destination(memory) }];
    RangesItem { key: key.as_bytes(), fragments }
}

#[test]
fn a_silent_node_costs_every_call_one_deadline() {
    let master = master();
    let _node = silent_node(&master);
    let keys = ["a", "b", "c", "d", "e", "f"];
    master.script(|script| keys.iter().for_each(|key| script.add_object(key, 1000)));
    // The peer is asked anew by each client: one that failed is left alone.
    let call = |what: &str, call: &dyn Fn(&Client)| {
        let (clock, mut took) = (Clock::real(), Vec::new());
        for _ in 0..5 {
            let client = Client::connect(ClientConfig { limits: short(), ..config(&master.address) }).unwrap();
            let before = clock.now();
            call(&client);
            took.push(clock.now().since(before));
            // One deadline (600 ms), and a quarter of a second to tell the master. A busy machine has more than one try.
            if took.last() < Some(&Duration::from_millis(1500)) {
                return;
            }
        }
        panic!("{what}: {took:?}");
    };
    call("get", &|client| assert!(client.get("a").is_err()));
    call("batch_get", &|client| assert!(client.batch_get(&keys).iter().all(Result::is_err)));
    call("ranges", &|client| {
        let mut memory = vec![vec![0; 100]; 6];
        let items = keys.iter().zip(&mut memory).map(|(key, to)| first_bytes(key, to)).collect();
        assert!(client.batch_get_ranges(items).iter().all(|answers| answers[0].is_err()));
    });
    call("get sessions", &|client| {
        assert!(client.get_session_start(&keys).iter().all(Result::is_ok));
        let mut memory = vec![vec![0; 100]; 6];
        let items = keys.iter().zip(&mut memory).map(|(key, to)| first_bytes(key, to)).collect();
        assert!(client.get_session_read(items).iter().all(Result::is_err));
    });
    call("put", &|client| assert!(client.put("new", &[1; 1000], &plain()).is_err()));
    call("batch_put", &|client| {
        let items: Vec<(String, &[u8])> = (0..6).map(|i| (format!("batch-{i}"), &[1; 1000][..])).collect();
        assert!(client.batch_put(&items, &plain()).iter().all(Result::is_err));
    });
    call("the end of put sessions", &|client| {
        let keys: Vec<String> = (0..6).map(|i| format!("session-{i}")).collect();
        assert!(client.put_session_start(&keys, &[1000; 6], &plain()).iter().all(Result::is_ok));
        assert!(client.put_session_end(&keys).iter().all(Result::is_err), "their holes cannot be filled");
    });
}
