//! The master is killed and started again, and the cache is still warm (H10); a node is killed and takes its memory over.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::process::Stdio;
use std::time::Duration;

use common::{Master, Node, Way, both_ways, copies, node_flags, now, value, within, yuebing};
use rustix::process::Signal;
use yb_client::Client;

/// How many of the keys are read, each with the right bytes or not at all.
fn readable(client: &Client, keys: std::ops::Range<u64>, len: usize) -> u64 {
    let mut right = 0;
    for key in keys {
        if let Ok(got) = client.get(format!("key-{key}")) {
            assert!(got == value(key, len), "wrong bytes of key-{key}");
            right += 1;
        }
    }
    right
}

/// What is known to have reached the nodes: told within a moment.
fn told() {
    yb_env::sleep(Duration::from_secs(1));
}

both_ways!(
    a_master_is_killed_again_and_again,
    a_master_that_is_killed_again_and_again_finds_its_objects_over_tcp,
    a_master_that_is_killed_again_and_again_finds_its_objects_over_shared_memory
);

fn a_master_is_killed_again_and_again(way: Way) {
    const LEN: usize = 64 << 10;
    let mut master = Master::start(&["--default_kv_lease_ttl=500"]);
    let _nodes: Vec<_> = (0..2).map(|_| master.node(way, &[])).collect();
    let client = master.client(way);
    let plain = copies(1);
    let mut keys = 400;
    for key in 0..keys {
        client.put(format!("key-{key}"), &value(key, LEN), &plain).unwrap();
    }
    let limit = common::PATIENCE;
    for round in 0..10 {
        told();
        master.process.kill();
        let failure = client.get("key-0").unwrap_err();
        assert!(!failure.to_string().contains("not found"), "an outage is no miss: {failure}");
        master.start_again();
        let took = within("all is found again", limit, || readable(&client, 0..keys, LEN) == keys);
        println!("round {round}: {keys} keys after {took:?}");
        // New objects go beside the old ones, which stay as they were.
        within("room for new objects", limit, || client.put(format!("key-{keys}"), &value(keys, LEN), &plain).is_ok());
        for key in keys + 1..keys + 20 {
            client.put(format!("key-{key}"), &value(key, LEN), &plain).unwrap();
        }
        keys += 20;
        assert_eq!(readable(&master.client(way), 0..keys, LEN), keys, "a client that is new finds the same");
    }
}

/// Space rests for a lease after a master's restart. Puts that are refused meanwhile, again and again, must not make the master take
/// objects away when the time is over: there is room for all.
#[test]
fn refused_puts_evict_nothing_when_space_has_rested() {
    let mut master = Master::start(&["--default_kv_lease_ttl=500"]);
    let _nodes: Vec<_> = (0..3).map(|_| master.node(Way::SharedMemory, &[])).collect();
    let client = master.client(Way::SharedMemory);
    client.put("before", &value(0, 1000), &copies(1)).unwrap();
    for round in 0..4 {
        told();
        master.process.kill();
        master.start_again();
        let stored = std::thread::scope(|scope| {
            let start = |writer| {
                scope.spawn({
                    let client = &client;
                    move || store_some(client, &format!("{round}-{writer}"))
                })
            };
            let writers: Vec<_> = (0..8).map(start).collect();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<String>>()
        });
        let gone: Vec<&String> = stored.iter().filter(|key| client.exists(key) != Ok(true)).collect();
        assert!(gone.is_empty(), "round {round}: {} of {} are gone: {gone:?}", gone.len(), stored.len());
    }
}

/// Tries until twenty objects are stored.
fn store_some(client: &Client, name: &str) -> Vec<String> {
    let end = now() + common::PATIENCE;
    let mut stored = Vec::new();
    for number in 0.. {
        let key = format!("{name}-{number}");
        if client.put(&key, &value(number, 1000), &copies(1)).is_ok() {
            stored.push(key);
        }
        assert!(now() < end, "no room for so long");
        if stored.len() == 20 {
            break;
        }
    }
    stored
}

/// The memory of a node is a file: a process that comes after one that was killed, or that left in order, has its objects.
#[test]
fn a_node_takes_over_the_memory_of_the_one_before() {
    const LEN: usize = 64 << 10;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("memory");
    let file = format!("--segment_file={}", path.display());
    let way = Way::SharedMemory;
    let flags = [file.as_str()];
    let mut master = Master::start(&["--default_kv_lease_ttl=500"]);
    let mut node = master.node(way, &flags);
    let client = master.client(way);
    for key in 0..200 {
        client.put(format!("key-{key}"), &value(key, LEN), &copies(1)).unwrap();
    }
    let second = yuebing(&node_flags(&master.address.to_string(), way, &flags)).stderr(Stdio::null()).output().unwrap();
    assert_eq!(second.status.code(), Some(1), "one process at a time");
    let limit = common::PATIENCE;
    for round in 0..3 {
        told();
        if round == 1 {
            // In order: the segment stays, and another process comes.
            node.process.signal(Signal::TERM).unwrap();
            assert_eq!(node.process.ends_within(common::PATIENCE).unwrap().code(), Some(0));
        } else {
            node.process.kill();
        }
        if round == 2 {
            master.process.kill();
            master.start_again();
        }
        node = Node::start(node.flags.clone());
        within("all is found again", limit, || readable(&client, 0..200, LEN) == 200);
        within("and there is room for more", limit, || {
            client.put(format!("new-{round}"), &[7; 1000], &copies(1)).is_ok()
        });
        assert_eq!(client.get(format!("new-{round}")).unwrap(), [7; 1000]);
        assert_eq!(readable(&client, 0..200, LEN), 200);
    }
    drop(node);
}

/// A node that ends in order asks its master for the last time: nothing that was acknowledged is left untold.
#[test]
fn what_was_stored_just_before_an_orderly_end_is_there_for_the_next_master() {
    const LEN: usize = 1000;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = format!("--segment_file={}", directory.path().join("memory").display());
    let way = Way::SharedMemory;
    let mut master = Master::start(&["--default_kv_lease_ttl=500"]);
    let mut node = master.node(way, &[file.as_str()]);
    let client = master.client(way);
    for round in 0..3 {
        // By now the node asks seldom.
        told();
        let keys = 300 * round..300 * (round + 1);
        let items: Vec<(String, Vec<u8>)> = keys.clone().map(|key| (format!("key-{key}"), value(key, LEN))).collect();
        within("there is room", common::PATIENCE, || client.batch_put(&items, &copies(1)).iter().all(Result::is_ok));
        node.process.signal(Signal::TERM).unwrap();
        assert_eq!(node.process.ends_within(common::PATIENCE).unwrap().code(), Some(0));
        master.process.kill();
        master.start_again();
        node = Node::start(node.flags.clone());
        within("all is known", common::PATIENCE, || readable(&client, 0..keys.end, LEN) == keys.end);
    }
    drop(node);
}

/// A reader finds that nobody answers, and the next process comes later than others may take who only stand still for a moment.
#[test]
fn a_node_that_was_found_dead_has_its_objects_when_it_comes_back_before_its_time_is_over() {
    const LEN: usize = 1000;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = format!("--segment_file={}", directory.path().join("memory").display());
    let way = Way::Tcp;
    let master = Master::start(&["--client_suspicion_ttl_sec=300"]);
    let mut node = master.node(way, &[file.as_str()]);
    let client = master.client(way);
    for key in 0..20 {
        client.put(format!("key-{key}"), &value(key, LEN), &copies(1)).unwrap();
    }
    told();
    node.process.kill();
    let killed = now();
    within("the reader finds nobody, and the master neither", common::PATIENCE, || {
        readable(&client, 0..20, LEN) == 0 && client.exists("key-0") == Ok(false)
    });
    // Time itself is the matter: who was found dead by a report used to be forgotten after three seconds.
    while now().since(killed) < Duration::from_secs(5) {
        assert_eq!(client.exists("key-0"), Ok(false));
        yb_env::sleep(Duration::from_millis(100));
    }
    node = Node::start(node.flags.clone());
    within("all is found again", common::PATIENCE, || readable(&client, 0..20, LEN) == 20);
    drop(node);
}

/// The figure of a million keys on four nodes: `cargo test --release -p yb-cli --test restart -- --ignored --nocapture million`;
/// `YB_RESTART_KEYS` takes another number.
#[test]
#[ignore = "takes a minute and a gigabyte"]
fn a_million_keys_are_known_again_soon_after_the_master_was_killed() {
    const BATCH: u64 = 1000;
    let usual = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let count: u64 = std::env::var("YB_RESTART_KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(usual);
    let mut master = Master::start(&[]);
    let _nodes: Vec<_> = (0..4).map(|_| master.node(Way::SharedMemory, &["--global_segment_size=128MiB"])).collect();
    let client = master.client(Way::SharedMemory);
    for first in (0..count).step_by(BATCH as usize) {
        let item = |key: u64| (format!("key-{key:08}"), value(key, 64));
        let items: Vec<(String, Vec<u8>)> = (first..(first + BATCH).min(count)).map(item).collect();
        assert!(client.batch_put(&items, &copies(1)).iter().all(Result::is_ok));
    }
    told();
    master.process.kill();
    master.start_again();
    let started = now();
    let exist = |range: std::ops::Range<u64>| {
        let keys: Vec<String> = range.map(|key| format!("key-{key:08}")).collect();
        client.batch_exists(&keys).into_iter().filter(|answer| matches!(answer, Ok(true))).count() as u64
    };
    let all = || (0..count).step_by(20_000).map(|first| exist(first..(first + 20_000).min(count))).sum::<u64>();
    let mut found = 0;
    let limit = Duration::from_secs(10);
    while found < count && now().since(started) < limit {
        found = all();
        println!("{found} of {count} keys after {:?}", now().since(started));
    }
    assert!(found * 1000 >= count * 999, "{found} of {count}");
    // And they are what they were.
    for key in (0..count).step_by(count as usize / 500) {
        assert!(client.get(format!("key-{key:08}")).unwrap() == value(key, 64), "{key}");
    }
}
