//! Replays a trace: one thread hands out requests when they are due, each client thread serves them in turn.
//!
//! A request is served as an inference engine would: look up all its blocks at once, read those that are there (and
//! compare them), then store the others. What the queue between the threads can hold is bounded, so a trace of any
//! length takes the same memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use yb_env::{Clock, spawn_thread};

use crate::content;
use crate::pace::Speed;
use crate::pool::{Pool, ReadOutcome, WriteOutcome};
use crate::report::{Report, Run, Tally};
use crate::stat::TraceCounter;
use crate::trace::{Request, TraceError};

/// After so many requests in a row whose lookup failed, a client gives up: the pool is gone.
const GIVE_UP_AFTER: u32 = 8;

/// How to replay.
#[derive(Clone, Debug)]
pub struct ReplayOptions {
    /// Bytes of the object that stands for one block.
    pub block_bytes: u64,
    /// How fast.
    pub speed: Speed,
    /// Replay only so many requests.
    pub max_requests: Option<u64>,
    /// Keys are this, the block size and the block id, joined by `/`.
    pub key_prefix: String,
}

/// Why a replay ended without a report.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Every client gave up.
    #[error("the pool does not answer, gave up after {requests} requests: {reason}")]
    PoolGone {
        /// Requests served or tried until then.
        requests: u64,
        /// What one of the last calls said.
        reason: String,
    },
    /// There is no client.
    #[error("a replay needs at least one client")]
    NoClients,
    /// No thread could be started.
    #[error("cannot start a client thread: {0}")]
    Thread(#[from] std::io::Error),
}

/// Asks a replay to end early; clones ask the same one.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<(Mutex<bool>, Condvar)>);

impl Stop {
    /// No more requests are handed out; those under way are finished.
    pub fn stop(&self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.1.notify_all();
    }

    /// True after [`stop`](Self::stop).
    pub fn is_stopped(&self) -> bool {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits so long, or until stopped. True if stopped.
    fn wait(&self, duration: Duration) -> bool {
        let guard = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, _) =
            self.0.1.wait_timeout_while(guard, duration, |stopped| !*stopped).unwrap_or_else(PoisonError::into_inner);
        *guard
    }
}

/// How far a replay is.
#[derive(Debug, Default)]
pub struct Progress {
    /// Requests served.
    pub requests: AtomicU64,
    /// Bytes read or stored.
    pub bytes: AtomicU64,
    /// Blocks looked for.
    pub blocks: AtomicU64,
    /// Blocks found and read.
    pub hits: AtomicU64,
    /// Wrong bytes so far.
    pub wrong_bytes: AtomicU64,
}

/// Replays `trace` with one thread for each client; `on_progress` is called each time a request is handed out.
///
/// # Errors
/// If the trace cannot be read, or if the pool stops answering all clients. Failures of single calls, misses and wrong
/// bytes are in the report.
pub fn replay<P: Pool + 'static>(
    trace: impl Iterator<Item = Result<Request, TraceError>>,
    clients: Vec<P>,
    options: &ReplayOptions,
    stop: &Stop,
    on_progress: &mut dyn FnMut(&Progress),
) -> Result<Report, ReplayError> {
    if clients.is_empty() {
        return Err(ReplayError::NoClients);
    }
    let clock = Clock::real();
    let started = clock.now();
    let count = clients.len() as u64;
    let progress = Arc::new(Progress::default());
    let (sender, receiver) = sync_channel::<Request>(clients.len());
    let threads = start_clients(clients, receiver, &clock, options, &progress)?;
    let mut counter = TraceCounter::default();
    let limit = options.max_requests.and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    let mut fed = Ok(());
    for request in trace.take(limit) {
        let request = match request {
            Ok(request) => request,
            Err(error) => {
                fed = Err(error);
                break;
            }
        };
        let due = started + options.speed.due_after(request.timestamp);
        if stop.wait(due.since(clock.now())) {
            break;
        }
        counter.add(&request);
        if sender.send(request).is_err() {
            break;
        }
        on_progress(&progress);
    }
    drop(sender);
    let (mut total, gave_up) = join_clients(threads);
    on_progress(&progress);
    fed?;
    if gave_up == count {
        return Err(ReplayError::PoolGone { requests: total.requests, reason: total.errors.pop().unwrap_or_default() });
    }
    let run = Run {
        block_bytes: options.block_bytes,
        clients: count,
        took: clock.now().since(started),
        interrupted: stop.is_stopped(),
    };
    Ok(total.report(&run, &counter.stat()))
}

fn start_clients<P: Pool + 'static>(
    clients: Vec<P>,
    receiver: Receiver<Request>,
    clock: &Clock,
    options: &ReplayOptions,
    progress: &Arc<Progress>,
) -> std::io::Result<Vec<JoinHandle<ClientEnd>>> {
    // Only the clients hold it: when the last one gives up, handing out ends too.
    let receiver = Arc::new(Mutex::new(receiver));
    let start = |(index, pool)| {
        let client = Client {
            pool,
            clock: clock.clone(),
            options: options.clone(),
            tally: Tally::new(),
            progress: Arc::clone(progress),
        };
        let receiver = Arc::clone(&receiver);
        spawn_thread(&format!("replay-{index}"), move || client.run(&receiver))
    };
    clients.into_iter().enumerate().map(start).collect()
}

/// What all clients counted, and how many gave up.
fn join_clients(threads: Vec<JoinHandle<ClientEnd>>) -> (Tally, u64) {
    let mut total = Tally::new();
    let mut gave_up = 0;
    for thread in threads {
        match thread.join() {
            Ok(end) => {
                gave_up += u64::from(end.gave_up);
                total.merge(end.tally);
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    (total, gave_up)
}

struct ClientEnd {
    tally: Tally,
    gave_up: bool,
}

struct Client<P> {
    pool: P,
    clock: Clock,
    options: ReplayOptions,
    tally: Tally,
    progress: Arc<Progress>,
}

impl<P: Pool> Client<P> {
    fn run(mut self, receiver: &Mutex<Receiver<Request>>) -> ClientEnd {
        let mut failed_in_a_row = 0;
        loop {
            let next = receiver.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(request) = next else {
                return ClientEnd { tally: self.tally, gave_up: false };
            };
            failed_in_a_row = if self.serve(request) { 0 } else { failed_in_a_row + 1 };
            self.progress.requests.fetch_add(1, Ordering::Relaxed);
            if failed_in_a_row >= GIVE_UP_AFTER {
                return ClientEnd { tally: self.tally, gave_up: true };
            }
        }
    }

    /// False if the lookup failed.
    fn serve(&mut self, request: Request) -> bool {
        let ids = without_repeats(request.hash_ids);
        let keys: Vec<String> = ids.iter().map(|id| self.key(*id)).collect();
        self.tally.requests += 1;
        self.tally.blocks += ids.len() as u64;
        self.progress.blocks.fetch_add(ids.len() as u64, Ordering::Relaxed);
        if ids.is_empty() {
            return true;
        }
        let before = self.clock.now();
        let answer = self.pool.lookup(&keys);
        self.tally.lookup.record(self.clock.now().since(before));
        let mut blocks: Vec<Block> = match answer {
            Ok(found) => found.into_iter().map(|there| if there { Block::There } else { Block::Absent }).collect(),
            Err(error) => {
                self.tally.fail(error);
                return false;
            }
        };
        blocks.resize(ids.len(), Block::Absent);
        let slots = self.pool.slots().max(1);
        for chunk in indices_of(&blocks, Block::There).chunks(slots) {
            self.read_chunk(chunk, &ids, &keys, &mut blocks);
        }
        self.tally.prefix_blocks += blocks.iter().take_while(|block| **block == Block::Read).count() as u64;
        for chunk in indices_of(&blocks, Block::Absent).chunks(slots) {
            self.write_chunk(chunk, &ids, &keys);
        }
        true
    }

    /// Reads and compares; says in `blocks` what became of each.
    fn read_chunk(&mut self, chunk: &[usize], ids: &[u64], keys: &[String], blocks: &mut [Block]) {
        let chunk_keys: Vec<String> = chunk.iter().map(|i| keys[*i].clone()).collect();
        let before = self.clock.now();
        let outcomes = self.pool.read(&chunk_keys);
        self.tally.get.record(self.clock.now().since(before));
        for ((slot, index), outcome) in chunk.iter().enumerate().zip(outcomes) {
            match outcome {
                ReadOutcome::Read => {
                    blocks[*index] = Block::Read;
                    self.check(ids[*index], slot);
                }
                ReadOutcome::Miss => {
                    blocks[*index] = Block::Absent;
                    self.tally.lost_blocks += 1;
                }
                ReadOutcome::OtherSize(bytes) => {
                    self.tally.wrong_blocks += 1;
                    self.tally.wrong_bytes += bytes.abs_diff(self.options.block_bytes);
                }
                ReadOutcome::Failed(error) => self.tally.fail(error),
            }
        }
    }

    fn check(&mut self, id: u64, slot: usize) {
        let wrong = content::wrong_bytes(id, self.pool.slot(slot));
        self.tally.hit_blocks += 1;
        self.tally.wrong_blocks += u64::from(wrong > 0);
        self.tally.wrong_bytes += wrong;
        self.progress.hits.fetch_add(1, Ordering::Relaxed);
        self.progress.wrong_bytes.fetch_add(wrong, Ordering::Relaxed);
        self.progress.bytes.fetch_add(self.options.block_bytes, Ordering::Relaxed);
    }

    fn write_chunk(&mut self, chunk: &[usize], ids: &[u64], keys: &[String]) {
        let chunk_keys: Vec<String> = chunk.iter().map(|i| keys[*i].clone()).collect();
        for (slot, index) in chunk.iter().enumerate() {
            content::fill(ids[*index], self.pool.slot_mut(slot));
        }
        let before = self.clock.now();
        let outcomes = self.pool.write(&chunk_keys);
        self.tally.put.record(self.clock.now().since(before));
        for outcome in outcomes {
            match outcome {
                WriteOutcome::Stored => {
                    self.tally.stored_blocks += 1;
                    self.progress.bytes.fetch_add(self.options.block_bytes, Ordering::Relaxed);
                }
                WriteOutcome::Exists => self.tally.already_stored_blocks += 1,
                WriteOutcome::NoSpace => self.tally.refused_blocks += 1,
                WriteOutcome::Failed(error) => self.tally.fail(error),
            }
        }
    }

    /// The size is part of the key, so that runs with different sizes never meet.
    fn key(&self, id: u64) -> String {
        format!("{}/{}/{id}", self.options.key_prefix, self.options.block_bytes)
    }
}

/// What is known of a block of the request that is being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Block {
    /// Not in the pool; to be stored.
    Absent,
    /// In the pool; not read yet, or could not be read.
    There,
    /// Read.
    Read,
}

fn indices_of(blocks: &[Block], wanted: Block) -> Vec<usize> {
    blocks.iter().enumerate().filter(|(_, block)| **block == wanted).map(|(index, _)| index).collect()
}

/// A batch must not name a key twice.
fn without_repeats(ids: Vec<u64>) -> Vec<u64> {
    let mut seen = std::collections::BTreeSet::new();
    ids.into_iter().filter(|id| seen.insert(*id)).collect()
}
