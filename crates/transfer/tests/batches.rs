//! Batches: tasks, classes, deadlines, cancelling, notifications, and what is refused.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::mute::Mute;
use common::*;
use yb_transfer::{
    Access, BatchError, BatchId, BatchStatus, Engine, EngineSettings, ForeignMemory, MemorySegment, Notification,
    NotificationState, Opcode, RegistryError, Request, RequestOptions, SegmentHandle, SegmentOptions, TaskState,
    TrafficClass, TransferErrorKind,
};
use yb_types::SegmentAddress;

struct Stage {
    a: Engine,
    b: Engine,
    ours: Arc<MemorySegment>,
    theirs: Arc<MemorySegment>,
    peer: SegmentHandle,
}

fn stage(settings: &EngineSettings, len: u64) -> Stage {
    let (a, b) = (engine(settings.clone()), engine(settings.clone()));
    let (ours, theirs) = (memory(&a, len), memory(&b, len));
    let peer = open(&a, &b);
    Stage { a, b, ours, theirs, peer }
}

impl Stage {
    fn request(&self, op: Opcode, offset: u64, len: u64) -> Request<'static> {
        let local = self.a.local(self.ours.address() + offset, len).unwrap();
        Request::new(op, local, self.peer.clone(), SegmentAddress(self.theirs.address() + offset))
    }

    fn done(&self, batch: BatchId) -> Vec<TaskState> {
        let BatchStatus::Done(_) = self.a.wait(batch, self.a.now() + PATIENCE).unwrap() else { panic!("not done") };
        let total = self.a.progress(batch).unwrap().total;
        (0..total).map(|index| self.a.task(batch, index).unwrap().state).collect()
    }
}

#[test]
fn tasks_are_added_until_the_batch_is_full_and_each_has_its_state() {
    let stage = stage(&tcp_settings(), 1 << 20);
    let batch = stage.a.open_batch(4).unwrap();
    assert!(stage.a.progress(batch).unwrap().is_terminal(), "nothing was submitted");
    assert_eq!(stage.a.wait(batch, stage.a.now()).unwrap(), BatchStatus::Done(Default::default()));
    let bytes = pattern(1 << 20, 1);
    fill(&stage.ours, &bytes);
    let pair = || vec![stage.request(Opcode::Write, 0, 4096), stage.request(Opcode::Write, 4096, 100_000)];
    assert_eq!(stage.a.submit_to(batch, pair()), Ok(0));
    let beyond = Request::new(
        Opcode::Write,
        stage.a.local(stage.ours.address(), 8).unwrap(),
        stage.peer.clone(),
        SegmentAddress(stage.theirs.address() + (1 << 20) - 4),
    );
    assert_eq!(stage.a.submit_to(batch, vec![beyond]), Ok(2));
    assert_eq!(stage.a.submit_to(batch, pair()), Err(BatchError::Full { wanted: 2, used: 3, capacity: 4 }));
    let states = stage.done(batch);
    assert_eq!(states[..2], [TaskState::Completed, TaskState::Completed]);
    assert!(matches!(&states[2], TaskState::Failed(error) if error.kind() == TransferErrorKind::RemoteRefused));
    let progress = stage.a.progress(batch).unwrap();
    assert_eq!((progress.total, progress.done, progress.failed, progress.bytes), (3, 3, 1, 104_096));
    assert_eq!(stage.a.task(batch, 1).unwrap().bytes, 100_000);
    assert_eq!(stage.a.task(batch, 3), Err(BatchError::NoSuchTask { index: 3, total: 3 }));
    assert!(content(&stage.theirs, 0, 104_096) == bytes[..104_096]);
    stage.a.release(batch).unwrap();
}

#[test]
fn a_long_task_is_cut_and_arrives_whole_and_its_memory_is_free_then() {
    let settings = EngineSettings { chunk_bytes: 100_000, ..tcp_settings() };
    let stage = stage(&settings, 4 << 20);
    let bytes = pattern(4 << 20, 7);
    fill(&stage.ours, &bytes);
    let batch = stage.a.open_batch(2).unwrap();
    let requests = vec![stage.request(Opcode::Write, 0, 3_000_001), stage.request(Opcode::Write, 3_000_001, 1_000_000)];
    stage.a.submit_to(batch, requests).unwrap();
    assert_eq!(stage.done(batch), [TaskState::Completed, TaskState::Completed]);
    assert_eq!(stage.a.progress(batch).unwrap().bytes, 4_000_001);
    assert!(content(&stage.theirs, 0, 4_000_001) == bytes[..4_000_001]);
    stage.a.unregister(stage.ours.address(), Duration::ZERO).unwrap();
}

#[test]
fn a_task_has_a_bounded_number_of_parts_however_long_it_is() {
    let stage = stage(&EngineSettings { chunk_bytes: 1, ..tcp_settings() }, 1 << 20);
    let bytes = pattern(1 << 20, 8);
    fill(&stage.ours, &bytes);
    let batch = stage.a.open_batch(1).unwrap();
    stage.a.submit_to(batch, vec![stage.request(Opcode::Write, 0, 1_000_001)]).unwrap();
    assert_eq!(stage.done(batch), [TaskState::Completed]);
    assert!(content(&stage.theirs, 0, 1_000_001) == bytes[..1_000_001]);
    assert!(stage.a.stats().tcp.requests <= 4096, "{:?}", stage.a.stats().tcp);
}

#[test]
fn what_is_urgent_does_not_wait_for_what_is_long() {
    let settings = EngineSettings { chunk_bytes: 1 << 20, ..tcp_settings() };
    let stage = stage(&settings, 256 << 20);
    let of = |class| RequestOptions { class, ..RequestOptions::default() };
    let is_first = || {
        let (low, high) = (stage.a.open_batch(1).unwrap(), stage.a.open_batch(1).unwrap());
        let long = stage.request(Opcode::Write, 0, 255 << 20).with(of(TrafficClass::LOW));
        stage.a.submit_to(low, vec![long]).unwrap();
        eventually("it is under way", || stage.a.progress(low).unwrap().bytes > 0);
        let urgent = stage.request(Opcode::Write, 255 << 20, 1 << 20).with(of(TrafficClass::HIGH));
        stage.a.submit_to(high, vec![urgent]).unwrap();
        assert_eq!(stage.done(high), [TaskState::Completed]);
        let long_was_over = stage.a.progress(low).unwrap().is_terminal();
        assert_eq!(stage.done(low), [TaskState::Completed]);
        !long_was_over
    };
    // A busy machine may let this thread sleep through the rest of the long one.
    assert!((0..5).any(|_| is_first()), "the long one was over first, each time");
}

#[test]
fn every_task_has_its_own_deadline() {
    let stage = stage(&tcp_settings(), 1 << 20);
    let peer = Mute::start();
    let silent = stage.a.open_segment(&peer.endpoint).unwrap();
    let soon = stage.a.now() + Duration::from_millis(150);
    let mut requests = vec![stage.request(Opcode::Read, 0, 64 << 10), stage.request(Opcode::Read, 64 << 10, 64 << 10)];
    requests[1].segment = silent;
    requests[1].options.deadline = Some(soon);
    let batch = stage.a.submit(requests, stage.a.now() + PATIENCE).unwrap();
    assert_eq!(stage.done(batch), [TaskState::Completed, TaskState::TimedOut]);
    let late = stage.request(Opcode::Read, 0, 64).with(RequestOptions { deadline: Some(soon), ..Default::default() });
    let outcome = stage.a.transfer_sync(&[late], stage.a.now() + PATIENCE);
    assert_eq!(outcome.into_result().unwrap_err().kind(), TransferErrorKind::TimedOut);
}

#[test]
fn one_task_is_cancelled_and_the_others_arrive() {
    let stage = stage(&tcp_settings(), 8 << 20);
    let peer = Mute::start();
    let silent = stage.a.open_segment(&peer.endpoint).unwrap();
    let mut requests: Vec<_> = (0..4_u64).map(|i| stage.request(Opcode::Read, i << 20, 1 << 20)).collect();
    requests[2].segment = silent;
    requests[2].options.priority = 1;
    let batch = stage.a.submit(requests, stage.a.now() + PATIENCE).unwrap();
    eventually("the others are done", || stage.a.progress(batch).unwrap().done == 3);
    assert_eq!(stage.a.task(batch, 2).unwrap().state, TaskState::Waiting);
    assert_eq!(stage.a.release(batch), Err(BatchError::Busy));
    stage.a.cancel_task(batch, 2).unwrap();
    let states = stage.done(batch);
    assert_eq!(states.iter().filter(|state| **state == TaskState::Completed).count(), 3);
    assert_eq!(states[2], TaskState::Cancelled);
    stage.a.release(batch).unwrap();
    stage.a.unregister(stage.ours.address(), Duration::ZERO).unwrap();
}

#[test]
fn peers_that_do_not_answer_hold_up_nobody_else() {
    let stage = stage(&tcp_settings(), 32 << 20);
    let mutes: Vec<Mute> = (0..12).map(|_| Mute::start()).collect();
    let stuck: Vec<BatchId> = mutes
        .iter()
        .zip(0_u64..)
        .map(|(peer, number)| {
            let mut request = stage.request(Opcode::Read, number << 20, 1 << 20);
            request.segment = stage.a.open_segment(&peer.endpoint).unwrap();
            stage.a.submit(vec![request], stage.a.now() + PATIENCE).unwrap()
        })
        .collect();
    let batch = stage.a.submit(vec![stage.request(Opcode::Read, 20 << 20, 1 << 20)], stage.a.now() + PATIENCE).unwrap();
    assert_eq!(stage.done(batch), [TaskState::Completed]);
    let waits = |batch: &BatchId| !stage.a.progress(*batch).unwrap().is_terminal();
    assert!(stuck.iter().all(waits), "it waited until the others were given up");
    for batch in stuck {
        stage.a.cancel(batch).unwrap();
        assert_eq!(stage.done(batch), [TaskState::Cancelled]);
    }
}

#[test]
fn what_waits_in_the_queue_is_cancelled_at_once() {
    let stage = stage(&tcp_settings(), 64 << 20);
    let peer = Mute::start();
    let silent = stage.a.open_segment(&peer.endpoint).unwrap();
    let to_silent = |number: u64| {
        let mut request = stage.request(Opcode::Read, number << 20, 1 << 20);
        request.segment = silent.clone();
        stage.a.submit(vec![request], stage.a.now() + PATIENCE).unwrap()
    };
    let batches: Vec<BatchId> = (0..60).map(to_silent).collect();
    for batch in batches.iter().rev() {
        stage.a.cancel(*batch).unwrap();
    }
    for batch in &batches {
        assert_eq!(stage.done(*batch), [TaskState::Cancelled]);
    }
    let again = stage.a.open_batch(1).unwrap();
    stage.a.cancel(again).unwrap();
    stage.a.submit_to(again, vec![stage.request(Opcode::Read, 0, 1 << 20)]).unwrap();
    assert_eq!(stage.done(again), [TaskState::Cancelled], "what comes later to a cancelled batch too");
    let inside = self::stage(&EngineSettings { in_process: true, ..tcp_settings() }, 4096);
    let again = inside.a.open_batch(1).unwrap();
    inside.a.cancel(again).unwrap();
    inside.a.submit_to(again, vec![inside.request(Opcode::Read, 0, 64)]).unwrap();
    assert_eq!(inside.done(again), [TaskState::Cancelled], "and what would be moved at once");
}

#[test]
fn a_group_is_moved_in_order_and_ends_with_a_failure() {
    for settings in [tcp_settings(), EngineSettings { in_process: true, ..tcp_settings() }] {
        let stage = stage(&settings, 1 << 20);
        let group = |request: Request<'static>, number| {
            request.with(RequestOptions { group: Some(number), ..Default::default() })
        };
        // Each reads what the one before has written.
        let requests = (0..20_u64).map(|step| {
            let (op, offset) =
                if step % 2 == 0 { (Opcode::Write, step * 100) } else { (Opcode::Read, (step + 1) * 100) };
            let local = stage.a.local(stage.ours.address() + offset, 100).unwrap();
            let remote = stage.theirs.address() + (step / 2) * 100;
            group(Request::new(op, local, stage.peer.clone(), SegmentAddress(remote)), 1)
        });
        fill(&stage.ours, &[9; 100]);
        let batch = stage.a.submit(requests.collect(), stage.a.now() + PATIENCE).unwrap();
        assert!(stage.done(batch).iter().all(|state| *state == TaskState::Completed));
        assert_eq!(content(&stage.ours, 20 * 100, 100), [9; 100], "passed on ten times");
        let mut failing: Vec<_> = (0..3).map(|i| group(stage.request(Opcode::Write, i * 64, 64), 5)).collect();
        failing[1].remote = SegmentAddress(8);
        failing.push(group(stage.request(Opcode::Write, 4096, 64), 6));
        let batch = stage.a.submit(failing, stage.a.now() + PATIENCE).unwrap();
        let states = stage.done(batch);
        assert!(matches!(states[1], TaskState::Failed(_)));
        assert_eq!(
            (&states[0], &states[2], &states[3]),
            (&TaskState::Completed, &TaskState::Cancelled, &TaskState::Completed)
        );
    }
}

fn notification(text: &str) -> Notification {
    Notification { name: "writer".to_owned(), message: text.to_owned() }
}

#[test]
fn a_notification_comes_once_when_all_has_arrived_though_nobody_asks() {
    for settings in [tcp_settings(), EngineSettings { in_process: true, ..tcp_settings() }] {
        let stage = stage(&settings, 8 << 20);
        let bytes = pattern(8 << 20, 5);
        fill(&stage.ours, &bytes);
        let batch = stage.a.open_batch(8).unwrap();
        let requests = (0..4).map(|i| stage.request(Opcode::Write, i << 20, 1 << 20)).collect();
        stage.a.submit_with_notify(batch, requests, &stage.peer, notification("all of it")).unwrap();
        let mut got = Vec::new();
        eventually("it comes", || {
            got.extend(stage.b.take_notifications());
            !got.is_empty()
        });
        assert!(content(&stage.theirs, 0, 4 << 20) == bytes[..4 << 20], "after the bytes");
        eventually("it is known", || stage.a.progress(batch).unwrap().notification == NotificationState::Sent);
        stage.a.wait(batch, stage.a.now() + PATIENCE).unwrap();
        assert_eq!((got, stage.b.take_notifications()), (vec![notification("all of it")], vec![]));
        // A batch without more to move notifies too.
        stage.a.submit_with_notify(batch, vec![], &stage.peer, notification("again")).unwrap();
        stage.a.wait(batch, stage.a.now() + PATIENCE).unwrap();
        assert_eq!(stage.b.take_notifications(), [notification("again")]);
        stage.a.release(batch).unwrap();
    }
}

#[test]
fn a_notification_that_is_not_sent_or_not_taken_is_seen_in_the_progress() {
    let stage = stage(&tcp_settings(), 1 << 20);
    let batch = stage.a.open_batch(2).unwrap();
    let mut wrong = stage.request(Opcode::Write, 0, 64);
    wrong.remote = SegmentAddress(8);
    stage.a.submit_with_notify(batch, vec![wrong], &stage.peer, notification("never")).unwrap();
    stage.a.wait(batch, stage.a.now() + PATIENCE).unwrap();
    assert_eq!(stage.a.progress(batch).unwrap().notification, NotificationState::NotSent);
    assert!(stage.b.take_notifications().is_empty());
    let nobody = format!("127.0.0.1:{}", yb_env::free_port().unwrap());
    let nobody = stage.a.open_segment(&nobody).unwrap();
    let batch = stage.a.open_batch(2).unwrap();
    let requests = vec![stage.request(Opcode::Write, 0, 64)];
    stage.a.submit_with_notify(batch, requests, &nobody, notification("nobody")).unwrap();
    stage.a.wait(batch, stage.a.now() + PATIENCE).unwrap();
    let progress = stage.a.progress(batch).unwrap();
    assert_eq!((progress.done, progress.failed, progress.notification), (1, 0, NotificationState::Failed));
    let error = stage.a.notification_error(batch).unwrap().unwrap();
    assert_eq!(error.kind(), TransferErrorKind::Unreachable);
    stage.a.release(batch).unwrap();
}

#[test]
fn a_notification_whose_batch_is_full_changes_nothing() {
    let stage = stage(&tcp_settings(), 4096);
    let batch = stage.a.open_batch(0).unwrap();
    let requests = vec![stage.request(Opcode::Write, 0, 64)];
    let refused = stage.a.submit_with_notify(batch, requests, &stage.peer, notification("no"));
    assert_eq!(refused, Err(BatchError::Full { wanted: 1, used: 0, capacity: 0 }));
    assert_eq!(stage.a.progress(batch).unwrap().notification, NotificationState::None);
    stage.a.release(batch).unwrap();
}

#[test]
fn ids_that_name_no_open_batch_are_told_apart() {
    let (a, b) = (engine(tcp_settings()), engine(tcp_settings()));
    let batch = a.open_batch(1).unwrap();
    assert_eq!(b.progress(batch), Err(BatchError::OtherEngine));
    assert_eq!(b.release(batch), Err(BatchError::OtherEngine));
    a.release(batch).unwrap();
    assert_eq!(a.release(batch), Err(BatchError::Released), "a second release");
    assert_eq!(a.task(batch, 0), Err(BatchError::Released));
    assert_eq!(a.submit_to(batch, vec![]), Err(BatchError::Released));
    for never in [BatchId(0), BatchId(batch.0 + (9 << 32)), BatchId(batch.0 + 50)] {
        assert_eq!(a.cancel(never), Err(BatchError::Unknown));
    }
    assert_eq!(a.open_batch(usize::MAX), Err(BatchError::TooLarge(usize::MAX)));
    let codes = [BatchError::Released.code(), BatchError::Busy.code(), BatchError::TooMany.code()];
    assert_eq!(codes, [-1, -4, -2]);
    let other = a.open_batch(1).unwrap();
    a.shutdown();
    assert_eq!((a.open_batch(1), a.submit_to(other, vec![])), (Err(BatchError::Closed), Err(BatchError::Closed)));
    a.release(other).unwrap();
}

#[test]
fn ranges_that_are_no_registered_memory_are_told_apart_and_nothing_moves() {
    let stage = stage(&EngineSettings { in_process: true, ..tcp_settings() }, 1 << 20);
    let base = stage.ours.address();
    fill(&stage.theirs, &pattern(4096, 3));
    let before = content(&stage.theirs, 0, 4096);
    for (address, len) in [(base + (1 << 20) - 4, 8), (base - 1, 2), (8, 8), (base, u64::MAX - 3), (u64::MAX, 2)] {
        let refused = stage.a.local(address, len).unwrap_err();
        assert_eq!((refused.code(), refused), (-3, RegistryError::NotRegistered { address, len }));
    }
    let register = |address, len| {
        // SAFETY: the registration fails, so the range is never used.
        let memory = unsafe { ForeignMemory::new(address, len) };
        stage.a.register_memory(memory, Access::Remote).unwrap_err()
    };
    let overlap = |address, len| RegistryError::Overlap { address, len };
    let nonsense = |address, len| RegistryError::NotARange { address, len };
    for (address, len) in [(base, 1 << 20), (base + 4096, 10), (base - 4096, 4097), (base - 10, 4 << 20)] {
        assert_eq!(register(address, len), overlap(address, len));
    }
    for (address, len) in [(base, 0), (u64::MAX - 4, 8), (1 << 40, u64::MAX), (0, 64)] {
        assert_eq!(register(address, len), nonsense(address, len));
    }
    assert_eq!(stage.a.regions().len(), 1, "nothing was registered");
    let mut wrapping = stage.request(Opcode::Write, 0, 4096);
    wrapping.remote = SegmentAddress(u64::MAX - 100);
    let refused = stage.a.transfer_sync(&[wrapping], stage.a.now() + PATIENCE).into_result().unwrap_err();
    assert_eq!(refused.kind(), TransferErrorKind::RemoteRefused);
    assert_eq!(content(&stage.theirs, 0, 4096), before);
}

#[test]
fn nothing_to_move_succeeds_at_once() {
    let stage = stage(&tcp_settings(), 4096);
    let peer = Mute::start();
    let silent = stage.a.open_segment(&peer.endpoint).unwrap();
    let nothing = Request::new(Opcode::Write, yb_transfer::LocalBuffer::source(&[]), silent, SegmentAddress(0));
    let batch = stage.a.submit(vec![nothing], stage.a.now() + PATIENCE).unwrap();
    assert_eq!(stage.done(batch), [TaskState::Completed]);
    assert_eq!(stage.a.progress(batch).unwrap().bytes, 0);
}

#[test]
fn names_that_are_no_segments_are_refused_before_anything_is_connected() {
    let a = engine(tcp_settings());
    for name in
        ["", "/", "host", ":1", "host:", "host:port", "host:70000", "[]:1", "a\0b", "näh:x", "../etc:", "%s%n:%d"]
    {
        let refused = a.open_segment(name).unwrap_err();
        assert_eq!(refused.kind(), TransferErrorKind::InvalidRequest, "{name:?}");
    }
    let unknown = a.open_segment(&format!("127.0.0.1:{}", yb_env::free_port().unwrap())).unwrap();
    let mut got = [0; 8];
    let outcome = a.transfer_sync(&[read(&unknown, 4096, &mut got)], a.now() + PATIENCE);
    assert_eq!(outcome.into_result().unwrap_err().kind(), TransferErrorKind::Unreachable);
    let options = SegmentOptions::default();
    assert!(a.allocate(0, options, Access::Remote).is_err(), "a region of no bytes");
}
