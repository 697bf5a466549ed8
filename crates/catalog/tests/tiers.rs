//! Disks below the memory: offload, promotion, and that old bytes never come back.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

/// The client that mounted the first segment.
const OWNER: u64 = 100;

fn settings(change: impl FnOnce(&mut TierSettings)) -> CatalogSettings {
    let mut settings = CatalogSettings::default();
    settings.tiers.enable_offload = true;
    change(&mut settings.tiers);
    settings
}

fn pool(change: impl FnOnce(&mut TierSettings)) -> Pool {
    let pool = Pool::with(settings(change), &[("a", 1 << 20)]);
    pool.catalog.mount_disk(client(OWNER), true).unwrap();
    pool
}

fn errands(pool: &Pool) -> Vec<String> {
    let errands = pool.catalog.offload_heartbeat(client(OWNER), true).unwrap();
    errands.iter().map(|errand| String::from_utf8(errand.key.to_vec()).unwrap()).collect()
}

fn stored(pool: &Pool, owner: u64, key: &str, size: Option<u64>) -> Result<(), ErrorCode> {
    let item = Offloaded { tenant: pool.tenant, key: key.as_bytes(), size, endpoint: "host:1" };
    pool.catalog.offloaded(client(owner), [item])
}

/// Memory replicas and owners of copies on disks; `None` when the key is not found.
fn homes(pool: &Pool, key: &str) -> Option<(usize, Vec<ClientId>)> {
    let mut found = None;
    pool.catalog.get_replicas(pool.tenant, [key], pool.now, |_, answer| {
        found = answer.ok().map(|view| (view.replicas().count(), view.disk_copies().map(|copy| copy.owner).collect()));
    });
    found
}

fn only_on_disk() -> Option<(usize, Vec<ClientId>)> {
    Some((0, vec![client(OWNER)]))
}

/// Puts a key, writes it to the owner's disk and evicts it from memory.
fn put_cold(pool: &mut Pool, key: &str, size: u64) {
    pool.put(key, size);
    errands(pool);
    stored(pool, OWNER, key, Some(size)).unwrap();
    evict_all(pool);
    pool.advance(11 * SECOND);
}

fn evict_all(pool: &mut Pool) {
    pool.catalog.upkeep(64, pool.now, &mut pool.effects);
    let goal = EvictionGoal { target: ByteLen(1 << 40), at_least: ByteLen(1 << 40) };
    pool.catalog.evict(&goal, 10_000, pool.now);
}

#[test]
fn without_the_feature_there_are_no_disks() {
    let pool = Pool::with_segment(1 << 20);
    assert_eq!(pool.catalog.mount_disk(client(OWNER), true), Err(ErrorCode::UNABLE_OFFLOAD));
    assert_eq!(pool.catalog.unmount_disk(client(OWNER)), Err(ErrorCode::UNABLE_OFFLOAD));
    assert_eq!(pool.catalog.offload_heartbeat(client(OWNER), true), Err(ErrorCode::SEGMENT_NOT_FOUND));
    assert_eq!(pool.catalog.promotion_heartbeat(client(OWNER), pool.now), Err(ErrorCode::SEGMENT_NOT_FOUND));
    assert_eq!(pool.catalog.report_ssd(client(OWNER), 1), Err(ErrorCode::SEGMENT_NOT_FOUND));
    assert_eq!(pool.catalog.report_ssd(client(OWNER), -1), Err(ErrorCode::INVALID_PARAMS));
    assert!(!pool.catalog.poll_remove_all(client(OWNER)));
}

#[test]
fn an_object_goes_to_the_disk_of_its_owner_and_outlives_its_memory() {
    let mut pool = pool(|_| {});
    pool.put("k", 1000);
    evict_all(&mut pool);
    assert_eq!(homes(&pool, "k"), Some((1, vec![])), "stays in memory until it is written down");
    assert_eq!(errands(&pool), ["k"]);
    assert!(errands(&pool).is_empty(), "handed out once");
    stored(&pool, OWNER, "k", Some(1000)).unwrap();
    assert_eq!(homes(&pool, "k"), Some((1, vec![client(OWNER)])));
    assert_eq!(pool.catalog.disk_totals(), (1, 1000, 0));
    pool.advance(11 * SECOND);
    evict_all(&mut pool);
    assert_eq!((homes(&pool, "k"), pool.used()), (only_on_disk(), 0));
    assert!(pool.exists("k", Probe::Only));
    assert_eq!(pool.start(2, "k", 10), Err(PutRefusal::Exists));
    assert_eq!(pool.remove("k", Force::No), Err(ErrorCode::OBJECT_HAS_LEASE));
    pool.remove("k", Force::Yes).unwrap();
    assert_eq!(homes(&pool, "k"), None);
    assert_eq!(pool.catalog.disk_totals(), (1, 0, 0));
    pool.catalog.assert_consistent();
}

#[test]
fn old_bytes_never_come_back() {
    let mut pool = pool(|_| {});
    put_cold(&mut pool, "k", 1000);
    pool.remove("k", Force::Yes).unwrap();
    // The client restarts and tells what it found.
    stored(&pool, OWNER, "k", Some(1000)).unwrap();
    assert_eq!(homes(&pool, "k"), None, "a removed key stays removed");
    pool.put("k", 1000);
    stored(&pool, OWNER, "k", Some(1000)).unwrap();
    assert_eq!(homes(&pool, "k"), Some((1, vec![])), "the old copy is not one of the new object");
    // The owner deleted the old file; what it writes from here on is new.
    let caller = pool.caller(OWNER);
    assert_eq!(pool.catalog.evict_disk(&caller, b"k", ReplicaType::LOCAL_DISK, None), Ok(false));
    assert_eq!(errands(&pool), ["k"]);
    stored(&pool, OWNER, "k", Some(1000)).unwrap();
    assert_eq!(homes(&pool, "k"), Some((1, vec![client(OWNER)])));
    assert_eq!(pool.catalog.stats().stale_disk_copies, 2);
}

#[test]
fn a_write_that_was_replaced_while_it_was_written_down_is_not_taken_up() {
    let mut pool = pool(|_| {});
    pool.put("k", 1000);
    assert_eq!(errands(&pool), ["k"]);
    pool.remove("k", Force::Yes).unwrap();
    pool.put("k", 1000);
    stored(&pool, OWNER, "k", Some(1000)).unwrap();
    assert_eq!(homes(&pool, "k"), Some((1, vec![])), "that was the first write");
    assert_eq!(errands(&pool), ["k"], "the second is on its way");
}

#[test]
fn what_could_not_be_written_down_may_be_evicted_again() {
    let mut pool = pool(|_| {});
    pool.put("k", 1000);
    errands(&pool);
    stored(&pool, OWNER, "k", None).unwrap();
    evict_all(&mut pool);
    assert_eq!(homes(&pool, "k"), None);
    // So may what nobody ever answered for.
    pool.put("l", 1000);
    errands(&pool);
    pool.advance(Duration::from_secs(601));
    pool.catalog.ping(client(OWNER), pool.now).unwrap();
    evict_all(&mut pool);
    assert_eq!(homes(&pool, "l"), None);
    pool.catalog.assert_consistent();
}

#[test]
fn disks_that_go_take_their_copies_along() {
    let mut pool = pool(|_| {});
    put_cold(&mut pool, "k", 1000);
    pool.put("queued", 10);
    pool.catalog.unmount_disk(client(OWNER)).unwrap();
    assert_eq!(homes(&pool, "k"), None, "at once");
    assert_eq!(stored(&pool, OWNER, "k", Some(1000)), Err(ErrorCode::SEGMENT_NOT_FOUND));
    evict_all(&mut pool);
    assert_eq!(homes(&pool, "queued"), None, "nobody waits for a disk that is gone");
    // It comes back and tells what it has.
    pool.catalog.mount_disk(client(OWNER), true).unwrap();
    stored(&pool, OWNER, "k", Some(1000)).unwrap();
    assert_eq!(homes(&pool, "k"), only_on_disk());
}

#[test]
fn a_client_that_fell_silent_has_its_copies_back_when_it_returns_in_time() {
    let mut pool = pool(|_| {});
    put_cold(&mut pool, "k", 1000);
    pool.catalog.ping(client(OWNER), pool.now).unwrap();
    pool.catalog.expire_clients(pool.now, &mut pool.effects);
    for _ in 0..80 {
        pool.advance(SECOND);
        pool.catalog.expire_clients(pool.now, &mut pool.effects);
    }
    assert_eq!(homes(&pool, "k"), None);
    pool.catalog.mount_disk(client(OWNER), true).unwrap();
    assert_eq!(homes(&pool, "k"), only_on_disk());
}

#[test]
fn eviction_writes_down_first_where_it_is_told_to() {
    let mut pool = pool(|tiers| tiers.offload_on_evict = true);
    pool.put("k", 1000);
    assert!(errands(&pool).is_empty(), "not before it is to be evicted");
    evict_all(&mut pool);
    assert_eq!(errands(&pool), ["k"]);
    evict_all(&mut pool);
    assert_eq!(homes(&pool, "k"), Some((1, vec![])));
    stored(&pool, OWNER, "k", Some(1000)).unwrap();
    pool.advance(11 * SECOND);
    evict_all(&mut pool);
    assert_eq!(homes(&pool, "k"), only_on_disk());
}

#[test]
fn what_cannot_be_written_down_stays_or_goes_as_it_is_told() {
    for (force, kept) in [(false, true), (true, false)] {
        let mut pool = Pool::with(
            settings(|tiers| {
                tiers.offload_on_evict = true;
                tiers.offload_force_evict = force;
            }),
            &[("a", 1 << 20)],
        );
        pool.put("k", 1000);
        evict_all(&mut pool);
        assert_eq!(homes(&pool, "k").is_some(), kept, "no disk is there");
    }
}

#[test]
fn an_object_that_is_read_twice_is_loaded_again() {
    let mut pool = pool(|tiers| tiers.promotion_on_hit = true);
    put_cold(&mut pool, "k", 1000);
    let loads = |pool: &Pool| pool.catalog.promotion_heartbeat(client(OWNER), pool.now).unwrap();
    assert_eq!((homes(&pool, "k"), loads(&pool)), (only_on_disk(), vec![]));
    assert_eq!(homes(&pool, "k"), only_on_disk());
    let errand = Errand { tenant: pool.tenant, key: b"k"[..].into(), size: 1000 };
    assert_eq!((loads(&pool), loads(&pool)), (vec![errand], vec![]));
    let start = |pool: &mut Pool, who: u64, size: u64| {
        let call = PromotionCall { caller: pool.caller(who), key: b"k", size, preferred: &[] };
        let (mut random, mut replicas) = (|| 1, 0);
        let begun = pool.catalog.promotion_start(&call, &mut random, &mut pool.effects, |view| {
            replicas = view.replicas().count();
        });
        begun.map(|()| replicas)
    };
    assert_eq!(start(&mut pool, 7, 1000), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(start(&mut pool, OWNER, 999), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(start(&mut pool, OWNER, 1000), Ok(1));
    assert_eq!(start(&mut pool, OWNER, 1000), Err(ErrorCode::REPLICA_IS_NOT_READY));
    assert_eq!(homes(&pool, "k"), only_on_disk(), "readers go to the disk meanwhile");
    assert_eq!(pool.start(2, "k", 10), Err(PutRefusal::Exists));
    assert_eq!(pool.catalog.promotion_end(&pool.caller(7), b"k"), Err(ErrorCode::INVALID_PARAMS));
    pool.catalog.promotion_end(&pool.caller(OWNER), b"k").unwrap();
    let stats = pool.catalog.stats();
    assert_eq!((stats.promotions_wished, stats.promotions_cold, stats.promotions_admitted), (2, 1, 1));
    assert_eq!((stats.promotions_completed, stats.promotions_completed_bytes, stats.promotions_failed), (1, 1000, 0));
    assert_eq!((stats.disk_bytes, stats.promotions_running), (1000, 0));
    assert_eq!(homes(&pool, "k"), Some((1, vec![client(OWNER)])));
    assert_eq!(pool.catalog.promotion_end(&pool.caller(OWNER), b"k"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    pool.advance(11 * SECOND);
    evict_all(&mut pool);
    assert_eq!(homes(&pool, "k"), only_on_disk(), "and so on");
    pool.catalog.assert_consistent();
}

#[test]
fn a_load_that_failed_leaves_the_copy_on_the_disk() {
    let mut pool = pool(|_| {});
    put_cold(&mut pool, "k", 1000);
    let owner = pool.caller(OWNER);
    assert_eq!(pool.catalog.register_prefetch(&pool.caller(7), b"k"), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(pool.catalog.register_prefetch(&owner, b"none"), Err(ErrorCode::OBJECT_NOT_FOUND));
    pool.catalog.register_prefetch(&owner, b"k").unwrap();
    assert_eq!(pool.catalog.register_prefetch(&owner, b"k"), Err(ErrorCode::PROMOTION_ALREADY_EXISTS));
    assert!(pool.catalog.promotion_heartbeat(client(OWNER), pool.now).unwrap().is_empty(), "it knows already");
    let call = PromotionCall { caller: owner, key: b"k", size: 1000, preferred: &[] };
    pool.catalog.promotion_start(&call, &mut || 1, &mut pool.effects, |_| {}).unwrap();
    let used = pool.used();
    assert_eq!(pool.catalog.promotion_failed(&pool.caller(7), b"k", &mut pool.effects), Err(ErrorCode::INVALID_PARAMS));
    pool.catalog.promotion_failed(&owner, b"k", &mut pool.effects).unwrap();
    pool.catalog.promotion_failed(&owner, b"k", &mut pool.effects).unwrap();
    assert_eq!(homes(&pool, "k"), only_on_disk());
    assert_eq!(pool.used(), used, "its writer may still write there");
    pool.advance(Duration::from_secs(601));
    pool.catalog.ping(client(OWNER), pool.now).unwrap();
    pool.upkeep();
    assert_eq!(pool.used(), 0);
    pool.catalog.assert_consistent();
}

#[test]
fn owners_delete_their_own_copies_only() {
    let mut pool = pool(|_| {});
    put_cold(&mut pool, "k", 1000);
    let evict = |pool: &Pool, who: u64, which, id| pool.catalog.evict_disk(&pool.caller(who), b"k", which, id);
    assert_eq!(evict(&pool, OWNER, ReplicaType::MEMORY, None), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(evict(&pool, 7, ReplicaType::LOCAL_DISK, None), Ok(false));
    assert_eq!(evict(&pool, OWNER, ReplicaType::DISK, None), Ok(false));
    assert_eq!(evict(&pool, OWNER, ReplicaType::LOCAL_DISK, Some(ReplicaId(u64::MAX))), Ok(false));
    assert_eq!(evict(&pool, OWNER, ReplicaType::LOCAL_DISK, None), Ok(true));
    assert_eq!(evict(&pool, OWNER, ReplicaType::LOCAL_DISK, None), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(homes(&pool, "k"), None);
}

#[test]
fn a_clear_takes_what_lies_on_disks_and_tells_their_owners() {
    let mut pool = pool(|_| {});
    put_cold(&mut pool, "cold", 1000);
    pool.put("hot", 10);
    assert!(!pool.catalog.poll_remove_all(client(OWNER)));
    assert_eq!(pool.catalog.remove_all(None, Force::Yes, pool.now), 2);
    assert_eq!((homes(&pool, "cold"), homes(&pool, "hot")), (None, None));
    assert!(pool.catalog.poll_remove_all(client(OWNER)));
    assert!(!pool.catalog.poll_remove_all(client(OWNER)), "once");
}

#[test]
fn listings_and_patterns_know_what_lies_on_disks() {
    let mut pool = pool(|_| {});
    put_cold(&mut pool, "cold", 1000);
    pool.put("hot", 10);
    let mut listed = Vec::new();
    pool.catalog.list(pool.tenant, ListCursor::default(), 100, |view| listed.push(view.key().to_vec()));
    listed.sort();
    assert_eq!(listed, [b"cold".to_vec(), b"hot".to_vec()]);
    assert_eq!(pool.found_by_regex(&KeyPattern::new(b"o").unwrap()).unwrap().len(), 2);
}

#[test]
fn mailboxes_are_bounded() {
    let mut pool = pool(|tiers| tiers.offloading_queue_limit = 3);
    for at in 0..5 {
        pool.put(&format!("k{at}"), 10);
    }
    assert_eq!(errands(&pool).len(), 3);
    pool.put("after", 10);
    assert_eq!(errands(&pool), ["after"]);
    // Turned off, what waits is dropped and may be evicted.
    pool.put("waits", 10);
    assert!(pool.catalog.offload_heartbeat(client(OWNER), false).unwrap().is_empty());
    pool.put("off", 10);
    assert!(errands(&pool).is_empty());
    evict_all(&mut pool);
    assert_eq!(homes(&pool, "waits"), None);
}
