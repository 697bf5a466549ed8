//! Our client and our memory under two masters: ours in this process, and Mooncake's own when it is there.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{
    MIB, Process, bytes, config, free_port, node, on, plain, replicas, requester, wait_until, wheel_master, wheel_node,
};
use yb_client::{Client, ClientConfig, Error, NoRoom, PutOutcome};
use yb_master::{Master, MasterConfig};
use yb_rpc::{ClientPool, ClientSettings, RpcAddress};
use yb_types::{ClientId, ErrorCode, ReplicaType, ReplicateConfig, Segment, SegmentId, Uuid};
use yb_wire::messages::{ClientArgs, MountSegmentArgs, PutRevokeArgs, PutStartArgs};
use yb_wire::{Call, Form, WireTable, WireVersion, call as wire_call};

/// Whose master a test runs under; it runs until dropped.
struct Pool {
    address: String,
    ours: Option<Master>,
    _wheel: Option<Process>,
}

impl Pool {
    fn ours(change: impl FnOnce(&mut MasterConfig)) -> Pool {
        let mut config = MasterConfig::embedded();
        change(&mut config);
        let master = Master::start(config).unwrap();
        Pool { address: master.rpc_address().to_string(), ours: Some(master), _wheel: None }
    }

    fn wheel() -> Option<Pool> {
        let (process, address) = wheel_master(&[])?;
        Some(Pool { address, ours: None, _wheel: Some(process) })
    }
}

/// Runs a test under each master.
fn under_each(test: impl Fn(&Pool)) {
    test(&Pool::ours(|_| ()));
    if let Some(pool) = Pool::wheel() {
        test(&pool);
    }
}

#[test]
fn objects_of_all_sizes_come_back() {
    under_each(|pool| {
        let _node = node(&pool.address, 128 * MIB);
        let client = requester(&pool.address);
        for (seed, len) in [1, 100, 4096, 65_537, MIB as usize, 20 * MIB as usize].into_iter().enumerate() {
            let (key, value) = (format!("k{seed}"), bytes(seed as u64, len));
            assert_eq!(client.put(&key, &value, &plain()), Ok(PutOutcome::Stored));
            assert_eq!(client.put(&key, b"other", &plain()), Ok(PutOutcome::AlreadyExists));
            assert!(client.get(&key).unwrap() == value, "{len} bytes");
            assert_eq!(client.size(&key), Ok(len as u64));
            assert_eq!(client.exists(&key), Ok(true));
        }
        assert_eq!(client.get("nothing"), Err(Error::NotFound));
    });
}

#[test]
fn batches_answer_per_key() {
    under_each(|pool| {
        let _node = node(&pool.address, 64 * MIB);
        let client = requester(&pool.address);
        let items: Vec<(String, Vec<u8>)> = (0..32).map(|i| (format!("b{i}"), bytes(i, 64 << 10))).collect();
        assert!(client.batch_put(&items, &plain()).into_iter().all(|answer| answer == Ok(PutOutcome::Stored)));
        let mut keys: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).collect();
        keys.insert(7, "absent");
        let values = client.batch_get(&keys);
        assert_eq!(values[7], Err(Error::NotFound));
        let mut expected: Vec<_> = items.iter().map(|(_, value)| Ok(value.clone())).collect();
        expected.insert(7, Err(Error::NotFound));
        assert!(values == expected);
        assert_eq!(client.batch_exists(&keys).iter().filter(|answer| **answer == Ok(true)).count(), 32);
        assert_eq!(client.remove("b0", false).unwrap_err().code(), ErrorCode::OBJECT_HAS_LEASE);
        assert_eq!(client.batch_remove(&["b0", "absent"], true), [Ok(()), Err(Error::NotFound)]);
        assert_eq!(client.remove_by_regex("^b1[0-9]$", true), Ok(10));
        assert_eq!(client.query_by_regex("^b2.$").unwrap().len(), 10);
        assert_eq!(client.remove_all(true), Ok(21));
        assert_eq!(client.exists("b1"), Ok(false));
        assert!(matches!(client.remove_by_regex("(", true), Err(Error::Refused { .. })));
    });
}

#[test]
fn the_configuration_of_replicas_is_followed() {
    under_each(|pool| {
        let (first, second) = (node(&pool.address, 32 * MIB), node(&pool.address, 32 * MIB));
        let client = requester(&pool.address);
        client.put("one", b"1", &on(&second)).unwrap();
        let lookup = client.query("one").unwrap();
        let endpoint = lookup.replicas[0].memory().unwrap().transport_endpoint.clone();
        assert_eq!(Some(endpoint.as_str()), second.endpoint());
        client.put("two", b"22", &replicas(2)).unwrap();
        assert_eq!(client.query("two").unwrap().replicas.len(), 2);
        client.put("three", b"333", &replicas(3)).unwrap();
        assert_eq!(client.query("three").unwrap().replicas.len(), 2, "as many as there are nodes");
        // A client that is to have two of everything.
        let careful = Client::connect(ClientConfig { least_replicas: 2, ..config(&pool.address) }).unwrap();
        careful.put("usual", b"4444", &plain()).unwrap();
        careful.put("placed", b"55555", &on(&second)).unwrap();
        careful.upsert("one", b"11", &plain()).unwrap();
        for key in ["usual", "placed", "one"] {
            assert_eq!(client.query(key).unwrap().replicas.len(), 2, "{key}");
        }
        let alone = ReplicateConfig { prefer_alloc_in_same_node: true, ..plain() };
        careful.put("alone", b"666666", &alone).unwrap();
        assert_eq!(client.query("alone").unwrap().replicas.len(), 1);
        let none = ReplicateConfig { replica_num: 0, ..plain() };
        assert_eq!(client.put("none", b"", &none).unwrap_err().code(), ErrorCode::INVALID_PARAMS);
        let grouped = ReplicateConfig { group_ids: Some(vec!["g".into(), String::new()]), ..plain() };
        assert!(client.batch_put(&[("g1", "v"), ("g2", "v")], &grouped).iter().all(Result::is_ok));
        assert!(client.batch_put(&[("g3", "v")], &grouped)[0].is_err());
        drop((first, second));
    });
}

#[test]
fn what_does_not_fit_is_refused_and_the_rest_works_on() {
    under_each(|pool| {
        let _node = node(&pool.address, 16 * MIB);
        let client = requester(&pool.address);
        let large = vec![5; 17 * MIB as usize];
        let refused = client.put("large", &large, &plain()).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::NO_AVAILABLE_HANDLE);
        if pool.ours.is_some() {
            let never = NoRoom::LargerThanAnySegment { object: 17 * MIB, largest: 16 * MIB };
            assert_eq!((&refused, refused.retryable()), (&Error::NoSpace(never), false));
            let session = client.put_session_start(&["large"], &[17 * MIB], &plain());
            assert_eq!(session, [Err(Error::NoSpace(never))]);
        }
        assert_eq!(client.exists("large"), Ok(false));
        assert_eq!(client.put("", b"v", &plain()).unwrap_err().code(), ErrorCode::INVALID_PARAMS);
        assert_eq!(client.get("").unwrap_err().code(), ErrorCode::INVALID_PARAMS);
        let long = client.exists(vec![b'k'; 65 << 20]).unwrap_err();
        assert!(long.code() == ErrorCode::INVALID_PARAMS && long.to_string().contains("shorter keys"), "{long}");
        let twice = client.batch_put(&[("d", "1"), ("d", "2")], &plain());
        assert_eq!(twice, [Ok(PutOutcome::Stored), Ok(PutOutcome::Stored)]);
        assert_eq!(client.get("d"), Ok(b"1".to_vec()));
        let odd: &[u8] = &[0, 255, 1, 0];
        client.put(odd, b"odd", &plain()).unwrap();
        assert_eq!(client.get(odd), Ok(b"odd".to_vec()));
    });
}

#[test]
fn an_object_may_be_empty() {
    let pool = Pool::ours(|_| ());
    let _node = node(&pool.address, 16 * MIB);
    let client = requester(&pool.address);
    assert_eq!(client.put("empty", b"", &plain()), Ok(PutOutcome::Stored));
    assert_eq!(client.get("empty"), Ok(Vec::new()));
    assert_eq!((client.size("empty"), client.exists("empty")), (Ok(0), Ok(true)));
    assert_eq!(client.put("empty", b"v", &plain()), Ok(PutOutcome::AlreadyExists));
    assert_eq!(client.batch_get(&["empty", "none"]), [Ok(Vec::new()), Err(Error::NotFound)]);
}

#[test]
fn a_node_that_leaves_takes_its_replicas_with_it() {
    under_each(|pool| {
        let (first, second) = (node(&pool.address, 32 * MIB), node(&pool.address, 32 * MIB));
        let client = requester(&pool.address);
        for i in 0..10 {
            client.put(format!("one{i}"), b"1", &on(&first)).unwrap();
            client.put(format!("two{i}"), b"2", &replicas(2)).unwrap();
        }
        first.close();
        for i in 0..10 {
            assert_eq!(client.get(format!("one{i}")), Err(Error::NotFound));
            assert_eq!(client.get(format!("two{i}")), Ok(b"2".to_vec()));
        }
        drop(second);
    });
}

#[test]
fn a_read_that_outlives_its_lease_is_right_while_the_object_stays() {
    let pool = Pool::ours(|config| config.catalog.lease_ttl = Duration::ZERO);
    let _node = node(&pool.address, 16 * MIB);
    let client = requester(&pool.address);
    client.put("k", b"v", &plain()).unwrap();
    assert_eq!(client.get("k"), Ok(b"v".to_vec()));
    assert_eq!((client.metrics().lease_retries, client.metrics().leases_renewed), (0, 1));
}

#[test]
fn a_master_that_comes_back_gets_its_segments_again() {
    let mut pool = Pool::ours(|_| ());
    let node = node(&pool.address, 16 * MIB);
    let client = requester(&pool.address);
    client.put("before", b"1", &plain()).unwrap();
    let address = pool.address.parse().unwrap();
    pool.ours.take().unwrap().shutdown();
    assert!(matches!(client.get("before"), Err(Error::MasterUnreachable(_))));
    wait_until("the node has noticed", || node.metrics().failed_pings > 0);
    let _again = Pool::ours(|config| {
        config.listen = address;
        // For that long nothing is placed in memory that the old master may have told readers of.
        config.catalog.lease_ttl = Duration::from_millis(300);
    });
    wait_until("the node is mounted again and has rested", || client.put("after", b"2", &plain()).is_ok());
    assert_eq!(client.get("after"), Ok(b"2".to_vec()));
    assert_eq!(client.get("before"), Err(Error::NotFound), "this master keeps nothing");
    assert!(node.metrics().remounts >= 1);
}

#[test]
fn a_node_that_nobody_can_reach_is_refused_with_its_address() {
    let pool = Pool::ours(|config| config.dial_back = Some(Duration::from_millis(300)));
    let unreachable = ClientConfig {
        // Reserved for documentation: nobody answers there.
        local_hostname: "192.0.2.1".into(),
        listen_host: Some("127.0.0.1".into()),
        global_segment_size: 16 * MIB,
        ..config(&pool.address)
    };
    let error = Client::connect(unreachable).unwrap_err();
    assert!(error.to_string().contains("192.0.2.1"), "{error}");
}

#[test]
fn memory_of_the_peers_node_is_written_and_read() {
    under_each(|pool| {
        let Some(_node) = wheel_node(&pool.address, "128MB") else { return };
        let client = requester(&pool.address);
        wait_until("the peer's node is mounted", || client.put("first", b"1", &plain()).is_ok());
        for (seed, len) in [1, 4096, 65_537, MIB as usize, 32 * MIB as usize].into_iter().enumerate() {
            let (key, value) = (format!("k{seed}"), bytes(seed as u64, len));
            assert_eq!(client.put(&key, &value, &plain()), Ok(PutOutcome::Stored));
            assert!(client.get(&key).unwrap() == value, "{len} bytes");
        }
        let items: Vec<(String, Vec<u8>)> = (0..64).map(|i| (format!("b{i}"), bytes(i, 64 << 10))).collect();
        assert!(client.batch_put(&items, &plain()).into_iter().all(|answer| answer == Ok(PutOutcome::Stored)));
        let keys: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).collect();
        assert!(client.batch_get(&keys).into_iter().zip(&items).all(|(got, (_, value))| got.as_ref() == Ok(value)));
    });
}

#[test]
fn space_of_a_put_that_was_given_up_comes_back_when_its_node_says_that_nobody_writes_there() {
    let pool = Pool::ours(|_| ());
    let node = node(&pool.address, 16 * MIB);
    let client = requester(&pool.address);
    // A writer that reserves 12 MiB and gives up.
    let table = WireTable::of(WireVersion::V0_3_13);
    let master = ClientPool::new(RpcAddress::resolve(&pool.address).unwrap(), ClientSettings::default());
    let writer = ClientId(Uuid { first: 1, second: 2 });
    let (key, tenant_id) = (b"given up".as_slice(), b"default".as_slice());
    let start = PutStartArgs { client_id: writer, key, slice_length: 12 * MIB, config: plain(), tenant_id };
    let revoke = PutRevokeArgs { client_id: writer, key, replica_type: ReplicaType::ALL, tenant_id };
    call::<wire_call::PutStart>(&master, table, &start);
    call::<wire_call::PutRevoke>(&master, table, &revoke);
    let large = bytes(1, 12 * MIB as usize);
    assert!(matches!(client.put("k", &large, &plain()), Err(Error::NoSpace(_))));
    wait_until("the space is free again", || client.put("k", &large, &plain()) == Ok(PutOutcome::Stored));
    assert!(client.get("k").unwrap() == large);
    assert_eq!(node.metrics().quiesced, 1);
}

#[test]
fn a_put_that_reached_nobody_leaves_its_space_at_once() {
    let pool = Pool::ours(|config| config.dial_back = None);
    let alive = node(&pool.address, 16 * MIB);
    let client = requester(&pool.address);
    // A node that is gone and whose master does not know yet.
    let segment = Segment {
        id: SegmentId(Uuid { first: 3, second: 4 }),
        name: "gone".into(),
        base: 1 << 40,
        size: 16 * MIB,
        te_endpoint: format!("127.0.0.1:{}", free_port()),
        protocol: "tcp".into(),
        ..Segment::default()
    };
    let master = ClientPool::new(RpcAddress::resolve(&pool.address).unwrap(), ClientSettings::default());
    let (table, client_id) = (WireTable::of(WireVersion::V0_3_13), ClientId(Uuid { first: 5, second: 6 }));
    call::<wire_call::MountSegment>(&master, table, &MountSegmentArgs { segment, client_id });
    let large = vec![1; 8 * MIB as usize];
    for turn in 0..20 {
        // The master, to whom the node was told, trusts it again; the client asks it in the first turn and now and then.
        call::<wire_call::Ping>(&master, table, &ClientArgs { client_id });
        let key = format!("k{turn}");
        match client.put(&key, &large, &replicas(2)) {
            Ok(_) => client.remove(&key, true).unwrap(),
            Err(error) => assert!(turn > 0 && matches!(error, Error::Transfer(_)), "turn {turn}: {error}"),
        }
    }
    assert!(client.metrics().suspicions > 0);
    client.put("one", &vec![1; 12 * MIB as usize], &on(&alive)).unwrap();
}

fn call<C: Call>(master: &ClientPool, table: &WireTable, args: &C::Args<'_>) {
    let signature = table.signature(C::RPC).unwrap();
    let mut body = Vec::new();
    yb_pack::encode(args, &signature.args, Form::Bare, &mut body).unwrap();
    master.call(signature.function_id, &body, master.deadline_in(Duration::from_secs(2))).unwrap();
}

/// A pool far too small and leases far too short: objects are evicted and their places used again under the readers. A read
/// may fail, but what it gives out is right.
#[test]
fn evicted_under_the_readers_no_read_gives_wrong_bytes() {
    let pool = Pool::ours(|config| config.catalog.lease_ttl = Duration::from_millis(20));
    let nodes = [node(&pool.address, 16 * MIB), node(&pool.address, 16 * MIB)];
    let client = requester(&pool.address);
    let value = |key: u64| bytes(key, 300_000 + key as usize % 1000);
    let (written, done) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for key in 0..200 {
                match client.put(key.to_string(), &value(key), &plain()) {
                    Ok(_) => written.store(key, Ordering::Relaxed),
                    Err(error) => assert!(error.retryable(), "{error}"),
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        for reader in 0..3u64 {
            let (client, value, written, done) = (&client, &value, &written, &done);
            scope.spawn(move || {
                let mut rng = yb_env::Rng::seeded(reader);
                while !done.load(Ordering::Relaxed) {
                    let key = written.load(Ordering::Relaxed).saturating_sub(rng.below(120));
                    match client.get(key.to_string()) {
                        Ok(read) => assert!(read == value(key), "wrong bytes of {key}"),
                        Err(Error::NotFound | Error::LeaseExpired | Error::Busy(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    let metrics = client.metrics();
    assert!(metrics.objects_read > 0, "{metrics:?}");
    drop(nodes);
}
