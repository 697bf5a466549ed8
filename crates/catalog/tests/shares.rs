//! What one client may have reserved and not filled.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MIB: u64 = 1 << 20;

/// A pool of 16 MiB in which a client may have 4 MiB.
fn pool() -> Pool {
    let settings = CatalogSettings { unfinished_per_client: Some(ByteLen(4 * MIB)), ..CatalogSettings::default() };
    Pool::with(settings, &[("a", 16 * MIB)])
}

fn open(pool: &Pool) -> u64 {
    pool.catalog.assert_consistent();
    pool.catalog.stats().largest_unfinished_bytes
}

#[test]
fn a_client_with_its_share_begins_nothing_more_and_others_do() {
    let mut pool = pool();
    for key in ["a", "b", "c", "d"] {
        pool.start(1, key, MIB).unwrap();
    }
    assert_eq!(open(&pool), 4 * MIB);
    let refused = pool.start(1, "e", MIB).unwrap_err();
    assert_eq!(refused, PutRefusal::ShareExceeded);
    assert_eq!((refused.code(), refused.is_retryable()), (ErrorCode::NO_AVAILABLE_HANDLE, true));
    assert_eq!(pool.upsert_start(1, "e", MIB).unwrap_err(), PutRefusal::ShareExceeded);
    pool.start(2, "e", MIB).unwrap();
    pool.end(1, "a").unwrap();
    pool.start(1, "f", MIB).unwrap();
    assert_eq!(open(&pool), 4 * MIB);
}

#[test]
fn a_batch_gets_as_much_as_the_share_and_small_writes_count_4_kib() {
    let mut pool = pool();
    let keys: Vec<String> = (0..1100).map(|n| format!("{n}")).collect();
    let items: Vec<(&str, u64)> = keys.iter().map(|key| (key.as_str(), 10)).collect();
    let answers = pool.start_many(1, &items);
    let first = answers.iter().position(Result::is_err);
    assert_eq!(first, Some(1024), "4 MiB of 4 KiB each");
    assert!(answers[1024..].iter().all(|answer| answer == &Err(PutRefusal::ShareExceeded)));
    let ended = keys[..1024].iter().filter(|key| pool.end(1, key).is_ok());
    assert_eq!(ended.count(), 1024);
    assert_eq!(open(&pool), 0);
}

#[test]
fn one_write_may_be_larger_than_the_share_if_the_client_has_nothing_else() {
    let mut pool = pool();
    pool.start(1, "large", 10 * MIB).unwrap();
    assert_eq!(pool.start(1, "small", 1).unwrap_err(), PutRefusal::ShareExceeded);
    pool.end(1, "large").unwrap();
    pool.start(1, "small", 1).unwrap();
}

#[test]
fn what_was_revoked_counts_until_nobody_can_write_to_it_any_more() {
    let mut pool = pool();
    for key in ["a", "b", "c", "d"] {
        pool.start(1, key, MIB).unwrap();
        pool.revoke(1, key).unwrap();
    }
    assert_eq!(open(&pool), 4 * MIB, "space that rests for the writer");
    assert_eq!(pool.start(1, "e", MIB).unwrap_err(), PutRefusal::ShareExceeded);
    // The node of one of them says that nothing is on its way.
    let question = pool.effects.quiesce.pop().unwrap();
    assert!(pool.catalog.confirm_quiesced(question.segment, question.address, question.generation));
    assert_eq!(open(&pool), 3 * MIB);
    pool.start(1, "e", MIB).unwrap();
    pool.end(1, "e").unwrap();
    // The release timeout.
    pool.advance(Duration::from_secs(601));
    pool.upkeep();
    assert_eq!(open(&pool), 0);
}

#[test]
fn a_dead_client_and_a_lost_segment_leave_nothing_behind() {
    let mut pool = pool();
    pool.mount(segment(7, "b", 16 * MIB), 107).unwrap();
    pool.config.preferred_segments = vec!["b".into()];
    pool.start(1, "a", MIB).unwrap();
    pool.start(1, "b", MIB).unwrap();
    pool.revoke(1, "b").unwrap();
    assert_eq!(open(&pool), 2 * MIB);
    pool.catalog.unmount(SegmentId(Uuid { first: 7, second: 2 }), client(107), pool.now, &mut pool.effects).unwrap();
    pool.upkeep();
    assert_eq!(open(&pool), 0);
}

#[test]
fn a_client_mounts_only_so_many_segments_and_all_together_too() {
    let settings = CatalogSettings { segments_max: 5, segments_per_client_max: 3, ..CatalogSettings::default() };
    let mut pool = Pool::new(settings);
    for at in 1..=3 {
        pool.mount(segment(at, &format!("s{at}"), MIB), 1).unwrap();
    }
    let refused = pool.mount(segment(4, "s4", MIB), 1).unwrap_err();
    assert_eq!(refused, MountRefusal::TooManySegments(segment(4, "s4", MIB).id));
    pool.mount(segment(3, "s3", MIB), 1).unwrap();
    let again = [4, 5, 6].map(|at| segment(at, &format!("s{at}"), MIB)).to_vec();
    let refused = pool.catalog.remount(again.clone(), client(2), pool.now, &mut pool.effects);
    assert!(matches!(refused, Err(MountRefusal::TooManySegments(_))), "{refused:?}");
    pool.catalog.remount(again[..2].to_vec(), client(2), pool.now, &mut pool.effects).unwrap();
    pool.catalog.unmount(again[0].id, client(2), pool.now, &mut pool.effects).unwrap();
    pool.mount(segment(4, "s4", MIB), 2).unwrap();
}
