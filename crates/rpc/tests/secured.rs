//! Calls over secured connections, with both backends and both faces of the client; and what one address may cost.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;
#[path = "../../secure/tests/common/in_folder.rs"]
mod in_folder;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, mpsc};

use common::{ECHO, Harness, LATER, PATIENCE, backends, echo, frame, read_reply, start, start_with};
use in_folder::{SECRET, settings};
use yb_rpc::{BackendChoice, ClientPool, ClientSettings, Retry, RpcError, ServerLimits, ServerSettings};
use yb_secure::{Refusal, Security, SecuritySettings};

fn serve(backend: BackendChoice, settings: &SecuritySettings) -> Harness {
    let security = Security::open(settings).unwrap();
    start_with(ServerSettings { backend, workers: 2, security, ..ServerSettings::default() })
}

fn client(harness: &Harness, settings: &SecuritySettings) -> ClientPool {
    let security = Security::open(settings).unwrap();
    ClientPool::new(harness.address.into(), ClientSettings { security, ..ClientSettings::default() })
}

#[test]
fn calls_go_through_in_every_mode() {
    let folder = tempfile::tempdir().unwrap();
    yb_secure::write_certificates(folder.path(), &[]).unwrap();
    let tls = Some(folder.path());
    for backend in backends() {
        for mode in [settings(Some(SECRET), None), settings(None, tls), settings(Some(SECRET), tls)] {
            let harness = serve(backend, &mode);
            let pool = Arc::new(client(&harness, &mode));
            let deadline = pool.deadline_in(PATIENCE);
            let large = vec![7; 3 << 20];
            for body in [&b"abc"[..], &large] {
                assert_eq!(pool.call(ECHO, body, deadline).unwrap(), body, "{backend:?}");
            }
            let (done, answers) = mpsc::channel();
            for n in 0..100u8 {
                let done = done.clone();
                pool.submit(ECHO, vec![n; 1000], deadline, move |result| done.send(result).unwrap());
            }
            for _ in 0..100 {
                assert_eq!(answers.recv_timeout(PATIENCE).unwrap().unwrap().len(), 1000);
            }
            // What one side ends, the other sees.
            pool.shutdown();
            harness.until("all connections are closed", |now| now.connections_accepted == now.connections_closed);
        }
    }
}

#[test]
fn who_is_not_let_in_learns_why_and_costs_nothing() {
    for backend in backends() {
        let harness = serve(backend, &settings(Some(SECRET), None));
        let other = client(&harness, &settings(Some("the secret of somebody"), None));
        let deadline = other.deadline_in(PATIENCE);
        let error = other.call(ECHO, b"", deadline).unwrap_err();
        assert!(error.to_string().contains(&Refusal::WrongSecret.to_string()), "{error}");
        assert_eq!(error.retry(), Retry::Useless, "the same secret is refused again");
        let (done, answer) = mpsc::channel();
        other.submit(ECHO, Vec::new(), deadline, move |result| done.send(result).unwrap());
        let text = answer.recv_timeout(PATIENCE).unwrap().unwrap_err().to_string();
        assert!(text.contains(&Refusal::WrongSecret.to_string()), "{text}");
        let plain = ClientPool::new(harness.address.into(), ClientSettings::default());
        let error = plain.call(ECHO, b"", deadline).unwrap_err();
        let RpcError::Protocol { reason, .. } = &error else { panic!("{error}") };
        assert!(reason.contains("YUEBING_SECRET_FILE"), "{reason}");
        harness.until("all are closed", |now| now.closed_turned_away == 3 && now.connections_closed == 3);
        let good = client(&harness, &settings(Some(SECRET), None));
        assert_eq!(good.call(ECHO, b"x", deadline).unwrap(), b"x");
        assert_eq!(harness.server.counters().snapshot().requests, 1);
    }
}

#[test]
fn plain_requests_from_a_known_address_are_served_beside_secured_ones() {
    let mode = SecuritySettings { plain_from: Some("127.0.0.1".parse().unwrap()), ..settings(Some(SECRET), None) };
    for backend in backends() {
        let harness = serve(backend, &mode);
        echo(&mut harness.connect(), 1, b"plain");
        let secured = client(&harness, &settings(Some(SECRET), None));
        assert_eq!(secured.call(ECHO, b"x", secured.deadline_in(PATIENCE)).unwrap(), b"x");
    }
}

#[test]
fn one_address_has_so_many_connections() {
    for backend in backends() {
        let limits = ServerLimits { max_connections_per_address: 3, ..ServerLimits::default() };
        let harness = start(backend, limits);
        let mut held: Vec<TcpStream> = (0..3).map(|_| harness.connect()).collect();
        held.iter_mut().for_each(|socket| echo(socket, 1, b"x"));
        assert_eq!(harness.connect().read(&mut [0; 1]).unwrap_or(0), 0, "the fourth is closed");
        harness.until("it is counted", |now| now.connections_refused_by_address == 1);
        held.pop();
        harness.until("one has left", |now| now.connections_closed == 1);
        echo(&mut harness.connect(), 1, b"x");
    }
}

#[test]
fn one_address_has_so_many_deferred_calls() {
    for backend in backends() {
        let limits = ServerLimits { max_deferred_per_address: 2, ..ServerLimits::default() };
        let harness = start(backend, limits);
        let mut sockets: Vec<TcpStream> = (0..2).map(|_| harness.connect()).collect();
        for socket in &mut sockets {
            let calls: Vec<u8> = (0..4).flat_map(|n| frame(LATER, n, b"")).collect();
            socket.write_all(&calls).unwrap();
        }
        // Two and at most one more for each connection, and every call is answered in the end.
        let mut most = 0;
        let mut open = Vec::new();
        let mut answered = 0;
        while answered < 8 {
            while let Ok(token) = harness.tokens.try_recv() {
                open.push(token);
            }
            most = most.max(open.len());
            if open.is_empty() {
                open.push(harness.token());
            }
            open.pop().unwrap().send(|out| out.push(1));
            answered += 1;
        }
        assert!(most <= 4, "{most} open at once");
        for socket in &mut sockets {
            (0..4).for_each(|_| assert!(read_reply(socket).is_some()));
        }
        harness.until("it is counted", |now| now.held_back_by_address > 0);
    }
}

#[test]
fn one_address_holds_so_many_bytes_of_unfinished_requests() {
    for backend in backends() {
        let limits = ServerLimits { max_buffered_per_address: 300_000, ..ServerLimits::default() };
        let harness = start(backend, limits);
        let part = frame(ECHO, 1, &vec![0; 200_000]);
        let mut first = harness.connect();
        first.write_all(&part[..150_000]).unwrap();
        let mut second = harness.connect();
        // It is closed while it writes, or soon after.
        let _ = second.write_all(&part[..199_000]);
        let _ = second.read_to_end(&mut Vec::new());
        harness.until("one is closed", |now| now.closed_crowded_address >= 1);
        echo(&mut harness.connect(), 1, b"x");
    }
}
