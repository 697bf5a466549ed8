//! The initiator: threads that move batches of blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use yb_classic::{ClassicEngine, SegmentId};
use yb_env::{Clock, Rng, spawn_thread};
use yb_replay::{Latencies, LatencySummary};
use yb_settings::Values;
use yb_transfer::{Access, LocalBuffer, MemorySegment, Opcode, Request, SegmentHandle};
use yb_types::SegmentAddress;

use super::PeerBenchError;
use super::lines::Log;
use crate::transfer::own_cpu;
use crate::transfer::target::populated;

/// What the flags ask for.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) op: Opcode,
    pub(crate) target: String,
    pub(crate) block_bytes: u64,
    pub(crate) batch: u64,
    pub(crate) threads: u64,
    pub(crate) buffer_bytes: u64,
    pub(crate) duration: Duration,
}

impl Plan {
    pub(crate) fn from_values(values: &Values) -> Result<Self, PeerBenchError> {
        let (block_bytes, batch) = (values.number("block_size"), values.number("batch_size"));
        let threads = values.number("threads");
        let needed = block_bytes.checked_mul(batch).and_then(|bytes| bytes.checked_mul(threads));
        let needed = needed.filter(|bytes| *bytes > 0);
        let needed =
            needed.ok_or_else(|| PeerBenchError::Flag("block_size x batch_size x threads is no size".to_owned()))?;
        let mut buffer_bytes = values.number("buffer_size");
        if buffer_bytes < needed {
            Log::warning(&format!("Invalid flag: buffer size is smaller than require_size, adjust to {needed}"));
            buffer_bytes = needed;
        }
        Ok(Plan {
            op: if values.text("operation") == "read" { Opcode::Read } else { Opcode::Write },
            target: values.text("segment_id").to_owned(),
            block_bytes,
            batch,
            threads,
            buffer_bytes,
            duration: Duration::from_secs(values.number("duration")),
        })
    }
}

/// What came of it.
pub(crate) struct PeerReport {
    pub(crate) seconds: f64,
    pub(crate) batches: u64,
    pub(crate) bytes: u64,
    pub(crate) latency: LatencySummary,
    pub(crate) cpu_seconds_per_gb: f64,
}

/// An initiator with its memory and its target.
pub(crate) struct Initiator {
    engine: ClassicEngine,
    plan: Plan,
    memory: Arc<MemorySegment>,
    segment: SegmentHandle,
    /// First addresses of the target's buffers; thread t uses the one at t modulo their number.
    remotes: Vec<u64>,
    stop: AtomicBool,
}

#[derive(Default)]
struct Done {
    batches: u64,
    latencies: Latencies,
    failure: Option<String>,
}

impl Initiator {
    pub(crate) fn new(engine: ClassicEngine, plan: Plan) -> Result<Self, PeerBenchError> {
        let missing = |error: &dyn std::fmt::Display| PeerBenchError::NoTarget(error.to_string());
        let id: SegmentId = engine.open_segment(&plan.target).map_err(|error| missing(&error))?;
        let buffers = engine.segment_buffers(id).map_err(|error| missing(&error))?;
        if buffers.is_empty() {
            return Err(missing(&"the target has registered no memory"));
        }
        let segment = engine.engine().open_segment(&plan.target).map_err(|error| missing(&error))?;
        let memory = engine.engine().allocate(plan.buffer_bytes, populated(), Access::Local)?;
        let remotes = buffers.iter().map(|buffer| buffer.address).collect();
        Ok(Initiator { engine, plan, memory, segment, remotes, stop: AtomicBool::new(false) })
    }

    /// Moves batches for the duration, or until something is received from `stop`, the other end of `asked`.
    pub(crate) fn run(self: &Arc<Self>, asked: &Sender<()>, stop: &Receiver<()>) -> Result<PeerReport, PeerBenchError> {
        let clock = Clock::real();
        let (cpu, started) = (own_cpu(), clock.now());
        let threads: Vec<JoinHandle<Done>> = (0..self.plan.threads)
            .map(|thread| {
                let (work, asked) = (Arc::clone(self), asked.clone());
                spawn_thread("yb-bench", move || work.work(thread, &asked))
            })
            .collect::<Result<_, _>>()?;
        // Both ends of the wait mean the same: it is over.
        let _ = stop.recv_timeout(self.plan.duration);
        self.stop.store(true, Ordering::SeqCst);
        let mut all = Done::default();
        for thread in threads {
            let done = thread.join().unwrap_or_default();
            all.batches += done.batches;
            all.latencies.merge(&done.latencies);
            all.failure = all.failure.or(done.failure);
        }
        if let Some(failure) = all.failure {
            return Err(PeerBenchError::Transfer(failure));
        }
        let seconds = clock.now().since(started).as_secs_f64();
        let bytes = all.batches * self.plan.batch * self.plan.block_bytes;
        let cpu = own_cpu().saturating_sub(cpu).as_secs_f64();
        Ok(PeerReport {
            seconds,
            batches: all.batches,
            bytes,
            latency: all.latencies.summary(),
            cpu_seconds_per_gb: if bytes > 0 { cpu / (bytes as f64 / 1e9) } else { 0.0 },
        })
    }

    fn work(&self, thread: u64, asked: &Sender<()>) -> Done {
        let clock = Clock::real();
        let mut done = Done::default();
        while !self.stop.load(Ordering::Relaxed) && done.failure.is_none() {
            let started = clock.now();
            match self.batch(thread, self.plan.op) {
                Ok(()) => {
                    done.batches += 1;
                    done.latencies.record(clock.now().since(started));
                }
                Err(failure) => {
                    done.failure = Some(failure);
                    let _ = asked.send(());
                }
            }
        }
        Log::info(&format!("Worker {thread} stopped!"));
        done
    }

    fn offset(&self, thread: u64, index: u64) -> u64 {
        self.plan.block_bytes * (index * self.plan.threads + thread)
    }

    fn remote(&self, thread: u64, index: u64) -> SegmentAddress {
        let base = self.remotes.get((thread % self.remotes.len() as u64) as usize).copied().unwrap_or_default();
        SegmentAddress(base.wrapping_add(self.offset(thread, index)))
    }

    fn batch(&self, thread: u64, op: Opcode) -> Result<(), String> {
        let engine = self.engine.engine();
        let mut requests = Vec::with_capacity(self.plan.batch as usize);
        for index in 0..self.plan.batch {
            let local = engine.local(self.memory.address() + self.offset(thread, index), self.plan.block_bytes);
            let local = local.map_err(|refused| refused.to_string())?;
            requests.push(Request::new(op, local, self.segment.clone(), self.remote(thread, index)));
        }
        let deadline = engine.now() + self.engine.budget(self.plan.batch * self.plan.block_bytes);
        engine.transfer_sync(&requests, deadline).into_result().map_err(|error| error.to_string())
    }

    /// Writes a pattern to every block, reads it back and compares; gives back the number of blocks.
    pub(crate) fn verify(&self) -> Result<u64, PeerBenchError> {
        let mut rng = Rng::from_entropy();
        let mut sent = vec![0_u8; self.plan.block_bytes as usize];
        let mut got = vec![0_u8; sent.len()];
        for thread in 0..self.plan.threads {
            for index in 0..self.plan.batch {
                sent.chunks_mut(8).for_each(|piece| {
                    let bytes = rng.next_u64().to_le_bytes();
                    piece.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
                });
                let remote = self.remote(thread, index);
                self.move_one(Opcode::Write, LocalBuffer::source(&sent), remote)?;
                self.move_one(Opcode::Read, LocalBuffer::destination(&mut got), remote)?;
                if let Some(at) = sent.iter().zip(&got).position(|(a, b)| a != b) {
                    let place = format!("block {index} of thread {thread} differs at byte {at}");
                    return Err(PeerBenchError::WrongBytes(place));
                }
            }
        }
        Ok(self.plan.threads * self.plan.batch)
    }

    fn move_one(&self, op: Opcode, local: LocalBuffer<'_>, remote: SegmentAddress) -> Result<(), PeerBenchError> {
        let engine = self.engine.engine();
        let deadline = engine.now() + self.engine.budget(local.len());
        let request = [Request::new(op, local, self.segment.clone(), remote)];
        let moved = engine.transfer_sync(&request, deadline).into_result();
        moved.map_err(|error| PeerBenchError::Transfer(error.to_string()))
    }
}
