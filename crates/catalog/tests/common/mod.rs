//! A small pool for tests, with short calls.
#![allow(dead_code, clippy::unwrap_used, reason = "every test file uses its own part; a test may panic")]

pub mod nodes;

use std::time::Duration;

use yb_catalog::*;
use yb_types::*;

pub const SECOND: Duration = Duration::from_secs(1);
pub const T: Tenant = Tenant::DEFAULT;

pub fn client(number: u64) -> ClientId {
    ClientId(Uuid { first: number, second: 1 })
}

pub fn segment(number: u64, name: &str, size: u64) -> Segment {
    Segment {
        id: SegmentId(Uuid { first: number, second: 2 }),
        name: name.into(),
        base: number << 40,
        size,
        te_endpoint: format!("{name}:transfer"),
        protocol: "tcp".into(),
        ..Segment::default()
    }
}

/// What a put answers, copied out of the callback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub generation: Generation,
    pub size: u64,
    pub checksum: Option<u64>,
    /// Segment name, address, status.
    pub replicas: Vec<(String, u64, ReplicaStatus)>,
}

impl From<ObjectView<'_>> for Found {
    fn from(view: ObjectView<'_>) -> Self {
        let replicas = view.replicas().map(|r| (r.segment.info().name.clone(), r.address, r.status));
        Found {
            generation: view.generation(),
            size: view.size(),
            checksum: view.checksum(),
            replicas: replicas.collect(),
        }
    }
}

pub struct Pool {
    pub catalog: Catalog,
    pub now: MonotonicTime,
    pub effects: Effects,
    pub config: ReplicateConfig,
    pub allow_empty: bool,
    pub tenant: Tenant,
    random: u64,
}

impl Pool {
    pub fn new(settings: CatalogSettings) -> Self {
        Pool {
            catalog: Catalog::new(settings).unwrap(),
            now: MonotonicTime::from_millis(3_600_000),
            effects: Effects::default(),
            config: ReplicateConfig::default(),
            allow_empty: false,
            tenant: T,
            random: 1,
        }
    }

    /// One segment of the given size, named `a`, of client 100.
    pub fn with_segment(size: u64) -> Self {
        Self::with(CatalogSettings::default(), &[("a", size)])
    }

    /// Segments of clients 100, 101, …
    pub fn with(settings: CatalogSettings, segments: &[(&str, u64)]) -> Self {
        let mut pool = Pool::new(settings);
        for (at, (name, size)) in (1..).zip(segments) {
            pool.mount(segment(at, name, *size), 99 + at).unwrap();
        }
        pool
    }

    /// The keys that match, each with a read lease.
    pub fn found_by_regex(&self, pattern: &KeyPattern) -> Result<Vec<Vec<u8>>, ErrorCode> {
        let (mut walk, mut found) = (KeyWalk::default(), Vec::new());
        loop {
            let sink = |view: ObjectView<'_>| found.push(view.key().to_vec());
            if !self.catalog.regex_lookup_step(self.tenant, pattern, &mut walk, self.now, sink)? {
                break;
            }
        }
        found.sort();
        Ok(found)
    }

    /// Removes what matches; answers how many objects went.
    pub fn remove_by_regex(&self, pattern: &KeyPattern, force: Force) -> Result<u64, ErrorCode> {
        let (mut walk, mut removed) = (KeyWalk::default(), Removal::default());
        while self.catalog.regex_removal_step((self.tenant, force), pattern, &mut walk, self.now, &mut removed)? {}
        Ok(removed.removed)
    }

    pub fn advance(&mut self, by: Duration) {
        self.now = self.now + by;
    }

    pub fn mount(&mut self, segment: Segment, owner: u64) -> Result<(), MountRefusal> {
        self.catalog.mount(segment, client(owner), self.now, &mut self.effects)
    }

    pub fn caller(&self, writer: u64) -> Caller {
        Caller { tenant: self.tenant, client: client(writer), now: self.now }
    }

    pub fn start_many(&mut self, writer: u64, items: &[(&str, u64)]) -> Vec<Result<Found, PutRefusal>> {
        self.write_many(writer, items, false)
    }

    pub fn upsert_start(&mut self, writer: u64, key: &str, size: u64) -> Result<Found, PutRefusal> {
        self.write_many(writer, &[(key, size)], true).pop().unwrap()
    }

    /// Upsert from start to end; panics unless both succeed.
    pub fn upsert(&mut self, key: &str, size: u64) -> Found {
        let found = self.upsert_start(1, key, size).unwrap_or_else(|refusal| panic!("upsert of {key}: {refusal}"));
        self.end(1, key).unwrap();
        found
    }

    fn write_many(&mut self, writer: u64, items: &[(&str, u64)], upsert: bool) -> Vec<Result<Found, PutRefusal>> {
        let call =
            PutCall { caller: self.caller(writer), config: &self.config, allow_empty: self.allow_empty, waited: false };
        let mut answers = Vec::new();
        let seed = &mut self.random;
        let mut random = || {
            *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *seed
        };
        let items: Vec<(&[u8], u64)> = items.iter().map(|(key, size)| (key.as_bytes(), *size)).collect();
        let sink = |at, answer: Result<ObjectView<'_>, PutRefusal>| {
            assert_eq!(at, answers.len());
            answers.push(answer.map(Found::from));
        };
        if upsert {
            self.catalog.upsert_start(&call, items, &mut random, &mut self.effects, sink);
        } else {
            self.catalog.put_start(&call, items, &mut random, &mut self.effects, sink);
        }
        answers
    }

    pub fn start(&mut self, writer: u64, key: &str, size: u64) -> Result<Found, PutRefusal> {
        self.start_many(writer, &[(key, size)]).pop().unwrap()
    }

    /// Ends puts in one batch; all must be there.
    pub fn end_many(&mut self, writer: u64, keys: &[String]) {
        let items = keys.iter().map(|key| (key, None));
        self.catalog.put_end(&self.caller(writer), ReplicaType::ALL, items, |_, answer| answer.unwrap());
    }

    pub fn end(&mut self, writer: u64, key: &str) -> Result<(), ErrorCode> {
        self.end_as(writer, key, ReplicaType::ALL, None)
    }

    pub fn end_as(&self, writer: u64, key: &str, which: ReplicaType, sum: Option<u64>) -> Result<(), ErrorCode> {
        let mut answer = None;
        self.catalog.put_end(&self.caller(writer), which, [(key, sum)], |_, result| answer = Some(result));
        answer.unwrap()
    }

    pub fn revoke(&mut self, writer: u64, key: &str) -> Result<(), ErrorCode> {
        self.revoke_as(writer, key, ReplicaType::ALL)
    }

    pub fn revoke_as(&mut self, writer: u64, key: &str, which: ReplicaType) -> Result<(), ErrorCode> {
        let mut answer = None;
        let caller = self.caller(writer);
        self.catalog.put_revoke(&caller, which, [key], &mut self.effects, |_, result| answer = Some(result));
        answer.unwrap()
    }

    /// Start and end; panics unless both succeed.
    pub fn put(&mut self, key: &str, size: u64) -> Found {
        let found = self.start(1, key, size).unwrap_or_else(|refusal| panic!("put of {key}: {refusal}"));
        self.end(1, key).unwrap();
        found
    }

    pub fn get(&self, key: &str) -> Result<Found, ErrorCode> {
        let mut answer = None;
        self.catalog.get_replicas(self.tenant, [key], self.now, |_, found| answer = Some(found.map(Found::from)));
        answer.unwrap()
    }

    pub fn peek(&self, key: &str) -> Result<Found, ErrorCode> {
        let mut answer = None;
        self.catalog.peek(self.tenant, [key], |_, found| answer = Some(found.map(Found::from)));
        answer.unwrap()
    }

    pub fn exists(&self, key: &str, probe: Probe) -> bool {
        let mut answer = None;
        self.catalog.exist(self.tenant, [key], probe, self.now, |_, found| answer = Some(found));
        answer.unwrap()
    }

    pub fn remove(&self, key: &str, force: Force) -> Result<(), ErrorCode> {
        let mut answer = None;
        self.catalog.remove(self.tenant, [key], force, self.now, |_, result| answer = Some(result));
        answer.unwrap()
    }

    /// Does all waiting work, as the master's timer would over a second.
    pub fn upkeep(&mut self) {
        for _ in 0..1024 / 64 {
            while self.catalog.upkeep(1024, self.now, &mut self.effects) {}
        }
    }

    pub fn used(&self) -> u64 {
        self.catalog.stats().allocated_bytes
    }
}
