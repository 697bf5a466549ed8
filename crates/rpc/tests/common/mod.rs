//! A toy service and raw sockets, shared by the suites.
#![allow(dead_code, reason = "each suite uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use yb_rpc::{
    BackendChoice, CounterSnapshot, DeferredReply, Listener, ListenerTag, Outcome, Reply, Request, Server,
    ServerLimits, ServerSettings, Service,
};

/// Answers with its body.
pub const ECHO: u32 = 1;
/// Deferred: the test gets the token.
pub const LATER: u32 = 2;
/// Body u32 n: a reply of n bytes.
pub const BIG: u32 = 3;
pub const PANIC: u32 = 4;
pub const BAD_ARGUMENTS: u32 = 5;
/// Deferred and dropped.
pub const DROPPED: u32 = 6;
/// Answers with the listener's tag.
pub const TAG: u32 = 7;
pub const FAILED: u32 = 8;
/// Answers with the number of requests that the service was shown ahead.
pub const FORESEEN: u32 = 9;
/// Takes its time.
pub const SLOW: u32 = 10;
/// Answers with the request's time.
pub const NOW: u32 = 11;

/// Longest wait for anything that should happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Toy {
    tokens: mpsc::Sender<DeferredReply>,
    foreseen: AtomicUsize,
}

impl Toy {
    pub fn new(tokens: mpsc::Sender<DeferredReply>) -> Self {
        Toy { tokens, foreseen: AtomicUsize::new(0) }
    }
}

impl Service for Toy {
    type Worker = u64;

    fn worker(&self, _index: usize) -> u64 {
        0
    }

    fn foresee(&self, _calls: &mut u64, requests: &[Request<'_>]) {
        assert!((2..=16).contains(&requests.len()));
        self.foreseen.fetch_add(requests.len(), Ordering::Relaxed);
    }

    fn call(&self, calls: &mut u64, request: Request<'_>, mut reply: Reply<'_>) -> Outcome {
        *calls += 1;
        match request.function {
            ECHO => {
                reply.body().extend_from_slice(request.body);
                reply.done()
            }
            LATER => {
                let (token, outcome) = reply.defer();
                self.tokens.send(token).unwrap();
                outcome
            }
            BIG => {
                let n = u32::from_le_bytes(request.body.try_into().unwrap());
                let body = reply.body();
                body.resize(body.len() + n as usize, 0xab);
                reply.done()
            }
            PANIC => panic!("as asked"),
            BAD_ARGUMENTS => {
                reply.body().extend_from_slice(b"half an answer");
                reply.bad_arguments()
            }
            DROPPED => reply.defer().1,
            TAG => {
                reply.body().extend_from_slice(&request.tag.0.to_le_bytes());
                reply.done()
            }
            FAILED => reply.failed("no luck"),
            FORESEEN => {
                reply.body().extend_from_slice(&self.foreseen.load(Ordering::Relaxed).to_le_bytes());
                reply.done()
            }
            SLOW => {
                yb_env::sleep(Duration::from_millis(20));
                reply.done()
            }
            NOW => {
                reply.body().extend_from_slice(&request.now.0.to_le_bytes());
                reply.done()
            }
            _ => reply.unknown_function(),
        }
    }
}

pub struct Harness {
    pub server: Server,
    pub address: SocketAddr,
    pub tokens: mpsc::Receiver<DeferredReply>,
}

pub fn local(port: u16) -> SocketAddr {
    ([127, 0, 0, 1], port).into()
}

pub fn start(backend: BackendChoice, limits: ServerLimits) -> Harness {
    start_with(ServerSettings { backend, limits, workers: 2, ..ServerSettings::default() })
}

pub fn start_with(settings: ServerSettings) -> Harness {
    let (sender, tokens) = mpsc::channel();
    let listeners = [Listener::tcp(local(0), ListenerTag(0)), Listener::tcp(local(0), ListenerTag(12))];
    let server = Server::start(settings, &listeners, Arc::new(Toy::new(sender))).unwrap();
    let address = server.listeners()[0].tcp().unwrap();
    Harness { server, address, tokens }
}

impl Harness {
    pub fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    pub fn token(&self) -> DeferredReply {
        self.tokens.recv_timeout(PATIENCE).expect("the request reached the service")
    }

    /// Waits until the counters satisfy `wanted`.
    pub fn until(&self, what: &str, wanted: impl Fn(&CounterSnapshot) -> bool) {
        let clock = yb_env::Clock::real();
        let end = clock.now() + PATIENCE;
        loop {
            let now = self.server.counters().snapshot();
            if wanted(&now) {
                return;
            }
            assert!(clock.now() < end, "never came: {what}; counters {now:?}");
            yb_env::sleep(Duration::from_millis(5));
        }
    }
}

pub fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

pub fn frame(function: u32, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![21, 0, 0, 0];
    for word in [sequence, function, body.len() as u32, 0] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(body);
    bytes
}

#[derive(PartialEq, Eq, Clone)]
pub struct Answer {
    pub error: u8,
    pub sequence: u32,
    pub body: Vec<u8>,
}

/// Short, also for large bodies.
impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let start = &self.body[..self.body.len().min(40)];
        write!(f, "{{error {} sequence {} body of {}: {start:?}}}", self.error, self.sequence, self.body.len())
    }
}

/// Reads one reply; `None` at the end of the stream.
pub fn read_reply(stream: &mut impl Read) -> Option<Answer> {
    let mut header = [0; 16];
    let mut got = 0;
    while got < header.len() {
        match stream.read(&mut header[got..]) {
            Ok(0) if got == 0 => return None,
            Ok(0) => panic!("the stream ends inside a header"),
            Ok(n) => got += n,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => panic!("no reply: {error}"),
        }
    }
    assert_eq!(header[..2], [21, 0]);
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
    let mut body = vec![0; word(8) as usize];
    stream.read_exact(&mut body).unwrap();
    assert_eq!(word(12), 0, "no attachment");
    Some(Answer { error: header[2], sequence: word(4), body })
}

pub fn echo(stream: &mut TcpStream, sequence: u32, text: &[u8]) {
    stream.write_all(&frame(ECHO, sequence, text)).unwrap();
    assert_eq!(read_reply(stream), Some(Answer { error: 0, sequence, body: text.to_vec() }));
}

/// The backends that this machine can run.
pub fn backends() -> Vec<BackendChoice> {
    let mut list = vec![BackendChoice::Epoll];
    let probe = ServerSettings { backend: BackendChoice::Auto, ..ServerSettings::default() };
    let (sender, _tokens) = mpsc::channel();
    let listeners = [Listener::tcp(local(0), ListenerTag(0))];
    let server = Server::start(probe, &listeners, Arc::new(Toy::new(sender))).unwrap();
    if server.backend() == BackendChoice::Uring {
        list.push(BackendChoice::Uring);
    }
    list
}
