//! Mounts, clients, placement.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MIB: u64 = 1 << 20;

fn unmount(pool: &mut Pool, number: u64, owner: u64) -> Result<(), ErrorCode> {
    let id = SegmentId(Uuid { first: number, second: 2 });
    pool.catalog.unmount(id, client(owner), pool.now, &mut pool.effects)
}

fn remount(pool: &mut Pool, segments: Vec<Segment>, owner: u64) -> Result<(), MountRefusal> {
    pool.catalog.remount(segments, client(owner), pool.now, &mut pool.effects)
}

#[test]
fn mount_answers() {
    let mut pool = Pool::new(CatalogSettings::default());
    let good = segment(1, "a", MIB);
    let id = good.id;
    assert_eq!(pool.mount(Segment { base: 0, ..good.clone() }, 1), Err(MountRefusal::EmptyRange(id)));
    assert_eq!(pool.mount(Segment { size: 0, ..good.clone() }, 1), Err(MountRefusal::EmptyRange(id)));
    assert_eq!(pool.mount(Segment { size: u64::MAX, ..good.clone() }, 1), Err(MountRefusal::RangeTooLong(id)));
    assert_eq!(pool.catalog.stats().segments, 0);
    assert_eq!(pool.mount(good.clone(), 1), Ok(()));
    assert_eq!(pool.mount(good.clone(), 1), Ok(()), "again: fine");
    let overlapping = Segment { id: SegmentId(Uuid { first: 9, second: 9 }), base: good.base + 5, ..good.clone() };
    assert!(matches!(pool.mount(overlapping, 1), Err(MountRefusal::Overlap(..))));
    let stats = pool.catalog.stats();
    assert_eq!((stats.segments, stats.capacity_bytes, stats.clients), (1, MIB, 1));
    assert_eq!(pool.catalog.segment_status(id), Some(SegmentStatus::OK));
    assert_eq!(pool.catalog.segment_status_by_name("a"), Some(SegmentStatus::OK));
    assert_eq!(pool.catalog.segment_status_by_name("b"), None);
}

#[test]
fn a_client_is_good_after_mount_or_remount() {
    let mut pool = Pool::new(CatalogSettings::default());
    assert_eq!(pool.catalog.ping(client(1), pool.now), Ok(ClientStatus::NEED_REMOUNT));
    assert_eq!(pool.catalog.ping(client(1), pool.now), Ok(ClientStatus::NEED_REMOUNT));
    remount(&mut pool, Vec::new(), 1).unwrap();
    assert_eq!(pool.catalog.ping(client(1), pool.now), Ok(ClientStatus::OK));
    pool.mount(segment(2, "b", MIB), 2).unwrap();
    assert_eq!(pool.catalog.ping(client(2), pool.now), Ok(ClientStatus::OK));
    assert_eq!(pool.catalog.clients().len(), 2);
}

#[test]
fn too_many_clients_are_refused() {
    let pool = Pool::new(CatalogSettings { clients_max: 1, ..CatalogSettings::default() });
    pool.catalog.ping(client(1), pool.now).unwrap();
    assert_eq!(pool.catalog.ping(client(2), pool.now), Err(ErrorCode::INTERNAL_ERROR));
    assert!(pool.catalog.ping(client(1), pool.now).is_ok());
}

#[test]
fn a_remount_must_describe_what_is_mounted_and_is_all_or_nothing() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("key", 10);
    let same = segment(1, "a", MIB);
    let new = segment(2, "b", MIB);
    assert_eq!(remount(&mut pool, vec![new.clone(), same.clone()], 5), Err(MountRefusal::Different(same.id)));
    let other = Segment { size: 2 * MIB, ..same.clone() };
    assert_eq!(remount(&mut pool, vec![new.clone(), other], 100), Err(MountRefusal::Different(same.id)));
    assert_eq!(pool.catalog.stats().segments, 1);
    remount(&mut pool, vec![new, same], 100).unwrap();
    assert_eq!(pool.catalog.stats().segments, 2);
    assert!(pool.get("key").is_ok(), "a remount loses nothing");
}

#[test]
fn an_unmounted_segment_is_gone_at_once_and_forgotten_in_steps() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB)]);
    pool.config.replica_num = 2;
    pool.put("both", 100);
    pool.config.replica_num = 1;
    pool.config.preferred_segments = vec!["a".into()];
    for at in 0..2000 {
        pool.put(&format!("a-{at}"), 100);
    }
    pool.start(1, "unfinished", 100).unwrap();
    assert_eq!(unmount(&mut pool, 1, 101), Err(ErrorCode::INVALID_PARAMS), "only its owner may");
    unmount(&mut pool, 1, 100).unwrap();
    unmount(&mut pool, 1, 100).unwrap();
    assert_eq!(pool.effects.segments_gone.len(), 1);
    assert_eq!(pool.get("a-7"), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(pool.get("both").unwrap().replicas.len(), 1);
    assert_eq!(pool.end(1, "unfinished"), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(pool.catalog.stats().capacity_bytes, MIB);
    pool.config.preferred_segments.clear();
    assert_eq!(pool.put("a-7", 100).replicas[0].0, "b", "a lost key can be written again");

    let before = pool.catalog.stats().keys;
    assert!(pool.catalog.upkeep(1, pool.now, &mut pool.effects));
    let after = pool.catalog.stats().keys;
    assert!(before - after <= 256 && after < before, "one step forgets a little: {before} -> {after}");
    pool.upkeep();
    assert_eq!(pool.catalog.stats().keys, 2);
    assert_eq!(pool.catalog.segments().len(), 1);
    pool.catalog.assert_consistent();
    pool.mount(segment(3, "c", MIB), 102).unwrap();
    assert_eq!(pool.get("both").unwrap().replicas[0].0, "b");
}

/// A client that falls silent is given up at once when its time to live is over, as in 0.3.13.
fn strict() -> CatalogSettings {
    CatalogSettings { client_suspicion_ttl: Duration::ZERO, ..CatalogSettings::default() }
}

/// Lets time pass second by second; these clients ping.
fn pass(pool: &mut Pool, seconds: u64, alive: &[u64]) {
    for _ in 0..seconds {
        pool.advance(SECOND);
        for &number in alive {
            pool.catalog.ping(client(number), pool.now).unwrap();
        }
        pool.catalog.expire_clients(pool.now, &mut pool.effects);
    }
}

fn reach(pool: &Pool, owner: u64) -> Option<Reach> {
    pool.catalog.clients().iter().find(|report| report.id == client(owner)).map(|report| report.reach)
}

#[test]
fn a_put_that_finds_no_space_takes_nothing_from_silent_nodes() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB)]);
    drop((pool.put("whole", 100), pool.put("replaced", 100)));
    let (whole, replaced) = (pool.get("whole"), pool.get("replaced"));
    pool.upsert_start(2, "replaced", 200).unwrap();
    pass(&mut pool, 11, &[]);
    assert_eq!(reach(&pool, 100), Some(Reach::Offline));
    assert_eq!(pool.get("whole"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    let refusal = pool.start(3, "whole", 100).unwrap_err();
    assert_eq!(refusal.code(), ErrorCode::NO_AVAILABLE_HANDLE, "{refusal}");
    assert_eq!(pool.start(3, "replaced", 100), Err(PutRefusal::Busy), "its upsert is under way");
    pool.catalog.ping(client(100), pool.now).unwrap();
    assert_eq!(pool.get("whole"), whole, "a write that is refused changes nothing");
    assert_eq!(pool.get("replaced"), replaced);
    pool.catalog.assert_consistent();
}

#[test]
fn a_client_loses_trust_in_steps_and_one_that_comes_back_loses_nothing() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB)]);
    let keys: Vec<String> = (0..40).map(|at| format!("key-{at}")).collect();
    pool.config.preferred_segments = vec!["a".into()];
    keys.iter().for_each(|key| drop(pool.put(key, 100)));
    pool.config.preferred_segments = vec!["b".into()];
    pool.put("other", 100);
    pool.config.preferred_segments.clear();

    pass(&mut pool, 5, &[101]);
    assert_eq!(reach(&pool, 100), Some(Reach::Online));
    pass(&mut pool, 1, &[101]);
    assert_eq!(reach(&pool, 100), Some(Reach::Suspect));
    assert!((0..20).all(|at| pool.put(&format!("suspect-{at}"), 100).replicas[0].0 == "b"), "nothing more is placed");
    assert!(pool.exists("key-0", Probe::Only) && pool.get("key-0").is_ok(), "reads go on");
    assert_eq!(pool.start(1, "key-0", 100), Err(PutRefusal::Exists));

    pass(&mut pool, 5, &[101]);
    assert_eq!(reach(&pool, 100), Some(Reach::Offline));
    assert!(!pool.exists("key-0", Probe::Only), "not offered");
    assert_eq!(pool.get("key-0"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    assert_eq!(pool.catalog.stats().capacity_bytes, 2 * MIB, "all is kept");
    assert_eq!(pool.put("key-1", 100).replicas[0].0, "b", "a key that nobody can read is written anew");
    pool.catalog.assert_consistent();

    assert_eq!(pool.catalog.ping(client(100), pool.now), Ok(ClientStatus::OK), "no remount");
    assert_eq!(reach(&pool, 100), Some(Reach::Online));
    assert!(keys.iter().all(|key| pool.get(key).is_ok()));
    assert_eq!(pool.get("key-1").unwrap().replicas[0].0, "b");
    pool.config.preferred_segments = vec!["a".into()];
    assert_eq!(pool.put("new", 100).replicas[0].0, "a");
    pass(&mut pool, 1, &[100, 101]);
    let steps = [Reach::Suspect, Reach::Offline, Reach::Online].map(|reach| (client(100), reach));
    assert_eq!(pool.effects.clients_turned, steps);

    pass(&mut pool, 30, &[101]);
    assert_eq!(reach(&pool, 100), Some(Reach::Offline));
    assert_eq!(pool.catalog.segments().len(), 2);
    pass(&mut pool, 1, &[101]);
    assert_eq!(pool.effects.clients_gone[..], [(client(100), UnmountCause::ClientExpired)]);
    assert_eq!(pool.get("key-0"), Err(ErrorCode::OBJECT_NOT_FOUND));
    pool.upkeep();
    assert_eq!(pool.catalog.segments().len(), 1);
    assert!(pool.get("other").is_ok() && pool.get("key-1").is_ok());
    pool.catalog.assert_consistent();
}

#[test]
fn an_upsert_beside_what_nobody_can_read_is_not_lost() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB)]);
    pool.config.replica_num = 2;
    pool.put("both", 100);
    pass(&mut pool, 12, &[101]);
    assert_eq!(pool.get("both").unwrap().replicas.len(), 1, "the other replica is offered");
    assert_eq!(pool.start(1, "both", 100), Err(PutRefusal::Exists));
    pass(&mut pool, 20, &[101]);
    pool.upkeep();
    assert_eq!(pool.get("both").unwrap().replicas.len(), 1);
    pool.catalog.assert_consistent();
}

fn at_address(number: u64, name: &str, endpoint: &str) -> Segment {
    Segment { te_endpoint: endpoint.into(), ..segment(number, name, MIB) }
}

#[test]
fn a_process_started_again_at_the_same_address_makes_the_old_one_step_back_at_once() {
    for (name, endpoint) in [("node", "10.0.0.1:7"), ("10.0.0.1:99", "10.0.0.1:8")] {
        let mut pool = Pool::new(CatalogSettings::default());
        pool.mount(at_address(1, "node", "10.0.0.1:7"), 100).unwrap();
        pool.mount(at_address(5, "10.0.0.1:99", "10.0.0.1:2"), 100).unwrap();
        pool.mount(at_address(2, "far", "10.0.0.2:7"), 101).unwrap();
        pool.config.preferred_segments = vec!["node".into()];
        pool.put("key", 100);
        pool.mount(at_address(3, name, endpoint), 200).unwrap();
        assert!(!pool.exists("key", Probe::Only), "its keys do not exist from now on");
        let found = pool.put("key", 100);
        assert!(found.replicas[0].1 >> 40 != 1, "a put does not answer that it was there: {found:?}");
        pass(&mut pool, 2, &[101, 200]);
        assert!(pool.effects.clients_gone.is_empty());
        pass(&mut pool, 1, &[101, 200]);
        assert_eq!(pool.effects.clients_gone[..], [(client(100), UnmountCause::Replaced)]);
        assert!(pool.effects.segments_gone.iter().all(|gone| gone.cause == UnmountCause::Replaced));
        pool.upkeep();
        assert!(pool.get("key").is_ok());
        pool.catalog.assert_consistent();
    }
}

#[test]
fn a_client_at_whose_address_nobody_answers_is_forgotten_no_sooner_than_a_silent_one() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB)]);
    pool.config.preferred_segments = vec!["a".into()];
    drop((pool.put("key", 100), pool.put("anew", 100)));
    pool.config.preferred_segments = vec!["b".into()];
    pool.start(100, "begun", 100).unwrap();
    assert!(pool.catalog.doubt(client(100), pool.now, &mut pool.effects));
    assert!(!pool.catalog.doubt(client(100), pool.now, &mut pool.effects), "that is no news");
    assert_eq!(pool.get("key"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    assert_eq!(pool.put("anew", 100).replicas[0].0, "b");
    pass(&mut pool, 2, &[101]);
    pool.upkeep();
    assert_eq!(pool.start(2, "begun", 100), Err(PutRefusal::Busy));
    pass(&mut pool, 1, &[101]);
    pool.upkeep();
    assert!(pool.start(2, "begun", 100).is_ok(), "what it was writing is given up after 3 s");
    pass(&mut pool, 26, &[101]);
    assert_eq!(reach(&pool, 100), Some(Reach::Offline));
    // Its next process sums the memory first.
    pool.catalog.greet(client(100), pool.now);
    pass(&mut pool, 29, &[101]);
    assert_eq!(pool.get("key"), Err(ErrorCode::REPLICA_IS_NOT_READY), "a greeting does not say that it serves");
    remount(&mut pool, vec![segment(1, "a", MIB)], 100).unwrap();
    assert!(pool.get("key").is_ok(), "nothing was lost");
    pool.catalog.doubt(client(100), pool.now, &mut pool.effects);
    pass(&mut pool, 30, &[101]);
    assert!(pool.effects.clients_gone.is_empty());
    pass(&mut pool, 1, &[101]);
    assert_eq!(pool.effects.clients_gone[..], [(client(100), UnmountCause::ClientExpired)]);
    let stats = pool.catalog.stats();
    assert_eq!((stats.clients_offline, stats.clients_expired), (2, 1), "reports are counted too");
    pool.catalog.assert_consistent();
}

#[test]
fn another_process_at_the_address_of_one_that_nobody_answers_for_makes_it_go_sooner() {
    let mut pool = Pool::new(CatalogSettings::default());
    pool.mount(at_address(1, "node", "10.0.0.1:7"), 100).unwrap();
    pool.catalog.doubt(client(100), pool.now, &mut pool.effects);
    pass(&mut pool, 5, &[]);
    pool.mount(at_address(2, "node", "10.0.0.1:7"), 200).unwrap();
    pass(&mut pool, 3, &[200]);
    assert_eq!(pool.effects.clients_gone[..], [(client(100), UnmountCause::Replaced)]);
}

#[test]
fn a_client_that_unmounts_its_last_segment_has_left_unless_it_pings() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB)]);
    pool.mount(segment(3, "more", MIB), 100).unwrap();
    let listed = |pool: &Pool| (pool.catalog.stats().clients, pool.catalog.clients().len());
    let unmount = |pool: &mut Pool, number: u64| {
        pool.catalog.unmount(segment(number, "", MIB).id, client(100), pool.now, &mut Effects::default()).unwrap();
    };
    unmount(&mut pool, 1);
    assert_eq!(listed(&pool), (2, 2), "it lends another one");
    unmount(&mut pool, 3);
    assert_eq!(listed(&pool), (1, 1), "at once");
    assert_eq!(pool.catalog.ping(client(100), pool.now), Ok(ClientStatus::OK), "it is known, and is still there");
    assert_eq!(listed(&pool), (2, 2));

    pool.mount(segment(4, "again", MIB), 100).unwrap();
    pass(&mut pool, 5, &[100, 101]);
    unmount(&mut pool, 4);
    pass(&mut pool, 10, &[101]);
    assert!(pool.effects.is_empty(), "that is neither silence nor a death: {:?}", pool.effects);
    pass(&mut pool, 1, &[101]);
    assert_eq!(pool.effects.clients_gone[..], [(client(100), UnmountCause::Asked)]);
    let stats = pool.catalog.stats();
    assert_eq!((stats.clients_suspected, stats.clients_offline, stats.clients_expired), (0, 0, 0));
    assert_eq!(pool.catalog.ping(client(100), pool.now), Ok(ClientStatus::NEED_REMOUNT), "it is a new one");
    assert_eq!(listed(&pool), (1, 2));
    pool.catalog.assert_consistent();
}

#[test]
fn a_client_that_lends_nothing_more_and_dies_later_is_counted() {
    let mut pool = Pool::with_segment(MIB);
    pool.catalog.unmount(segment(1, "a", MIB).id, client(100), pool.now, &mut Effects::default()).unwrap();
    pass(&mut pool, 2, &[100]);
    pass(&mut pool, 41, &[]);
    assert_eq!(pool.effects.clients_gone[..], [(client(100), UnmountCause::ClientExpired)]);
    assert_eq!(pool.catalog.stats().clients_expired, 1);
}

#[test]
fn two_living_clients_at_one_address_stay() {
    let mut pool = Pool::new(CatalogSettings::default());
    pool.mount(at_address(1, "node", "10.0.0.1:7"), 100).unwrap();
    pool.put("key", 100);
    pool.mount(at_address(2, "node", "10.0.0.1:7"), 200).unwrap();
    assert!(!pool.exists("key", Probe::Only));
    assert_eq!(pool.catalog.ping(client(100), pool.now), Ok(ClientStatus::OK));
    assert!(pool.get("key").is_ok(), "it lives");
    pass(&mut pool, 30, &[100, 200]);
    assert!(pool.get("key").is_ok() && pool.effects.clients_gone.is_empty());
    pool.mount(at_address(3, "node", "localhost"), 300).unwrap();
    assert!(pool.get("key").is_ok(), "a name without a port says nothing");
}

#[test]
fn a_silent_client_loses_its_segments_and_its_unfinished_puts() {
    let mut pool = Pool::with(strict(), &[("a", MIB), ("b", MIB)]);
    pool.config.preferred_segments = vec!["a".into()];
    pool.put("on-a", 100);
    pool.config.preferred_segments = vec!["b".into()];
    pool.put("on-b", 100);
    pool.start(100, "begun-by-a", 100).unwrap();
    for _ in 0..11 {
        pool.advance(SECOND);
        pool.catalog.ping(client(101), pool.now).unwrap();
        pool.catalog.expire_clients(pool.now, &mut pool.effects);
    }
    assert_eq!(pool.effects.clients_gone[..], [(client(100), UnmountCause::ClientExpired)]);
    assert_eq!(pool.effects.segments_gone[0].cause, UnmountCause::ClientExpired);
    pool.upkeep();
    assert_eq!(pool.get("on-a"), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert!(pool.get("on-b").is_ok());
    assert_eq!(pool.effects.quiesce.len(), 1, "the dead writer's space waits");
    assert!(pool.start(2, "begun-by-a", 100).is_ok(), "its key is free");
    assert_eq!(pool.catalog.ping(client(100), pool.now), Ok(ClientStatus::NEED_REMOUNT));
    pool.catalog.assert_consistent();
}

#[test]
fn a_master_that_was_held_up_expires_nobody() {
    let mut pool = Pool::with(strict(), &[("a", MIB)]);
    pool.catalog.expire_clients(pool.now, &mut pool.effects);
    pool.advance(60 * SECOND);
    pool.catalog.expire_clients(pool.now, &mut pool.effects);
    assert!(pool.effects.is_empty());
    for _ in 0..11 {
        pool.advance(SECOND);
        pool.catalog.expire_clients(pool.now, &mut pool.effects);
    }
    assert_eq!(pool.effects.clients_gone.len(), 1);
}

#[test]
fn a_master_that_was_held_up_before_its_first_check_expires_nobody() {
    let mut pool = Pool::with_segment(MIB);
    pool.advance(60 * SECOND);
    pool.catalog.expire_clients(pool.now, &mut pool.effects);
    assert!(pool.effects.is_empty());
}

#[test]
fn memory_that_comes_back_after_expiry_rests_for_one_lease() {
    let mut pool = Pool::with(strict(), &[("a", MIB)]);
    pool.put("key", 100);
    pool.catalog.expire_clients(pool.now, &mut pool.effects);
    for _ in 0..11 {
        pool.advance(SECOND);
        pool.catalog.expire_clients(pool.now, &mut pool.effects);
    }
    remount(&mut pool, vec![segment(1, "a", MIB)], 100).unwrap();
    assert_eq!(pool.start(1, "new", 100).unwrap_err().code(), ErrorCode::NO_AVAILABLE_HANDLE);
    pool.upkeep();
    pool.advance(10 * SECOND);
    assert!(pool.start(1, "new", 100).is_ok());
    pool.catalog.assert_consistent();
}

#[test]
fn memory_that_a_new_master_is_told_of_rests_for_one_lease() {
    let mut pool = Pool::with(CatalogSettings::default(), &[]);
    remount(&mut pool, vec![segment(1, "a", MIB)], 100).unwrap();
    assert_eq!(
        pool.start(1, "new", 100),
        Err(PutRefusal::NoSpace),
        "readers of the old master's time may still read, and nobody's object is looked at"
    );
    pool.advance(10 * SECOND);
    assert_eq!(pool.catalog.eviction_goal(pool.now), None, "the refused put needs nobody's space: there is enough");
    assert!(pool.start(1, "new", 100).is_ok());
}

#[test]
fn a_client_that_introduces_itself_is_not_given_up_before_it_mounts() {
    let mut pool = Pool::with(strict(), &[("a", MIB)]);
    pool.put("key", 100);
    pool.catalog.expire_clients(pool.now, &mut pool.effects);
    for _ in 0..10 {
        pool.advance(SECOND);
        pool.catalog.expire_clients(pool.now, &mut pool.effects);
    }
    pool.catalog.greet(client(100), pool.now);
    pool.catalog.greet(client(101), pool.now);
    pool.advance(SECOND);
    pool.catalog.expire_clients(pool.now, &mut pool.effects);
    assert!(pool.effects.clients_gone.is_empty());
    assert!(pool.get("key").is_ok(), "another process may have taken its memory over");
    assert_eq!(pool.catalog.clients().len(), 1, "who has nothing in the pool is not known by a greeting");
}

#[test]
fn memory_of_a_forerunners_time_rests_as_long_as_a_write_where_leases_are_short() {
    let lease_ttl = Duration::from_millis(500);
    let mut pool = Pool::with(CatalogSettings { lease_ttl, ..CatalogSettings::default() }, &[]);
    pool.catalog.begins(pool.now);
    remount(&mut pool, vec![segment(1, "a", MIB)], 100).unwrap();
    pool.advance(2 * SECOND);
    let refused = pool.start(1, "new", 100).unwrap_err().code();
    assert_eq!(refused, ErrorCode::NO_AVAILABLE_HANDLE, "a writer of the forerunner's may have it mapped");
    pool.advance(SECOND);
    assert!(pool.start(1, "new", 100).is_ok());
}

#[test]
fn memory_of_a_forerunners_time_rests_for_one_lease_from_the_start() {
    let mut pool = Pool::with(CatalogSettings::default(), &[]);
    pool.catalog.begins(pool.now);
    pool.advance(7 * SECOND);
    remount(&mut pool, vec![segment(1, "a", MIB)], 100).unwrap();
    assert_eq!(pool.start(1, "new", 100).unwrap_err().code(), ErrorCode::NO_AVAILABLE_HANDLE);
    pool.advance(3 * SECOND);
    assert!(pool.start(1, "new", 100).is_ok(), "what the forerunner promised has ended");
    pool.advance(60 * SECOND);
    remount(&mut pool, vec![segment(2, "b", MIB)], 101).unwrap();
    pool.config.preferred_segments = vec!["b".into()];
    assert_eq!(pool.start(1, "late", 100).unwrap().replicas[0].0, "b", "who comes late rests no more");
}

#[test]
fn memory_that_its_client_takes_and_gives_back_rests_too_if_it_was_in_use() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("key", 100);
    pool.get("key").unwrap();
    unmount(&mut pool, 1, 100).unwrap();
    pool.mount(segment(2, "a", MIB / 2), 100).unwrap();
    let again = Segment { base: 1 << 40, te_endpoint: "a:transfer".into(), ..segment(3, "a", MIB) };
    pool.mount(again, 100).unwrap();
    pool.config.preferred_segments = vec!["a".into()];
    let found = pool.put("new", 100);
    assert_eq!(found.replicas[0].1 >> 40, 2, "the reader of the old object is not disturbed");
}

#[test]
fn a_new_process_with_the_same_memory_replaces_the_old_one() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("key", 100);
    let restarted = Segment { id: SegmentId(Uuid { first: 50, second: 50 }), ..segment(1, "a", MIB) };
    pool.mount(restarted, 200).unwrap();
    assert_eq!(pool.effects.segments_gone[0].cause, UnmountCause::Replaced);
    assert_eq!(pool.get("key"), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(pool.catalog.stats().capacity_bytes, MIB);
}

#[test]
fn a_draining_segment_is_read_on_takes_nothing_and_ends_drained_or_ok() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB), ("a", MIB)]);
    let id = SegmentId(Uuid { first: 1, second: 2 });
    let again = segment(1, "a", MIB);
    pool.config.preferred_segments = vec!["a".into()];
    pool.put("on-a", 100);
    let none: [&str; 0] = [];
    assert_eq!(pool.catalog.set_draining(&none), Ok(()));
    assert_eq!(pool.catalog.set_draining(&["a", "x"]), Err(ErrorCode::SEGMENT_NOT_FOUND));
    assert_eq!(pool.catalog.set_drained(&["a"]), Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS));
    assert_eq!(pool.catalog.segment_status(id), Some(SegmentStatus::OK), "all or nothing");

    assert_eq!(pool.catalog.set_draining(&["a"]), Ok(()));
    let statuses: Vec<_> = pool.catalog.segments().iter().map(|segment| segment.status()).collect();
    assert_eq!(statuses, [SegmentStatus::DRAINING, SegmentStatus::OK, SegmentStatus::DRAINING]);
    assert_eq!(pool.catalog.set_draining(&["b", "a"]), Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS));
    assert_eq!(pool.get("on-a").unwrap().replicas[0].0, "a");
    assert_eq!(pool.put("elsewhere", 100).replicas[0].0, "b");
    assert_eq!(pool.mount(again.clone(), 100), Err(MountRefusal::OnItsWayOut(id)));
    assert_eq!(MountRefusal::OnItsWayOut(id).code(), ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS);
    assert_eq!(remount(&mut pool, vec![again], 100), Ok(()));
    assert_eq!(pool.catalog.stats().capacity_bytes, 3 * MIB);

    pool.catalog.set_ok(&["a", "x"]);
    assert_eq!(pool.put("back", 100).replicas[0].0, "a");
    pool.catalog.set_draining(&["a"]).unwrap();
    assert_eq!(pool.catalog.set_drained(&["a"]), Ok(()));
    assert_eq!(pool.catalog.begin_to_leave(id, client(100)), Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS));
    pool.catalog.set_ok(&["a"]);
    assert_eq!(pool.catalog.segment_status(id), Some(SegmentStatus::OK), "a drain can be taken back");
    pool.catalog.set_draining(&["a"]).unwrap();
    assert_eq!(pool.catalog.set_drained(&["a"]), Ok(()));
    assert!(pool.get("on-a").is_ok());
    unmount(&mut pool, 1, 100).unwrap();
    assert_eq!(pool.catalog.set_drained(&["a"]), Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS));
    unmount(&mut pool, 3, 102).unwrap();
    assert_eq!(pool.catalog.set_drained(&["a"]), Err(ErrorCode::SEGMENT_NOT_FOUND));
    pool.upkeep();
    pool.catalog.assert_consistent();
}

#[test]
fn who_leaves_gracefully_takes_nothing_more_and_a_drain_gives_way_to_it() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", MIB), ("b", MIB)]);
    let id = SegmentId(Uuid { first: 1, second: 2 });
    pool.put("kept", 100);
    assert_eq!(pool.catalog.begin_to_leave(id, client(7)), Err(ErrorCode::SEGMENT_NOT_FOUND));
    assert_eq!(pool.catalog.begin_to_leave(id, client(101)), Err(ErrorCode::INVALID_PARAMS));
    pool.catalog.set_draining(&["a"]).unwrap();
    assert_eq!(pool.catalog.begin_to_leave(id, client(100)), Ok(()));
    assert_eq!(pool.catalog.begin_to_leave(id, client(100)), Ok(()), "again: fine");
    pool.catalog.set_ok(&["a"]);
    assert_eq!(pool.catalog.segment_status(id), Some(SegmentStatus::GRACEFULLY_UNMOUNTING));
    assert_eq!(pool.catalog.set_drained(&["a"]), Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS));
    pool.config.preferred_segments = vec!["a".into()];
    assert_eq!(pool.put("new", 100).replicas[0].0, "b");
    assert!(pool.get("kept").is_ok());
}

#[test]
fn a_pool_larger_than_can_be_counted_is_refused() {
    let mut pool = Pool::with(CatalogSettings::default(), &[]);
    let huge = |number, name| Segment { size: 1 << 61, ..segment(number, name, 1 << 20) };
    pool.mount(huge(1, "a"), 1).unwrap();
    pool.mount(huge(2, "b"), 2).unwrap();
    let third = huge(3, "c");
    assert_eq!(pool.mount(third.clone(), 3), Err(MountRefusal::PoolTooLarge(third.id)));
    assert_eq!(pool.catalog.stats().capacity_bytes, 1 << 62);
}

#[test]
fn a_remount_of_segments_that_overlap_each_other_is_refused_as_a_whole() {
    let mut pool = Pool::new(CatalogSettings::default());
    let first = segment(1, "a", MIB);
    let second = Segment { base: first.base + MIB / 2, te_endpoint: first.te_endpoint.clone(), ..segment(2, "b", MIB) };
    for segments in [vec![first.clone(), second.clone()], vec![second.clone(), first.clone()]] {
        let refused = pool.catalog.remount(segments, client(100), pool.now, &mut pool.effects).unwrap_err();
        assert_eq!(refused.code(), ErrorCode::INVALID_PARAMS, "{refused}");
        assert!(pool.catalog.segments().is_empty());
    }
    let apart = Segment { base: first.base + MIB, ..second };
    pool.catalog.remount(vec![first, apart], client(100), pool.now, &mut pool.effects).unwrap();
    assert_eq!(pool.catalog.segments().len(), 2);
}

#[test]
fn a_mount_that_is_repeated_adds_nothing_to_the_pool() {
    let mut pool = Pool::new(CatalogSettings::default());
    let half = Segment { base: 4096, ..segment(1, "a", (1 << 61) + 1) };
    for _ in 0..2 {
        pool.catalog.mount(half.clone(), client(100), pool.now, &mut pool.effects).unwrap();
        pool.catalog.remount(vec![half.clone()], client(100), pool.now, &mut pool.effects).unwrap();
    }
    let more = Segment { base: 4096, ..segment(2, "b", 1 << 61) };
    assert!(pool.catalog.mount(more, client(101), pool.now, &mut pool.effects).is_err());
}

#[test]
fn a_segment_with_a_name_as_long_as_a_message_is_refused() {
    let mut pool = Pool::new(CatalogSettings::default());
    let long = |len: usize| "x".repeat(len);
    let refused = pool.mount(Segment { name: long(4097), ..segment(1, "a", MIB) }, 100).unwrap_err();
    assert_eq!(refused.code(), ErrorCode::INVALID_PARAMS, "{refused}");
    pool.mount(Segment { te_endpoint: long(4097), ..segment(1, "a", MIB) }, 100).unwrap_err();
    pool.mount(Segment { name: long(4096), ..segment(1, "a", MIB) }, 100).unwrap();
}

#[test]
fn a_node_that_was_found_slow_takes_what_finds_no_other_place_and_a_dead_one_never() {
    let mut pool = Pool::with(CatalogSettings::default(), &[("a", 1000), ("b", 1000)]);
    pool.catalog.hold_back(client(100), HeldBack::Slow, &mut pool.effects);
    assert_eq!(pool.put("first", 600).replicas[0].0, "b", "there is another place");
    assert_eq!(pool.put("second", 600).replicas[0].0, "a", "better than none");
    pool.remove("second", Force::Yes).unwrap();
    pool.get("first").unwrap();
    pass(&mut pool, 1, &[100, 101]);
    pool.upkeep();
    // Nobody was found at its address: perhaps it is dead.
    pool.catalog.hold_back(client(100), HeldBack::Missing, &mut pool.effects);
    assert_eq!(pool.start(1, "third", 600).unwrap_err().code(), ErrorCode::NO_AVAILABLE_HANDLE);
    pass(&mut pool, 1, &[100, 101]);
    // It was slow, and has not pinged since.
    pool.catalog.hold_back(client(100), HeldBack::Slow, &mut pool.effects);
    pass(&mut pool, 7, &[101]);
    assert_eq!(pool.start(1, "fourth", 600).unwrap_err().code(), ErrorCode::NO_AVAILABLE_HANDLE);
    pool.catalog.assert_consistent();
}
