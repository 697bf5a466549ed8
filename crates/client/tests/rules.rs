//! The rules of `docs/client.md`, each against a master that does what the test tells it.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;
#[path = "common/scripted.rs"]
mod scripted;

use std::time::Duration;

use common::{MIB, bytes, config, free_port, node, plain, requester, short, wait_until};
use scripted::{Script, ScriptedMaster};
use yb_client::{Client, ClientConfig, Duplicates, Error, GetItem, Health, MemoryRange, PutItem, PutOutcome};
use yb_env::Clock;
use yb_types::ErrorCode;
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
    let client = Client::connect(ClientConfig { limits: short(), ..config(&master.address) }).unwrap();
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
    let clock = Clock::real();
    let before = clock.now();
    match client.get("there") {
        Err(Error::MasterUnreachable(failure)) => assert_eq!(failure.address, address),
        other => panic!("{other:?}"),
    }
    assert!(clock.now().since(before) < Duration::from_secs(1));
}

#[test]
fn a_silent_master_costs_one_deadline() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = Client::connect(ClientConfig { limits: short(), ..config(&master.address) }).unwrap();
    master.script(|script| script.silent = Some(Rpc::GetReplicaList));
    let clock = Clock::real();
    let before = clock.now();
    let error = client.get("k").unwrap_err();
    let took = clock.now().since(before);
    assert_eq!(error.code(), ErrorCode::RPC_TIMEOUT);
    assert!(took >= Duration::from_millis(500) && took < Duration::from_millis(1500), "{took:?}");
    assert_eq!(client.metrics().master_failures, 1);
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
    let clock = Clock::real();
    let before = clock.now();
    let answers = client.batch_put(&[("free", "v"), ("held", "v")], &plain());
    assert_eq!(answers, [Ok(PutOutcome::Stored), Err(Error::Busy)]);
    let took = clock.now().since(before);
    assert!(took >= Duration::from_millis(100) && took < Duration::from_millis(600), "{took:?}");
    assert!(Error::Busy.retryable());
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
    // Once more than once: a second place was tried.
    assert_eq!(master.script(|script| (script.count(Rpc::PutStart), script.count(Rpc::PutRevoke))), (2, 2));
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
fn one_failed_key_of_a_batch_takes_no_other_with_it() {
    let master = master();
    let _node = node(&master.address, 16 * MIB);
    let client = requester(&master.address);
    let large = vec![1; 17 * MIB as usize];
    let small = bytes(1, 1000);
    let items: [(&str, &[u8]); 4] = [("a", &small), ("large", &large), ("", &small), ("b", &small)];
    let answers = client.batch_put(&items, &plain());
    assert_eq!(answers[0], Ok(PutOutcome::Stored));
    assert_eq!(answers[1], Err(Error::NoSpace));
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
    let clock = Clock::real();
    let before = clock.now();
    let error = Client::connect(config(&format!("127.0.0.1:{}", free_port()))).unwrap_err();
    assert!(matches!(error, Error::MasterUnreachable(_)), "{error}");
    assert!(clock.now().since(before) < Duration::from_secs(1));
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
    let node = node(&master.address, 16 * MIB);
    let clock = Clock::real();
    let before = clock.now();
    node.close();
    assert!(clock.now().since(before) < Duration::from_millis(500));
    assert_eq!(master.script(|script| script.count(Rpc::UnmountSegment)), 1);
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
    let node = node(&master.address, 16 * MIB);
    drop(master);
    wait_until("the node notices", || node.health() == Health::MasterUnreachable);
    let clock = Clock::real();
    let before = clock.now();
    node.close();
    assert!(clock.now().since(before) < Duration::from_secs(1));
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
