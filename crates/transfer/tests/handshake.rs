//! Peers that misbehave on the handshake port and on the data port: the engine lives, and others notice nothing.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use yb_transfer::{Engine, Notification};

/// Whatever happens beside it, one exchange of a peer is over by then; waiting for one silent client takes longer.
const BOUND: Duration = Duration::from_secs(2);

fn frame(kind: u8, json: &[u8]) -> Vec<u8> {
    let length = json.len() as u64 + 1;
    [&length.to_le_bytes()[..], &[kind], json].concat()
}

/// Frames that no engine sends.
fn malformed() -> Vec<(&'static str, Vec<u8>)> {
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    vec![
        ("length zero", vec![0; 8]),
        ("4 GiB", [&(4_u64 << 30).to_le_bytes()[..], b"\x01{}"].concat()),
        ("all ones", vec![0xff; 64]),
        ("just above the limit", [&((1_u64 << 20) + 1).to_le_bytes()[..], b"\x01{}"].concat()),
        ("no payload", frame(1, b"")),
        ("no payload of a notification", frame(2, b"")),
        ("an empty list", frame(2, b"[]")),
        ("an empty list as a connection", frame(0, b"[]")),
        ("an empty list in the old form", [&2_u64.to_le_bytes()[..], b"[]"].concat()),
        ("a number", frame(2, b"5")),
        ("null", frame(2, b"null")),
        ("an object as a name", frame(2, b"{\"name\":{}}")),
        ("a list as a message", frame(2, b"{\"name\":\"n\",\"notify_msg\":[1]}")),
        ("half of a document", frame(1, b"{\"a\":")),
        ("text that is not UTF-8", frame(2, b"{\"name\":\"\xff\xfe\"}")),
        ("brackets without end", frame(0, &deep)),
        ("an unknown type", frame(9, b"{}")),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec()),
        ("wrong types in a connection", frame(0, b"{\"qp_num\":\"x\",\"local_gid\":5,\"local_lid\":{}}")),
    ]
}

/// An exchange with the engine is quick; a busy machine is given more than one try.
fn is_served(a: &Engine, b: &Engine) -> bool {
    let peer = open(a, b);
    is_quick(a, || {
        a.probe(&peer, a.now() + PATIENCE).unwrap();
        let note = Notification { name: "n".to_owned(), message: "m".to_owned() };
        a.notify(&peer, &note, a.now() + PATIENCE).unwrap();
    })
}

fn is_quick(a: &Engine, what: impl Fn()) -> bool {
    (0..5).any(|_| {
        let before = a.now();
        what();
        a.now().since(before) < BOUND
    })
}

#[test]
fn every_malformed_frame_is_answered_or_closed_and_the_next_peer_is_served() {
    let (a, b) = (engine(tcp_settings()), engine(tcp_settings()));
    for (what, bytes) in malformed() {
        let mut stream = TcpStream::connect(b.endpoint().unwrap()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(&bytes);
        let mut reply = Vec::new();
        // It may be reset, because it was closed with bytes unread.
        if let Err(error) = stream.read_to_end(&mut reply) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{what}: not closed in time");
        }
        assert!(is_served(&a, &b), "after {what}");
    }
    assert!(b.take_notifications().iter().all(|note| note.name == "n"), "nothing malformed was kept");
}

#[test]
fn hundreds_of_idle_and_slow_clients_slow_nobody_down() {
    let (a, b) = (engine(tcp_settings()), engine(tcp_settings()));
    let region = memory(&b, 1 << 20);
    let data = format!("127.0.0.1:{}", describe(b.endpoint().unwrap())["tcp_data_port"]);
    let connect = |address: &str| TcpStream::connect(address).unwrap();
    let _idle: Vec<TcpStream> = (0..200).map(|_| connect(b.endpoint().unwrap())).collect();
    let _silent: Vec<TcpStream> = (0..200).map(|_| connect(&data)).collect();
    let mut partial: Vec<TcpStream> = (0..100).map(|_| connect(b.endpoint().unwrap())).collect();
    for stream in &mut partial {
        let _ = stream.write_all(&frame(1, &[b' '; 2000])[..500]);
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // One byte at a time, for as long as the engine lets them; then again.
        for _ in 0..4 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let mut slow: Vec<TcpStream> = (0..20).map(|_| connect(b.endpoint().unwrap())).collect();
                    for byte in frame(1, b"{} ") {
                        for stream in &mut slow {
                            let _ = stream.write_all(&[byte]);
                        }
                        yb_env::sleep(Duration::from_millis(5));
                    }
                }
            });
        }
        let peer = open(&a, &b);
        for round in 0..30 {
            assert!(is_served(&a, &b), "round {round}");
            let sent = pattern(10_000, round);
            let write = || {
                a.transfer_sync(&[write(&peer, region.address(), &sent)], a.now() + PATIENCE).into_result().unwrap();
            };
            assert!(is_quick(&a, write), "round {round}");
        }
        stop.store(true, Ordering::SeqCst);
    });
}

#[test]
fn nonsense_on_the_data_port_is_closed_and_others_are_served() {
    let (a, b) = (engine(tcp_settings()), engine(tcp_settings()));
    let region = memory(&b, 1 << 16);
    let before = pattern(1 << 16, 1);
    fill(&region, &before);
    let data = format!("127.0.0.1:{}", describe(b.endpoint().unwrap())["tcp_data_port"]);
    let header =
        |size: u64, address: u64, op: u8| [&size.to_le_bytes()[..], &address.to_le_bytes(), &[op], &[0; 7]].concat();
    let base = region.address();
    let wrong = [
        header(u64::MAX, base, 0x81),
        header(1, u64::MAX, 0x80),
        header(1 << 16, base + 1, 0x81),
        header(0, base, 0x80),
        header(8, 8, 0x01),
        header(8, base, 0x7d),
        b"GET / HTTP/1.1\r\nHost: somewhere\r\n\r\n".to_vec(),
        vec![0xff; 4096],
    ];
    for bytes in wrong {
        let mut stream = TcpStream::connect(&data).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = stream.write_all(&bytes);
        let mut reply = Vec::new();
        let end = stream.read_to_end(&mut reply);
        assert!(end.is_ok() || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset), "{bytes:?}");
        assert!(reply.is_empty() || reply == [1, 0, 0, 0, 0x56, 0x54, 0x43, 0x4d], "{bytes:?}: {reply:?}");
        assert!(is_served(&a, &b));
    }
    assert!(content(&region, 0, 1 << 16) == before);
}
