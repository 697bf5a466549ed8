//! Copies and moves: who may end them, what their ends publish, and what happens when somebody is gone.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

const KIB: u64 = 1 << 10;
const E: fn(ErrorCode) -> Result<(), ErrorCode> = Err;

/// Source address and target addresses of a copy that began.
type Begun = (u64, Vec<u64>);

struct Copier {
    pool: Pool,
}

impl std::ops::Deref for Copier {
    type Target = Pool;
    fn deref(&self) -> &Pool {
        &self.pool
    }
}

impl std::ops::DerefMut for Copier {
    fn deref_mut(&mut self) -> &mut Pool {
        &mut self.pool
    }
}

impl Copier {
    /// Segments `a`, `b`, `c` of clients 100, 101, 102.
    fn new() -> Copier {
        let segments = [("a", 64 * KIB), ("b", 64 * KIB), ("c", 64 * KIB)];
        Copier { pool: Pool::with(CatalogSettings::default(), &segments) }
    }

    /// Puts a key of one KiB into a segment.
    fn put_in(&mut self, segment: &str, key: &str) -> Found {
        self.config.preferred_segment = segment.into();
        let found = self.put(key, KIB);
        assert_eq!(found.replicas[0].0, segment);
        found
    }

    fn begin(&self, by: u64, kind: CopyKind, key: &str, from: &str, to: &[&str]) -> Result<Begun, ErrorCode> {
        self.begin_with(by, kind, key, from, to, None)
    }

    fn begin_with(
        &self,
        by: u64,
        kind: CopyKind,
        key: &str,
        from: &str,
        to: &[&str],
        lease: Option<CopyLease>,
    ) -> Result<Begun, ErrorCode> {
        let call = CopyCall { caller: self.caller(by), key: key.as_bytes(), source: from, targets: to, lease };
        let mut begun = None;
        let sink = |view: CopyView<'_>| {
            assert_eq!(view.source.status, ReplicaStatus::COMPLETE);
            assert!(view.targets.iter().all(|target| target.status == ReplicaStatus::PROCESSING));
            begun = Some((view.source.address, view.targets.iter().map(|target| target.address).collect()));
        };
        match kind {
            CopyKind::Copy => self.catalog.copy_start(&call, sink)?,
            CopyKind::Move => self.catalog.move_start(&call, sink)?,
        }
        Ok(begun.unwrap())
    }

    fn end_copy(&self, by: u64, kind: CopyKind, key: &str) -> Result<(), ErrorCode> {
        let end = CopyEnd { caller: self.caller(by), key: key.as_bytes(), kind, lease: None, target: None };
        self.catalog.copy_end(&end)
    }

    fn revoke_copy(&mut self, by: u64, kind: CopyKind, key: &str) -> Result<(), ErrorCode> {
        let end = CopyEnd { caller: self.pool.caller(by), key: key.as_bytes(), kind, lease: None, target: None };
        self.pool.catalog.copy_revoke(&end, &mut self.pool.effects)
    }

    fn places(&self, key: &str) -> Vec<String> {
        let mut places: Vec<String> = self.peek(key).unwrap().replicas.into_iter().map(|r| r.0).collect();
        places.sort();
        places
    }
}

#[test]
fn a_copy_is_read_only_after_its_end() {
    let mut pool = Copier::new();
    let put = pool.put_in("a", "k");
    let (source, targets) = pool.begin(100, CopyKind::Copy, "k", "a", &["b", "c", "a"]).unwrap();
    assert_eq!((source, targets.len()), (put.replicas[0].1, 2), "a target that holds it is left out");
    assert_eq!(pool.places("k"), ["a"]);
    pool.catalog.assert_consistent();
    assert_eq!(pool.end_copy(101, CopyKind::Copy, "k"), E(ErrorCode::ILLEGAL_CLIENT));
    assert_eq!(pool.end_copy(100, CopyKind::Move, "k"), E(ErrorCode::INVALID_PARAMS));
    assert_eq!(pool.end_copy(100, CopyKind::Copy, "k"), Ok(()));
    assert_eq!(pool.places("k"), ["a", "b", "c"]);
    assert_eq!(pool.end_copy(100, CopyKind::Copy, "k"), E(ErrorCode::OBJECT_NO_REPLICATION_TASK));
    assert_eq!(pool.catalog.copies_running(), 0);
    pool.catalog.assert_consistent();
}

#[test]
fn what_cannot_be_copied_is_refused_with_the_code_of_the_peer() {
    let mut pool = Copier::new();
    pool.put_in("a", "k");
    pool.start(1, "unfinished", KIB).unwrap();
    let copy = |pool: &Copier, key, from, to: &[&str]| pool.begin(100, CopyKind::Copy, key, from, to).map(|_| ());
    assert_eq!(copy(&pool, "k", "a", &["nowhere"]), E(ErrorCode::SEGMENT_NOT_FOUND));
    assert_eq!(copy(&pool, "none", "a", &["b"]), E(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(copy(&pool, "unfinished", "a", &["b"]), E(ErrorCode::REPLICA_NOT_FOUND));
    assert_eq!(copy(&pool, "k", "b", &["c"]), E(ErrorCode::REPLICA_NOT_FOUND));
    pool.catalog.set_draining(&["c"]).unwrap();
    assert_eq!(copy(&pool, "k", "a", &["c"]), E(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS));
    let moved = pool.begin(100, CopyKind::Move, "k", "a", &["a"]).map(|_| ());
    assert_eq!(moved, E(ErrorCode::INVALID_PARAMS));
    assert_eq!(copy(&pool, "k", "a", &["b"]), Ok(()));
    assert_eq!(copy(&pool, "k", "a", &["b"]), E(ErrorCode::OBJECT_HAS_REPLICATION_TASK));
    pool.catalog.assert_consistent();
}

#[test]
fn all_targets_have_room_or_none_is_used() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", 64 * KIB), ("b", 64 * KIB), ("c", KIB)]);
    pool.config.preferred_segment = "a".into();
    pool.put("k", 2 * KIB);
    let pool = Copier { pool };
    let used = pool.used();
    let refused = pool.begin(100, CopyKind::Copy, "k", "a", &["b", "c"]).map(|_| ());
    assert_eq!((refused, pool.used()), (E(ErrorCode::NO_AVAILABLE_HANDLE), used));
    assert!(pool.begin(100, CopyKind::Copy, "k", "a", &["b"]).is_ok(), "nothing was left behind");
}

#[test]
fn an_object_that_is_being_copied_is_neither_evicted_nor_removed() {
    let mut pool = Copier::new();
    pool.put_in("a", "k");
    pool.begin(100, CopyKind::Copy, "k", "a", &["b"]).unwrap();
    assert_eq!(pool.remove("k", Force::No), E(ErrorCode::REPLICA_IS_NOT_READY));
    assert_eq!(pool.remove("k", Force::Yes), E(ErrorCode::REPLICA_IS_NOT_READY));
    assert_eq!(pool.catalog.remove_all(None, Force::Yes, pool.now), 0);
    let goal = EvictionGoal { target: ByteLen(1 << 30), at_least: ByteLen(1 << 30) };
    assert_eq!(pool.catalog.evict(&goal, 1000, pool.now).keys, 0);
    pool.end_copy(100, CopyKind::Copy, "k").unwrap();
    assert_eq!(pool.catalog.evict(&goal, 1000, pool.now).keys, 1);
    assert_eq!(pool.used(), 0);
}

#[test]
fn the_source_of_a_move_is_free_when_its_leases_have_ended() {
    let mut pool = Copier::new();
    pool.put_in("a", "k");
    pool.get("k").unwrap();
    pool.begin(100, CopyKind::Move, "k", "a", &["b"]).unwrap();
    pool.end_copy(100, CopyKind::Move, "k").unwrap();
    assert_eq!((pool.places("k"), pool.used()), (vec!["b".to_owned()], 2 * KIB));
    pool.advance(Duration::from_millis(9_999));
    pool.upkeep();
    assert_eq!(pool.used(), 2 * KIB, "somebody may still read there");
    pool.advance(Duration::from_millis(1));
    pool.upkeep();
    assert_eq!(pool.used(), KIB);
    pool.catalog.assert_consistent();
}

#[test]
fn a_move_to_a_segment_that_holds_the_object_only_gives_up_the_source() {
    let mut pool = Copier::new();
    pool.put_in("a", "k");
    pool.begin(100, CopyKind::Copy, "k", "a", &["b"]).unwrap();
    pool.end_copy(100, CopyKind::Copy, "k").unwrap();
    assert_eq!(pool.begin(100, CopyKind::Move, "k", "a", &["b"]).unwrap().1, []);
    pool.end_copy(100, CopyKind::Move, "k").unwrap();
    assert_eq!(pool.places("k"), ["b"]);
    // And not even that when the other one is lost before the end.
    pool.begin(101, CopyKind::Copy, "k", "b", &["c"]).unwrap();
    pool.end_copy(101, CopyKind::Copy, "k").unwrap();
    pool.begin(101, CopyKind::Move, "k", "b", &["c"]).unwrap();
    let (id, now) = (segment(3, "c", 0).id, pool.now);
    pool.pool.catalog.unmount(id, client(102), now, &mut pool.pool.effects).unwrap();
    assert_eq!(pool.end_copy(101, CopyKind::Move, "k"), E(ErrorCode::REPLICA_IS_GONE));
    assert_eq!(pool.places("k"), ["b"], "the last replica stays");
    pool.catalog.assert_consistent();
}

#[test]
fn space_of_a_revoked_target_rests_until_its_node_confirms_or_the_release_timeout() {
    let mut pool = Copier::new();
    let put = pool.put_in("a", "k");
    let (_, targets) = pool.begin(100, CopyKind::Copy, "k", "a", &["b"]).unwrap();
    pool.revoke_copy(100, CopyKind::Copy, "k").unwrap();
    assert_eq!((pool.places("k"), pool.used()), (vec!["a".to_owned()], 2 * KIB));
    let asked = pool.effects.quiesce.pop().unwrap();
    assert_eq!((asked.address, asked.writer, asked.revoked), (targets[0], client(100), true));
    assert!(pool.catalog.confirm_quiesced(asked.segment, asked.address, put.generation));
    assert_eq!(pool.used(), KIB);
    pool.begin(100, CopyKind::Copy, "k", "a", &["b"]).unwrap();
    pool.revoke_copy(100, CopyKind::Copy, "k").unwrap();
    pool.advance(Duration::from_secs(600));
    pool.upkeep();
    assert_eq!(pool.used(), KIB);
    pool.catalog.assert_consistent();
}

#[test]
fn a_copy_that_takes_too_long_is_given_up_and_its_late_end_publishes_nothing() {
    let mut pool = Copier::new();
    pool.put_in("a", "k");
    pool.begin(100, CopyKind::Copy, "k", "a", &["b"]).unwrap();
    pool.advance(Duration::from_secs(599));
    pool.upkeep();
    assert_eq!(pool.catalog.copies_running(), 1);
    pool.advance(SECOND);
    pool.upkeep();
    assert_eq!((pool.catalog.copies_running(), pool.used()), (0, KIB));
    // The same client may mean the old copy when it says that the new one ended: so there is no new one yet.
    let begin = |pool: &Copier, by| pool.begin(by, CopyKind::Copy, "k", "a", &["b"]).map(|_| ());
    assert_eq!(begin(&pool, 100), E(ErrorCode::OBJECT_HAS_REPLICATION_TASK));
    assert_eq!(pool.end_copy(100, CopyKind::Copy, "k"), E(ErrorCode::OBJECT_NO_REPLICATION_TASK));
    assert_eq!(pool.places("k"), ["a"]);
    assert_eq!(begin(&pool, 100), Ok(()));
    pool.end_copy(100, CopyKind::Copy, "k").unwrap();
    assert_eq!(pool.places("k"), ["a", "b"]);
    pool.catalog.assert_consistent();
}

#[test]
fn a_late_end_cannot_publish_bytes_of_an_older_object() {
    let mut pool = Copier::new();
    pool.put_in("a", "k");
    pool.begin(100, CopyKind::Copy, "k", "a", &["b"]).unwrap();
    // The source is lost, the object with it; the target is no object.
    let now = pool.now;
    pool.pool.catalog.unmount(segment(1, "a", 0).id, client(100), now, &mut pool.pool.effects).unwrap();
    assert_eq!(pool.get("k"), Err(ErrorCode::OBJECT_NOT_FOUND));
    pool.upkeep();
    assert_eq!((pool.catalog.copies_running(), pool.used()), (0, KIB), "the target's writer may still write");
    pool.put_in("b", "k");
    assert_eq!(
        pool.begin(100, CopyKind::Copy, "k", "b", &["c"]).map(|_| ()),
        E(ErrorCode::OBJECT_HAS_REPLICATION_TASK)
    );
    pool.begin(101, CopyKind::Copy, "k", "b", &["c"]).unwrap();
    assert_eq!(pool.end_copy(100, CopyKind::Copy, "k"), E(ErrorCode::OBJECT_NO_REPLICATION_TASK));
    assert_eq!(pool.places("k"), ["b"]);
    pool.end_copy(101, CopyKind::Copy, "k").unwrap();
    assert_eq!(pool.places("k"), ["b", "c"]);
    pool.advance(Duration::from_secs(600));
    pool.upkeep();
    assert_eq!(pool.used(), 2 * KIB);
    pool.catalog.assert_consistent();
}

#[test]
fn copies_of_a_client_that_is_gone_are_given_up_at_once() {
    let mut pool = Copier::new();
    for key in ["k1", "k2"] {
        pool.put_in("a", key);
        pool.begin(200, CopyKind::Copy, key, "a", &["b"]).unwrap();
    }
    let now = pool.now;
    pool.catalog.ping(client(200), now).unwrap();
    for _ in 0..32 {
        pool.advance(SECOND);
        let now = pool.now;
        for owner in [100, 101, 102] {
            pool.catalog.ping(client(owner), now).unwrap();
        }
        pool.pool.catalog.expire_clients(now, &mut pool.pool.effects);
    }
    assert!(pool.effects.clients_gone.iter().any(|(gone, _)| *gone == client(200)));
    pool.upkeep();
    assert_eq!(pool.catalog.copies_running(), 0);
    assert!(pool.remove("k1", Force::No).is_ok());
    assert_eq!(pool.used(), 3 * KIB, "its targets rest: nobody knows whether it still writes");
    pool.catalog.assert_consistent();
}

#[test]
fn a_replica_that_is_lost_meanwhile_is_told() {
    let mut pool = Copier::new();
    pool.put_in("a", "k");
    pool.begin(100, CopyKind::Copy, "k", "a", &["b", "c"]).unwrap();
    let now = pool.now;
    pool.pool.catalog.unmount(segment(2, "b", 0).id, client(101), now, &mut pool.pool.effects).unwrap();
    assert_eq!(pool.end_copy(100, CopyKind::Copy, "k"), E(ErrorCode::REPLICA_IS_GONE));
    assert_eq!(pool.places("k"), ["a", "c"], "what arrived is readable");
    pool.catalog.assert_consistent();
}

fn plan(pool: &Copier, key: &str, id: u64) -> Result<DynamicPlan, NoPlan> {
    let until = pool.now + Duration::from_secs(30);
    let lease = Uuid { first: id, second: 0 };
    let call = DynamicCall { tenant: T, key: key.as_bytes(), max_replicas: 2, lease, until, now: pool.now };
    pool.catalog.plan_dynamic(&call)
}

#[test]
fn a_planned_copy_is_made_once_by_whom_it_was_planned_for() {
    let mut pool = Copier::new();
    assert_eq!(plan(&pool, "k", 1), Err(NoPlan::Absent));
    pool.put_in("a", "k");
    let planned = plan(&pool, "k", 1).unwrap();
    assert_eq!((planned.source.segment.as_str(), planned.source.owner), ("a", client(100)));
    assert_eq!(plan(&pool, "k", 2), Err(NoPlan::Busy));
    let (to, other) = if planned.target == "b" { ("b", "c") } else { ("c", "b") };
    let begin =
        |pool: &Copier, by, to: &str, lease| pool.begin_with(by, CopyKind::Copy, "k", "a", &[to], lease).map(|_| ());
    let lease = Some(planned.lease);
    let wrong = Some(CopyLease { id: Uuid { first: 9, second: 9 }, ..planned.lease });
    assert_eq!(begin(&pool, 100, to, None), E(ErrorCode::OBJECT_HAS_REPLICATION_TASK));
    assert_eq!(begin(&pool, 100, to, wrong), E(ErrorCode::INVALID_VERSION));
    assert_eq!(begin(&pool, 100, other, lease), E(ErrorCode::OBJECT_HAS_REPLICATION_TASK));
    assert_eq!(begin(&pool, 101, to, lease), E(ErrorCode::ILLEGAL_CLIENT));
    assert_eq!(begin(&pool, 100, to, lease), Ok(()));
    let end = |lease| {
        pool.catalog.copy_end(&CopyEnd {
            caller: pool.caller(100),
            key: b"k",
            kind: CopyKind::Copy,
            lease,
            target: None,
        })
    };
    assert_eq!(end(wrong), E(ErrorCode::INVALID_VERSION));
    assert_eq!(end(lease), Ok(()));
    assert_eq!(plan(&pool, "k", 3), Err(NoPlan::Enough));
    assert_eq!(begin(&pool, 100, other, lease), E(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS));
    assert!(pool.catalog.drop_duplicate(T, b"k", to, pool.now), "shrinking drops the other copy");
    assert!(!pool.catalog.drop_duplicate(T, b"k", "a", pool.now), "but never the last");
    assert_eq!(pool.places("k"), ["a"]);
    pool.catalog.assert_consistent();
}

#[test]
fn a_plan_ends_and_does_not_fit_a_newer_object() {
    let mut pool = Copier::new();
    pool.put_in("a", "k");
    let planned = plan(&pool, "k", 1).unwrap();
    pool.remove("k", Force::No).unwrap();
    pool.put_in("a", "k");
    let begin = |pool: &Copier, planned: &DynamicPlan| {
        let to = [planned.target.as_str()];
        pool.begin_with(100, CopyKind::Copy, "k", "a", &to, Some(planned.lease)).map(|_| ())
    };
    assert_eq!(begin(&pool, &planned), E(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS));
    let planned = plan(&pool, "k", 2).unwrap();
    pool.advance(Duration::from_secs(30));
    assert_eq!(begin(&pool, &planned), E(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS));
    assert!(pool.begin(100, CopyKind::Copy, "k", "a", &["b"]).is_ok(), "an expired plan stops nobody");
    pool.catalog.assert_consistent();
}

#[test]
fn sources_of_tasks_are_readable_replicas() {
    let mut pool = Copier::new();
    pool.put_in("a", "k");
    pool.start(1, "unfinished", KIB).unwrap();
    let source = |key: &str, targets: &[&str]| pool.catalog.copy_source(T, key.as_bytes(), targets, &mut || 7);
    assert_eq!(source("k", &["b"]), Ok(Source { segment: "a".into(), owner: client(100) }));
    assert_eq!(source("k", &[]), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(source("none", &["b"]), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(source("k", &["nowhere"]), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(source("unfinished", &["b"]), Err(ErrorCode::REPLICA_IS_NOT_READY));
    let move_source = |from, to| pool.catalog.move_source(T, b"k", from, to).map(|found| found.owner);
    assert_eq!(move_source("a", "b"), Ok(client(100)));
    assert_eq!(move_source("a", "a"), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(move_source("b", "c"), Err(ErrorCode::INVALID_PARAMS));
    let unfinished = pool.catalog.move_source(T, b"unfinished", "a", "b");
    assert_eq!(unfinished, Err(ErrorCode::REPLICA_IS_NOT_READY));
}

#[test]
fn a_segment_that_is_drained_tells_what_it_holds_and_where_that_could_go() {
    let mut pool = Copier::new();
    for number in 0..20 {
        pool.put_in(if number % 2 == 0 { "a" } else { "b" }, &format!("k{number}"));
    }
    pool.start(1, "unfinished", KIB).unwrap();
    let walk = |pool: &Copier| {
        let (mut keys, mut cursor) = (Vec::new(), Some(HoldingsCursor::default()));
        while let Some(from) = cursor {
            cursor = pool.catalog.holdings("b", from, |holding| {
                keys.push((String::from_utf8(holding.key.to_vec()).unwrap(), holding.held));
            });
        }
        keys
    };
    assert_eq!(walk(&pool), [], "only what takes nothing more is walked over");
    pool.catalog.set_draining(&["b"]).unwrap();
    assert_eq!(pool.catalog.look_at("b"), Some((SegmentStatus::DRAINING, 1)));
    let found = walk(&pool);
    assert_eq!(found.len(), 11);
    assert!(
        found.contains(&("unfinished".to_owned(), Held::Unfinished)) && found.contains(&("k1".to_owned(), Held::Ready))
    );
    // `a` is fuller than `c`.
    let elsewhere = |key: &str, allowed: &[&str]| {
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        pool.catalog.elsewhere(T, key.as_bytes(), "b", &allowed)
    };
    let to = |target: &str| Elsewhere::Move { target: target.into(), owner: client(101) };
    assert_eq!(elsewhere("k1", &[]), to("c"));
    assert_eq!(elsewhere("k1", &["a"]), to("a"));
    assert_eq!(elsewhere("k2", &[]), Elsewhere::Gone);
    assert_eq!(elsewhere("unfinished", &[]), Elsewhere::Busy);
    pool.begin(101, CopyKind::Copy, "k1", "b", &["a", "c"]).unwrap();
    assert_eq!(elsewhere("k1", &[]), Elsewhere::Busy);
    pool.end_copy(101, CopyKind::Copy, "k1").unwrap();
    assert_eq!(elsewhere("k1", &[]), Elsewhere::Duplicate);
}

/// What a repair says when it is a copy: key, source and target.
fn repair_of(pool: &Pool, loss: &Loss) -> Option<(Vec<u8>, String, String)> {
    match pool.catalog.plan_repair(loss) {
        Repair::Copy { key, source, target, .. } => Some((key.into(), source.segment, target)),
        _ => None,
    }
}

#[test]
fn an_object_that_lost_a_replica_is_noted_and_goes_to_a_segment_with_room_to_spare() {
    let mut pool = two_copies();
    let id = pool.catalog.segments().iter().find(|s| s.info().name == "a").unwrap().info().id;
    pool.catalog.unmount(id, client(100), pool.now, &mut pool.effects).unwrap();
    assert!(pool.catalog.take_losses(9).is_empty(), "not looked at yet");
    pool.upkeep();
    let losses = pool.catalog.take_losses(9);
    assert_eq!(losses.len(), 1, "what is gone as a whole is no loss that can be repaired");
    let loss = losses[0];
    assert_eq!(repair_of(&pool, &loss), Some((b"two".to_vec(), "b".into(), "c".into())));
    // A pool that is nearly full is spared.
    pool.config.preferred_segments = vec!["c".into()];
    pool.put("fills", 800);
    assert_eq!(pool.catalog.plan_repair(&loss), Repair::NoRoom);
    pool.remove("fills", Force::Yes).unwrap();
    pool.upkeep();
    let call = CopyCall { caller: pool.caller(101), key: b"two", source: "b", targets: &["c"], lease: None };
    pool.catalog.copy_start(&call, |_| {}).unwrap();
    assert_eq!(pool.catalog.plan_repair(&loss), Repair::Busy);
    let end = CopyEnd { caller: pool.caller(101), key: b"two", kind: CopyKind::Copy, lease: None, target: None };
    pool.catalog.copy_end(&end).unwrap();
    assert_eq!(pool.catalog.plan_repair(&loss), Repair::Done);
    pool.remove("two", Force::Yes).unwrap();
    pool.put("two", 100);
    assert_eq!(pool.catalog.plan_repair(&loss), Repair::Done, "another write");
}

#[test]
fn a_repair_goes_to_another_host_if_there_is_one() {
    let mut pool = Pool::new(CatalogSettings::default());
    for (at, (name, host)) in (1..).zip([("a", "h1"), ("b", "h2"), ("c", "h2"), ("d", "h3")]) {
        let size = if name == "d" { 200 } else { 1000 };
        pool.mount(Segment { host_id: host.into(), ..segment(at, name, size) }, 99 + at).unwrap();
    }
    pool.catalog.follow_losses();
    pool.config = ReplicateConfig { replica_num: 2, preferred_segments: vec!["a".into(), "b".into()], ..pool.config };
    pool.put("k", 150);
    pool.catalog.unmount(segment(1, "a", 0).id, client(100), pool.now, &mut pool.effects).unwrap();
    pool.upkeep();
    let loss = pool.catalog.take_losses(9)[0];
    assert_eq!(repair_of(&pool, &loss), Some((b"k".to_vec(), "b".into(), "d".into())), "c is where one is already");
    pool.config = ReplicateConfig { replica_num: 1, preferred_segments: vec!["d".into()], ..pool.config };
    pool.put("fills", 40);
    assert_eq!(pool.catalog.plan_repair(&loss), Repair::NoRoom, "rather none than a second one there");
}

#[test]
fn a_replica_that_was_taken_away_as_bad_is_a_loss_too() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", 1000), ("b", 1000)]);
    pool.catalog.follow_losses();
    pool.config.replica_num = 2;
    pool.start(1, "k", 100).unwrap();
    pool.end_as(1, "k", ReplicaType::ALL, Some(7)).unwrap();
    let mut bad = None;
    pool.catalog.peek(T, ["k"], |_, found| bad = found.unwrap().replicas().next().map(|replica| replica.id));
    let name = ReplicaName { tenant: T, key: b"k", replica: bad.unwrap(), checksum: 7 };
    pool.catalog.quarantine(&name, pool.now, &mut pool.effects).unwrap();
    let losses = pool.catalog.take_losses(9);
    assert_eq!(losses.len(), 1);
    assert!(repair_of(&pool, &losses[0]).is_some());
}

/// Lets time pass second by second; these clients ping, and all waiting work is done.
fn pass(pool: &mut Pool, seconds: u64, alive: &[u64]) {
    for _ in 0..seconds {
        pool.advance(Duration::from_secs(1));
        for &number in alive {
            pool.catalog.ping(client(number), pool.now).unwrap();
        }
        pool.catalog.expire_clients(pool.now, &mut pool.effects);
        pool.upkeep();
    }
}

/// A pool whose object lies in `a` and `b`, and another one in `a` alone.
fn two_copies() -> Pool {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", 1000), ("b", 1000), ("c", 1000)]);
    pool.catalog.follow_losses();
    pool.config = ReplicateConfig { replica_num: 2, preferred_segments: vec!["a".into(), "b".into()], ..pool.config };
    pool.put("two", 100);
    pool.config.replica_num = 1;
    pool.put("one", 100);
    pool
}

/// Carries out the one repair that is wanted.
fn repair(pool: &Pool, loss: &Loss) {
    assert_eq!(repair_of(pool, loss), Some((b"two".to_vec(), "b".into(), "c".into())));
    let call = CopyCall { caller: pool.caller(101), key: b"two", source: "b", targets: &["c"], lease: None };
    pool.catalog.copy_start(&call, |_| {}).unwrap();
    let end = CopyEnd { caller: pool.caller(101), key: b"two", kind: CopyKind::Copy, lease: None, target: None };
    pool.catalog.copy_end(&end).unwrap();
    assert_eq!(pool.catalog.plan_repair(loss), Repair::Done);
}

fn homes(pool: &Pool, key: &str) -> Vec<String> {
    pool.get(key).unwrap().replicas.into_iter().map(|replica| replica.0.to_string()).collect()
}

#[test]
fn what_lies_on_a_node_that_is_away_is_repaired_before_it_is_given_up() {
    let mut pool = two_copies();
    let alive = [101, 102];
    // Offline after 10 s, missed 5 s later, given up after 30 s.
    pass(&mut pool, 12, &alive);
    assert!(pool.catalog.take_losses(9).is_empty(), "it may come back at once");
    pass(&mut pool, 6, &alive);
    let losses = pool.catalog.take_losses(9);
    assert_eq!(losses.len(), 1, "what has no other replica cannot be helped");
    repair(&pool, &losses[0]);
    // The replica there went with the node: nothing more is missing.
    pass(&mut pool, 30, &alive);
    assert!(pool.catalog.segments().iter().all(|segment| segment.info().name != "a"));
    for loss in pool.catalog.take_losses(9) {
        assert_eq!(pool.catalog.plan_repair(&loss), Repair::Done, "two replicas are what it had");
    }
    assert_eq!(homes(&pool, "two"), ["b", "c"]);
    pool.catalog.assert_consistent();
}

#[test]
fn a_node_that_comes_back_keeps_its_objects_and_the_copy_made_for_them_goes() {
    let mut pool = two_copies();
    pass(&mut pool, 18, &[101, 102]);
    repair(&pool, &pool.catalog.take_losses(9)[0]);
    let all = [100, 101, 102];
    pass(&mut pool, 2, &all);
    assert_eq!((homes(&pool, "one"), homes(&pool, "two").len()), (vec!["a".to_owned()], 3));
    pass(&mut pool, 8, &all);
    assert_eq!(homes(&pool, "two"), ["a", "b"], "the newest of the three goes");
    assert_eq!(pool.catalog.stats().stand_ins_dropped, 1);
    // One that is dead for sure is missed sooner.
    pool.catalog.doubt(client(100), pool.now, &mut pool.effects);
    pass(&mut pool, 4, &[101, 102]);
    assert!(pool.catalog.take_losses(9).is_empty());
    pass(&mut pool, 4, &[101, 102]);
    assert_eq!(pool.catalog.take_losses(9).len(), 1);
    pool.catalog.assert_consistent();
}
