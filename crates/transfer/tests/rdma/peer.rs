//! The other process: an engine of ours, or one of the peer's wheel, told on standard input what to do.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::common::*;
use yb_transfer::EngineSettings;

/// Set in the process that is to serve: device names, then bytes of memory.
const SERVE: &str = "YB_RDMA_TEST_PEER";

pub struct Peer {
    process: Child,
    orders: ChildStdin,
    lines: BufReader<ChildStdout>,
    pub endpoint: String,
    pub address: u64,
}

/// Bytes that differ from slice to slice, the same as in the script of the wheel. Copied rather than computed: the
/// machine is emulated.
pub fn unit_pattern(len: usize, seed: usize) -> Vec<u8> {
    let unit: Vec<u8> = (0..65_521).map(|i| (seed + i * 7 + i / 251) as u8).collect();
    let mut bytes = unit.repeat(len / unit.len() + 1);
    bytes.truncate(len);
    bytes
}

/// In a process that was started by [`Peer::ours`]: serves until its input ends.
pub fn serve_if_asked() {
    let Ok(asked) = std::env::var(SERVE) else { return };
    let (devices, size) = asked.split_once(' ').unwrap();
    let devices: Vec<&str> = devices.split(',').collect();
    let engine = engine(EngineSettings { rdma: rdma_settings(&devices), ..tcp_settings() });
    let memory = memory(&engine, size.parse().unwrap());
    println!("answer {} {}", engine.endpoint().unwrap(), memory.address());
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let ["check", offset, len, seed] = words[..] else { panic!("{line}") };
        let len = len.parse().unwrap();
        let bytes = content(&memory, offset.parse().unwrap(), len);
        println!("answer {}", u8::from(bytes != unit_pattern(len, seed.parse().unwrap())));
    }
}

/// Sends one message of the handshake port by hand; `None` when the connection is closed without a reply.
pub fn ask(endpoint: &str, kind: u8, json: &str) -> Option<String> {
    let mut stream = std::net::TcpStream::connect(endpoint).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut frame = (json.len() as u64 + 1).to_le_bytes().to_vec();
    frame.push(kind);
    frame.extend_from_slice(json.as_bytes());
    stream.write_all(&frame).unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    reply.get(9..).map(|text| String::from_utf8_lossy(text).into_owned())
}

/// A wheel of the peer, as `scripts/test_rdma.sh` names it.
pub struct Wheel {
    pub version: String,
    python: String,
    libraries: String,
}

/// The wheels at hand; none where there are no rails.
pub fn wheels() -> Vec<Wheel> {
    if !has_rails() {
        return Vec::new();
    }
    let list = std::env::var("YB_RDMA_WHEELS").unwrap_or_default();
    let wheel = |line: &str| {
        let [version, python, libraries] = line.split('|').collect::<Vec<_>>()[..] else { panic!("{line}") };
        Wheel { version: version.to_owned(), python: python.to_owned(), libraries: libraries.to_owned() }
    };
    let wheels: Vec<Wheel> = list.lines().map(wheel).collect();
    if wheels.is_empty() {
        eprintln!("skipped: YB_RDMA_WHEELS names no wheel of the peer (see scripts/test_rdma.sh)");
    }
    wheels
}

impl Peer {
    /// Another process with an engine of ours; `None` where there are no rails.
    pub fn ours(devices: &[&str], size: usize) -> Option<Peer> {
        if !has_rails() {
            return None;
        }
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["a_peer_for_the_other_tests", "--exact", "--nocapture", "--test-threads=1"]);
        command.env(SERVE, format!("{} {size}", devices.join(",")));
        let mut peer = Self::start(command);
        let words = peer.answer();
        let (endpoint, address) = words.split_once(' ').unwrap();
        (peer.endpoint, peer.address) = (endpoint.to_owned(), address.parse().unwrap());
        Some(peer)
    }

    /// An engine of the peer's wheel.
    pub fn wheel(wheel: &Wheel, host: &str, devices: &[&str], size: usize) -> Peer {
        let mut command = Command::new(&wheel.python);
        command.env("LD_LIBRARY_PATH", &wheel.libraries);
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rdma/wheel.py"));
        command.args([host, &devices.join(","), &size.to_string()]);
        command.stderr(Stdio::null());
        let mut peer = Self::start(command);
        let words = peer.answer();
        let (port, address) = words.split_once(' ').unwrap();
        (peer.endpoint, peer.address) = (format!("{host}:{port}"), address.parse().unwrap());
        peer
    }

    fn start(mut command: Command) -> Peer {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Peer { process, orders, lines, endpoint: String::new(), address: 0 }
    }

    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the other process ended");
            if let Some((_, rest)) = line.trim_end().split_once("answer ") {
                return rest.to_owned();
            }
        }
    }

    pub fn order(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        self.answer()
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
