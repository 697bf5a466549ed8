//! Many threads on one catalog with memory behind it: whoever reads under a lease sees the bytes of the write that the
//! lookup named, whatever writers, upserts, removers, eviction of objects and groups and lost segments do meanwhile. Writers
//! that gave up go on writing for as long as they may.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use common::*;
use parking_lot::RwLock;
use yb_catalog::*;
use yb_types::*;

const UNIT: u64 = 64;
const UNITS: usize = 1024;
const MOUNTS: usize = 64;
const ROUNDS: u64 = if cfg!(debug_assertions) { 2_000 } else { 20_000 };

const LEASE: Duration = Duration::from_secs(1);
const RELEASE: Duration = Duration::from_secs(5);

struct World {
    catalog: Catalog,
    /// Whoever looks at the clock and acts on it holds it, so that time does not pass between the two.
    now: RwLock<MonotonicTime>,
    /// One word for each unit of each segment: the generation whose bytes are there.
    memory: Vec<Vec<AtomicU64>>,
    verified: AtomicU64,
    late_writes: AtomicU64,
    upserted: AtomicU64,
    done: AtomicBool,
}

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    fn key(&mut self) -> String {
        format!("key-{}", self.next() % 200)
    }

    /// The group of a key: the same whoever asks, so that upserts are not refused.
    fn group(key: &str) -> String {
        let digit = key.as_bytes()[key.len() - 1];
        if digit < b'5' { format!("group-{}", char::from(digit)) } else { String::new() }
    }
}

/// First unit and number of units of each replica, by segment number.
type Places = Vec<(usize, usize, usize)>;

fn places(view: &ObjectView<'_>) -> Places {
    let units = view.size().div_ceil(UNIT) as usize;
    let place = |r: ReplicaView<'_>| {
        let number = r.segment.info().id.0.first as usize;
        (number, ((r.address - r.segment.info().base) / UNIT) as usize, units)
    };
    view.replicas().map(place).collect()
}

impl World {
    /// Whether everything that the test is about has happened.
    fn is_covered(&self) -> bool {
        let stats = self.catalog.stats();
        let enough = |counter: &AtomicU64| counter.load(Ordering::Relaxed) > 200;
        enough(&self.verified)
            && enough(&self.late_writes)
            && enough(&self.upserted)
            && stats.evicted_keys > 10
            && stats.lease_deferred > 10
    }

    fn words<'a>(&'a self, places: &'a Places) -> impl Iterator<Item = &'a AtomicU64> {
        places.iter().flat_map(|&(number, first, units)| &self.memory[number][first..first + units])
    }

    fn write(&self, thread: u64) {
        let mut dice = Dice(thread);
        let mut effects = Effects::default();
        let mut config = ReplicateConfig { replica_num: 1 + thread % 2, ..ReplicateConfig::default() };
        for round in 0..ROUNDS * 1000 {
            if round >= ROUNDS && self.is_covered() {
                break;
            }
            let key = dice.key();
            config.group_ids = Some(vec![Dice::group(&key)]);
            let started = *self.now.read();
            let caller = Caller { tenant: T, client: client(thread), now: started };
            let call = PutCall { caller, config: &config, allow_empty: false, waited: false };
            let size = 1 + dice.next() % (UNIT * 40);
            let (mut begun, upsert) = (None, dice.next().is_multiple_of(3));
            let mut random = || dice.next() << 33;
            let items = [(key.as_bytes(), size)];
            let sink = |_, answer: Result<ObjectView<'_>, PutRefusal>| {
                begun = answer.ok().map(|view| (view.generation(), places(&view)));
            };
            if upsert {
                self.catalog.upsert_start(&call, items, &mut random, &mut effects, sink);
            } else {
                self.catalog.put_start(&call, items, &mut random, &mut effects, sink);
            }
            let Some((generation, places)) = begun else { continue };
            let transfer = || {
                let now = self.now.read();
                let may = *now < started + RELEASE;
                if may {
                    self.words(&places).for_each(|word| word.store(generation.0.get(), Ordering::Relaxed));
                }
                may
            };
            if !transfer() {
                continue;
            }
            let caller = Caller { now: *self.now.read(), ..caller };
            if dice.next().is_multiple_of(4) {
                self.catalog.put_revoke(&caller, ReplicaType::ALL, [&key], &mut effects, |_, _| {});
                self.late_writes.fetch_add(u64::from(transfer()), Ordering::Relaxed);
            } else {
                let ended = |_, answer: Result<(), ErrorCode>| {
                    self.upserted.fetch_add(u64::from(upsert && answer.is_ok()), Ordering::Relaxed);
                };
                self.catalog.put_end(&caller, ReplicaType::ALL, [(&key, None)], ended);
            }
        }
    }

    fn read(&self, thread: u64) {
        let mut dice = Dice(thread);
        while !self.done.load(Ordering::Relaxed) {
            let key = dice.key();
            let granted = *self.now.read();
            let mut found = None;
            self.catalog.get_replicas(T, [&key], granted, |_, answer| {
                found = answer.ok().map(|view| (view.generation(), places(&view)));
            });
            let Some((generation, places)) = found else { continue };
            for _ in 0..3 {
                let now = self.now.read();
                if *now < granted + LEASE {
                    let right = |word: &AtomicU64| word.load(Ordering::Relaxed) == generation.0.get();
                    assert!(self.words(&places).all(right), "{key}: other bytes under a lease");
                    self.verified.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn disturb(&self, thread: u64) {
        let mut dice = Dice(thread);
        while !self.done.load(Ordering::Relaxed) {
            let now = *self.now.read();
            match dice.next() % 4 {
                0 => self.catalog.remove(T, [dice.key()], Force::Yes, now, |_, _| {}),
                1 => self.catalog.remove(T, [dice.key()], Force::No, now, |_, _| {}),
                2 => {
                    let goal = EvictionGoal { target: ByteLen(5000), at_least: ByteLen(5000) };
                    self.catalog.evict(&goal, 100, now);
                }
                _ => {
                    self.catalog.upkeep(512, now, &mut Effects::default());
                }
            }
            *self.now.write() = now + SECOND / 500;
        }
    }

    fn remount(&self, thread: u64) {
        let mut dice = Dice(thread);
        let mut effects = Effects::default();
        let mut mounted = std::collections::VecDeque::new();
        let mut next = 1;
        while !self.done.load(Ordering::Relaxed) {
            let now = *self.now.read();
            if mounted.len() < 3 && next < MOUNTS {
                let name = format!("s{}", next % 3);
                let info = segment(next as u64, &name, UNIT * UNITS as u64);
                mounted.push_back(info.id);
                self.catalog.mount(info, client(99), now, &mut effects).unwrap();
                next += 1;
            } else if mounted.len() == 3 && next < MOUNTS && dice.next().is_multiple_of(5_000) {
                self.catalog.unmount(mounted.pop_front().unwrap(), client(99), now, &mut effects).unwrap();
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn readers_under_a_lease_see_the_right_bytes() {
    let memory = (0..MOUNTS).map(|_| (0..UNITS).map(|_| AtomicU64::new(0)).collect()).collect();
    let settings = CatalogSettings {
        lease_ttl: LEASE,
        discard_timeout: 2 * SECOND,
        release_timeout: RELEASE,
        ..CatalogSettings::default()
    };
    let world = World {
        catalog: Catalog::new(settings).unwrap(),
        now: RwLock::new(MonotonicTime::from_millis(3_600_000)),
        memory,
        verified: AtomicU64::new(0),
        late_writes: AtomicU64::new(0),
        upserted: AtomicU64::new(0),
        done: AtomicBool::new(false),
    };
    let world = &world;
    std::thread::scope(|scope| {
        let writers: Vec<_> = (1..=3).map(|thread| scope.spawn(move || world.write(thread))).collect();
        scope.spawn(|| world.read(11));
        scope.spawn(|| world.read(12));
        scope.spawn(|| world.disturb(21));
        scope.spawn(|| world.remount(31));
        let failed = writers.into_iter().map(|writer| writer.join()).filter(Result::is_err).count();
        world.done.store(true, Ordering::Relaxed);
        assert_eq!(failed, 0);
    });
    world.catalog.assert_consistent();
    assert!(world.is_covered(), "{:?}", world.catalog.stats());
}
