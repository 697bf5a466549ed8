//! Memory that the peer's application allocated, with a second process: this test program starts itself again.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use common::second::Second;
use common::*;
use yb_transfer::{Access, Engine, EngineSettings, ForeignMemory, RegistryError, TransferErrorKind, TransferStats};

const ROLE: &str = "YB_TEST_PROCESS_VM_ROLE";
const SIZE: usize = 20 << 20;

fn settings() -> EngineSettings {
    EngineSettings { shm: true, ..tcp_settings() }
}

/// Registers memory that is no segment of ours, and is never freed.
fn register(engine: &Engine) -> u64 {
    let bytes = Box::leak(vec![0_u8; SIZE].into_boxed_slice());
    let address = bytes.as_mut_ptr() as u64;
    // SAFETY: the memory is leaked, and is looked at only through `memory_at`.
    let memory = unsafe { ForeignMemory::new(address, SIZE as u64) };
    engine.register_memory(memory, Access::Remote).unwrap();
    address
}

/// A copy of the bytes there.
fn memory_at(address: u64, len: usize) -> Vec<u8> {
    // SAFETY: only for memory of `register`, which is never freed.
    let memory = unsafe { ForeignMemory::new(address, len as u64) };
    memory.lend().span().to_vec()
}

fn fill_at(address: u64, bytes: &[u8]) {
    // SAFETY: as above.
    let memory = unsafe { ForeignMemory::new(address, bytes.len() as u64) };
    yb_mem::copy(memory.lend().span(), yb_transfer::Span::source(bytes), yb_mem::CopyHint::Cached).unwrap();
}

/// Not a test of its own: the body of the second process.
#[test]
fn second_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let words: Vec<&str> = role.split(' ').collect();
    match words[0] {
        "owner" => own(),
        "writer" => write_for_ever(words[1], words[2].parse().unwrap()),
        "reader" => {
            let a = engine(settings());
            let peer = a.open_segment(words[1]).unwrap();
            let mut got = vec![0; 100];
            a.transfer_sync(&[read(&peer, words[2].parse().unwrap(), &mut got)], a.now() + PATIENCE)
                .into_result()
                .unwrap();
            assert_eq!(got, pattern(100, 5));
            let stats = a.stats();
            println!("\nread {} {} {}", stats.shm.requests, stats.process_vm.requests, stats.tcp.requests);
        }
        other => panic!("unknown role {other}"),
    }
}

fn own() {
    let owner = engine(settings());
    let mut address = register(&owner);
    println!("\nowner {} {address}", owner.endpoint().unwrap());
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "fill" => {
                fill_at(address, &pattern(SIZE, 42));
                println!("\nfilled");
            }
            "sum" => println!("\nsum {}", sum(&memory_at(address, SIZE))),
            "release" => {
                owner.unregister(address, PATIENCE).unwrap();
                // From here on the memory has another use.
                fill_at(address, &vec![0xee; SIZE]);
                println!("\nreleased");
            }
            "clean" => println!("\nclean {}", memory_at(address, SIZE).iter().all(|byte| *byte == 0xee)),
            "again" => {
                address = register(&owner);
                println!("\nagain {address}");
            }
            other => panic!("unknown order {other}"),
        }
    }
}

fn write_for_ever(endpoint: &str, address: u64) {
    let a = engine(EngineSettings { listen: None, ..settings() });
    let peer = a.open_segment(endpoint).unwrap();
    let bytes = vec![1; SIZE];
    println!("\nwriting");
    loop {
        a.transfer_sync(&[write(&peer, address, &bytes)], a.now() + PATIENCE).into_result().unwrap();
    }
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7_u64, |sum, byte| sum.rotate_left(5).wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

fn second(role: &str, with: &[&str]) -> Second {
    Second::start(with, "second_process", (ROLE, role))
}

fn owner() -> (Second, String, u64) {
    let mut owner = second("owner", &[]);
    let words = owner.answer("owner ");
    (owner, words[1].clone(), words[2].parse().unwrap())
}

fn requests(stats: &TransferStats) -> (u64, u64, u64) {
    (stats.shm.requests, stats.process_vm.requests, stats.tcp.requests)
}

#[test]
fn allocations_of_a_peer_are_read_and_written_without_a_socket() {
    let (mut owner, endpoint, address) = owner();
    let a = engine(EngineSettings { listen: None, ..settings() });
    let peer = a.open_segment(&endpoint).unwrap();
    owner.order("fill", "filled");
    let mut expected = pattern(SIZE, 42);
    let sizes = [(1, 0), (4096, 1), ((1 << 20) + 3, 4097), (SIZE - 5, 5)];
    for (size, offset) in sizes {
        let mut got = vec![0; size];
        let remote = address + offset as u64;
        a.transfer_sync(&[read(&peer, remote, &mut got)], a.now() + PATIENCE).into_result().unwrap();
        assert!(got == expected[offset..offset + size], "read of {size}");
        let sent = pattern(size, size as u64);
        a.transfer_sync(&[write(&peer, remote, &sent)], a.now() + PATIENCE).into_result().unwrap();
        expected[offset..offset + size].copy_from_slice(&sent);
    }
    assert_eq!(owner.order("sum", "sum ")[1], sum(&expected).to_string());
    assert_eq!(requests(&a.stats()), (0, 8, 0));
    assert_eq!(peer.path(), format!("shm, process_vm (process {})", owner.id()));
    assert_eq!(a.stats().process_vm.written_bytes, sizes.iter().map(|(size, _)| *size as u64).sum::<u64>());
    for remote in [address - 1, address + SIZE as u64 - 31, 64, u64::MAX - 8] {
        let outcome = a.transfer_sync(&[write(&peer, remote, &[1; 32])], a.now() + PATIENCE);
        assert_eq!(outcome.into_result().unwrap_err().kind(), TransferErrorKind::RemoteRefused);
    }
}

#[test]
fn nothing_is_written_after_the_release_of_a_region() {
    let (mut owner, endpoint, mut address) = owner();
    let a = engine(EngineSettings { listen: None, ..settings() });
    let peer = a.open_segment(&endpoint).unwrap();
    let bytes = vec![1; SIZE];
    for _ in 0..4 {
        a.transfer_sync(&[write(&peer, address, &bytes)], a.now() + PATIENCE).into_result().unwrap();
        let refused = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            let outcome = a.transfer_sync(&[write(&peer, address, &bytes)], a.now() + PATIENCE);
                            if let Err(error) = outcome.into_result() {
                                return error.kind();
                            }
                        }
                    })
                })
                .collect();
            owner.order("release", "released");
            writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(refused, [TransferErrorKind::RemoteRefused; 2]);
        assert_eq!(owner.order("clean", "clean ")[1], "true", "a byte was written after the release");
        address = owner.order("again", "again ")[1].parse().unwrap();
    }
}

#[test]
fn a_writer_that_is_killed_holds_no_region() {
    let b = engine(settings());
    let address = register(&b);
    for _ in 0..5 {
        let mut writer = second(&format!("writer {} {address}", b.endpoint().unwrap()), &[]);
        writer.answer("writing");
        eventually("it writes", || memory_at(address, 1) == [1]);
        assert_eq!(b.stats().served.requests, 0, "over no socket");
        drop(writer);
        eventually("its end is seen", || b.stats().shm_peers == 0);
        fill_at(address, &[0]);
    }
    b.unregister(address, Duration::from_secs(1)).unwrap();
    assert!(matches!(b.unregister(address, Duration::ZERO), Err(RegistryError::NotRegistered { .. })));
}

#[test]
fn a_peer_in_another_pid_namespace_uses_the_socket() {
    let b = engine(settings());
    let (foreign, mapped) = (register(&b), memory(&b, 4096));
    fill_at(foreign, &pattern(100, 5));
    fill(&mapped, &pattern(100, 5));
    let unshare = ["unshare", "--pid", "--fork"];
    let may = Command::new(unshare[0]).args(&unshare[1..]).arg("true").stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no right to make a pid namespace");
        return;
    }
    let read = |address: u64, with: &[&str]| {
        let role = format!("reader {} {address}", b.endpoint().unwrap());
        second(&role, with).answer("read ")[1..].join(" ")
    };
    assert_eq!(read(foreign, &unshare), "0 0 1");
    assert_eq!(read(mapped.address(), &unshare), "1 0 0", "memory files need no process number");
    assert_eq!(read(foreign, &["env"]), "0 1 0", "in the same namespace the kernel copies");
}

#[test]
fn engines_of_one_process_use_the_socket_for_foreign_memory() {
    let (a, b) = (engine(settings()), engine(settings()));
    let address = register(&b);
    let mut got = [0; 100];
    let peer = open(&a, &b);
    assert_eq!(peer.path(), "not asked yet");
    a.transfer_sync(&[read(&peer, address, &mut got)], a.now() + PATIENCE).into_result().unwrap();
    assert_eq!(requests(&a.stats()), (0, 0, 1));
    assert_eq!(peer.path(), "shm, other memory over tcp (it is this process)");
}
