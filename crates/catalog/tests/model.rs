//! The catalog against a small model: every answer of a long random run of two tenants, and above all that no address is
//! given out while somebody may still read or write there.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;

use common::*;
use yb_catalog::*;
use yb_types::*;

const STEPS: u32 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
const KEYS: u64 = 40;
const WRITERS: u64 = 3;
const SEGMENTS: [&str; 3] = ["a", "b", "c"];
const SEGMENT_BYTES: u64 = 64 << 10;

#[derive(Clone, Debug)]
enum State {
    Unfinished { started: MonotonicTime },
    Readable { lease: MonotonicTime },
}

#[derive(Clone, Debug)]
struct Object {
    writer: u64,
    hard_pin: bool,
    state: State,
    found: Found,
    copying: Option<Copying>,
}

/// A copy or a move under way.
#[derive(Clone, Debug)]
struct Copying {
    client: u64,
    kind: CopyKind,
    source: String,
    /// New replicas: segment and address.
    targets: Vec<(String, u64)>,
    /// The target of a move that held a replica already.
    existing: Option<String>,
    until: MonotonicTime,
    /// Something that it needs went away.
    lost: bool,
}

impl Object {
    fn started(&self) -> MonotonicTime {
        match self.state {
            State::Unfinished { started } => started,
            State::Readable { .. } => panic!("{self:?} is no write"),
        }
    }
}

/// A range that somebody may touch until then.
#[derive(Clone, Debug)]
struct Touched {
    segment: String,
    from: u64,
    to: u64,
    until: MonotonicTime,
    generation: Generation,
    for_writer: bool,
}

struct Model {
    pool: Pool,
    tenants: [Tenant; 2],
    /// By tenant and key.
    objects: BTreeMap<String, Object>,
    /// Upserts under way of readable objects.
    successors: BTreeMap<String, Object>,
    /// Writers whose write of a key another one overtook, until they have answered for it or a writer does nothing any more.
    owed: BTreeMap<(String, u64), (MonotonicTime, ErrorCode)>,
    touched: Vec<Touched>,
    /// Id of the segment that now bears each name, and whether it is mounted.
    segments: Vec<(u64, &'static str, bool)>,
    next_segment: u64,
    random: u64,
    /// Copies that ended without their client, until when it is surely held to account for them.
    stale: BTreeMap<(String, u64), MonotonicTime>,
    /// Objects replaced by an upsert.
    switched: u32,
    copied: u32,
    moved: u32,
    copies_lost: u32,
}

const TIMEOUT: std::time::Duration = std::time::Duration::from_secs(600);

/// Turns the pool to the tenant of an object of the model, which is told by the first letter; answers the key.
fn aim<'k>(pool: &mut Pool, tenants: &[Tenant; 2], name: &'k str) -> &'k str {
    pool.tenant = tenants[usize::from(name.starts_with('B'))];
    &name[1..]
}

impl Model {
    fn new(seed: u64) -> Self {
        let segments = vec![(1, "a", true), (2, "b", true), (3, "c", true)];
        let named: Vec<(&str, u64)> = segments.iter().map(|(_, name, _)| (*name, SEGMENT_BYTES)).collect();
        let settings =
            CatalogSettings { hash_seed: seed, multi_tenant: true, tenants_max: 2, ..CatalogSettings::default() };
        let pool = Pool::with(settings, &named);
        let tenants = ["first", "second"].map(|name| {
            pool.catalog.tenants().set_policy(name, 1 << 30, pool.now).unwrap();
            pool.catalog.tenants().writer(name.as_bytes())
        });
        Model {
            pool,
            tenants,
            objects: BTreeMap::new(),
            successors: BTreeMap::new(),
            owed: BTreeMap::new(),
            touched: Vec::new(),
            segments,
            next_segment: 4,
            stale: BTreeMap::new(),
            switched: 0,
            copied: 0,
            moved: 0,
            copies_lost: 0,
            random: seed,
        }
    }

    fn peek(&mut self, name: &str) -> Result<Found, ErrorCode> {
        let key = aim(&mut self.pool, &self.tenants, name);
        self.pool.peek(key)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    fn ranges(found: &Found) -> impl Iterator<Item = (String, u64, u64)> + '_ {
        let len = found.size.max(1).next_multiple_of(64);
        found.replicas.iter().map(move |(name, address, _)| (name.clone(), *address, address + len))
    }

    fn touch(&mut self, found: &Found, until: MonotonicTime, for_writer: bool) {
        for (segment, from, to) in Self::ranges(found) {
            self.touched.push(Touched { segment, from, to, until, generation: found.generation, for_writer });
        }
    }

    /// A fresh put must stay clear of everything that is stored or touched.
    fn assert_clear(&self, key: &str, found: &Found) {
        let now = self.pool.now;
        for (segment, from, to) in Self::ranges(found) {
            let hit = |s: &str, f: u64, t: u64| s == segment && f < to && from < t;
            for touched in &self.touched {
                let live = touched.until > now;
                assert!(!live || !hit(&touched.segment, touched.from, touched.to), "{key} at {from:#x}: {touched:?}");
            }
            for (other, object) in self.objects.iter().chain(&self.successors) {
                for (s, f, t) in Self::ranges(&object.found) {
                    assert!(!hit(&s, f, t), "{key} lies over {other}");
                }
            }
        }
    }

    /// Objects that eviction took: only such as it may take. An upsert under way has the key then.
    fn reconcile(&mut self) {
        let now = self.pool.now;
        let (pool, tenants) = (&mut self.pool, &self.tenants);
        let mut is_gone = |name: &str, object: &Object| {
            let key = aim(pool, tenants, name);
            let found = pool.peek(key);
            matches!(object.state, State::Readable { .. }) && found.is_err()
                || found == Err(ErrorCode::OBJECT_NOT_FOUND)
        };
        let mut gone = self.objects.clone();
        gone.retain(|key, object| is_gone(key, object));
        for key in gone.into_keys() {
            let object = self.objects.remove(&key).unwrap();
            assert!(object.copying.is_none(), "{key} was being copied");
            match object.state {
                State::Readable { lease } => assert!(lease <= now && !object.hard_pin, "{key} was protected"),
                State::Unfinished { .. } => panic!("{key} was evicted while being written"),
            }
            self.promote(&key);
        }
    }

    fn promote(&mut self, key: &str) {
        if let Some(successor) = self.successors.remove(key) {
            self.objects.insert(key.into(), successor);
        }
    }

    fn start(&mut self, key: &str) {
        let writer = self.below(WRITERS);
        let upsert = self.below(3) == 0;
        let size = [64, 100, 1000, 4096, 20_000][self.below(5) as usize];
        self.pool.config.replica_num = 1 + self.below(3);
        self.pool.config.with_hard_pin = self.below(40) == 0;
        let before = self.objects.get(key).cloned();
        let readable = before.clone().filter(|object| matches!(object.state, State::Readable { .. }));
        let write = self.successors.get(key).cloned().or(before.filter(|_| readable.is_none()));
        let owes = self.owed.get(&(key.to_owned(), writer)).is_some_and(|(until, _)| *until > self.pool.now);
        let own = owes || write.as_ref().is_some_and(|write| write.writer == writer);
        let may_overtake = |model: &Model, write: &Object| upsert || write.started() + 30 * SECOND < model.pool.now;
        let copied = readable.as_ref().is_some_and(|object| object.copying.is_some());
        let bare = aim(&mut self.pool, &self.tenants, key);
        let answer =
            if upsert { self.pool.upsert_start(writer, bare, size) } else { self.pool.start(writer, bare, size) };
        assert_eq!(answer == Err(PutRefusal::Copied), upsert && copied && !owes, "{key}");
        match answer {
            Err(PutRefusal::Copied) => {}
            Err(PutRefusal::OwnWriteOpen) => assert!(own, "{key}"),
            Err(PutRefusal::Exists) => assert!(readable.is_some() && !upsert, "{key}"),
            Err(PutRefusal::Busy) => {
                assert!(!upsert && readable.is_none() && !may_overtake(self, &write.unwrap()), "{key}");
            }
            Err(
                PutRefusal::NoSpace
                | PutRefusal::NothingEvictable
                | PutRefusal::NoSegment
                | PutRefusal::QuotaExceeded
                | PutRefusal::LargerThanQuota,
            ) => {
                assert!(!own && (upsert || readable.is_none()), "{key}");
                // An abandoned write stays until another one has its place.
                assert!(write.is_none_or(|write| may_overtake(self, &write)), "{key}");
                self.reconcile();
                let stays = readable.is_none_or(|object| self.peek(key).unwrap().generation == object.found.generation);
                assert!(stays, "{key} went for its own upsert");
            }
            Err(refusal) => panic!("start of {key}: {refusal}"),
            Ok(found) => {
                assert!(!own && (upsert || readable.is_none()), "{key}");
                if let Some(write) = write {
                    assert!(may_overtake(self, &write), "{key} was taken too early");
                    let books = if readable.is_some() { &mut self.successors } else { &mut self.objects };
                    books.remove(key);
                    self.overtake(key, &write);
                }
                self.reconcile();
                self.assert_clear(key, &found);
                assert!(found.replicas.len() <= 3 && !found.replicas.is_empty());
                self.touch(&found, MonotonicTime(u64::MAX), true);
                let hard_pin = self.pool.config.with_hard_pin || readable.as_ref().is_some_and(|old| old.hard_pin);
                let state = State::Unfinished { started: self.pool.now };
                let object = Object { writer, hard_pin, state, found, copying: None };
                let books = if readable.is_some() { &mut self.successors } else { &mut self.objects };
                books.insert(key.into(), object);
            }
        }
    }

    /// The model's side of a write that gave way to that of another client.
    fn overtake(&mut self, key: &str, write: &Object) {
        let owed = (write.started() + 600 * SECOND, ErrorCode::ILLEGAL_CLIENT);
        self.owed.insert((key.to_owned(), write.writer), owed);
        self.give_up_write(write);
    }

    /// The model's side of a write that ends without success.
    fn give_up_write(&mut self, write: &Object) {
        for touched in self.touched.iter_mut().filter(|t| t.for_writer && t.generation == write.found.generation) {
            touched.until = write.started() + 600 * SECOND;
        }
    }

    fn end(&mut self, key: &str, revoke: bool) {
        let stranger = self.below(5) == 0;
        let object = self.objects.get(key).cloned();
        let (beside, write) = match (self.successors.get(key), &object) {
            (Some(write), _) => (true, Some(write.clone())),
            (None, Some(object)) if matches!(object.state, State::Unfinished { .. }) => (false, Some(object.clone())),
            _ => (false, None),
        };
        let writer = write.as_ref().or(object.as_ref()).map_or(0, |object| object.writer);
        let caller = if stranger { self.below(WRITERS) } else { writer };
        let now = self.pool.now;
        let bare = aim(&mut self.pool, &self.tenants, key);
        let answer = if revoke { self.pool.revoke(caller, bare) } else { self.pool.end(caller, bare) };
        let owed = self.owed.remove(&(key.to_owned(), caller)).filter(|(until, _)| *until > now);
        let Some(object) = object else { return assert_eq!(answer, Err(ErrorCode::OBJECT_NOT_FOUND)) };
        if let Some(mut write) = write.filter(|write| write.writer == caller) {
            assert_eq!(answer, Ok(()));
            self.successors.remove(key);
            if revoke {
                if !beside {
                    self.objects.remove(key);
                }
                return self.give_up_write(&write);
            }
            let generation = write.found.generation;
            self.touched.retain(|t| !(t.for_writer && t.generation == generation));
            write.state = State::Readable { lease: now };
            self.objects.insert(key.into(), write);
            self.switched += u32::from(beside);
            return;
        }
        if let Some((_, code)) = owed {
            return assert_eq!(answer, Err(code));
        }
        match object.state {
            State::Readable { .. } if object.writer == caller => {
                assert_eq!(answer, if revoke { Err(ErrorCode::INVALID_WRITE) } else { Ok(()) });
            }
            _ => assert_eq!(answer, Err(ErrorCode::ILLEGAL_CLIENT)),
        }
    }

    fn get(&mut self, key: &str) {
        let until = self.pool.now + 10 * SECOND;
        let bare = aim(&mut self.pool, &self.tenants, key);
        let answer = self.pool.get(bare);
        match self.objects.get_mut(key).map(|object| (&mut object.state, &object.found)) {
            None => assert_eq!(answer, Err(ErrorCode::OBJECT_NOT_FOUND)),
            Some((State::Unfinished { .. }, _)) => assert_eq!(answer, Err(ErrorCode::REPLICA_IS_NOT_READY)),
            Some((State::Readable { lease, .. }, found)) => {
                *lease = (*lease).max(until);
                let answer = answer.unwrap();
                assert_eq!((answer.generation, answer.size), (found.generation, found.size));
                let addresses = |found: &Found| found.replicas.iter().map(|r| r.1).collect::<Vec<u64>>();
                assert_eq!(addresses(&answer), addresses(found));
                self.touch(&answer, until, false);
            }
        }
    }

    fn remove(&mut self, key: &str) {
        let force = Force::from(self.below(2) == 0);
        let bare = aim(&mut self.pool, &self.tenants, key);
        let answer = self.pool.remove(bare, force);
        let copying = self.objects.get(key).and_then(|object| object.copying.as_ref());
        match self.objects.get(key).map(|object| &object.state) {
            None => assert_eq!(answer, Err(ErrorCode::OBJECT_NOT_FOUND)),
            Some(State::Unfinished { .. }) => assert_eq!(answer, Err(ErrorCode::REPLICA_IS_NOT_READY)),
            Some(State::Readable { lease, .. }) if force == Force::No && *lease > self.pool.now => {
                assert_eq!(answer, Err(ErrorCode::OBJECT_HAS_LEASE));
            }
            Some(State::Readable { .. }) if self.successors.contains_key(key) => {
                assert_eq!(answer, Err(ErrorCode::REPLICA_IS_NOT_READY));
            }
            Some(State::Readable { .. }) if copying.is_some_and(|copying| !copying.targets.is_empty()) => {
                assert_eq!(answer, Err(ErrorCode::REPLICA_IS_NOT_READY));
            }
            Some(State::Readable { .. }) if copying.is_some() => {
                assert_eq!(answer, Err(ErrorCode::OBJECT_HAS_REPLICATION_TASK));
            }
            Some(State::Readable { .. }) => {
                assert_eq!(answer, Ok(()));
                self.objects.remove(key);
            }
        }
    }

    fn begin_copy(&mut self, key: &str) {
        let client = 200 + self.below(3);
        let kind = if self.below(2) == 0 { CopyKind::Copy } else { CopyKind::Move };
        let object = self.objects.get(key).cloned();
        // Mostly from where it is.
        let source = match &object {
            Some(object) if self.below(8) > 0 => object.found.replicas[0].0.clone(),
            _ => SEGMENTS[self.below(3) as usize].to_owned(),
        };
        let mut targets = vec![SEGMENTS[self.below(3) as usize]];
        if kind == CopyKind::Copy && self.below(3) == 0 {
            targets.push(SEGMENTS[self.below(3) as usize]);
        }
        let bare = aim(&mut self.pool, &self.tenants, key);
        let caller = self.pool.caller(client);
        let call = CopyCall { caller, key: bare.as_bytes(), source: &source, targets: &targets, lease: None };
        let (mut placed, now) = (Vec::new(), self.pool.now);
        let sink = |view: CopyView<'_>| {
            placed.extend(view.targets.iter().map(|t| (t.segment.info().name.clone(), t.address, t.status)));
        };
        let answer = match kind {
            CopyKind::Copy => self.pool.catalog.copy_start(&call, sink),
            CopyKind::Move => self.pool.catalog.move_start(&call, sink),
        };
        let is_mounted = |name: &str| self.segments.iter().any(|(_, known, mounted)| *known == name && *mounted);
        if kind == CopyKind::Move && targets == [source.as_str()] {
            return assert_eq!(answer, Err(ErrorCode::INVALID_PARAMS));
        }
        if !targets.iter().all(|target| is_mounted(target)) {
            return assert_eq!(answer, Err(ErrorCode::SEGMENT_NOT_FOUND));
        }
        let Some(object) = object else { return assert_eq!(answer, Err(ErrorCode::OBJECT_NOT_FOUND)) };
        if self.successors.contains_key(key) {
            return assert_eq!(answer, Err(ErrorCode::REPLICA_NOT_FOUND));
        }
        let owes = self.stale.get(&(key.to_owned(), client)).copied();
        if object.copying.is_some() || owes.is_some_and(|until| until > now) {
            return assert_eq!(answer, Err(ErrorCode::OBJECT_HAS_REPLICATION_TASK));
        }
        // When exactly it is forgiven depends on when the end of its copy was noticed.
        if owes.is_some() && answer == Err(ErrorCode::OBJECT_HAS_REPLICATION_TASK) {
            return;
        }
        self.stale.remove(&(key.to_owned(), client));
        let holds = |name: &str| object.found.replicas.iter().any(|replica| replica.0 == name);
        if matches!(object.state, State::Unfinished { .. }) || !holds(&source) {
            return assert_eq!(answer, Err(ErrorCode::REPLICA_NOT_FOUND));
        }
        let mut new: Vec<&str> = targets.iter().copied().filter(|target| !holds(target)).collect();
        new.dedup();
        if answer.is_err() {
            assert!(!new.is_empty(), "{key}: {answer:?}, nothing was to be placed");
            let full = [Err(ErrorCode::NO_AVAILABLE_HANDLE), Err(PutRefusal::QuotaExceeded.code())];
            return assert!(full.contains(&answer), "{key}: {answer:?}");
        }
        assert!(placed.iter().map(|(name, ..)| name.as_str()).eq(new.iter().copied()), "{placed:?} {new:?}");
        let existing = targets.iter().find(|target| kind == CopyKind::Move && holds(target)).map(|at| (*at).to_owned());
        let aside = Found { replicas: placed.clone(), ..object.found.clone() };
        self.assert_clear(key, &aside);
        let until = now + TIMEOUT;
        self.touch(&aside, until, true);
        let targets = placed.into_iter().map(|(name, address, _)| (name, address)).collect();
        let copying = Copying { client, kind, source, targets, existing, until, lost: false };
        self.objects.get_mut(key).unwrap().copying = Some(copying);
    }

    fn end_copy(&mut self, key: &str, revoke: bool) {
        let object = self.objects.get(key).cloned();
        let known = object.as_ref().and_then(|object| object.copying.clone());
        let stranger = self.below(5) == 0;
        let by = known.as_ref().map_or(200, |copying| copying.client);
        let by = if stranger { 200 + self.below(3) } else { by };
        let kind = match &known {
            Some(copying) if self.below(8) > 0 => copying.kind,
            _ => CopyKind::Move,
        };
        let bare = aim(&mut self.pool, &self.tenants, key);
        let end = CopyEnd { caller: self.pool.caller(by), key: bare.as_bytes(), kind, lease: None, target: None };
        let answer = match revoke {
            true => self.pool.catalog.copy_revoke(&end, &mut self.pool.effects),
            false => self.pool.catalog.copy_end(&end),
        };
        let owes = self.stale.remove(&(key.to_owned(), by));
        let Some(object) = object else { return assert_eq!(answer, Err(ErrorCode::OBJECT_NOT_FOUND)) };
        let late = answer == Err(ErrorCode::OBJECT_NO_REPLICATION_TASK);
        let Some(copying) = known.filter(|_| owes.is_none_or(|until| until <= self.pool.now && !late)) else {
            return assert_eq!(answer, Err(ErrorCode::OBJECT_NO_REPLICATION_TASK), "{key}");
        };
        if copying.client != by {
            return assert_eq!(answer, Err(ErrorCode::ILLEGAL_CLIENT));
        }
        if copying.kind != kind {
            return assert_eq!(answer, Err(ErrorCode::INVALID_PARAMS));
        }
        self.objects.get_mut(key).unwrap().copying = None;
        if revoke {
            return assert_eq!(answer, Ok(()));
        }
        assert_eq!(answer, if copying.lost { Err(ErrorCode::REPLICA_IS_GONE) } else { Ok(()) }, "{key}");
        let is_target = |segment: &str, address: u64| copying.targets.iter().any(|t| t.0 == segment && t.1 == address);
        let generation = object.found.generation;
        self.touched.retain(|t| !(t.for_writer && t.generation == generation && is_target(&t.segment, t.from)));
        let replicas = &mut self.objects.get_mut(key).unwrap().found.replicas;
        for (name, address) in &copying.targets {
            replicas.push((name.clone(), *address, ReplicaStatus::COMPLETE));
        }
        if kind == CopyKind::Move && !copying.lost {
            replicas.retain(|replica| replica.0 != copying.source);
        }
        self.copied += u32::from(kind == CopyKind::Copy);
        self.moved += u32::from(kind == CopyKind::Move);
        self.copies_lost += u32::from(copying.lost);
    }

    /// The model's side of copies whose object is gone.
    fn note_stale(&mut self, key: &str, copying: &Copying) {
        let until = self.pool.now.max(copying.until) + TIMEOUT;
        self.stale.insert((key.to_owned(), copying.client), until);
    }

    fn confirm(&mut self) {
        let Some(asked) = self.pool.effects.quiesce.pop() else { return };
        if self.pool.catalog.confirm_quiesced(asked.segment, asked.address, asked.generation) {
            let same = |t: &Touched| t.for_writer && t.generation == asked.generation && t.from == asked.address;
            assert!(self.touched.iter().any(same));
            self.touched.retain(|t| !same(t));
        }
    }

    fn swap_segment(&mut self) {
        let at = self.below(3) as usize;
        let (number, name, mounted) = self.segments[at];
        if mounted {
            let id = SegmentId(Uuid { first: number, second: 2 });
            self.pool.catalog.unmount(id, client(99 + at as u64 + 1), self.pool.now, &mut self.pool.effects).unwrap();
            self.touched.retain(|touched| touched.segment != name);
            let mut overdue = Vec::new();
            for books in [&mut self.objects, &mut self.successors] {
                for object in books.values_mut() {
                    object.found.replicas.retain(|replica| replica.0 != name);
                }
                for (key, object) in books.iter().filter(|(_, object)| object.found.replicas.is_empty()) {
                    if let State::Unfinished { started } = object.state {
                        let owed = (started + 600 * SECOND, ErrorCode::OBJECT_NOT_FOUND);
                        self.owed.insert((key.clone(), object.writer), owed);
                    }
                }
                for (key, object) in books.iter_mut() {
                    let is_empty = object.found.replicas.is_empty();
                    let Some(copying) = &mut object.copying else { continue };
                    let lost = copying.targets.len();
                    copying.targets.retain(|target| target.0 != name);
                    copying.lost |= copying.source == name
                        || copying.existing.as_deref() == Some(name)
                        || copying.targets.len() < lost;
                    if is_empty {
                        overdue.push((key.clone(), copying.clone()));
                    }
                }
                books.retain(|_, object| !object.found.replicas.is_empty());
            }
            for (key, copying) in overdue {
                self.note_stale(&key, &copying);
            }
            let orphans = self.successors.keys().filter(|key| !self.objects.contains_key(*key)).cloned();
            for key in orphans.collect::<Vec<_>>() {
                self.promote(&key);
            }
            self.segments[at].2 = false;
        } else {
            let number = self.next_segment;
            self.next_segment += 1;
            self.pool.mount(segment(number, name, SEGMENT_BYTES), 99 + at as u64 + 1).unwrap();
            self.segments[at] = (number, name, true);
        }
    }

    fn time_passes(&mut self) {
        let by = [1, 5, 31, 601][[0, 0, 0, 0, 1, 1, 1, 2, 2, 3][self.below(10) as usize]];
        self.pool.advance(by * SECOND);
        self.pool.upkeep();
        let now = self.pool.now;
        let is_reaped =
            |object: &Object| matches!(object.state, State::Unfinished { started, .. } if started + 600 * SECOND < now);
        for beside in [false, true] {
            let books = if beside { &mut self.successors } else { &mut self.objects };
            let reaped: Vec<String> =
                books.iter().filter(|(_, object)| is_reaped(object)).map(|(key, _)| key.clone()).collect();
            let gone: Vec<Object> = reaped.iter().filter_map(|key| books.remove(key)).collect();
            gone.iter().for_each(|write| self.give_up_write(write));
        }
        let mut overdue = Vec::new();
        for (key, object) in &mut self.objects {
            overdue
                .extend(object.copying.take_if(|copying| copying.until <= now).map(|copying| (key.clone(), copying)));
        }
        for (key, copying) in overdue {
            self.note_stale(&key, &copying);
        }
        self.touched.retain(|touched| touched.until > now);
    }

    /// Mostly one of the objects that are meant, if there is one; else the key given.
    fn pick(&mut self, key: String, is_meant: impl Fn(&Object) -> bool) -> String {
        let meant: Vec<String> = self.objects.iter().filter(|(_, o)| is_meant(o)).map(|(key, _)| key.clone()).collect();
        if meant.is_empty() || self.below(4) == 0 {
            return key;
        }
        meant[self.below(meant.len() as u64) as usize].clone()
    }

    fn step(&mut self) {
        let tenant = if self.below(2) == 0 { 'A' } else { 'B' };
        let key = format!("{tenant}key-{}", self.below(KEYS / 2));
        match self.below(1000) {
            0..280 => self.start(&key),
            280..560 => self.end(&key, false),
            560..600 => self.end(&key, true),
            600..720 => self.get(&key),
            720..800 => self.remove(&key),
            800..840 => {
                let key = self.pick(key, |object| matches!(object.state, State::Readable { .. }));
                self.begin_copy(&key);
            }
            number @ 840..900 => {
                let key = self.pick(key, |object| object.copying.is_some());
                self.end_copy(&key, number >= 885);
            }
            900..950 => self.confirm(),
            950..995 => self.time_passes(),
            _ => self.swap_segment(),
        }
    }
}

#[test]
fn every_answer_of_a_long_run_is_the_models() {
    for seed in 1..=4 {
        let mut model = Model::new(seed);
        for step in 0..STEPS / 4 {
            model.step();
            if step % 500 == 0 {
                model.pool.catalog.assert_consistent();
            }
        }
        let stats = model.pool.catalog.stats();
        assert!(stats.evicted_keys > 50 && stats.quiesced > 20 && stats.lease_deferred > 10, "{stats:?}");
        assert!(stats.released > stats.quiesced && stats.lost_keys > 10, "{stats:?}");
        assert!(model.switched > 20, "{} upserts", model.switched);
        assert!(model.copied > 20 && model.moved > 20, "{} copies, {} moves", model.copied, model.moved);
        assert!(model.copies_lost > 0, "no copy lost what it needed");
    }
}
