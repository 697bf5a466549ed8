//! Bytes that are not those that were written: who finds out, what the reader gets, and what becomes of them.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::time::Duration;

use common::{MIB, bytes, config, node, plain, replicas, requester, wait_until};
use yb_client::{Client, ClientConfig, Error, Fragment, Lookup, RangesItem};
use yb_env::Clock;
use yb_master::{Master, MasterConfig};
use yb_transfer::{Engine, LocalBuffer, Opcode, Request};
use yb_types::{ErrorCode, SegmentAddress};

fn master() -> (Master, String) {
    let master = Master::start(MasterConfig::embedded()).unwrap();
    let address = master.rpc_address().to_string();
    (master, address)
}

/// Changes a byte of one replica behind everybody's back.
fn spoil(found: &Lookup, replica: usize, offset: u64) {
    let memory = found.replicas[replica].memory().unwrap();
    let engine = Engine::builder().build().unwrap();
    let segment = engine.open_segment(&memory.transport_endpoint).unwrap();
    let address = SegmentAddress(memory.buffer_address + offset);
    let write = Request::new(Opcode::Write, LocalBuffer::source(b"\xa5"), segment, address);
    let until = Clock::real().now() + Duration::from_secs(5);
    engine.transfer_sync(&[write], until).into_result().unwrap();
}

#[test]
fn a_checksum_is_given_and_compared_without_being_asked_for() {
    let (_master, address) = master();
    let _node = node(&address, 64 * MIB);
    let client = requester(&address);
    for (seed, len) in [1, 100, 4097, 300_000, 5 * MIB as usize].into_iter().enumerate() {
        let (key, value) = (format!("k{seed}"), bytes(seed as u64, len));
        client.put(&key, &value, &plain()).unwrap();
        assert!(client.query(&key).unwrap().checksum.is_some());
        assert!(client.get(&key).unwrap() == value);
    }
    client.put("empty", b"", &plain()).unwrap();
    assert_eq!((client.get("empty"), client.query("empty").unwrap().checksum), (Ok(Vec::new()), Some(0)));
    client.put_parts("parts", &[b"1234", b"", b"56789"], &plain()).unwrap();
    assert_eq!(client.query("parts").unwrap().checksum, Some(0x6C40_DF5F_0B49_7347), "the standard's check value");
    let counted = client.metrics();
    assert_eq!((counted.objects_verified, counted.objects_unverified, counted.objects_corrupt), (6, 0, 0));
}

#[test]
fn who_does_not_want_them_and_who_gives_none_are_understood() {
    let (_master, address) = master();
    let _node = node(&address, 16 * MIB);
    let careless = Client::connect(ClientConfig { checksum: false, ..config(&address) }).unwrap();
    let client = requester(&address);
    careless.put("without", b"abc", &plain()).unwrap();
    client.put("with", b"abc", &plain()).unwrap();
    assert_eq!(careless.query("without").unwrap().checksum, None);
    assert_eq!(client.get("without"), Ok(b"abc".to_vec()));
    assert_eq!(careless.get("with"), Ok(b"abc".to_vec()));
    spoil(&client.query("with").unwrap(), 0, 1);
    assert_eq!(careless.get("with"), Ok(b"a\xa5c".to_vec()), "nobody compared");
    assert_eq!((client.metrics().objects_unverified, careless.metrics().objects_unverified), (1, 2));
}

#[test]
fn the_next_replica_is_read_and_the_bad_one_is_not_listed_any_more() {
    let (master, address) = master();
    let nodes = [node(&address, 16 * MIB), node(&address, 16 * MIB)];
    let client = requester(&address);
    let value = bytes(7, 100_000);
    client.put("k", &value, &replicas(2)).unwrap();
    let found = client.query("k").unwrap();
    assert_eq!(found.replicas.len(), 2);
    spoil(&found, 0, 77_777);
    assert!(client.get("k").unwrap() == value);
    let counted = client.metrics();
    assert_eq!((counted.objects_corrupt, counted.corrupt_reported, counted.replica_fallbacks), (1, 1, 1));
    // The node looks for itself when it is asked.
    wait_until("the bad replica is not listed", || client.query("k").unwrap().replicas.len() == 1);
    assert_eq!(client.query("k").unwrap().replicas[0].id, found.replicas[1].id);
    assert_eq!(nodes.iter().map(|node| node.metrics().doubts_looked_at).sum::<u64>(), 1);

    // The last copy: no wrong byte is given out, and the key can be written again.
    spoil(&client.query("k").unwrap(), 0, 0);
    let error = client.get("k").unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }) && error.code() == ErrorCode::CHECKSUM_MISMATCH, "{error}");
    wait_until("the object is gone", || client.get("k") == Err(Error::NotFound));
    client.put("k", b"new", &plain()).unwrap();
    assert_eq!(client.get("k"), Ok(b"new".to_vec()));
    drop(master);
}

#[test]
fn ranges_that_are_the_whole_object_are_compared_and_others_are_not() {
    let (_master, address) = master();
    let _node = node(&address, 16 * MIB);
    let client = requester(&address);
    client.put("k", &bytes(1, 1000), &plain()).unwrap();
    spoil(&client.query("k").unwrap(), 0, 999);
    let read = |ranges: &[(usize, usize)]| {
        let mut parts: Vec<(u64, Vec<u8>)> = ranges.iter().map(|(at, len)| (*at as u64, vec![0; *len])).collect();
        let fragments = parts
            .iter_mut()
            .map(|(offset, memory)| Fragment { offset: *offset, memory: LocalBuffer::destination(memory) })
            .collect();
        let answers = client.batch_get_ranges(vec![RangesItem { key: b"k", fragments }]);
        answers[0].iter().all(Result::is_ok)
    };
    assert!(read(&[(0, 999)]) && read(&[(500, 500), (0, 500)]) && read(&[(0, 500), (501, 499)]));
    assert!(!read(&[(0, 1000)]) && !read(&[(0, 500), (500, 500)]));
}
