//! Engines for tests.
#![allow(dead_code, reason = "every test program uses its own part")]
#![allow(clippy::unwrap_used, reason = "test code")]

pub mod contract;
pub mod mute;
pub mod proxy;
pub mod second;
pub mod wheel;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use yb_transfer::rdma::{RdmaMode, RdmaSettings};
use yb_transfer::{
    Access, Engine, EngineSettings, MemorySegment, Opcode, Request, SegmentHandle, SegmentOptions, Span,
};
use yb_types::SegmentAddress;

pub const PATIENCE: Duration = Duration::from_secs(20);

pub fn loopback() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A serving engine that reaches others over TCP only.
pub fn tcp_settings() -> EngineSettings {
    EngineSettings { listen: Some(loopback()), shm: false, in_process: false, ..EngineSettings::default() }
}

pub fn engine(settings: EngineSettings) -> Engine {
    Engine::builder().settings(settings).build().unwrap()
}

pub fn memory(engine: &Engine, len: u64) -> Arc<MemorySegment> {
    engine.allocate(len, SegmentOptions::default(), Access::Remote).unwrap()
}

pub fn open(from: &Engine, to: &Engine) -> SegmentHandle {
    from.open_segment(to.endpoint().unwrap()).unwrap()
}

/// What an engine says of itself on its handshake port.
pub fn describe(endpoint: &str) -> serde_json::Value {
    use std::io::{Read, Write};
    let mut handshake = std::net::TcpStream::connect(endpoint).unwrap();
    handshake.write_all(b"\x03\0\0\0\0\0\0\0\x01{}").unwrap();
    let mut reply = Vec::new();
    handshake.read_to_end(&mut reply).unwrap();
    serde_json::from_slice(&reply[9..]).unwrap()
}

/// Bytes that differ at every place.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut rng = yb_env::Rng::seeded(seed);
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

pub fn fill(segment: &MemorySegment, bytes: &[u8]) {
    let target = segment.span().slice(0, bytes.len()).unwrap();
    yb_mem::copy(target, Span::source(bytes), yb_mem::CopyHint::Cached).unwrap();
}

pub fn content(segment: &MemorySegment, offset: usize, len: usize) -> Vec<u8> {
    segment.span().slice(offset, len).unwrap().to_vec()
}

pub fn read<'a>(segment: &SegmentHandle, remote: u64, bytes: &'a mut [u8]) -> Request<'a> {
    let local = yb_transfer::LocalBuffer::destination(bytes);
    Request::new(Opcode::Read, local, segment.clone(), SegmentAddress(remote))
}

pub fn write<'a>(segment: &SegmentHandle, remote: u64, bytes: &'a [u8]) -> Request<'a> {
    let local = yb_transfer::LocalBuffer::source(bytes);
    Request::new(Opcode::Write, local, segment.clone(), SegmentAddress(remote))
}

/// Asks until the answer is yes; panics after the patience of the tests.
pub fn eventually(what: &str, mut yes: impl FnMut() -> bool) {
    let clock = yb_env::Clock::real();
    let start = clock.now();
    while !yes() {
        assert!(clock.now().since(start) < PATIENCE, "never happened: {what}");
        yb_env::sleep(Duration::from_millis(5));
    }
}

/// True inside the machine with soft-RoCE rails; elsewhere one line says what is missing.
pub fn has_rails() -> bool {
    let here = std::env::var("RDMA_VM").as_deref() == Ok("1");
    if !here {
        eprintln!("skipped: no soft-RoCE rails here (make test-rdma boots a machine that has them)");
    }
    here
}

/// RDMA over these devices (none = all), and no start without.
pub fn rdma_settings(devices: &[&str]) -> RdmaSettings {
    let devices = devices.iter().map(|name| (*name).to_owned()).collect();
    RdmaSettings { mode: RdmaMode::Required, devices, ..RdmaSettings::default() }
}
