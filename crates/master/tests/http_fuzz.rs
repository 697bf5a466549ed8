//! HTTP requests, mutated and made up, at the admin port and at the metadata server of a master: every connection gets an
//! answer or is closed in time, nothing panics, memory stays bounded, and whoever asks properly afterwards is served.
//!
//! `YB_FUZZ_REQUESTS` says how many requests (default 10,000), `YB_FUZZ_SEED` which ones.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Rig, count_panics, number, resident_bytes};
use yb_admin::MetadataOptions;
use yb_env::Rng;

const REQUESTS: u64 = 10_000;
/// What the process may grow by over the whole run.
const GROWTH_MAX: u64 = 96 << 20;
/// No answer is longer: the pool is nearly empty, and the status page is the longest.
const ANSWER_MAX: u64 = 4 << 20;
/// How long a connection may stand after its client has said all: the deadlines of the servers, and a loaded machine.
const IN_TIME: Duration = Duration::from_secs(30);

/// Makes requests.
struct Maker {
    rng: Rng,
    lines: Vec<String>,
}

impl Maker {
    fn new(seed: u64) -> Self {
        let mut lines: Vec<String> =
            yb_admin::endpoints().iter().map(|endpoint| format!("{} {}", endpoint.method, endpoint.path)).collect();
        lines.extend(["GET", "PUT", "DELETE", "POST", "PATCH"].map(|method| format!("{method} /metadata")));
        Maker { rng: Rng::seeded(seed), lines }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn request(&mut self) -> Vec<u8> {
        let at = self.below(self.lines.len());
        let (line, query) = (self.lines[at].clone(), self.query());
        let (version, headers, body) = (self.pick(&["1.0", "1.1", "2.0", "9"]), self.headers(), self.body());
        let length = match self.below(6) {
            0 => "18446744073709551616".to_owned(),
            1 => "-1".to_owned(),
            2 => (body.len() + 7).to_string(),
            _ => body.len().to_string(),
        };
        let framing = match self.below(4) {
            0 => String::new(),
            1 => "Transfer-Encoding: chunked\r\n".to_owned(),
            _ => format!("Content-Length: {length}\r\n"),
        };
        let mut request = format!("{line}{query} HTTP/{version}\r\n{headers}{framing}\r\n").into_bytes();
        request.extend(body);
        self.mutate(&mut request);
        request
    }

    fn query(&mut self) -> String {
        const NAMES: [&str; 9] = ["key", "keys", "limit", "offset", "after", "tenant_id", "segment", "name", "force"];
        const VALUES: [&str; 10] =
            ["", "a%2Fb", "%", "%f", "%ff%00", "18446744073709551615", "-1", "a,b,,c", "default", "++&=&=%zz"];
        let parts = self.below(4);
        let made = (0..parts).map(|_| format!("{}={}", self.pick(&NAMES), self.pick(&VALUES)));
        let made: Vec<String> = made.collect();
        if made.is_empty() { String::new() } else { format!("?{}", made.join("&")) }
    }

    fn headers(&mut self) -> String {
        const HEADERS: [&str; 9] = [
            "Host: x\r\n",
            "Host: x\r\nHost: y\r\n",
            "Authorization: Bearer \r\n",
            "Authorization: \u{ff}\r\n",
            "Expect: 100-continue\r\n",
            "Connection: upgrade\r\nUpgrade: websocket\r\n",
            "Origin: http://elsewhere\r\n",
            "Content-Type: application/json\r\n",
            "Yuebing-Lease: 99999999999999999999\r\nYuebing-Instance: x\r\n",
        ];
        let count = self.below(4);
        let made: Vec<&str> = (0..count).map(|_| self.pick(&HEADERS)).collect();
        if self.below(200) == 0 { format!("X: {}\r\n", "y".repeat(300_000)) } else { made.concat() }
    }

    fn body(&mut self) -> Vec<u8> {
        const BODIES: [&str; 9] = [
            "",
            "{}",
            "[]",
            "{\"segments\":[\"x\"],\"max_concurrency\":4294967296}",
            "{\"tenant_id\":\"t\",\"quota_bytes\":\"12 parsecs\"}",
            "{\"eviction_ratio\":1e999}",
            "5\r\nhello\r\n0\r\n\r\n",
            "ffffffffffffffff\r\nx",
            "\"\\ud800\"",
        ];
        match self.below(12) {
            0 => b"[".repeat(50_000),
            1 => self.rng.next_u64().to_le_bytes().to_vec(),
            _ => self.pick(&BODIES).as_bytes().to_vec(),
        }
    }

    fn mutate(&mut self, request: &mut Vec<u8>) {
        for _ in 0..self.below(4) {
            let at = self.below(request.len() + 1);
            match self.below(6) {
                0 => request.truncate(at),
                1 => request.insert(at, self.rng.next_u64() as u8),
                2 if at < request.len() => request[at] = [0, b'\r', b'\n', b' ', 0xff, b'%'][self.below(6)],
                3 if at < request.len() => {
                    request.remove(at);
                }
                4 => {
                    let end = (at + self.below(40)).min(request.len());
                    let piece = request[at..end].to_vec();
                    request.splice(at..at, piece);
                }
                _ => {}
            }
        }
    }
}

/// Sends the bytes, ends its side, and takes what comes until the server ends too; the first digit of its status.
fn exchange(to: SocketAddr, request: &[u8]) -> Option<u8> {
    let mut socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(IN_TIME)).unwrap();
    socket.set_write_timeout(Some(IN_TIME)).unwrap();
    // It may have heard enough already.
    let _ = socket.write_all(request).and_then(|()| socket.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    if let Err(error) = (&socket).take(ANSWER_MAX + 1).read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}: {}", request.escape_ascii());
    }
    assert!(answer.len() as u64 <= ANSWER_MAX, "{}", request.escape_ascii());
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/"), "{}", answer.escape_ascii());
    answer.get(9).copied()
}

/// The first line of the answer to a request that nobody could mistake.
fn status(to: SocketAddr, path: &str) -> String {
    let mut socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(IN_TIME)).unwrap();
    write!(socket, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn whatever_comes_in_is_answered_or_closed_and_the_next_is_served() {
    let panics = count_panics();
    let (seed, requests) = (number("YB_FUZZ_SEED", 1), number("YB_FUZZ_REQUESTS", REQUESTS));
    eprintln!("seed {seed}, {requests} requests");
    let rig = Rig::with(|config| config.metadata = Some(MetadataOptions::from_env("127.0.0.1:0", |_| None)));
    let (admin, metadata) = (rig.master.admin_address().unwrap(), rig.master.metadata_address().unwrap());
    let mut maker = Maker::new(seed);
    let served = |turn: u64| {
        assert_eq!(status(admin, "/role"), "HTTP/1.0 200 OK", "turn {turn}");
        assert_eq!(status(metadata, "/health"), "HTTP/1.0 200 OK", "turn {turn}");
        assert_eq!(panics.load(Ordering::SeqCst), 0, "turn {turn}");
    };
    served(0);
    let resident = resident_bytes();
    let mut outcomes = std::collections::BTreeMap::new();
    for turn in 0..requests {
        let request = maker.request();
        let status = exchange(if turn % 3 == 0 { metadata } else { admin }, &request);
        *outcomes.entry(status.map(char::from)).or_insert(0) += 1;
        if turn % 500 == 0 {
            served(turn);
        }
    }
    served(requests);
    // Requests of every kind came through, else this tries less than it says.
    let often = |status: Option<char>| outcomes.get(&status).copied().unwrap_or(0) * 200 > requests;
    assert!([None, Some('2'), Some('4')].into_iter().all(often), "{outcomes:?}");
    let grown = resident_bytes().saturating_sub(resident);
    assert!(grown < GROWTH_MAX, "{} MiB more", grown >> 20);
}
