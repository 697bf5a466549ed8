//! RDMA between processes, over soft-RoCE rails in the machine that `make test-rdma` boots. Emulated: bytes and counts
//! are judged here, never speed.
//!
//! Processes stand for hosts: each has devices of its own (`rxe0,rxe1` ours, `rxe2,rxe3` the other's).

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;
mod rdma;

use std::time::Duration;

use common::*;
use rdma::peer::{Peer, serve_if_asked, unit_pattern, wheels};
use rdma::rails::{RailGuard, set_rail};
use yb_transfer::{Engine, EngineSettings, SegmentHandle, TransferErrorKind};

const MIB: usize = 1 << 20;
/// Generous: the machine is emulated, and shared.
const LONG: Duration = Duration::from_secs(120);

fn ours(devices: &[&str]) -> Engine {
    engine(EngineSettings { rdma: rdma_settings(devices), ..tcp_settings() })
}

fn open(engine: &Engine, peer: &Peer) -> SegmentHandle {
    engine.open_segment(&peer.endpoint).unwrap()
}

/// Writes and reads back; the peer looks at its memory itself.
fn exchange(engine: &Engine, peer: &mut Peer, sizes: &[(usize, usize)]) {
    let segment = open(engine, peer);
    for (seed, (size, offset)) in sizes.iter().copied().enumerate() {
        let remote = peer.address + offset as u64;
        let sent = unit_pattern(size, seed);
        engine.transfer_sync(&[write(&segment, remote, &sent)], engine.now() + LONG).into_result().unwrap();
        assert_eq!(peer.order(&format!("check {offset} {size} {seed}")), "0", "written {size} at {offset}");
        let mut got = vec![0; size];
        engine.transfer_sync(&[read(&segment, remote, &mut got)], engine.now() + LONG).into_result().unwrap();
        assert!(got == sent, "read {size} at {offset}");
    }
}

#[test]
fn a_peer_for_the_other_tests() {
    serve_if_asked();
}

#[test]
fn one_rail_between_processes() {
    let Some(mut peer) = Peer::ours(&["rxe2"], 66 * MIB) else { return };
    let engine = ours(&["rxe0"]);
    let sizes = [(1, 0), (3, 1), (64, 7), (65, 9), (4097, 4095), (MIB, 1), (5 * MIB + 13, 3), (64 * MIB, 5)];
    exchange(&engine, &mut peer, &sizes);
    let stats = engine.rdma_stats().unwrap();
    assert_eq!(stats.rails.len(), 1);
    assert!(stats.rails[0].up && stats.failed_completions == 0, "{stats:?}");
    assert_eq!(engine.stats().tcp.requests, 0);
}

#[test]
fn two_rails_between_processes_and_what_a_mebibyte_costs() {
    let Some(mut peer) = Peer::ours(&["rxe2", "rxe3"], 33 * MIB) else { return };
    let engine = ours(&["rxe0", "rxe1"]);
    let segment = open(&engine, &peer);
    exchange(&engine, &mut peer, &[(1, 0), (100, 3)]);
    let before = engine.rdma_stats().unwrap();
    exchange(&engine, &mut peer, &[(32 * MIB, 1)]);
    let after = engine.rdma_stats().unwrap();
    let (requests, doorbells) = (after.work_requests - before.work_requests, after.doorbells - before.doorbells);
    let completions = after.completions - before.completions;
    println!(
        "64 MiB: {requests} work requests ({:.1}/MiB), {doorbells} doorbells ({:.2}/MiB), {completions} completions",
        requests as f64 / 64.0,
        doorbells as f64 / 64.0
    );
    assert!((16 * 64..16 * 64 + 64).contains(&requests), "one work request for each slice of 64 KiB: {requests}");
    assert!(doorbells <= requests / 2 && completions <= requests, "{doorbells} doorbells, {completions} completions");
    let used: Vec<_> = after.rails.iter().filter(|rail| rail.bytes > 0).collect();
    let locals: std::collections::BTreeSet<_> = used.iter().map(|rail| rail.local.as_str()).collect();
    assert_eq!(locals.len(), 2, "both of our devices carry bytes: {:?}", after.rails);

    // A batch of many small ones, not aligned to anything.
    let sent: Vec<Vec<u8>> = (0..200).map(|i| pattern(1 + i * 13, i as u64)).collect();
    let place = |i: usize| peer.address + 4001 * i as u64;
    let writes: Vec<_> = sent.iter().enumerate().map(|(i, bytes)| write(&segment, place(i), bytes)).collect();
    assert!(engine.transfer_sync(&writes, engine.now() + LONG).is_ok());
    let mut got: Vec<Vec<u8>> = sent.iter().map(|bytes| vec![0; bytes.len()]).collect();
    let reads: Vec<_> = got.iter_mut().enumerate().map(|(i, bytes)| read(&segment, place(i), bytes)).collect();
    assert!(engine.transfer_sync(&reads, engine.now() + LONG).is_ok());
    drop(reads);
    assert!(got == sent);
}

#[test]
fn a_rail_that_goes_down_in_the_middle_is_replaced_by_the_other() {
    let Some(mut peer) = Peer::ours(&["rxe2", "rxe3"], 129 * MIB) else { return };
    let engine = ours(&["rxe0", "rxe1"]);
    let _guard = RailGuard(1);
    exchange(&engine, &mut peer, &[(MIB, 0)]);
    let segment = open(&engine, &peer);
    let sent = unit_pattern(128 * MIB, 77);
    let done = std::sync::atomic::AtomicBool::new(false);
    let bytes_on = |engine: &Engine, device: &str| -> u64 {
        let rails = engine.rdma_stats().unwrap().rails;
        rails.iter().filter(|rail| rail.local == device).map(|rail| rail.bytes).sum()
    };
    let start = bytes_on(&engine, "rxe1");
    let at_fault = std::thread::scope(|scope| {
        let saboteur = scope.spawn(|| {
            eventually("the second rail carries bytes", || {
                bytes_on(&engine, "rxe1") > start + 8 * MIB as u64 || done.load(std::sync::atomic::Ordering::SeqCst)
            });
            set_rail(1, false);
            bytes_on(&engine, "rxe1")
        });
        engine.transfer_sync(&[write(&segment, peer.address, &sent)], engine.now() + LONG).into_result().unwrap();
        done.store(true, std::sync::atomic::Ordering::SeqCst);
        saboteur.join().unwrap()
    });
    let stats = engine.rdma_stats().unwrap();
    println!("rail 1 down after {} MiB: {stats:?}", (at_fault - start) >> 20);
    assert!(at_fault - start < 64 * MIB as u64, "the rail went down in the middle");
    assert!(stats.retried_slices > 0, "slices were under way on it");
    assert_eq!(peer.order(&format!("check 0 {} 77", 128 * MIB)), "0", "no wrong byte");
    assert_eq!(engine.stats().tcp.requests, 0, "over the other rail, not over TCP");
    set_rail(1, true);
    eventually("the rail carries bytes again", || {
        let before = bytes_on(&engine, "rxe1");
        exchange(&engine, &mut peer, &[(4 * MIB, 11)]);
        bytes_on(&engine, "rxe1") > before
    });
}

#[test]
fn a_killed_peer_is_a_clear_error_within_the_deadline() {
    let Some(mut peer) = Peer::ours(&["rxe2", "rxe3"], 65 * MIB) else { return };
    let engine = ours(&["rxe0", "rxe1"]);
    exchange(&engine, &mut peer, &[(MIB, 0)]);
    let segment = open(&engine, &peer);
    let sent = unit_pattern(64 * MIB, 5);
    let (before, remote) = (engine.rdma_stats().unwrap().work_requests, peer.address);
    let (started, outcome) = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            eventually("bytes move", || engine.rdma_stats().unwrap().work_requests > before + 20);
            peer.kill();
        });
        let started = engine.now();
        let outcome = engine.transfer_sync(&[write(&segment, remote, &sent)], started + LONG);
        killer.join().unwrap();
        (started, outcome)
    });
    let error = outcome.into_result().unwrap_err();
    println!("after {:?}: {error}", engine.now().since(started));
    use TransferErrorKind as K;
    assert!(matches!(error.kind(), K::Unreachable | K::ConnectionLost | K::PeerGone), "{error}");
    assert!(engine.now() < started + LONG);
}

#[test]
fn an_engine_without_rdma_reaches_one_with_it_over_tcp() {
    let Some(mut peer) = Peer::ours(&["rxe2"], 2 * MIB) else { return };
    let plain = engine(tcp_settings());
    exchange(&plain, &mut peer, &[(1, 0), (MIB, 3)]);
    assert_eq!(plain.stats().tcp.requests, 4);
    assert!(plain.rdma_stats().is_none() && plain.rdma_devices().is_empty());
}

#[test]
fn a_deadline_and_a_cancel_end_transfers_over_rails() {
    let Some(mut peer) = Peer::ours(&["rxe2"], 65 * MIB) else { return };
    let engine = ours(&["rxe0"]);
    exchange(&engine, &mut peer, &[(MIB, 0)]);
    let (segment, remote) = (open(&engine, &peer), peer.address);
    let sent = unit_pattern(64 * MIB, 9);
    let short = engine.now() + Duration::from_millis(300);
    let late = engine.transfer_sync(&[write(&segment, remote, &sent)], short).into_result().unwrap_err();
    assert_eq!(late.kind(), TransferErrorKind::TimedOut, "{late}");
    let token = yb_transfer::CancelToken::new();
    let before = engine.rdma_stats().unwrap().work_requests;
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            eventually("bytes move", || engine.rdma_stats().unwrap().work_requests > before + 8);
            token.cancel();
        });
        engine.transfer_until(&[write(&segment, remote, &sent)], engine.now() + LONG, &token)
    });
    let cancelled = outcome.into_result().unwrap_err();
    assert_eq!(cancelled.kind(), TransferErrorKind::Cancelled, "{cancelled}");
    // The rail is as good as before.
    exchange(&engine, &mut peer, &[(4 * MIB, 1)]);
}

#[test]
fn wrong_connection_messages_are_answered_and_change_nothing() {
    let Some(mut peer) = Peer::ours(&["rxe2"], 2 * MIB) else { return };
    let engine = ours(&["rxe0"]);
    exchange(&engine, &mut peer, &[(1000, 0)]);
    let nic = format!("{}@rxe2", peer.endpoint);
    let gid = "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02";
    let body = |pairs: &str, gid: &str, nic: &str| {
        format!(
            r#"{{"local_nic_path":"10.77.0.2:1@rxe1","local_gid":"{gid}","local_lid":0,"peer_nic_path":"{nic}","qp_num":{pairs},"reply_msg":""}}"#
        )
    };
    for (json, words) in [
        (body("[1,2]", gid, "x@nosuch"), "Local RDMA context not found for handshake NIC: nosuch"),
        (body("[1]", gid, &nic), "QP count mismatch in peer and local endpoints"),
        (body("[]", gid, &nic), "QP count mismatch in peer and local endpoints"),
        (body("[1,2]", "zz", &nic), "Invalid peer GID: zz"),
        (body("[1,2]", gid, "elsewhere@rxe2"), "mismatch"),
        (body("[1,-2]", gid, &nic), "not a connection message"),
        (r#"{"local_nic_path":{}}"#.to_owned(), "not a connection message"),
    ] {
        let reply = rdma::peer::ask(&peer.endpoint, 0, &json).unwrap();
        assert!(reply.contains(words), "{json}: {reply}");
    }
    for (kind, json) in [(0, "[]"), (0, "5"), (0, "not json"), (2, "[]"), (2, r#"{"name":{},"notify_msg":""}"#)] {
        assert_eq!(rdma::peer::ask(&peer.endpoint, kind, json), None, "{json}");
    }
    exchange(&engine, &mut peer, &[(100_000, 5)]);
    assert_eq!(engine.rdma_stats().unwrap().reconnects, 0);
}

#[test]
fn both_rails_flap_while_transfers_run() {
    let Some(mut peer) = Peer::ours(&["rxe2", "rxe3"], 9 * MIB) else { return };
    let engine = ours(&["rxe0", "rxe1"]);
    exchange(&engine, &mut peer, &[(MIB, 0)]);
    let segment = open(&engine, &peer);
    let _guards = (RailGuard(0), RailGuard(1));
    let done = std::sync::atomic::AtomicBool::new(false);
    let (mut moved, mut failed) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = yb_env::Rng::seeded(3);
            for flap in 0..50 {
                let rail = flap % 2;
                set_rail(rail, false);
                yb_env::sleep(Duration::from_millis(20 + rng.below(100)));
                set_rail(rail, true);
                yb_env::sleep(Duration::from_millis(rng.below(60)));
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        let mut round = 0;
        while !done.load(std::sync::atomic::Ordering::SeqCst) || round < 5 {
            round += 1;
            let sent = unit_pattern(3 * MIB + 77, round as usize);
            let mut got = vec![0; sent.len()];
            let remote = peer.address + round % 1000;
            if engine.transfer_sync(&[write(&segment, remote, &sent)], engine.now() + LONG).is_ok() {
                let check = format!("check {} {} {round}", round % 1000, sent.len());
                assert_eq!(peer.order(&check), "0", "round {round}");
                moved += 1;
                match engine.transfer_sync(&[read(&segment, remote, &mut got)], engine.now() + LONG).into_result() {
                    Ok(()) => assert!(got == sent, "round {round}"),
                    Err(error) => println!("round {round}: {error}"),
                }
            } else {
                failed += 1;
            }
        }
    });
    println!("50 flaps: {moved} rounds moved, {failed} failed; {:?}", engine.rdma_stats().unwrap());
    assert!(moved > 0);
    set_rail(0, true);
    set_rail(1, true);
    exchange(&engine, &mut peer, &[(4 * MIB, 1)]);
}

#[test]
fn the_peers_wheel_and_ours_in_both_directions() {
    for wheel in wheels() {
        let version = &wheel.version;
        let mut wheel = Peer::wheel(&wheel, "10.77.0.3", &["rxe2"], 17 * MIB);
        let settings = EngineSettings { listen: Some("10.77.0.1:0".parse().unwrap()), ..tcp_settings() };
        let engine = engine(EngineSettings { rdma: rdma_settings(&["rxe0"]), ..settings });
        let memory = memory(&engine, 17 << 20);
        // We ask, the wheel is the target.
        exchange(&engine, &mut wheel, &[(1, 0), (65, 3), (65_537, 4095), (16 * MIB, 1)]);
        let segment = open(&engine, &wheel);
        engine.probe(&segment, engine.now() + LONG).unwrap();
        let note = yb_transfer::Notification { name: "from-us".to_owned(), message: "hello".to_owned() };
        engine.notify(&segment, &note, engine.now() + LONG).unwrap();
        assert_eq!(wheel.order("notifies"), "from-us=hello");
        let outside = engine.transfer_sync(&[write(&segment, 64, &[1; 8])], engine.now() + LONG);
        assert_eq!(outside.into_result().unwrap_err().kind(), TransferErrorKind::RemoteRefused);
        // The wheel asks, we are the target.
        let endpoint = engine.endpoint().unwrap().to_owned();
        assert_eq!(wheel.order(&format!("probe {endpoint}")), "0");
        for (seed, (size, offset)) in [(1, 0), (100, 3), (65_537, 4095), (16 * MIB, 1)].into_iter().enumerate() {
            let remote = memory.address() + offset as u64;
            assert_eq!(wheel.order(&format!("write {endpoint} {remote} {offset} {size} {seed}")), "0", "{version}");
            let written = unit_pattern(size, seed);
            assert!(content(&memory, offset, size) == written, "{version} wrote {size}");
            assert_eq!(wheel.order(&format!("read {endpoint} {remote} {offset} {size} {seed}")), "0", "{version}");
        }
        assert_eq!(wheel.order(&format!("batch {endpoint} {} 65536 16", memory.address())), "0");
        eventually("the notification of the batch", || {
            engine.take_notifications().iter().any(|note| note.name == "batch" && note.message == "read")
        });
        println!("{version}: {:?}", engine.rdma_stats().unwrap());
    }
}
