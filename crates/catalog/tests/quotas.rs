//! What tenants may use: admission, eviction inside a tenant, clears.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MB: u64 = 1 << 20;

fn multi() -> CatalogSettings {
    CatalogSettings { multi_tenant: true, tenants_max: 8, ..CatalogSettings::default() }
}

fn register(pool: &Pool, name: &str, quota: u64) -> Tenant {
    pool.catalog.tenants().set_policy(name, quota, pool.now).unwrap();
    pool.catalog.tenants().writer(name.as_bytes())
}

fn standing(pool: &Pool, name: &str) -> TenantQuota {
    pool.catalog.tenants().quota(name, pool.now).unwrap()
}

fn present(pool: &Pool, keys: impl IntoIterator<Item = String>) -> Vec<String> {
    keys.into_iter().filter(|key| pool.exists(key, Probe::Only)).collect()
}

/// The peer, live: 12 objects of 1 MB into a quota of 8 MiB are all stored, and 4 MB evicted.
#[test]
fn a_put_beyond_the_quota_evicts_the_tenant_itself_oldest_first() {
    let mut pool = Pool::with(multi(), &[("a", 64 * MB)]);
    let (alice, bob) = (register(&pool, "alice", 8 * MB), register(&pool, "bob", 8 * MB));
    pool.tenant = bob;
    pool.put("bobs", MB);
    pool.tenant = alice;
    for at in 0..12 {
        pool.put(&format!("k{at}"), MB);
        pool.advance(SECOND);
    }
    assert_eq!(
        present(&pool, (0..12).map(|at| format!("k{at}"))),
        (4..12).map(|at| format!("k{at}")).collect::<Vec<_>>()
    );
    let alices = standing(&pool, "alice");
    assert_eq!((alices.charged, alices.evicted_bytes, alices.rejected), (8 * MB, 4 * MB, 0));
    pool.tenant = bob;
    assert!(pool.exists("bobs", Probe::Only));
    pool.catalog.assert_consistent();
}

#[test]
fn what_is_used_stays_and_what_is_protected_is_not_taken() {
    let mut pool = Pool::with(multi(), &[("a", 64 * MB)]);
    pool.tenant = register(&pool, "alice", 4 * MB);
    for key in ["used", "old", "young"] {
        pool.put(key, MB);
        pool.advance(SECOND);
    }
    pool.get("used").unwrap();
    pool.config.with_hard_pin = true;
    pool.put("pinned", MB);
    pool.config.with_hard_pin = false;
    pool.advance(11 * SECOND);
    pool.put("new", MB);
    assert_eq!(
        present(&pool, ["used", "old", "young", "pinned", "new"].map(str::to_owned)),
        ["used", "young", "pinned", "new"]
    );
    for key in ["used", "young", "new"] {
        pool.get(key).unwrap();
    }
    assert_eq!(pool.start(1, "more", MB), Err(PutRefusal::QuotaExceeded), "everything else is leased");
    assert_eq!(PutRefusal::QuotaExceeded.code(), ErrorCode::TENANT_QUOTA_EXCEEDED);
    assert_eq!(standing(&pool, "alice").rejected, 1);
    assert_eq!(pool.start(1, "huge", 5 * MB), Err(PutRefusal::LargerThanQuota));
    pool.advance(11 * SECOND);
    assert_eq!(pool.start(1, "huge", 5 * MB), Err(PutRefusal::LargerThanQuota));
    assert_eq!(standing(&pool, "alice").charged, 4 * MB, "nothing was evicted for what can never fit");
    pool.put("more", MB);
    pool.catalog.assert_consistent();
}

#[test]
fn soft_pins_go_last() {
    let mut pool = Pool::with(multi(), &[("a", 64 * MB)]);
    pool.tenant = register(&pool, "alice", 3 * MB);
    pool.config.soft_pin_action = SoftPinAction::ENABLE;
    pool.put("soft", MB);
    pool.config.soft_pin_action = SoftPinAction::PRESERVE;
    pool.advance(SECOND);
    pool.put("plain", MB);
    pool.put("third", MB);
    pool.advance(SECOND);
    pool.put("a", 2 * MB);
    assert_eq!(present(&pool, ["soft", "plain", "third", "a"].map(str::to_owned)), ["soft", "a"]);
    pool.put("b", 3 * MB);
    assert_eq!(present(&pool, ["soft", "a", "b"].map(str::to_owned)), ["b"]);
}

#[test]
fn replicas_are_charged_as_many_as_there_are() {
    let mut pool = Pool::with(multi(), &[("a", 4 * MB), ("b", 4 * MB)]);
    pool.tenant = register(&pool, "alice", 8 * MB);
    pool.config.replica_num = 3;
    assert_eq!(pool.start(1, "k", MB).unwrap().replicas.len(), 2);
    assert_eq!(standing(&pool, "alice").charged, 2 * MB);
    pool.end(1, "k").unwrap();
    let now = pool.now;
    pool.catalog.unmount(segment(1, "a", 1).id, client(100), now, &mut pool.effects).unwrap();
    pool.upkeep();
    assert_eq!(standing(&pool, "alice").charged, MB);
    pool.catalog.unmount(segment(2, "b", 1).id, client(101), now, &mut pool.effects).unwrap();
    pool.upkeep();
    assert_eq!((standing(&pool, "alice").charged, standing(&pool, "alice").objects), (0, 0));
    pool.catalog.assert_consistent();
}

#[test]
fn a_tenant_above_its_share_pays_for_the_room_of_others() {
    let mut pool = Pool::with(multi(), &[("a", 8 * MB)]);
    let (alice, bob) = (register(&pool, "alice", 8 * MB), register(&pool, "bob", 1));
    pool.tenant = alice;
    for at in 0..8 {
        pool.put(&format!("k{at}"), MB);
    }
    pool.catalog.tenants().set_policy("bob", 8 * MB, pool.now).unwrap();
    let over = standing(&pool, "alice");
    assert_eq!((over.effective, over.over, over.closed), (4 * MB, true, false));
    pool.tenant = bob;
    for at in 0..4 {
        pool.put(&format!("k{at}"), MB);
    }
    assert_eq!((standing(&pool, "alice").charged, standing(&pool, "bob").charged), (4 * MB, 4 * MB));
    pool.put("one more", MB);
    assert_eq!((standing(&pool, "alice").charged, standing(&pool, "bob").charged), (4 * MB, 4 * MB));
    assert!(!standing(&pool, "alice").over);
    pool.catalog.assert_consistent();
}

#[test]
fn the_background_keeps_tenants_below_their_watermark() {
    let settings = CatalogSettings { tenant_high_watermark: 0.5, ..multi() };
    let mut pool = Pool::with(settings, &[("a", 64 * MB)]);
    pool.tenant = register(&pool, "alice", 8 * MB);
    register(&pool, "bob", 8 * MB);
    for at in 0..7 {
        pool.put(&format!("k{at}"), MB);
    }
    let done = pool.catalog.trim_tenants(1000, pool.now);
    assert_eq!((done.keys, standing(&pool, "alice").charged, done.exhausted), (3, 4 * MB, false));
    assert_eq!(pool.catalog.trim_tenants(1000, pool.now).steps, 0);
    pool.catalog.assert_consistent();
}

/// A clear looks at a bounded number of objects between two chances for others.
#[test]
fn a_clear_goes_in_steps_and_meets_everything_that_was_there() {
    let mut pool = Pool::with(multi(), &[("a", 64 * MB)]);
    let (alice, bob) = (register(&pool, "alice", 32 * MB), register(&pool, "bob", 32 * MB));
    for tenant in [alice, bob] {
        pool.tenant = tenant;
        for at in 0..3000 {
            pool.put(&format!("k{at}"), 100);
        }
    }
    pool.tenant = alice;
    pool.get("k7").unwrap();
    pool.start(1, "unfinished", 100).unwrap();
    let mut cursor = ClearCursor::default();
    let (mut steps, mut before) = (0, 0);
    while pool.catalog.clear_step(Some(alice), Force::No, &mut cursor, 100, pool.now) {
        steps += 1;
        assert!(cursor.tally.removed - before <= 100);
        before = cursor.tally.removed;
        if steps == 5 {
            pool.put("late", 100);
        }
    }
    assert!(steps >= 25, "{steps}");
    assert!(cursor.tally.removed == 2999 || cursor.tally.removed == 3000, "{}", cursor.tally.removed);
    assert_eq!((cursor.tally.leased, cursor.tally.busy), (1, 0), "k7; a put that has not ended is no object yet");
    assert!(pool.exists("k7", Probe::Only));
    assert_eq!(standing(&pool, "bob").objects, 3000);
    let mut all = ClearCursor::default();
    while pool.catalog.clear_step(None, Force::Yes, &mut all, 100, pool.now) {}
    assert_eq!(standing(&pool, "bob").objects, 0);
    assert_eq!(standing(&pool, "alice").objects, 1, "the put that has not ended");
    pool.catalog.assert_consistent();
}

/// One tenant is cleared and floods the pool while another one puts: the longest wait of the other is a small part of
/// the time that the clear takes.
#[test]
fn neighbours_are_not_delayed_by_a_clear_or_a_flood() {
    let mut pool = Pool::with(multi(), &[("a", 64 * MB)]);
    let (alice, bob) = (register(&pool, "alice", 32 * MB), register(&pool, "bob", 32 * MB));
    pool.tenant = alice;
    for at in 0..60_000 {
        pool.put(&format!("key-{at}"), 64);
    }
    let (catalog, now, clock) = (&pool.catalog, pool.now, yb_env::Clock::real());
    let over = AtomicBool::new(false);
    let probe = || {
        let (mut longest, mut probes) = (Duration::ZERO, 0u64);
        let caller = Caller { tenant: bob, client: client(2), now };
        while !over.load(Ordering::Relaxed) {
            let began = clock.now();
            let key = format!("probe-{probes}");
            let config = ReplicateConfig::default();
            let call = PutCall { caller, config: &config, allow_empty: false, waited: false };
            let items = [(key.as_bytes(), 64u64)];
            let mut random = || probes;
            catalog.put_start(&call, items, &mut random, &mut Effects::default(), |_, answer| assert!(answer.is_ok()));
            catalog.put_end(&caller, ReplicaType::ALL, [(key.as_bytes(), None)], |_, answer| answer.unwrap());
            longest = longest.max(clock.now().since(began));
            probes += 1;
        }
        (longest, probes)
    };
    let (taken, (longest, probes)) = std::thread::scope(|scope| {
        let prober = scope.spawn(probe);
        let began = clock.now();
        assert_eq!(catalog.remove_all(Some(alice), Force::No, now), 60_000);
        let taken = clock.now().since(began);
        over.store(true, Ordering::Relaxed);
        (taken, prober.join().unwrap())
    });
    assert!(probes > 10, "{probes} puts in {taken:?}");
    assert!(longest < taken / 2, "a put waited {longest:?} of {taken:?}");
    pool.catalog.assert_consistent();
}
