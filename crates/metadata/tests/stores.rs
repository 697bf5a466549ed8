//! One contract for all stores, with the real servers.

#![allow(clippy::unwrap_used, reason = "test code")]

#[path = "common/services.rs"]
mod services;

use std::sync::Arc;
use std::time::Duration;

use services::{Service, eventually, free_port};
use yb_admin::{MetadataOptions, MetadataServer};
use yb_env::{Clock, Rng};
use yb_metadata::{Lease, MemoryStore, MetadataStore, Renewal, StoreErrorKind, StoreSettings, connect_with};

fn store(address: &str) -> Arc<dyn MetadataStore> {
    connect_with(address, &StoreSettings::default()).unwrap().unwrap()
}

fn lease(seconds: u64) -> Lease {
    Lease::new(Duration::from_secs(seconds), &mut Rng::from_entropy())
}

/// What every store does.
fn keeps_texts(store: &dyn MetadataStore) {
    for key in ["mooncake/ram/nodeA:44201", "mooncake/ram/[::1]:5", "mooncake/c d/ram/é%2F&x=1+1?#"] {
        assert_eq!(store.get(key).unwrap(), None, "{key}");
        for value in [&b"{\"a\":1}"[..], b"{}", b"two\r\nlines $3\r\n+OK"] {
            store.put(key, value, None).unwrap();
            assert_eq!(store.get(key).unwrap().as_deref(), Some(value), "{key}");
        }
        assert!(store.delete(key).unwrap());
        assert!(!store.delete(key).unwrap());
    }
    let large: Vec<u8> = (0..2 << 20).map(|i| b'a' + (i % 23) as u8).collect();
    match store.put("mooncake/ram/large", &large, None) {
        Ok(()) => assert_eq!(store.get("mooncake/ram/large").unwrap().unwrap(), large),
        Err(refused) => assert_eq!(refused.kind(), StoreErrorKind::Full, "{refused}"),
    }
    let own = lease(60);
    store.put("k", b"mine", Some(&own)).unwrap();
    store.withdraw("k", b"mine", &own).unwrap();
    assert_eq!(store.get("k").unwrap(), None);
    store.put("k", b"mine", Some(&own)).unwrap();
    store.put("k", b"theirs", Some(&lease(60))).unwrap();
    store.withdraw("k", b"mine", &own).unwrap();
    assert_eq!(store.get("k").unwrap().as_deref(), Some(&b"theirs"[..]), "only what is ours is withdrawn");
    store.end(&own).unwrap();
}

/// What stores with leases do besides.
fn forgets_the_dead(store: &dyn MetadataStore) {
    let alive = lease(60);
    store.put("alive", b"x", Some(&alive)).unwrap();
    assert_eq!(store.renew(&alive).unwrap(), Renewal::Kept);
    // None of these says that it ends.
    for life in 0..100 {
        let dead = lease(1);
        store.put(&format!("dead/{life}/a"), b"x", Some(&dead)).unwrap();
        store.put(&format!("dead/{life}/b"), b"x", Some(&dead)).unwrap();
    }
    eventually("records of the dead are gone", || {
        (0..100).all(|life| ["a", "b"].iter().all(|part| store.get(&format!("dead/{life}/{part}")).unwrap().is_none()))
    });
    assert_eq!(store.get("alive").unwrap().as_deref(), Some(&b"x"[..]));
    store.delete("alive").unwrap();
    store.end(&alive).unwrap();
}

#[test]
fn in_memory() {
    let store = MemoryStore::new("memory", Clock::real());
    keeps_texts(&store);
    forgets_the_dead(&store);
}

#[test]
fn our_http_server() {
    let server = MetadataServer::start(MetadataOptions::from_env("127.0.0.1:0", |_| None)).unwrap();
    let store = store(&format!("http://{}/metadata", server.address()));
    keeps_texts(&*store);
    forgets_the_dead(&*store);
    assert_eq!(store.renew(&lease(5)).unwrap(), Renewal::Lost);
}

#[test]
fn the_peers_http_server() {
    let Some(mut server) = Service::peer_http("v0.3.13.post1") else { return };
    let store = store(&format!("http://127.0.0.1:{}/metadata", server.port));
    keeps_texts(&*store);
    assert_eq!(store.renew(&lease(5)).unwrap(), Renewal::Unknown, "it keeps no leases");
    store.put("mooncake/rpc_meta/n", b"{}", None).unwrap();
    assert_eq!(store.put("mooncake/rpc_meta/n", b"{}", None).unwrap_err().kind(), StoreErrorKind::Duplicate);
    server.restart();
    assert_eq!(store.get("mooncake/rpc_meta/n").unwrap(), None, "a kept connection that broke is made again");
}

#[test]
fn etcd() {
    let Some(mut server) = Service::etcd() else { return };
    // The first endpoint is dead.
    let store = store(&format!("etcd://127.0.0.1:{};127.0.0.1:{}", free_port(), server.port));
    eventually("the member leads", || store.put("ready", b"", None).is_ok());
    keeps_texts(&*store);
    forgets_the_dead(&*store);
    let gone = lease(60);
    assert_eq!(store.renew(&gone).unwrap(), Renewal::Lost);
    store.put("k", b"v", Some(&gone)).unwrap();
    store.end(&gone).unwrap();
    assert_eq!(store.get("k").unwrap(), None, "what is left of a lease goes with it");
    store.put("stays", b"v", None).unwrap();
    server.restart();
    eventually("the member is back", || store.get("stays").is_ok_and(|value| value.as_deref() == Some(b"v")));
}

#[test]
fn redis() {
    let Some(mut server) = Service::redis(None) else { return };
    let address = format!("redis://127.0.0.1:{}", server.port);
    let store = store(&address);
    keeps_texts(&*store);
    forgets_the_dead(&*store);
    let settings = StoreSettings { redis_database: 3, ..StoreSettings::default() };
    let other = connect_with(&address, &settings).unwrap().unwrap();
    store.put("k", b"0", None).unwrap();
    assert_eq!(other.get("k").unwrap(), None, "another database");
    let lost = lease(60);
    store.put("n", b"x", Some(&lost)).unwrap();
    server.restart();
    assert_eq!(store.get("k").unwrap(), None, "a kept connection that broke is made again");
    assert_eq!(store.renew(&lost).unwrap(), Renewal::Lost);
}

#[test]
fn redis_with_a_password() {
    let Some(server) = Service::redis(Some("s3")) else { return };
    let with = |user: Option<&str>, password: Option<&str>| {
        let settings = StoreSettings {
            redis_user: user.map(str::to_owned),
            redis_password: password.map(str::to_owned),
            ..StoreSettings::default()
        };
        connect_with(&format!("redis://127.0.0.1:{}", server.port), &settings).unwrap().unwrap()
    };
    with(None, Some("s3")).put("k", b"v", None).unwrap();
    assert_eq!(with(Some("default"), Some("s3")).get("k").unwrap().as_deref(), Some(&b"v"[..]));
    for wrong in [with(None, None), with(None, Some("x")), with(Some("nobody"), Some("s3"))] {
        assert_eq!(wrong.get("k").unwrap_err().kind(), StoreErrorKind::Unauthorized);
    }
}

#[test]
fn nobody_there() {
    let port = free_port();
    for address in
        [format!("http://127.0.0.1:{port}/m"), format!("127.0.0.1:{port}"), format!("redis://127.0.0.1:{port}")]
    {
        let error = store(&address).get("k").unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
        assert!(error.is_retryable() && error.to_string().contains(&port.to_string()), "{error}");
    }
    assert!(connect_with("P2PHANDSHAKE", &StoreSettings::default()).unwrap().is_none());
}
