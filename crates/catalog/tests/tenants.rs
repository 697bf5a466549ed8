//! Names, quotas and the ledger of tenants.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

fn multi() -> CatalogSettings {
    CatalogSettings { multi_tenant: true, tenants_max: 3, ..CatalogSettings::default() }
}

fn register(pool: &Pool, name: &str, quota: u64) -> Tenant {
    pool.catalog.tenants().set_policy(name, quota, pool.now).unwrap();
    pool.catalog.tenants().writer(name.as_bytes())
}

fn standing(pool: &Pool, name: &str) -> TenantQuota {
    pool.catalog.tenants().quota(name, pool.now).unwrap()
}

#[test]
fn one_tenant_ignores_every_name() {
    let pool = Pool::with_segment(1 << 20);
    let tenants = pool.catalog.tenants();
    for name in [&b""[..], b"a", b"_a", b"\xff"] {
        assert_eq!((tenants.reader(name), tenants.writer(name)), (Ok(Tenant::DEFAULT), Tenant::DEFAULT));
    }
    assert_eq!(tenants.set_policy("a", 1, pool.now), Err(PolicyRefusal::SingleTenant));
    assert!(tenants.quotas(pool.now).is_empty());
}

#[test]
fn names_are_told_apart_by_the_kind_of_call() {
    let pool = Pool::new(multi());
    let alice = register(&pool, "alice", 1);
    let tenants = pool.catalog.tenants();
    assert_eq!((tenants.reader(b"alice"), tenants.writer(b"alice")), (Ok(alice), alice));
    assert_eq!(tenants.name(alice).as_deref(), Some("alice"));
    assert_eq!((tenants.reader(b""), tenants.writer(b"")), (Ok(Tenant::DEFAULT), Tenant::NOBODY));
    assert_eq!((tenants.reader(b"_x"), tenants.writer(b"_x")), (Err(ErrorCode::INVALID_PARAMS), Tenant::NOBODY));
    assert_eq!((tenants.reader(b"bob"), tenants.writer(b"bob")), (Ok(Tenant::NOBODY), Tenant::NOBODY));
    assert_eq!(tenants.quotas(pool.now).len(), 1, "names that were only asked for leave no trace");
}

#[test]
fn a_tenant_that_is_not_registered_cannot_write() {
    let mut pool = Pool::with(multi(), &[("a", 1 << 20)]);
    for tenant in [Tenant::NOBODY, Tenant::DEFAULT] {
        pool.tenant = tenant;
        assert_eq!(pool.start(1, "k", 10), Err(PutRefusal::TenantNotRegistered));
        assert_eq!(pool.start(1, "", 10), Err(PutRefusal::EmptyKey), "is looked at first");
        assert_eq!(pool.get("k"), Err(ErrorCode::OBJECT_NOT_FOUND));
    }
    register(&pool, "default", 1000);
    pool.tenant = Tenant::DEFAULT;
    pool.put("k", 10);
    pool.catalog.assert_consistent();
}

#[test]
fn equal_keys_of_two_tenants_are_two_objects() {
    let mut pool = Pool::with(multi(), &[("a", 1 << 20)]);
    let (alice, bob) = (register(&pool, "alice", 1000), register(&pool, "bob", 1000));
    for (tenant, size) in [(alice, 100), (bob, 200)] {
        pool.tenant = tenant;
        pool.put("k", size);
    }
    pool.tenant = alice;
    assert_eq!(pool.get("k").unwrap().size, 100);
    pool.remove("k", Force::Yes).unwrap();
    pool.tenant = bob;
    assert_eq!(pool.get("k").unwrap().size, 200);
    assert_eq!((standing(&pool, "alice").charged, standing(&pool, "bob").charged), (0, 200));
    assert_eq!(pool.catalog.remove_all(Some(bob), Force::Yes, pool.now), 1);
    assert_eq!(standing(&pool, "bob").charged, 0);
    pool.catalog.assert_consistent();
}

#[test]
fn quotas_follow_the_memory_that_is_mounted() {
    let mut pool = Pool::new(multi());
    register(&pool, "alice", 8_388_608);
    register(&pool, "bob", 100_000_000);
    assert_eq!(standing(&pool, "bob").effective, 0);
    pool.mount(segment(1, "a", 67_108_864), 100).unwrap();
    assert_eq!((standing(&pool, "alice").effective, standing(&pool, "bob").effective), (5_193_811, 61_915_053));
    pool.mount(segment(2, "b", 67_108_864), 101).unwrap();
    assert_eq!((standing(&pool, "alice").effective, standing(&pool, "bob").effective), (8_388_608, 100_000_000));
    let sums = pool.catalog.tenants().sums();
    assert_eq!((sums.capacity, sums.requested, sums.effective), (134_217_728, 108_388_608, 108_388_608));
    let now = pool.now;
    pool.catalog.unmount(segment(1, "a", 1).id, client(100), now, &mut pool.effects).unwrap();
    assert_eq!(standing(&pool, "alice").effective, 5_193_811);
}

#[test]
fn a_tenant_is_deleted_only_when_it_is_empty() {
    let mut pool = Pool::with(multi(), &[("a", 1 << 20)]);
    pool.tenant = register(&pool, "alice", 1000);
    let delete = |pool: &Pool| {
        pool.catalog.tenants().block("alice")?;
        pool.catalog.tenants().forget("alice", pool.now);
        Ok(())
    };
    pool.start(1, "k", 10).unwrap();
    assert_eq!(delete(&pool), Err(PolicyRefusal::NotEmpty), "a put that has not ended counts");
    pool.end(1, "k").unwrap();
    assert_eq!(delete(&pool), Err(PolicyRefusal::NotEmpty));
    pool.put("l", 10);
    pool.catalog.remove_all(Some(pool.tenant), Force::Yes, pool.now);
    assert_eq!(pool.catalog.tenants().block("alice"), Ok(()));
    assert_eq!(pool.start(1, "k", 10), Err(PutRefusal::TenantNotRegistered), "blocked while it is deleted");
    pool.catalog.tenants().unblock("alice");
    pool.put("k", 10);
    pool.remove("k", Force::Yes).unwrap();
    assert_eq!(delete(&pool), Ok(()));
    assert_eq!(delete(&pool), Err(PolicyRefusal::Unknown));
    assert_eq!(pool.start(1, "k", 10), Err(PutRefusal::TenantNotRegistered));
    assert!(pool.catalog.tenants().quotas(pool.now).is_empty());
}

#[test]
fn a_number_rests_before_another_name_gets_it() {
    let mut pool = Pool::new(multi());
    let numbers: Vec<Tenant> = ["a", "b", "c"].iter().map(|name| register(&pool, name, 1)).collect();
    let tenants = || pool.catalog.tenants();
    assert_eq!(tenants().set_policy("d", 1, pool.now), Err(PolicyRefusal::TooMany));
    tenants().block("b").unwrap();
    tenants().forget("b", pool.now);
    assert_eq!(tenants().set_policy("d", 1, pool.now), Err(PolicyRefusal::TooMany), "still warm");
    pool.advance(Duration::from_secs(60));
    assert_eq!(register(&pool, "d", 1), numbers[1]);
    assert_eq!(pool.catalog.tenants().reader(b"b"), Ok(Tenant::NOBODY));
}

#[test]
fn who_loses_its_policy_can_still_read_and_be_emptied() {
    let mut pool = Pool::with(multi(), &[("a", 1 << 20)]);
    let set = |pool: &Pool, all: &[(&str, u64)]| {
        let all: BTreeMap<String, u64> = all.iter().map(|(name, quota)| ((*name).to_owned(), *quota)).collect();
        pool.catalog.tenants().set_policies(&all, pool.now)
    };
    assert_eq!(set(&pool, &[("a", 1000), ("b", 1000), ("c", 1), ("d", 1)]), Ok(vec!["d".to_owned()]));
    assert_eq!(set(&pool, &[("a", 1000), ("_b", 1000)]), Err(PolicyRefusal::BadName));
    assert_eq!(pool.catalog.tenants().policies().len(), 3, "nothing changed");
    pool.tenant = pool.catalog.tenants().writer(b"a");
    pool.put("k", 10);
    set(&pool, &[("b", 1000)]).unwrap();
    let left = standing(&pool, "a");
    assert_eq!((left.requested, left.effective, left.charged), (0, 0, 10));
    assert_eq!((left.closed, left.over, left.has_policy), (true, true, false));
    assert_eq!(pool.catalog.tenants().quota("c", pool.now), None);
    assert_eq!(pool.start(1, "l", 10), Err(PutRefusal::TenantNotRegistered));
    assert_eq!(pool.get("k").unwrap().size, 10);
    pool.remove("k", Force::Yes).unwrap();
    assert_eq!(pool.catalog.tenants().quota("a", pool.now), None);
}
