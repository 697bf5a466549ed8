//! What every transport owes its callers: one suite, played on each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::*;
use yb_transfer::{
    Access, BatchStatus, Engine, LocalBuffer, Location, MemorySegment, Notification, NotificationState, Opcode,
    Request, RequestOptions, SegmentHandle, SegmentOptions, TaskState, TransferErrorKind, TransportKind,
    TransportStats,
};
use yb_types::SegmentAddress;

/// Two engines, of which the first reaches the memory of the second over the transport that is tried.
pub struct Stage {
    pub a: Engine,
    pub b: Engine,
    /// At least 4 MiB of the second, registered for peers.
    pub memory: Arc<MemorySegment>,
    pub peer: SegmentHandle,
    /// The transport.
    pub kind: TransportKind,
}

impl Stage {
    /// The whole suite; the engines are shut down at its end.
    pub fn play(self) {
        self.moves_bytes_and_counts_them();
        self.touches_nothing_else();
        self.each_request_has_its_outcome();
        self.refuses_ranges_outside_one_region();
        self.refuses_nonsense_and_late_calls();
        self.holds_registered_memory_until_the_end();
        self.moves_batches_task_by_task();
        self.uses_regions_as_they_come_and_go();
        self.ends_a_cancelled_batch_with_nothing_in_flight();
        self.leaves_a_notification_behind_the_bytes();
        self.survives_crowds();
        self.ends_with_its_engine();
    }

    fn counted(&self) -> TransportStats {
        self.a.stats().of(self.kind)
    }

    fn one(&self, request: Request<'_>) -> Result<(), TransferErrorKind> {
        let outcome = self.a.transfer_sync(&[request], self.a.now() + PATIENCE);
        outcome.into_result().map_err(|error| error.kind())
    }

    fn moves_bytes_and_counts_them(&self) {
        let before = self.counted();
        let base = self.memory.address();
        for (size, offset) in [(1, 0), (4095, 1), (65_536, 3), (3 << 20, 64)] {
            let sent = pattern(size, size as u64);
            assert_eq!(self.one(write(&self.peer, base + offset, &sent)), Ok(()));
            assert!(content(&self.memory, offset as usize, size) == sent);
            let mut got = vec![0; size];
            assert_eq!(self.one(read(&self.peer, base + offset, &mut got)), Ok(()));
            assert!(got == sent);
        }
        let after = self.counted();
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

    fn moves_batches_task_by_task(&self) {
        let before = self.counted();
        let ours = self.a.allocate(4 << 20, SegmentOptions::default(), Access::Local).unwrap();
        let bytes = pattern(4 << 20, 11);
        fill(&ours, &bytes);
        let request = |op, from: u64, at: u64, len: u64| {
            let local = self.a.local(ours.address() + from, len).unwrap();
            let options = RequestOptions { priority: (at % 3) as i8, ..RequestOptions::default() };
            Request::new(op, local, self.peer.clone(), SegmentAddress(self.memory.address() + at)).with(options)
        };
        let batch = self.a.open_batch(40).unwrap();
        let sizes = (0..20_u64).map(|i| (i * 100_000, 1 + i * 4_999));
        let writes = sizes.clone().map(|(at, len)| request(Opcode::Write, at, at, len)).collect();
        assert_eq!(self.a.submit_to(batch, writes), Ok(0));
        self.a.wait(batch, self.a.now() + PATIENCE).unwrap();
        fill(&ours, &vec![0; 2 << 20]);
        let reads = sizes.clone().map(|(at, len)| request(Opcode::Read, at, at, len)).collect();
        assert_eq!(self.a.submit_to(batch, reads), Ok(20));
        let BatchStatus::Done(outcome) = self.a.wait(batch, self.a.now() + PATIENCE).unwrap() else { panic!() };
        assert!(outcome.is_ok());
        for (index, (at, len)) in sizes.clone().enumerate() {
            let status = self.a.task(batch, 20 + index).unwrap();
            assert_eq!((status.state, status.bytes), (TaskState::Completed, len));
            let range = at as usize..(at + len) as usize;
            assert!(content(&ours, at as usize, len as usize) == bytes[range], "task {index}");
        }
        let total: u64 = sizes.map(|(_, len)| len).sum();
        let progress = self.a.progress(batch).unwrap();
        assert_eq!((progress.done, progress.failed, progress.bytes), (40, 0, 2 * total));
        let after = self.counted();
        assert_eq!((after.written_bytes - before.written_bytes, after.read_bytes - before.read_bytes), (total, total));
        self.a.release(batch).unwrap();
        self.a.unregister(ours.address(), Duration::ZERO).unwrap();
    }

    /// Memory that is registered on either side while the engines run is used, and not any more once it is released.
    fn uses_regions_as_they_come_and_go(&self) {
        for round in 0..3 {
            let new = |engine: &Engine, access| {
                let segment = MemorySegment::create(300_000, SegmentOptions::default()).unwrap();
                let segment = Arc::new(segment);
                engine.register_segment_at(Arc::clone(&segment), access, Location::from("cpu:0")).unwrap();
                assert!(engine.register_segment(Arc::clone(&segment), access).is_err(), "it is registered already");
                segment
            };
            let (ours, theirs) = (new(&self.a, Access::Local), new(&self.b, Access::Remote));
            let bytes = pattern(300_000, round);
            fill(&ours, &bytes);
            let remote = SegmentAddress(theirs.address());
            let local = || self.a.local(ours.address(), 300_000).unwrap();
            let write = || Request::new(Opcode::Write, local(), self.peer.clone(), remote);
            assert_eq!(self.one(write()), Ok(()));
            assert!(content(&theirs, 0, 300_000) == bytes);
            self.b.unregister(theirs.address(), PATIENCE).unwrap();
            fill(&theirs, &[1; 1000]);
            assert_eq!(self.one(write()), Err(TransferErrorKind::RemoteRefused));
            assert!(content(&theirs, 0, 1000) == [1; 1000], "released memory is not written");
            self.a.unregister(ours.address(), Duration::ZERO).unwrap();
            assert!(self.a.local(ours.address(), 1).is_err());
        }
    }

    fn ends_a_cancelled_batch_with_nothing_in_flight(&self) {
        for round in 0..8_u64 {
            let ours = self.a.allocate(4 << 20, SegmentOptions::default(), Access::Local).unwrap();
            let local = self.a.local(ours.address(), 4 << 20).unwrap();
            let remote = SegmentAddress(self.memory.address());
            let request = Request::new(Opcode::Read, local, self.peer.clone(), remote);
            let batch = self.a.submit(vec![request], self.a.now() + PATIENCE).unwrap();
            yb_env::sleep(Duration::from_micros(round * 200));
            self.a.cancel(batch).unwrap();
            self.a.wait(batch, self.a.now() + PATIENCE).unwrap();
            let state = self.a.task(batch, 0).unwrap().state;
            assert!(matches!(state, TaskState::Cancelled | TaskState::Completed), "{state:?}");
            // The memory is free for anything now.
            self.a.unregister(ours.address(), Duration::ZERO).unwrap();
            fill(&ours, &[7; 4096]);
            assert!(content(&ours, 0, 4096) == [7; 4096]);
            self.a.release(batch).unwrap();
        }
    }

    fn leaves_a_notification_behind_the_bytes(&self) {
        let ours = self.a.allocate(1 << 20, SegmentOptions::default(), Access::Local).unwrap();
        let notification = Notification { name: "contract".to_owned(), message: "\u{2713} arrived".to_owned() };
        for round in 0..5 {
            fill(&ours, &pattern(1 << 20, 100 + round));
            let local = self.a.local(ours.address(), 1 << 20).unwrap();
            let remote = SegmentAddress(self.memory.address());
            let request = Request::new(Opcode::Write, local, self.peer.clone(), remote);
            let batch = self.a.open_batch(1).unwrap();
            self.a.submit_with_notify(batch, vec![request], &self.peer, notification.clone()).unwrap();
            let mut got = Vec::new();
            eventually("the notification comes", || {
                got.extend(self.b.take_notifications());
                !got.is_empty()
            });
            assert_eq!(got, std::slice::from_ref(&notification));
            assert!(content(&self.memory, 0, 1 << 20) == pattern(1 << 20, 100 + round));
            self.a.wait(batch, self.a.now() + PATIENCE).unwrap();
            assert_eq!(self.a.progress(batch).unwrap().notification, NotificationState::Sent);
            self.a.release(batch).unwrap();
        }
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
