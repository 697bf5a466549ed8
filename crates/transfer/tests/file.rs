//! File segments, on memory and on a disk, past the page cache and through it, with io_uring and without.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::*;
use tempfile::TempDir;
use yb_env::Rng;
use yb_transfer::{
    Access, CancelToken, Engine, FilePart, FileSettings, Opcode, Request, SegmentOptions, TransferErrorKind,
};
use yb_types::SegmentAddress;

/// A file system in memory, and the one that the build is on.
fn places() -> Vec<TempDir> {
    let real = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(real).unwrap();
    [Path::new("/dev/shm"), real].map(|place| tempfile::tempdir_in(place).unwrap()).into()
}

fn ways() -> [FileSettings; 4] {
    let default = FileSettings::default();
    [
        default,
        FileSettings { direct: false, durable: true, ..default },
        FileSettings { uring: false, ..default },
        FileSettings { depth: 1, durable: true, ..default },
    ]
}

fn client(settings: FileSettings) -> Engine {
    let settings = yb_transfer::EngineSettings { file: settings, ..Default::default() };
    engine(settings)
}

fn part(path: &Path) -> FilePart {
    FilePart { path: path.to_owned(), len: None }
}

fn file(directory: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = directory.path().join(name);
    fs::write(&path, bytes).unwrap();
    path
}

fn one(engine: &Engine, request: Request<'_>) -> Result<(), TransferErrorKind> {
    engine.transfer_sync(&[request], engine.now() + PATIENCE).into_result().map_err(|error| error.kind())
}

#[test]
fn any_range_at_any_address_moves_exactly_its_bytes() {
    const LEN: usize = 3_000_001;
    for directory in places() {
        for (seed, settings) in ways().into_iter().enumerate() {
            let engine = client(settings);
            let mut model = pattern(LEN, seed as u64);
            let cuts = [0, 1_000_003, 1_000_003 + 4096, LEN];
            let parts: Vec<FilePart> = cuts
                .windows(2)
                .map(|cut| part(&file(&directory, &format!("part{}", cut[0]), &model[cut[0]..cut[1]])))
                .collect();
            let segment = engine.open_files("parts", &parts, settings).unwrap();
            let mut rng = Rng::seeded(seed as u64);
            let mut memory = pattern(LEN + 4096, 99);
            for round in 0..60 {
                // Some ranges start and end on pages, most do not; some memory is aligned, most is not.
                let grain = if round % 3 == 0 { 4096 } else { 1 };
                let offset = rng.below(LEN as u64) as usize / grain * grain;
                let most = if round % 5 == 0 { LEN } else { 20_000 };
                let len =
                    (1 + rng.below(most.min(LEN - offset) as u64) as usize).next_multiple_of(grain).min(LEN - offset);
                let at = memory.as_ptr().align_offset(4096) * usize::from(round % 2 == 0) % 4096;
                let at = at.min(memory.len() - len);
                let local = &mut memory[at..at + len];
                if rng.below(2) == 0 {
                    one(&engine, write(&segment, offset as u64, local)).unwrap();
                    model[offset..offset + len].copy_from_slice(local);
                } else {
                    local.fill(0);
                    one(&engine, read(&segment, offset as u64, local)).unwrap();
                    assert!(*local == model[offset..offset + len], "{settings:?} {offset}+{len}");
                }
            }
            let stored: Vec<u8> = parts.iter().flat_map(|part| fs::read(&part.path).unwrap()).collect();
            assert!(stored == model, "{settings:?}: no other byte changed, and no file grew");
            let stats = engine.stats();
            assert_eq!(stats.file.failures, 0);
            assert_eq!(stats.file_plain_calls > 0, !settings.uring || yb_uring::DiskRing::new(2, 0).is_err());
            assert!(settings.direct || stats.file_direct_bytes == 0);
        }
    }
}

#[test]
fn ranges_outside_the_segment_are_refused_and_move_nothing() {
    for directory in places() {
        let engine = client(FileSettings::default());
        let path = file(&directory, "f", &[7; 5000]);
        let name = format!("file://{}", path.display());
        let segment = engine.open_segment(&name).unwrap();
        assert!(!segment.is_local() && segment.endpoint() == name);
        let bytes = vec![1; 6000];
        for (offset, len) in [(0, 5001), (4999, 2), (5000, 1), (u64::MAX, 1), (u64::MAX - 10, 20)] {
            let refused = one(&engine, write(&segment, offset, &bytes[..len]));
            assert_eq!(refused, Err(TransferErrorKind::RemoteRefused), "{offset}+{len}");
        }
        let declared = FilePart { path: path.clone(), len: Some(4000) };
        let shorter = engine.open_files("declared", &[declared], FileSettings::default()).unwrap();
        assert_eq!(one(&engine, write(&shorter, 3999, &[1, 2])), Err(TransferErrorKind::RemoteRefused));
        assert!(fs::read(&path).unwrap() == [7; 5000]);
    }
}

#[test]
fn a_file_that_was_cut_and_one_that_takes_no_bytes_are_different_errors() {
    for directory in places() {
        for settings in ways() {
            let engine = client(settings);
            let path = file(&directory, "cut", &[7; 100_000]);
            let segment = engine.open_files("cut", &[part(&path)], settings).unwrap();
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(50_000).unwrap();
            let mut got = vec![0; 100_000];
            assert_eq!(one(&engine, read(&segment, 0, &mut got)), Err(TransferErrorKind::EndOfFile));
            assert_eq!(one(&engine, read(&segment, 0, &mut got[..50_000])), Ok(()));
            assert!(got[..50_000] == [7; 50_000]);
        }
    }
    let sealed = rustix::fs::memfd_create("t", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
    rustix::fs::ftruncate(&sealed, 10_000).unwrap();
    rustix::fs::fcntl_add_seals(&sealed, rustix::fs::SealFlags::FUTURE_WRITE).unwrap();
    for settings in ways() {
        let engine = client(settings);
        use std::os::fd::AsRawFd;
        let path = PathBuf::from(format!("/proc/self/fd/{}", sealed.as_raw_fd()));
        let segment = engine.open_files("sealed", &[part(&path)], settings).unwrap();
        assert_eq!(one(&engine, write(&segment, 0, &[1; 8192])), Err(TransferErrorKind::Storage));
        assert_eq!(one(&engine, read(&segment, 0, &mut [1; 8192])), Ok(()), "one failure does not end the segment");
    }
}

#[test]
fn what_is_no_file_is_refused_and_what_cannot_be_written_is_read() {
    let engine = client(FileSettings::default());
    let directory = tempfile::tempdir().unwrap();
    let fifo = directory.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let empty = file(&directory, "empty", b"");
    for (path, kind) in [
        (directory.path().join("missing").as_path(), TransferErrorKind::Unreachable),
        (directory.path(), TransferErrorKind::InvalidRequest),
        (&fifo, TransferErrorKind::InvalidRequest),
        (&empty, TransferErrorKind::InvalidRequest),
        (Path::new("/dev/null"), TransferErrorKind::InvalidRequest),
        (Path::new(""), TransferErrorKind::Unreachable),
    ] {
        let refused = engine.open_segment(&format!("file://{}", path.display())).unwrap_err();
        assert_eq!(refused.kind(), kind, "{refused}");
    }
    // A program that runs cannot be opened for writing, whoever asks.
    let program = std::env::current_exe().unwrap();
    let segment = engine.open_segment(&format!("file://{}", program.display())).unwrap();
    let mut got = [0; 4];
    assert_eq!(one(&engine, read(&segment, 0, &mut got)), Ok(()));
    assert_eq!(&got, b"\x7fELF");
    assert_eq!(one(&engine, write(&segment, 0, &got)), Err(TransferErrorKind::RemoteRefused));
}

#[test]
fn a_call_that_is_late_or_cancelled_moves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "f", &[7; 5000]);
    for settings in ways() {
        let engine = client(settings);
        let segment = engine.open_files("f", &[part(&path)], settings).unwrap();
        let late = engine.transfer_sync(&[write(&segment, 0, &[1; 5000])], engine.now());
        assert_eq!(late.into_result().unwrap_err().kind(), TransferErrorKind::TimedOut);
        let token = CancelToken::new();
        token.cancel();
        let cancelled = engine.transfer_until(&[write(&segment, 0, &[1; 5000])], engine.now() + PATIENCE, &token);
        assert_eq!(cancelled.into_result().unwrap_err().kind(), TransferErrorKind::Cancelled);
        assert!(fs::read(&path).unwrap() == [7; 5000]);
    }
}

#[test]
fn registered_memory_is_fixed_when_it_is_used_again_and_released_with_its_region() {
    let directory = &places()[1];
    let path = file(directory, "f", &pattern(4 << 20, 3));
    let engine = client(FileSettings::default());
    let segment = engine.open_segment(&format!("file://{}", path.display())).unwrap();
    for round in 0..3 {
        let memory = engine.allocate(8 << 20, SegmentOptions::default(), Access::Local).unwrap();
        for _ in 0..3 {
            let local = engine.local(memory.address() + 4096, 4 << 20).unwrap();
            assert_eq!(one(&engine, Request::new(Opcode::Read, local, segment.clone(), SegmentAddress(0))), Ok(()));
            assert!(content(&memory, 4096, 4 << 20) == pattern(4 << 20, 3), "round {round}");
        }
        engine.unregister(memory.address(), PATIENCE).unwrap();
    }
    let stats = engine.stats();
    let is_direct = stats.file_direct_bytes == stats.file.read_bytes;
    if !is_direct || yb_uring::DiskRing::new(2, 2).map_or(0, |ring| ring.slots()) == 0 {
        return println!("skipped: no O_DIRECT or no fixed buffers here");
    }
    assert!(stats.file_fixed_bytes >= 9 << 20, "of 36 MiB, most was fixed: {stats:?}");
}

/// `YB_TEST_DISK` names a block device whose content is of no use to anybody.
#[test]
fn a_block_device_is_a_segment() {
    let Some(disk) = std::env::var_os("YB_TEST_DISK") else { return println!("skipped: YB_TEST_DISK names no disk") };
    for settings in ways() {
        let engine = client(settings);
        let segment = engine.open_files("disk", &[part(Path::new(&disk))], settings).unwrap();
        for (offset, len) in [(0, 1 << 20), (4096, 4096), (1_000_003, 70_001), (511, 2)] {
            let sent = pattern(len, offset + len as u64);
            one(&engine, write(&segment, offset, &sent)).unwrap();
            let mut got = vec![0; len];
            one(&engine, read(&segment, offset, &mut got)).unwrap();
            assert!(got == sent, "{settings:?} {offset}+{len}");
        }
        let past = one(&engine, write(&segment, 1 << 40, &[1]));
        assert_eq!(past, Err(TransferErrorKind::RemoteRefused));
        assert_eq!(engine.stats().file_direct_bytes > 0, settings.direct);
    }
}
