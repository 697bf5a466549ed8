//! What every backend promises, over real sockets.

#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::io::{Read, Write};
use std::time::Duration;

use common::*;
use proptest::prelude::*;
use yb_rpc::{ServerLimits, ServerSettings};

fn patient() -> ServerLimits {
    ServerLimits { stalled_frame_timeout: PATIENCE * 2, ..ServerLimits::default() }
}

/// What stands still is closed soon.
fn quick() -> ServerLimits {
    ServerLimits { stalled_frame_timeout: Duration::from_millis(200), ..ServerLimits::default() }
}

/// On servers that wait for a test that does not get its turn.
fn on_each_backend(test: impl Fn(Harness)) {
    on_each_with(patient(), test);
}

fn on_each_with(limits: ServerLimits, test: impl Fn(Harness)) {
    for backend in backends() {
        test(start(backend, limits.clone()));
    }
}

/// The stream ends within `limit`, without a further byte.
fn closed_within(stream: &mut std::net::TcpStream, limit: Duration) -> bool {
    stream.set_read_timeout(Some(limit)).unwrap();
    match stream.read(&mut [0; 64]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    on_each_backend(|harness| {
        let mut stream = harness.connect();
        let burst: Vec<u8> = (0..500u32).flat_map(|n| frame(ECHO, n, &n.to_le_bytes())).collect();
        stream.write_all(&burst).unwrap();
        for n in 0..500u32 {
            assert_eq!(read_reply(&mut stream), Some(Answer { error: 0, sequence: n, body: n.to_le_bytes().to_vec() }));
        }
        harness.until("requests are counted", |c| c.requests == 500);
        let counters = harness.server.counters().snapshot();
        assert_eq!(counters.bytes_received, 500 * 24);
        assert_eq!(counters.bytes_sent, 500 * 20);
    });
}

#[test]
fn requests_that_came_together_are_shown_ahead() {
    on_each_backend(|harness| {
        let mut stream = harness.connect();
        echo(&mut stream, 0, b"alone");
        let burst: Vec<u8> = (0..40).flat_map(|n| frame(ECHO, n, b"x")).chain(frame(FORESEEN, 40, b"")).collect();
        stream.write_all(&burst).unwrap();
        let last = (0..41).map(|_| read_reply(&mut stream).unwrap()).last().unwrap();
        // A burst may be read in two parts, and a part of one request is not shown.
        let foreseen = usize::from_le_bytes(last.body.try_into().unwrap());
        assert!((38..=41).contains(&foreseen), "{foreseen}");
    });
}

#[test]
fn frames_split_into_single_bytes_are_whole_again() {
    on_each_backend(|harness| {
        let mut stream = harness.connect();
        for byte in frame(ECHO, 9, b"split") {
            stream.write_all(&[byte]).unwrap();
        }
        assert_eq!(read_reply(&mut stream), Some(Answer { error: 0, sequence: 9, body: b"split".to_vec() }));
    });
}

#[test]
fn large_bodies_pass_both_ways() {
    on_each_with(ServerLimits::default(), |harness| {
        let mut stream = harness.connect();
        let body: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        let mut writer = stream.try_clone().unwrap();
        let request = frame(ECHO, 1, &body);
        std::thread::scope(|scope| {
            scope.spawn(move || writer.write_all(&request).unwrap());
            assert_eq!(read_reply(&mut stream).unwrap().body, body);
        });
    });
}

#[test]
fn attachments_are_read_and_passed_over() {
    on_each_backend(|harness| {
        let mut stream = harness.connect();
        let mut request = frame(ECHO, 3, b"body");
        request[16..20].copy_from_slice(&5u32.to_le_bytes());
        request.extend_from_slice(b"extra");
        request.extend_from_slice(&frame(ECHO, 4, b"next"));
        stream.write_all(&request).unwrap();
        assert_eq!(read_reply(&mut stream).unwrap().body, b"body");
        assert_eq!(read_reply(&mut stream).unwrap().body, b"next");
    });
}

#[test]
fn deferred_replies_may_overtake_and_come_from_any_thread() {
    on_each_backend(|harness| {
        let mut stream = harness.connect();
        let requests = [frame(LATER, 1, b""), frame(LATER, 2, b""), frame(ECHO, 3, b"now")].concat();
        stream.write_all(&requests).unwrap();
        assert_eq!(read_reply(&mut stream).unwrap().sequence, 3);
        let (first, second) = (harness.token(), harness.token());
        second.send(|body| body.extend_from_slice(b"two"));
        assert_eq!(read_reply(&mut stream), Some(Answer { error: 0, sequence: 2, body: b"two".to_vec() }));
        std::thread::scope(|scope| {
            scope.spawn(|| first.send(|body| body.extend_from_slice(b"one")));
        });
        assert_eq!(read_reply(&mut stream), Some(Answer { error: 0, sequence: 1, body: b"one".to_vec() }));
    });
}

#[test]
fn a_deferred_reply_to_a_lost_connection_vanishes() {
    on_each_backend(|harness| {
        let mut lost = harness.connect();
        lost.write_all(&frame(LATER, 1, b"")).unwrap();
        let token = harness.token();
        drop(lost);
        // The half-closed connection lives until its deferred call is answered.
        token.send(|body| body.extend_from_slice(b"nobody"));
        harness.until("the connection is closed", |c| c.connections_closed == 1);
        let mut next = harness.connect();
        echo(&mut next, 1, b"slot reused");
    });
}

#[test]
fn long_work_for_a_connection_that_is_gone_may_stop() {
    on_each_backend(|harness| {
        let mut stream = harness.connect();
        let requests = [frame(LATER, 1, b""), frame(LATER, 2, b"")].concat();
        stream.write_all(&requests).unwrap();
        let (first, second) = (harness.token(), harness.token());
        assert!(first.is_wanted() && second.is_wanted());
        stream.write_all(&[0xff; 64]).unwrap();
        harness.until("the connection is closed", |c| c.connections_closed == 1);
        assert!(!first.is_wanted());
        first.send(|body| body.extend_from_slice(b"nobody"));
        assert!(!second.is_wanted());
        drop(second);
        let mut next = harness.connect();
        next.write_all(&frame(LATER, 3, b"")).unwrap();
        assert!(harness.token().is_wanted(), "another connection in its place");
    });
}

#[test]
fn a_half_closed_connection_still_gets_its_deferred_reply() {
    on_each_backend(|harness| {
        let mut stream = harness.connect();
        stream.write_all(&frame(LATER, 1, b"")).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        harness.token().send(|body| body.extend_from_slice(b"late"));
        assert_eq!(read_reply(&mut stream).unwrap().body, b"late");
        assert_eq!(read_reply(&mut stream), None);
    });
}

#[test]
fn failures_of_handlers_are_answered_and_the_connection_stays() {
    on_each_backend(|harness| {
        let mut stream = harness.connect();
        for (function, error) in [(BAD_ARGUMENTS, 4), (PANIC, 10), (FAILED, 10), (999, 11)] {
            stream.write_all(&frame(function, function, b"x")).unwrap();
            let reply = read_reply(&mut stream).unwrap();
            assert_eq!((reply.error, reply.sequence), (error, function));
        }
        stream.write_all(&frame(DROPPED, 6, b"")).unwrap();
        assert_eq!(read_reply(&mut stream).unwrap().error, 10);
        echo(&mut stream, 7, b"still here");
        let counters = harness.server.counters().snapshot();
        assert_eq!((counters.unknown_functions, counters.bad_arguments, counters.failed_handlers), (1, 1, 3));
        assert_eq!(counters.connections_closed, 0);
    });
}

#[test]
fn http_and_noise_are_closed_with_a_counter() {
    on_each_backend(|harness| {
        let mut stream = harness.connect();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(closed_within(&mut stream, PATIENCE));
        for header in [[21, 1, 0], [21, 0, 9]] {
            let mut stream = harness.connect();
            stream.write_all(&header).unwrap();
            assert!(closed_within(&mut stream, PATIENCE));
        }
        harness.until("counters", |c| c.closed_bad_magic == 1 && c.closed_bad_header == 2);
    });
}

#[test]
fn replies_before_the_bad_byte_are_still_sent() {
    on_each_backend(|harness| {
        let mut stream = harness.connect();
        stream.write_all(&[frame(ECHO, 1, b"good"), vec![99]].concat()).unwrap();
        assert_eq!(read_reply(&mut stream).unwrap().body, b"good");
        assert_eq!(read_reply(&mut stream), None);
    });
}

#[test]
fn a_length_beyond_the_limit_closes_at_once() {
    on_each_backend(|harness| {
        for field in [12, 16] {
            let mut request = frame(ECHO, 1, b"");
            request[field..field + 4].copy_from_slice(&u32::MAX.to_le_bytes());
            let mut stream = harness.connect();
            stream.write_all(&request).unwrap();
            assert!(closed_within(&mut stream, PATIENCE));
        }
        harness.until("counter", |c| c.closed_too_large == 2);
    });
}

#[test]
fn silent_and_stuck_connections_are_closed_and_nobody_else_notices() {
    for backend in backends() {
        let harness = start(backend, ServerLimits::default());
        let mut good = harness.connect();
        echo(&mut good, 0, b"hello");
        // A test that is slow finds the first ones closed already.
        let send = |stream: &mut std::net::TcpStream, bytes: &[u8]| drop(stream.write_all(bytes));
        let mut bad: Vec<_> = (0..1000).map(|_| harness.connect()).collect();
        for (index, stream) in bad.iter_mut().enumerate() {
            match index % 4 {
                0 => {}
                1 => send(stream, &frame(ECHO, 1, b"")[..7]),
                2 => send(stream, &[frame(ECHO, 1, b"ok"), frame(ECHO, 2, b"cut")[..21].to_vec()].concat()),
                _ => send(stream, &frame(BIG, 2, &[0; 4])[..20]),
            }
        }
        for sequence in 1..200 {
            echo(&mut good, sequence, b"unaffected");
        }
        harness.until("all bad ones are closed", |c| c.closed_stalled == 1000);
        echo(&mut good, 1000, b"idle after a whole request stays");
    }
}

#[test]
fn an_idle_connection_stays_after_a_whole_request() {
    on_each_with(quick(), |harness| {
        let mut stream = harness.connect();
        echo(&mut stream, 1, b"first");
        let mut stuck = harness.connect();
        stuck.write_all(&[21]).unwrap();
        // The other connection's deadline shows that time enough has passed for this one's.
        assert!(closed_within(&mut stuck, PATIENCE));
        echo(&mut stream, 2, b"second");
    });
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    on_each_with(ServerLimits { max_connections: 3, ..patient() }, |harness| {
        let mut kept: Vec<_> = (0..3).map(|_| harness.connect()).collect();
        kept.iter_mut().for_each(|stream| echo(stream, 0, b"in"));
        let mut refused = harness.connect();
        assert!(closed_within(&mut refused, PATIENCE));
        harness.until("refused is counted", |c| c.connections_refused == 1);
        kept.pop();
        harness.until("one left", |c| c.connections_closed == 1);
        let mut third = harness.connect();
        echo(&mut third, 0, b"room again");
        harness.server.connection_limit().set(4);
        let mut fourth = harness.connect();
        echo(&mut fourth, 0, b"more room");
        harness.server.connection_limit().set(1);
        assert!(closed_within(&mut harness.connect(), PATIENCE));
        echo(&mut fourth, 1, b"those that are open stay");
    });
}

#[test]
fn a_peer_that_does_not_read_is_held_back_and_catches_up() {
    let limits = ServerLimits { max_unsent_bytes: 256 << 10, ..patient() };
    on_each_with(limits, |harness| {
        let stream = harness.connect();
        let mut writer = stream.try_clone().unwrap();
        let requests = 400u32;
        let body = 100_000u32.to_le_bytes();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for n in 0..requests {
                    writer.write_all(&frame(BIG, n, &body)).unwrap();
                }
            });
            harness.until("held back", |c| c.held_back >= 1);
            let mut other = harness.connect();
            echo(&mut other, 1, b"others go on");
            let answered = harness.server.counters().snapshot().requests;
            assert!(answered < u64::from(requests), "{answered} answered though nobody reads");
            let mut reader = std::io::BufReader::new(stream);
            for n in 0..requests {
                let reply = read_reply(&mut reader).unwrap();
                assert_eq!((reply.sequence, reply.body.len()), (n, 100_000));
            }
        });
    });
}

#[test]
fn a_peer_that_never_reads_is_closed() {
    let limits = ServerLimits { unsent_timeout: Duration::from_millis(300), ..patient() };
    on_each_with(limits, |harness| {
        let mut stream = harness.connect();
        stream.write_all(&frame(BIG, 1, &30_000_000u32.to_le_bytes())).unwrap();
        harness.until("closed as unread", |c| c.closed_unread == 1);
    });
}

#[test]
fn too_many_deferred_calls_hold_the_connection_back() {
    on_each_with(ServerLimits { max_deferred: 2, ..patient() }, |harness| {
        let mut stream = harness.connect();
        let requests: Vec<u8> = (0..3).flat_map(|n| frame(LATER, n, b"")).chain(frame(ECHO, 3, b"last")).collect();
        stream.write_all(&requests).unwrap();
        let (first, second) = (harness.token(), harness.token());
        harness.until("held back", |c| c.held_back == 1);
        assert!(harness.tokens.try_recv().is_err());
        first.send(|_| ());
        assert_eq!(read_reply(&mut stream).unwrap().sequence, 0);
        let third = harness.token();
        second.send(|_| ());
        third.send(|_| ());
        let mut rest: Vec<u32> = (0..3).map(|_| read_reply(&mut stream).unwrap().sequence).collect();
        rest.sort_unstable();
        assert_eq!(rest, [1, 2, 3]);
    });
}

#[test]
fn unfinished_requests_do_not_fill_the_memory() {
    let limits = ServerLimits { max_buffered_bytes: 4 << 20, ..patient() };
    on_each_with(limits, |harness| {
        let start = frame(ECHO, 1, &vec![1; 2 << 20])[..(1 << 20) + 20].to_vec();
        let mut greedy: Vec<_> = (0..8).map(|_| harness.connect()).collect();
        let mut modest: Vec<_> = (0..8).map(|_| harness.connect()).collect();
        for stream in &mut modest {
            stream.write_all(&frame(ECHO, 2, b"modest")[..22]).unwrap();
        }
        for stream in &mut greedy {
            // Those that are closed meanwhile do not take it.
            let _ = stream.write_all(&start);
        }
        harness.until("some gave way", |c| c.closed_crowded >= 3);
        for stream in &mut modest {
            stream.write_all(b"dest").unwrap();
            assert_eq!(read_reply(stream).unwrap().body, b"modest");
        }
        drop(greedy);
        harness.until("the greedy are gone", |c| c.connections_closed == 8);
        let mut alone = harness.connect();
        alone.write_all(&frame(ECHO, 3, &vec![7; 3 << 20])).unwrap();
        assert_eq!(read_reply(&mut alone).unwrap().body.len(), 3 << 20);
    });
}

#[test]
fn unread_replies_do_not_fill_the_memory() {
    let limits = ServerLimits { max_buffered_bytes: 32 << 20, ..ServerLimits::default() };
    on_each_with(limits, |harness| {
        let mut good = harness.connect();
        // A connection that has sent a whole request may be silent for as long as the others take.
        echo(&mut good, 0, b"there");
        let mut greedy: Vec<_> = (0..6).map(|_| harness.connect()).collect();
        for stream in &mut greedy {
            stream.write_all(&frame(BIG, 1, &(30u32 << 20).to_le_bytes())).unwrap();
        }
        harness.until("those that do not read are closed", |c| c.closed_crowded >= 5);
        echo(&mut good, 1, b"unaffected");
        drop(greedy);
        harness.until("the greedy are gone", |c| c.connections_closed == 6);
        echo(&mut good, 2, &[5; 100_000]);
        let mut alone = harness.connect();
        alone.write_all(&frame(BIG, 2, &(30u32 << 20).to_le_bytes())).unwrap();
        assert_eq!(read_reply(&mut alone).unwrap().body.len(), 30 << 20);
    });
}

/// A request that comes while others of the same turn are answered, on a connection that is read later in that turn, must
/// not be answered with the time at which the turn began: its lease would be shorter than its reader thinks.
#[test]
fn a_request_is_not_answered_with_a_time_before_it_was_sent() {
    on_each_backend(|harness| {
        let clock = yb_env::Clock::real();
        let mut slow: Vec<_> = (0..4).map(|_| harness.connect()).collect();
        let mut asking: Vec<_> = (0..4).map(|_| harness.connect()).collect();
        let mut early = 0;
        for round in 0..10 {
            slow.iter_mut().for_each(|stream| stream.write_all(&frame(SLOW, round, &[0; 8192])).unwrap());
            asking.iter_mut().for_each(|stream| stream.write_all(&frame(NOW, 0, b"")).unwrap());
            yb_env::sleep(Duration::from_millis(10));
            let sent = clock.now();
            asking.iter_mut().for_each(|stream| stream.write_all(&frame(NOW, 1, b"")).unwrap());
            let taken_before = |stream: &mut std::net::TcpStream| {
                assert_eq!(read_reply(stream).unwrap().sequence, 0);
                let answer = read_reply(stream).unwrap().body;
                sent.since(yb_types::MonotonicTime(u64::from_le_bytes(answer.try_into().unwrap())))
            };
            let before = asking.iter_mut().map(taken_before).max().unwrap();
            early += u32::from(before >= Duration::from_millis(2));
            slow.iter_mut().for_each(|stream| assert_eq!(read_reply(stream).unwrap().sequence, round));
        }
        // A server that has to pause between looking at the clock and reading may be early now and then.
        assert!(early <= 3, "{early} of 10 rounds were answered with a time before they were sent");
    });
}

#[test]
fn listeners_tell_themselves_apart() {
    on_each_backend(|harness| {
        let second = harness.server.listeners()[1].tcp().unwrap();
        let mut stream = connect(second);
        stream.write_all(&frame(TAG, 1, b"")).unwrap();
        assert_eq!(read_reply(&mut stream).unwrap().body, 12u32.to_le_bytes());
    });
}

#[test]
fn shutdown_closes_connections_and_frees_the_port() {
    for backend in backends() {
        let harness = start(backend, patient());
        let mut stream = harness.connect();
        stream.write_all(&frame(LATER, 1, b"")).unwrap();
        let token = harness.token();
        let address = harness.address;
        harness.server.shutdown();
        token.send(|body| body.push(1));
        assert_eq!(read_reply(&mut stream), None);
        assert!(std::net::TcpStream::connect(address).is_err());
    }
}

#[test]
fn unix_sockets_and_ipv6_are_served() {
    use std::sync::Arc;
    use yb_rpc::{Listener, ListenerTag, Server};
    for backend in backends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rpc.sock");
        // Left over from a process that died.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let toy = start(backend, patient());
        drop(toy.server);
        let (sender, _tokens) = std::sync::mpsc::channel();
        let listeners =
            [Listener::unix(&path, ListenerTag(3)), Listener::tcp("[::]:0".parse().unwrap(), ListenerTag(4))];
        let settings = ServerSettings { backend, ..ServerSettings::default() };
        let server = Server::start(settings, &listeners, Arc::new(Toy::new(sender))).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "its own user's, whatever the umask");
        let mut unix = std::os::unix::net::UnixStream::connect(&path).unwrap();
        unix.write_all(&frame(TAG, 1, b"")).unwrap();
        assert_eq!(read_reply(&mut unix).unwrap().body, 3u32.to_le_bytes());
        let port = server.listeners()[1].tcp().unwrap().port();
        echo(&mut connect(([127, 0, 0, 1], port).into()), 1, b"v4 on a v6 socket");
        server.shutdown();
        assert!(!path.exists());
    }
}

#[test]
fn a_file_that_is_no_socket_is_not_replaced_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("precious");
    std::fs::write(&path, b"bytes").unwrap();
    let (sender, _tokens) = std::sync::mpsc::channel();
    let listeners = [yb_rpc::Listener::unix(&path, yb_rpc::ListenerTag(0))];
    let toy = std::sync::Arc::new(Toy::new(sender));
    assert!(yb_rpc::Server::start(ServerSettings::default(), &listeners, toy).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"bytes");
}

/// One server per backend for all cases of the property.
fn addresses() -> &'static [std::net::SocketAddr] {
    static SERVERS: std::sync::OnceLock<Vec<std::net::SocketAddr>> = std::sync::OnceLock::new();
    SERVERS.get_or_init(|| {
        let start = |backend| {
            let harness = start(backend, ServerLimits::default());
            let address = harness.address;
            // Lives as long as the test process.
            std::mem::forget(harness);
            address
        };
        backends().into_iter().map(start).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_chunking_gives_the_same_replies(
        bodies in prop::collection::vec((0u32..10, prop::collection::vec(any::<u8>(), 4)), 1..20),
        cuts in prop::collection::vec(1usize..60, 1..40),
    ) {
        let functions = [ECHO, BIG, PANIC, BAD_ARGUMENTS, TAG, FAILED, 77];
        let bytes: Vec<u8> = bodies.iter().enumerate().flat_map(|(n, (pick, body))| {
            let function = functions[*pick as usize % functions.len()];
            let body = if function == BIG { vec![body[0], body[1], 0, 0] } else { body.clone() };
            frame(function, n as u32, &body)
        }).collect();
        for address in addresses() {
            let run = |sizes: &[usize]| {
                let mut stream = connect(*address);
                let mut writer = stream.try_clone().unwrap();
                std::thread::scope(|scope| {
                    let bytes = &bytes;
                    scope.spawn(move || {
                        let (mut at, mut turn) = (0, 0);
                        while at < bytes.len() {
                            let end = (at + sizes[turn % sizes.len()]).min(bytes.len());
                            writer.write_all(&bytes[at..end]).unwrap();
                            (at, turn) = (end, turn + 1);
                        }
                    });
                    bodies.iter().map(|_| read_reply(&mut stream).unwrap()).collect::<Vec<_>>()
                })
            };
            prop_assert_eq!(run(&cuts), run(&[usize::MAX >> 1]));
        }
    }
}

#[test]
fn idle_connections_are_closed_when_asked_and_busy_ones_are_not() {
    let limits = ServerLimits { idle_timeout: Some(Duration::from_millis(1500)), ..quick() };
    on_each_with(limits, |harness| {
        let (mut idle, mut busy) = (harness.connect(), harness.connect());
        echo(&mut idle, 0, b"once");
        for at in 0..20 {
            echo(&mut busy, at, b"again and again");
            yb_env::sleep(Duration::from_millis(100));
        }
        assert!(closed_within(&mut idle, PATIENCE));
        echo(&mut busy, 99, b"still here");
        harness.until("it is counted", |c| c.closed_idle == 1);
    });
}
