//! Nodes and the master are asked to end while the pool is in use: they leave with code 0 in time, what a node held goes to
//! the others as far as they can take it and is withdrawn otherwise, and every call under way ends right or with an error.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Master, Node, Process, Way, both_ways, copies, now, wait_for_copies, wait_until};
use rustix::process::Signal;
use yb_client::Client;
use yb_types::ReplicateConfig;

/// What a process that was asked to end has.
const LEAVE: Duration = Duration::from_secs(5);

/// Asks the process to end; its exit code and how long it took.
fn leaves_on(process: &mut Process, signal: Signal) -> Option<i32> {
    let asked = now();
    process.signal(signal).unwrap();
    let status = process.ends_within(LEAVE);
    println!("{signal:?}: gone after {:?}", now().since(asked));
    status.expect("it is still there").code()
}

fn value(key: &str) -> Vec<u8> {
    key.as_bytes().iter().copied().cycle().take(200_000).collect()
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
        let _ = client.upsert("load", &value("load"), &copies(1));
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

both_ways!(
    all_leave_under_load,
    nodes_and_the_master_leave_in_time_under_load_over_tcp,
    nodes_and_the_master_leave_in_time_under_load_over_shared_memory
);

fn all_leave_under_load(way: Way) {
    let mut master = Master::start(&[]);
    let client = master.client(way);
    let mut nodes = vec![master.node(way, &[]), master.node(way, &[])];
    wait_for_copies(&client, 2);
    let keys: Vec<String> = (0..40).map(|i| format!("key-{i}")).collect();
    for key in &keys {
        client.put(key, &value(key), &copies(1)).unwrap();
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
        assert_eq!(leaves_on(&mut nodes.remove(0).process, Signal::TERM), Some(0));
        // What it held is with the other one.
        assert_eq!(keys.iter().filter(there).count(), keys.len());
        keys.iter().for_each(|key| assert!(client.get(key).unwrap() == value(key)));
        goes_on("the load goes on with one node");
        assert_eq!(leaves_on(&mut nodes.remove(0).process, Signal::INT), Some(0));
        // Nobody is left to take it: it is gone at once, no key is said to be there that cannot be read.
        assert_eq!(keys.iter().filter(there).count(), 0);
        goes_on("calls of a pool without memory end");
        assert_eq!(leaves_on(&mut master.process, Signal::TERM), Some(0));
        goes_on("calls of a pool without a master end");
    });
}

/// The drain jobs of a master, newest first.
fn drains(master: &Master) -> Vec<serde_json::Value> {
    let told = master.command(&["tasks", "--json"]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    told["drain_jobs"].as_array().unwrap().clone()
}

/// A node with what was put while it was alone, and another one that came later.
fn full_and_empty(master: &Master, flags: &[&str]) -> (Client, Node, Node, Vec<String>) {
    let way = Way::Tcp;
    let client = master.client(way);
    let first = master.node(way, flags);
    let keys: Vec<String> = (0..40).map(|i| format!("key-{i}")).collect();
    wait_until("the node takes objects", || client.put(&keys[0], &value(&keys[0]), &copies(1)).is_ok());
    for key in &keys {
        client.put(key, &value(key), &copies(1)).unwrap();
    }
    let second = master.node(way, &["--drain_seconds=0"]);
    (client, first, second, keys)
}

/// The rest of the pool is of no help to a node that is asked to end.
#[test]
fn a_node_leaves_in_time_without_a_master_that_answers() {
    for signal in [Signal::KILL, Signal::STOP] {
        let master = Master::start(&[]);
        let (_client, mut node, _other, _) = full_and_empty(&master, &[]);
        master.process.signal(signal).unwrap();
        assert_eq!(leaves_on(&mut node.process, Signal::TERM), Some(0), "the master was sent {signal:?}");
    }
}

#[test]
fn a_node_leaves_in_time_when_the_others_take_nothing() {
    let master = Master::start(&[]);
    let (client, mut node, mut other, keys) = full_and_empty(&master, &[]);
    other.process.signal(Signal::STOP).unwrap();
    assert_eq!(leaves_on(&mut node.process, Signal::TERM), Some(0));
    other.process.signal(Signal::CONT).unwrap();
    // What did not arrive is not there; nothing is there that cannot be read.
    for key in &keys {
        if let Ok(bytes) = client.get(key) {
            assert!(bytes == value(key), "wrong bytes under {key}");
        }
    }
    other.process.kill();
}

#[test]
fn a_node_leaves_in_time_when_there_is_no_room_for_what_it_holds() {
    let master = Master::start(&["--eviction_high_watermark_ratio=1"]);
    let way = Way::SharedMemory;
    let client = master.client(way);
    let mut node = master.node(way, &[]);
    let mut count = 0;
    wait_until("the node is full", || {
        let put = client.put(format!("pinned-{count}"), &vec![7; 1 << 20], &pinned());
        count += u64::from(put.is_ok());
        put.is_err() && count > 40
    });
    let _other = master.node(way, &["--global_segment_size=16MiB"]);
    assert_eq!(leaves_on(&mut node.process, Signal::TERM), Some(0));
    let there = (0..count).filter(|number| client.exists(format!("pinned-{number}")) == Ok(true)).count();
    assert!(there > 0 && there <= 16, "{there} of {count} found room");
    let job = drains(&master).remove(0);
    let message = job["message"].as_str().unwrap();
    assert!(message.contains("find no room") || message.contains("NO_AVAILABLE_HANDLE"), "{job}");
}

fn pinned() -> ReplicateConfig {
    ReplicateConfig { with_hard_pin: true, ..copies(1) }
}

/// It would take ten minutes; whoever asks twice does not want to wait.
#[test]
fn a_second_signal_ends_a_node_that_moves_its_objects() {
    let master = Master::start(&[]);
    let (_client, mut node, mut other, _) = full_and_empty(&master, &["--drain_seconds=600"]);
    other.process.signal(Signal::STOP).unwrap();
    node.process.signal(Signal::TERM).unwrap();
    wait_until("the node moves its objects", || drains(&master).iter().any(|job| job["status_name"] == "RUNNING"));
    assert!(node.process.ends_within(Duration::from_millis(300)).is_none(), "it has time");
    assert_eq!(leaves_on(&mut node.process, Signal::TERM), Some(0));
    other.process.signal(Signal::CONT).unwrap();
    other.process.kill();
}

/// An object with another copy does not have to be moved.
#[test]
fn a_node_that_leaves_moves_only_what_is_nowhere_else() {
    let master = Master::start(&["--repair_bytes_per_second=0"]);
    let way = Way::Tcp;
    let client = master.client(way);
    let mut node = master.node(way, &[]);
    wait_until("an only copy is there", || client.put("only", &value("only"), &copies(1)).is_ok());
    let _others = [master.node(way, &[]), master.node(way, &[])];
    wait_for_copies(&client, 3);
    let keys: Vec<String> = (0..10).map(|i| format!("key-{i}")).collect();
    for key in &keys {
        client.put(key, &value(key), &copies(3)).unwrap();
    }
    assert_eq!(leaves_on(&mut node.process, Signal::TERM), Some(0));
    keys.iter().chain([&"only".to_owned()]).for_each(|key| assert!(client.get(key).unwrap() == value(key), "{key}"));
    let job = drains(&master).remove(0);
    assert_eq!((job["succeeded_units"].as_u64(), job["status_name"].as_str()), (Some(1), Some("SUCCEEDED")), "{job}");
    assert!(job["message"].as_str().unwrap().contains("10 objects have other replicas"), "{job}");
}
