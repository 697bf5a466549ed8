//! Two engines over TCP.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::mute::Mute;
use common::*;
use yb_transfer::{Access, BatchStatus, CancelToken, EngineSettings, LocalBuffer, Opcode, Request, TransferErrorKind};
use yb_types::SegmentAddress;

#[test]
fn every_size_arrives_both_ways_aligned_or_not() {
    let (a, b) = (engine(tcp_settings()), engine(tcp_settings()));
    let memory = memory(&b, 65 << 20);
    let peer = open(&a, &b);
    for (size, offset) in [(1, 0), (7, 3), (4096, 1), (65_536, 4095), (1 << 20, 0), ((1 << 20) + 1, 77), (64 << 20, 5)]
    {
        let sent = pattern(size, size as u64);
        let remote = memory.address() + offset;
        a.transfer_sync(&[write(&peer, remote, &sent)], a.now() + PATIENCE).into_result().unwrap();
        assert!(content(&memory, offset as usize, size) == sent, "write of {size}");
        let mut got = vec![0; size];
        a.transfer_sync(&[read(&peer, remote, &mut got)], a.now() + PATIENCE).into_result().unwrap();
        assert!(got == sent, "read of {size}");
    }
    let stats = a.stats();
    assert_eq!((stats.tcp.requests, stats.tcp.failures, stats.local.requests), (14, 0, 0));
    assert_eq!(stats.tcp.written_bytes, b.stats().served.written_bytes);
    assert_eq!(stats.tcp.read_bytes, b.stats().served.read_bytes);
}

#[test]
fn many_small_requests_share_a_connection_and_each_has_its_outcome() {
    let (a, b) = (engine(tcp_settings()), engine(tcp_settings()));
    let memory = memory(&b, 1 << 20);
    let peer = open(&a, &b);
    let sent: Vec<Vec<u8>> = (0..500).map(|i| pattern(100 + i * 3, i as u64)).collect();
    let mut got: Vec<Vec<u8>> = sent.iter().map(|bytes| vec![0; bytes.len()]).collect();
    let place = |i: usize| memory.address() + i as u64 * 2000;
    let mut requests: Vec<Request<'_>> =
        sent.iter().enumerate().map(|(i, bytes)| write(&peer, place(i), bytes)).collect();
    // Every read follows the write of its range, so it must show what was written.
    requests.extend(got.iter_mut().enumerate().map(|(i, bytes)| read(&peer, place(i), bytes)));
    let outcome = a.transfer_sync(&requests, a.now() + PATIENCE);
    drop(requests);
    assert!(outcome.is_ok());
    assert!(got == sent);
    assert_eq!(b.stats().data_connections, 1);
}

#[test]
fn a_refused_range_fails_alone() {
    let (a, b) = (engine(tcp_settings()), engine(tcp_settings()));
    let memory = memory(&b, 4096);
    let peer = open(&a, &b);
    let (base, end) = (memory.address(), memory.address() + 4096);
    let bytes = pattern(64, 1);
    let big = pattern(3 << 20, 2);
    let mut got = vec![0; 64];
    let outcome = a.transfer_sync(
        &[
            write(&peer, base, &bytes),
            write(&peer, end - 63, &bytes),
            write(&peer, base, &big),
            write(&peer, 16, &bytes),
            read(&peer, base, &mut got),
        ],
        a.now() + PATIENCE,
    );
    let kinds: Vec<Option<TransferErrorKind>> =
        outcome.results().iter().map(|result| result.as_ref().err().map(yb_transfer::TransferError::kind)).collect();
    let refused = Some(TransferErrorKind::RemoteRefused);
    assert_eq!(kinds, [None, refused, refused, refused, None]);
    assert_eq!(outcome.results()[1].as_ref().unwrap_err().code(), -3);
    assert_eq!(got, bytes);
}

#[test]
fn several_peers_are_driven_at_once() {
    let a = engine(tcp_settings());
    let peers: Vec<_> = (0..3).map(|_| engine(tcp_settings())).collect();
    let memories: Vec<_> = peers.iter().map(|peer| memory(peer, 1 << 20)).collect();
    let handles: Vec<_> = peers.iter().map(|peer| open(&a, peer)).collect();
    let sent: Vec<Vec<u8>> = (0..9).map(|i| pattern(100_000, i)).collect();
    let requests: Vec<Request<'_>> = (0..9)
        .map(|i| write(&handles[i % 3], memories[i % 3].address() + (i / 3 * 200_000) as u64, &sent[i]))
        .collect();
    assert!(a.transfer_sync(&requests, a.now() + PATIENCE).is_ok());
    for i in 0..9 {
        assert!(content(&memories[i % 3], i / 3 * 200_000, 100_000) == sent[i]);
    }
}

#[test]
fn local_only_and_unregistered_memory_is_not_served() {
    let (a, b) = (engine(tcp_settings()), engine(tcp_settings()));
    let local = b.allocate(4096, yb_transfer::SegmentOptions::default(), Access::Local).unwrap();
    let remote = memory(&b, 4096);
    let peer = open(&a, &b);
    let mut got = [0; 8];
    let kind = |outcome: yb_transfer::BatchOutcome| outcome.into_result().map_err(|error| error.kind());
    let refused = Err(TransferErrorKind::RemoteRefused);
    assert_eq!(kind(a.transfer_sync(&[read(&peer, local.address(), &mut got)], a.now() + PATIENCE)), refused);
    assert_eq!(kind(a.transfer_sync(&[read(&peer, remote.address(), &mut got)], a.now() + PATIENCE)), Ok(()));
    b.unregister(remote.address(), PATIENCE).unwrap();
    assert_eq!(kind(a.transfer_sync(&[read(&peer, remote.address(), &mut got)], a.now() + PATIENCE)), refused);
}

#[test]
fn a_peer_that_comes_back_on_another_data_port_is_found_again() {
    let a = engine(tcp_settings());
    let b = engine(tcp_settings());
    let listen = b.endpoint().unwrap().parse().unwrap();
    let old = memory(&b, 4096);
    let peer = open(&a, &b);
    let mut got = [0; 5];
    a.transfer_sync(&[read(&peer, old.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
    drop(b);
    let error = a.transfer_sync(&[read(&peer, old.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::Unreachable, "{error}");
    assert!(error.is_retryable());
    let b = engine(EngineSettings { listen: Some(listen), ..tcp_settings() });
    let new = memory(&b, 4096);
    fill(&new, b"hello");
    a.transfer_sync(&[read(&peer, new.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
    assert_eq!(&got, b"hello");
}

#[test]
fn many_threads_share_a_bounded_number_of_connections() {
    let settings = EngineSettings { max_lanes: 3, ..tcp_settings() };
    let (a, b) = (engine(settings), engine(tcp_settings()));
    let memory = memory(&b, 1 << 20);
    let peer = open(&a, &b);
    std::thread::scope(|scope| {
        for worker in 0..16_u64 {
            let (a, peer, base) = (&a, &peer, memory.address() + worker * 4096);
            scope.spawn(move || {
                for round in 0..50 {
                    let sent = pattern(1000, worker * 1000 + round);
                    let mut got = vec![0; 1000];
                    a.transfer_sync(&[write(peer, base, &sent)], a.now() + PATIENCE).into_result().unwrap();
                    a.transfer_sync(&[read(peer, base, &mut got)], a.now() + PATIENCE).into_result().unwrap();
                    assert!(got == sent);
                }
            });
        }
    });
    let lanes = peer.lanes();
    assert!((1..=3).contains(&lanes.opened), "1600 calls, {lanes:?}");
    assert_eq!((lanes.read_bytes, lanes.written_bytes), (800_000, 800_000));
    assert_eq!((lanes.open, lanes.idle), (lanes.opened, lanes.opened));
}

#[test]
fn peers_that_share_lanes_crosswise_wait_for_nobody() {
    let settings = EngineSettings { max_lanes: 1, ..tcp_settings() };
    let a = engine(settings);
    let peers = [engine(tcp_settings()), engine(tcp_settings())];
    let memories = [memory(&peers[0], 1 << 20), memory(&peers[1], 1 << 20)];
    let handles = [open(&a, &peers[0]), open(&a, &peers[1])];
    std::thread::scope(|scope| {
        for worker in 0..6 {
            let (a, memories, handles) = (&a, &memories, &handles);
            scope.spawn(move || {
                let bytes = pattern(50_000, 1);
                for _ in 0..20 {
                    // Half of the threads ask for the lanes in the other order.
                    let order = if worker % 2 == 0 { [0, 1] } else { [1, 0] };
                    let requests = order.map(|i| write(&handles[i], memories[i].address(), &bytes));
                    a.transfer_sync(&requests, a.now() + PATIENCE).into_result().unwrap();
                }
            });
        }
    });
}

/// Connects to the data port of an engine, whose number only its metadata tells.
fn data_connection(endpoint: &str) -> TcpStream {
    let mut handshake = TcpStream::connect(endpoint).unwrap();
    handshake.write_all(b"\x03\0\0\0\0\0\0\0\x01{}").unwrap();
    let mut reply = Vec::new();
    handshake.read_to_end(&mut reply).unwrap();
    let desc: serde_json::Value = serde_json::from_slice(&reply[9..]).unwrap();
    let port = u16::try_from(desc["tcp_data_port"].as_u64().unwrap()).unwrap();
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

#[test]
fn silence_and_half_a_frame_end_the_connection_and_an_idle_one_stays() {
    let b = engine(tcp_settings());
    let memory = memory(&b, 4096);
    let mut silent: Vec<TcpStream> = (0..50).map(|_| data_connection(b.endpoint().unwrap())).collect();
    let mut half = data_connection(b.endpoint().unwrap());
    half.write_all(&[0; 10]).unwrap();
    let mut idle = data_connection(b.endpoint().unwrap());
    let mut request = [0_u8; 24];
    request[..8].copy_from_slice(&8_u64.to_le_bytes());
    request[8..16].copy_from_slice(&memory.address().to_le_bytes());
    request[16] = 0x80;
    let mut answer = [0_u8; 16];
    idle.write_all(&request).unwrap();
    idle.read_exact(&mut answer).unwrap();
    let clock = yb_env::Clock::real();
    let start = clock.now();
    for stream in silent.iter_mut().chain([&mut half]) {
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0, "the server closes");
    }
    assert!(clock.now().since(start) < PATIENCE, "2 s, and what a busy machine adds");
    assert_eq!(b.stats().refused_connections, 51);
    idle.write_all(&request).unwrap();
    idle.read_exact(&mut answer).unwrap();
    assert_eq!(b.stats().data_connections, 1);
}

#[test]
fn silent_handshakes_hold_up_nobody() {
    let b = engine(EngineSettings { silent_timeout: PATIENCE * 3, ..tcp_settings() });
    let silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(b.endpoint().unwrap()).unwrap()).collect();
    let a = engine(tcp_settings());
    let peer = open(&a, &b);
    a.probe(&peer, a.now() + PATIENCE).unwrap();
    let note = yb_transfer::Notification { name: "n".to_owned(), message: "m".to_owned() };
    a.notify(&peer, &note, a.now() + PATIENCE).unwrap();
    assert_eq!(b.take_notifications(), [note]);
    drop(silent);
}

#[test]
fn a_stalled_peer_ends_at_the_deadline_or_at_once_when_cancelled() {
    let mute = Mute::start();
    let a = engine(tcp_settings());
    let peer = a.open_segment(&mute.endpoint).unwrap();
    let mut got = vec![0; 64 << 20];
    let request = [read(&peer, 4096, &mut got)];
    let before = a.now();
    let outcome = a.transfer_sync(&request, a.now() + Duration::from_millis(200));
    assert_eq!(outcome.into_result().unwrap_err().kind(), TransferErrorKind::TimedOut);
    assert!(a.now().since(before) < PATIENCE);
    let cancel = CancelToken::new();
    std::thread::scope(|scope| {
        let call = scope.spawn(|| a.transfer_until(&request, a.now() + PATIENCE, &cancel));
        cancel.cancel();
        assert_eq!(call.join().unwrap().into_result().unwrap_err().kind(), TransferErrorKind::Cancelled);
    });
}

#[test]
fn a_peer_that_says_nothing_leaves_time_for_the_others_of_its_batch() {
    let (a, b) = (engine(tcp_settings()), engine(tcp_settings()));
    let region = memory(&b, 4096);
    fill(&region, &pattern(4096, 3));
    // It accepts, as a stopped process does, and never answers.
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = a.open_segment(&mute.local_addr().unwrap().to_string()).unwrap();
    let healthy = open(&a, &b);
    let is_served = |time: Duration| {
        let (mut lost, mut got) = (vec![0; 64], vec![0; 4096]);
        let requests = [read(&mute, region.address(), &mut lost), read(&healthy, region.address(), &mut got)];
        let outcome = a.transfer_sync(&requests, a.now() + time);
        drop(requests);
        assert!(outcome.results()[0].is_err());
        outcome.results()[1].is_ok() && got == pattern(4096, 3)
    };
    // The share of the time that is left must be enough for a busy machine.
    assert!([600, 2_000, 8_000].map(Duration::from_millis).into_iter().any(is_served), "no time was left");
}

#[test]
fn submitted_batches_run_end_and_are_forgotten() {
    let (a, b) = (engine(tcp_settings()), engine(tcp_settings()));
    let (ours, theirs) = (memory(&a, 8 << 20), memory(&b, 8 << 20));
    let bytes = pattern(8 << 20, 3);
    fill(&theirs, &bytes);
    let peer = open(&a, &b);
    let request = |i: u64| {
        let local: LocalBuffer<'static> = a.local(ours.address() + (i << 20), 1 << 20).unwrap();
        let remote = SegmentAddress(theirs.address() + (i << 20));
        Request::new(Opcode::Read, local, peer.clone(), remote)
    };
    let ids: Vec<_> = (0..8).map(|i| a.submit(vec![request(i)], a.now() + PATIENCE).unwrap()).collect();
    for id in &ids {
        let BatchStatus::Done(outcome) = a.wait(*id, a.now() + PATIENCE).unwrap() else { panic!("not done") };
        assert!(outcome.is_ok());
        a.release(*id).unwrap();
        assert!(a.status(*id).is_err());
    }
    assert!(content(&ours, 0, 8 << 20) == bytes);
    a.unregister(ours.address(), Duration::ZERO).unwrap();
}

#[test]
fn unregistering_ends_the_writes_that_are_in_the_middle() {
    let b = engine(tcp_settings());
    let memory = memory(&b, 1 << 20);
    let mut stream = data_connection(b.endpoint().unwrap());
    let mut header = [0_u8; 24];
    header[..8].copy_from_slice(&(1_u64 << 20).to_le_bytes());
    header[8..16].copy_from_slice(&memory.address().to_le_bytes());
    header[16] = 0x81;
    assert!(b.is_quiesced(memory.address(), memory.len(), None));
    stream.write_all(&header).unwrap();
    stream.write_all(&[7; 1000]).unwrap();
    eventually("the write is open", || !b.is_quiesced(memory.address(), 1, None));
    eventually("other ranges are quiet", || b.is_quiesced(memory.address() + memory.len(), 10, None));
    eventually("the bytes arrive", || content(&memory, 999, 1) == [7]);
    b.unregister(memory.address(), Duration::from_secs(5)).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    assert!(b.is_quiesced(memory.address(), memory.len(), None));
}

#[test]
fn writes_under_way_are_ended_and_idle_connections_stay() {
    let b = engine(tcp_settings());
    let a = engine(tcp_settings());
    let memory = memory(&b, 1 << 20);
    let peer = open(&a, &b);
    let mut got = [0; 8];
    a.transfer_sync(&[read(&peer, memory.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
    let mut stuck = data_connection(b.endpoint().unwrap());
    let mut header = [0_u8; 24];
    header[..8].copy_from_slice(&(1_u64 << 20).to_le_bytes());
    header[8..16].copy_from_slice(&memory.address().to_le_bytes());
    header[16] = 0x81;
    stuck.write_all(&header).unwrap();
    stuck.write_all(&[7; 1000]).unwrap();
    eventually("the write is open", || !b.is_quiesced(memory.address(), 1, None));
    b.end_writes();
    assert_eq!(stuck.read(&mut [0; 8]).unwrap_or(0), 0);
    eventually("nothing writes", || b.is_quiesced(memory.address(), memory.len(), None));
    assert_eq!(b.stats().data_connections, 1);
    a.transfer_sync(&[read(&peer, memory.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
    assert_eq!(b.stats().data_connections, 1, "over the same connection");
}

#[test]
fn a_write_behind_a_long_read_is_not_left_lying() {
    let b = engine(tcp_settings());
    let memory = memory(&b, 8 << 20);
    let header = |size: u64, offset: u64, op: u8| {
        let mut bytes = [0_u8; 24];
        bytes[..8].copy_from_slice(&size.to_le_bytes());
        bytes[8..16].copy_from_slice(&(memory.address() + offset).to_le_bytes());
        bytes[16] = op;
        bytes
    };
    // Whether the read ends just when the session has had its turn is chance: about once in five.
    for round in 0..40_u64 {
        let size = (4 << 20) + ((round % 3) << 20);
        let mut stream = data_connection(b.endpoint().unwrap());
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let both = [&header(size, 0, 0x80)[..], &header(8, 7 << 20, 0x81)[..], &round.to_le_bytes()[..]].concat();
        stream.write_all(&both).unwrap();
        let mut answer = vec![0; 8 + size as usize + 8];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(content(&memory, 7 << 20, 8), round.to_le_bytes());
    }
}

#[test]
fn garbage_harms_nobody() {
    let (a, b) = (engine(tcp_settings()), engine(tcp_settings()));
    let memory = memory(&b, 4096);
    let before = pattern(4096, 8);
    fill(&memory, &before);
    let peer = open(&a, &b);
    for seed in 0..60_u64 {
        let mut bytes = pattern(400, seed);
        if seed % 3 == 0 {
            // A sound header with a length that wraps around, or reaches far outside.
            let size = if seed % 2 == 0 { u64::MAX - 5 } else { 4 << 30 };
            bytes[..8].copy_from_slice(&size.to_le_bytes());
            bytes[8..16].copy_from_slice(&memory.address().to_le_bytes());
            bytes[16] = 0x81;
        }
        let ports = [data_connection(b.endpoint().unwrap()), TcpStream::connect(b.endpoint().unwrap()).unwrap()];
        for mut stream in ports {
            let _ = stream.write_all(&bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut sink = Vec::new();
            let _ = stream.read_to_end(&mut sink);
        }
    }
    let mut got = vec![0; 4096];
    a.transfer_sync(&[read(&peer, memory.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
    assert!(got == before, "nothing was written");
}

#[test]
fn connections_above_the_limit_are_closed_and_the_others_stay() {
    let b = engine(EngineSettings { max_data_connections: 3, silent_timeout: PATIENCE, ..tcp_settings() });
    let a = engine(tcp_settings());
    let memory = memory(&b, 4096);
    let peer = open(&a, &b);
    let mut got = [0; 8];
    let mut one = || a.transfer_sync(&[read(&peer, memory.address(), &mut got)], a.now() + PATIENCE).into_result();
    one().unwrap();
    let mut held: Vec<TcpStream> = (0..2).map(|_| data_connection(b.endpoint().unwrap())).collect();
    eventually("all places are taken", || b.stats().data_connections == 3);
    let mut surplus = data_connection(b.endpoint().unwrap());
    assert_eq!(surplus.read(&mut [0; 8]).unwrap_or(0), 0);
    assert_eq!(b.stats().refused_connections, 1);
    one().unwrap();
    held.clear();
    eventually("places are free again", || b.stats().data_connections == 1);
}

#[test]
fn a_submitted_batch_is_cancelled_and_its_memory_is_free_then() {
    let mute = Mute::start();
    let a = engine(tcp_settings());
    let peer = a.open_segment(&mute.endpoint).unwrap();
    let ours = memory(&a, 1 << 20);
    let request = || {
        let local = a.local(ours.address(), 1 << 20).unwrap();
        Request::new(Opcode::Read, local, peer.clone(), SegmentAddress(4096))
    };
    let id = a.submit(vec![request()], a.now() + PATIENCE).unwrap();
    assert_eq!(a.wait(id, a.now() + Duration::from_millis(50)).unwrap(), BatchStatus::Waiting);
    assert!(a.release(id).is_err());
    a.cancel(id).unwrap();
    let BatchStatus::Done(outcome) = a.wait(id, a.now() + PATIENCE).unwrap() else { panic!("not cancelled") };
    assert_eq!(outcome.into_result().unwrap_err().kind(), TransferErrorKind::Cancelled);
    a.release(id).unwrap();
    let left = a.submit(vec![request()], a.now() + PATIENCE).unwrap();
    a.shutdown();
    assert!(matches!(a.status(left), Ok(BatchStatus::Done(_))), "a shutdown ends every batch");
    a.unregister(ours.address(), Duration::ZERO).unwrap();
}

#[test]
fn version_6_addresses_work() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        eprintln!("skipped: this machine has no IPv6 loopback");
        return;
    }
    let b = engine(EngineSettings { listen: Some("[::1]:0".parse().unwrap()), ..tcp_settings() });
    assert!(b.endpoint().unwrap().starts_with("[::1]:"));
    let a = engine(tcp_settings());
    let memory = memory(&b, 4096);
    fill(&memory, b"six");
    let mut got = [0; 3];
    a.transfer_sync(&[read(&open(&a, &b), memory.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
    assert_eq!(&got, b"six");
}

#[test]
fn any_address_needs_a_host_to_advertise() {
    let any = EngineSettings { listen: Some("0.0.0.0:0".parse().unwrap()), ..tcp_settings() };
    assert!(yb_transfer::Engine::builder().settings(any.clone()).build().is_err());
    let told = engine(EngineSettings { advertise_host: Some("127.0.0.1".to_owned()), ..any });
    let a = engine(tcp_settings());
    a.probe(&open(&a, &told), a.now() + PATIENCE).unwrap();
}

#[test]
fn connections_to_peers_that_are_not_used_any_more_are_closed() {
    let clock = yb_env::Clock::manual();
    let a = yb_transfer::Engine::builder().settings(tcp_settings()).clock(clock.clone()).build().unwrap();
    let (b, c) = (engine(tcp_settings()), engine(tcp_settings()));
    let memory = memory(&b, 4096);
    let mut got = [0; 8];
    a.transfer_sync(&[read(&open(&a, &b), memory.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
    assert_eq!(b.stats().data_connections, 1);
    clock.advance(EngineSettings::default().idle_lane_timeout);
    let _ = open(&a, &c);
    eventually("the idle connection is closed", || b.stats().data_connections == 0);
}
