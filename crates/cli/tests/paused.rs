//! A master that is stopped for longer than its clients may be silent (a paused machine, a debugger) gives them the time
//! it slept: nobody is given up, nothing is lost.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::time::Duration;

use common::{Master, Process, Way, both_ways, copies, timed, value, wait_until};
use rustix::process::Signal;
use yb_client::{Error, PutItem};
use yb_dummy::{Dummy, DummyConfig};

/// The time to live of a client, in seconds.
const TTL: u64 = 2;
const PAUSE: Duration = Duration::from_secs(2 * TTL + 1);

/// Lets time pass in which the process must not end.
fn lives_on(process: &mut Process, time: Duration) {
    assert_eq!(process.ends_within(time), None, "it ended");
}

both_ways!(
    a_master_is_stopped,
    a_stopped_master_loses_nothing_over_tcp,
    a_stopped_master_loses_nothing_over_shared_memory
);

fn a_master_is_stopped(way: Way) {
    let ttl = format!("--client_ttl={TTL}");
    let mut master = Master::start(&[&ttl, "--client_suspicion_ttl_sec=0"]);
    let mut nodes = [master.node(way, &[]), master.node(way, &[])];
    let client = master.client(way);
    let keys: Vec<String> = (0..100).map(|key| format!("key-{key}")).collect();
    for (seed, key) in (0..).zip(&keys) {
        client.put(key, &value(seed, 10_000), &copies(1)).unwrap();
    }
    let lost = || {
        let there = |(seed, key): (u64, &String)| client.get(key).is_ok_and(|got| got == value(seed, 10_000));
        keys.len() - (0..).zip(&keys).filter(|item| there(*item)).count()
    };
    master.process.signal(Signal::STOP).unwrap();
    lives_on(&mut nodes[0].process, PAUSE);
    master.process.signal(Signal::CONT).unwrap();
    let at_once = lost();
    // And the nodes' pings come again before the time that they were given is over.
    lives_on(&mut nodes[0].process, Duration::from_secs(TTL + 1));
    println!("{way:?}, master stopped for {PAUSE:?}, TTL {TTL} s: lost {at_once}, later {} of {}", lost(), keys.len());
    assert_eq!((at_once, lost()), (0, 0));

    // Nodes that do stop are noticed all the same.
    nodes.iter().for_each(|node| node.process.signal(Signal::STOP).unwrap());
    wait_until("they are given up", || keys.iter().all(|key| client.get(key) == Err(Error::NotFound)));
    lives_on(&mut master.process, Duration::ZERO);
}

/// What a call about somebody who stands still may take: two seconds without a sign of life, and what a loaded machine adds.
const PATIENCE: Duration = Duration::from_secs(15);

#[test]
fn who_asks_a_stopped_master_to_remove_everything_waits_no_longer_than_for_anything_else() {
    let master = Master::start(&[]);
    let _node = master.node(Way::Tcp, &[]);
    let client = master.client(Way::Tcp);
    wait_until("it takes objects", || client.put("key", b"value", &copies(1)).is_ok());
    master.process.signal(Signal::STOP).unwrap();
    for (answer, took) in [
        timed(|| client.remove_all(true)),
        timed(|| client.remove_by_regex("k", true)),
        timed(|| client.remove_matching(None, true).map(|removed| removed.removed)),
    ] {
        let Err(Error::MasterUnreachable(failure)) = answer else { panic!("{answer:?}") };
        assert!(failure.timed_out && took < PATIENCE, "{failure} after {took:?}");
    }
    master.process.signal(Signal::CONT).unwrap();
    wait_until("it goes on", || client.remove_all(true).is_ok());
}

#[test]
fn a_stopped_daemon_holds_its_dummy_up_for_one_deadline_a_call() {
    let master = Master::start(&[]);
    let node = master.node(Way::SharedMemory, &[]);
    let port = node.flags.iter().find_map(|flag| flag.strip_prefix("--port=")).unwrap();
    let dummy = Dummy::attach(&DummyConfig::new(format!("127.0.0.1:{port}"), 1 << 20)).unwrap();
    let put = |key: &str| {
        let items = [PutItem::new(key.as_bytes(), b"value")];
        dummy.batch_put_items(&items, &copies(1), Default::default()).remove(0)
    };
    wait_until("it takes objects", || put("key").is_ok());
    node.process.signal(Signal::STOP).unwrap();
    for (what, (answer, took)) in [
        ("get", timed(|| dummy.get("key").map(drop))),
        ("put", timed(|| put("other"))),
        ("exists", timed(|| dummy.exists("key").map(drop))),
        ("remove_all", timed(|| dummy.remove_all(true).map(drop))),
    ] {
        let Err(Error::DaemonUnreachable(failure)) = answer else { panic!("{what}: {answer:?}") };
        assert!(failure.timed_out && took < PATIENCE, "{what}: {failure} after {took:?}");
    }
    node.process.signal(Signal::CONT).unwrap();
    // What was asked of it in the meantime it may still do.
    wait_until("it goes on", || put("later").is_ok() && dummy.get("later") == Ok(b"value".to_vec()));
}
