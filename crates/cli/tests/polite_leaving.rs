//! Nodes and the master are asked to end while the pool is in use: they leave with code 0 in time, what a node held is
//! withdrawn with it, and every call under way ends right or with an error.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::{Master, Process, Way, both_ways, copies, now, wait_for_copies, wait_until};
use rustix::process::Signal;
use yb_client::Client;

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
        // What it held is gone with it, at once: no key is said to be there that cannot be read.
        let left: Vec<&String> = keys.iter().filter(there).collect();
        assert!(!left.is_empty() && left.len() < keys.len(), "{} of {}", left.len(), keys.len());
        left.iter().for_each(|key| assert!(client.get(key).unwrap() == value(key)));
        goes_on("the load goes on with one node");
        assert_eq!(leaves_on(&mut nodes.remove(0).process, Signal::INT), Some(0));
        assert_eq!(keys.iter().filter(there).count(), 0);
        goes_on("calls of a pool without memory end");
        assert_eq!(leaves_on(&mut master.process, Signal::TERM), Some(0));
        goes_on("calls of a pool without a master end");
    });
}
