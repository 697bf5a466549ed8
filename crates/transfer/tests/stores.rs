//! Engines in metadata stores: ours with the peer's in both directions, processes that are killed, and names that come
//! back. The peer needs `YB_PEER_VENVS`, a folder with `v0.3.13.post1`.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;
#[path = "../../metadata/tests/common/services.rs"]
mod services;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use common::*;
use services::{Service, peer_python};
use yb_admin::{MetadataOptions, MetadataServer};
use yb_metadata::{Keys, MetadataStore, connect};
use yb_transfer::{Engine, EngineSettings, SegmentDesc, StartError, TransferErrorKind};

/// Told on standard input what to do, and answers in lines that begin with `answer`.
struct Process {
    child: Child,
    orders: ChildStdin,
    lines: BufReader<ChildStdout>,
    address: u64,
}

impl Process {
    fn start(command: &mut Command) -> Result<Process, String> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut process = Process { child, orders, lines, address: 0 };
        let words = process.answer();
        process.address = words.last().unwrap().parse().unwrap();
        if words[0] == "failed" { Err(words.join(" ")) } else { Ok(process) }
    }

    /// An engine of the peer.
    fn peer(name: &str, store: &str) -> Option<Result<Process, String>> {
        let python = peer_python("v0.3.13.post1")?;
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/wheel_engine.py");
        let address = ("MC_TCP_BIND_ADDRESS", "127.0.0.1");
        Some(Process::start(Command::new(python).args([script, name, store]).envs([address])))
    }

    /// An engine of ours, in a process that runs only the test `an_engine_of_its_own` of this program.
    fn ours(name: &str, store: &str) -> Process {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "an_engine_of_its_own", "--nocapture"]);
        Process::start(command.env("YB_TEST_NAME", name).env("YB_TEST_STORE", store)).unwrap()
    }

    fn answer(&mut self) -> Vec<String> {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the process ended");
            if let Some((_, rest)) = line.split_once("answer ") {
                return rest.split_whitespace().map(str::to_owned).collect();
            }
        }
    }

    fn order(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        self.answer().join(" ")
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn named(store: &str, name: &str) -> Result<Engine, StartError> {
    let settings = EngineSettings { metadata_lease: std::time::Duration::from_secs(2), ..tcp_settings() };
    Engine::builder().settings(settings).metadata(connect(store).unwrap().unwrap()).name(name).build()
}

#[test]
#[ignore = "runs in a process of its own, for the other tests"]
fn an_engine_of_its_own() {
    let (Ok(name), Ok(store)) = (std::env::var("YB_TEST_NAME"), std::env::var("YB_TEST_STORE")) else { return };
    let engine = named(&store, &name).unwrap();
    let memory = memory(&engine, 1 << 20);
    println!("answer {}", memory.address());
    for line in std::io::stdin().lines() {
        if line.unwrap() == "leave" {
            engine.shutdown();
            println!("answer 0");
        }
    }
}

/// Writes and reads back, 1 B to 1 MiB, aligned and not.
fn moves(from: &Engine, name: &str, remote: u64) -> Result<(), TransferErrorKind> {
    let segment = from.open_segment(name).map_err(|error| error.kind())?;
    for (size, offset) in [(1, 3), (4096, 0), (65_537, 4095), (1 << 20, 0)] {
        let size = size - if size == 1 << 20 { offset as usize } else { 0 };
        let bytes = pattern(size, size as u64);
        let mut back = vec![0; size];
        for request in [write(&segment, remote + offset, &bytes), read(&segment, remote + offset, &mut back)] {
            let outcome = from.transfer_sync(&[request], from.now() + PATIENCE);
            outcome.results()[0].clone().map_err(|error| error.kind())?;
        }
        assert!(back == bytes, "{size}");
    }
    Ok(())
}

/// Both directions, and a second life of each side.
fn meets_the_peer(store: &str) {
    let Some(peer) = Process::peer("peer:1", store) else { return };
    let mut peer = peer.unwrap();
    let ours = named(store, "ours:1").unwrap();
    let mine = memory(&ours, 2 << 20);
    moves(&ours, "peer:1", peer.address).unwrap();
    let segment = ours.open_segment("peer:1").unwrap();
    ours.probe(&segment, ours.now() + PATIENCE).unwrap();
    assert_eq!(peer.order("first ours:1"), mine.address().to_string());
    assert_eq!(peer.order("probe ours:1"), "0");
    for (size, offset) in [(1, 5), (65_537, 0), (1 << 20, 4095)] {
        let remote = mine.address() + offset;
        assert_eq!(peer.order(&format!("write ours:1 {remote} {offset} {size} 7")), "0");
        assert_eq!(peer.order(&format!("read ours:1 {remote} {offset} {size} 7")), "0");
    }
    // What is published later is found.
    let late = memory(&ours, 1 << 20);
    assert_eq!(stored(store, "ours:1").buffers.len(), 2);
    assert_eq!(peer.order("leave"), "0");
    assert_eq!(moves(&ours, "peer:1", peer.address), Err(TransferErrorKind::RemoteRefused));
    peer.kill();
    assert!(moves(&ours, "peer:1", 4096).is_err(), "the record of the dead is not served");
    drop(late);
    ours.shutdown();
    let store = connect(store).unwrap().unwrap();
    assert_eq!(store.get(&Keys::default().rpc_meta("ours:1")).unwrap(), None);
    assert_eq!(store.get(&Keys::default().segment("ours:1")).unwrap(), None);
}

fn stored(store: &str, name: &str) -> SegmentDesc {
    let store: Arc<dyn MetadataStore> = connect(store).unwrap().unwrap();
    SegmentDesc::parse(&store.get(&Keys::default().segment(name)).unwrap().unwrap()).unwrap()
}

/// Kills an engine of ours and starts it again under its name: whoever knew the old one finds the new one.
fn comes_back_under_its_name(store: &str) {
    let reader = named(store, "reader").unwrap();
    for _ in 0..3 {
        let process = Process::ours("phoenix", store);
        moves(&reader, "phoenix", process.address).unwrap();
        process.kill();
        assert!(moves(&reader, "phoenix", 4096).is_err(), "a dead process is not served");
        assert!(named(store, "other").unwrap().name().is_some());
    }
    let mut last = Process::ours("phoenix", store);
    assert_eq!(last.order("leave"), "0");
    assert!(moves(&reader, "phoenix", last.address).is_err());
}

fn ours_http() -> MetadataServer {
    MetadataServer::start(MetadataOptions::from_env("127.0.0.1:0", |_| None)).unwrap()
}

#[test]
fn the_peer_meets_us_over_our_http_server() {
    let server = ours_http();
    meets_the_peer(&format!("http://{}/metadata", server.address()));
}

#[test]
fn the_peer_meets_us_over_its_http_server() {
    let Some(server) = Service::peer_http("v0.3.13.post1") else { return };
    meets_the_peer(&format!("http://127.0.0.1:{}/metadata", server.port));
}

#[test]
fn the_peer_meets_us_over_etcd() {
    let Some(server) = Service::etcd() else { return };
    let store = format!("etcd://127.0.0.1:{}", server.port);
    let ready = connect(&store).unwrap().unwrap();
    services::eventually("the member leads", || ready.put("ready", b"", None).is_ok());
    meets_the_peer(&store);
    comes_back_under_its_name(&store);
    services::eventually("records of the killed are gone", || {
        ["phoenix", "other", "reader"].iter().all(|name| ready.get(&Keys::default().rpc_meta(name)).unwrap().is_none())
    });
}

#[test]
fn our_engines_meet_over_redis() {
    let Some(server) = Service::redis(None) else { return };
    comes_back_under_its_name(&format!("redis://127.0.0.1:{}", server.port));
}

#[test]
fn killed_engines_come_back_under_their_name_and_leave_nothing_over_our_http_server() {
    let server = ours_http();
    comes_back_under_its_name(&format!("http://{}/metadata", server.address()));
    services::eventually("records of the killed are gone", || server.records() == 0);
}

#[test]
fn killed_engines_come_back_under_their_name_over_the_peers_http_server() {
    let Some(server) = Service::peer_http("v0.3.13.post1") else { return };
    let store = format!("http://127.0.0.1:{}/metadata", server.port);
    comes_back_under_its_name(&store);
    let living = named(&store, "taken").unwrap();
    assert!(matches!(named(&store, "taken"), Err(StartError::NameTaken { .. })));
    living.shutdown();
    named(&store, "taken").unwrap();
}

#[test]
fn a_store_that_is_away_refuses_the_start_and_is_survived_later() {
    let store = format!("http://127.0.0.1:{}/metadata", services::free_port());
    assert!(matches!(named(&store, "n"), Err(StartError::Metadata { .. })));
    let server = ours_http();
    let address = server.address().to_string();
    let store = format!("http://{address}/metadata");
    let (a, b) = (named(&store, "a").unwrap(), named(&store, "b").unwrap());
    let memory = memory(&b, 1 << 20);
    moves(&a, "b", memory.address()).unwrap();
    drop(server);
    moves(&a, "b", memory.address()).unwrap();
    let server = MetadataServer::start(MetadataOptions::from_env(address, |_| None)).unwrap();
    services::eventually("both publish themselves again", || server.records() == 4);
    assert_eq!(stored(&store, "b").buffers.len(), 1);
}
