//! Two engines of this API: over sockets, by number and by name.
#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::time::Duration;

use yb_classic::{
    AsyncState, BatchId, BufferEntry, ClassicEngine, ClassicOptions, Notification, Opcode, P2P_HANDSHAKE, Protocol,
    Range, ScatterPiece, ScatterRegion, ScatterStatus, SegmentId, StatusCode, SubmitOptions, SyncOptions, TaskState,
    TransferRequest,
};

const LEN: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// An engine that moves bytes through sockets, and registered memory of it.
struct Side {
    engine: ClassicEngine,
    memory: Vec<u8>,
}

impl Side {
    fn start() -> Side {
        let options = ClassicOptions {
            same_host: false,
            protocol: Protocol::Tcp,
            ..ClassicOptions::new(P2P_HANDSHAKE, "127.0.0.1")
        };
        let side = Side { engine: ClassicEngine::start(options).unwrap(), memory: vec![0; LEN] };
        // SAFETY: the memory lives as long as the engine, and nobody looks at it while bytes move.
        unsafe { side.engine.register_memory(side.entry(), "*", true) }.unwrap();
        side
    }

    fn entry(&self) -> BufferEntry {
        BufferEntry { address: self.address(), len: LEN as u64 }
    }

    fn address(&self) -> u64 {
        self.memory.as_ptr() as u64
    }

    fn name(&self) -> &str {
        self.engine.name()
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

fn fill(memory: &mut [u8], seed: u64) {
    let mut rng = yb_env::Rng::seeded(seed);
    memory.iter_mut().for_each(|byte| *byte = rng.next_u64() as u8);
}

fn request(opcode: Opcode, source: u64, target: SegmentId, target_offset: u64, length: u64) -> TransferRequest {
    TransferRequest { opcode, source, target, target_offset, length }
}

fn message(name: &str, text: &str) -> Notification {
    Notification { name: name.to_owned(), message: text.to_owned() }
}

/// Messages that arrive within the patience of the tests, until there are so many.
fn messages(engine: &ClassicEngine, count: usize) -> Vec<Notification> {
    let clock = yb_env::Clock::real();
    let started = clock.now();
    let mut all = engine.take_notifies();
    while all.len() < count && clock.now().since(started) < PATIENCE {
        yb_env::sleep(Duration::from_millis(2));
        all.extend(engine.take_notifies());
    }
    all
}

#[test]
fn segments_keep_their_numbers() {
    let (a, b, c) = (Side::start(), Side::start(), Side::start());
    let to_b = a.engine.open_segment(b.name()).unwrap();
    assert_eq!(to_b, SegmentId(1));
    assert_eq!(a.engine.open_segment(&format!("//{}", c.name())).unwrap(), SegmentId(2));
    assert_eq!(a.engine.open_segment_no_cache(b.name()).unwrap(), to_b);
    assert_eq!(a.engine.open_segment(a.name()).unwrap(), SegmentId::LOCAL);
    a.engine.remove_local_segment(b.name()).unwrap();
    assert_eq!(a.engine.open_segment(b.name()).unwrap(), to_b);
    assert_eq!(a.engine.first_buffer_address(b.name()).unwrap(), Some(b.address()));
    assert_eq!(a.engine.first_buffer_address(a.name()).unwrap(), Some(a.address()));
    assert!((15_000..=17_000).contains(&a.engine.rpc_port()));
    assert_eq!(a.engine.close_segment(SegmentId(3)).unwrap_err().code(), StatusCode::InvalidArgument);
    assert_eq!(a.engine.open_segment("127.0.0.1:1").unwrap_err().code(), StatusCode::Socket);
    assert_eq!(a.engine.remove_local_segment("127.0.0.1:1").unwrap_err().code(), StatusCode::InvalidArgument);
    a.engine.probe(to_b).unwrap();
    let name = b.name().to_owned();
    drop(b);
    assert_eq!(a.engine.probe_by_name(&name).unwrap_err().negated(), -102);
    assert_eq!(a.engine.sync_segment_cache(None).unwrap_err().negated(), -102);
}

#[test]
fn a_batch_is_filled_polled_and_freed() {
    let (mut a, b) = (Side::start(), Side::start());
    fill(&mut a.memory, 1);
    let target = a.engine.open_segment(b.name()).unwrap();
    let batch = a.engine.allocate_batch(4).unwrap();
    let part = LEN as u64 / 4;
    let writes: Vec<_> =
        (0..3).map(|i| request(Opcode::Write, a.address() + i * part, target, b.address() + i * part, part)).collect();
    let options = SubmitOptions { notify: Some(message("a", "first")), ..SubmitOptions::default() };
    // SAFETY: the memory of both sides outlives the batch.
    unsafe {
        assert_eq!(a.engine.submit(batch, &writes, &options).unwrap(), 0);
        let too_many = a.engine.submit(batch, &writes[..2], &SubmitOptions::default()).unwrap_err();
        assert_eq!(too_many.code(), StatusCode::TooManyRequests);
        let unknown = request(Opcode::Write, a.address(), SegmentId(9), 0, 1);
        assert_eq!(a.engine.submit(batch, &[unknown], &SubmitOptions::default()).unwrap_err().negated(), -1);
        let over = request(Opcode::Write, a.address() + 1, target, b.address(), LEN as u64);
        assert_eq!(a.engine.submit(batch, &[over], &SubmitOptions::default()).unwrap_err().negated(), -3);
    }
    let status = a.engine.wait_batch(batch, PATIENCE).unwrap();
    assert_eq!((status.state, status.bytes), (TaskState::Completed, 3 * part));
    assert_eq!(a.engine.task_status(batch, 2).unwrap().state, TaskState::Completed);
    assert_eq!(a.engine.task_status(batch, 3).unwrap_err().negated(), -1);
    assert_eq!(b.memory[..LEN / 4 * 3], a.memory[..LEN / 4 * 3]);
    assert!(b.memory[LEN / 4 * 3..].iter().all(|byte| *byte == 0));
    a.engine.free_batch(batch).unwrap();
    assert_eq!(a.engine.free_batch(batch).unwrap_err().negated(), -1);
    assert_eq!(a.engine.task_status(batch, 0).unwrap_err().negated(), -1);
    assert_eq!(messages(&b.engine, 1), [message("a", "first")]);
    for never in [BatchId(0), BatchId(u64::MAX), BatchId(12345)] {
        assert_eq!(a.engine.free_batch(never).unwrap_err().negated(), -1);
    }
}

#[test]
fn a_batch_with_a_failed_task_is_terminal_when_all_are_and_its_message_stays_here() {
    let (a, b) = (Side::start(), Side::start());
    let target = a.engine.open_segment(b.name()).unwrap();
    let batch = a.engine.allocate_batch(2).unwrap();
    let requests = [
        request(Opcode::Write, a.address(), target, b.address(), 4096),
        request(Opcode::Write, a.address(), target, 4096, 4096),
    ];
    let options = SubmitOptions { notify: Some(message("a", "never")), ..SubmitOptions::default() };
    // SAFETY: the memory of both sides outlives the batch.
    unsafe { a.engine.submit(batch, &requests, &options) }.unwrap();
    assert_eq!(a.engine.wait_batch(batch, PATIENCE).unwrap().state, TaskState::Failed);
    assert_eq!(a.engine.task_status(batch, 0).unwrap().state, TaskState::Completed);
    assert_eq!(a.engine.task_status(batch, 1).unwrap().state, TaskState::Failed);
    assert_eq!(a.engine.batch_failure(batch).unwrap().code(), StatusCode::AddressNotRegistered);
    a.engine.free_batch(batch).unwrap();
    a.engine.send_notify(target, &message("a", "last")).unwrap();
    assert_eq!(messages(&b.engine, 1), [message("a", "last")]);
}

#[test]
fn a_freed_batch_still_delivers_its_message() {
    let (a, b) = (Side::start(), Side::start());
    let target = a.engine.open_segment(b.name()).unwrap();
    for round in 0..20 {
        let batch = a.engine.allocate_batch(1).unwrap();
        let options = SubmitOptions { notify: Some(message("a", &round.to_string())), ..SubmitOptions::default() };
        let write = request(Opcode::Write, a.address(), target, b.address(), 64);
        // SAFETY: the memory of both sides outlives the batch.
        unsafe { a.engine.submit(batch, &[write], &options) }.unwrap();
        while !a.engine.task_status(batch, 0).unwrap().state.is_terminal() {
            std::thread::yield_now();
        }
        a.engine.free_batch(batch).unwrap();
        assert_eq!(a.engine.task_status(batch, 0).unwrap_err().negated(), -1, "freed, whatever is left to do");
    }
    let mut texts: Vec<u32> = messages(&b.engine, 20).into_iter().map(|m| m.message.parse().unwrap()).collect();
    texts.sort_unstable();
    assert_eq!(texts, (0..20).collect::<Vec<_>>());
}

#[test]
fn calls_by_name_move_and_notify() {
    let (mut a, b) = (Side::start(), Side::start());
    fill(&mut a.memory, 2);
    let unregistered = vec![0_u8; 5000];
    let options = SyncOptions { notify: Some(message("a", "sync")), nic_hint: Some("mlx5_77".into()) };
    let ranges = [
        Range { local: a.address() + 7, remote: b.address() + 1, len: 300_001 },
        Range { local: a.address(), remote: b.address() + 400_000, len: 0 },
    ];
    let back = [Range { local: unregistered.as_ptr() as u64, remote: b.address() + 1, len: 5000 }];
    // SAFETY: the memory of both sides outlives the calls.
    unsafe {
        a.engine.transfer_sync(b.name(), Opcode::Write, &ranges, &options).unwrap();
        assert_eq!(b.engine.take_notifies(), [message("a", "sync")], "sent before the call returns");
        a.engine.transfer_sync(b.name(), Opcode::Read, &back, &SyncOptions::default()).unwrap();
        a.engine.transfer_sync(b.name(), Opcode::Read, &[], &options).unwrap();
    }
    assert_eq!(b.memory[1..300_002], a.memory[7..300_008]);
    assert_eq!(unregistered, a.memory[7..5007]);
    assert_eq!(b.engine.take_notifies().len(), 1, "a message needs no bytes");
    let nowhere = [Range { local: a.address(), remote: 0x10, len: 8 }];
    // SAFETY: as above.
    let refused = unsafe { a.engine.transfer_sync(b.name(), Opcode::Write, &nowhere, &options) }.unwrap_err();
    assert_eq!(refused.code(), StatusCode::AddressNotRegistered);
    assert!(b.engine.take_notifies().is_empty());
}

#[test]
fn asynchronous_calls_are_spent_by_their_answer() {
    let (mut a, b) = (Side::start(), Side::start());
    fill(&mut a.memory, 3);
    let range = |offset: u64, len| Range { local: a.address() + offset, remote: b.address() + offset, len };
    let bad = Range { local: a.address(), remote: 0x10, len: 8 };
    let start = |ranges: &[Range]| {
        // SAFETY: the memory of both sides outlives the batches.
        unsafe { a.engine.transfer_async(b.name(), Opcode::Write, ranges, SyncOptions::default()) }.unwrap()
    };
    let (first, second, empty) =
        (start(&[range(0, 1000)]), start(&[range(5000, 70_000), range(90_000, 3)]), start(&[]));
    a.engine.await_batches(&[first, second, empty]).unwrap();
    assert_eq!(a.memory[5000..75_000], b.memory[5000..75_000]);
    assert_eq!(a.engine.async_state(first).unwrap_err().negated(), -1);
    let (good, failing) = (start(&[range(0, 10)]), start(&[range(0, 10), bad]));
    assert_eq!(a.engine.await_batches(&[good, failing]).unwrap_err().code(), StatusCode::AddressNotRegistered);
    assert!(a.engine.async_state(failing).is_err(), "spent");
    let polled = start(&[range(0, 200_000)]);
    let state = loop {
        match a.engine.async_state(polled).unwrap() {
            AsyncState::Running => std::thread::yield_now(),
            state => break state,
        }
    };
    assert_eq!(state, AsyncState::Done);
    assert!(a.engine.await_batches(&[polled]).is_err(), "spent");
    assert!(a.engine.await_batches(&[]).is_ok());
}

#[test]
fn tickets_are_drained() {
    let (mut a, b) = (Side::start(), Side::start());
    fill(&mut a.memory, 4);
    let piece = |local_offset, remote_offset, len| ScatterPiece { local_offset, remote_offset, len };
    let region = |pieces| ScatterRegion { local: a.entry(), remote: b.entry(), pieces };
    let pieces = vec![piece(0, 1000, 10), piece(500, 0, 1000 - 500)];
    // SAFETY: the memory of both sides outlives the tickets.
    unsafe {
        let mut ticket = a.engine.submit_scatter(b.name(), Opcode::Write, &[region(pieces.clone())]);
        assert_eq!((ticket.status(), ticket.is_drained()), (ScatterStatus::Unknown, false));
        assert_eq!(ticket.drain(PATIENCE), ScatterStatus::Completed);
        assert!(ticket.is_drained() && ticket.failure().is_none());
        let refused = a.engine.submit_scatter(b.name(), Opcode::Write, &[region(vec![piece(0, LEN as u64, 1)])]);
        assert_eq!((refused.status(), refused.is_drained()), (ScatterStatus::FailedDrained, true));
        let nowhere = a.engine.transfer_scatter("127.0.0.1:1", Opcode::Write, &[region(pieces.clone())]);
        assert_eq!((nowhere.status(), nowhere.is_drained()), (ScatterStatus::FailedDrained, true));
        drop(a.engine.submit_scatter(b.name(), Opcode::Write, &[region(pieces)]));
    }
    assert_eq!(b.memory[1000..1010], a.memory[..10]);
    assert_eq!(b.memory[..500], a.memory[500..1000]);
}

#[test]
fn memory_is_registered_as_a_whole_or_not_at_all() {
    let a = Side::start();
    let memory = vec![0_u8; 3000];
    let entry = |offset: u64, len| BufferEntry { address: memory.as_ptr() as u64 + offset, len };
    let inside = BufferEntry { address: a.address() + 5, len: 1 };
    // SAFETY: the memory outlives its registration.
    unsafe {
        let refused = a.engine.register_memory_batch(&[entry(0, 1000), entry(1000, 1000), inside], "*").unwrap_err();
        assert_eq!(refused.code(), StatusCode::AddressOverlapped);
        assert_eq!(a.engine.unregister_memory(entry(0, 1).address).unwrap_err().negated(), -3);
        let twice = a.engine.register_memory_batch(&[entry(0, 1000), entry(999, 10)], "*").unwrap_err();
        assert_eq!(twice.code(), StatusCode::AddressOverlapped);
        a.engine.register_memory_batch(&[entry(0, 1000), entry(1000, 1000)], "*").unwrap();
        assert!(a.engine.overlaps(entry(1999, 1)) && !a.engine.overlaps(entry(2000, 1)));
        assert_eq!(a.engine.register_memory(entry(2500, 0), "*", true).unwrap_err().negated(), -1);
    }
    let gone = [entry(0, 1).address, entry(500, 1).address, entry(1000, 1).address];
    assert_eq!(a.engine.unregister_memory_batch(&gone).unwrap_err().negated(), -3);
    assert!(!a.engine.overlaps(entry(0, 3000)), "the others were released");
}

#[test]
fn local_memory_is_not_served() {
    let (a, b) = (Side::start(), Side::start());
    let hidden = vec![7_u8; 4096];
    let entry = BufferEntry { address: hidden.as_ptr() as u64, len: 4096 };
    let got = [0_u8; 16];
    let read = [Range { local: got.as_ptr() as u64, remote: entry.address, len: 16 }];
    // SAFETY: the memory outlives its registration and the call.
    unsafe {
        b.engine.register_memory(entry, "*", false).unwrap();
        let refused = a.engine.transfer_sync(b.name(), Opcode::Read, &read, &SyncOptions::default()).unwrap_err();
        assert_eq!(refused.code(), StatusCode::AddressNotRegistered);
    }
    b.engine.unregister_memory(entry.address).unwrap();
}

#[test]
fn starts_that_make_no_sense_are_refused() {
    let start = |options: ClassicOptions| ClassicEngine::start(options).map(drop).unwrap_err().code();
    let named = |name: &str| ClassicOptions::new(P2P_HANDSHAKE, name);
    assert_eq!(start(named("")), StatusCode::InvalidArgument);
    assert_eq!(start(named("0.0.0.0")), StatusCode::InvalidArgument);
    assert_eq!(start(ClassicOptions::new("gopher://h:1", "name")), StatusCode::Metadata);
    let rdma =
        ClassicOptions { protocol: Protocol::Rdma, filters: vec!["no_such_device".to_owned()], ..named("127.0.0.1") };
    assert_eq!(start(rdma), StatusCode::DeviceNotFound);
    let taken = Side::start();
    let mut options = named(taken.name());
    options.environment.addresses.literal = true;
    assert_eq!(start(options), StatusCode::Socket, "the port is in use");
    let mut options = named("127.0.0.1");
    options.environment.addresses.ports = taken.engine.rpc_port()..=taken.engine.rpc_port();
    assert_eq!(start(options), StatusCode::Socket, "no port of the range is free");
}

#[test]
fn after_shutdown_everything_is_refused() {
    let (a, b) = (Side::start(), Side::start());
    a.engine.shutdown();
    a.engine.shutdown();
    assert!(a.engine.allocate_batch(1).is_err());
    let write = [Range { local: a.address(), remote: b.address(), len: 8 }];
    // SAFETY: the memory of both sides outlives the call.
    assert!(unsafe { a.engine.transfer_sync(b.name(), Opcode::Write, &write, &SyncOptions::default()) }.is_err());
    assert!(b.engine.open_segment(a.name()).is_err());
}

#[test]
fn a_file_is_a_segment_by_name() {
    let a = Side::start();
    let path = std::env::current_exe().unwrap();
    let file = a.engine.open_segment(&format!("file://{}", path.display())).unwrap();
    let len = std::fs::metadata(&path).unwrap().len();
    let buffers = a.engine.segment_buffers(file).unwrap();
    assert_eq!(buffers.iter().map(|buffer| (buffer.address, buffer.len)).collect::<Vec<_>>(), [(0, len)]);
    let batch = a.engine.allocate_batch(2).unwrap();
    let requests = [(0, 4), (len - 3, 4)].map(|(at, len)| request(Opcode::Read, a.address(), file, at, len));
    // SAFETY: the memory lives as long as the engine.
    unsafe { a.engine.submit(batch, &requests, &SubmitOptions::default()) }.unwrap();
    let status = a.engine.wait_batch(batch, PATIENCE).unwrap();
    assert!(status.state.is_terminal());
    assert_eq!(a.engine.task_status(batch, 0).unwrap().state, TaskState::Completed);
    assert_eq!(a.engine.task_status(batch, 1).unwrap().state, TaskState::Failed, "over the end of the file");
    assert_eq!(a.memory[..4], *b"\x7fELF");
    a.engine.free_batch(batch).unwrap();
    // Another file under the same path is found by asking again, and the number stays.
    let path = std::env::temp_dir().join(format!("yb-classic-{}", std::process::id()));
    let name = format!("file://{}", path.display());
    std::fs::write(&path, [1; 10]).unwrap();
    let before = a.engine.open_segment(&name).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, [2; 20]).unwrap();
    assert_eq!(a.engine.open_segment_no_cache(&name).unwrap(), before);
    assert_eq!(a.engine.segment_buffers(before).unwrap()[0].len, 20);
    std::fs::remove_file(&path).unwrap();
}
