//! Addresses that work, and those that cannot: each with an error of its own, and nothing moves.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::net::SocketAddr;

use common::*;
use yb_transfer::{Access, Engine, EngineSettings, Notification, SegmentOptions, StartError, TransferErrorKind};

fn start(listen: &str, advertise: Option<&str>) -> Result<Engine, StartError> {
    let settings = EngineSettings {
        listen: Some(listen.parse::<SocketAddr>().unwrap()),
        advertise_host: advertise.map(str::to_owned),
        ..tcp_settings()
    };
    Engine::builder().settings(settings).build()
}

/// Writes, reads, notifies.
fn works(a: &Engine, b: &Engine) {
    let region = memory(b, 1 << 16);
    let peer = open(a, b);
    let sent = pattern(60_000, 1);
    let mut got = vec![0; sent.len()];
    a.transfer_sync(&[write(&peer, region.address(), &sent)], a.now() + PATIENCE).into_result().unwrap();
    a.transfer_sync(&[read(&peer, region.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
    assert!(got == sent);
    let note = Notification { name: "n".to_owned(), message: "m".to_owned() };
    a.notify(&peer, &note, a.now() + PATIENCE).unwrap();
    assert_eq!(b.take_notifications(), [note]);
    b.unregister(region.address(), PATIENCE).unwrap();
}

#[test]
fn ipv6_works_from_end_to_end() {
    let (a, b) = (start("[::1]:0", None).unwrap(), start("[::1]:0", None).unwrap());
    assert!(b.endpoint().unwrap().starts_with("[::1]:"), "{:?}", b.endpoint());
    assert_eq!(describe(b.endpoint().unwrap())["tcp_data_host"], "::1");
    works(&a, &b);
}

#[test]
fn any_address_serves_both_families_under_the_advertised_one() {
    let a = engine(tcp_settings());
    for advertised in ["127.0.0.1", "localhost", "::1", "[::1]"] {
        works(&a, &start("[::]:0", Some(advertised)).unwrap());
    }
    works(&a, &start("0.0.0.0:0", Some("127.0.0.1")).unwrap());
}

#[test]
fn a_scope_belongs_to_the_address() {
    let b = start("[::1%1]:0", None).unwrap();
    assert!(b.endpoint().unwrap().starts_with("[::1%1]:"), "{:?}", b.endpoint());
    works(&start("[::1]:0", None).unwrap(), &b);
    let a = engine(tcp_settings());
    // Nobody has this address, but it is understood: the error is about the peer, not about the name.
    let peer = a.open_segment("[fe80::1%lo]:9").unwrap();
    let error = a.probe(&peer, a.now() + PATIENCE).unwrap_err();
    assert_eq!(error.kind(), TransferErrorKind::Unreachable, "{error}");
}

#[test]
fn a_port_in_use_is_said_so() {
    let b = engine(tcp_settings());
    let port = b.endpoint().unwrap().rsplit_once(':').unwrap().1;
    let error = start(&format!("127.0.0.1:{port}"), None).unwrap_err();
    assert!(matches!(error, StartError::PortInUse(address) if address.port().to_string() == port), "{error}");
    let data = EngineSettings { data_listen: Some(b.endpoint().unwrap().parse().unwrap()), ..tcp_settings() };
    assert!(matches!(Engine::builder().settings(data).build(), Err(StartError::PortInUse(_))));
    // An address of nobody here is another matter.
    assert!(matches!(start("192.0.2.1:0", None), Err(StartError::Listen { .. })));
}

#[test]
fn hosts_that_nobody_can_connect_to_are_not_advertised() {
    assert!(matches!(start("0.0.0.0:0", None), Err(StartError::NoAdvertisedHost(_))));
    assert!(matches!(start("[::]:0", None), Err(StartError::NoAdvertisedHost(_))));
    for bad in ["0.0.0.0", "::", "[::]", "", "two words", "host:1234", "host/x", "1:2"] {
        let error = start("127.0.0.1:0", Some(bad)).unwrap_err();
        assert!(matches!(&error, StartError::UnusableHost(host) if host == bad), "{bad}: {error}");
    }
}

#[test]
fn segments_that_cannot_be_opened_say_why() {
    let a = engine(tcp_settings());
    let long = format!("{}:1", "x".repeat(300));
    for bad in
        ["", "host", "127.0.0.1:0", "0.0.0.0:7", "a b:1", "../../etc:1", "h\nh:1", "h\0:1", "::1:7", "\u{1f600}:1"]
    {
        let error = a.open_segment(bad).unwrap_err();
        assert_eq!(error.kind(), TransferErrorKind::InvalidRequest, "{bad:?}: {error}");
        assert_eq!(error.code(), -1);
    }
    for unknown in ["no-such-host.invalid:7", "999.1.2.3:7", &long] {
        let peer = a.open_segment(unknown).unwrap();
        let outcome = a.transfer_sync(&[write(&peer, 4096, &[1])], a.now() + PATIENCE);
        let error = outcome.into_result().unwrap_err();
        assert_eq!((error.kind(), error.code()), (TransferErrorKind::UnknownHost, -101), "{unknown}: {error}");
        assert_eq!(a.probe(&peer, a.now() + PATIENCE).unwrap_err().kind(), TransferErrorKind::UnknownHost);
    }
}

#[test]
fn a_peer_that_says_any_address_is_found_where_its_handshake_is() {
    let b = engine(tcp_settings());
    let region = b.allocate(4096, SegmentOptions::default(), Access::Remote).unwrap();
    let between =
        common::proxy::Between::telling(b.endpoint().unwrap(), |desc| desc["tcp_data_host"] = "0.0.0.0".into());
    let a = engine(tcp_settings());
    let peer = a.open_segment(&between.endpoint).unwrap();
    a.transfer_sync(&[write(&peer, region.address(), b"here")], a.now() + PATIENCE).into_result().unwrap();
    assert_eq!(content(&region, 0, 4), b"here");
    assert!(peer.path().starts_with("tcp 127.0.0.1:"), "{}", peer.path());
}
