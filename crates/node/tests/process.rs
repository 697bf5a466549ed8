//! Nodes as processes of their own.
#![allow(clippy::unwrap_used, reason = "a test may")]

#[path = "../../client/tests/common/mod.rs"]
mod common;
#[path = "../../client/tests/common/scripted.rs"]
mod scripted;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{MIB, Process, bytes, config, free_port, plain, wait_until};
use scripted::{Script, ScriptedMaster};
use yb_client::{Client, ClientConfig};
use yb_env::Clock;
use yb_wire::Rpc;

fn master(replicas: usize) -> ScriptedMaster {
    let mut script = Script::default();
    script.replicas = replicas;
    ScriptedMaster::start(script)
}

fn command(master: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yb-node"));
    command
        .args(["--host=127.0.0.1", "--port=0", "--global_segment_size=64MiB"])
        .arg(format!("--master_server_address={master}"))
        .args(flags)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Starts a node and waits for its ready line.
fn start(master: &ScriptedMaster, flags: &[&str]) -> Process {
    let mut node = Process(command(&master.address, flags).stdout(Stdio::piped()).spawn().unwrap());
    let mut line = String::new();
    BufReader::new(node.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("ready") && line.contains("67108864 bytes"), "{line:?}");
    node
}

fn client(master: &ScriptedMaster, shared_memory: bool) -> Client {
    Client::connect(ClientConfig { shared_memory, ..config(&master.address) }).unwrap()
}

fn round_trips(client: &Client) {
    for (seed, len) in [1, 4096, 65_537, MIB as usize, 20 * MIB as usize].into_iter().enumerate() {
        let (key, value) = (format!("k{seed}"), bytes(seed as u64, len));
        client.put(&key, &value, &plain()).unwrap();
        assert!(client.get(&key).unwrap() == value, "{len} bytes");
    }
    let items: Vec<(String, Vec<u8>)> = (0..64).map(|i| (format!("b{i}"), bytes(i, 10_000 + i as usize))).collect();
    assert!(client.batch_put(&items, &plain()).iter().all(Result::is_ok));
    let keys: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).collect();
    assert!(client.batch_get(&keys).into_iter().zip(&items).all(|(got, (_, value))| got.as_ref() == Ok(value)));
}

#[test]
fn bytes_cross_processes_over_shared_memory() {
    let master = master(1);
    let _node = start(&master, &[]);
    round_trips(&client(&master, true));
}

#[test]
fn bytes_cross_processes_over_tcp_alone() {
    let master = master(1);
    let _node = start(&master, &["--shared_memory=false"]);
    round_trips(&client(&master, false));
}

/// Readers read on while one of two owners is killed: no read fails and none brings a wrong byte.
fn killed_under_readers(shared_memory: bool) {
    let master = master(2);
    let (mut victim, _survivor) = (start(&master, &[]), start(&master, &[]));
    let client = client(&master, shared_memory);
    let value = |key: u64| bytes(key, 200_000 + key as usize);
    for key in 0..20 {
        client.put(key.to_string(), &value(key), &plain()).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..4)
            .map(|reader| {
                let (client, done, value) = (&client, &done, &value);
                scope.spawn(move || {
                    let mut reads = 0;
                    while !done.load(Ordering::Relaxed) {
                        let key = (reader + reads) % 20;
                        assert!(client.get(key.to_string()).unwrap() == value(key));
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        wait_until("some reads", || client.metrics().objects_read > 40);
        victim.0.kill().unwrap();
        victim.0.wait().unwrap();
        let before = client.metrics().objects_read;
        wait_until("reads after the kill", || client.metrics().objects_read > before + 40);
        done.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().all(|reader| reader.join().unwrap() > 0));
    });
    assert_eq!(client.metrics().failed_reads, 0);
}

#[test]
fn a_node_killed_under_readers_costs_no_read_over_shared_memory() {
    killed_under_readers(true);
}

#[test]
fn a_node_killed_under_readers_costs_no_read_over_tcp() {
    killed_under_readers(false);
}

/// A process that stands still answers nothing and refuses nothing.
#[test]
fn a_node_that_stands_still_costs_its_share_of_the_time_and_no_read() {
    let master = master(2);
    let (sleeper, _awake) = (start(&master, &["--shared_memory=false"]), start(&master, &["--shared_memory=false"]));
    let client = client(&master, false);
    for key in 0..32 {
        client.put(key.to_string(), &bytes(key, 50_000), &plain()).unwrap();
    }
    signal(&sleeper, "-STOP");
    let clock = Clock::real();
    let before = clock.now();
    for key in 0..32 {
        assert!(client.get(key.to_string()).unwrap() == bytes(key, 50_000));
    }
    let took = clock.now().since(before);
    signal(&sleeper, "-CONT");
    // Each of the sixteen that begin with it would wait for a second.
    assert!(took < Duration::from_secs(8), "only the first read waits for it: {took:?}");
    assert!(client.metrics().replica_fallbacks >= 1);
}

fn signal(node: &Process, signal: &str) {
    assert!(Command::new("kill").arg(signal).arg(node.0.id().to_string()).status().unwrap().success());
}

#[test]
fn a_signal_ends_a_node_cleanly_and_at_once() {
    let (master, clock, mut ended) = (master(1), Clock::real(), 0);
    let ends_at_once = || {
        let mut node = start(&master, &[]);
        let asked = clock.now();
        signal(&node, "-TERM");
        let status = node.0.wait().unwrap();
        assert_eq!(status.code(), Some(0));
        ended += 1;
        clock.now().since(asked) < Duration::from_secs(1)
    };
    // A busy machine has more than one try.
    assert!(std::iter::repeat_with(ends_at_once).take(5).any(|at_once| at_once));
    assert_eq!(master.script(|script| script.count(Rpc::UnmountSegment)), ended);
}

#[test]
fn a_node_that_cannot_start_says_why() {
    let output = command("127.0.0.1:1", &["--metadata_server=ftp://h:2379"]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("ftp://h:2379"));
    let address = format!("127.0.0.1:{}", free_port());
    let output = command(&address, &["--master_wait_seconds=0"]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(&address));
    let output = command(&address, &["--global_segment_sise=1GiB"]).stderr(Stdio::piped()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--global_segment_size"));
}

/// The port is in the node's name: a second node under the name would make the master take the first one for dead.
#[test]
fn a_node_whose_port_is_taken_tells_the_master_nothing() {
    let master = master(1);
    let port = format!("--port={}", free_port());
    let _first = start(&master, &[&port]);
    let (mounts, all) = master.script(|script| (script.count(Rpc::MountSegment), script.segments.len()));
    let output = command(&master.address, &[&port]).stderr(Stdio::piped()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("another --port") && error.contains("in use"), "{error}");
    assert_eq!(master.script(|script| (script.count(Rpc::MountSegment), script.segments.len())), (mounts, all));
}

/// So with the port of the node's page.
#[test]
fn a_node_whose_page_has_no_port_tells_the_master_nothing() {
    let (master, taken) = (master(1), std::net::TcpListener::bind("127.0.0.1:0").unwrap());
    let port = taken.local_addr().unwrap().port();
    let page = ["--enable_http_server".to_owned(), format!("--http_port={port}")];
    let flags: Vec<&str> = page.iter().map(String::as_str).collect();
    let output = command(&master.address, &flags).stderr(Stdio::piped()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains(&port.to_string()), "{error}");
    assert_eq!(master.script(|script| script.count(Rpc::MountSegment)), 0);
}
