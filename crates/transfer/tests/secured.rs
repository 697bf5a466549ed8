//! Two engines whose handshake and data ports are secured, and what others of them see.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;
#[path = "../../secure/tests/common/in_folder.rs"]
mod in_folder;

use std::net::SocketAddr;

use common::*;
use in_folder::{SECRET, settings};
use yb_secure::{Security, SecuritySettings};
use yb_transfer::{EngineSettings, Notification, Request, TransferErrorKind};

fn secured(settings: &SecuritySettings) -> EngineSettings {
    EngineSettings { security: Security::open(settings).unwrap(), ..tcp_settings() }
}

#[test]
fn every_size_arrives_both_ways_in_every_mode() {
    let folder = tempfile::tempdir().unwrap();
    yb_secure::write_certificates(folder.path(), &[]).unwrap();
    let tls = Some(folder.path());
    for mode in [settings(Some(SECRET), None), settings(None, tls), settings(Some(SECRET), tls)] {
        let (a, b) = (engine(secured(&mode)), engine(secured(&mode)));
        let memory = memory(&b, 33 << 20);
        let peer = open(&a, &b);
        for (size, offset) in [(1, 0), (4096, 1), ((1 << 20) + 1, 77), (32 << 20, 5)] {
            let sent = pattern(size, size as u64);
            let remote = memory.address() + offset;
            a.transfer_sync(&[write(&peer, remote, &sent)], a.now() + PATIENCE).into_result().unwrap();
            assert!(content(&memory, offset as usize, size) == sent, "write of {size}");
            let mut got = vec![0; size];
            a.transfer_sync(&[read(&peer, remote, &mut got)], a.now() + PATIENCE).into_result().unwrap();
            assert!(got == sent, "read of {size}");
        }
        // Nothing is under way any more: the owner can say so, with TLS in between too.
        eventually("the range is quiet", || b.is_quiesced(memory.address(), 33 << 20, None));
        let note = Notification { name: "who".to_owned(), message: "hello".to_owned() };
        a.notify(&peer, &note, a.now() + PATIENCE).unwrap();
        assert_eq!(b.take_notifications().len(), 1);
    }
}

#[test]
fn who_is_not_let_in_learns_why_and_the_others_do_not_notice() {
    let data = free_address();
    let owner = engine(EngineSettings { data_listen: Some(data), ..secured(&settings(Some(SECRET), None)) });
    let memory = memory(&owner, 1 << 20);
    let friend = engine(secured(&settings(Some(SECRET), None)));
    let peer = open(&friend, &owner);
    for (settings, said) in [
        (secured(&settings(Some("the secret of somebody"), None)), "the secrets are not the same"),
        (tcp_settings(), "secured connections only"),
    ] {
        let stranger = engine(settings);
        let opened = open(&stranger, &owner);
        let error = stranger.remote_regions(&opened, true, stranger.now() + PATIENCE).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        // Somebody who knows the data port by other means.
        let mut socket = std::net::TcpStream::connect(data).unwrap();
        let header = [&8_u64.to_le_bytes()[..], &memory.address().to_le_bytes(), &[0x80; 1], &[0; 7]].concat();
        std::io::Write::write_all(&mut socket, &header).unwrap();
        let mut got = Vec::new();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = std::io::Read::read_to_end(&mut socket, &mut got);
        assert_eq!(got, yb_secure::Refusal::PlainClosed.encode());
    }
    let sent = pattern(1000, 1);
    friend.transfer_sync(&[write(&peer, memory.address(), &sent)], friend.now() + PATIENCE).into_result().unwrap();
    assert!(owner.stats().refused_connections >= 4);
}

/// An address at which nobody listens.
fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], yb_env::free_port().unwrap()))
}

#[test]
fn a_known_address_goes_on_with_the_plain_wire() {
    let mode = SecuritySettings {
        plain_from: Some("127.0.0.0/8".parse().unwrap()),
        plain_to: Some("127.0.0.0/8".parse().unwrap()),
        ..settings(Some(SECRET), None)
    };
    let (mixed, plain) = (engine(secured(&mode)), engine(tcp_settings()));
    for (from, to) in [(&mixed, &plain), (&plain, &mixed)] {
        let memory = memory(to, 1 << 20);
        let peer = open(from, to);
        let sent = pattern(100_000, 3);
        from.transfer_sync(&[write(&peer, memory.address(), &sent)], from.now() + PATIENCE).into_result().unwrap();
        assert!(content(&memory, 0, sent.len()) == sent);
    }
}

#[test]
fn a_peer_that_hangs_while_it_is_secured_holds_up_nobody_else_of_a_batch() {
    let mode = settings(Some(SECRET), None);
    let (from, owner) = (engine(secured(&mode)), engine(secured(&mode)));
    let memory = memory(&owner, 1 << 20);
    let peer = open(&from, &owner);
    let port = free_address();
    let second = engine(EngineSettings { data_listen: Some(port), ..secured(&mode) });
    let hung_memory = common::memory(&second, 1 << 20);
    let hung = open(&from, &second);
    // The second's data port goes silent: another listener that accepts and says nothing stands in its place.
    let address = hung_memory.address();
    drop(second);
    let listener = std::net::TcpListener::bind(port).unwrap();
    let (good, bad) = (pattern(1000, 1), pattern(1000, 2));
    let requests: [Request<'_>; 2] = [write(&hung, address, &bad), write(&peer, memory.address(), &good)];
    let clock = yb_env::Clock::real();
    let begun = clock.now();
    let outcome = from.transfer_sync(&requests, from.now() + std::time::Duration::from_secs(3));
    let error = outcome.into_result().unwrap_err();
    assert!(matches!(error.kind(), TransferErrorKind::TimedOut | TransferErrorKind::Unreachable), "{error}");
    assert!(content(&memory, 0, 1000) == good, "the other one is done");
    assert!(clock.now().since(begun) < PATIENCE);
    drop(listener);
}
