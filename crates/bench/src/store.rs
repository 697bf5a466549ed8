//! Load on a whole store: put, get, lookup and removal of many objects by several clients, against any master and nodes
//! of this wire.
//!
//! Each phase runs for all clients before the next begins. Every client has objects of its own, so phases measure the
//! store and not who comes first. Rates count the time of the whole phase; latencies count calls, one a batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use yb_client::{Client, ClientConfig, Duplicates, Error, GetItem, PutItem, PutOutcome};
use yb_env::{Clock, Rng, spawn_thread};
use yb_replay::{Latencies, LatencySummary, content};
use yb_secure::Security;
use yb_types::ReplicateConfig;

use crate::process::ServerProcess;

/// What load to make.
#[derive(Clone, Debug)]
pub struct StoreLoad {
    /// The master, host:port.
    pub master: String,
    /// Clients at once.
    pub clients: usize,
    /// Bytes of an object.
    pub value_bytes: usize,
    /// Objects of a call.
    pub batch: usize,
    /// Objects of all clients together.
    pub keys: usize,
    /// Copies of an object.
    pub replicas: u64,
    /// How long the get phase and the lookup phase last.
    pub duration: Duration,
    /// Compare every byte that is read. It takes time between the calls, not in them.
    pub check: bool,
    /// Processes on this machine whose CPU time is to be told: master, nodes.
    pub servers: Vec<ServerProcess>,
    /// Makes the keys of this run differ from those of other runs.
    pub seed: u64,
    /// Secret and TLS; `None`: the plain wire.
    pub security: Option<Arc<Security>>,
}

/// What a load answered, phase by phase.
#[derive(Clone, Debug, Serialize)]
pub struct StoreReport {
    /// Bytes of an object.
    pub value_bytes: u64,
    /// Objects of a call.
    pub batch: u64,
    /// Clients at once.
    pub clients: u64,
    /// In the order in which they ran.
    pub phases: Vec<PhaseReport>,
}

/// One phase.
#[derive(Clone, Debug, Serialize)]
pub struct PhaseReport {
    /// `put`, `get`, `exist`, `remove`.
    pub phase: &'static str,
    /// Objects that were served.
    pub objects: u64,
    /// Objects that were not there.
    pub misses: u64,
    /// Puts refused for want of room.
    pub refused: u64,
    /// Objects that failed in any other way.
    pub failures: u64,
    /// The first of those failures.
    pub error: Option<String>,
    /// Bytes that were not what they must be, with `check`.
    pub wrong_bytes: u64,
    /// How long it took.
    pub seconds: f64,
    /// Objects a second.
    pub objects_per_second: f64,
    /// 10^9 bytes of objects a second.
    pub gb_per_second: f64,
    /// CPU time of the servers named, in microseconds an object.
    pub server_cpu_us_per_object: Option<f64>,
    /// Calls, one a batch.
    pub latency: LatencySummary,
}

/// A load that could not start.
#[derive(Debug, thiserror::Error)]
pub enum StoreLoadError {
    /// A client could not be set up.
    #[error(transparent)]
    Client(#[from] Error),
    /// No thread could be started, or a server process cannot be read.
    #[error("{0}: {1}")]
    Io(&'static str, std::io::Error),
    /// The numbers make no sense.
    #[error("clients, keys, batch and value size must be at least 1, and keys at least clients")]
    Nothing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Put,
    Get,
    Exist,
    Remove,
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Phase::Put => "put",
            Phase::Get => "get",
            Phase::Exist => "exist",
            Phase::Remove => "remove",
        }
    }

    /// Put and remove handle each object once; the others go on until the time is over.
    fn handles_each_once(self) -> bool {
        matches!(self, Phase::Put | Phase::Remove)
    }
}

/// Runs all phases. `stop` ends the running phase early; removal still happens, so that nothing is left in the pool.
///
/// # Errors
/// If no client can be set up. Calls that fail are in the report.
pub fn run(load: &StoreLoad, stop: &Arc<AtomicBool>) -> Result<StoreReport, StoreLoadError> {
    let positive = load.clients > 0 && load.batch > 0 && load.value_bytes > 0 && load.keys >= load.clients;
    if !positive {
        return Err(StoreLoadError::Nothing);
    }
    let mut workers = (0..load.clients).map(|index| Worker::new(load, index)).collect::<Result<Vec<_>, _>>()?;
    let mut phases = Vec::new();
    for phase in [Phase::Put, Phase::Get, Phase::Exist, Phase::Remove] {
        phases.push(run_phase(phase, load, &mut workers, stop)?);
    }
    Ok(StoreReport {
        value_bytes: load.value_bytes as u64,
        batch: load.batch as u64,
        clients: load.clients as u64,
        phases,
    })
}

fn run_phase(
    phase: Phase,
    load: &StoreLoad,
    workers: &mut Vec<Worker>,
    stop: &Arc<AtomicBool>,
) -> Result<PhaseReport, StoreLoadError> {
    let clock = Clock::real();
    let cpu_before = server_cpu(load)?;
    let started = clock.now();
    let mut threads = Vec::new();
    for mut worker in workers.drain(..) {
        let stop = Arc::clone(stop);
        let body = move || {
            let count = worker.run(phase, &stop);
            (worker, count)
        };
        let thread = spawn_thread("store-load", body).map_err(|e| StoreLoadError::Io("cannot start a thread", e))?;
        threads.push(thread);
    }
    let mut total = Count::default();
    for thread in threads {
        match thread.join() {
            Ok((worker, count)) => {
                workers.push(worker);
                total.add(count);
            }
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
    let seconds = clock.now().since(started).as_secs_f64();
    let cpu = server_cpu(load)?.saturating_sub(cpu_before);
    Ok(total.report(phase, load, seconds, cpu))
}

fn server_cpu(load: &StoreLoad) -> Result<Duration, StoreLoadError> {
    let mut cpu = Duration::ZERO;
    for server in &load.servers {
        cpu += server.usage().map_err(|e| StoreLoadError::Io("cannot read the use of the server process", e))?.cpu;
    }
    Ok(cpu)
}

#[derive(Default)]
struct Count {
    objects: u64,
    misses: u64,
    refused: u64,
    failures: u64,
    error: Option<String>,
    wrong_bytes: u64,
    latencies: Latencies,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.objects += other.objects;
        self.misses += other.misses;
        self.refused += other.refused;
        self.failures += other.failures;
        self.wrong_bytes += other.wrong_bytes;
        self.error = self.error.take().or(other.error);
        self.latencies.merge(&other.latencies);
    }

    fn fail(&mut self, error: &Error) {
        match error {
            Error::NotFound => self.misses += 1,
            Error::NoSpace(_) => self.refused += 1,
            error => {
                self.failures += 1;
                self.error.get_or_insert_with(|| error.to_string());
            }
        }
    }

    fn report(self, phase: Phase, load: &StoreLoad, seconds: f64, cpu: Duration) -> PhaseReport {
        let rate = if seconds > 0.0 { self.objects as f64 / seconds } else { 0.0 };
        let moved = if matches!(phase, Phase::Put | Phase::Get) { load.value_bytes as f64 } else { 0.0 };
        let measured = !load.servers.is_empty() && self.objects > 0;
        PhaseReport {
            phase: phase.name(),
            objects: self.objects,
            misses: self.misses,
            refused: self.refused,
            failures: self.failures,
            error: self.error,
            wrong_bytes: self.wrong_bytes,
            seconds,
            objects_per_second: rate,
            gb_per_second: rate * moved / 1e9,
            server_cpu_us_per_object: measured.then(|| cpu.as_secs_f64() * 1e6 / self.objects as f64),
            latency: self.latencies.summary(),
        }
    }
}

/// One client with its objects and memory for a batch.
struct Worker {
    client: Client,
    clock: Clock,
    rng: Rng,
    keys: Vec<(String, u64)>,
    memory: Vec<u8>,
    value_bytes: usize,
    batch: usize,
    duration: Duration,
    check: bool,
    config: ReplicateConfig,
}

impl Worker {
    fn new(load: &StoreLoad, index: usize) -> Result<Self, StoreLoadError> {
        let config = ClientConfig {
            master_address: load.master.clone(),
            local_hostname: "127.0.0.1".to_owned(),
            security: load.security.clone(),
            ..ClientConfig::default()
        };
        let own = (index..load.keys).step_by(load.clients);
        Ok(Worker {
            client: Client::connect(config)?,
            clock: Clock::real(),
            rng: Rng::seeded(load.seed ^ index as u64),
            keys: own.map(|n| (format!("bench/{:016x}/{n}", load.seed), n as u64)).collect(),
            memory: vec![0; load.value_bytes * load.batch],
            value_bytes: load.value_bytes,
            batch: load.batch,
            duration: load.duration,
            check: load.check,
            config: ReplicateConfig { replica_num: load.replicas, ..ReplicateConfig::default() },
        })
    }

    fn run(&mut self, phase: Phase, stop: &AtomicBool) -> Count {
        let mut count = Count::default();
        let keys = std::mem::take(&mut self.keys);
        if phase.handles_each_once() {
            for batch in keys.chunks(self.batch) {
                if phase == Phase::Put && stop.load(Ordering::Relaxed) {
                    break;
                }
                self.call(phase, batch, &mut count);
            }
        } else {
            let deadline = self.clock.now() + self.duration;
            while self.clock.now() < deadline && !stop.load(Ordering::Relaxed) {
                let last_start = (keys.len().saturating_sub(self.batch) + 1) as u64;
                let first = self.rng.below(last_start) as usize;
                let batch = keys.get(first..(first + self.batch).min(keys.len())).unwrap_or_default();
                self.call(phase, batch, &mut count);
            }
        }
        self.keys = keys;
        count
    }

    fn call(&mut self, phase: Phase, batch: &[(String, u64)], count: &mut Count) {
        match phase {
            Phase::Put => self.put(batch, count),
            Phase::Get => self.get(batch, count),
            Phase::Exist => self.exist(batch, count),
            Phase::Remove => self.remove(batch, count),
        }
    }

    fn timed<T>(&mut self, count: &mut Count, call: impl FnOnce(&Client, &mut [u8], &ReplicateConfig) -> T) -> T {
        let before = self.clock.now();
        let answer = call(&self.client, &mut self.memory, &self.config);
        count.latencies.record(self.clock.now().since(before));
        answer
    }

    fn put(&mut self, batch: &[(String, u64)], count: &mut Count) {
        let size = self.value_bytes;
        for ((_, id), value) in batch.iter().zip(self.memory.chunks_exact_mut(size)) {
            content::fill(*id, value);
        }
        let answers = self.timed(count, |client, memory, config| {
            let values = memory.chunks_exact(size);
            let items: Vec<_> =
                batch.iter().zip(values).map(|((key, _), value)| PutItem::new(key.as_bytes(), value)).collect();
            client.batch_put_items(&items, config, Duplicates::FirstWins)
        });
        for answer in answers {
            match answer {
                Ok(PutOutcome::Stored | PutOutcome::AlreadyExists) => count.objects += 1,
                Err(error) => count.fail(&error),
            }
        }
    }

    fn get(&mut self, batch: &[(String, u64)], count: &mut Count) {
        let size = self.value_bytes;
        let answers = self.timed(count, |client, memory, _| {
            let values = memory.chunks_exact_mut(size);
            client.batch_get_items(batch.iter().zip(values).map(|((key, _), v)| GetItem::new(key.as_bytes(), v)))
        });
        for ((answer, (_, id)), value) in answers.into_iter().zip(batch).zip(self.memory.chunks_exact(size)) {
            match answer {
                Ok(_) => {
                    count.objects += 1;
                    count.wrong_bytes += if self.check { content::wrong_bytes(*id, value) } else { 0 };
                }
                Err(error) => count.fail(&error),
            }
        }
    }

    fn exist(&mut self, batch: &[(String, u64)], count: &mut Count) {
        let keys: Vec<&str> = batch.iter().map(|(key, _)| key.as_str()).collect();
        for answer in self.timed(count, |client, _, _| client.batch_exists(&keys)) {
            match answer {
                Ok(true) => count.objects += 1,
                Ok(false) => count.misses += 1,
                Err(error) => count.fail(&error),
            }
        }
    }

    fn remove(&mut self, batch: &[(String, u64)], count: &mut Count) {
        let keys: Vec<&str> = batch.iter().map(|(key, _)| key.as_str()).collect();
        for answer in self.timed(count, |client, _, _| client.batch_remove(&keys, true)) {
            match answer {
                Ok(()) => count.objects += 1,
                Err(error) => count.fail(&error),
            }
        }
    }
}
