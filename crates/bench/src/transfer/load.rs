//! The initiator: threads that move batches of blocks and wait for each.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use serde::Serialize;
use yb_env::{Clock, spawn_thread};
use yb_replay::{Latencies, LatencySummary};
use yb_transfer::{Access, Engine, MemorySegment, Opcode, RegistryError, Request, SegmentHandle, TransferError};
use yb_types::SegmentAddress;

use crate::process::ServerProcess;
use crate::transfer::own_cpu;
use crate::transfer::target::{SetUpError, populated};

/// How long a batch may take.
const BATCH_PATIENCE: Duration = Duration::from_secs(60);

/// What load to make.
#[derive(Clone, Debug)]
pub struct TransferLoad {
    /// The target.
    pub segment: SegmentHandle,
    /// First address of its buffer.
    pub remote: u64,
    /// Direction.
    pub op: Opcode,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Requests of a batch.
    pub batch: usize,
    /// Threads, each with its own batches.
    pub threads: usize,
    /// Bytes of the local buffer; at least block x batch x threads are used.
    pub buffer_bytes: u64,
    /// Batches walk over the whole of both buffers, which are equally long then, so that caches do not help.
    pub cold: bool,
    /// Time before the measurement.
    pub warm_up: Duration,
    /// Measured time.
    pub duration: Duration,
    /// The target's process where it is on this machine: its CPU time counts too.
    pub target: Option<ServerProcess>,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct TransferReport {
    /// `read` or `write`.
    pub operation: &'static str,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Requests of a batch.
    pub batch: u64,
    /// Threads.
    pub threads: u64,
    /// Measured time.
    pub seconds: f64,
    /// Batches that succeeded.
    pub batches: u64,
    /// Batches with a failed request.
    pub failures: u64,
    /// The first failure.
    pub error: Option<String>,
    /// 10^9 bytes a second.
    pub gb_per_second: f64,
    /// CPU seconds for 10^9 bytes, of this process and of the target's where it was named.
    pub cpu_seconds_per_gb: f64,
    /// Of batches.
    pub latency: LatencySummary,
}

/// A load that could not run.
#[derive(Debug, thiserror::Error)]
pub enum TransferLoadError {
    /// No memory for the local buffer.
    #[error(transparent)]
    SetUp(#[from] SetUpError),
    /// The local buffer could not be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// No thread, or the target's process cannot be read.
    #[error("{0}: {1}")]
    Io(&'static str, std::io::Error),
    /// The numbers make no sense.
    #[error("block, batch and threads must be at least 1")]
    Nothing,
    /// A thread ended by a panic.
    #[error("a load thread panicked")]
    Panicked,
}

/// What one thread did.
#[derive(Default)]
struct Done {
    batches: u64,
    failures: u64,
    error: Option<TransferError>,
    latencies: Latencies,
}

struct Crew {
    engine: Engine,
    load: TransferLoad,
    memory: Arc<MemorySegment>,
    clock: Clock,
    measuring: AtomicBool,
    stop: AtomicBool,
    start: Barrier,
    /// How many batches of all threads fit into the buffers; 1 unless cold.
    windows: u64,
    /// Bytes of a batch of all threads.
    span: u64,
}

/// Runs the load to its end.
///
/// # Errors
/// When it could not be started. Failed transfers are in the report.
pub fn run(engine: &Engine, load: &TransferLoad) -> Result<TransferReport, TransferLoadError> {
    let span = load.block_bytes.checked_mul(load.batch as u64).and_then(|len| len.checked_mul(load.threads as u64));
    let span = span.filter(|len| *len > 0).ok_or(TransferLoadError::Nothing)?;
    let memory = engine.allocate(load.buffer_bytes.max(span), populated(), Access::Local).map_err(SetUpError::from)?;
    let address = memory.address();
    let crew = Arc::new(Crew {
        engine: engine.clone(),
        load: load.clone(),
        memory,
        clock: Clock::real(),
        measuring: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        start: Barrier::new(load.threads + 1),
        windows: if load.cold { (load.buffer_bytes / span).max(1) } else { 1 },
        span,
    });
    let report = crew.measure();
    drop(crew);
    engine.unregister(address, BATCH_PATIENCE)?;
    report
}

impl Crew {
    fn measure(self: &Arc<Self>) -> Result<TransferReport, TransferLoadError> {
        let mut threads = Vec::with_capacity(self.load.threads);
        for index in 0..self.load.threads {
            let crew = Arc::clone(self);
            let thread = spawn_thread("yb-load", move || crew.work(index));
            threads.push(thread.map_err(|error| TransferLoadError::Io("starting a thread", error))?);
        }
        self.start.wait();
        yb_env::sleep(self.load.warm_up);
        let (cpu, started) = (self.cpu()?, self.clock.now());
        self.measuring.store(true, Ordering::SeqCst);
        yb_env::sleep(self.load.duration);
        self.measuring.store(false, Ordering::SeqCst);
        let (seconds, cpu) = (self.clock.now().since(started).as_secs_f64(), self.cpu()?.saturating_sub(cpu));
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Done::default();
        for thread in threads {
            let done = thread.join().map_err(|_| TransferLoadError::Panicked)?;
            all.batches += done.batches;
            all.failures += done.failures;
            all.error = all.error.or(done.error);
            all.latencies.merge(&done.latencies);
        }
        Ok(self.report(&all, seconds, cpu))
    }

    fn cpu(&self) -> Result<Duration, TransferLoadError> {
        let target = self.load.target.map(ServerProcess::cpu).transpose();
        let target = target.map_err(|error| TransferLoadError::Io("reading the target's CPU time", error))?;
        Ok(own_cpu() + target.unwrap_or_default())
    }

    fn report(&self, done: &Done, seconds: f64, cpu: Duration) -> TransferReport {
        let load = &self.load;
        let gb = (done.batches * load.batch as u64 * load.block_bytes) as f64 / 1e9;
        TransferReport {
            operation: if load.op == Opcode::Read { "read" } else { "write" },
            block_bytes: load.block_bytes,
            batch: load.batch as u64,
            threads: load.threads as u64,
            seconds,
            batches: done.batches,
            failures: done.failures,
            error: done.error.as_ref().map(ToString::to_string),
            gb_per_second: gb / seconds,
            cpu_seconds_per_gb: if gb > 0.0 { cpu.as_secs_f64() / gb } else { 0.0 },
            latency: done.latencies.summary(),
        }
    }

    fn work(&self, thread: usize) -> Done {
        let mut done = Done::default();
        self.start.wait();
        for round in (0..self.windows).cycle() {
            if self.stop.load(Ordering::Relaxed) {
                break;
            }
            let started = self.clock.now();
            let outcome = self.batch(thread, round * self.span);
            if !self.measuring.load(Ordering::Relaxed) {
                continue;
            }
            match outcome {
                Ok(()) => {
                    done.batches += 1;
                    done.latencies.record(self.clock.now().since(started));
                }
                Err(error) => {
                    done.failures += 1;
                    done.error.get_or_insert(error);
                    // A peer that refuses at once is not asked in a tight loop.
                    yb_env::sleep(Duration::from_millis(1));
                }
            }
        }
        done
    }

    fn batch(&self, thread: usize, window: u64) -> Result<(), TransferError> {
        let load = &self.load;
        let requests = (0..load.batch).map(|index| {
            let offset = window + load.block_bytes * (index * load.threads + thread) as u64;
            let local = self.engine.local(self.memory.address() + offset, load.block_bytes);
            let local = local.map_err(|refused| {
                TransferError::new(yb_transfer::TransferErrorKind::LocalNotRegistered, load.segment.endpoint(), refused)
            })?;
            let remote = SegmentAddress(load.remote + offset);
            Ok(Request::new(load.op, local, load.segment.clone(), remote))
        });
        let requests = requests.collect::<Result<Vec<_>, TransferError>>()?;
        self.engine.transfer_sync(&requests, self.engine.now() + BATCH_PATIENCE).into_result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::target::Target;
    use yb_transfer::EngineSettings;

    #[test]
    fn a_load_over_sockets_has_a_rate_and_a_cost() {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let settings =
            EngineSettings { listen: Some(address), shm: false, in_process: false, ..EngineSettings::default() };
        let target = Target::start(settings.clone(), 1 << 20).unwrap();
        let engine = Engine::builder().settings(EngineSettings { listen: None, ..settings }).build().unwrap();
        let mut load = TransferLoad {
            segment: engine.open_segment(target.endpoint()).unwrap(),
            remote: target.address(),
            op: Opcode::Write,
            block_bytes: 4096,
            batch: 4,
            threads: 2,
            buffer_bytes: 1 << 20,
            cold: true,
            warm_up: Duration::ZERO,
            duration: Duration::from_millis(50),
            target: None,
        };
        let report = run(&engine, &load).unwrap();
        assert!(report.batches > 0 && report.failures == 0 && report.cpu_seconds_per_gb > 0.0, "{report:?}");
        load.remote = 4096;
        let report = run(&engine, &load).unwrap();
        assert!(report.batches == 0 && report.failures > 0 && report.error.is_some(), "{report:?}");
        load.batch = 0;
        assert!(matches!(run(&engine, &load), Err(TransferLoadError::Nothing)));
    }
}
