//! Engines with a bad network between them, ours and the peer's.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::time::Duration;

use common::proxy::{Between, Fault, Weather};
use common::wheel::{Wheel, script_pattern};
use common::*;
use yb_transfer::{Engine, EngineSettings, MemorySegment, RequestOptions, SegmentHandle, TransferErrorKind};

const SIZE: usize = 1 << 20;
const HEADER: u64 = 24;

/// Time that a test gives a peer in which nothing happens.
const SHORT: Duration = Duration::from_secs(1);
/// A call that ends by `SHORT` is over by then, however busy the machine is.
const SOON: Duration = Duration::from_secs(15);

fn impatient() -> EngineSettings {
    EngineSettings { progress_timeout: SHORT, connect_timeout: SHORT, handshake_timeout: SHORT, ..tcp_settings() }
}

/// Two engines, and the bad network between them.
struct Stage {
    a: Engine,
    b: Engine,
    memory: std::sync::Arc<MemorySegment>,
    between: Between,
    peer: SegmentHandle,
}

/// Where something always moves or ends, so that nobody's patience is needed.
fn stage() -> Stage {
    stage_of(&tcp_settings())
}

/// The owner waits longer than the engine that asks: whose patience ends first is not chance.
fn stage_of(settings: &EngineSettings) -> Stage {
    let owner = EngineSettings { progress_timeout: settings.progress_timeout * 3, ..settings.clone() };
    let (a, b) = (engine(settings.clone()), engine(owner));
    let memory = memory(&b, SIZE as u64);
    let between = Between::start(b.endpoint().unwrap());
    let peer = a.open_segment(&between.endpoint).unwrap();
    Stage { a, b, memory, between, peer }
}

impl Stage {
    fn write(&self, bytes: &[u8]) -> Result<(), TransferErrorKind> {
        let request = [write(&self.peer, self.memory.address(), bytes)];
        let outcome = self.a.transfer_sync(&request, self.a.now() + PATIENCE);
        outcome.into_result().map_err(|error| error.kind())
    }

    fn read(&self, len: usize) -> Result<Vec<u8>, TransferErrorKind> {
        let mut got = vec![0; len];
        let request = [read(&self.peer, self.memory.address(), &mut got)];
        let outcome = self.a.transfer_sync(&request, self.a.now() + PATIENCE);
        drop(request);
        outcome.into_result().map_err(|error| error.kind()).map(|()| got)
    }

    /// Everything works, now that the weather is fair.
    fn works(&self) {
        self.between.data.set(Weather::FAIR);
        self.between.handshake.set(Weather::FAIR);
        let bytes = pattern(SIZE, 77);
        assert_eq!(self.write(&bytes), Ok(()));
        assert!(content(&self.memory, 0, SIZE) == bytes);
        assert_eq!(self.read(SIZE), Ok(bytes));
    }
}

#[test]
fn slow_networks_only_take_longer() {
    let stage = stage();
    for fault in [Fault::Delay(Duration::from_millis(20)), Fault::Throttle(4 << 20)] {
        stage.between.data.cut();
        stage.between.data.set(Weather { to_server: fault, to_client: fault });
        stage.between.handshake.set(Weather { to_server: fault, to_client: fault });
        let bytes = pattern(300_000, 1);
        assert_eq!(stage.write(&bytes), Ok(()), "{fault:?}");
        assert!(content(&stage.memory, 0, bytes.len()) == bytes);
        assert_eq!(stage.read(bytes.len()), Ok(bytes), "{fault:?}");
    }
    assert_eq!(stage.a.stats().tcp.failures, 0);
}

#[test]
fn a_connection_that_was_cut_while_idle_is_replaced_once_and_nobody_notices() {
    let stage = stage();
    for round in 0..3 {
        stage.works();
        assert_eq!(stage.peer.lanes().opened, round + 1);
        stage.between.data.cut();
    }
    assert_eq!(stage.a.stats().tcp.failures, 0);
    // A new connection that breaks is not tried again.
    stage.between.data.set(Weather::to_server(Fault::CutAfter(HEADER + 5)));
    let before = stage.between.data.accepted();
    assert_eq!(stage.write(&[1; 100]), Err(TransferErrorKind::ConnectionLost));
    assert_eq!(stage.between.data.accepted() - before, 1);
    stage.works();
}

#[test]
fn a_cut_anywhere_is_an_error_that_may_be_retried_and_leaves_nothing_open() {
    let stage = stage();
    let bytes = pattern(SIZE, 2);
    let cuts = [0, 1, HEADER - 1, HEADER, HEADER + 1, 100_000, SIZE as u64 + HEADER - 1];
    let to_server = cuts.map(|at| Weather::to_server(Fault::CutAfter(at)));
    let to_client = [0, 1, 7].map(|at| Weather::to_client(Fault::CutAfter(at)));
    for weather in to_server.into_iter().chain(to_client) {
        stage.between.data.set(weather);
        assert_eq!(stage.write(&bytes), Err(TransferErrorKind::ConnectionLost), "{weather:?}");
    }
    for at in [0, 7, 8, 9, SIZE as u64 / 2, SIZE as u64 + 7] {
        stage.between.data.set(Weather::to_client(Fault::CutAfter(at)));
        assert_eq!(stage.read(SIZE), Err(TransferErrorKind::ConnectionLost), "{at}");
    }
    eventually("the server has let go", || {
        stage.b.is_quiesced(stage.memory.address(), SIZE as u64, None) && stage.b.stats().data_connections == 0
    });
    stage.works();
}

#[test]
fn half_open_connections_end_on_both_sides() {
    let stage = stage_of(&impatient());
    let bytes = pattern(SIZE, 3);
    let stalls = [
        Weather::to_server(Fault::Stall(0)),
        Weather::to_server(Fault::Stall(HEADER)),
        Weather::to_server(Fault::Stall(HEADER + 70_000)),
        Weather::to_client(Fault::Stall(0)),
        Weather::to_client(Fault::Stall(4)),
    ];
    for weather in stalls {
        stage.between.data.set(weather);
        let before = stage.a.now();
        assert_eq!(stage.write(&bytes), Err(TransferErrorKind::TimedOut), "{weather:?}");
        let took = stage.a.now().since(before);
        assert!(took < SOON, "{took:?}");
    }
    stage.between.data.set(Weather::to_client(Fault::Stall(100_000)));
    assert_eq!(stage.read(SIZE), Err(TransferErrorKind::TimedOut));
    eventually("the server gives up what stands still", || {
        stage.b.is_quiesced(stage.memory.address(), SIZE as u64, None) && stage.b.stats().data_connections == 0
    });
    stage.works();
}

#[test]
fn a_peer_that_trickles_costs_no_more_than_the_deadline() {
    let stage = stage_of(&impatient());
    stage.works();
    // Something moves all the time, so only the deadline ends it.
    let trickle = Fault::Throttle(64 << 10);
    stage.between.data.cut();
    stage.between.data.set(Weather { to_server: trickle, to_client: trickle });
    let mut got = vec![0; SIZE];
    let request = [read(&stage.peer, stage.memory.address(), &mut got)];
    let before = stage.a.now();
    let outcome = stage.a.transfer_sync(&request, before + SHORT * 2);
    let took = stage.a.now().since(before);
    drop(request);
    assert_eq!(outcome.into_result().map_err(|error| error.kind()), Err(TransferErrorKind::TimedOut));
    assert!(took >= SHORT && took < SOON, "{took:?}");
    // What came late went nowhere: the connection is closed.
    let then = got.clone();
    stage.works();
    assert!(got == then);
}

#[test]
fn a_request_that_can_go_elsewhere_waits_for_as_long_as_it_says_and_for_as_long_as_bytes_come() {
    let stage = stage_of(&impatient());
    stage.works();
    let ask = |patience: Duration| {
        let mut got = vec![0; SIZE];
        let options = RequestOptions { patience: Some(patience), ..RequestOptions::default() };
        let request = [read(&stage.peer, stage.memory.address(), &mut got).with(options)];
        let before = stage.a.now();
        let outcome = stage.a.transfer_sync(&request, before + PATIENCE);
        (outcome.into_result().map_err(|error| error.kind()), stage.a.now().since(before))
    };
    for port in [&stage.between.handshake, &stage.between.data] {
        stage.between.data.cut();
        port.set(Weather { to_server: Fault::Stall(0), to_client: Fault::Stall(0) });
        let is_over_soon = || {
            let (end, took) = ask(SHORT / 8);
            // With the handshake silent, the address that is known is good for the connection.
            if std::ptr::eq(port, &stage.between.data) {
                assert_eq!(end, Err(TransferErrorKind::TimedOut));
            }
            took < SHORT || end.is_ok()
        };
        assert!((0..5).any(|_| is_over_soon()), "it took {SHORT:?} each time");
        port.set(Weather::FAIR);
    }
    stage.between.data.cut();
    stage.between.data.set(Weather::to_client(Fault::Throttle(8 << 20)));
    assert_eq!(ask(SHORT).0, Ok(()), "it is slow, and moves");
}

#[test]
fn a_peer_behind_a_black_hole_costs_the_others_of_a_call_nothing_but_its_deadline() {
    let (stage, other) = (stage_of(&impatient()), engine(tcp_settings()));
    let theirs = memory(&other, 4096);
    let healthy = open(&stage.a, &other);
    for port in [&stage.between.handshake, &stage.between.data] {
        stage.between.data.cut();
        port.set(Weather { to_server: Fault::Stall(0), to_client: Fault::Stall(0) });
        let bytes = [5; 64];
        let requests = [write(&stage.peer, stage.memory.address(), &bytes), write(&healthy, theirs.address(), &bytes)];
        let before = stage.a.now();
        let outcome = stage.a.transfer_sync(&requests, stage.a.now() + PATIENCE);
        assert!(outcome.results()[0].as_ref().is_err_and(yb_transfer::TransferError::is_retryable));
        assert_eq!(outcome.results()[1], Ok(()));
        let took = stage.a.now().since(before);
        assert!(took < SOON, "{took:?}");
        assert_eq!(content(&theirs, 0, 64), bytes);
        port.set(Weather::FAIR);
        eventually("the peer is asked again", || stage.write(&bytes).is_ok());
    }
}

#[test]
fn corrupt_frames_end_the_connection_and_touch_nothing_else() {
    let stage = stage();
    let before = pattern(SIZE, 4);
    fill(&stage.memory, &before);
    let bytes = pattern(1000, 5);
    // Size, address, opcode: the request makes no sense any more.
    for at in [3, 5, 7, 12, 15, 16] {
        stage.between.data.set(Weather::to_server(Fault::Corrupt(at)));
        let kind = stage.write(&bytes).unwrap_err();
        assert!(
            matches!(kind, TransferErrorKind::RemoteRefused | TransferErrorKind::ConnectionLost),
            "byte {at}: {kind:?}"
        );
        assert!(content(&stage.memory, 0, SIZE) == before, "byte {at}: nothing was written");
    }
    // The status frame: the bytes are there, but nobody can say so.
    for at in 4..8 {
        stage.between.data.set(Weather::to_client(Fault::Corrupt(at)));
        assert_eq!(stage.write(&bytes), Err(TransferErrorKind::Protocol), "byte {at}");
        assert_eq!(stage.read(1000), Err(TransferErrorKind::Protocol), "byte {at}");
    }
    stage.between.data.set(Weather::to_client(Fault::Corrupt(0)));
    assert_eq!(stage.write(&bytes), Err(TransferErrorKind::RemoteRefused), "a code of its own");
    // Padding says nothing.
    stage.between.data.set(Weather::to_server(Fault::Corrupt(17)));
    assert_eq!(stage.write(&bytes), Ok(()));
    stage.works();
}

#[test]
fn corrupt_and_cut_handshakes_are_errors() {
    let (b, clock) = (engine(tcp_settings()), yb_env::Clock::real());
    let region = memory(&b, 4096);
    for fault in [Fault::CutAfter(0), Fault::CutAfter(5), Fault::CutAfter(40), Fault::Corrupt(7), Fault::Corrupt(8)] {
        let between = Between::start(b.endpoint().unwrap());
        between.handshake.set(Weather::to_client(fault));
        let a = engine(tcp_settings());
        let peer = a.open_segment(&between.endpoint).unwrap();
        let before = clock.now();
        let outcome = a.transfer_sync(&[write(&peer, region.address(), &[1])], a.now() + PATIENCE);
        let kind = outcome.into_result().unwrap_err().kind();
        assert!(matches!(kind, TransferErrorKind::Unreachable | TransferErrorKind::Protocol), "{fault:?}: {kind:?}");
        assert!(clock.now().since(before) < SOON);
        between.handshake.set(Weather::FAIR);
        eventually("the peer is asked again", || {
            a.transfer_sync(&[write(&peer, region.address(), &[1])], a.now() + PATIENCE).is_ok()
        });
    }
}

#[test]
fn descriptions_of_another_host_or_namespace_lead_over_the_network() {
    let b = engine(EngineSettings { shm: true, ..tcp_settings() });
    let region = memory(&b, 4096);
    fill(&region, b"bytes");
    let change = |key: &'static str, value: serde_json::Value| {
        Between::telling(b.endpoint().unwrap(), move |desc| desc["yuebing"][key] = value.clone())
    };
    let tellers = [
        (change("boot", "00000000-0000-0000-0000-000000000000".into()), "it runs on another host"),
        (change("uid", 4_000_000_000_u32.into()), "it runs under another user"),
        (change("shm", "yuebing-nobody-listens-here".into()), "its socket is not in this network namespace"),
    ];
    for (between, reason) in tellers {
        let a = engine(EngineSettings { shm: true, ..tcp_settings() });
        let peer = a.open_segment(&between.endpoint).unwrap();
        let mut got = [0; 5];
        a.transfer_sync(&[read(&peer, region.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
        assert_eq!(&got, b"bytes");
        assert_eq!((a.stats().shm.requests, a.stats().process_vm.requests, a.stats().tcp.requests), (0, 0, 1));
        assert!(peer.path().contains(reason) && peer.path().starts_with("tcp "), "{}", peer.path());
    }
}

#[test]
fn an_owner_that_says_nothing_on_its_socket_costs_no_more_than_the_call_allows() {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let b = engine(EngineSettings { shm: true, ..tcp_settings() });
    let region = memory(&b, 4096);
    let name = format!("yuebing-test-mute-{}", std::process::id());
    let _mute = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let between = Between::telling(b.endpoint().unwrap(), move |desc| desc["yuebing"]["shm"] = name.clone().into());
    let a = engine(EngineSettings { shm: true, ..tcp_settings() });
    let peer = a.open_segment(&between.endpoint).unwrap();
    let call = |patience| {
        let before = a.now();
        let outcome = a.transfer_sync(&[write(&peer, region.address(), &[7])], before + patience);
        (outcome.into_result().map_err(|error| error.kind()), a.now().since(before))
    };
    let is_over_soon = || {
        let (outcome, took) = call(Duration::from_millis(300));
        assert_eq!(outcome, Err(TransferErrorKind::TimedOut));
        took < Duration::from_millis(1900)
    };
    assert!((0..5).any(|_| is_over_soon()), "it took the two seconds that the socket may take");
    let cancel = yb_transfer::CancelToken::new();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let request = [write(&peer, region.address(), &[7])];
            a.transfer_until(&request, a.now() + PATIENCE, &cancel).into_result().unwrap_err().kind()
        });
        cancel.cancel();
        assert_eq!(waiting.join().unwrap(), TransferErrorKind::Cancelled);
    });
    assert_eq!(call(PATIENCE).0, Ok(()), "then over TCP");
    assert_eq!(a.stats().tcp.requests, 1);
    assert!(peer.path().contains("mapping its memory failed"), "{}", peer.path());
}

#[test]
fn the_peers_engine_behind_a_bad_network() {
    let Some(mut wheel) = Wheel::start(&[]) else { return };
    let between = Between::start(&wheel.endpoint);
    // The peer's process needs its turns.
    let a = engine(EngineSettings { progress_timeout: SHORT * 3, ..tcp_settings() });
    let peer = a.open_segment(&between.endpoint).unwrap();
    let works = |wheel: &mut Wheel, seed: usize| {
        between.data.set(Weather::FAIR);
        let sent = script_pattern(SIZE, seed);
        a.transfer_sync(&[write(&peer, wheel.address, &sent)], a.now() + PATIENCE).into_result().unwrap();
        assert_eq!(wheel.order(&format!("check 0 {SIZE} {seed}")), "0");
        let mut got = vec![0; SIZE];
        a.transfer_sync(&[read(&peer, wheel.address, &mut got)], a.now() + PATIENCE).into_result().unwrap();
        assert!(got == sent);
    };
    works(&mut wheel, 1);
    between.data.cut();
    works(&mut wheel, 2);
    let bad = [
        (Weather::to_server(Fault::CutAfter(HEADER + 1000)), TransferErrorKind::ConnectionLost),
        (Weather::to_client(Fault::CutAfter(3)), TransferErrorKind::ConnectionLost),
        (Weather::to_server(Fault::Stall(HEADER + 1000)), TransferErrorKind::TimedOut),
        (Weather::to_client(Fault::Corrupt(6)), TransferErrorKind::Protocol),
    ];
    for (seed, (weather, kind)) in bad.into_iter().enumerate() {
        between.data.cut();
        // The first call finds the connection closed and makes the new one that the weather is for.
        between.data.set(weather);
        let outcome = a.transfer_sync(&[write(&peer, wheel.address, &[1; 2000])], a.now() + PATIENCE);
        assert_eq!(outcome.into_result().unwrap_err().kind(), kind, "{weather:?}");
        works(&mut wheel, 10 + seed);
    }
    between.data.cut();
    let slow = Fault::Throttle(8 << 20);
    between.data.set(Weather { to_server: slow, to_client: slow });
    let sent = script_pattern(SIZE / 2, 40);
    a.transfer_sync(&[write(&peer, wheel.address, &sent)], a.now() + PATIENCE).into_result().unwrap();
    assert_eq!(wheel.order(&format!("check 0 {} 40", SIZE / 2)), "0");
}

#[test]
fn our_engine_behind_a_bad_network_as_the_peer_sees_it() {
    let env = [("MC_TCP_STATUS_TIMEOUT_SEC", "3"), ("MC_TCP_PROGRESS_TIMEOUT_SEC", "3")];
    let Some(mut wheel) = Wheel::start(&env) else { return };
    let b = engine(impatient());
    let region = memory(&b, SIZE as u64);
    let between = Between::start(b.endpoint().unwrap());
    let target = format!("{} {}", between.endpoint, region.address());
    assert_eq!(wheel.order(&format!("write {target} 0 {SIZE} 1")), "0");
    assert!(content(&region, 0, SIZE) == script_pattern(SIZE, 1));
    let slow = Fault::Throttle(8 << 20);
    between.data.cut();
    between.data.set(Weather { to_server: slow, to_client: slow });
    // The peer does not retry on a connection that was closed while idle.
    wheel.order(&format!("write {target} 0 1000 2"));
    assert_eq!(wheel.order(&format!("write {target} 0 {} 3", SIZE / 2)), "0");
    assert!(content(&region, 0, SIZE / 2) == script_pattern(SIZE / 2, 3));
    for weather in [Weather::to_server(Fault::CutAfter(HEADER + 1000)), Weather::to_server(Fault::Stall(HEADER + 1000))]
    {
        between.data.cut();
        between.data.set(weather);
        assert_ne!(wheel.order(&format!("write {target} 0 {SIZE} 4")), "0", "{weather:?}");
        eventually("our side lets go", || {
            b.is_quiesced(region.address(), SIZE as u64, None) && b.stats().data_connections == 0
        });
    }
    // Past the bad network everything is as before.
    let direct = format!("{} {}", b.endpoint().unwrap(), region.address());
    assert_eq!(wheel.order(&format!("write {direct} 0 {SIZE} 5")), "0");
    assert!(content(&region, 0, SIZE) == script_pattern(SIZE, 5));
}
