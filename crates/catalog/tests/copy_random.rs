//! Random copies and moves among everything else that happens to objects, with clients that answer late or never, against
//! a model that remembers which bytes lie where.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_env::Rng;
use yb_types::*;

const SIZE: u64 = 1024;
const SEGMENTS: [&str; 4] = ["a", "b", "c", "d"];
const KEYS: u64 = 6;

/// A copy that a client makes, as that client sees it.
#[derive(Clone, Debug)]
struct Making {
    client: u64,
    kind: CopyKind,
    generation: Generation,
    targets: Vec<u64>,
}

struct World {
    pool: Pool,
    rng: Rng,
    /// What lies at an address: the generation that was written there last.
    memory: BTreeMap<u64, Generation>,
    /// By key: copies whose clients have not spoken of their end. The last one may be the catalog's.
    making: BTreeMap<u64, Vec<Making>>,
    published: u64,
    late: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let segments: Vec<(&str, u64)> = SEGMENTS.iter().map(|name| (*name, 16 * SIZE)).collect();
        World {
            pool: Pool::with(CatalogSettings::default(), &segments),
            rng: Rng::seeded(seed),
            memory: BTreeMap::new(),
            making: BTreeMap::new(),
            published: 0,
            late: 0,
        }
    }

    fn key(number: u64) -> String {
        format!("k{number}")
    }

    fn segment(&mut self) -> usize {
        self.rng.below(SEGMENTS.len() as u64) as usize
    }

    fn put(&mut self, number: u64) {
        let key = World::key(number);
        let at = self.segment();
        self.pool.config.preferred_segment = SEGMENTS[at].into();
        let Ok(found) = self.pool.start(1, &key, SIZE) else { return };
        for (_, address, _) in &found.replicas {
            self.memory.insert(*address, found.generation);
        }
        let _ = self.pool.end(1, &key);
    }

    /// A write beside the readable object, ended now or later.
    fn upsert(&mut self, number: u64) {
        let key = World::key(number);
        let at = self.segment();
        self.pool.config.preferred_segment = SEGMENTS[at].into();
        if let Ok(found) = self.pool.upsert_start(1, &key, SIZE) {
            for (_, address, _) in &found.replicas {
                self.memory.insert(*address, found.generation);
            }
        }
        if self.rng.below(2) == 0 {
            let _ = self.pool.end(1, &key);
        }
    }

    fn begin(&mut self, number: u64) {
        let key = World::key(number);
        let (mut from, to) = (SEGMENTS[self.segment()].to_owned(), self.segment());
        // Mostly from where it is.
        if let Ok(found) = self.pool.peek(&key)
            && self.rng.below(8) > 0
        {
            found.replicas[0].0.clone_into(&mut from);
        }
        let kind = if self.rng.below(2) == 0 { CopyKind::Copy } else { CopyKind::Move };
        let client = 200 + self.rng.below(3);
        let targets = [SEGMENTS[to]];
        let caller = self.pool.caller(client);
        let call = CopyCall { caller, key: key.as_bytes(), source: &from, targets: &targets, lease: None };
        let generation = self.pool.peek(&key).map(|found| found.generation);
        let mut addresses = Vec::new();
        let mut source = 0;
        let sink = |view: CopyView<'_>| {
            source = view.source.address;
            addresses.extend(view.targets.iter().map(|target| target.address));
        };
        let begun = match kind {
            CopyKind::Copy => self.pool.catalog.copy_start(&call, sink),
            CopyKind::Move => self.pool.catalog.move_start(&call, sink),
        };
        if begun.is_ok() {
            let generation = generation.unwrap();
            assert_eq!(self.memory.get(&source), Some(&generation), "the source is not the object");
            let making = Making { client, kind, generation, targets: addresses };
            self.making.entry(number).or_default().push(making);
        }
    }

    /// A client says how one of its copies ended, perhaps long after it did.
    fn finish(&mut self, number: u64, written: bool) {
        let Some(list) = self.making.get_mut(&number).filter(|list| !list.is_empty()) else { return };
        let making = list.remove(self.rng.below(list.len() as u64) as usize);
        let key = World::key(number);
        let end = CopyEnd {
            caller: self.pool.caller(making.client),
            key: key.as_bytes(),
            kind: making.kind,
            lease: None,
            target: None,
        };
        if !written {
            let _ = self.pool.catalog.copy_revoke(&end, &mut self.pool.effects);
            return;
        }
        match self.pool.catalog.copy_end(&end) {
            // What is still there of the targets is readable also when something else was lost. A target whose memory
            // was given back is the client's loss: nobody hands out memory before its owner has let go of it.
            Ok(()) | Err(ErrorCode::REPLICA_IS_GONE) => {
                self.published += 1;
                let shown = self.pool.peek(&key).map_or(Vec::new(), |found| found.replicas);
                for target in making.targets.iter().filter(|target| shown.iter().any(|r| r.1 == **target)) {
                    self.memory.insert(*target, making.generation);
                }
            }
            Err(_) => self.late += 1,
        }
    }

    fn lose(&mut self) {
        let at = self.segment();
        let id = segment(at as u64 + 1, SEGMENTS[at], 0).id;
        let now = self.pool.now;
        self.pool.catalog.unmount(id, client(100 + at as u64), now, &mut self.pool.effects).unwrap();
        self.pool.upkeep();
        self.pool.mount(segment(at as u64 + 1, SEGMENTS[at], 16 * SIZE), 100 + at as u64).unwrap();
        self.pool.advance(Duration::from_secs(11));
    }

    /// Whatever a lookup answers has the bytes of the object.
    fn check(&self) {
        for number in 0..KEYS {
            let Ok(found) = self.pool.peek(&World::key(number)) else { continue };
            for (segment, address, status) in &found.replicas {
                assert_eq!(*status, ReplicaStatus::COMPLETE);
                let lies = self.memory.get(address);
                assert_eq!(lies, Some(&found.generation), "k{number} in {segment} shows bytes of another write");
            }
        }
    }

    fn step(&mut self) {
        let number = self.rng.below(KEYS);
        let key = World::key(number);
        match self.rng.below(20) {
            0..3 => self.put(number),
            3 => self.upsert(number),
            4..9 => self.begin(number),
            9..14 => self.finish(number, true),
            14 => self.finish(number, false),
            15 => {
                let force = if self.rng.below(2) == 0 { Force::Yes } else { Force::No };
                let _ = self.pool.remove(&key, force);
            }
            16 => {
                let goal = EvictionGoal { target: ByteLen(SIZE), at_least: ByteLen(SIZE) };
                self.pool.catalog.evict(&goal, 64, self.pool.now);
            }
            17 if self.rng.below(4) == 0 => self.lose(),
            17 | 18 => {
                let _ = self.pool.get(&key);
            }
            _ => {
                let seconds = [1, 1, 5, 5, 11, 30, 300, 601][self.rng.below(8) as usize];
                self.pool.advance(Duration::from_secs(seconds));
                self.pool.upkeep();
            }
        }
    }
}

#[test]
fn no_order_of_events_shows_bytes_of_another_write() {
    let (mut published, mut late) = (0, 0);
    for seed in 0..40 {
        let mut world = World::new(seed);
        for step in 0..500 {
            world.step();
            world.check();
            if step % 50 == 0 {
                world.pool.catalog.assert_consistent();
            }
        }
        published += world.published;
        late += world.late;
        // In the end nothing is left behind.
        for _ in 0..4 {
            world.pool.advance(Duration::from_secs(700));
            world.pool.upkeep();
        }
        world.pool.catalog.remove_all(None, Force::Yes, world.pool.now);
        world.pool.upkeep();
        assert_eq!((world.pool.catalog.copies_running(), world.pool.used()), (0, 0), "seed {seed}");
        world.pool.catalog.assert_consistent();
    }
    assert!(published > 500 && late > 100, "{published} copies ended, {late} of them in vain");
}
