//! A dummy, a daemon and a pool on this host.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use yb_client::{
    Client, ClientConfig, Duplicates, Error, Fragment, GetItem, Health, LocalBuffer, Parts, ProbePolicy, PutItem,
    RangesItem,
};
use yb_daemon::{Daemon, DaemonSettings};
use yb_dummy::{Dummy, DummyConfig};
use yb_env::Clock;
use yb_master::{Master, MasterConfig};
use yb_mem::{CopyHint, MemorySegment, Span};
use yb_types::{ErrorCode, ReplicateConfig};

const MIB: usize = 1 << 20;

/// A master, a client with a segment, and a daemon over it.
struct Host {
    daemon: Option<Daemon>,
    client: Client,
    _master: Master,
}

impl Host {
    fn start() -> Host {
        let master = Master::start(MasterConfig::embedded()).unwrap();
        let client = Client::connect(ClientConfig {
            local_hostname: "127.0.0.1".into(),
            master_address: master.rpc_address().to_string(),
            global_segment_size: 128 << 20,
            ..ClientConfig::default()
        });
        let client = client.unwrap();
        let daemon = Daemon::start(&DaemonSettings::at("127.0.0.1:0".parse().unwrap()), client.clone()).unwrap();
        Host { daemon: Some(daemon), client, _master: master }
    }

    fn daemon(&self) -> &Daemon {
        self.daemon.as_ref().unwrap()
    }

    fn config(&self, stage: u64) -> DummyConfig {
        let config = DummyConfig::new(self.daemon().address().to_string(), stage);
        DummyConfig { ping_interval: Duration::from_millis(50), ..config }
    }

    fn attach(&self, stage: u64) -> Dummy {
        Dummy::attach(&self.config(stage)).unwrap()
    }

    /// The daemon ends, and another starts at the same address.
    fn restart_daemon(&mut self) {
        let settings = DaemonSettings::at(self.daemon().address());
        drop(self.daemon.take());
        self.daemon = Some(Daemon::start(&settings, self.client.clone()).unwrap());
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let clock = Clock::real();
    let end = clock.now() + Duration::from_secs(20);
    while !done() {
        assert!(clock.now() < end, "not within twenty seconds: {what}");
        yb_env::sleep(Duration::from_millis(5));
    }
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = yb_env::Rng::seeded(seed);
    let mut made = Vec::with_capacity(len + 8);
    while made.len() < len {
        made.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    made.truncate(len);
    made
}

fn put(dummy: &Dummy, key: &str, value: &[u8]) -> Result<(), Error> {
    let items = [PutItem::new(key.as_bytes(), value)];
    dummy.batch_put_items(&items, &ReplicateConfig::default(), Duplicates::FirstWins).remove(0)
}

fn part(segment: &MemorySegment, offset: usize, len: usize) -> LocalBuffer<'_> {
    LocalBuffer::span_of(segment.span().slice(offset, len).unwrap())
}

fn fill(segment: &MemorySegment, offset: usize, value: &[u8]) {
    yb_mem::copy(segment.span().slice(offset, value.len()).unwrap(), Span::source(value), CopyHint::Cached).unwrap();
}

#[test]
fn objects_of_all_sizes_go_there_and_back() {
    let host = Host::start();
    // The staging window is smaller than the largest object, and than the batch.
    let dummy = host.attach(MIB as u64);
    for (seed, len) in [1, 4096, 65_537, MIB, MIB + 1, 9 * MIB].into_iter().enumerate() {
        let (key, value) = (format!("k{seed}"), bytes(seed as u64, len));
        put(&dummy, &key, &value).unwrap();
        put(&dummy, &key, b"another").unwrap();
        assert!(dummy.get(&key).unwrap() == value, "{len} bytes");
        assert!(host.client.get(&key).unwrap() == value, "{len} bytes");
        assert_eq!((dummy.size(&key), dummy.exists(&key)), (Ok(len as u64), Ok(true)));
        let mut room = vec![0; len + 5];
        let item = GetItem::new(key.as_bytes(), &mut room);
        assert_eq!(dummy.batch_get_items([item]), [Ok(len as u64)]);
        assert!(room[..len] == value && room[len..] == [0; 5]);
        let mut short = vec![0; len - 1];
        let refused = dummy.batch_get_items([GetItem::new(key.as_bytes(), &mut short)]).remove(0).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::INVALID_PARAMS);
        let found = dummy.find(&key).unwrap();
        assert_eq!(found.size(), len as u64);
        assert_eq!(dummy.remove(&key, true), Ok(()));
        assert_eq!(dummy.get(&key), Err(Error::NotFound));
        // What was found stays as it was, whatever becomes of the object.
        room.fill(0);
        assert_eq!(found.read(&[LocalBuffer::destination(&mut room)]), Ok(len as u64));
        assert!(room[..len] == value);
    }
    let items: Vec<(String, Vec<u8>)> = (0..100).map(|i| (format!("b{i}"), bytes(i, 40_000 + i as usize))).collect();
    let put: Vec<PutItem<'_>> = items.iter().map(|(key, value)| PutItem::new(key.as_bytes(), value)).collect();
    let stored = dummy.batch_put_items(&put, &ReplicateConfig::default(), Duplicates::FirstWins);
    assert!(stored.iter().all(Result::is_ok), "{stored:?}");
    let keys: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).collect();
    assert!(dummy.batch_get(&keys).into_iter().zip(&items).all(|(got, (_, value))| got.as_ref() == Ok(value)));
    assert_eq!(dummy.batch_exists(&["b0", "absent"]), [Ok(true), Ok(false)]);
    assert_eq!(dummy.batch_remove(&["b0", "absent"], true), [Ok(()), Err(Error::NotFound)]);
    assert_eq!(dummy.remove_by_regex("^b[1-9]$", true), Ok(9));
    assert_eq!(dummy.remove_all(true), Ok(90));
    // Windows made for large values are gone with them.
    wait_until("one window is left", || host.daemon().stats().windows == 1);
}

#[test]
fn any_range_of_shared_memory_is_moved_without_a_copy_here() {
    let host = Host::start();
    let dummy = host.attach(0);
    let memory = dummy.allocate_shared(4 * MIB as u64).unwrap();
    let value = bytes(1, MIB);
    fill(&memory, 100, &value);
    let (first, second) = (memory.address(), memory.address() + 2 * MIB as u64);
    assert_eq!(dummy.register_buffer(first, 2 * MIB as u64), Ok(()));
    assert_eq!(dummy.register_buffer(second, 2 * MIB as u64), Ok(()));
    assert_eq!(host.daemon().stats().windows, 2);
    let outside = dummy.register_buffer(second, 2 * MIB as u64 + 1).unwrap_err();
    assert_eq!(outside.code().0, -1);
    let stack = [0_u8; 64];
    assert_eq!(dummy.register_buffer(stack.as_ptr() as u64, 64).unwrap_err().code().0, -1);
    // One object from two parts, the second of which crosses from one registration to the next.
    let from: Parts<'_> = [part(&memory, 100, 1000), part(&memory, 1100, MIB - 1000)].into_iter().collect();
    let items = [PutItem { key: b"parts", from }];
    assert_eq!(dummy.batch_put_items(&items, &ReplicateConfig::default(), Duplicates::LastWins), [Ok(())]);
    assert!(host.client.get("parts").unwrap() == value);
    let into: Parts<'_> = [part(&memory, 2 * MIB - 7, 7), part(&memory, 2 * MIB, MIB)].into_iter().collect();
    assert_eq!(dummy.batch_get_items([GetItem { key: b"parts", into }]), [Ok(MIB as u64)]);
    assert!(memory.span().slice(2 * MIB - 7, MIB).unwrap().to_vec() == value);
    assert_eq!(dummy.unregister_buffer(first), Ok(()));
    assert_eq!(host.daemon().stats().windows, 2);
    assert_eq!(dummy.unregister_buffer(second), Ok(()));
    assert_eq!(host.daemon().stats().windows, 1);
    assert!(dummy.unregister_buffer(second).is_err());
    assert!(dummy.release_shared(memory.address()));
}

#[test]
fn the_last_or_the_first_of_repeated_keys_is_written() {
    let host = Host::start();
    let dummy = host.attach(0);
    let put = |key: &str, repeated| {
        let items = [PutItem::new(key.as_bytes(), b"first"), PutItem::new(key.as_bytes(), b"second")];
        dummy.batch_put_items(&items, &ReplicateConfig::default(), repeated)
    };
    assert_eq!(put("a", Duplicates::FirstWins), [Ok(()), Ok(())]);
    assert_eq!(put("b", Duplicates::LastWins), [Ok(()), Ok(())]);
    assert_eq!(dummy.batch_get(&["a", "b"]), [Ok(b"first".to_vec()), Ok(b"second".to_vec())]);
}

#[test]
fn a_restarted_daemon_gets_every_window_again() {
    let mut host = Host::start();
    let dummy = host.attach(0);
    let memory = dummy.allocate_shared(MIB as u64).unwrap();
    dummy.register_buffer(memory.address(), MIB as u64).unwrap();
    put(&dummy, "before", b"value").unwrap();
    host.restart_daemon();
    // Whether or not a ping came first: a call that the new daemon refuses is made again with its windows there.
    let items = [PutItem { key: b"after", from: [part(&memory, 0, 4096)].into_iter().collect() }];
    assert_eq!(dummy.batch_put_items(&items, &ReplicateConfig::default(), Duplicates::LastWins), [Ok(())]);
    assert_eq!(dummy.get("before"), Ok(b"value".to_vec()));
    wait_until("healthy again", || dummy.health() == Health::Healthy);
    assert_eq!(host.daemon().stats().windows, 2);
    drop(host.daemon.take());
    wait_until("the end of the daemon is seen", || dummy.health() == Health::MasterUnreachable);
    assert_eq!(dummy.get("before").unwrap_err().code(), ErrorCode::RPC_FAIL);
    dummy.close();
    assert_eq!(dummy.get("before"), Err(Error::Closed));
    assert_eq!(dummy.health(), Health::Closed);
}

#[test]
fn a_dummy_that_leaves_takes_its_windows_and_a_wrong_address_is_no_daemon() {
    let host = Host::start();
    let dummy = host.attach(0);
    assert_eq!(host.daemon().stats().dummies, 1);
    dummy.close();
    assert_eq!(host.daemon().stats(), yb_daemon::DaemonStats::default());
    let nobody = std::net::SocketAddr::from(([127, 0, 0, 1], yb_env::free_port().unwrap()));
    let refused = Dummy::attach(&DummyConfig::new(nobody.to_string(), 0)).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::RPC_FAIL);
    assert!(matches!(Dummy::attach(&DummyConfig::new("no such host", 0)), Err(Error::Setup { .. })));
}

/// Calls go on in many threads while dummies come and go.
#[test]
fn dummies_do_not_disturb_each_other() {
    let host = Host::start();
    let stop = Arc::new(AtomicBool::new(false));
    let workers: Vec<_> = (0..3)
        .map(|worker| {
            let (dummy, stop) = (host.attach(2 * MIB as u64), Arc::clone(&stop));
            let work = move || {
                let mut rounds = 0_u64;
                while !stop.load(Ordering::Relaxed) || rounds < 20 {
                    let (key, value) = (format!("{worker}/{rounds}"), bytes(rounds, 300_000));
                    put(&dummy, &key, &value).unwrap();
                    assert!(dummy.get(&key).unwrap() == value);
                    dummy.remove(&key, true).unwrap();
                    rounds += 1;
                }
                rounds
            };
            yb_env::spawn_thread("worker", work).unwrap()
        })
        .collect();
    for round in 0..20 {
        let dummy = host.attach(0);
        put(&dummy, &format!("guest/{round}"), b"value").unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        assert!(worker.join().unwrap() >= 20);
    }
}

const CHILD: &str = "YB_DUMMY_CHILD";

/// Not a test of its own: the process that the next one kills.
#[test]
fn child() {
    let Ok(daemon) = std::env::var(CHILD) else { return };
    let dummy = Dummy::attach(&DummyConfig::new(daemon, 8 * MIB as u64)).unwrap();
    let memory = dummy.allocate_shared(4 * MIB as u64).unwrap();
    dummy.register_buffer(memory.address(), memory.len()).unwrap();
    put(&dummy, "childs", &bytes(7, 100_000)).unwrap();
    println!("attached");
    std::io::stdout().flush().unwrap();
    // Until it is killed.
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_killed_dummy_is_reclaimed_at_once_and_its_objects_stay() {
    let host = Host::start();
    let other = host.attach(0);
    let started = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, host.daemon().address().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = Killed(started.unwrap());
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.contains("attached")));
    let stats = host.daemon().stats();
    assert_eq!((stats.dummies, stats.windows), (2, 3));
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    let clock = Clock::real();
    let killed = clock.now();
    wait_until("the killed dummy is forgotten", || host.daemon().stats().dummies == 1);
    // Its silence would be noticed after ten seconds.
    assert!(clock.now().since(killed) < Duration::from_secs(8));
    assert_eq!(host.daemon().stats().windows, 1);
    assert!(other.get("childs").unwrap() == bytes(7, 100_000));
}

#[test]
fn probes_and_ranges_go_through_the_daemon() {
    let host = Host::start();
    let dummy = host.attach(MIB as u64);
    let value = bytes(7, 100_000);
    for key in ["a", "b", "c"] {
        put(&dummy, key, &value).unwrap();
    }
    let keys = ["a", "b", "c", "missing"];
    assert_eq!(dummy.batch_probe(&keys, ProbePolicy::None), [Ok(true), Ok(true), Ok(true), Ok(false)]);
    assert_eq!(host.client.remove("c", false), Ok(()), "a probe of this kind takes no lease");
    assert_eq!(dummy.batch_probe(&keys[..2], ProbePolicy::LastHitOnly(2)), [Ok(true), Ok(true)]);
    assert_eq!(host.client.remove("b", false).unwrap_err().code(), ErrorCode::OBJECT_HAS_LEASE);
    for answer in dummy.batch_probe(&keys, ProbePolicy::LastHitOnly(3)) {
        assert_eq!(answer.unwrap_err().code(), ErrorCode::INVALID_PARAMS, "four keys are no groups of three");
    }

    let (mut first, mut last, mut past) = (vec![0; 10], vec![0; 1000], vec![0; 2]);
    let fragment = |offset: u64, memory| Fragment { offset, memory: LocalBuffer::destination(memory) };
    let fragments = vec![fragment(0, &mut first), fragment(99_000, &mut last), fragment(99_999, &mut past)];
    let mut missing = vec![0; 5];
    let items = [
        RangesItem { key: b"a", fragments },
        RangesItem { key: b"missing", fragments: vec![fragment(0, &mut missing)] },
    ];
    let answers = dummy.batch_get_ranges(&items);
    drop(items);
    assert_eq!((&answers[0][0], &answers[0][1]), (&Ok(10), &Ok(1000)));
    assert_eq!(answers[0][2].as_ref().unwrap_err().code(), ErrorCode::INVALID_PARAMS);
    assert_eq!(answers[1], [Err(Error::NotFound)]);
    assert!(first == value[..10] && last == value[99_000..] && past == [0, 0]);
}
