//! Upserts, ranges, snapshots, sessions and checksums, under our master and under Mooncake's own when it is there.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{MIB, bytes, config, node, on, plain, replicas, requester, wait_until, wheel_master};
use yb_client::{Client, ClientConfig, Error, Fragment, LocalBuffer, ProbePolicy, PutOutcome, RangesItem};
use yb_master::{Master, MasterConfig};
use yb_types::ErrorCode;

/// Runs a test under each master; the second argument says whether it is ours.
fn under_each(test: impl Fn(&str, bool)) {
    let (_master, address) = ours(|_| ());
    test(&address, true);
    if let Some((_process, address)) = wheel_master(&["--default_kv_lease_ttl=2000"]) {
        test(&address, false);
    }
}

fn ours(change: impl FnOnce(&mut MasterConfig)) -> (Master, String) {
    let mut config = MasterConfig::embedded();
    change(&mut config);
    let master = Master::start(config).unwrap();
    let address = master.rpc_address().to_string();
    (master, address)
}

/// One range of an object into memory.
fn into<'a>(key: &'a str, offset: u64, memory: &'a mut [u8]) -> RangesItem<'a> {
    let fragments = vec![Fragment { offset, memory: LocalBuffer::destination(memory) }];
    RangesItem { key: key.as_bytes(), fragments }
}

/// One range of an object from memory.
fn from<'a>(key: &'a str, offset: u64, memory: &'a [u8]) -> RangesItem<'a> {
    let fragments = vec![Fragment { offset, memory: LocalBuffer::source(memory) }];
    RangesItem { key: key.as_bytes(), fragments }
}

fn codes<T>(answers: Vec<Result<T, Error>>) -> Vec<i32> {
    answers.into_iter().map(|answer| answer.map_or_else(|error| error.code().0, |_| 0)).collect()
}

#[test]
fn an_upsert_takes_the_place_of_what_is_there() {
    under_each(|master, _| {
        let _nodes = (node(master, 32 * MIB), node(master, 32 * MIB));
        let client = requester(master);
        for (seed, len) in [1000, 1000, 3 * MIB as usize, 10].into_iter().enumerate() {
            let value = bytes(seed as u64, len);
            client.upsert("k", &value, &replicas(2)).unwrap();
            assert!(client.get("k").unwrap() == value, "{len} bytes");
            assert_eq!(client.size("k"), Ok(len as u64));
        }
        assert_eq!(client.put("k", b"other", &plain()), Ok(PutOutcome::AlreadyExists));
        let items: Vec<(String, Vec<u8>)> = (0..20).map(|i| (format!("b{}", i % 15), bytes(i, 5000))).collect();
        assert!(client.batch_upsert(&items, &plain()).iter().all(Result::is_ok));
        assert!(client.get("b3").unwrap() == bytes(3, 5000), "the first of several counts");
        assert_eq!(codes(client.batch_upsert(&[("", "v"), ("b0", "v")], &plain())), [-600, 0]);
        assert_eq!(client.get("b0"), Ok(b"v".to_vec()));
    });
}

#[test]
fn a_reader_sees_the_old_bytes_or_the_new_ones_and_never_both() {
    let (_master, address) = ours(|_| ());
    let _nodes = (node(&address, 64 * MIB), node(&address, 64 * MIB));
    let (writer, reader) = (requester(&address), requester(&address));
    let versions: Vec<Vec<u8>> = (0..4).map(|seed| vec![seed; 200_000]).collect();
    writer.put("k", &versions[0], &plain()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..60 {
                // Space of objects that somebody read is withheld for a while.
                wait_until("there is space", || match writer.upsert("k", &versions[round % 4], &plain()) {
                    Ok(()) => true,
                    Err(Error::NoSpace(_)) => false,
                    Err(error) => panic!("{error}"),
                });
            }
            done.store(true, Ordering::Release);
        });
        while !done.load(Ordering::Acquire) {
            let value = reader.get("k").unwrap();
            assert!(versions.contains(&value), "bytes of two versions, or of none");
        }
    });
}

#[test]
fn ranges_of_many_objects_come_together() {
    under_each(|master, _| {
        let nodes = [node(master, 32 * MIB), node(master, 32 * MIB)];
        let client = requester(master);
        let (a, b) = (bytes(1, 100_000), bytes(2, 50_000));
        client.put("a", &a, &on(&nodes[0])).unwrap();
        client.put("b", &b, &on(&nodes[1])).unwrap();
        let mut memory = vec![0; 4096];
        let (first, rest) = memory.split_at_mut(1000);
        let (second, third) = rest.split_at_mut(96);
        let mut over = [7; 10];
        let fragments = vec![
            Fragment { offset: 99_000, memory: LocalBuffer::destination(first) },
            Fragment { offset: 99_995, memory: LocalBuffer::destination(&mut over) },
            Fragment { offset: 5, memory: LocalBuffer::destination(second) },
        ];
        let items = vec![RangesItem { key: b"a", fragments }, into("b", 40_000, third), into("c", 0, &mut [])];
        let answers = client.batch_get_ranges(items);
        assert_eq!(answers[0][0], Ok(1000));
        assert_eq!(answers[0][1].clone().unwrap_err().code(), ErrorCode::INVALID_PARAMS);
        assert_eq!((&answers[0][2], &answers[1][0]), (&Ok(96), &Ok(3000)));
        assert_eq!(answers[2], [Err(Error::NotFound)]);
        assert!(memory[..1000] == a[99_000..] && memory[1000..1096] == a[5..101]);
        assert!(memory[1096..] == b[40_000..43_000]);
        assert_eq!(over, [7; 10], "nothing of a range that is not inside");
        assert_eq!(client.metrics().bytes_read, 4096);
    });
}

#[test]
fn a_range_comes_from_the_next_replica_when_an_owner_is_gone() {
    let (_master, address) = ours(|_| ());
    let (first, second) = (node(&address, 32 * MIB), node(&address, 32 * MIB));
    let client = requester(&address);
    for i in 0..8 {
        client.put(format!("k{i}"), &bytes(i, 10_000), &replicas(2)).unwrap();
    }
    let keys: Vec<String> = (0..8).map(|i| format!("k{i}")).collect();
    let snapshot = client.ranges_snapshot(&keys);
    first.close();
    drop(first);
    for (i, key) in keys.iter().enumerate() {
        let mut memory = vec![0; 100];
        assert_eq!(client.batch_get_ranges_of(&snapshot, vec![into(key, 500, &mut memory)]), [[Ok(100)]]);
        assert!(memory == bytes(i as u64, 10_000)[500..600]);
    }
    assert!(client.metrics().replica_fallbacks > 0);
    drop(second);
}

#[test]
fn a_snapshot_knows_what_was_there() {
    under_each(|master, _| {
        let _node = node(master, 32 * MIB);
        let client = requester(master);
        client.put("a", b"0123456789", &plain()).unwrap();
        let snapshot = client.ranges_snapshot(&["a", "later"]);
        client.put("later", b"0123456789", &plain()).unwrap();
        let mut memory = [[0; 4]; 3];
        let [first, second, third] = &mut memory;
        let items = vec![into("a", 3, first), into("later", 0, second), into("other", 0, third)];
        let answers = client.batch_get_ranges_of(&snapshot, items);
        assert_eq!(answers.into_iter().map(codes).collect::<Vec<_>>(), [[0], [-704], [-600]]);
        assert_eq!(&memory[0], b"3456");
    });
}

#[test]
fn a_put_session_publishes_what_was_written_and_zeros() {
    under_each(|master, _| {
        let _nodes = (node(master, 32 * MIB), node(master, 32 * MIB));
        let client = requester(master);
        // What lies in the space before must not come out again.
        client.put("before", &vec![9; 200_000], &replicas(2)).unwrap();
        client.remove("before", true).unwrap();
        assert_eq!(
            codes(client.put_session_start(&["k", "k", "", "z"], &[200_000, 5, 1, 0], &replicas(2))),
            [0, -705, -600, -600]
        );
        assert_eq!(codes(client.put_session_start(&["k"], &[1], &plain())), [-600]);
        assert_eq!(client.exists("k"), Ok(false));
        let value = bytes(4, 200_000);
        let pieces: Vec<usize> = vec![150_000, 70_000, 0];
        for offset in pieces {
            let part = &value[offset..offset + 50_000];
            assert_eq!(client.put_session_write(&[from("k", offset as u64, part)]), [Ok(50_000)]);
        }
        assert_eq!(codes(client.put_session_write(&[from("k", 199_999, b"ab"), from("none", 0, b"a")])), [-600, -600]);
        assert_eq!(codes(client.put_session_end(&["k", "none", "k"])), [0, -600, 0]);
        let mut expected = value;
        expected[50_000..70_000].fill(0);
        expected[120_000..150_000].fill(0);
        assert!(client.get("k").unwrap() == expected);
        assert_eq!(client.query("k").unwrap().replicas.len(), 2);
        assert_eq!(codes(client.put_session_write(&[from("k", 0, b"a")])), [-600]);
        assert_eq!(codes(client.put_session_start(&["k"], &[5], &plain())), [-705]);
    });
}

#[test]
fn a_put_session_that_is_given_up_leaves_nothing() {
    under_each(|master, _| {
        let _node = node(master, 32 * MIB);
        let client = requester(master);
        assert_eq!(codes(client.put_session_start(&["a", "b"], &[100, 100], &plain())), [0, 0]);
        assert_eq!(codes(client.put_session_revoke(&["a", "none"])), [0, -600]);
        assert_eq!(client.exists("a"), Ok(false));
        assert_eq!(codes(client.put_session_start(&["a"], &[10], &plain())), [0]);
        client.close();
        // Whoever comes next can write the keys at once.
        let next = requester(master);
        let stored = next.batch_put(&[("a", "1"), ("b", "2")], &plain());
        assert_eq!(stored, [Ok(PutOutcome::Stored), Ok(PutOutcome::Stored)]);
    });
}

#[test]
fn a_put_session_whose_owner_is_gone_does_not_publish() {
    let (_master, address) = ours(|_| ());
    let (first, second) = (node(&address, 32 * MIB), node(&address, 32 * MIB));
    let client = requester(&address);
    assert_eq!(codes(client.put_session_start(&["k"], &[100], &on(&first))), [0]);
    assert_eq!(client.put_session_write(&[from("k", 0, &[1; 40])]), [Ok(40)]);
    first.close();
    drop(first);
    assert_eq!(codes(client.put_session_write(&[from("k", 40, &[1; 60])])), [-800]);
    assert_eq!(codes(client.put_session_end(&["k"])), [-800]);
    assert_eq!(client.exists("k"), Ok(false));
    drop(second);
}

#[test]
fn writers_of_one_session_do_not_disturb_each_other() {
    let (_master, address) = ours(|_| ());
    let _node = node(&address, 32 * MIB);
    let client = requester(&address);
    let value = bytes(6, 64 * 10_000);
    assert_eq!(codes(client.put_session_start(&["k"], &[value.len() as u64], &plain())), [0]);
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (client, value) = (&client, &value);
            scope.spawn(move || {
                for piece in (thread..64).step_by(4) {
                    let at = piece * 10_000;
                    let item = from("k", at as u64, &value[at..at + 10_000]);
                    assert_eq!(client.put_session_write(&[item]), [Ok(10_000)]);
                }
            });
        }
    });
    assert_eq!(codes(client.put_session_end(&["k"])), [0]);
    assert!(client.get("k").unwrap() == value);
}

#[test]
fn a_get_session_reads_one_object_or_is_over() {
    let (_master, address) = ours(|config| config.catalog.lease_ttl = Duration::from_millis(400));
    let _node = node(&address, 32 * MIB);
    let client = requester(&address);
    client.put("k", b"0123456789", &plain()).unwrap();
    assert_eq!(codes(client.get_session_start(&["k", "none", ""])), [0, -704, -600]);
    let read = |offset, len| {
        let mut memory = vec![0; len];
        let answer = client.get_session_read(vec![into("k", offset, &mut memory)]).pop().unwrap();
        answer.map(|_| memory)
    };
    assert_eq!(read(2, 3), Ok(b"234".to_vec()));
    assert_eq!(read(8, 3).unwrap_err().code(), ErrorCode::INVALID_PARAMS);
    // The lease is renewed while it is the same object, however long that takes.
    let began = client.metrics().objects_read;
    let clock = yb_env::Clock::real();
    let end = clock.now() + Duration::from_millis(1500);
    while clock.now() < end {
        assert_eq!(read(0, 2), Ok(b"01".to_vec()));
        yb_env::sleep(Duration::from_millis(20));
    }
    assert!(client.metrics().objects_read > began);
    client.upsert("k", b"abcdefghij", &plain()).unwrap();
    wait_until("the session notices", || match read(0, 2) {
        Ok(bytes) => {
            assert_eq!(bytes, b"01", "bytes of another object");
            false
        }
        Err(error) => error == Error::LeaseExpired,
    });
    assert_eq!(read(0, 2).unwrap_err().code(), ErrorCode::INVALID_PARAMS, "the session is over");
    assert_eq!(codes(client.get_session_start(&["k"])), [0]);
    assert_eq!(codes(client.get_session_start(&["k"])), [0]);
    assert_eq!(read(0, 2), Ok(b"ab".to_vec()));
    client.get_session_end(&["k", "none"]);
    assert_eq!(read(0, 2), Ok(b"ab".to_vec()), "another user has it still");
    client.get_session_end(&["k"]);
    assert_eq!(read(0, 2).unwrap_err().code(), ErrorCode::INVALID_PARAMS);
}

#[test]
fn probes_lease_what_their_policy_says() {
    let (_master, address) = ours(|_| ());
    let _node = node(&address, 16 * MIB);
    let client = requester(&address);
    let keys = ["a", "b", "c", "d"];
    for key in keys {
        client.put(key, b"v", &plain()).unwrap();
    }
    assert_eq!(client.batch_probe(&["a", "none", ""], ProbePolicy::None)[..2], [Ok(true), Ok(false)]);
    assert_eq!(codes(client.batch_probe(&["a", "b", "c"], ProbePolicy::LastHitOnly(2))), [-600; 3]);
    let found = client.batch_probe(&["a", "b", "c", "d", "none", "d"], ProbePolicy::LastHitOnly(2));
    assert_eq!(found, [Ok(true), Ok(true), Ok(true), Ok(true), Ok(false), Ok(true)]);
    assert_eq!(codes(client.batch_remove(&keys, false)), [0, 0, -706, -706]);
}

#[test]
fn replicas_are_cleared_by_their_writer_only() {
    under_each(|master, is_ours| {
        let (first, second) = (node(master, 16 * MIB), node(master, 16 * MIB));
        let (writer, other) = (requester(master), requester(master));
        writer.put("a", b"v", &on(&first)).unwrap();
        writer.put("b", b"v", &on(&second)).unwrap();
        if is_ours {
            assert_eq!(other.clear_replicas(&["a", "b"], "").unwrap(), Vec::<Vec<u8>>::new());
        }
        assert_eq!(writer.clear_replicas(&["a", "b"], second.hostname()).unwrap(), [b"b".to_vec()]);
        assert_eq!(writer.clear_replicas(&["a", "none"], "").unwrap(), [b"a".to_vec()]);
        assert_eq!(writer.batch_exists(&["a", "b"]), [Ok(false), Ok(false)]);
    });
}

#[test]
fn a_checksum_goes_along_and_is_compared() {
    under_each(|master, _| {
        let _node = node(master, 16 * MIB);
        let careful = requester(master);
        let careless = Client::connect(ClientConfig { checksum: false, ..config(master) }).unwrap();
        let value = bytes(8, 100_000);
        careful.put("k", &value, &plain()).unwrap();
        assert!(careful.query("k").unwrap().checksum.is_some());
        assert!(careful.get("k").unwrap() == value && careless.get("k").unwrap() == value);
        careful.upsert("k", b"123456789", &plain()).unwrap();
        assert_eq!(careful.query("k").unwrap().checksum, Some(0x6C40_DF5F_0B49_7347), "the standard's check value");
        careless.put("plain", &value, &plain()).unwrap();
        assert_eq!(careful.query("plain").unwrap().checksum, None);
        assert!(careful.get("plain").unwrap() == value, "nothing to compare with");
    });
}

#[test]
fn a_put_session_is_over_after_five_minutes_whatever_its_user_does_then() {
    let (_master, address) = ours(|_| ());
    let _node = node(&address, 16 * MIB);
    let clock = yb_env::Clock::manual();
    let client = Client::connect_with_clock(config(&address), clock.clone()).unwrap();
    let other = requester(&address);
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    assert_eq!(codes(client.put_session_start(&["late", "dead"], &[8, 8], &plain())), [0, 0]);
    let write = |key| codes(client.put_session_write(&[from(key, 0, b"1234")]));
    clock.advance(minutes(5) - Duration::from_nanos(1));
    assert_eq!(write("late"), [0]);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(write("late"), [-600]);
    assert_eq!(codes(client.put_session_end(&["late"])), [-600], "its space may be another writer's soon");
    assert_eq!(other.get("late"), Err(Error::NotFound));
    assert_eq!(other.put("late", b"again", &plain()), Ok(PutOutcome::Stored), "the key is free");
    // One that nobody ends is given up when the next one starts.
    let busy = other.put("dead", b"x", &plain());
    assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}");
    assert_eq!(codes(client.put_session_start(&["next"], &[8], &plain())), [0]);
    assert_eq!(other.put("dead", b"x", &plain()), Ok(PutOutcome::Stored));
}
