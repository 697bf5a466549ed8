//! A memory device that two processes map: a file in memory, or the device that `YB_TEST_DAX` names. This test program
//! starts itself again as the second process.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::path::{Path, PathBuf};

use common::second::Second;
use common::*;
use yb_transfer::{
    Access, Coherence, CxlSettings, Engine, EngineSettings, ForeignMemory, SegmentHandle, StartError, TransferErrorKind,
};

const OWNER: &str = "YB_TEST_OWNS_DEVICE";
/// Where the owner's region lies in the device, and how long it is.
const FIRST: u64 = 2 << 20;
const LEN: u64 = 3 << 20;
const SIZE: u64 = 16 << 20;

fn settings(path: &Path, coherence: Coherence, only: bool) -> EngineSettings {
    let cxl = CxlSettings { coherence, only, ..CxlSettings::new(path) };
    EngineSettings { cxl: Some(cxl), ..tcp_settings() }
}

/// Not a test of its own: the body of the owner process. Orders: "sum" of its region.
#[test]
fn owner_process() {
    let Ok(how) = std::env::var(OWNER) else { return };
    let (path, only) = how.rsplit_once(' ').unwrap();
    let owner = engine(settings(Path::new(path), Coherence::Hardware, only == "only"));
    let device = owner.memory_device().unwrap().clone();
    let region = ForeignMemory::of_device(device.clone(), FIRST, LEN).unwrap();
    owner.register_memory(region, Access::Remote).unwrap();
    let span = device.span(FIRST, LEN).unwrap();
    yb_mem::copy(span, yb_transfer::Span::source(&pattern(LEN as usize, 42)), yb_mem::CopyHint::Cached).unwrap();
    println!("\nowner {} {}", owner.endpoint().unwrap(), device.address());
    for line in std::io::stdin().lines() {
        assert_eq!(line.unwrap(), "bytes");
        let bytes = device.span(FIRST, LEN).unwrap().to_vec();
        println!("\nbytes {}", bytes == pattern(LEN as usize, 7));
    }
}

struct Owner {
    process: Second,
    endpoint: String,
    base: u64,
}

impl Owner {
    fn start(path: &Path, only: bool) -> Self {
        let how = format!("{} {}", path.display(), if only { "only" } else { "beside" });
        let mut process = Second::start(&[], "owner_process", (OWNER, &how));
        let words = process.answer("owner ");
        Owner { process, endpoint: words[1].clone(), base: words[2].parse().unwrap() }
    }

    /// Whether its region holds what the test wrote.
    fn has_new_bytes(&mut self) -> bool {
        self.process.order("bytes", "bytes ")[1] == "true"
    }
}

/// The device of the test; the file goes when the second value is dropped.
fn device() -> (PathBuf, Option<tempfile::NamedTempFile>) {
    if let Some(path) = std::env::var_os("YB_TEST_DAX") {
        return (path.into(), None);
    }
    let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    file.as_file().set_len(SIZE).unwrap();
    (file.path().to_owned(), Some(file))
}

/// One test at a time uses a real device.
static ONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

fn kind(engine: &Engine, request: yb_transfer::Request<'_>) -> Result<(), TransferErrorKind> {
    engine.transfer_sync(&[request], engine.now() + PATIENCE).into_result().map_err(|error| error.kind())
}

fn moves_bytes(owner: &mut Owner, a: &Engine, peer: &SegmentHandle) {
    let before = a.stats().cxl;
    let mut got = vec![0; LEN as usize];
    kind(a, read(peer, FIRST, &mut got)).unwrap();
    assert!(got == pattern(LEN as usize, 42));
    let sent = pattern(LEN as usize, 7);
    for part in [0..1, 1..4097, 4097..LEN as usize] {
        kind(a, write(peer, FIRST + part.start as u64, &sent[part])).unwrap();
    }
    assert!(owner.has_new_bytes());
    let after = a.stats().cxl;
    assert_eq!((after.read_bytes - before.read_bytes, after.written_bytes - before.written_bytes), (LEN, LEN));
}

#[test]
fn two_processes_share_a_device_by_offset() {
    let _one = ONE.lock();
    for coherence in [Coherence::Hardware, Coherence::Flush] {
        for only in [false, true] {
            if coherence == Coherence::Flush && cfg!(not(target_arch = "x86_64")) {
                println!("skipped: cache lines cannot be flushed on this processor");
                continue;
            }
            let (path, _file) = device();
            let mut owner = Owner::start(&path, only);
            let a = engine(settings(&path, coherence, false));
            let peer = a.open_segment(&owner.endpoint).unwrap();
            moves_bytes(&mut owner, &a, &peer);
            assert_eq!(a.stats().tcp.requests, 0);
        }
    }
}

#[test]
fn only_registered_parts_of_a_peer_and_only_the_device_are_reached() {
    let _one = ONE.lock();
    let (path, _file) = device();
    for only in [false, true] {
        let mut owner = Owner::start(&path, only);
        let a = engine(settings(&path, Coherence::Hardware, false));
        let device = a.memory_device().unwrap().clone();
        let peer = a.open_segment(&owner.endpoint).unwrap();
        let size = device.len();
        let bytes = vec![1; 4096];
        for offset in [0, FIRST - 1, FIRST + LEN - 4095, size - 1, size, size + (1 << 40), u64::MAX, u64::MAX - 4095] {
            let refused = kind(&a, write(&peer, offset, &bytes));
            assert!(refused.is_err(), "{offset} only={only}: {refused:?}");
            if only {
                assert_eq!(refused, Err(TransferErrorKind::RemoteRefused), "{offset}");
            }
        }
        if !only {
            // An address of its process is served over TCP as ever.
            let mut got = vec![0; 4096];
            kind(&a, read(&peer, owner.base + FIRST, &mut got)).unwrap();
            assert!(got == pattern(LEN as usize, 42)[..4096]);
            assert_eq!((a.stats().tcp.requests, a.stats().cxl.requests), (1, 0));
        }
        // The device itself as a segment: bounded by its size alone.
        let whole = a.open_segment("cxl://").unwrap();
        kind(&a, write(&whole, size - 4096, &bytes)).unwrap();
        for offset in [size - 4095, size, u64::MAX] {
            assert_eq!(kind(&a, write(&whole, offset, &bytes)), Err(TransferErrorKind::RemoteRefused), "{offset}");
        }
        assert!(!owner.has_new_bytes() && device.span(size - 4096, 4096).unwrap().to_vec() == bytes);
    }
}

#[test]
fn a_segment_of_this_process_and_other_devices_are_told_apart() {
    let _one = ONE.lock();
    let (path, _file) = device();
    let mut inside = settings(&path, Coherence::Hardware, false);
    inside.in_process = true;
    let a = engine(inside);
    let region = ForeignMemory::of_device(a.memory_device().unwrap().clone(), FIRST, LEN).unwrap();
    a.register_memory(region, Access::Remote).unwrap();
    let own = a.open_segment(a.endpoint().unwrap()).unwrap();
    kind(&a, write(&own, FIRST, &[5; 100])).unwrap();
    let mut got = [0; 100];
    kind(&a, read(&own, a.memory_device().unwrap().address() + FIRST, &mut got)).unwrap();
    assert_eq!(got, [5; 100]);
    assert_eq!((a.stats().cxl.requests, a.stats().local.requests), (1, 1));
    // An engine with another device does not take our offsets for its own.
    let other = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    other.as_file().set_len(SIZE).unwrap();
    let b = engine(settings(other.path(), Coherence::Hardware, false));
    let peer = open(&b, &a);
    assert!(kind(&b, write(&peer, FIRST, &[9; 100])).is_err());
    assert!(b.memory_device().unwrap().span(FIRST, 100).unwrap().to_vec() == [0; 100]);
}

#[test]
fn a_device_that_cannot_be_mapped_stops_the_start_and_says_which() {
    let missing = settings(Path::new("/dev/no-such-dax"), Coherence::Hardware, false);
    let refused = Engine::builder().settings(missing).build().unwrap_err();
    assert!(matches!(refused, StartError::Device { .. }) && refused.to_string().contains("no-such-dax"), "{refused}");
    let engine = engine(tcp_settings());
    assert!(engine.open_segment("cxl://").is_err());
}
