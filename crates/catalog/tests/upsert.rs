//! Upsert: new space beside the readable object, one switch, and the old value whenever something goes wrong.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MIB: u64 = 1 << 20;

#[test]
fn readers_get_the_old_object_until_the_end_and_the_new_one_after() {
    let mut pool = Pool::with_segment(MIB);
    let old = pool.put("key", 1000);
    let new = pool.upsert_start(2, "key", 1000).unwrap();
    assert_ne!(new.replicas[0].1, old.replicas[0].1, "never over the old bytes");
    assert_eq!(new.replicas[0].2, ReplicaStatus::PROCESSING);
    assert_eq!(pool.get("key").unwrap().generation, old.generation);
    assert_eq!(pool.start(3, "key", 1000), Err(PutRefusal::Exists));
    assert_eq!(pool.remove("key", Force::Yes), Err(ErrorCode::REPLICA_IS_NOT_READY));
    assert_eq!(pool.end(3, "key"), Err(ErrorCode::ILLEGAL_CLIENT));
    pool.catalog.assert_consistent();

    pool.end_as(2, "key", ReplicaType::ALL, Some(5)).unwrap();
    let read = pool.get("key").unwrap();
    assert_eq!((read.generation, read.checksum), (new.generation, Some(5)));
    assert_eq!((pool.catalog.stats().keys, pool.catalog.stats().unfinished), (1, 0));
    pool.catalog.assert_consistent();
}

#[test]
fn an_upsert_of_a_key_that_is_not_there_is_a_put() {
    let mut pool = Pool::with_segment(MIB);
    pool.upsert_start(1, "key", 100).unwrap();
    assert_eq!(pool.get("key"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    pool.end(1, "key").unwrap();
    assert_eq!(pool.get("key").unwrap().size, 100);
}

#[test]
fn the_space_of_the_old_object_is_withheld_until_its_leases_end() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("key", 1024);
    pool.get("key").unwrap();
    pool.upsert("key", 2048);
    assert_eq!(pool.used(), 1024 + 2048);
    pool.advance(9 * SECOND);
    pool.upkeep();
    assert_eq!(pool.used(), 1024 + 2048);
    pool.advance(SECOND);
    pool.upkeep();
    assert_eq!(pool.used(), 2048);
    pool.upsert("key", 512);
    assert_eq!(pool.used(), 512, "without a lease the old space is free at the switch");
    pool.catalog.assert_consistent();
}

#[test]
fn a_revoke_and_a_dead_writer_leave_the_old_object() {
    let mut pool = Pool::with_segment(MIB);
    let old = pool.put("key", 1024);
    let new = pool.upsert_start(2, "key", 1024).unwrap();
    assert_eq!(pool.revoke(3, "key"), Err(ErrorCode::ILLEGAL_CLIENT));
    pool.revoke(2, "key").unwrap();
    assert_eq!(pool.get("key").unwrap().generation, old.generation);
    assert_eq!(pool.effects.quiesce.pop().unwrap().generation, new.generation);
    assert_eq!(pool.used(), 2048, "the writer may still write");
    assert_eq!(pool.end(2, "key"), Err(ErrorCode::ILLEGAL_CLIENT), "the object is of another client");

    pool.upsert_start(2, "key", 1024).unwrap();
    pool.advance(601 * SECOND);
    pool.upkeep();
    assert_eq!(pool.get("key").unwrap().generation, old.generation);
    assert_eq!((pool.catalog.stats().unfinished, pool.used()), (0, 1024));
    assert_eq!(pool.remove("key", Force::Yes), Ok(()), "nothing is left of the upsert");
    pool.catalog.assert_consistent();
}

#[test]
fn the_last_upsert_wins_and_the_space_of_the_overtaken_one_is_kept_for_its_writer() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("key", 1024);
    let first = pool.upsert_start(2, "key", 1024).unwrap();
    let second = pool.upsert_start(3, "key", 1024).unwrap();
    let asked = pool.effects.quiesce.pop().unwrap();
    assert_eq!((asked.generation, asked.writer, asked.revoked), (first.generation, client(2), false));
    assert_eq!(pool.used(), 3 * 1024);
    assert_eq!(pool.end(2, "key"), Err(ErrorCode::ILLEGAL_CLIENT));
    pool.end(3, "key").unwrap();
    assert_eq!(pool.get("key").unwrap().generation, second.generation);
    pool.advance(601 * SECOND);
    pool.upkeep();
    assert_eq!(pool.used(), 1024);
    pool.catalog.assert_consistent();
}

#[test]
fn an_upsert_overtakes_an_unfinished_put_at_once() {
    let mut pool = Pool::with_segment(MIB);
    pool.start(1, "key", 1024).unwrap();
    let new = pool.upsert_start(2, "key", 512).unwrap();
    assert_eq!(pool.end(1, "key"), Err(ErrorCode::ILLEGAL_CLIENT));
    assert_eq!(pool.get("key"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    pool.end(2, "key").unwrap();
    assert_eq!(pool.get("key").unwrap().generation, new.generation);
    pool.catalog.assert_consistent();
}

#[test]
fn without_space_the_old_object_stays_and_is_not_evicted_for_its_own_successor() {
    let mut pool = Pool::with_segment(MIB);
    let old = pool.put("key", MIB / 4 * 3);
    pool.advance(60 * SECOND);
    let refusal = pool.upsert_start(1, "key", MIB / 2).unwrap_err();
    assert_eq!(refusal.code(), ErrorCode::NO_AVAILABLE_HANDLE);
    assert_eq!(pool.peek("key").unwrap().generation, old.generation);
    pool.catalog.assert_consistent();

    pool.put("other", MIB / 4);
    pool.advance(60 * SECOND);
    pool.upsert_start(1, "key", MIB / 4).unwrap();
    assert!(pool.peek("key").is_ok() && pool.peek("other").is_err(), "another one goes instead");
}

#[test]
fn after_a_refused_upsert_nobody_evicts_the_object_for_its_successor() {
    let mut pool = Pool::with_segment(MIB);
    let old = pool.put("key", MIB / 4 * 3);
    pool.advance(60 * SECOND);
    // Two clients want it; the second one's refusal does not end what the first one's began.
    for writer in [1, 2] {
        let refusal = pool.upsert_start(writer, "key", MIB / 2).unwrap_err();
        assert_eq!(refusal, PutRefusal::NothingEvictable);
        assert_eq!(pool.catalog.eviction_goal(pool.now), None, "nobody is asked to evict the object");
    }
    // A put of another key asks; what an upsert waits for is not for it to take at once.
    assert_eq!(pool.start(3, "other", MIB / 2), Err(PutRefusal::NothingEvictable));
    let goal = pool.catalog.eviction_goal(pool.now).unwrap();
    assert_eq!(pool.catalog.evict(&goal, 100, pool.now).keys, 0);
    assert_eq!(pool.catalog.eviction_goal(pool.now), None, "a round that found nothing is not repeated");
    assert_eq!(pool.peek("key").unwrap().generation, old.generation);

    pool.advance(6 * SECOND);
    pool.start(3, "other", MIB / 2).unwrap();
    assert!(pool.peek("key").is_err(), "later it is an object like any other");
    pool.catalog.assert_consistent();
}

#[test]
fn the_object_of_a_refused_upsert_can_be_removed() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("key", MIB / 4 * 3);
    pool.advance(60 * SECOND);
    pool.upsert_start(1, "key", MIB / 2).unwrap_err();
    pool.config.residency_affinity_ids = Some(vec!["a".into()]);
    assert_eq!(pool.upsert_start(1, "key", MIB / 2).unwrap_err().code(), ErrorCode::INVALID_PARAMS);
    pool.config.residency_affinity_ids = None;
    assert_eq!(pool.remove("key", Force::No), Ok(()));
    pool.upsert_start(1, "key", MIB / 2).unwrap();
    pool.catalog.assert_consistent();
}

#[test]
fn a_write_under_way_survives_the_loss_of_the_object_that_it_replaces() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB)]);
    pool.config.preferred_segments = vec!["a".into()];
    pool.put("evicted", 1024);
    pool.put("lost", 1024);
    pool.config.preferred_segments = vec!["b".into()];
    let evicted = pool.upsert_start(1, "evicted", 1024).unwrap();
    let lost = pool.upsert_start(1, "lost", 1024).unwrap();
    pool.advance(60 * SECOND);
    let goal = EvictionGoal { target: ByteLen(1), at_least: ByteLen(1) };
    assert_eq!(pool.catalog.evict(&goal, 100, pool.now).keys, 1);
    assert_eq!(pool.get("evicted"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    let id = SegmentId(Uuid { first: 1, second: 2 });
    pool.catalog.unmount(id, client(100), pool.now, &mut pool.effects).unwrap();
    pool.upkeep();
    pool.catalog.assert_consistent();
    for (key, write) in [("evicted", evicted), ("lost", lost)] {
        pool.end(1, key).unwrap();
        assert_eq!(pool.get(key).unwrap().generation, write.generation);
    }
    pool.catalog.assert_consistent();
}

#[test]
fn the_loss_of_the_new_space_leaves_the_old_object() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB)]);
    pool.config.preferred_segments = vec!["b".into()];
    let old = pool.put("key", 1024);
    pool.config.preferred_segments = vec!["a".into()];
    pool.upsert_start(1, "key", 1024).unwrap();
    let id = SegmentId(Uuid { first: 1, second: 2 });
    pool.catalog.unmount(id, client(100), pool.now, &mut pool.effects).unwrap();
    assert_eq!(pool.end(1, "key"), Err(ErrorCode::OBJECT_NOT_FOUND));
    pool.upkeep();
    assert_eq!(pool.get("key").unwrap().generation, old.generation);
    pool.catalog.assert_consistent();
}

#[test]
fn one_client_has_one_write_of_a_key_so_that_its_end_can_mean_no_other() {
    let mut pool = Pool::with_segment(MIB);
    // Two threads of client 1. The first one stalls longer than the discard timeout.
    pool.start(1, "key", 1024).unwrap();
    pool.advance(31 * SECOND);
    assert_eq!(pool.start(1, "key", 1024), Err(PutRefusal::OwnWriteOpen));
    assert_eq!(pool.upsert_start(1, "key", 1024), Err(PutRefusal::OwnWriteOpen));
    // Another client takes over; client 1 comes again, and has still not answered for the first write.
    pool.start(2, "key", 1024).unwrap();
    assert_eq!(pool.upsert_start(1, "key", 1024), Err(PutRefusal::OwnWriteOpen));
    pool.revoke(2, "key").unwrap();
    assert_eq!(pool.start(1, "key", 1024), Err(PutRefusal::OwnWriteOpen), "also when the key is free again");
    assert_eq!(pool.end(1, "key"), Err(ErrorCode::OBJECT_NOT_FOUND), "the first thread answers");
    pool.start(1, "key", 1024).unwrap();
    assert_eq!(pool.get("key"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    pool.end(1, "key").unwrap();

    let mut pool = Pool::with_segment(MIB);
    pool.start(1, "key", 1024).unwrap();
    pool.advance(31 * SECOND);
    pool.start(2, "key", 1024).unwrap();
    pool.revoke(2, "key").unwrap();
    pool.advance(570 * SECOND);
    pool.start(1, "key", 1024).unwrap();
}

#[test]
fn what_an_upsert_keeps_of_the_old_object() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB)]);
    pool.config.with_hard_pin = true;
    pool.config.replica_num = 2;
    pool.config.data_type = ObjectDataType::TENSOR;
    pool.config.group_ids = Some(vec!["g".into()]);
    pool.config.soft_pin_action = SoftPinAction::ENABLE;
    pool.put("key", 1024);
    let facts = |pool: &Pool| {
        let mut facts = None;
        pool.catalog.peek(T, ["key"], |_, found| {
            let view = found.unwrap();
            let group = view.group().map(str::to_owned);
            facts =
                Some((view.is_hard_pinned(), view.replicas().count(), view.data_type(), group, view.soft_pin_end()));
        });
        facts.unwrap()
    };
    let (group, pin) = (Some("g".to_owned()), Some(pool.now + 1800 * SECOND));
    assert_eq!(facts(&pool), (true, 2, ObjectDataType::TENSOR, group.clone(), pin));

    pool.config = ReplicateConfig::default();
    pool.advance(SECOND);
    pool.upsert("key", 1024);
    assert_eq!(facts(&pool), (true, 2, ObjectDataType::TENSOR, group.clone(), pin), "the same size");
    pool.upsert("single", 1024);
    pool.config.replica_num = 2;
    pool.upsert("single", 1024);
    assert_eq!(pool.peek("single").unwrap().replicas.len(), 2, "more are asked for than there are");
    pool.config.replica_num = 1;
    pool.upsert("key", 512);
    assert_eq!(facts(&pool), (true, 1, ObjectDataType::UNKNOWN, group.clone(), pin), "another size");
    pool.config.soft_pin_action = SoftPinAction::DISABLE;
    pool.upsert("key", 512);
    assert_eq!(facts(&pool).4, None);
    assert_eq!(pool.catalog.stats().soft_pins, 0);

    for (groups, answer) in [(vec!["h"], Err(PutRefusal::OtherGroup)), (vec![""], Err(PutRefusal::OtherGroup))] {
        pool.config.group_ids = Some(groups.into_iter().map(str::to_owned).collect());
        assert_eq!(pool.upsert_start(1, "key", 512), answer);
        assert_eq!(PutRefusal::OtherGroup.code(), ErrorCode::INVALID_PARAMS);
    }
    pool.config.group_ids = Some(vec!["g".into()]);
    pool.upsert("key", 512);
    pool.catalog.assert_consistent();
}

#[test]
fn an_upsert_without_a_checksum_clears_it() {
    let mut pool = Pool::with_segment(MIB);
    pool.start(1, "key", 10).unwrap();
    pool.end_as(1, "key", ReplicaType::ALL, Some(7)).unwrap();
    pool.upsert("key", 10);
    assert_eq!(pool.get("key").unwrap().checksum, None);
}
