//! Our engine with the peer's, each as initiator and as target. Needs `YB_PEER_VENVS`, a folder with `v0.3.13.post1`.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::wheel::{Wheel, script_pattern};
use common::*;
use yb_transfer::{Access, EngineSettings, Notification, SegmentOptions, TransferErrorKind};

const SIZES: [(usize, u64); 7] =
    [(1, 0), (3, 1), (4096, 0), (65_537, 4095), (1 << 20, 0), ((16 << 20) - 16, 77), (64 << 20, 3)];

fn offering() -> EngineSettings {
    EngineSettings { shm: true, ..tcp_settings() }
}

#[test]
fn the_peer_reads_and_writes_our_memory() {
    let Some(mut wheel) = Wheel::start(&[]) else { return };
    let ours = engine(offering());
    let memory = memory(&ours, 65 << 20);
    let endpoint = ours.endpoint().unwrap().to_owned();
    assert_eq!(wheel.order(&format!("probe {endpoint}")), "0");
    assert_eq!(wheel.order(&format!("first {endpoint}")), memory.address().to_string(), "our extra key is ignored");
    for (seed, (size, offset)) in SIZES.into_iter().enumerate() {
        let remote = memory.address() + offset;
        assert_eq!(wheel.order(&format!("write {endpoint} {remote} {offset} {size} {seed}")), "0");
        assert!(content(&memory, offset as usize, size) == script_pattern(size, seed), "written {size}");
        let sent = script_pattern(size, seed + 100);
        fill_at(&memory, offset as usize, &sent);
        let seed = seed + 100;
        assert_eq!(wheel.order(&format!("read {endpoint} {remote} {offset} {size} {seed}")), "0", "read {size}");
    }
    assert_eq!(wheel.order(&format!("batch {endpoint} {} 65536 32", memory.address())), "0");
    eventually("the notification of the batch", || {
        ours.take_notifications() == [Notification { name: "batch".to_owned(), message: "read".to_owned() }]
    });
    let hidden = ours.allocate(4096, SegmentOptions::default(), Access::Local).unwrap();
    assert_eq!(wheel.order(&format!("write {endpoint} {} 0 64 1", hidden.address())), "-1");
    assert_eq!(ours.stats().shm_peers, 0);
}

fn fill_at(segment: &yb_transfer::MemorySegment, offset: usize, bytes: &[u8]) {
    let target = segment.span().slice(offset, bytes.len()).unwrap();
    yb_mem::copy(target, yb_transfer::Span::source(bytes), yb_mem::CopyHint::Cached).unwrap();
}

fn we_read_and_write_theirs(env: &[(&str, &str)], settings: EngineSettings) {
    let Some(mut wheel) = Wheel::start(env) else { return };
    let ours = engine(settings);
    let peer = ours.open_segment(&wheel.endpoint).unwrap();
    ours.probe(&peer, ours.now() + PATIENCE).unwrap();
    for (seed, (size, offset)) in SIZES.into_iter().enumerate() {
        let remote = wheel.address + offset;
        let sent = script_pattern(size, seed);
        ours.transfer_sync(&[write(&peer, remote, &sent)], ours.now() + PATIENCE).into_result().unwrap();
        let check = format!("check {offset} {size} {seed}");
        eventually("version 1 writes arrive some time after they were sent", || wheel.order(&check) == "0");
        wheel.order(&format!("fill {offset} {size} {}", seed + 50));
        let mut got = vec![0; size];
        ours.transfer_sync(&[read(&peer, remote, &mut got)], ours.now() + PATIENCE).into_result().unwrap();
        assert!(got == script_pattern(size, seed + 50), "read {size}");
    }
    let sent: Vec<Vec<u8>> = (0..200).map(|i| pattern(1000 + i, i as u64)).collect();
    let place = |i: usize| wheel.address + 4096 * i as u64;
    let writes: Vec<_> = sent.iter().enumerate().map(|(i, bytes)| write(&peer, place(i), bytes)).collect();
    assert!(ours.transfer_sync(&writes, ours.now() + PATIENCE).is_ok());
    let mut got: Vec<Vec<u8>> = sent.iter().map(|bytes| vec![0; bytes.len()]).collect();
    let reads: Vec<_> = got.iter_mut().enumerate().map(|(i, bytes)| read(&peer, place(i), bytes)).collect();
    assert!(ours.transfer_sync(&reads, ours.now() + PATIENCE).is_ok());
    drop(reads);
    assert!(got == sent);
    assert_eq!(ours.stats().shm_fallbacks, 0, "an engine that offers no shared memory is no failure");
    ours.notify(&peer, &Notification { name: "a".to_owned(), message: "b".to_owned() }, ours.now() + PATIENCE).unwrap();
    assert_eq!(wheel.order("notifies"), "a=b");
}

#[test]
fn we_read_and_write_the_peers_memory() {
    we_read_and_write_theirs(&[], offering());
}

#[test]
fn we_read_and_write_the_peers_memory_in_version_1() {
    we_read_and_write_theirs(&[], EngineSettings { version_1_only: true, ..offering() });
}

#[test]
fn the_peer_speaks_version_1_to_us() {
    let Some(mut wheel) = Wheel::start(&[("MC_TCP_PROTO", "1"), ("MC_TCP_ENABLE_CONNECTION_POOL", "0")]) else {
        return;
    };
    let ours = engine(offering());
    let memory = memory(&ours, 2 << 20);
    let endpoint = ours.endpoint().unwrap().to_owned();
    let remote = memory.address() + 5;
    assert_eq!(wheel.order(&format!("write {endpoint} {remote} 0 1048577 9")), "0");
    eventually("the bytes arrive", || content(&memory, 5, 1_048_577) == script_pattern(1_048_577, 9));
    assert_eq!(wheel.order(&format!("read {endpoint} {remote} 0 1048577 9")), "0");
}

#[test]
fn the_peer_refuses_what_it_did_not_register() {
    let Some(wheel) = Wheel::start(&[]) else { return };
    let ours = engine(offering());
    let peer = ours.open_segment(&wheel.endpoint).unwrap();
    let (mut first, mut second) = ([1; 64], [1; 64]);
    let requests = [read(&peer, 64, &mut first), read(&peer, wheel.address, &mut second)];
    let outcome = ours.transfer_sync(&requests, ours.now() + PATIENCE);
    assert_eq!(outcome.results()[0].as_ref().unwrap_err().kind(), TransferErrorKind::RemoteRefused);
    assert!(outcome.results()[1].is_ok());
}

#[test]
fn a_peer_that_is_gone_is_unreachable_at_once() {
    let Some(mut wheel) = Wheel::start(&[]) else { return };
    let ours = engine(offering());
    let peer = ours.open_segment(&wheel.endpoint).unwrap();
    let mut got = [0; 64];
    ours.transfer_sync(&[read(&peer, wheel.address, &mut got)], ours.now() + PATIENCE).into_result().unwrap();
    wheel.process.kill().unwrap();
    wheel.process.wait().unwrap();
    let outcome = ours.transfer_sync(&[read(&peer, wheel.address, &mut got)], ours.now() + PATIENCE);
    assert_eq!(outcome.into_result().unwrap_err().kind(), TransferErrorKind::Unreachable);
}

#[test]
fn an_earlier_version_of_the_peer_and_ours_read_and_write_each_other() {
    let Some(mut wheel) = Wheel::of_version("v0.3.12", &[]) else { return };
    let ours = engine(offering());
    let memory = memory(&ours, 2 << 20);
    let endpoint = ours.endpoint().unwrap().to_owned();
    let peer = ours.open_segment(&wheel.endpoint).unwrap();
    for (seed, (size, offset)) in [(1, 0), (65_537, 4095), (1 << 20, 1)].into_iter().enumerate() {
        let target = format!("{endpoint} {} {offset} {size}", memory.address() + offset);
        assert_eq!(wheel.order(&format!("write {target} {seed}")), "0");
        assert!(content(&memory, offset as usize, size) == script_pattern(size, seed), "written {size}");
        assert_eq!(wheel.order(&format!("read {target} {seed}")), "0", "read {size}");
        let (remote, sent) = (wheel.address + offset, script_pattern(size, seed + 50));
        ours.transfer_sync(&[write(&peer, remote, &sent)], ours.now() + PATIENCE).into_result().unwrap();
        assert_eq!(wheel.order(&format!("check {offset} {size} {}", seed + 50)), "0");
        let mut got = vec![0; size];
        ours.transfer_sync(&[read(&peer, remote, &mut got)], ours.now() + PATIENCE).into_result().unwrap();
        assert!(got == sent, "read {size}");
    }
    ours.probe(&peer, ours.now() + PATIENCE).unwrap();
    assert_eq!(wheel.order(&format!("probe {endpoint}")), "0");
    assert!(peer.path().contains("version 2"), "{}", peer.path());
}
