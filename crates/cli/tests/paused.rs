//! A master that is stopped for longer than its clients may be silent (a paused machine, a debugger) gives them the time
//! it slept: nobody is given up, nothing is lost.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::time::Duration;

use common::{Master, Process, Way, both_ways, copies, value};
use rustix::process::Signal;
use yb_client::Error;

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
    lives_on(&mut master.process, Duration::from_secs(TTL + 3));
    keys.iter().for_each(|key| assert_eq!(client.get(key), Err(Error::NotFound), "{key}"));
}
