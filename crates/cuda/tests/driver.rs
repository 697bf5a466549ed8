//! The driver behind its safe face: on a stand-in whose memory kills whoever touches it, and on a real GPU where there is one.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use yb_cuda::{CudaError, Driver};
use yb_mem::{CopyHint, Span};

/// The stand-in, compiled once for the test program.
fn stand_in() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let build = || {
        let library = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("libcuda-{}.so", std::process::id()));
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand_in.c");
        let flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread"];
        let status = Command::new("cc").args(flags).arg("-o").arg(&library).arg(source).status().unwrap();
        assert!(status.success());
        library
    };
    BUILT.get_or_init(build).clone()
}

fn driver() -> Arc<Driver> {
    Driver::open(Some(stand_in().as_os_str())).unwrap()
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

/// Bytes go to a GPU, from one GPU to another if there are two, and come back.
fn round_trip(driver: &Arc<Driver>) {
    let gpus = driver.gpus().unwrap();
    let last = gpus.len() as u32 - 1;
    let (a, b) = (driver.allocate(0, 1 << 20).unwrap(), driver.allocate(last, 1 << 20).unwrap());
    assert_eq!((driver.locate(a.address()), driver.locate(a.address() + (1 << 20) - 1)), (Some(0), Some(0)));
    assert_eq!(driver.locate(b.address()), Some(last));
    let (sent, mut got) = (pattern(1 << 20), vec![0; 1 << 20]);
    assert_eq!(driver.locate(sent.as_ptr() as u64), None, "memory of the host");
    let pinned = driver.pin(0, 1 << 20).unwrap();
    yb_mem::copy(pinned.span(), Span::source(&sent), CopyHint::Cached).unwrap();
    let target = Span::destination(&mut got);
    driver
        .scope(0, |scope| {
            scope.copy(a.span(), pinned.span())?;
            scope.copy(b.span(), a.span())?;
            scope.wait()?;
            scope.copy(target, b.span())
        })
        .unwrap()
        .unwrap();
    assert!(got == sent);
    assert_eq!(driver.allocation(a.address() + 77).unwrap().0, a.address());
}

#[test]
fn bytes_go_to_gpus_and_back() {
    let driver = driver();
    assert_eq!(driver.version(), (12, 4));
    let gpus = driver.gpus().unwrap();
    let second = (gpus[1].name.as_str(), gpus[1].bus_id.as_str(), gpus[1].memory);
    assert_eq!(second, ("Stand-in GPU 1", "0000:3b:01.0", 1 << 34));
    round_trip(&driver);
}

#[test]
fn a_real_gpu_does_the_same() {
    match Driver::open(None) {
        Ok(driver) => round_trip(&driver),
        Err(error) => println!("skipped: no GPU here ({error})"),
    }
}

#[test]
fn wrong_calls_are_errors_that_say_which() {
    let driver = driver();
    assert!(matches!(driver.allocate(9, 1), Err(CudaError::Invalid(_))));
    assert!(driver.allocate(0, u64::MAX).is_err());
    let memory = driver.allocate(0, 4096).unwrap();
    let few = [0; 8];
    driver
        .scope(0, |scope| {
            assert!(scope.copy(memory.span(), Span::source(&few)).is_err(), "lengths differ");
            assert!(scope.copy(Span::source(&few), memory.span().slice(0, 8).unwrap()).is_err(), "read-only");
        })
        .unwrap();
    let error = driver.export(memory.address() + 1).unwrap_err().to_string();
    assert!(error.contains("cuIpcGetMemHandle") && error.contains("INVALID_VALUE"), "{error}");
    assert!(driver.export(few.as_ptr() as u64).is_err());
    assert!(matches!(Driver::open(Some("/no/such/library.so".as_ref())), Err(CudaError::Library(_))));
    assert!(
        matches!(Driver::open(Some("libc.so.6".as_ref())), Err(CudaError::Library(text)) if text.contains("cuInit"))
    );
}

#[test]
fn a_scope_that_panics_has_ended_its_copies() {
    let driver = driver();
    let memory = driver.allocate(0, 4096).unwrap();
    let sent = pattern(4096);
    let fell = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        driver.scope(0, |scope| {
            scope.copy(memory.span(), Span::source(&sent)).unwrap();
            panic!("falls");
        })
    }));
    assert!(fell.is_err());
    let mut got = vec![0; 4096];
    let target = Span::destination(&mut got);
    driver.scope(0, |scope| scope.copy(target, memory.span()).unwrap()).unwrap();
    assert!(got == sent, "the copy had run");
}

#[test]
fn callbacks_run_on_a_stream_and_ranges_are_exported() {
    let driver = driver();
    let ran = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ran);
    // SAFETY: zero is the default stream.
    unsafe { driver.launch(0, move || seen.store(true, Ordering::SeqCst)) }.unwrap();
    assert!(ran.load(Ordering::SeqCst));
    let memory = driver.allocate(1, 8192).unwrap();
    driver.export_dmabuf(memory.address() + 4096, 4096).unwrap();
    assert!(driver.export_dmabuf(memory.address() + 1, 4096).is_err());
    let handle = driver.export(memory.address()).unwrap();
    assert!(driver.import(0, handle, 8192).is_err(), "a process does not import its own memory");
    assert_eq!(handle.to_string().parse(), Ok(handle));
}
