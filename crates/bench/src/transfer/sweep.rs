//! A sweep: every combination of route, operation, block, batch and threads, with the limit of the machine beside it.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::Serialize;
use yb_secure::{Security, SecurityError};
use yb_transfer::rdma::{RdmaMode, RdmaSettings};
use yb_transfer::{Engine, EngineSettings, Opcode, TransferStats, TransportKind};

use crate::memcpy::{self, MemcpyError, MemcpyLoad};
use crate::process::ServerProcess;
use crate::transfer::load::{self, TransferLoad, TransferLoadError, TransferReport};
use crate::transfer::raw;

/// The way that bytes take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// Between two engines of one process.
    Local,
    /// Memory of another process, mapped.
    Shm,
    /// Memory of another process that cannot be mapped, copied by the kernel.
    ProcessVm,
    /// An RDMA device.
    Rdma,
    /// A file.
    File,
    /// A socket.
    Tcp,
}

impl Route {
    /// Every route, in the order in which engines prefer them.
    pub const ALL: [Route; 6] = [Route::Local, Route::Shm, Route::ProcessVm, Route::Rdma, Route::File, Route::Tcp];

    /// The transport that moves the bytes.
    pub fn kind(self) -> TransportKind {
        match self {
            Route::Local => TransportKind::Local,
            Route::Shm => TransportKind::Shm,
            Route::ProcessVm => TransportKind::ProcessVm,
            Route::Rdma => TransportKind::Rdma,
            Route::File => TransportKind::File,
            Route::Tcp => TransportKind::Tcp,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Route::Local => "local",
            Route::Shm => "shm",
            Route::ProcessVm => "process_vm",
            Route::Rdma => "rdma",
            Route::File => "file",
            Route::Tcp => "tcp",
        }
    }

    /// The route of that name.
    pub fn named(name: &str) -> Option<Self> {
        Route::ALL.into_iter().find(|route| route.name() == name)
    }

    /// Settings of both engines, with which this route is the one taken, where it can be.
    pub fn settings(self) -> EngineSettings {
        let mut settings = EngineSettings {
            listen: Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0))),
            shm: matches!(self, Route::Shm | Route::ProcessVm),
            in_process: self == Route::Local,
            ..EngineSettings::default()
        };
        if self == Route::Rdma {
            let from_env = RdmaSettings::from_env(|name| std::env::var(name).ok());
            settings.rdma = RdmaSettings { mode: RdmaMode::Required, ..from_env };
        }
        settings
    }

    /// The same, with secret and certificates as the environment names them. Over TCP alone: other ways have no use for them.
    ///
    /// # Errors
    /// What the environment asks for cannot be had.
    pub fn secured_settings(self) -> Result<EngineSettings, SecurityError> {
        let security = if self == Route::Tcp { Security::from_env()? } else { None };
        Ok(EngineSettings { security, ..self.settings() })
    }

    /// Bytes that an engine has moved on this route.
    pub fn bytes(self, stats: &TransferStats) -> u64 {
        let moved = stats.of(self.kind());
        moved.read_bytes + moved.written_bytes
    }

    /// What bounds it on this machine, where that can be measured.
    pub fn limit(self) -> Option<Limit> {
        match self {
            Route::Local | Route::Shm | Route::ProcessVm => Some(Limit::Memcpy),
            Route::Tcp => Some(Limit::RawTcp),
            Route::Rdma | Route::File => None,
        }
    }
}

/// What bounds a route on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// One copy in memory by one thread.
    Memcpy,
    /// One connection on loopback without an engine, at its best write size.
    RawTcp,
}

/// How long a limit is measured at most.
const LIMIT_TIME: Duration = Duration::from_millis(300);

/// One combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Case {
    /// Way of the bytes.
    pub route: Route,
    /// Direction.
    #[serde(serialize_with = "op_name")]
    pub operation: Opcode,
    /// Bytes of a request.
    pub block_bytes: u64,
    /// Requests of a batch.
    pub batch: u64,
    /// Threads.
    pub threads: u64,
}

/// `read` or `write`.
pub fn operation_name(op: Opcode) -> &'static str {
    if op == Opcode::Read { "read" } else { "write" }
}

fn op_name<S: serde::Serializer>(op: &Opcode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(operation_name(*op))
}

impl Case {
    /// Bytes that all threads of the case use together.
    pub fn working_set(&self) -> Option<u64> {
        self.block_bytes.checked_mul(self.batch)?.checked_mul(self.threads)
    }
}

/// What to try.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// Ways.
    pub routes: Vec<Route>,
    /// Directions.
    pub operations: Vec<Opcode>,
    /// Bytes of a request.
    pub blocks: Vec<u64>,
    /// Requests of a batch.
    pub batches: Vec<u64>,
    /// Threads.
    pub threads: Vec<u64>,
    /// Bytes of each side's buffer; combinations that need more are left out.
    pub buffer_bytes: u64,
    /// Batches walk over the whole buffers, so that caches do not help.
    pub cold: bool,
    /// Time before each measurement.
    pub warm_up: Duration,
    /// Time of each measurement.
    pub duration: Duration,
}

impl Sweep {
    /// The combinations, route by route.
    pub fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for route in &self.routes {
            for operation in &self.operations {
                for threads in &self.threads {
                    for batch in &self.batches {
                        let case = |block: &u64| Case {
                            route: *route,
                            operation: *operation,
                            block_bytes: *block,
                            batch: *batch,
                            threads: *threads,
                        };
                        cases.extend(self.blocks.iter().map(case));
                    }
                }
            }
        }
        cases.retain(|case| case.working_set().is_some_and(|bytes| bytes > 0 && bytes <= self.buffer_bytes));
        cases
    }
}

/// The side that takes no part, as the initiator sees it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The name to open.
    pub endpoint: String,
    /// First address of its buffer.
    pub address: u64,
    /// Its process, if that is another one.
    pub process: Option<ServerProcess>,
}

/// One line of the result.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// What was tried.
    pub case: Case,
    /// What came of it.
    pub report: TransferReport,
    /// What bounds it, where that can be measured.
    pub limit: Option<Limit>,
    /// 10^9 bytes a second that the limit allows one thread.
    pub limit_gb_per_second: Option<f64>,
}

/// Why a case could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The load.
    #[error(transparent)]
    Load(#[from] TransferLoadError),
    /// The peer cannot be opened.
    #[error(transparent)]
    Transfer(#[from] yb_transfer::TransferError),
    /// The limit of memory.
    #[error(transparent)]
    Memcpy(#[from] MemcpyError),
    /// The limit of a socket.
    #[error("measuring one raw connection: {0}")]
    Raw(#[from] io::Error),
    /// The bytes took another way than asked for.
    #[error("the bytes did not go by {0}: this machine or this build does not let them")]
    OtherRoute(&'static str),
}

/// Limits of this machine, measured once each.
#[derive(Debug, Default)]
pub struct Limits {
    known: BTreeMap<(Limit, u64, u64), f64>,
}

impl Limits {
    /// The limit of a case.
    ///
    /// # Errors
    /// When it cannot be measured.
    pub fn of(&mut self, case: &Case, sweep: &Sweep) -> Result<Option<f64>, SweepError> {
        let Some(limit) = case.route.limit() else { return Ok(None) };
        let used = case.working_set().unwrap_or(case.block_bytes);
        let working_set = if sweep.cold { sweep.buffer_bytes } else { used };
        let duration = sweep.duration.min(LIMIT_TIME);
        let block = if limit == Limit::Memcpy { case.block_bytes } else { 0 };
        if let Some(known) = self.known.get(&(limit, block, working_set)) {
            return Ok(Some(*known));
        }
        let rate = match limit {
            Limit::Memcpy => {
                let (block_bytes, destination_blocks) = (case.block_bytes, working_set / case.block_bytes);
                let load = MemcpyLoad { block_bytes, destination_blocks, duration };
                memcpy::measure(&load, &AtomicBool::new(false))?.gb_per_second
            }
            Limit::RawTcp => {
                let least = raw::WRITE_SIZES.first().copied().unwrap_or(1) as u64;
                let rates = raw::measure(working_set.max(least) as usize, duration)?;
                rates.first().map_or(0.0, |best| best.gb_per_second)
            }
        };
        self.known.insert((limit, block, working_set), rate);
        Ok(Some(rate))
    }
}

/// Measures one case. Failed transfers are in the report.
///
/// # Errors
/// When the case could not be run, or its bytes took another way.
pub fn measure(
    engine: &Engine,
    peer: &Peer,
    case: Case,
    sweep: &Sweep,
    limits: &mut Limits,
) -> Result<Line, SweepError> {
    let load = TransferLoad {
        segment: engine.open_segment(&peer.endpoint)?,
        remote: peer.address,
        op: case.operation,
        block_bytes: case.block_bytes,
        batch: case.batch as usize,
        threads: case.threads as usize,
        buffer_bytes: if sweep.cold { sweep.buffer_bytes } else { 0 },
        cold: sweep.cold,
        warm_up: sweep.warm_up,
        duration: sweep.duration,
        target: peer.process,
    };
    let limit_gb_per_second = limits.of(&case, sweep)?;
    let before = case.route.bytes(&engine.stats());
    let report = load::run(engine, &load)?;
    if report.batches > 0 && case.route.bytes(&engine.stats()) == before {
        return Err(SweepError::OtherRoute(case.route.name()));
    }
    Ok(Line { case, report, limit: case.route.limit(), limit_gb_per_second })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::target::Target;

    fn sweep() -> Sweep {
        Sweep {
            routes: vec![Route::Local, Route::Tcp],
            operations: vec![Opcode::Read, Opcode::Write],
            blocks: vec![4096, 65_536],
            batches: vec![1, 16],
            threads: vec![1],
            buffer_bytes: 1 << 20,
            cold: true,
            warm_up: Duration::ZERO,
            duration: Duration::from_millis(20),
        }
    }

    #[test]
    fn combinations_that_do_not_fit_are_left_out() {
        assert_eq!(sweep().cases().len(), 16);
        let small = Sweep { buffer_bytes: 65_536, ..sweep() };
        assert_eq!(small.cases().len(), 12);
        let odd = Sweep { blocks: vec![u64::MAX, 0], ..sweep() };
        assert!(odd.cases().is_empty());
    }

    #[test]
    fn a_case_is_measured_beside_its_limit() {
        for route in [Route::Local, Route::Tcp] {
            let target = Target::start(route.settings(), 1 << 20).unwrap();
            let engine = Engine::builder().settings(route.settings()).build().unwrap();
            let peer = Peer { endpoint: target.endpoint().to_owned(), address: target.address(), process: None };
            let case = Case { route, operation: Opcode::Write, block_bytes: 4096, batch: 4, threads: 1 };
            let line = measure(&engine, &peer, case, &sweep(), &mut Limits::default()).unwrap();
            assert!(line.report.batches > 0 && line.limit_gb_per_second > Some(0.0), "{line:?}");
        }
    }

    #[test]
    fn routes_have_names() {
        for route in Route::ALL {
            assert_eq!(Route::named(route.name()), Some(route));
        }
        assert_eq!(Route::named("pigeon"), None);
    }
}
