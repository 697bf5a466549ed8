//! What stands in the way of a call that failed: facts of the moment, for each kind.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_types::*;

const MIB: u64 = 1 << 20;

fn why(pool: &Pool, asks: u64, key: &str) -> Hindrance {
    pool.catalog.hindrance(&pool.caller(asks), key.as_bytes())
}

fn a() -> NodeName {
    NodeName { name: "a".into(), endpoint: segment(1, "a", MIB).te_endpoint, owner: client(100) }
}

#[test]
fn a_write_names_its_writer_its_age_and_its_place() {
    let mut pool = Pool::with_segment(MIB);
    assert_eq!(why(&pool, 2, "key"), Hindrance::Nothing, "there is none");
    pool.start(1, "key", 1000).unwrap();
    assert!(!pool.catalog.is_hidden(pool.tenant, b"key", pool.now), "it is being written");
    pool.advance(Duration::from_millis(2500));
    let (writer, age) = (client(1), Duration::from_millis(2500));
    assert_eq!(why(&pool, 2, "key"), Hindrance::Written { writer, age, node: Some(a()) });
    pool.end(1, "key").unwrap();
    assert_eq!(why(&pool, 2, "key"), Hindrance::Nothing, "it can be read");
    // Anew, by another one.
    pool.upsert_start(3, "key", 2000).unwrap();
    let written = Hindrance::Written { writer: client(3), age: Duration::ZERO, node: Some(a()) };
    assert_eq!(why(&pool, 2, "key"), written);
    // Overtaken by a third one, and not answered for.
    pool.upsert_start(4, "key", 2000).unwrap();
    assert!(matches!(why(&pool, 3, "key"), Hindrance::Written { writer, .. } if writer == client(4)));
    pool.end(4, "key").unwrap();
    assert_eq!(why(&pool, 3, "key"), Hindrance::Owed);
    assert_eq!(why(&pool, 2, "key"), Hindrance::Nothing);
    let other = Tenant(7);
    let of_another = Caller { tenant: other, ..pool.caller(2) };
    assert_eq!(pool.catalog.hindrance(&of_another, b"key"), Hindrance::Nothing);
}

#[test]
fn a_lease_tells_how_long_it_lasts() {
    let mut pool = Pool::with_segment(MIB);
    pool.put("key", 1000);
    pool.get("key").unwrap();
    let ttl = pool.catalog.settings().lease_ttl;
    assert_eq!(why(&pool, 2, "key"), Hindrance::Leased(ttl));
    pool.advance(ttl - Duration::from_millis(1));
    assert_eq!(pool.remove("key", Force::No), Err(ErrorCode::OBJECT_HAS_LEASE));
    assert_eq!(why(&pool, 2, "key"), Hindrance::Leased(Duration::from_millis(1)));
    pool.advance(Duration::from_millis(1));
    assert_eq!(why(&pool, 2, "key"), Hindrance::Nothing);
}

#[test]
fn a_silent_node_is_named_with_its_silence() {
    let settings = CatalogSettings { client_ttl: Duration::from_secs(10), ..CatalogSettings::default() };
    let mut pool = Pool::with(settings, &[("a", MIB)]);
    pool.put("key", 1000);
    pool.catalog.ping(client(100), pool.now).unwrap();
    // Looked at every second, as the master does: its own sleep would not count.
    for _ in 0..11 {
        pool.advance(Duration::from_secs(1));
        pool.catalog.expire_clients(pool.now, &mut pool.effects);
    }
    assert_eq!(pool.get("key"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    assert!(pool.catalog.is_hidden(pool.tenant, b"key", pool.now));
    let silent = Some(Duration::from_secs(11));
    assert_eq!(why(&pool, 2, "key"), Hindrance::Hidden { node: a(), silent });
    pool.catalog.ping(client(100), pool.now).unwrap();
    assert_eq!(why(&pool, 2, "key"), Hindrance::Nothing, "it is back");
    assert!(pool.get("key").is_ok());
}

#[test]
fn what_a_client_has_begun_is_told_with_what_it_may() {
    let settings = CatalogSettings { unfinished_per_client: Some(ByteLen(10_000)), ..CatalogSettings::default() };
    let mut pool = Pool::with(settings, &[("a", MIB)]);
    let limit = ByteLen(10_000);
    assert_eq!(pool.catalog.unfinished_of(client(1)), Usage { used: ByteLen(0), limit });
    pool.start(1, "key", 8000).unwrap();
    assert_eq!(pool.catalog.unfinished_of(client(1)), Usage { used: ByteLen(8000), limit });
    assert_eq!(pool.start(1, "more", 8000), Err(PutRefusal::ShareExceeded));
    assert_eq!(pool.catalog.unfinished_of(client(2)).used, ByteLen(0), "others have their own");
    pool.end(1, "key").unwrap();
    assert_eq!(pool.catalog.unfinished_of(client(1)).used, ByteLen(0));
    let vacancy = pool.catalog.vacancy(pool.now);
    assert!(vacancy.largest_free.0 >= MIB - 3 * 8000 && vacancy.largest_free <= vacancy.capacity, "{vacancy:?}");
}
