//! Shared memory, with a second process as the owner: this test program starts itself again.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::second::Second;
use common::*;
use yb_transfer::{Access, Engine, EngineSettings, SegmentOptions, TransferErrorKind};
use yb_types::{ClientId, Uuid};

const OWNER: &str = "YB_TEST_OWNER_LISTENS";
const SIZE: u64 = 8 << 20;

fn shm_settings() -> EngineSettings {
    EngineSettings { shm: true, ..tcp_settings() }
}

/// Not a test of its own: the body of the owner process.
#[test]
fn owner_process() {
    let Ok(listen) = std::env::var(OWNER) else { return };
    let owner = engine(EngineSettings { listen: Some(listen.parse().unwrap()), ..shm_settings() });
    let memory = memory(&owner, SIZE);
    fill(&memory, &pattern(SIZE as usize, 42));
    println!("\nowner {} {}", owner.endpoint().unwrap(), memory.address());
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "sum" => println!("\nsum {}", sum(&content(&memory, 0, SIZE as usize))),
            "release" => {
                owner.unregister(memory.address(), PATIENCE).unwrap();
                println!("\nreleased");
            }
            "child" => println!("\nchild {}", heir().id()),
            other => panic!("unknown order {other}"),
        }
    }
}

/// A child that has all sockets of this process, as one made by fork has.
fn heir() -> Child {
    let mut command = Command::new("sleep");
    command.arg("60").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let is_socket = |fd: &i32| {
        std::fs::read_link(format!("/proc/self/fd/{fd}"))
            .is_ok_and(|file| file.to_string_lossy().starts_with("socket:"))
    };
    let sockets: Vec<i32> = (3..256).filter(is_socket).collect();
    let keep = move || {
        for fd in &sockets {
            // SAFETY: the borrow ends with the call, which refuses what is no descriptor.
            let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(*fd) };
            let _ = rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty());
        }
        Ok(())
    };
    // SAFETY: between fork and exec nothing is called but fcntl.
    unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, keep) };
    command.spawn().unwrap()
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(7, |sum, chunk| {
        chunk.iter().fold(sum.rotate_left(5), |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
    })
}

struct Owner {
    process: Second,
    endpoint: String,
    address: u64,
}

impl Owner {
    fn start(listen: &str) -> Self {
        let mut process = Second::start(&[], "owner_process", (OWNER, listen));
        let words = process.answer("owner ");
        Owner { process, endpoint: words[1].clone(), address: words[2].parse().unwrap() }
    }

    fn order(&mut self, order: &str, answer: &str) -> Vec<String> {
        self.process.order(order, answer)
    }

    fn kill(&mut self) {
        self.process.kill();
    }
}

fn peer_engine() -> Engine {
    engine(EngineSettings { listen: None, ..shm_settings() })
}

#[test]
fn every_size_is_copied_both_ways_without_a_socket() {
    let mut owner = Owner::start("127.0.0.1:0");
    let a = peer_engine();
    let peer = a.open_segment(&owner.endpoint).unwrap();
    let mut expected = pattern(SIZE as usize, 42);
    for (size, offset) in [(1, 0), (4096, 1), ((1 << 20) + 3, 4097), (SIZE as usize - 5, 5)] {
        let mut got = vec![0; size];
        let remote = owner.address + offset as u64;
        a.transfer_sync(&[read(&peer, remote, &mut got)], a.now() + PATIENCE).into_result().unwrap();
        assert!(got == expected[offset..offset + size], "read of {size}");
        let sent = pattern(size, size as u64);
        a.transfer_sync(&[write(&peer, remote, &sent)], a.now() + PATIENCE).into_result().unwrap();
        expected[offset..offset + size].copy_from_slice(&sent);
    }
    assert_eq!(owner.order("sum", "sum ")[1], sum(&expected).to_string(), "the owner sees what was written");
    let stats = a.stats();
    assert_eq!((stats.shm.requests, stats.tcp.requests, stats.shm_fallbacks), (8, 0, 0));
}

#[test]
fn ranges_outside_the_mapped_regions_are_refused_by_the_owner() {
    let owner = Owner::start("127.0.0.1:0");
    let a = peer_engine();
    let peer = a.open_segment(&owner.endpoint).unwrap();
    let mut got = [0; 16];
    for remote in [owner.address + SIZE - 15, owner.address - 1, 8, u64::MAX - 3] {
        let outcome = a.transfer_sync(&[read(&peer, remote, &mut got)], a.now() + PATIENCE);
        assert_eq!(outcome.into_result().unwrap_err().kind(), TransferErrorKind::RemoteRefused, "{remote:#x}");
    }
}

#[test]
fn a_killed_owner_is_noticed_and_its_successor_is_mapped() {
    let mut owner = Owner::start("127.0.0.1:0");
    let a = peer_engine();
    let peer = a.open_segment(&owner.endpoint).unwrap();
    let mut got = vec![0; 100];
    a.transfer_sync(&[read(&peer, owner.address, &mut got)], a.now() + PATIENCE).into_result().unwrap();
    owner.kill();
    let clock_start = a.now();
    let sent = pattern(100, 1);
    let error = a.transfer_sync(&[write(&peer, owner.address, &sent)], a.now() + PATIENCE).into_result().unwrap_err();
    assert!(matches!(error.kind(), TransferErrorKind::PeerGone | TransferErrorKind::Unreachable), "{error}");
    assert!(error.is_retryable());
    // The shortest timeout that could be waited for is that of a connection, five seconds.
    assert!(a.now().since(clock_start) < Duration::from_secs(4), "no timeout is waited for");
    eventually("the watching thread drops the mapping", || {
        let outcome = a.transfer_sync(&[read(&peer, owner.address, &mut got)], a.now() + PATIENCE);
        outcome.into_result().is_err_and(|error| error.kind() == TransferErrorKind::Unreachable)
    });
    let successor = Owner::start(&owner.endpoint);
    a.transfer_sync(&[read(&peer, successor.address, &mut got)], a.now() + PATIENCE).into_result().unwrap();
    assert!(got == pattern(SIZE as usize, 42)[..100]);
    // The first call after the restart may go over TCP, until the new metadata are known.
    a.transfer_sync(&[read(&peer, successor.address, &mut got)], a.now() + PATIENCE).into_result().unwrap();
    assert!(a.stats().shm.requests >= 2, "{:?}", a.stats());
}

#[test]
fn a_released_region_is_refused_at_once() {
    let mut owner = Owner::start("127.0.0.1:0");
    let a = peer_engine();
    let peer = a.open_segment(&owner.endpoint).unwrap();
    let mut got = vec![0; 100];
    a.transfer_sync(&[read(&peer, owner.address, &mut got)], a.now() + PATIENCE).into_result().unwrap();
    owner.order("release", "released");
    let outcome = a.transfer_sync(&[read(&peer, owner.address, &mut got)], a.now() + PATIENCE);
    assert_eq!(outcome.into_result().unwrap_err().kind(), TransferErrorKind::RemoteRefused);
}

#[test]
fn regions_that_come_later_are_mapped_and_memory_of_others_goes_over_tcp() {
    let (a, b) = (peer_engine(), engine(shm_settings()));
    let first = memory(&b, 4096);
    let peer = open(&a, &b);
    let mut got = vec![0; 100];
    a.transfer_sync(&[read(&peer, first.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
    let second: Vec<_> = (0..100).map(|_| memory(&b, 8192)).collect();
    for memory in &second {
        fill(memory, &pattern(100, memory.address()));
        a.transfer_sync(&[read(&peer, memory.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
        assert!(got == pattern(100, memory.address()));
    }
    assert_eq!((a.stats().shm.requests, a.stats().tcp.requests), (101, 0));
    let forbidden = b.allocate(4096, SegmentOptions::default(), Access::Local).unwrap();
    let outcome = a.transfer_sync(&[read(&peer, forbidden.address(), &mut got)], a.now() + PATIENCE);
    assert_eq!(outcome.into_result().unwrap_err().kind(), TransferErrorKind::RemoteRefused);
    assert_eq!(a.stats().tcp.failures, 1);
}

#[test]
fn an_owner_knows_which_writers_have_its_memory_mapped() {
    let client = |first| ClientId(Uuid { first, second: 1 });
    let b = engine(shm_settings());
    let memory = memory(&b, 4096);
    let quiet = |writer| b.is_quiesced(memory.address(), memory.len(), writer);
    assert!(quiet(None));
    let a = engine(EngineSettings { listen: None, client_id: client(5), ..shm_settings() });
    let sent = pattern(10, 1);
    a.transfer_sync(&[write(&open(&a, &b), memory.address(), &sent)], a.now() + PATIENCE).into_result().unwrap();
    assert!(!quiet(Some(client(5))) && !quiet(None));
    assert!(quiet(Some(client(6))));
    assert_eq!(b.stats().shm_peers, 1);
    drop(a);
    eventually("the owner sees the peer go", || quiet(Some(client(5))) && b.stats().shm_peers == 0);
}

#[test]
fn without_permission_tcp_is_used() {
    let (a, b) = (engine(tcp_settings()), engine(shm_settings()));
    let memory = memory(&b, 4096);
    let mut got = [0; 4];
    let peer = open(&a, &b);
    a.transfer_sync(&[read(&peer, memory.address(), &mut got)], a.now() + PATIENCE).into_result().unwrap();
    assert_eq!((a.stats().tcp.requests, a.stats().shm.requests, b.stats().shm_peers), (1, 0, 0));
    assert!(peer.path().starts_with("tcp 127.0.0.1:") && peer.path().ends_with("version 2"), "{}", peer.path());
}

#[test]
fn nonsense_on_the_socket_is_closed() {
    use std::os::linux::net::SocketAddrExt;
    let b = engine(shm_settings());
    let mut handshake = std::net::TcpStream::connect(b.endpoint().unwrap()).unwrap();
    handshake.write_all(b"\x03\0\0\0\0\0\0\0\x01{}").unwrap();
    let mut reply = Vec::new();
    handshake.read_to_end(&mut reply).unwrap();
    let desc: serde_json::Value = serde_json::from_slice(&reply[9..]).unwrap();
    let name = desc["yuebing"]["shm"].as_str().unwrap();
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    for bytes in [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"YBSHM\0\x01\0aaaaaaaabbbbbbbb", b"YB"] {
        let mut stream = std::os::unix::net::UnixStream::connect_addr(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(bytes).unwrap();
        assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0);
    }
    assert_eq!(b.stats().shm_peers, 0);
}

#[test]
fn pages_are_made_in_the_background_on_both_sides() {
    let (a, b) = (peer_engine(), engine(shm_settings()));
    let memory = memory(&b, 40 << 20);
    let peer = open(&a, &b);
    let sent = pattern(100, 1);
    let place = memory.address() + (39 << 20);
    a.transfer_sync(&[write(&peer, place, &sent)], a.now() + PATIENCE).into_result().unwrap();
    // How many mappings of this size have all their pages: the owner's and the peer's.
    let whole_mappings = || {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let lines: Vec<Vec<&str>> = maps.lines().map(|line| line.split_whitespace().collect()).collect();
        let is = |line: &[&str], key: &str| line.first() == Some(&key) && line.get(1) == Some(&"40960");
        let sizes = lines.iter().enumerate().filter(|(_, line)| is(line, "Size:"));
        sizes.filter(|(at, _)| lines[*at..at + 5].iter().any(|line| is(line, "Rss:"))).count()
    };
    assert!(!memory.is_populated());
    b.populate_behind(&memory);
    eventually("the owner's pages are there", || memory.is_populated());
    assert_eq!(whole_mappings(), 1);
    eventually("a call sees the news, and the peer's page tables are filled", || {
        a.transfer_sync(&[write(&peer, place, &sent)], a.now() + PATIENCE).into_result().unwrap();
        whole_mappings() == 2
    });
    assert!(content(&memory, 39 << 20, 100) == sent);
}

#[test]
fn an_owner_that_ended_is_gone_though_its_child_holds_the_socket() {
    let mut owner = Owner::start("127.0.0.1:0");
    let a = peer_engine();
    let peer = a.open_segment(&owner.endpoint).unwrap();
    let mut got = [0; 8];
    a.transfer_sync(&[read(&peer, owner.address, &mut got)], a.now() + PATIENCE).into_result().unwrap();
    assert_eq!(a.stats().shm.requests, 1);
    let child = owner.order("child", "child ")[1].parse().unwrap();
    owner.kill();
    let sent = [9; 8];
    let end = a.transfer_sync(&[write(&peer, owner.address, &sent)], a.now() + Duration::from_secs(4));
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(child, rustix::process::Signal::KILL).unwrap();
    assert!(end.into_result().is_err(), "nobody has these bytes any more");
}
