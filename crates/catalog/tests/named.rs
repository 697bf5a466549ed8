//! Ends and revokes that name their write: what is said late of one write changes nothing of the next.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

const KIB: u64 = 1 << 10;
const GONE: Result<(), ErrorCode> = Err(ErrorCode::OBJECT_NOT_FOUND);

fn name(found: &Found) -> ReplicaId {
    ReplicaId(found.generation.0.get())
}

fn end(pool: &Pool, by: u64, key: &str, write: ReplicaId) -> Result<(), ErrorCode> {
    let mut answer = None;
    let items = [(key, write, None)];
    pool.catalog.end_writes(&pool.caller(by), ReplicaType::ALL, items, |_, result| answer = Some(result));
    answer.unwrap()
}

fn revoke(pool: &mut Pool, by: u64, key: &str, write: ReplicaId, quiet: Quiet) -> Result<(), ErrorCode> {
    let (mut answer, caller) = (None, pool.caller(by));
    let how = (ReplicaType::ALL, quiet);
    pool.catalog.revoke_writes(&caller, how, [(key, write)], &mut pool.effects, |_, result| answer = Some(result));
    answer.unwrap()
}

#[test]
fn a_late_end_does_not_publish_the_next_write_of_the_same_client() {
    let mut pool = Pool::with_segment(64 * KIB);
    let first = name(&pool.start(1, "key", KIB).unwrap());
    assert_eq!(end(&pool, 1, "key", first), Ok(()));
    assert_eq!(end(&pool, 1, "key", first), Ok(()), "a repetition");
    pool.remove("key", Force::No).unwrap();
    assert_eq!(end(&pool, 1, "key", first), GONE);
    let second = name(&pool.start(1, "key", KIB).unwrap());
    assert_eq!(end(&pool, 1, "key", first), GONE, "the first write is gone");
    assert_eq!(pool.peek("key").map(|_| ()), Err(ErrorCode::REPLICA_IS_NOT_READY), "its bytes are not there yet");
    assert_eq!(end(&pool, 2, "key", second), Err(ErrorCode::ILLEGAL_CLIENT), "a name is no right");
    assert_eq!(end(&pool, 1, "key", second), Ok(()));
    assert_eq!(name(&pool.get("key").unwrap()), second);
    assert_eq!(end(&pool, 1, "key", first), GONE, "nobody is told that lost bytes are stored");
    pool.catalog.assert_consistent();
}

#[test]
fn a_late_end_does_not_publish_an_upsert() {
    let mut pool = Pool::with_segment(64 * KIB);
    let first = name(&pool.put("key", KIB));
    let second = name(&pool.upsert_start(1, "key", 2 * KIB).unwrap());
    assert_eq!(end(&pool, 1, "key", first), Ok(()), "it is stored, and stays so");
    assert_eq!(name(&pool.get("key").unwrap()), first);
    assert_eq!(end(&pool, 1, "key", second), Ok(()));
    assert_eq!(name(&pool.get("key").unwrap()), second);
    assert_eq!(end(&pool, 1, "key", first), GONE);
    pool.catalog.assert_consistent();
}

#[test]
fn a_late_revoke_takes_nothing_from_the_next_write() {
    for quiet in [Quiet::Yes, Quiet::No] {
        let mut pool = Pool::with_segment(64 * KIB);
        let first = name(&pool.start(1, "key", KIB).unwrap());
        assert_eq!(revoke(&mut pool, 1, "key", first, quiet), Ok(()));
        assert_eq!(pool.used(), if quiet == Quiet::Yes { 0 } else { KIB });
        let second = name(&pool.start(1, "key", KIB).unwrap());
        let (used, asked) = (pool.used(), pool.effects.quiesce.len());
        assert_eq!(revoke(&mut pool, 1, "key", first, quiet), GONE);
        assert_eq!((pool.used(), pool.effects.quiesce.len()), (used, asked), "nothing is given back");
        assert_eq!(end(&pool, 1, "key", second), Ok(()));
        assert_eq!(revoke(&mut pool, 1, "key", first, quiet), GONE);
        assert_eq!(revoke(&mut pool, 1, "key", second, quiet), Err(ErrorCode::INVALID_WRITE));
        assert_eq!(name(&pool.get("key").unwrap()), second);
        pool.catalog.assert_consistent();
    }
}

#[test]
fn a_writer_answers_for_the_write_that_was_overtaken_and_for_no_other() {
    let mut pool = Pool::with_segment(64 * KIB);
    let first = name(&pool.put("key", KIB));
    pool.remove("key", Force::No).unwrap();
    let second = name(&pool.start(1, "key", KIB).unwrap());
    let other = name(&pool.upsert_start(2, "key", KIB).unwrap());
    assert_eq!(end(&pool, 2, "key", other), Ok(()));
    assert_eq!(end(&pool, 1, "key", first), Err(ErrorCode::ILLEGAL_CLIENT));
    assert_eq!(pool.upsert_start(1, "key", KIB), Err(PutRefusal::OwnWriteOpen), "the second one is owed");
    assert_eq!(end(&pool, 1, "key", second), Err(ErrorCode::ILLEGAL_CLIENT));
    let third = name(&pool.upsert_start(1, "key", KIB).unwrap());
    assert_eq!(end(&pool, 1, "key", second), Err(ErrorCode::ILLEGAL_CLIENT), "late, and the key is the other's");
    assert_eq!(name(&pool.get("key").unwrap()), other);
    assert_eq!(end(&pool, 1, "key", third), Ok(()));
    pool.catalog.assert_consistent();
}

#[test]
fn a_write_that_lost_its_first_replica_is_still_named_by_it() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", 64 * KIB), ("b", 64 * KIB)]);
    pool.config.replica_num = 2;
    let started = pool.start(1, "key", KIB).unwrap();
    let first_at = if started.replicas[0].0 == "a" { 100 } else { 101 };
    let owner = pool.catalog.segment_owner(SegmentId(Uuid { first: first_at - 99, second: 2 })).unwrap();
    let id = SegmentId(Uuid { first: first_at - 99, second: 2 });
    pool.catalog.unmount(id, owner, pool.now, &mut pool.effects).unwrap();
    assert_eq!(end(&pool, 1, "key", name(&started)), Ok(()));
    assert_eq!(pool.get("key").unwrap().replicas.len(), 1);
    pool.advance(Duration::from_secs(1));
    pool.upkeep();
    pool.catalog.assert_consistent();
}

#[test]
fn a_late_end_of_a_copy_does_not_publish_the_next_copy() {
    let segments = [("a", 64 * KIB), ("b", 64 * KIB), ("c", 64 * KIB)];
    let mut pool = Pool::with(CatalogSettings::default(), &segments);
    pool.config.preferred_segment = "a".into();
    pool.put("key", KIB);
    let begin = |pool: &Pool, to| {
        let (caller, mut target) = (pool.caller(100), None);
        let call = CopyCall { caller, key: b"key", source: "a", targets: &[to], lease: None };
        pool.catalog.copy_start(&call, |view| target = Some(view.targets[0].id)).unwrap();
        CopyTarget(target.unwrap())
    };
    let about = |pool: &Pool, target| {
        let caller = pool.caller(100);
        CopyEnd { caller, key: b"key", kind: CopyKind::Copy, lease: None, target: Some(target) }
    };
    let places = |pool: &Pool| pool.peek("key").unwrap().replicas.len();
    let first = begin(&pool, "b");
    assert_eq!(pool.catalog.copy_end(&about(&pool, first)), Ok(()));
    let second = begin(&pool, "c");
    let (late, not_it) = (about(&pool, first), Err(ErrorCode::OBJECT_NO_REPLICATION_TASK));
    assert_eq!(pool.catalog.copy_end(&late), not_it);
    assert_eq!(pool.catalog.copy_revoke(&late, &mut pool.effects), not_it);
    assert_eq!((places(&pool), pool.catalog.copies_running()), (2, 1), "the second one goes on");
    assert_eq!(pool.catalog.copy_end(&about(&pool, second)), Ok(()));
    assert_eq!(places(&pool), 3);
    pool.catalog.assert_consistent();
}

#[test]
fn a_client_answers_for_the_copy_that_was_given_up_and_for_no_other() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", 64 * KIB), ("b", 64 * KIB)]);
    pool.config.preferred_segment = "a".into();
    pool.put("key", KIB);
    let begin = |pool: &Pool| {
        let (caller, mut target) = (pool.caller(100), None);
        let call = CopyCall { caller, key: b"key", source: "a", targets: &["b"], lease: None };
        pool.catalog.copy_start(&call, |view| target = Some(view.targets[0].id)).map(|()| CopyTarget(target.unwrap()))
    };
    let end = |pool: &Pool, target| {
        let caller = pool.caller(100);
        let kind = CopyKind::Copy;
        pool.catalog.copy_end(&CopyEnd { caller, key: b"key", kind, lease: None, target: Some(target) })
    };
    let overdue = begin(&pool).unwrap();
    pool.advance(CatalogSettings::default().release_timeout + SECOND);
    pool.upkeep();
    assert_eq!(pool.catalog.copies_running(), 0);
    assert_eq!(end(&pool, CopyTarget(ReplicaId(1))), Err(ErrorCode::OBJECT_NO_REPLICATION_TASK), "of another copy");
    assert_eq!(begin(&pool), Err(ErrorCode::OBJECT_HAS_REPLICATION_TASK), "the first one is owed");
    assert_eq!(end(&pool, overdue), Err(ErrorCode::OBJECT_NO_REPLICATION_TASK));
    let next = begin(&pool).unwrap();
    assert_eq!(end(&pool, next), Ok(()));
    pool.catalog.assert_consistent();
}
