//! Interleavings of threads, chosen by a scheduler: the lease word, and an unmount, an eviction or a removal beside a put
//! and a lookup. `cargo test -p yb-catalog --features shuttle --test interleavings`; `YB_SCHEDULES` says how many are
//! tried of each race. `scripts/test_interleavings.sh` also plants faults and expects them to be found.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::Arc;

use common::*;
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};
use yb_catalog::*;
use yb_types::*;

const SCHEDULES: usize = 500;
const SEED: u64 = 0x5eed;
const SEGMENT: u64 = 1 << 16;

fn explore(race: fn()) {
    let schedules = std::env::var("YB_SCHEDULES").ok().and_then(|text| text.parse().ok()).unwrap_or(SCHEDULES);
    run(RandomScheduler::new_from_seed(SEED, schedules), race);
    run(PctScheduler::new_from_seed(SEED, 3, schedules), race);
}

fn run(scheduler: impl Scheduler + 'static, race: fn()) {
    Runner::new(scheduler, Config::new()).run(race);
}

/// What each thread holds: the catalog and its own time.
#[derive(Clone)]
struct At {
    catalog: Arc<Catalog>,
    now: MonotonicTime,
}

impl At {
    fn new(settings: CatalogSettings, segments: &[(&str, u64)]) -> At {
        let pool = Pool::with(settings, segments);
        At { now: pool.now, catalog: Arc::new(pool.catalog) }
    }

    fn later(&self, by: std::time::Duration) -> At {
        At { now: self.now + by, ..self.clone() }
    }

    fn caller(&self) -> Caller {
        Caller { tenant: T, client: client(1), now: self.now }
    }

    fn start(&self, key: &str, size: u64) -> Result<Found, PutRefusal> {
        let config = ReplicateConfig::default();
        let call = PutCall { caller: self.caller(), config: &config, allow_empty: false, waited: false };
        let (mut answer, mut effects) = (None, Effects::default());
        let items = [(key.as_bytes(), size)];
        self.catalog.put_start(&call, items, &mut || 7, &mut effects, |_, found| answer = Some(found.map(Found::from)));
        answer.unwrap()
    }

    fn end(&self, key: &str) -> Result<(), ErrorCode> {
        let mut answer = None;
        self.catalog.put_end(&self.caller(), ReplicaType::ALL, [(key, None)], |_, result| answer = Some(result));
        answer.unwrap()
    }

    fn revoke(&self, key: &str) -> Result<(), ErrorCode> {
        let (mut answer, mut effects) = (None, Effects::default());
        let caller = self.caller();
        self.catalog.put_revoke(&caller, ReplicaType::ALL, [key], &mut effects, |_, result| answer = Some(result));
        answer.unwrap()
    }

    fn put(&self, key: &str, size: u64) -> Found {
        let found = self.start(key, size).unwrap();
        self.end(key).unwrap();
        found
    }

    fn get(&self, key: &str) -> Result<Found, ErrorCode> {
        let mut answer = None;
        self.catalog.get_replicas(T, [key], self.now, |_, found| answer = Some(found.map(Found::from)));
        answer.unwrap()
    }

    fn remove(&self, key: &str, force: Force) -> Result<(), ErrorCode> {
        let mut answer = None;
        self.catalog.remove(T, [key], force, self.now, |_, result| answer = Some(result));
        answer.unwrap()
    }

    fn unmount(&self, number: u64, owner: u64) {
        let id = SegmentId(Uuid { first: number, second: 2 });
        self.catalog.unmount(id, client(owner), self.now, &mut Effects::default()).unwrap();
    }

    fn upkeep(&self) {
        while self.catalog.upkeep(1000, self.now, &mut Effects::default()) {}
    }

    fn evict(&self, bytes: u64) -> Reclaimed {
        let goal = EvictionGoal { target: ByteLen(bytes), at_least: ByteLen(bytes) };
        self.catalog.evict(&goal, 1000, self.now)
    }
}

fn one_segment() -> At {
    At::new(CatalogSettings::default(), &[("a", SEGMENT)])
}

/// Readers at different times: the lease that is left is the latest.
#[test]
fn a_lease_never_moves_back() {
    explore(|| {
        let pool = one_segment();
        pool.put("key", 64);
        let readers: Vec<_> = (1..=3)
            .map(|at| {
                let reader = pool.later(at * SECOND);
                thread::spawn(move || reader.get("key").unwrap())
            })
            .collect();
        readers.into_iter().for_each(|reader| drop(reader.join().unwrap()));
        let lease = pool.catalog.settings().lease_ttl;
        let before = pool.later(3 * SECOND + lease - SECOND / 1000);
        assert_eq!(before.remove("key", Force::No), Err(ErrorCode::OBJECT_HAS_LEASE));
        assert_eq!(pool.later(3 * SECOND + lease).remove("key", Force::No), Ok(()));
    });
}

/// A put beside an unmount: nothing of the segment is left, and nothing that comes under its index is taken for its.
#[test]
fn an_unmount_leaves_nothing_behind() {
    explore(|| {
        let pool = one_segment();
        let writer = pool.clone();
        // No end: it would notice that the segment is gone.
        let writing = thread::spawn(move || writer.start("key", 64).is_ok());
        pool.unmount(1, 100);
        pool.upkeep();
        writing.join().unwrap();
        pool.upkeep();
        pool.catalog.mount(segment(2, "b", SEGMENT), client(101), pool.now, &mut Effects::default()).unwrap();
        assert_eq!(pool.get("key").map(|found| found.replicas), Err(ErrorCode::OBJECT_NOT_FOUND));
        assert_eq!(pool.catalog.stats().keys, 0);
        assert_eq!(pool.catalog.stats().allocated_bytes, 0);
        pool.catalog.assert_consistent();
    });
}

/// Who was given the address of an object may read there until the lease ends, whatever takes the object away meanwhile.
fn reader_beside(take_away: fn(&At)) {
    let pool = one_segment();
    pool.put("key", SEGMENT);
    let (reader, taker) = (pool.clone(), pool.clone());
    let reading = thread::spawn(move || reader.get("key"));
    let taking = thread::spawn(move || take_away(&taker));
    let read = reading.join().unwrap();
    taking.join().unwrap();
    // Whole segment: a put finds space only where the object was.
    let next = pool.start("other", SEGMENT);
    match read {
        Ok(_) => assert!(next.is_err(), "the reader's address was given out: {next:?}"),
        Err(code) => assert_eq!(code, ErrorCode::OBJECT_NOT_FOUND),
    }
    if next.is_err() {
        let free = pool.later(pool.catalog.settings().lease_ttl);
        assert!(free.start("other", SEGMENT).is_ok(), "the space came free with the lease");
    }
    pool.catalog.assert_consistent();
}

#[test]
fn an_eviction_beside_a_reader() {
    explore(|| {
        reader_beside(|pool| {
            pool.evict(SEGMENT);
        })
    });
}

#[test]
fn a_forced_removal_beside_a_reader() {
    explore(|| reader_beside(|pool| pool.remove("key", Force::Yes).unwrap()));
}

/// Two ways to end a write: one of them wins, and both sides know which.
#[test]
fn an_end_beside_a_revoke() {
    explore(|| {
        let pool = one_segment();
        pool.start("key", SEGMENT).unwrap();
        let (ender, revoker) = (pool.clone(), pool.clone());
        let ending = thread::spawn(move || ender.end("key"));
        let revoking = thread::spawn(move || revoker.revoke("key"));
        let (ended, revoked) = (ending.join().unwrap(), revoking.join().unwrap());
        match (ended, revoked) {
            (Ok(()), Err(ErrorCode::INVALID_WRITE)) => assert!(pool.get("key").is_ok()),
            (Err(ErrorCode::OBJECT_NOT_FOUND), Ok(())) => {
                assert_eq!(pool.get("key"), Err(ErrorCode::OBJECT_NOT_FOUND));
                assert!(pool.start("other", SEGMENT).is_err(), "the writer may still write there");
            }
            other => panic!("{other:?}"),
        }
        pool.catalog.assert_consistent();
    });
}

/// Two writers of one key: one starts, the other is told why not.
#[test]
fn two_writers_of_a_key() {
    explore(|| {
        let pool = one_segment();
        let (one, two) = (pool.clone(), pool.clone());
        let first = thread::spawn(move || one.start("key", 64).map(|_| one.end("key")));
        let second = two.start("key", 64);
        let first = first.join().unwrap();
        match (&first, &second) {
            (Ok(ended), Err(PutRefusal::Busy | PutRefusal::Exists)) => assert_eq!(*ended, Ok(())),
            (Err(PutRefusal::Busy), Ok(_)) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(pool.catalog.stats().keys, 1);
        pool.catalog.assert_consistent();
    });
}

/// An eviction beside a put of the same bytes: no extent has two owners.
#[test]
fn an_eviction_beside_puts() {
    explore(|| {
        let pool = one_segment();
        (0..4).for_each(|i| drop(pool.put(&format!("old-{i}"), SEGMENT / 4)));
        let (one, two) = (pool.clone(), pool.clone());
        let putting = thread::spawn(move || one.start("new-1", SEGMENT / 4));
        let evicting = thread::spawn(move || two.evict(SEGMENT / 2));
        let second = pool.start("new-2", SEGMENT / 4);
        let first = putting.join().unwrap();
        evicting.join().unwrap();
        if let (Ok(first), Ok(second)) = (&first, &second) {
            assert_ne!(first.replicas[0].1, second.replicas[0].1);
        }
        assert!(first.is_ok() || second.is_ok());
        pool.catalog.assert_consistent();
    });
}

/// Removals whose space comes free together, beside an unmount and a mount that takes the index over: each extent goes back
/// to the segment that it is of.
#[test]
fn a_batch_of_removals_beside_a_change_of_segments() {
    explore(|| {
        let pool = one_segment();
        let old = ["old-1", "old-2", "old-3"];
        old.iter().for_each(|key| drop(pool.put(key, 64)));
        let (remover, mounter) = (pool.clone(), pool.clone());
        let removing = thread::spawn(move || {
            remover.catalog.remove(T, old, Force::No, remover.now, |_, _| {});
        });
        let mounting = thread::spawn(move || {
            mounter.unmount(1, 100);
            mounter.upkeep();
            let next = segment(2, "b", SEGMENT);
            mounter.catalog.mount(next, client(101), mounter.now, &mut Effects::default()).unwrap();
            mounter.put("new", SEGMENT)
        });
        removing.join().unwrap();
        let new = mounting.join().unwrap();
        pool.upkeep();
        let place = |found: Found| (found.generation, found.replicas[0].1);
        assert_eq!(pool.get("new").map(place), Ok(place(new)));
        assert_eq!((pool.catalog.stats().keys, pool.catalog.stats().allocated_bytes), (1, SEGMENT));
        pool.catalog.assert_consistent();
    });
}
