//! Lending memory and taking it back, and clients on an engine of the caller.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use common::{MIB, Process, bytes, config, node, on, plain, requester, wait_until, wheel_master};
use yb_admin::MetadataOptions;
use yb_client::{Client, ClientConfig, Engine, Error, ForeignMemory, HugePages, MemoryRange, SegmentOptions};
use yb_master::{Master, MasterConfig};
use yb_types::{ErrorCode, SegmentId};

/// Whose master a test runs under.
struct Pool {
    address: String,
    _ours: Option<Master>,
    _wheel: Option<Process>,
}

/// A master of ours with short leases: it lets memory rest that comes back at addresses which readers may still have a
/// lease on, and the system likes to give the same addresses again.
fn master() -> Master {
    let mut config = MasterConfig::embedded();
    config.catalog.lease_ttl = Duration::from_millis(300);
    Master::start(config).unwrap()
}

fn under_each(test: impl Fn(&str)) {
    let master = master();
    let ours = Pool { address: master.rpc_address().to_string(), _ours: Some(master), _wheel: None };
    test(&ours.address);
    if let Some((process, address)) = wheel_master(&[]) {
        let wheel = Pool { address, _ours: None, _wheel: Some(process) };
        test(&wheel.address);
    }
}

fn unknown(id: SegmentId) -> (Result<(), Error>, SegmentId) {
    (Err(Error::from_master("UnmountSegment", ErrorCode::SEGMENT_NOT_FOUND)), id)
}

#[test]
fn a_client_lends_more_and_takes_it_back() {
    under_each(|master| {
        let lender = requester(master);
        assert_eq!((lender.endpoint(), lender.lent_bytes()), (None, 0));
        let first = lender.mount_segment(16 * MIB, SegmentOptions::default()).unwrap();
        let second = lender.mount_segment(32 * MIB, SegmentOptions::default()).unwrap();
        assert_eq!(lender.lent_bytes(), 48 * MIB);
        assert!(lender.endpoint().is_some());
        let reader = requester(master);
        let value = bytes(1, 20 * MIB as usize);
        reader.put("large", &value, &plain()).unwrap();
        reader.put("small", b"x", &plain()).unwrap();
        assert!(reader.get("large").unwrap() == value, "it fits into the second segment only");
        lender.unmount_segments(&[second], Duration::ZERO).unwrap();
        assert_eq!(reader.get("large"), Err(Error::NotFound));
        assert_eq!(lender.lent_bytes(), 16 * MIB);
        let (refused, id) = unknown(second);
        assert_eq!(lender.unmount_segments(&[id, first], Duration::ZERO), refused, "the other one leaves all the same");
        assert!(matches!(reader.put("none", b"x", &plain()), Err(Error::NoSpace(_))));
        let third = lender.mount_segment(16 * MIB, SegmentOptions::default()).unwrap();
        // At the addresses of one that has left it rests until the last lease there is over.
        wait_until("room in the third", || reader.put("again", b"x", &plain()).is_ok());
        lender.close();
        assert_eq!(lender.mount_segment(16 * MIB, SegmentOptions::default()), Err(Error::Closed));
        assert_eq!(reader.get("again"), Err(Error::NotFound), "{third}");
    });
}

#[test]
fn a_segment_with_a_grace_period_is_read_until_its_end() {
    under_each(|master| {
        let lender = node(master, 16 * MIB);
        let id = lender.mount_segment(16 * MIB, SegmentOptions::default()).unwrap();
        let reader = requester(master);
        // Fill until both segments have something.
        let keys: Vec<String> = (0..6).map(|number| format!("g{number}")).collect();
        for key in &keys {
            reader.put(key, &vec![1; 4 * MIB as usize], &plain()).unwrap();
        }
        lender.unmount_segments(&[id], Duration::from_secs(2)).unwrap();
        assert_eq!(lender.lent_bytes(), 16 * MIB);
        assert!(keys.iter().all(|key| reader.exists(key) == Ok(true)), "all can be read now");
        assert_eq!(lender.unmount_segments(&[id], Duration::ZERO), unknown(id).0, "it is leaving already");
        wait_until("the segment's objects are gone", || keys.iter().any(|key| reader.exists(key) == Ok(false)));
        let left = keys.iter().filter(|key| reader.exists(key.as_str()) == Ok(true)).count();
        assert!((1..6).contains(&left), "those of the other segment stay: {left}");
    });
}

#[test]
fn files_and_memory_of_the_caller_are_lent() {
    let master = master();
    let address = master.rpc_address().to_string();
    let lender = requester(&address);
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    file.as_file().set_len(33 * MIB).unwrap();
    let id = lender.mount_file(file.path(), MIB, 32 * MIB).unwrap();
    let reader = requester(&address);
    let value = bytes(3, 5 * MIB as usize);
    reader.put("in the file", &value, &plain()).unwrap();
    assert!(reader.get("in the file").unwrap() == value);
    let stored = std::fs::read(file.path()).unwrap();
    assert!(stored.windows(4096).step_by(64).any(|window| window == &value[..4096]), "the bytes are in the file");
    for (offset, size) in [(100, 16 * MIB), (0, MIB), (0, 64 * MIB), (u64::MAX - 4095, 16 * MIB)] {
        assert!(lender.mount_file(file.path(), offset, size).is_err(), "{offset}+{size}");
    }
    assert!(lender.mount_file("/no/such".as_ref(), 0, 16 * MIB).is_err());
    lender.unmount_segments(&[id], Duration::ZERO).unwrap();

    let id = lender.mount_memory(ForeignMemory::leaked(16 << 20)).unwrap();
    assert!(matches!(lender.mount_memory(ForeignMemory::leaked(1 << 20)), Err(Error::Invalid(_))), "below the least");
    wait_until("the memory has rested", || reader.put("of the caller", &value, &plain()).is_ok());
    assert!(reader.get("of the caller").unwrap() == value);
    lender.unmount_segments(&[id], Duration::ZERO).unwrap();
    assert_eq!(reader.get("of the caller"), Err(Error::NotFound));
}

#[test]
fn options_that_the_machine_lacks_do_not_keep_memory_from_being_lent() {
    let master = master();
    let address = master.rpc_address().to_string();
    let options =
        SegmentOptions { huge_pages: HugePages::Reserved1G, numa_node: Some(1000), ..SegmentOptions::default() };
    let lender = Client::connect(ClientConfig {
        global_segment_size: 17 * MIB + 5,
        segment_memory: options,
        ..config(&address)
    })
    .unwrap();
    assert_eq!(lender.lent_bytes(), 17 * MIB + 5, "no rounding");
    lender.put("k", b"v", &plain()).unwrap();
    assert_eq!(lender.get("k").unwrap(), b"v");
}

#[test]
fn a_client_that_only_asks_lends_nothing() {
    let master = master();
    let address = master.rpc_address().to_string();
    let _node = node(&address, 16 * MIB);
    let asks = Client::connect(ClientConfig { protocol: "rpc_only".into(), local_buffer_size: 0, ..config(&address) });
    let asks = asks.unwrap();
    requester(&address).put("k", b"v", &plain()).unwrap();
    assert_eq!(asks.batch_exists(&["k", "none"]), [Ok(true), Ok(false)]);
    assert!(matches!(asks.mount_segment(16 * MIB, SegmentOptions::default()), Err(Error::Invalid(_))));
}

fn engine() -> Engine {
    Engine::builder().listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).build().unwrap()
}

#[test]
fn an_engine_of_the_caller_is_shared() {
    under_each(|master| {
        let engine = engine();
        let name = engine.endpoint().unwrap().to_owned();
        let kept = engine.allocate(4096, SegmentOptions::default(), yb_transfer::Access::Remote).unwrap();
        let shared = || {
            let sized = ClientConfig { local_hostname: name.clone(), global_segment_size: 16 * MIB, ..config(master) };
            Client::connect_on(engine.clone(), sized).unwrap()
        };
        let client = shared();
        assert_eq!((client.hostname(), client.endpoint()), (name.as_str(), Some(name.as_str())));
        let range = MemoryRange { address: kept.address(), len: 4096 };
        yb_mem::copy(kept.span(), yb_transfer::Span::source(&bytes(9, 4096)), yb_mem::CopyHint::Cached).unwrap();
        client.put_from("of the engine", range, &on(&client)).unwrap();
        assert!(requester(master).get("of the engine").unwrap() == bytes(9, 4096));
        assert_eq!(client.get_into_range("of the engine", range), Ok(4096));
        assert!(matches!(client.unregister_buffer(kept.address()), Err(Error::Invalid(_))), "not the client's to take");
        let own = client.allocate_buffer(4096).unwrap();
        let second = Client::connect_on(engine.clone(), config(master)).unwrap();
        assert_eq!(second.get_into_range("of the engine", MemoryRange::of(&own)), Ok(4096), "known to both");
        client.close();
        let regions: Vec<u64> = engine.regions().iter().map(|region| region.address).collect();
        assert_eq!(regions, [kept.address()], "what the client put in is gone, the rest stays");
        assert!(second.exists("of the engine").is_ok());
        drop((client, second));
        assert!(engine.local(kept.address(), 4096).is_ok(), "the engine lives on");
        engine.shutdown();
    });
}

#[test]
fn a_shared_engine_without_devices_is_no_rdma() {
    let engine = engine();
    let refused = |protocol: &str| {
        let config = ClientConfig { protocol: protocol.into(), ..config("127.0.0.1:1") };
        Client::connect_on(engine.clone(), config).unwrap_err().to_string()
    };
    assert!(refused("rdma").contains("not in this build"));
    engine.shutdown();
}

#[test]
fn puts_go_to_own_memory_first_when_asked_to() {
    let master = master();
    let address = master.rpc_address().to_string();
    let _other = node(&address, 64 * MIB);
    let lender = Client::connect(ClientConfig { local_first: true, global_segment_size: 64 * MIB, ..config(&address) });
    let lender = lender.unwrap();
    let own = lender.endpoint().unwrap();
    for number in 0..20 {
        let key = format!("l{number}");
        lender.put(&key, &[1; 1000], &plain()).unwrap();
        let placed = lender.query(&key).unwrap().replicas[0].memory().unwrap().transport_endpoint.clone();
        assert_eq!(placed, own, "{key}");
    }
}

/// A master of ours with a metadata server in it, and that one's address.
fn with_names() -> (Master, String) {
    let mut config = MasterConfig::embedded();
    config.catalog.lease_ttl = Duration::from_millis(300);
    config.metadata = Some(MetadataOptions::from_env("127.0.0.1:0", |_| None));
    let master = Master::start(config).unwrap();
    let url = format!("http://{}/metadata", master.metadata_address().unwrap());
    (master, url)
}

#[test]
fn of_two_living_clients_of_one_name_the_newer_one_serves_and_the_older_one_steps_back() {
    let (master, metadata_server) = with_names();
    let address = master.rpc_address().to_string();
    let local_hostname = format!("127.0.0.1:{}", common::free_port());
    let named = ClientConfig { local_hostname, metadata_server, global_segment_size: 32 * MIB, ..config(&address) };
    let older = Client::connect(named.clone()).unwrap();
    older.put("of the older", b"x", &plain()).unwrap();
    let newer = Client::connect(named.clone()).unwrap();
    wait_until("the older one lends nothing more", || older.lent_bytes() == 0);
    let reader = Client::connect(ClientConfig { global_segment_size: 0, ..named.clone() }).unwrap();
    for client in [&reader, &older, &newer] {
        for number in 0..20 {
            let key = format!("{:?} {number}", client.client_id());
            let value = bytes(number, 100_000);
            client.put(&key, &value, &plain()).unwrap();
            assert!([&reader, &older, &newer].iter().all(|client| client.get(&key).unwrap() == value));
        }
    }
    assert_eq!(reader.get("of the older"), Err(Error::NotFound), "it went with its segment");
    let refused = older.mount_segment(16 * MIB, SegmentOptions::default()).unwrap_err().to_string();
    assert!(refused.contains("taken the name"), "{refused}");
    // It goes on pinging as a client without memory: longer than the master waits for one whose address is another's.
    let pings = older.metrics().pings;
    wait_until("pings of the older one", || older.metrics().pings >= pings + 20);
    assert_eq!((older.lent_bytes(), newer.lent_bytes()), (0, 32 * MIB));
    reader.put("still", b"there", &plain()).unwrap();
    older.close();
    assert_eq!(newer.get("still"), Ok(b"there".to_vec()));
}

#[test]
fn a_client_that_comes_after_one_of_its_name_has_room() {
    let (master, metadata_server) = with_names();
    let address = master.rpc_address().to_string();
    let local_hostname = format!("127.0.0.1:{}", common::free_port());
    let named = ClientConfig { local_hostname, metadata_server, global_segment_size: 32 * MIB, ..config(&address) };
    let reader = Client::connect(ClientConfig { global_segment_size: 0, ..named.clone() }).unwrap();
    let mut closed = Vec::new();
    for turn in 0..3 {
        let node = Client::connect(named.clone()).unwrap();
        let key = format!("k{turn}");
        // At addresses of one that has left it rests until the last lease there is over.
        wait_until("room in the next one", || reader.put(&key, b"x", &plain()).is_ok());
        assert_eq!(reader.get(&key), Ok(b"x".to_vec()));
        node.close();
        // A client that is closed is not gone before its last handle is.
        closed.push(node);
    }
}
