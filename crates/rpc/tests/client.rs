//! The client, against the server and against servers that misbehave.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::future::Future;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use common::*;
use yb_env::{Clock, spawn_thread};
use yb_rpc::{
    BackendChoice, ClientPool, ClientSettings, Listener, ListenerTag, Retry, RpcAddress, RpcError, Server,
    ServerLimits, ServerSettings,
};

fn server() -> Harness {
    start(BackendChoice::Auto, ServerLimits::default())
}

fn pool(address: impl Into<RpcAddress>, connections: usize) -> ClientPool {
    ClientPool::new(address.into(), ClientSettings { max_connections: connections, ..ClientSettings::default() })
}

fn call(pool: &ClientPool, function: u32, body: &[u8]) -> Result<Vec<u8>, RpcError> {
    pool.call(function, body, pool.deadline_in(PATIENCE))
}

#[test]
fn calls_bring_their_replies() {
    let harness = server();
    let pool = pool(harness.address, 2);
    for n in 0..100u32 {
        assert_eq!(call(&pool, ECHO, &n.to_le_bytes()).unwrap(), n.to_le_bytes());
    }
    assert_eq!(harness.server.counters().snapshot().connections_accepted, 1, "one caller needs one connection");
    assert_eq!(call(&pool, ECHO, b"").unwrap(), b"");
    let large: Vec<u8> = (0..5_000_000u32).map(|n| (n % 251) as u8).collect();
    assert_eq!(call(&pool, ECHO, &large).unwrap(), large);
}

#[test]
fn many_threads_share_few_connections_and_each_gets_its_own() {
    let harness = server();
    let pool = pool(harness.address, 2);
    std::thread::scope(|scope| {
        for thread in 0..16u32 {
            let pool = &pool;
            scope.spawn(move || {
                for n in 0..300u32 {
                    let body = [thread.to_le_bytes(), n.to_le_bytes()].concat();
                    assert_eq!(call(pool, ECHO, &body).unwrap(), body);
                }
            });
        }
    });
    let counters = harness.server.counters().snapshot();
    assert_eq!(counters.requests, 4800);
    assert!(counters.connections_accepted <= 2);
}

#[test]
fn the_lead_is_passed_on_when_replies_overtake() {
    let harness = server();
    let pool = pool(harness.address, 1);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| call(&pool, LATER, b"").unwrap());
        let slow = harness.token();
        // Follows, and gets its reply from the leader.
        assert_eq!(call(&pool, ECHO, b"quick").unwrap(), b"quick");
        let second = scope.spawn(|| call(&pool, LATER, b"").unwrap());
        let last = harness.token();
        slow.send(|body| body.extend_from_slice(b"one"));
        assert_eq!(first.join().unwrap(), b"one");
        // The leader has left: the other one reads for itself now.
        last.send(|body| body.extend_from_slice(b"two"));
        assert_eq!(second.join().unwrap(), b"two");
    });
}

#[test]
fn refusals_are_told_with_code_and_text_and_the_connection_stays() {
    let harness = server();
    let pool = pool(harness.address, 1);
    for (function, wanted, retry) in [
        (999, 11, Retry::Useless),
        (BAD_ARGUMENTS, 4, Retry::Useless),
        (FAILED, 10, Retry::MayHaveRun),
        (DROPPED, 10, Retry::MayHaveRun),
    ] {
        let error = call(&pool, function, b"").unwrap_err();
        let RpcError::Refused { code, ref message, .. } = error else { panic!("{error}") };
        assert_eq!((code, error.retry()), (wanted, retry));
        assert!(!message.is_empty());
    }
    assert_eq!(harness.server.counters().snapshot().connections_accepted, 1);
}

#[test]
fn a_server_that_never_answers_costs_the_deadline_and_no_more() {
    let harness = server();
    let pool = pool(harness.address, 1);
    let clock = Clock::real();
    let begin = clock.now();
    let error = pool.call(LATER, b"", pool.deadline_in(Duration::from_millis(150))).unwrap_err();
    let took = clock.now().since(begin);
    assert!(matches!(error, RpcError::TimedOut { .. }), "{error}");
    assert_eq!(error.retry(), Retry::MayHaveRun);
    assert_eq!(error.error_code().0, -901);
    assert!(took >= Duration::from_millis(150) && took < PATIENCE, "{took:?}");
    let late = harness.token();
    // The next call takes a fresh connection, the late reply bothers nobody.
    assert_eq!(call(&pool, ECHO, b"next").unwrap(), b"next");
    late.send(|_| ());
    assert_eq!(call(&pool, ECHO, b"again").unwrap(), b"again");
    assert_eq!(harness.server.counters().snapshot().connections_accepted, 2);
}

#[test]
fn a_follower_that_gives_up_leaves_the_others_alone() {
    let harness = server();
    let pool = pool(harness.address, 1);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| call(&pool, LATER, b"").unwrap());
        let slow = harness.token();
        let short = pool.deadline_in(Duration::from_millis(50));
        assert!(matches!(pool.call(LATER, b"", short), Err(RpcError::TimedOut { .. })));
        slow.send(|body| body.extend_from_slice(b"fine"));
        assert_eq!(leader.join().unwrap(), b"fine");
    });
}

#[test]
fn a_leader_that_gives_up_hands_over() {
    let harness = server();
    let pool = pool(harness.address, 1);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| pool.call(LATER, b"", pool.deadline_in(Duration::from_secs(1))));
        let _never = harness.token();
        let follower = scope.spawn(|| call(&pool, LATER, b"").unwrap());
        let answered = harness.token();
        assert!(matches!(leader.join().unwrap(), Err(RpcError::TimedOut { .. })));
        answered.send(|body| body.extend_from_slice(b"after"));
        assert_eq!(follower.join().unwrap(), b"after");
    });
}

#[test]
fn nobody_listens() {
    let free = local(yb_env::free_port().unwrap());
    let pool = pool(free, 1);
    let error = call(&pool, ECHO, b"").unwrap_err();
    assert!(matches!(error, RpcError::Connect { .. }), "{error}");
    assert_eq!((error.retry(), error.error_code().0), (Retry::Safe, -900));
    let (sender, results) = mpsc::channel();
    pool.submit(ECHO, vec![], pool.deadline_in(PATIENCE), move |result| sender.send(result).unwrap());
    assert!(matches!(results.recv_timeout(PATIENCE).unwrap(), Err(RpcError::Connect { .. })));
}

/// A server that takes one connection, reads something and does `then`.
fn bad_server(then: impl FnOnce(std::net::TcpStream) + Send + 'static) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    spawn_thread("bad-server", move || {
        let (mut stream, _) = listener.accept().unwrap();
        assert!(stream.read(&mut [0; 64]).unwrap() > 0);
        then(stream);
    })
    .unwrap();
    address
}

#[test]
fn a_connection_that_breaks_in_flight_says_so() {
    let address = bad_server(drop);
    let error = call(&pool(address, 1), ECHO, b"x").unwrap_err();
    assert!(matches!(error, RpcError::Closed { .. }), "{error}");
    assert_eq!(error.retry(), Retry::MayHaveRun);
}

#[test]
fn half_a_reply_is_no_reply() {
    let (release, held) = mpsc::channel::<()>();
    let address = bad_server(move |mut stream| {
        stream.write_all(&[21, 0, 0, 0, 0, 0, 0, 0, 100, 0]).unwrap();
        let _ = held.recv();
    });
    let pool = pool(address, 1);
    let error = pool.call(ECHO, b"x", pool.deadline_in(Duration::from_millis(200))).unwrap_err();
    assert!(matches!(error, RpcError::TimedOut { .. }), "{error}");
    drop(release);
}

#[test]
fn another_protocol_is_recognised() {
    let address = bad_server(|mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap());
    let error = call(&pool(address, 1), ECHO, b"x").unwrap_err();
    assert!(matches!(error, RpcError::Protocol { .. }), "{error}");
    let address = bad_server(|mut stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap());
    let pool = pool(address, 1);
    let (sender, results) = mpsc::channel();
    pool.submit(ECHO, vec![], pool.deadline_in(PATIENCE), move |result| sender.send(result).unwrap());
    assert!(matches!(results.recv_timeout(PATIENCE).unwrap(), Err(RpcError::Protocol { .. })));
}

#[test]
fn a_restarted_server_is_found_again() {
    let first = server();
    let address = first.address;
    let pool = pool(address, 1);
    assert_eq!(call(&pool, ECHO, b"1").unwrap(), b"1");
    first.server.shutdown();
    let (sender, _tokens) = mpsc::channel();
    let listeners = [Listener::tcp(address, ListenerTag(0))];
    let _second = Server::start(ServerSettings::default(), &listeners, Arc::new(Toy::new(sender))).unwrap();
    // The old connection broke meanwhile; a call may meet that once.
    let results: Vec<_> = (0..2).map(|_| call(&pool, ECHO, b"2")).collect();
    assert_eq!(results[1].as_ref().unwrap(), b"2", "{results:?}");
}

#[test]
fn callbacks_run_for_each_call_pipelined_on_one_connection() {
    let harness = server();
    let pool = pool(harness.address, 1);
    let (sender, results) = mpsc::channel();
    for n in 0..1000u32 {
        let sender = sender.clone();
        let deadline = pool.deadline_in(PATIENCE);
        pool.submit(ECHO, n.to_le_bytes().to_vec(), deadline, move |result| sender.send((n, result.unwrap())).unwrap());
    }
    for _ in 0..1000 {
        let (n, body) = results.recv_timeout(PATIENCE).unwrap();
        assert_eq!(body, n.to_le_bytes());
    }
    assert_eq!(harness.server.counters().snapshot().connections_accepted, 1);
}

#[test]
fn callbacks_keep_their_deadlines() {
    let harness = server();
    let pool = pool(harness.address, 1);
    let (sender, results) = mpsc::channel();
    let also = sender.clone();
    let soon = pool.deadline_in(Duration::from_millis(100));
    pool.submit(LATER, vec![], soon, move |result| sender.send(result).unwrap());
    assert!(matches!(results.recv_timeout(PATIENCE).unwrap(), Err(RpcError::TimedOut { .. })));
    pool.submit(ECHO, b"x".to_vec(), pool.deadline_in(PATIENCE), move |result| also.send(result).unwrap());
    assert_eq!(results.recv_timeout(PATIENCE).unwrap().unwrap(), b"x");
}

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn futures_resolve() {
    let harness = server();
    let pool = pool(harness.address, 1);
    let deadline = pool.deadline_in(PATIENCE);
    let (first, second) = (pool.call_async(LATER, vec![], deadline), pool.call_async(ECHO, b"b".to_vec(), deadline));
    assert_eq!(block_on(second).unwrap(), b"b");
    harness.token().send(|body| body.extend_from_slice(b"a"));
    assert_eq!(block_on(first).unwrap(), b"a");
}

#[test]
fn shutdown_ends_what_is_under_way() {
    let harness = server();
    let pool = pool(harness.address, 1);
    let started = Barrier::new(2);
    let (sender, results) = mpsc::channel();
    pool.submit(LATER, vec![], pool.deadline_in(PATIENCE), move |result| sender.send(result).unwrap());
    let _one = harness.token();
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            started.wait();
            call(&pool, LATER, b"")
        });
        started.wait();
        let _two = harness.token();
        pool.shutdown();
        assert_eq!(blocked.join().unwrap(), Err(RpcError::ShutDown));
    });
    assert_eq!(results.recv_timeout(PATIENCE).unwrap(), Err(RpcError::ShutDown));
    assert_eq!(call(&pool, ECHO, b""), Err(RpcError::ShutDown));
}

#[test]
fn unix_sockets_work_alike() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rpc.sock");
    let (sender, _tokens) = mpsc::channel();
    let listeners = [Listener::unix(&path, ListenerTag(1))];
    let _server = Server::start(ServerSettings::default(), &listeners, Arc::new(Toy::new(sender))).unwrap();
    let pool = pool(RpcAddress::resolve(&format!("unix:{}", path.display())).unwrap(), 1);
    assert_eq!(call(&pool, ECHO, b"local").unwrap(), b"local");
}
