//! What every transport owes its callers: one suite, played on each.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use yb_transfer::{
    Access, Engine, EngineSettings, LocalBuffer, MemorySegment, Opcode, Request, SegmentHandle, SegmentOptions,
    TransferErrorKind, TransferStats, TransportStats,
};
use yb_types::SegmentAddress;

struct Stage {
    a: Engine,
    b: Engine,
    memory: Arc<MemorySegment>,
    peer: SegmentHandle,
    of: fn(&TransferStats) -> TransportStats,
}

fn stage(settings: &EngineSettings, of: fn(&TransferStats) -> TransportStats) -> Stage {
    let (a, b) = (engine(settings.clone()), engine(settings.clone()));
    let memory = memory(&b, 4 << 20);
    let peer = open(&a, &b);
    Stage { a, b, memory, peer, of }
}

impl Stage {
    fn one(&self, request: Request<'_>) -> Result<(), TransferErrorKind> {
        let outcome = self.a.transfer_sync(&[request], self.a.now() + PATIENCE);
        outcome.into_result().map_err(|error| error.kind())
    }

    fn moves_bytes_and_counts_them(&self) {
        let before = (self.of)(&self.a.stats());
        let base = self.memory.address();
        for (size, offset) in [(1, 0), (4095, 1), (65_536, 3), (3 << 20, 64)] {
            let sent = pattern(size, size as u64);
            assert_eq!(self.one(write(&self.peer, base + offset, &sent)), Ok(()));
            assert!(content(&self.memory, offset as usize, size) == sent);
            let mut got = vec![0; size];
            assert_eq!(self.one(read(&self.peer, base + offset, &mut got)), Ok(()));
            assert!(got == sent);
        }
        let after = (self.of)(&self.a.stats());
        let total = 1 + 4095 + 65_536 + (3 << 20);
        assert_eq!(after.read_bytes - before.read_bytes, total);
        assert_eq!(after.written_bytes - before.written_bytes, total);
        assert_eq!(after.requests - before.requests, 8);
    }

    fn touches_nothing_else(&self) {
        let base = self.memory.address();
        let frame = pattern(300, 9);
        fill(&self.memory, &frame);
        assert_eq!(self.one(write(&self.peer, base + 100, &[7; 100])), Ok(()));
        let now = content(&self.memory, 0, 300);
        assert!(now[..100] == frame[..100] && now[200..] == frame[200..] && now[100..200] == [7; 100]);
        let mut local = vec![5; 300];
        assert_eq!(self.one(read(&self.peer, base, &mut local[100..200])), Ok(()));
        assert!(local[..100] == [5; 100] && local[200..] == [5; 100]);
    }

    fn each_request_has_its_outcome(&self) {
        let base = self.memory.address();
        let bytes = pattern(64, 4);
        let (mut first, mut second) = ([0; 64], [0; 64]);
        let requests = [
            write(&self.peer, base, &bytes),
            read(&self.peer, base + self.memory.len() - 63, &mut first),
            write(&self.peer, base, &[]),
            read(&self.peer, base, &mut second),
        ];
        let outcome = self.a.transfer_sync(&requests, self.a.now() + PATIENCE);
        let ok: Vec<bool> = outcome.results().iter().map(Result::is_ok).collect();
        assert_eq!(ok, [true, false, true, true]);
        let refused = outcome.into_result().unwrap_err();
        assert_eq!((refused.kind(), refused.code()), (TransferErrorKind::RemoteRefused, -3));
        assert_eq!(second, *bytes);
    }

    fn refuses_ranges_outside_one_region(&self) {
        let (base, len) = (self.memory.address(), self.memory.len());
        let hidden = self.b.allocate(4096, SegmentOptions::default(), Access::Local).unwrap();
        for remote in [base - 1, base + len - 31, hidden.address(), 64, u64::MAX - 8] {
            assert_eq!(self.one(write(&self.peer, remote, &[1; 32])), Err(TransferErrorKind::RemoteRefused));
        }
        self.b.unregister(hidden.address(), PATIENCE).unwrap();
    }

    fn refuses_nonsense_and_late_calls(&self) {
        let base = self.memory.address();
        let bytes = [1; 8];
        let mut read_only = write(&self.peer, base, &bytes);
        read_only.op = Opcode::Read;
        assert_eq!(self.one(read_only), Err(TransferErrorKind::InvalidRequest));
        let late = self.a.transfer_sync(&[write(&self.peer, base, &bytes)], self.a.now());
        assert_eq!(late.into_result().unwrap_err().kind(), TransferErrorKind::TimedOut);
    }

    fn holds_registered_memory_until_the_end(&self) {
        let ours = self.a.allocate(1 << 20, SegmentOptions::default(), Access::Local).unwrap();
        let local: LocalBuffer<'static> = self.a.local(ours.address(), 1 << 20).unwrap();
        let remote = SegmentAddress(self.memory.address());
        let request = Request::new(Opcode::Read, local, self.peer.clone(), remote);
        assert!(self.a.unregister(ours.address(), Duration::ZERO).is_err(), "the request holds its memory");
        assert!(self.a.local(ours.address(), 1).is_err(), "no new uses meanwhile");
        assert_eq!(self.one(request), Ok(()));
        self.a.unregister(ours.address(), Duration::ZERO).unwrap();
    }

    /// Threads that share the engine, while regions come and go at the owner.
    fn survives_crowds(&self) {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4_u64).map(|worker| scope.spawn(move || self.work(worker))).collect();
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let passing = memory(&self.b, 8192);
                    let mut got = [0; 100];
                    assert_eq!(self.one(read(&self.peer, passing.address(), &mut got)), Ok(()));
                    self.b.unregister(passing.address(), PATIENCE).unwrap();
                    let gone = self.one(read(&self.peer, passing.address(), &mut got));
                    assert_eq!(gone, Err(TransferErrorKind::RemoteRefused));
                }
            });
            let done = workers.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>();
            stop.store(true, Ordering::SeqCst);
            assert!(done.iter().all(Result::is_ok));
        });
    }

    fn work(&self, worker: u64) {
        let mut rng = yb_env::Rng::seeded(worker);
        let base = self.memory.address() + worker * (1 << 20);
        for round in 0..60 {
            let sizes: Vec<usize> = (0..1 + rng.below(8)).map(|_| 1 + rng.below(100_000) as usize).collect();
            let sent: Vec<Vec<u8>> = sizes.iter().map(|size| pattern(*size, round ^ worker)).collect();
            let mut got: Vec<Vec<u8>> = sizes.iter().map(|size| vec![0; *size]).collect();
            let place = |i: usize| base + i as u64 * 110_000;
            let writes: Vec<_> = sent.iter().enumerate().map(|(i, bytes)| write(&self.peer, place(i), bytes)).collect();
            self.a.transfer_sync(&writes, self.a.now() + PATIENCE).into_result().unwrap();
            let reads: Vec<_> =
                got.iter_mut().enumerate().map(|(i, bytes)| read(&self.peer, place(i), bytes)).collect();
            self.a.transfer_sync(&reads, self.a.now() + PATIENCE).into_result().unwrap();
            drop(reads);
            assert!(got == sent);
        }
    }

    fn ends_with_its_engine(&self) {
        self.a.shutdown();
        assert_eq!(self.one(write(&self.peer, self.memory.address(), &[1])), Err(TransferErrorKind::Closed));
    }
}

fn play(settings: &EngineSettings, of: fn(&TransferStats) -> TransportStats) {
    let stage = stage(settings, of);
    stage.moves_bytes_and_counts_them();
    stage.touches_nothing_else();
    stage.each_request_has_its_outcome();
    stage.refuses_ranges_outside_one_region();
    stage.refuses_nonsense_and_late_calls();
    stage.holds_registered_memory_until_the_end();
    stage.survives_crowds();
    stage.ends_with_its_engine();
}

#[test]
fn inside_one_process() {
    play(&EngineSettings { in_process: true, ..tcp_settings() }, |stats| stats.local);
}

#[test]
fn shared_memory() {
    play(&EngineSettings { shm: true, ..tcp_settings() }, |stats| stats.shm);
}

#[test]
fn tcp() {
    play(&tcp_settings(), |stats| stats.tcp);
}

#[test]
fn tcp_in_many_stripes() {
    play(&EngineSettings { stripe_min: 4096, lanes_per_peer: 7, ..tcp_settings() }, |stats| stats.tcp);
}
