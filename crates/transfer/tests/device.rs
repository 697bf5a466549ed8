//! Memory of GPUs, on a stand-in for the driver whose memory kills whoever touches it by the CPU. This test program starts
//! itself again as the other process.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, OnceLock};

use common::*;
use yb_cuda::{Driver, GpuMemory};
use yb_transfer::{
    Access, Engine, EngineSettings, ForeignMemory, LocalBuffer, Opcode, RegistryError, Request, SegmentHandle, Span,
    TransferErrorKind,
};
use yb_types::SegmentAddress;

const OWNER: &str = "YB_TEST_OWNS_GPU_MEMORY";
/// More than two chunks, and no multiple of anything.
const LEN: usize = (9 << 20) + 12_345;

/// The stand-in, compiled once for all processes of the test program.
fn stand_in() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        if let Some(library) = std::env::var_os("YB_TEST_CUDA") {
            return library.into();
        }
        let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("libcuda-{}.so", std::process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../cuda/tests/stand_in.c");
        let flags = ["-shared", "-fPIC", "-O1", "-pthread", "-o"];
        assert!(Command::new("cc").args(flags).arg(&library).arg(source).status().unwrap().success());
        library
    };
    BUILT.get_or_init(build).clone()
}

fn driver() -> Arc<Driver> {
    Driver::open(Some(stand_in().as_os_str())).unwrap()
}

fn with_gpus(settings: EngineSettings) -> EngineSettings {
    EngineSettings { cuda_library: Some(stand_in()), ..settings }
}

fn shm_settings() -> EngineSettings {
    EngineSettings { shm: true, ..tcp_settings() }
}

/// Memory on a GPU that is forgotten before it is freed: a region of it is used until the engine is dropped.
fn foreign(memory: &GpuMemory) -> ForeignMemory {
    // SAFETY: in every test the engine is dropped, or the region unregistered, before the memory.
    unsafe { memory.foreign() }
}

fn put(driver: &Driver, memory: &GpuMemory, bytes: &[u8]) {
    let target = memory.span().slice(0, bytes.len()).unwrap();
    driver.scope(memory.ordinal(), |scope| scope.copy(target, Span::source(bytes))).unwrap().unwrap();
}

fn get(driver: &Driver, memory: &GpuMemory, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let target = Span::destination(&mut bytes);
    driver.scope(memory.ordinal(), |scope| scope.copy(target, memory.span().slice(0, len).unwrap())).unwrap().unwrap();
    bytes
}

fn kind(engine: &Engine, request: Request<'_>) -> Result<(), TransferErrorKind> {
    engine.transfer_sync(&[request], engine.now() + PATIENCE).into_result().map_err(|error| error.kind())
}

fn request<'a>(op: Opcode, local: LocalBuffer<'a>, peer: &SegmentHandle, remote: u64) -> Request<'a> {
    Request::new(op, local, peer.clone(), SegmentAddress(remote))
}

/// Not a test of its own: the body of the owner process, with a region on a GPU and one in memory.
#[test]
fn owner_process() {
    if std::env::var_os(OWNER).is_none() {
        return;
    }
    let driver = driver();
    let memory = driver.allocate(1, LEN as u64 + 4096).unwrap();
    put(&driver, &memory, &pattern(LEN, 42));
    let owner = engine(with_gpus(shm_settings()));
    owner.register_memory(foreign(&memory), Access::Remote).unwrap();
    let host = self::memory(&owner, LEN as u64);
    println!("\nowner {} {} {}", owner.endpoint().unwrap(), memory.address(), host.address());
    for line in std::io::stdin().lines() {
        match line.unwrap().as_str() {
            "gpu" => println!("\ngpu {}", get(&driver, &memory, LEN) == pattern(LEN, 7)),
            "host" => println!("\nhost {}", content(&host, 0, LEN) == pattern(LEN, 7)),
            "release" => {
                owner.unregister(memory.address(), PATIENCE).unwrap();
                println!("\nreleased");
            }
            other => panic!("unknown order {other}"),
        }
    }
}

struct Owner {
    process: Child,
    orders: ChildStdin,
    lines: BufReader<std::process::ChildStdout>,
    endpoint: String,
    gpu: u64,
    host: u64,
}

impl Owner {
    fn start() -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "owner_process", "--nocapture", "--test-threads=1"])
            .env(OWNER, "1")
            .env("YB_TEST_CUDA", stand_in())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        let mut owner = Owner { process, orders, lines, endpoint: String::new(), gpu: 0, host: 0 };
        let words = owner.answer("owner ");
        owner.endpoint = words[1].clone();
        (owner.gpu, owner.host) = (words[2].parse().unwrap(), words[3].parse().unwrap());
        owner
    }

    fn answer(&mut self, start: &str) -> Vec<String> {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the owner ended: it touched memory of a GPU?");
            if line.starts_with(start) {
                return line.split_whitespace().map(str::to_owned).collect();
            }
        }
    }

    fn order(&mut self, order: &str, answer: &str) -> Vec<String> {
        writeln!(self.orders, "{order}").unwrap();
        self.answer(answer)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        remove_files_of(self.process.id());
    }
}

/// What a stand-in that was killed left behind.
fn remove_files_of(process: u32) {
    for number in 0..8 {
        let _ = std::fs::remove_file(format!("/dev/shm/yb-stand-in-{process}-{number}"));
    }
}

/// Local memory on a GPU, remote memory in a process: both directions, in chunks.
fn stages(settings: EngineSettings, bytes_of: fn(&yb_transfer::TransferStats) -> yb_transfer::TransportStats) {
    let driver = driver();
    let mut owner = Owner::start();
    let memory = driver.allocate(0, LEN as u64).unwrap();
    put(&driver, &memory, &pattern(LEN, 7));
    let a = engine(with_gpus(settings));
    let peer = a.open_segment(&owner.endpoint).unwrap();
    kind(&a, request(Opcode::Write, a.lend(foreign(&memory)).unwrap(), &peer, owner.host)).unwrap();
    assert_eq!(owner.order("host", "host ")[1], "true");
    put(&driver, &memory, &vec![0; LEN]);
    kind(&a, request(Opcode::Read, a.lend(foreign(&memory)).unwrap(), &peer, owner.host)).unwrap();
    assert!(get(&driver, &memory, LEN) == pattern(LEN, 7));
    let moved = bytes_of(&a.stats());
    assert_eq!((moved.read_bytes, moved.written_bytes), (LEN as u64, LEN as u64));
    // A chunk that is refused ends the request, and the next one works.
    let outside = request(Opcode::Write, a.lend(foreign(&memory)).unwrap(), &peer, owner.host + 5_000_000);
    assert!(kind(&a, outside).is_err());
    let late = a.transfer_sync(&[request(Opcode::Read, a.lend(foreign(&memory)).unwrap(), &peer, owner.host)], a.now());
    assert_eq!(late.into_result().unwrap_err().kind(), TransferErrorKind::TimedOut);
    kind(&a, request(Opcode::Read, a.lend(foreign(&memory)).unwrap(), &peer, owner.host)).unwrap();
}

#[test]
fn local_memory_of_a_gpu_is_staged_over_tcp() {
    stages(tcp_settings(), |stats| stats.tcp);
}

#[test]
fn local_memory_of_a_gpu_is_staged_over_shared_memory() {
    stages(shm_settings(), |stats| stats.shm);
}

/// Host memory here, GPU memory there, over a socket: the owner serves through a window.
#[test]
fn remote_memory_of_a_gpu_is_served_over_tcp_to_whoever_knows_no_gpu() {
    let (old, new) = (pattern(LEN, 42), pattern(LEN, 7));
    let mut owner = Owner::start();
    for settings in [tcp_settings(), shm_settings()] {
        let a = engine(settings);
        let peer = a.open_segment(&owner.endpoint).unwrap();
        let mut got = vec![0; LEN];
        kind(&a, write(&peer, owner.gpu, &old)).unwrap();
        kind(&a, read(&peer, owner.gpu, &mut got)).unwrap();
        assert!(got == old);
        for (offset, len) in [(0, 1), (4095, 2), (1 << 20, 70_001), (LEN - 3, 3)] {
            kind(&a, read(&peer, owner.gpu + offset as u64, &mut got[..len])).unwrap();
            assert!(got[..len] == old[offset..offset + len], "{offset}+{len}");
        }
        // Many in one batch, so that answers queue and their windows fill in turn.
        let mut small = vec![0; 100 * 50_000];
        let parts = small.chunks_mut(50_000).enumerate();
        let requests: Vec<_> = parts.map(|(i, part)| read(&peer, owner.gpu + (i * 90_000) as u64, part)).collect();
        a.transfer_sync(&requests, a.now() + PATIENCE).into_result().unwrap();
        drop(requests);
        for (i, part) in small.chunks(50_000).enumerate() {
            assert!(*part == old[i * 90_000..][..50_000], "part {i}");
        }
        let requests: Vec<_> = new
            .chunks(333_333)
            .enumerate()
            .map(|(i, part)| write(&peer, owner.gpu + (i * 333_333) as u64, part))
            .collect();
        a.transfer_sync(&requests, a.now() + PATIENCE).into_result().unwrap();
        assert_eq!(owner.order("gpu", "gpu ")[1], "true");
        let stats = a.stats();
        assert_eq!((stats.cuda_ipc.requests, stats.shm.requests, stats.process_vm.requests), (0, 0, 0));
    }
}

#[test]
fn gpus_of_two_processes_copy_by_handle_and_ask_whether_the_region_is_still_there() {
    let driver = driver();
    let mut owner = Owner::start();
    let memory = driver.allocate(0, LEN as u64).unwrap();
    let a = engine(with_gpus(tcp_settings()));
    a.register_memory(foreign(&memory), Access::Local).unwrap();
    let peer = a.open_segment(&owner.endpoint).unwrap();
    let local = || a.local(memory.address(), LEN as u64).unwrap();
    kind(&a, request(Opcode::Read, local(), &peer, owner.gpu)).unwrap();
    assert!(get(&driver, &memory, LEN) == pattern(LEN, 42));
    put(&driver, &memory, &pattern(LEN, 7));
    kind(&a, request(Opcode::Write, local(), &peer, owner.gpu)).unwrap();
    assert_eq!(owner.order("gpu", "gpu ")[1], "true");
    // Host memory here, too.
    let mut got = vec![0; 100];
    kind(&a, read(&peer, owner.gpu + 5, &mut got)).unwrap();
    assert!(got == pattern(LEN, 7)[5..105]);
    assert_eq!((a.stats().cuda_ipc.requests, a.stats().tcp.requests), (3, 0));
    owner.order("release", "released");
    assert!(kind(&a, request(Opcode::Write, local(), &peer, owner.gpu)).is_err(), "the region is gone");
    a.unregister(memory.address(), PATIENCE).unwrap();
}

#[test]
fn inside_one_process_the_gpu_copies_and_two_engines_meet_over_tcp() {
    let driver = driver();
    let (one, two) = (driver.allocate(0, LEN as u64).unwrap(), driver.allocate(1, LEN as u64).unwrap());
    for in_process in [true, false] {
        put(&driver, &one, &pattern(LEN, 1));
        put(&driver, &two, &vec![0; LEN]);
        let settings = EngineSettings { in_process, ..with_gpus(tcp_settings()) };
        let (a, b) = (engine(settings.clone()), engine(settings));
        b.register_memory(foreign(&two), Access::Remote).unwrap();
        let peer = open(&a, &b);
        kind(&a, request(Opcode::Write, a.lend(foreign(&one)).unwrap(), &peer, two.address())).unwrap();
        assert!(get(&driver, &two, LEN) == pattern(LEN, 1), "in_process={in_process}");
        let stats = a.stats();
        let bytes = if in_process { stats.local.written_bytes } else { stats.tcp.written_bytes };
        assert_eq!(bytes, LEN as u64, "a process cannot open its own handles: chunks over TCP do it");
        let mut got = vec![0; LEN];
        kind(&a, read(&peer, two.address(), &mut got)).unwrap();
        assert!(got == pattern(LEN, 1));
    }
}

#[test]
fn where_memory_is_is_found_out_and_half_a_gpu_is_refused() {
    let driver = driver();
    let memory = driver.allocate(1, 4096).unwrap();
    let a = engine(with_gpus(tcp_settings()));
    a.register_memory(foreign(&memory), Access::Remote).unwrap();
    let region = a.regions().remove(0);
    assert!(region.on_device && region.location.as_str() == "cuda:1", "{region:?}");
    let host = self::memory(&a, 4096);
    assert!(a.regions().iter().any(|region| region.address == host.address() && !region.on_device));
    a.unregister(memory.address(), PATIENCE).unwrap();
    // SAFETY: the range is refused, so nothing uses it.
    let over = unsafe { ForeignMemory::new(memory.address() + 4095, 2) };
    assert!(matches!(a.register_memory(over, Access::Remote), Err(RegistryError::Refused { .. })));
    assert_eq!(a.regions().len(), 1);
    // An engine that has no driver takes no interest.
    let b = engine(tcp_settings());
    self::memory(&b, 4096);
    assert!(!b.regions()[0].on_device);
}
