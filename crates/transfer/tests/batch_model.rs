//! The batches of an engine against a simple model: random calls of one thread must give the model's answers, and those
//! of several threads must keep its rules.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::*;
use parking_lot::Mutex;
use proptest::prelude::*;
use yb_env::Rng;
use yb_transfer::{
    BatchError, BatchId, BatchStatus, Engine, EngineSettings, MemorySegment, Opcode, Request, SegmentHandle, TaskState,
    TransferErrorKind,
};
use yb_types::SegmentAddress;

struct Stage {
    engine: Engine,
    memory: Arc<MemorySegment>,
    own: SegmentHandle,
}

fn stage(settings: EngineSettings) -> Stage {
    let engine = engine(settings);
    let memory = memory(&engine, 1 << 20);
    let own = open(&engine, &engine);
    Stage { engine, memory, own }
}

impl Stage {
    /// A write inside the engine's own memory; a bad one names an address that is not registered.
    fn request(&self, len: u64, good: bool) -> Request<'static> {
        let local = self.engine.local(self.memory.address(), len).unwrap();
        let remote = if good { self.memory.address() + (512 << 10) } else { 4096 };
        Request::new(Opcode::Write, local, self.own.clone(), SegmentAddress(remote))
    }
}

/// What one thread may do.
#[derive(Clone, Debug)]
enum Call {
    Open(usize),
    /// Which batch, and whether each of the requests is good.
    Submit(usize, Vec<bool>),
    Cancel(usize),
    Task(usize, usize),
    Progress(usize),
    Release(usize),
}

fn call() -> impl Strategy<Value = Call> {
    let batch = 0_usize..6;
    prop_oneof![
        2 => (0_usize..5).prop_map(Call::Open),
        4 => (batch.clone(), prop::collection::vec(any::<bool>(), 0..4)).prop_map(|(b, r)| Call::Submit(b, r)),
        1 => batch.clone().prop_map(Call::Cancel),
        2 => (batch.clone(), 0_usize..6).prop_map(|(b, t)| Call::Task(b, t)),
        2 => batch.clone().prop_map(Call::Progress),
        2 => batch.prop_map(Call::Release),
    ]
}

/// A batch as the model sees it: small writes inside a process are over when their call returns.
#[derive(Debug)]
struct Model {
    id: BatchId,
    capacity: usize,
    tasks: Vec<bool>,
    released: bool,
}

impl Model {
    fn answer<T>(&self, open: T) -> Result<T, BatchError> {
        if self.released { Err(BatchError::Released) } else { Ok(open) }
    }
}

const LEN: u64 = 64;

fn obey(stage: &Stage, batches: &mut Vec<Model>, call: Call) {
    let engine = &stage.engine;
    if let Call::Open(capacity) = call {
        let id = engine.open_batch(capacity).unwrap();
        assert!(batches.iter().all(|batch| batch.id != id), "an id is given out once");
        return batches.push(Model { id, capacity, tasks: Vec::new(), released: false });
    }
    let (Call::Submit(number, _)
    | Call::Cancel(number)
    | Call::Task(number, _)
    | Call::Progress(number)
    | Call::Release(number)) = call
    else {
        return;
    };
    // The latest ones, so that released ones are met too.
    let Some(index) = batches.len().checked_sub(1 + number) else { return };
    let batch = &mut batches[index];
    match call {
        Call::Open(_) => {}
        Call::Submit(_, requests) => {
            let (wanted, used, capacity) = (requests.len(), batch.tasks.len(), batch.capacity);
            let fits = used + wanted <= capacity;
            let full = BatchError::Full { wanted, used, capacity };
            let expected = batch.answer(()).and(if fits { Ok(used) } else { Err(full) });
            let made = requests.iter().map(|good| stage.request(LEN, *good)).collect();
            assert_eq!(engine.submit_to(batch.id, made), expected);
            if expected.is_ok() {
                batch.tasks.extend(requests);
            }
        }
        Call::Cancel(_) => {
            assert_eq!(engine.cancel(batch.id), batch.answer(()));
            // Nothing can be added to a batch that was cancelled and make sense to the model: it is over.
            if !batch.released {
                engine.release(batch.id).unwrap();
                batch.released = true;
            }
        }
        Call::Task(_, task) => {
            let (index, total) = (task, batch.tasks.len());
            let expected = batch
                .answer(())
                .and_then(|()| batch.tasks.get(task).copied().ok_or(BatchError::NoSuchTask { index, total }));
            match (engine.task(batch.id, task), expected) {
                (Ok(status), Ok(true)) => assert_eq!((status.state, status.bytes), (TaskState::Completed, LEN)),
                (Ok(status), Ok(false)) => {
                    let refused =
                        matches!(&status.state, TaskState::Failed(e) if e.kind() == TransferErrorKind::RemoteRefused);
                    assert!(refused && status.bytes == 0, "{status:?}");
                }
                (got, expected) => assert_eq!(got.map(|_| true), expected),
            }
        }
        Call::Progress(_) => {
            let good = batch.tasks.iter().filter(|good| **good).count();
            let got = engine.progress(batch.id).map(|p| (p.total, p.done, p.failed, p.bytes));
            let total = batch.tasks.len();
            assert_eq!(got, batch.answer((total, total, total - good, good as u64 * LEN)));
        }
        Call::Release(_) => {
            assert_eq!(engine.release(batch.id), batch.answer(()));
            batch.released = true;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn one_thread_gets_the_answers_of_the_model(calls in prop::collection::vec(call(), 1..120)) {
        static STAGE: std::sync::OnceLock<Stage> = std::sync::OnceLock::new();
        let stage = STAGE.get_or_init(|| stage(EngineSettings { listen: Some(loopback()), ..EngineSettings::default() }));
        let mut batches = Vec::new();
        for call in calls {
            obey(stage, &mut batches, call);
        }
        for batch in batches.iter().filter(|batch| !batch.released) {
            stage.engine.release(batch.id).unwrap();
        }
    }
}

/// Batches that several threads know of: capacity, and what was last seen of each.
#[derive(Default)]
struct Known {
    open: BTreeMap<u64, usize>,
    released: Vec<BatchId>,
}

struct Crowd<'a> {
    stage: &'a Stage,
    known: Mutex<Known>,
    stop: AtomicBool,
}

impl Crowd<'_> {
    fn pick(&self, rng: &mut Rng) -> Option<(BatchId, usize)> {
        let known = self.known.lock();
        let at = rng.below(known.open.len().max(1) as u64) as usize;
        known.open.iter().nth(at).map(|(id, capacity)| (BatchId(*id), *capacity))
    }

    fn act(&self, rng: &mut Rng) {
        let engine = &self.stage.engine;
        match (rng.below(10), self.pick(rng)) {
            (0..2, _) | (_, None) => {
                let capacity = rng.below(20) as usize;
                let id = engine.open_batch(capacity).unwrap();
                let mut known = self.known.lock();
                assert!(known.open.insert(id.0, capacity).is_none() && !known.released.contains(&id));
            }
            (2..5, Some((id, capacity))) => {
                let wanted = rng.below(4);
                let requests =
                    (0..wanted).map(|_| self.stage.request(1 + rng.below(400_000), rng.below(8) > 0)).collect();
                match engine.submit_to(id, requests) {
                    Ok(first) => assert!(first + wanted as usize <= capacity),
                    Err(BatchError::Released) => {}
                    Err(BatchError::Full { used, .. }) => assert!(used + wanted as usize > capacity),
                    Err(other) => panic!("{other}"),
                }
            }
            (5, Some((id, _))) => assert!(matches!(engine.cancel(id), Ok(()) | Err(BatchError::Released))),
            (6, Some((id, capacity))) => {
                let cancelled = engine.cancel_task(id, rng.below(20) as usize);
                let known = matches!(cancelled, Ok(()) | Err(BatchError::Released | BatchError::NoSuchTask { .. }));
                assert!(known, "{cancelled:?} of {capacity}");
            }
            (7, Some((id, _))) => self.release(id),
            (_, Some((id, capacity))) => self.look(id, capacity),
        }
    }

    /// A batch is released once.
    fn release(&self, id: BatchId) {
        match self.stage.engine.release(id) {
            Ok(()) => {
                let mut known = self.known.lock();
                assert!(known.open.remove(&id.0).is_some(), "released twice");
                known.released.push(id);
            }
            Err(BatchError::Busy | BatchError::Released) => {}
            Err(other) => panic!("{other}"),
        }
    }

    /// What is seen of a batch agrees with itself, and does not go back.
    fn look(&self, id: BatchId, capacity: usize) {
        let engine = &self.stage.engine;
        let Ok(before) = engine.progress(id) else { return };
        assert!(before.done <= before.total && before.total <= capacity && before.failed <= before.done, "{before:?}");
        let states: Vec<_> = (0..before.total).map_while(|index| engine.task(id, index).ok()).collect();
        let Ok(after) = engine.progress(id) else { return };
        if states.len() == before.total {
            let terminal = states.iter().filter(|status| status.state.is_terminal()).count();
            assert!(before.done <= terminal && terminal <= after.done, "{before:?} {terminal} {after:?}");
        }
        assert!(before.done <= after.done && before.bytes <= after.bytes && before.total <= after.total);
        if let Ok(BatchStatus::Done(outcome)) = engine.status(id) {
            let failed = outcome.results().iter().filter(|result| result.is_err()).count();
            assert!(engine.progress(id).is_ok_and(|now| now.failed >= failed) || engine.status(id).is_err());
        }
    }
}

#[test]
fn several_threads_keep_the_rules_of_the_model() {
    for settings in [
        EngineSettings { chunk_bytes: 50_000, ..tcp_settings() },
        EngineSettings { listen: Some(loopback()), chunk_bytes: 50_000, ..EngineSettings::default() },
    ] {
        let stage = stage(settings);
        let crowd = Crowd { stage: &stage, known: Mutex::default(), stop: AtomicBool::new(false) };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4_u64)
                .map(|seed| {
                    let crowd = &crowd;
                    scope.spawn(move || {
                        let mut rng = Rng::seeded(seed);
                        for _ in 0..1_500 {
                            if crowd.stop.load(Ordering::Relaxed) {
                                return;
                            }
                            crowd.act(&mut rng);
                        }
                    })
                })
                .collect();
            let failed = threads.into_iter().filter_map(|thread| thread.join().err()).next();
            crowd.stop.store(true, Ordering::Relaxed);
            assert!(failed.is_none(), "a thread has seen a rule broken");
        });
        let known = crowd.known.into_inner();
        for id in known.open.keys().map(|id| BatchId(*id)) {
            let waited = stage.engine.wait(id, stage.engine.now() + PATIENCE).unwrap();
            assert!(matches!(waited, BatchStatus::Done(_)), "every batch ends");
            stage.engine.release(id).unwrap();
        }
        for id in known.released {
            assert!(matches!(stage.engine.status(id), Err(BatchError::Released)));
        }
        // Whatever was submitted has let go of its memory.
        stage.engine.unregister(stage.memory.address(), std::time::Duration::ZERO).unwrap();
    }
}
