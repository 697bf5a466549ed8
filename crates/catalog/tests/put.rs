//! PutStart, PutEnd, PutRevoke: the tables of answers, and what becomes of the space.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MIB: u64 = 1 << 20;

fn refused(configure: impl FnOnce(&mut ReplicateConfig)) -> ErrorCode {
    let mut pool = Pool::with_segment(MIB);
    configure(&mut pool.config);
    pool.start(1, "key", 10).unwrap_err().code()
}

#[test]
fn arguments_are_checked_in_the_peers_order() {
    assert_eq!(refused(|c| c.replica_num = 0), ErrorCode::INVALID_PARAMS);
    assert_eq!(refused(|c| c.dfs_replica_num = 2), ErrorCode::INVALID_PARAMS);
    assert_eq!(refused(|c| (c.replica_num, c.dfs_replica_num) = (0, 1)), ErrorCode::DFS_SERVICE_UNAVAILABLE);
    for action in [3, 100, 255] {
        assert_eq!(refused(|c| c.soft_pin_action = SoftPinAction(action)), ErrorCode::INVALID_PARAMS);
    }
    let two = || Some(vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(refused(|c| c.session_ids = two()), ErrorCode::INVALID_PARAMS);
    assert_eq!(refused(|c| c.session_ids = Some(vec!["s".repeat(257)])), ErrorCode::INVALID_PARAMS);
    assert_eq!(refused(|c| c.residency_affinity_ids = two()), ErrorCode::INVALID_PARAMS);
    assert_eq!(refused(|c| c.dfs_replica_num = 1), ErrorCode::DFS_SERVICE_UNAVAILABLE);
    assert_eq!(refused(|c| c.nof_replica_num = 1), ErrorCode::INVALID_PARAMS);
    assert_eq!(refused(|c| c.soft_pin_ttl_ms = Some(5)), ErrorCode::INVALID_PARAMS);
    let too_long = 7 * 24 * 3600 * 1000 + 1;
    let pin = |c: &mut ReplicateConfig, ms| (c.soft_pin_action, c.soft_pin_ttl_ms) = (SoftPinAction::ENABLE, Some(ms));
    assert_eq!(refused(|c| pin(c, too_long)), ErrorCode::INVALID_PARAMS);
    assert_eq!(refused(|c| c.group_ids = Some(vec!["a".into(), "b".into()])), ErrorCode::INVALID_PARAMS);

    let mut pool = Pool::with_segment(MIB);
    assert_eq!(pool.start(1, "", 10), Err(PutRefusal::EmptyKey));
    assert_eq!(pool.start(1, "key", 0), Err(PutRefusal::EmptyObject));
    assert_eq!(pool.catalog.stats().keys, 0);
}

#[test]
fn an_empty_object_is_stored_where_it_is_allowed() {
    let mut pool = Pool::with_segment(MIB);
    pool.allow_empty = true;
    pool.put("nothing", 0);
    let found = pool.get("nothing").unwrap();
    assert_eq!((found.size, found.replicas.len()), (0, 1));
    pool.catalog.assert_consistent();
}

#[test]
fn a_key_being_written_is_busy_and_unreadable() {
    let mut pool = Pool::with_segment(MIB);
    let started = pool.start(1, "key", 1000).unwrap();
    assert_eq!(started.replicas, vec![("a".into(), 1 << 40, ReplicaStatus::PROCESSING)]);
    assert_eq!(pool.get("key"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    assert!(!pool.exists("key", Probe::Lease));
    for writer in [1, 2] {
        assert_eq!(pool.start(writer, "key", 1000).unwrap_err().code(), ErrorCode::REPLICA_IS_NOT_READY);
    }
    assert_eq!(pool.remove("key", Force::Yes), Err(ErrorCode::REPLICA_IS_NOT_READY));
    pool.end(1, "key").unwrap();
    assert_eq!(pool.start(2, "key", 1000).unwrap_err().code(), ErrorCode::OBJECT_ALREADY_EXISTS);
    let found = pool.get("key").unwrap();
    assert_eq!(found.generation, started.generation);
    assert_eq!(found.replicas[0].2, ReplicaStatus::COMPLETE);
    pool.catalog.assert_consistent();
}

#[test]
fn the_same_key_twice_in_a_batch_is_busy_the_second_time() {
    let mut pool = Pool::with_segment(MIB);
    let answers = pool.start_many(1, &[("a", 1), ("b", 1), ("a", 1), ("", 1)]);
    assert!(answers[0].is_ok() && answers[1].is_ok());
    assert_eq!(answers[2], Err(PutRefusal::Busy));
    assert_eq!(answers[3], Err(PutRefusal::EmptyKey));
}

#[test]
fn end_answers() {
    let mut pool = Pool::with_segment(MIB);
    assert_eq!(pool.end(1, "key"), Err(ErrorCode::OBJECT_NOT_FOUND));
    pool.start(1, "key", 10).unwrap();
    assert_eq!(pool.end(2, "key"), Err(ErrorCode::ILLEGAL_CLIENT));
    assert_eq!(pool.end_as(1, "key", ReplicaType::DISK, None), Ok(()));
    assert_eq!(pool.get("key"), Err(ErrorCode::REPLICA_IS_NOT_READY), "an end of another type completes nothing");
    assert_eq!(pool.end_as(1, "key", ReplicaType::MEMORY, Some(7)), Ok(()));
    assert_eq!(pool.get("key").unwrap().checksum, Some(7));
    assert_eq!(pool.end(1, "key"), Ok(()), "a repetition is fine");
    assert_eq!(pool.get("key").unwrap().checksum, Some(7), "and changes nothing");
    assert_eq!(pool.end(2, "key"), Err(ErrorCode::ILLEGAL_CLIENT));
    assert_eq!(pool.end_as(1, "key", ReplicaType::DISK, None), Err(ErrorCode::INVALID_WRITE));
}

#[test]
fn revoke_answers_and_keeps_the_space_back() {
    let mut pool = Pool::with_segment(MIB);
    assert_eq!(pool.revoke(1, "key"), Err(ErrorCode::OBJECT_NOT_FOUND));
    let started = pool.start(1, "key", 1024).unwrap();
    assert_eq!(pool.revoke(2, "key"), Err(ErrorCode::ILLEGAL_CLIENT));
    assert_eq!(pool.revoke_as(1, "key", ReplicaType::NOF_SSD), Ok(()), "nothing of that type: nothing done");
    assert_eq!(pool.revoke(1, "key"), Ok(()));
    assert_eq!(pool.get("key"), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(pool.used(), 1024);
    let asked = pool.effects.quiesce.pop().unwrap();
    assert_eq!((asked.generation, asked.address, asked.writer), (started.generation, 1 << 40, client(1)));
    assert_eq!((asked.size, asked.owner), (ByteLen(1024), client(100)));

    let again = pool.put("key", 1024);
    assert_ne!(again.replicas[0].1, started.replicas[0].1, "the old space is not handed out");
    assert_eq!(pool.revoke(1, "key"), Err(ErrorCode::INVALID_WRITE));

    pool.advance(599 * SECOND);
    pool.upkeep();
    assert_eq!(pool.used(), 2048);
    pool.advance(2 * SECOND);
    pool.upkeep();
    assert_eq!(pool.used(), 1024);
    let stats = pool.catalog.stats();
    assert_eq!((stats.discarded, stats.released, stats.quiesced), (1, 1, 0));
    pool.catalog.assert_consistent();
}

#[test]
fn a_confirmation_frees_early_and_only_once_and_only_its_own_write() {
    let mut pool = Pool::with_segment(MIB);
    let started = pool.start(1, "key", 1024).unwrap();
    pool.revoke(1, "key").unwrap();
    let asked = pool.effects.quiesce.pop().unwrap();
    let other = Generation(std::num::NonZeroU64::new(999).unwrap());
    assert!(!pool.catalog.confirm_quiesced(asked.segment, asked.address, other));
    assert!(!pool.catalog.confirm_quiesced(asked.segment, asked.address + 64, asked.generation));
    assert!(!pool.catalog.confirm_quiesced(asked.segment, 5, asked.generation));
    assert_eq!(pool.used(), 1024);
    assert!(pool.catalog.confirm_quiesced(asked.segment, asked.address, asked.generation));
    assert_eq!(pool.used(), 0);
    let again = pool.put("key", 1024);
    assert_eq!(again.replicas[0].1, started.replicas[0].1);
    assert!(!pool.catalog.confirm_quiesced(asked.segment, asked.address, asked.generation), "late: changes nothing");
    assert_eq!(pool.used(), 1024);
    pool.advance(1000 * SECOND);
    pool.upkeep();
    assert!(pool.get("key").is_ok());
    pool.catalog.assert_consistent();
}

#[test]
fn an_abandoned_put_gives_way_and_its_space_comes_back_after_the_release_timeout() {
    let mut pool = Pool::with_segment(MIB);
    pool.start(1, "key", 1024).unwrap();
    pool.advance(30 * SECOND);
    assert_eq!(pool.start(2, "key", 1024), Err(PutRefusal::Busy));
    pool.advance(SECOND);
    pool.start(2, "key", 1024).unwrap();
    assert_eq!(pool.effects.quiesce.len(), 1);
    assert_eq!(pool.end(1, "key"), Err(ErrorCode::ILLEGAL_CLIENT), "the late writer changes nothing");
    pool.end(2, "key").unwrap();
    assert_eq!(pool.used(), 2048);
    pool.advance(569 * SECOND);
    pool.upkeep();
    assert_eq!(pool.used(), 1024, "counted from the start of the old put");
}

#[test]
fn a_put_that_never_ends_is_reaped_after_the_release_timeout() {
    let mut pool = Pool::with_segment(MIB);
    pool.start(1, "key", 1024).unwrap();
    pool.advance(600 * SECOND);
    pool.upkeep();
    assert_eq!(pool.catalog.stats().keys, 1);
    pool.advance(SECOND);
    pool.upkeep();
    assert_eq!((pool.catalog.stats().keys, pool.used()), (0, 0));
    assert_eq!(pool.end(1, "key"), Err(ErrorCode::OBJECT_NOT_FOUND));
}

#[test]
fn no_room_says_why() {
    let mut pool = Pool::new(CatalogSettings::default());
    assert_eq!(pool.start(1, "key", 10), Err(PutRefusal::NoSegment));
    let mut pool = Pool::with_segment(MIB);
    assert_eq!(pool.start(1, "key", MIB + 1), Err(PutRefusal::LargerThanAnySegment));
    assert_eq!(pool.start(1, "key", u64::MAX), Err(PutRefusal::LargerThanAnySegment));
    pool.start(1, "all", MIB).unwrap();
    let refusal = pool.start(1, "key", 10).unwrap_err();
    assert_eq!((refusal, refusal.code()), (PutRefusal::NothingEvictable, ErrorCode::NO_AVAILABLE_HANDLE));
    let stats = pool.catalog.stats();
    assert_eq!((stats.alloc_failures, stats.too_large, stats.keys), (3, 2, 1));
}
