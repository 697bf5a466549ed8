//! The owner of memory is killed under a reader (H01, H02): what the reader gets, and how soon the pool is rid of it. Over TCP only,
//! and over shared memory, where the reader still maps the dead process' memory.
//!
//! `cargo test -p yb-cli --test dead_owners -- --nocapture` prints the figures.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Master, Node, Way, both_ways, copies, home, now, percentile, timed, value, wait_for_copies, wait_until};
use rustix::process::Signal;
use yb_client::{Client, Error, PutOutcome};

const LEN: usize = 100_000;

/// A master, two nodes and a client that lends nothing.
struct Pool {
    way: Way,
    master: Master,
    nodes: Vec<Node>,
    /// Where the memory of the first node is reached.
    first_home: String,
    client: Client,
}

impl Pool {
    fn start(way: Way) -> Pool {
        let master = Master::start(&["--client_ttl=60"]);
        let client = master.client(way);
        let mut nodes = vec![master.node(way, &[])];
        wait_until("the first node takes objects", || client.put("probe", b"probe", &copies(1)).is_ok());
        let first_home = home(&client, "probe");
        nodes.push(master.node(way, &[]));
        wait_for_copies(&client, 2);
        Pool { way, master, nodes, first_home, client }
    }
}

/// The key's name and its value in a round.
fn object(key: u64, round: u64) -> (String, Vec<u8>) {
    (format!("key-{key}"), value(key * 10 + round, LEN))
}

/// Reads a key: whether it came; how long that took. Bytes that came are those of the round.
fn read(client: &Client, key: u64, round: u64) -> (Result<(), Error>, Duration) {
    let (name, value) = object(key, round);
    let (answer, took) = timed(|| client.get(&name));
    (answer.map(|bytes| assert!(bytes == value, "wrong bytes under {name}")), took)
}

/// Reads keys again and again until told to stop, none of which may fail; all times since `since` was set.
fn keep_reading(client: &Client, keys: &[u64], stop: &AtomicBool, times: &Mutex<Vec<Duration>>) {
    for key in keys.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (answer, took) = read(client, *key, 0);
        assert_eq!(answer, Ok(()), "an object of the other node");
        times.lock().unwrap().push(took);
    }
}

const A_SECOND: Duration = Duration::from_secs(1);
/// So many calls of a test may take longer than they should, on a machine with other work.
const HICCUPS: usize = 3;

/// The work of others ends with the test, however that ends.
struct EndOfWork<'a>(&'a AtomicBool);

impl Drop for EndOfWork<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

both_ways!(
    an_owner_dies,
    an_owner_dies_and_the_others_carry_on_over_tcp,
    an_owner_dies_and_the_others_carry_on_over_shared_memory
);

fn an_owner_dies(way: Way) {
    let mut pool = Pool::start(way);
    for key in 0..60 {
        let (name, value) = object(key, 0);
        assert_eq!(pool.client.put(&name, &value, &copies(1)), Ok(PutOutcome::Stored));
    }
    let is_lost = |key: &u64| home(&pool.client, &format!("key-{key}")) == pool.first_home;
    let (lost, kept): (Vec<u64>, Vec<u64>) = (0..60).partition(is_lost);
    assert!(!lost.is_empty() && !kept.is_empty());

    let (stop, times) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let watcher = pool.master.client(way);
    let (client, nodes) = (&pool.client, &mut pool.nodes);
    std::thread::scope(|scope| {
        let _end = EndOfWork(&stop);
        scope.spawn(|| keep_reading(&watcher, &kept, &stop, &times));
        // The same work before and after: all keys of the first node are read again and again.
        wait_until("reads before", || {
            lost.iter().for_each(|key| assert_eq!(read(client, *key, 0).0, Ok(())));
            times.lock().unwrap().len() > 500
        });
        let before = std::mem::take(&mut *times.lock().unwrap());
        nodes[0].process.kill();
        let dead_at = now();
        let found = read_the_dead(client, &lost);
        let mut missing = None;
        wait_until("reads while the node is dead", || {
            // Over shared memory nobody has knocked at the dead node's port until a read or a put of it fails.
            let _ = read_the_dead(client, &lost);
            if missing.is_none() && lost.iter().all(|key| client.exists(format!("key-{key}")) == Ok(false)) {
                missing = Some(now().since(dead_at));
            }
            missing.is_some() && times.lock().unwrap().len() > 500
        });
        println!("{way:?}: all lost objects are missing {:?} after the kill", missing.unwrap());
        let meanwhile = std::mem::take(&mut *times.lock().unwrap());
        found.print(way, &before, &meanwhile);
        // A machine with other work is slow; what must not be is a second for each lost key.
        assert!(found.late <= HICCUPS, "{} of {}", found.late, lost.len());
        puts_go_on(client);
    });
    the_place_is_taken(&mut pool, &lost, &kept);
}

/// Reads of keys whose only owner is dead.
#[derive(Default)]
struct OfTheDead {
    first: Duration,
    first_failed: bool,
    slowest: Duration,
    /// Those that took a second.
    late: usize,
    right: usize,
    failed: usize,
}

/// They bring the right bytes (memory that is mapped outlives its process), or fail and name the peer, or say that nothing is there.
fn read_the_dead(client: &Client, lost: &[u64]) -> OfTheDead {
    let mut found = OfTheDead::default();
    for (number, key) in lost.iter().enumerate() {
        let (answer, took) = read(client, *key, 0);
        match &answer {
            Ok(()) => found.right += 1,
            Err(Error::Transfer(failure)) => assert!(failure.peer.starts_with("127.0.0.1:"), "{failure}"),
            Err(Error::NotFound | Error::Busy(_) | Error::NoReadableReplica) => {}
            Err(other) => panic!("{other}"),
        }
        found.failed += usize::from(answer.is_err());
        found.late += usize::from(took >= A_SECOND);
        if number == 0 {
            (found.first, found.first_failed) = (took, answer.is_err());
        } else {
            found.slowest = found.slowest.max(took);
        }
    }
    found
}

impl OfTheDead {
    fn print(&self, way: Way, before: &[Duration], meanwhile: &[Duration]) {
        let (before, meanwhile) = (percentile(before, 0.99), percentile(meanwhile, 0.99));
        println!(
            "{way:?}, owner of the only copy killed: first read {:?} (failed: {}), slowest of the others {:?}; {} right, {} failed",
            self.first, self.first_failed, self.slowest, self.right, self.failed
        );
        println!(
            "{way:?}, keys of the other node: p99 {before:?} before, {meanwhile:?} while it dies, {:.2} times",
            meanwhile.as_secs_f64() / before.as_secs_f64()
        );
    }
}

fn puts_go_on(client: &Client) {
    let mut failed = 0;
    for i in 0..20 {
        let answer = client.put(format!("new-{i}"), b"new", &copies(1));
        failed += usize::from(answer != Ok(PutOutcome::Stored));
    }
    assert_eq!(failed, 0, "puts while the master may not have noticed");
}

/// Another process takes the dead one's port, with memory that is empty. Nobody is given the dead one's bytes for the new one's.
fn the_place_is_taken(pool: &mut Pool, lost: &[u64], kept: &[u64]) {
    pool.nodes[0].start_again();
    wait_for_copies(&pool.client, 2);
    lost.iter().for_each(|key| assert!(read(&pool.client, *key, 0).0.is_err(), "its memory is gone"));
    let reader = pool.master.client(pool.way);
    for key in lost {
        let (name, value) = object(*key, 1);
        assert_eq!(pool.client.put(&name, &value, &copies(1)), Ok(PutOutcome::Stored));
        for client in [&pool.client, &reader] {
            assert_eq!(read(client, *key, 1).0, Ok(()), "written again");
        }
    }
    let at_the_new =
        lost.iter().filter(|key| home(&pool.client, &format!("key-{key}")) != home_of(pool, kept[0])).count();
    assert!(at_the_new > 0, "the node that came back takes objects");
    kept.iter()
        .for_each(|key| assert_eq!(read(&pool.client, *key, 0).0, Ok(()), "an object of the other node, at the end"));
}

fn home_of(pool: &Pool, key: u64) -> String {
    home(&pool.client, &format!("key-{key}"))
}

both_ways!(
    one_of_two_owners_dies,
    one_of_two_owners_dies_and_no_read_fails_over_tcp,
    one_of_two_owners_dies_and_no_read_fails_over_shared_memory
);

fn one_of_two_owners_dies(way: Way) {
    let mut pool = Pool::start(way);
    for key in 0..40 {
        let (name, value) = object(key, 0);
        assert_eq!(pool.client.put(&name, &value, &copies(2)), Ok(PutOutcome::Stored));
        assert_eq!(read(&pool.client, key, 0).0, Ok(()));
    }
    pool.nodes[0].process.kill();
    let (mut slowest, mut late) = (Duration::ZERO, 0);
    for key in (0..40).chain(0..40) {
        let (answer, took) = read(&pool.client, key, 0);
        assert_eq!(answer, Ok(()), "no read fails while a copy lives");
        slowest = slowest.max(took);
        late += usize::from(took >= A_SECOND);
    }
    println!("{way:?}, two copies, one owner killed: 0 of 80 reads failed, slowest {slowest:?}");
    assert!(late <= HICCUPS, "{late} of 80 took a second, the slowest {slowest:?}");
    // The node comes back at its port: new objects are put there again and can be read at once.
    pool.nodes[0].start_again();
    wait_for_copies(&pool.client, 2);
    let (name, value) = object(100, 0);
    assert_eq!(pool.client.put(&name, &value, &copies(2)), Ok(PutOutcome::Stored));
    assert_eq!(read(&pool.client, 100, 0).0, Ok(()));
}

#[test]
fn a_stopped_owner_of_one_of_two_copies_holds_no_read_up() {
    let pool = Pool::start(Way::Tcp);
    for key in 0..40 {
        let (name, value) = object(key, 0);
        assert_eq!(pool.client.put(&name, &value, &copies(2)), Ok(PutOutcome::Stored));
        assert_eq!(read(&pool.client, key, 0).0, Ok(()));
    }
    pool.nodes[0].process.signal(Signal::STOP).unwrap();
    let (mut slowest, mut late) = (Duration::ZERO, 0);
    for key in 0..40 {
        let (answer, took) = read(&pool.client, key, 0);
        assert_eq!(answer, Ok(()), "{key}");
        slowest = slowest.max(took);
        late += usize::from(took >= A_SECOND);
    }
    let counted = pool.client.metrics();
    println!("stopped owner of one of two copies: slowest read {slowest:?}, {} late", counted.late_replicas);
    assert!(counted.late_replicas >= 1, "one of them asked the stopped one first");
    assert!(
        late <= HICCUPS,
        "{late} of 40 took a second, the slowest {slowest:?}: it was waited for like an only copy"
    );
}

#[test]
fn a_put_to_a_stopped_node_gets_another_place_within_the_call() {
    let pool = Pool::start(Way::Tcp);
    pool.nodes[0].process.signal(Signal::STOP).unwrap();
    let (mut slowest, mut late) = (Duration::ZERO, 0);
    for key in 0..12 {
        let (name, value) = object(key, 0);
        let (answer, took) = timed(|| pool.client.put(&name, &value, &copies(1)));
        assert_eq!(answer, Ok(PutOutcome::Stored), "{name}");
        slowest = slowest.max(took);
        late += usize::from(took >= A_SECOND * 2);
        assert_ne!(home(&pool.client, &name), pool.first_home);
    }
    println!("stopped node: slowest put {slowest:?}");
    assert!(late <= HICCUPS, "{late} of 12 took two seconds, the slowest {slowest:?}");
    pool.nodes[0].process.signal(Signal::CONT).unwrap();
    let mut number = 0;
    wait_until("it gets objects again", || {
        number += 1;
        let (name, value) = object(number, 1);
        let name = format!("again-{name}");
        pool.client.put(&name, &value, &copies(1)).is_ok() && home(&pool.client, &name) == pool.first_home
    });
}
