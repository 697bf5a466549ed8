//! The owner of memory is killed under a reader: what the reader gets, and how soon the pool is rid of it. Over TCP only, and
//! over shared memory, where the reader still maps the dead process' memory.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::time::Duration;

use common::{Process, free_port, wait_until};
use yb_client::{Client, ClientConfig, Error, PutOutcome};
use yb_env::Clock;
use yb_types::ReplicateConfig;

/// A master, two nodes and a client that lends nothing.
struct Pool {
    address: String,
    nodes: Vec<(u16, Process)>,
    /// Where the memory of the first node is reached.
    first_home: String,
    client: Client,
    _master: Process,
}

impl Pool {
    fn start(shared_memory: bool) -> Pool {
        let (port, admin) = (free_port(), free_port());
        let master = Process::start(&[
            "master".into(),
            "--rpc_address=127.0.0.1".into(),
            format!("--rpc_port={port}"),
            "--metrics_host=127.0.0.1".into(),
            format!("--metrics_port={admin}"),
            "--client_ttl=60".into(),
        ]);
        let address = format!("127.0.0.1:{port}");
        wait_until("the master listens", || std::net::TcpStream::connect(&address).is_ok());
        let config = ClientConfig {
            local_hostname: "127.0.0.1".into(),
            master_address: address.clone(),
            shared_memory,
            ..ClientConfig::default()
        };
        let client = Client::connect(config).unwrap();
        let mut pool = Pool { address, nodes: Vec::new(), first_home: String::new(), client, _master: master };
        pool.add_node();
        pool.first_home = pool.home("probe");
        pool.add_node();
        pool
    }

    /// Starts a node and waits until objects are put there.
    fn add_node(&mut self) {
        let node = self.node(free_port());
        self.nodes.push(node);
        self.wait_for_copies(self.nodes.len());
    }

    /// Until an object gets so many copies.
    fn wait_for_copies(&self, copies: usize) {
        let config = ReplicateConfig { replica_num: copies as u64, ..ReplicateConfig::default() };
        wait_until("an object has its copies", || {
            let _ = self.client.remove("probe", true);
            self.client.put("probe", &value("probe"), &config).is_ok()
                && self.client.query("probe").is_ok_and(|found| found.replicas.len() == copies)
        });
    }

    fn node(&self, port: u16) -> (u16, Process) {
        let flags = [
            "node".into(),
            "--host=127.0.0.1".into(),
            format!("--port={port}"),
            format!("--master_server_address={}", self.address),
            "--metadata_server=P2PHANDSHAKE".into(),
            "--protocol=tcp".into(),
            "--global_segment_size=64MiB".into(),
        ];
        (port, Process::start(&flags))
    }

    /// Where the only copy of an object is.
    fn home(&self, key: &str) -> String {
        let found = self.client.query(key).unwrap();
        found.replicas[0].memory().unwrap().transport_endpoint.clone()
    }

    /// Kills the first node; its port.
    fn kill_first(&mut self) -> u16 {
        let (port, process) = self.nodes.remove(0);
        drop(process);
        port
    }
}

impl Pool {
    /// Stops the first node where it stands, or lets it go on.
    fn signal_first(&self, signal: rustix::process::Signal) {
        let (_, process) = &self.nodes[0];
        let pid = rustix::process::Pid::from_child(&process.0);
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

fn value(key: &str) -> Vec<u8> {
    key.as_bytes().iter().copied().cycle().take(100_000).collect()
}

fn one_copy() -> ReplicateConfig {
    ReplicateConfig::default()
}

/// Reads a key: whether it came; how long that took. Bytes that came are right.
fn read(client: &Client, key: &str) -> (Result<(), Error>, Duration) {
    let clock = Clock::real();
    let before = clock.now();
    let answer = client.get(key);
    let took = clock.now().since(before);
    (answer.map(|bytes| assert!(bytes == value(key), "wrong bytes under {key}")), took)
}

fn an_owner_dies(shared_memory: bool) {
    let mut pool = Pool::start(shared_memory);
    let keys: Vec<String> = (0..60).map(|i| format!("key-{i}")).collect();
    for key in &keys {
        assert_eq!(pool.client.put(key, &value(key), &one_copy()), Ok(PutOutcome::Stored));
    }
    let (lost, kept): (Vec<&String>, Vec<&String>) = keys.iter().partition(|key| pool.home(key) == pool.first_home);
    assert!(!lost.is_empty() && !kept.is_empty());
    keys.iter().for_each(|key| assert_eq!(read(&pool.client, key).0, Ok(())));

    let clock = Clock::real();
    pool.kill_first();
    let (first, first_took) = read(&pool.client, lost[0]);
    let mut slowest = Duration::ZERO;
    for key in &lost {
        let (answer, took) = read(&pool.client, key);
        if let Err(Error::Transfer(failure)) = &answer {
            assert!(failure.peer.starts_with("127.0.0.1:"), "{failure}");
        }
        slowest = slowest.max(took);
    }
    println!("shared memory {shared_memory}: first {first:?} after {first_took:?}, slowest of the others {slowest:?}");
    // A machine with other work is slow; what must not be is a second for each lost key.
    assert!(first_took < Duration::from_secs(1) && slowest < Duration::from_secs(1));
    for key in &kept {
        assert_eq!(read(&pool.client, key).0, Ok(()), "an object of the other node");
    }
    // Puts go on, none to the dead.
    for i in 0..20 {
        let answer = pool.client.put(format!("new-{i}"), b"new", &one_copy());
        assert_eq!(answer, Ok(PutOutcome::Stored), "put {i} while the master may not have noticed");
    }
    let before = clock.now();
    wait_until("lost objects are missing", || {
        // Over shared memory nobody has knocked at the dead node's port until a read or a put of it fails.
        let _ = pool.client.get(lost[0]);
        lost.iter().all(|key| pool.client.exists(key) == Ok(false))
    });
    println!("missing after {:?}", clock.now().since(before));
    wait_until("a lost key can be written again", || {
        pool.client.put(lost[0], &value(lost[0]), &one_copy()) == Ok(PutOutcome::Stored)
    });
    assert_eq!(read(&pool.client, lost[0]).0, Ok(()));
    for key in &kept {
        assert_eq!(read(&pool.client, key).0, Ok(()), "an object of the other node, at the end");
    }
}

#[test]
fn an_owner_dies_and_the_others_carry_on_over_tcp() {
    an_owner_dies(false);
}

#[test]
fn an_owner_dies_and_the_others_carry_on_over_shared_memory() {
    an_owner_dies(true);
}

fn one_of_two_owners_dies(shared_memory: bool) {
    let mut pool = Pool::start(shared_memory);
    let two = ReplicateConfig { replica_num: 2, ..ReplicateConfig::default() };
    let keys: Vec<String> = (0..40).map(|i| format!("key-{i}")).collect();
    for key in &keys {
        assert_eq!(pool.client.put(key, &value(key), &two), Ok(PutOutcome::Stored));
        assert_eq!(read(&pool.client, key).0, Ok(()));
    }
    let port = pool.kill_first();
    let mut slowest = Duration::ZERO;
    for key in keys.iter().chain(&keys) {
        let (answer, took) = read(&pool.client, key);
        assert_eq!(answer, Ok(()), "no read fails while a copy lives");
        slowest = slowest.max(took);
    }
    println!("shared memory {shared_memory}: slowest read {slowest:?}");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    // The node comes back at its port: new objects are put there again and can be read at once.
    let back = pool.node(port);
    pool.nodes.push(back);
    pool.wait_for_copies(2);
    assert_eq!(read(&pool.client, "probe").0, Ok(()));
}

#[test]
fn one_of_two_owners_dies_and_no_read_fails_over_tcp() {
    one_of_two_owners_dies(false);
}

#[test]
fn one_of_two_owners_dies_and_no_read_fails_over_shared_memory() {
    one_of_two_owners_dies(true);
}

#[test]
fn a_stopped_owner_of_one_of_two_copies_holds_no_read_up() {
    let pool = Pool::start(false);
    let two = ReplicateConfig { replica_num: 2, ..ReplicateConfig::default() };
    let keys: Vec<String> = (0..40).map(|i| format!("key-{i}")).collect();
    for key in &keys {
        assert_eq!(pool.client.put(key, &value(key), &two), Ok(PutOutcome::Stored));
        assert_eq!(read(&pool.client, key).0, Ok(()));
    }
    pool.signal_first(rustix::process::Signal::STOP);
    let mut slowest = Duration::ZERO;
    for key in &keys {
        let (answer, took) = read(&pool.client, key);
        assert_eq!(answer, Ok(()), "{key}");
        slowest = slowest.max(took);
    }
    let counted = pool.client.metrics();
    println!("stopped owner of one of two copies: slowest read {slowest:?}, {} late", counted.late_replicas);
    assert!(counted.late_replicas >= 1, "one of them asked the stopped one first");
    assert!(slowest < Duration::from_secs(1), "{slowest:?}: it was waited for like an only copy");
}

#[test]
fn a_put_to_a_stopped_node_gets_another_place_within_the_call() {
    let pool = Pool::start(false);
    pool.signal_first(rustix::process::Signal::STOP);
    let mut slowest = Duration::ZERO;
    let clock = Clock::real();
    for i in 0..12 {
        let key = format!("key-{i}");
        let before = clock.now();
        assert_eq!(pool.client.put(&key, &value(&key), &one_copy()), Ok(PutOutcome::Stored), "{key}");
        slowest = slowest.max(clock.now().since(before));
        assert_ne!(pool.home(&key), pool.first_home);
    }
    println!("stopped node: slowest put {slowest:?}");
    assert!(slowest < Duration::from_secs(2), "{slowest:?}");
    pool.signal_first(rustix::process::Signal::CONT);
    let mut number = 0;
    wait_until("it gets objects again", || {
        number += 1;
        let key = format!("again-{number}");
        pool.client.put(&key, &value(&key), &one_copy()).is_ok() && pool.home(&key) == pool.first_home
    });
}
