//! Nodes and the master are asked to end while the pool is in use: they leave with code 0 in time, what a node held is
//! withdrawn with it, and every call under way ends right or with an error.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Process, free_port, wait_until};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use yb_client::{Client, ClientConfig};
use yb_env::Clock;
use yb_types::ReplicateConfig;

/// What a process that was asked to end has.
const LEAVE: Duration = Duration::from_secs(5);

impl Process {
    /// Asks the process to end; its exit code.
    fn leaves_on(&mut self, signal: Signal) -> Option<i32> {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap()).unwrap();
        pidfd_send_signal(pidfd_open(pid, PidfdFlags::empty()).unwrap(), signal).unwrap();
        let clock = Clock::real();
        let before = clock.now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(clock.now().since(before) < LEAVE, "it is still there {LEAVE:?} after {signal:?}");
            yb_env::sleep(Duration::from_millis(5));
        }
    }
}

fn value(key: &str) -> Vec<u8> {
    key.as_bytes().iter().copied().cycle().take(200_000).collect()
}

fn node(master: &str) -> Process {
    Process::start(&[
        "node".into(),
        "--host=127.0.0.1".into(),
        format!("--port={}", free_port()),
        format!("--master_server_address={master}"),
        "--metadata_server=P2PHANDSHAKE".into(),
        "--protocol=tcp".into(),
        "--global_segment_size=64MiB".into(),
    ])
}

/// Reads and writes until it is told to stop; every read that succeeds must be right.
fn load(client: &Client, keys: &[String], stop: &AtomicBool, calls: &AtomicU64) {
    let mut turn = 0;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        let key = &keys[turn % keys.len()];
        if let Ok(bytes) = client.get(key) {
            assert!(bytes == value(key), "wrong bytes under {key}");
        }
        let _ = client.upsert("load", &value("load"), &ReplicateConfig::default());
        calls.fetch_add(1, Ordering::Relaxed);
    }
}

/// The load ends with the test, however that ends.
struct EndOfLoad<'a>(&'a AtomicBool);

impl Drop for EndOfLoad<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nodes_and_the_master_leave_in_time_under_load() {
    let (port, admin) = (free_port(), free_port());
    let mut master = Process::start(&[
        "master".into(),
        "--rpc_address=127.0.0.1".into(),
        format!("--rpc_port={port}"),
        "--metrics_host=127.0.0.1".into(),
        format!("--metrics_port={admin}"),
    ]);
    let address = format!("127.0.0.1:{port}");
    wait_until("the master listens", || std::net::TcpStream::connect(&address).is_ok());
    let config =
        ClientConfig { local_hostname: "127.0.0.1".into(), master_address: address.clone(), ..ClientConfig::default() };
    let client = Client::connect(config).unwrap();
    let mut nodes = vec![node(&address), node(&address)];
    let two = ReplicateConfig { replica_num: 2, ..ReplicateConfig::default() };
    wait_until("both nodes take objects", || {
        let _ = client.remove("probe", true);
        client.put("probe", b"probe", &two).is_ok()
            && client.query("probe").is_ok_and(|found| found.replicas.len() == 2)
    });
    let keys: Vec<String> = (0..40).map(|i| format!("key-{i}")).collect();
    for key in &keys {
        client.put(key, &value(key), &ReplicateConfig::default()).unwrap();
    }

    let (stop, calls) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _end = EndOfLoad(&stop);
        (0..2).for_each(|_| drop(scope.spawn(|| load(&client, &keys, &stop, &calls))));
        let goes_on = |what: &str| {
            let before = calls.load(Ordering::Relaxed);
            wait_until(what, || calls.load(Ordering::Relaxed) > before + 20);
        };
        goes_on("the load runs");
        let there = |key: &&String| client.exists(key) == Ok(true);
        assert_eq!(nodes.remove(0).leaves_on(Signal::TERM), Some(0));
        // What it held is gone with it, at once: no key is said to be there that cannot be read.
        let left: Vec<&String> = keys.iter().filter(there).collect();
        assert!(!left.is_empty() && left.len() < keys.len(), "{} of {}", left.len(), keys.len());
        left.iter().for_each(|key| assert!(client.get(key).unwrap() == value(key)));
        goes_on("the load goes on with one node");
        assert_eq!(nodes.remove(0).leaves_on(Signal::INT), Some(0));
        assert_eq!(keys.iter().filter(there).count(), 0);
        goes_on("calls of a pool without memory end");
        assert_eq!(master.leaves_on(Signal::TERM), Some(0));
        goes_on("calls of a pool without a master end");
    });
}
