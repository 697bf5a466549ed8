//! Wrong versions and wrong peers (H11), edges of size and name (H17): the master's part.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use yb_env::Clock;
use yb_pack::List;
use yb_rpc::RpcError;
use yb_types::{ErrorCode, ReplicaType, ReplicateConfig, WireVersion};
use yb_wire::call;
use yb_wire::messages::*;

use crate::common::{Caller, TENANT};
use crate::ground::*;

/// Sends bytes; answers how long it took until the server had closed the connection, `None` if it did not.
fn closed_after(address: SocketAddr, bytes: &[u8]) -> Option<Duration> {
    let clock = Clock::real();
    let mut socket = TcpStream::connect(address).unwrap();
    let begin = clock.now();
    // The server may close before everything is written.
    let _ = socket.write_all(bytes);
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut scratch = [0; 4096];
    loop {
        match socket.read(&mut scratch) {
            Ok(0) => return Some(clock.now().since(begin)),
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
            Err(_) => return Some(clock.now().since(begin)),
        }
    }
}

fn header(body: u32, magic: u8, version: u8) -> Vec<u8> {
    let mut frame = vec![magic, version, 0, 0];
    frame.extend([0; 8]);
    frame.extend(body.to_le_bytes());
    frame.extend([0; 4]);
    frame
}

#[test]
fn what_is_no_peer_is_shown_out() {
    let master = MasterProcess::start(&["--client_ttl=600"]);
    let good = master.caller();
    good.give_memory(64 * MIB);
    let before = master.resident_bytes();
    let half_a_frame = [header(1000, 21, 0), vec![7; 100]].concat();
    let cases: [(&str, Vec<u8>); 6] = [
        ("a newer protocol number", [header(0, 21, 9), vec![0; 64]].concat()),
        ("random bytes", (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8 | 0x80).collect()),
        ("a frame cut in the middle", half_a_frame),
        ("a frame that announces 4 GiB", header(u32::MAX, 21, 0)),
        ("an HTTP request", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("nothing", Vec::new()),
    ];
    for (name, bytes) in &cases {
        let counted = master.metric("yuebing_rpc_connections_closed_by_reason_total");
        let took = closed_after(master.address, bytes);
        assert!(took.is_some_and(|took| took < Duration::from_secs(3)), "{name}: {took:?}");
        let moved = || master.metric("yuebing_rpc_connections_closed_by_reason_total") > counted;
        wait_until(&format!("{name}: counted"), moved);
        good.put(name.as_bytes(), 10).unwrap();
        // The admin port answers what is HTTP and closes the rest.
        if !bytes.is_empty() {
            let _ = TcpStream::connect(master.admin).and_then(|mut socket| socket.write_all(bytes));
        }
        assert!(master.page("/health").contains("OK") || !master.page("/metrics").is_empty());
    }
    let grown = master.resident_bytes().saturating_sub(before);
    assert!(grown < 64 * MIB, "grew by {} MiB", grown / MIB);
    let fresh = master.caller();
    fresh.put(b"a normal client", 10).unwrap();
    assert!(good.exists(b"a normal client"));
}

/// A client of an older generation on the main port never half works: what it writes is refused, and counted.
#[test]
fn an_older_generation_on_the_main_port_is_refused_whole() {
    let logs = std::env::temp_dir().join(format!("generations-{}", std::process::id()));
    std::fs::create_dir_all(&logs).unwrap();
    let log_dir = format!("--log_dir={}", logs.display());
    let master = MasterProcess::start(&["--client_ttl=600", "--minloglevel=0", &log_dir]);
    let owner = master.caller();
    owner.give_memory(64 * MIB);
    let line = || {
        let text = std::fs::read_to_string(logs.join("mooncake_master.INFO")).unwrap();
        text.lines().find(|line| line.contains("speaks another generation")).map(str::to_owned)
    };
    for version in WireVersion::ALL.iter().copied().filter(|version| *version < WireVersion::V0_3_13) {
        let old = Caller::new(master.address, version);
        let counted = master.metric("yuebing_rpc_bad_arguments_total");
        let config = ReplicateConfig::default();
        let start = PutStartArgs { client_id: old.id, key: b"old", slice_length: 10, config, tenant_id: TENANT };
        match old.try_call::<call::PutStart, _>(&start, |reply| reply) {
            Err(RpcError::Refused { code: 4, .. }) => {}
            other => panic!("{version}: {other:?}"),
        }
        assert!(master.metric("yuebing_rpc_bad_arguments_total") > counted, "{version}");
        assert!(!owner.exists(b"old"));
    }
    wait_until("both generations are in the log", || line().is_some());
    let line = line().unwrap();
    let oldest = WireVersion::ALL[0].name();
    assert!(line.contains(oldest) && line.contains("0.3.14") && line.contains("--compat_listen"), "{line}");
    std::fs::remove_dir_all(&logs).unwrap();
}

fn round_trip(caller: &Caller, key: &[u8], size: u64) -> ErrorOr<()> {
    let wrote = caller.put(key, size)?;
    let found = caller.get(key)?;
    assert_eq!(found.replicas[0].memory().unwrap().size, size);
    assert_eq!(wrote[0].memory().unwrap().buffer_address, found.replicas[0].memory().unwrap().buffer_address);
    assert!(caller.exists(key));
    caller.remove(key, true)?;
    assert!(!caller.exists(key));
    Ok(())
}

#[test]
fn edges_of_size() {
    let master = MasterProcess::start(&["--default_kv_lease_ttl=0", "--client_ttl=600"]);
    let caller = master.caller();
    caller.give_memory(6 << 30);
    const GIB: u64 = 1 << 30;
    for size in [0, 1, 4095, 4096, 64 * MIB - 1, 2 * GIB - 1, 2 * GIB + 1, 4 * GIB + 1] {
        assert_eq!(round_trip(&caller, format!("of {size}").as_bytes(), size), Ok(()), "{size} bytes");
    }
    // Larger than any segment: refused before anything moves, for a reason of its own in the metrics.
    for size in [(6 << 30) + 1, 1 << 40, u64::MAX] {
        let code = caller.put_start(b"large", size).unwrap_err();
        assert!([ErrorCode::NO_AVAILABLE_HANDLE, ErrorCode::INVALID_PARAMS].contains(&code), "{size}: {code}");
        assert!(!caller.exists(b"large"));
    }
    assert_eq!(caller.put_start(b"", 10), Err(ErrorCode::INVALID_PARAMS), "an empty key has a code of its own");
}

#[test]
fn edges_of_name() {
    let master = MasterProcess::start(&["--default_kv_lease_ttl=0", "--client_ttl=600"]);
    let caller = master.caller();
    caller.give_memory(256 * MIB);
    let long = |len: usize| vec![b'x'; len];
    let names: [Vec<u8>; 12] = [
        b"k".to_vec(),
        long(46),
        long(47),
        long(4096),
        long(65_536),
        b"a\0b".to_vec(),
        b"\0".to_vec(),
        b"dir/name".to_vec(),
        b" a b ".to_vec(),
        "\u{6708}\u{997c}".as_bytes().to_vec(),
        vec![0xff, 0xfe, 0x80],
        b"--rpc_port=1".to_vec(),
    ];
    for name in &names {
        assert_eq!(round_trip(&caller, name, 100), Ok(()), "{:?}", String::from_utf8_lossy(name));
        assert_eq!(caller.get(name).unwrap_err(), ErrorCode::OBJECT_NOT_FOUND, "a miss is no empty value");
    }
}

#[test]
fn edges_of_batches() {
    let master = MasterProcess::start(&["--default_kv_lease_ttl=0", "--client_ttl=600"]);
    let caller = master.caller();
    caller.give_memory(256 * MIB);
    for count in [0usize, 1, 100_000] {
        let names: Vec<Vec<u8>> = (0..count).map(|number| format!("batch-{number}").into_bytes()).collect();
        let refs: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let lengths = vec![64u64; count];
        let start = BatchPutStartArgs {
            client_id: caller.id,
            keys: List::from(&refs),
            slice_lengths: List::from(&lengths),
            config: ReplicateConfig::default(),
            tenant_id: TENANT,
        };
        let refused = caller.call::<call::BatchPutStart, _>(&start, |reply| reply.into_iter().find_map(Result::err));
        assert_eq!(refused, None);
        let metas: Vec<ObjectMetaRef<'_>> =
            refs.iter().map(|key| ObjectMetaRef { key, object_checksum: None }).collect();
        let end = BatchPutEndArgs {
            client_id: caller.id,
            object_metas: List::from(&metas),
            replica_type: ReplicaType::ALL,
            tenant_id: TENANT,
        };
        let refused = caller.call::<call::BatchPutEnd, _>(&end, |reply| reply.into_iter().find_map(Result::err));
        assert_eq!(refused, None);
        let keys = KeysArgs { keys: List::from(&refs), tenant_id: TENANT };
        let found = caller.call::<call::BatchGetReplicaList, _>(&keys, |reply| {
            reply.iter().filter(|r| r.as_ref().is_ok_and(|found| found.replicas.len() == 1)).count()
        });
        assert_eq!(found, count);
        let remove = BatchRemoveArgs { keys: List::from(&refs), force: true, tenant_id: TENANT };
        let removed = caller.call::<call::BatchRemove, _>(&remove, |reply| reply.iter().filter(|r| r.is_ok()).count());
        assert_eq!(removed, count);
    }
}
