//! Generations side by side, functions that are not built, bad input.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{Caller, Rig, TENANT, eventually};
use yb_master::CompatListener;
use yb_rpc::{ClientPool, ClientSettings, RpcError};
use yb_types::{ErrorCode, WireVersion};
use yb_wire::messages::*;
use yb_wire::{Rpc, Service, WireTable, call};

#[test]
fn every_generation_puts_and_gets() {
    let old: Vec<WireVersion> = WireVersion::ALL.iter().copied().filter(|v| *v < WireVersion::V0_3_13).collect();
    let rig = Rig::with(|config| {
        let address = "127.0.0.1:0".parse().unwrap();
        config.compat = old.iter().map(|version| CompatListener { version: *version, address }).collect();
    });
    let main = rig.master.rpc_address();
    let ports = rig.master.listeners()[1..].iter().map(|(bound, version)| (bound.tcp().unwrap(), *version));
    let mut callers: Vec<Caller> = ports.map(|(address, version)| Caller::new(address, version)).collect();
    callers.push(Caller::new(main, WireVersion::V0_3_13));
    callers.push(Caller::new(main, WireVersion::V0_3_14));
    assert_eq!(callers.len(), WireVersion::ALL.len());
    callers[0].give_memory(1 << 20);
    for writer in &callers {
        let key = writer.table.version().name().as_bytes();
        writer.put(key, 100).unwrap();
        for reader in &callers {
            assert_eq!(reader.get(key).unwrap().replicas[0].memory().unwrap().size, 100);
            assert!(reader.exists(key));
        }
    }
}

/// Functions with an empty-handed answer, and their arguments' body; everything else must refuse.
#[test]
fn every_function_of_the_peer_answers() {
    let rig = Rig::start();
    let caller = rig.caller();
    for version in [WireVersion::V0_3_13, WireVersion::V0_3_14] {
        for rpc in Rpc::ALL.iter().filter(|rpc| rpc.service() == Service::Master && rpc.since() <= version) {
            let id = WireTable::of(version).signature(*rpc).unwrap().function_id;
            let deadline = caller.pool.deadline_in(Duration::from_secs(5));
            // Without arguments: functions that need some say so, no function is unknown.
            match caller.pool.call(id, &[], deadline) {
                Ok(_) | Err(RpcError::Refused { code: 4, .. }) => {}
                other => panic!("{}: {other:?}", rpc.name()),
            }
        }
    }
    match caller.pool.call(0xdead_beef, &[], caller.pool.deadline_in(Duration::from_secs(5))) {
        Err(RpcError::Refused { code: 11, .. }) => {}
        other => panic!("{other:?}"),
    }
    let me = ClientArgs { client_id: caller.id };
    let tasks = FetchTasksArgs { client_id: caller.id, batch_size: 16 };
    caller.call::<call::FetchTasks, _>(&tasks, |reply| assert_eq!(reply, Ok(vec![])));
    caller.call::<call::PollRemoveAll, _>(&me, |reply| assert_eq!(reply, Ok(false)));
    // Nothing of a disk is known of this client.
    let unknown = ErrorCode::SEGMENT_NOT_FOUND;
    caller.call::<call::PromotionObjectHeartbeat, _>(&me, |reply| assert_eq!(reply.unwrap_err(), unknown));
    let offload = OffloadingArgs { client_id: caller.id, enable_offloading: true };
    caller.call::<call::OffloadObjectHeartbeat, _>(&offload, |reply| assert_eq!(reply.unwrap_err(), unknown));
    caller.call::<call::MountLocalDiskSegment, _>(&offload, |reply| assert_eq!(reply, Err(ErrorCode::UNABLE_OFFLOAD)));
    caller.call::<call::GetAllNofSegments, _>(&NoArgs {}, |reply| assert_eq!(reply, Ok(vec![])));
    let key = ClientKeyArgs { client_id: caller.id, key: b"k", tenant_id: TENANT };
    caller.call::<call::CopyEnd, _>(&key, |reply| assert_eq!(reply, Err(ErrorCode::OBJECT_NOT_FOUND)));
    let segment = NofSegment { id: yb_types::SegmentId::default(), name: "n", base: 0, size: 1, te_endpoint: "" };
    let mount = MountNofSegmentArgs { segment, client_id: caller.id };
    caller.call::<call::MountNofSegment, _>(&mount, |reply| {
        assert_eq!(reply, Err(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE));
    });
    let lease = ReleaseWeightRevisionLeaseArgs {
        request: ReleaseWeightRevisionLeaseRequest { tenant_id: TENANT, lease_id: 1 },
        tenant_id: TENANT,
    };
    // As with the peer, one that is not there is given back.
    caller.call::<call::ReleaseWeightRevisionLease, _>(&lease, |reply| assert_eq!(reply, Ok(())));
}

/// True once the server has closed the connection.
fn closed(socket: &mut TcpStream) -> bool {
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    matches!(socket.read(&mut [0; 64]), Ok(0) | Err(_))
}

#[test]
fn what_is_no_request_is_closed_and_counted() {
    let rig = Rig::start();
    let reason =
        |reason: &str| rig.metric(&format!("yuebing_rpc_connections_closed_by_reason_total{{reason=\"{reason}\"}}"));
    for (bytes, counter) in [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), "bad_magic"),
        (vec![0xff; 64], "bad_magic"),
        ([&[21, 9, 0, 0][..], &[0; 16]].concat(), "bad_header"),
        ([&[21, 0, 0, 0][..], &[0; 8], &[0xff; 4], &[0; 4]].concat(), "too_large"),
        (vec![21, 0, 0], "stalled"),
        (Vec::new(), "stalled"),
    ] {
        let before = reason(counter);
        let mut socket = TcpStream::connect(rig.master.rpc_address()).unwrap();
        socket.write_all(&bytes).unwrap();
        assert!(closed(&mut socket), "{bytes:?}");
        eventually(counter, || reason(counter) > before);
    }
}

#[test]
fn a_crowd_that_says_nothing_harms_nobody() {
    let rig = Rig::start();
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    let mut crowd: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(rig.master.rpc_address()).unwrap()).collect();
    for (at, socket) in crowd.iter_mut().enumerate() {
        // Half of them stop in the middle of a frame. An error means that it is closed already.
        let _ = if at % 2 == 0 { socket.write(&[21, 0, 0, 0, 1]) } else { Ok(0) };
    }
    caller.put(b"k", 10).unwrap();
    assert!(caller.exists(b"k"));
    assert!(crowd.iter_mut().all(closed));
    eventually("only the living are left", || rig.metric("yuebing_rpc_connections") <= 1);
}

#[test]
fn wrong_arguments_keep_the_connection() {
    let rig = Rig::start();
    let settings = ClientSettings { max_connections: 1, ..ClientSettings::default() };
    let pool = ClientPool::new(rig.master.rpc_address().into(), settings);
    let id = WireTable::of(WireVersion::V0_3_14).signature(Rpc::ExistKey).unwrap().function_id;
    for body in [&b"nonsense"[..], &[0; 3], &[0xff; 200]] {
        match pool.call(id, body, pool.deadline_in(Duration::from_secs(5))) {
            Err(RpcError::Refused { code: 4, .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(rig.metric("yuebing_rpc_bad_arguments_total"), 3);
}
