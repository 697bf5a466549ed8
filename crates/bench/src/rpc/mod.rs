//! Load against a master of this wire, ours or the peer's: the same frames, one generator.
//!
//! Problem: two servers can be compared only if nothing but the server differs and if the generator is not the
//! bottleneck. Invariants: all frames of a run are laid out before it starts (keys and sequence numbers are patched in);
//! one thread drives all connections; every reply's header is checked and a share of the bodies is decoded, and one bad
//! reply fails the run; the server's CPU time is read from outside, over the measured time only.

mod fill;
mod frames;
mod load;
mod report;
mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use yb_env::{Clock, Rng};
use yb_rpc::{ClientPool, ClientSettings, RpcError};
use yb_secure::Security;
use yb_types::{ClientId, ErrorCode};
use yb_wire::{WireError, WireTable, WireVersion};

pub use report::RpcReport;
pub use server::ServerCost;

/// What each request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// ExistKey.
    Exist,
    /// GetReplicaList.
    Get,
    /// BatchExistKey.
    BatchExist,
    /// BatchGetReplicaList.
    BatchGet,
    /// PutStart, then PutEnd: one operation.
    Put,
    /// BatchPutStart, then BatchPutEnd: one operation per key.
    BatchPut,
    /// ServiceReady: the cost of the RPC layer alone.
    Ready,
    /// All of the above in turns; one operation a request, or a pair of a put.
    Mixed,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 8] = [
        Operation::Exist,
        Operation::Get,
        Operation::BatchExist,
        Operation::BatchGet,
        Operation::Put,
        Operation::BatchPut,
        Operation::Ready,
        Operation::Mixed,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Exist => "exist",
            Operation::Get => "get",
            Operation::BatchExist => "batch-exist",
            Operation::BatchGet => "batch-get",
            Operation::Put => "put",
            Operation::BatchPut => "batch-put",
            Operation::Ready => "ready",
            Operation::Mixed => "mixed",
        }
    }

    /// The operation of that name.
    pub fn named(name: &str) -> Option<Self> {
        Operation::ALL.into_iter().find(|operation| operation.name() == name)
    }

    fn is_batch(self) -> bool {
        matches!(self, Operation::BatchExist | Operation::BatchGet | Operation::BatchPut)
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct RpcBench {
    /// The master's RPC address.
    pub address: SocketAddr,
    /// What to do.
    pub operation: Operation,
    /// Connections.
    pub connections: usize,
    /// Requests under way on each.
    pub outstanding: usize,
    /// Keys per batch request.
    pub batch: usize,
    /// Measured time.
    pub duration: Duration,
    /// Time before it.
    pub warm_up: Duration,
    /// Keys stored before the run, which lookups ask for.
    pub keys: usize,
    /// Bytes of a key, 33 to 255.
    pub key_bytes: usize,
    /// Bytes that a put claims to store. Nothing is moved.
    pub value_bytes: u64,
    /// Bytes of the segment that the run mounts. It exists in name only.
    pub segment_bytes: u64,
    /// Generation of the wire.
    pub version: WireVersion,
    /// Core for the generator.
    pub core: Option<usize>,
    /// Process whose CPU time and memory are charged.
    pub server_pid: Option<u32>,
    /// Secret and TLS; `None`: the plain wire.
    pub security: Option<Arc<Security>>,
}

impl RpcBench {
    /// The defaults of the command: 64 connections with 1 request each, batches of 128, 200,000 keys of 45 bytes, 3 s.
    pub fn new(address: SocketAddr, operation: Operation) -> Self {
        RpcBench {
            address,
            operation,
            connections: 64,
            outstanding: 1,
            batch: 128,
            duration: Duration::from_secs(3),
            warm_up: Duration::from_millis(500),
            keys: 200_000,
            key_bytes: 45,
            value_bytes: 4096,
            segment_bytes: 256 << 30,
            version: WireVersion::V0_3_13,
            core: None,
            server_pid: None,
            security: None,
        }
    }

    /// Operations of one request cycle.
    fn operations_per_cycle(&self) -> u64 {
        if self.operation.is_batch() { self.batch as u64 } else { 1 }
    }
}

/// Why a run gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A setting makes no sense.
    #[error("{0}")]
    Setting(String),
    /// A call that prepares the run failed.
    #[error("preparing the run: {0}")]
    Rpc(#[from] RpcError),
    /// A frame could not be built or a reply not read.
    #[error("{0}")]
    Wire(#[from] WireError),
    /// The master refused what the run needs.
    #[error("the master refused {what}: {code}")]
    Refused {
        /// What was asked.
        what: &'static str,
        /// Its answer.
        code: ErrorCode,
    },
    /// A socket or /proc failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A reply under load was wrong.
    #[error("a reply under load was wrong: {0}")]
    BadReply(String),
}

impl BenchError {
    fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> BenchError {
        move |source| BenchError::Io { what, source }
    }
}

/// A run that is ready to begin: the segment is mounted and the keys are stored. Dropping it cleans up.
pub struct Prepared<'b> {
    bench: &'b RpcBench,
    plan: frames::Plan,
    grown: Option<u64>,
    _segment: fill::Mounted,
}

/// Mounts a segment and stores the keys.
///
/// # Errors
/// See [`BenchError`].
pub fn prepare(bench: &RpcBench) -> Result<Prepared<'_>, BenchError> {
    check(bench)?;
    let table = WireTable::of(bench.version);
    let settings = ClientSettings { security: bench.security.clone(), ..ClientSettings::default() };
    let pool = Arc::new(ClientPool::new(bench.address.into(), settings));
    let mut rng = Rng::from_entropy();
    let keys = frames::KeySpace::new(bench.key_bytes, rng.next_u64());
    let client = ClientId(rng.uuid());
    let segment = fill::mount(&pool, table, client, &mut rng, bench)?;
    let memory_mounted = bench.server_pid.map(server::resident_bytes).transpose()?;
    fill::store(&pool, table, client, &keys, bench)?;
    let memory_filled = bench.server_pid.map(server::resident_bytes).transpose()?;
    if let Some(core) = bench.core {
        server::pin(core)?;
    }
    let plan = frames::Plan::new(bench, table, client, &keys, &mut rng)?;
    let grown = memory_filled.zip(memory_mounted).map(|(after, before)| after.saturating_sub(before));
    Ok(Prepared { bench, plan, grown, _segment: segment })
}

impl Prepared<'_> {
    /// Drives the load, until its time is over or `stop` is set; then the report is of what was measured until then, and
    /// `None` if that is nothing.
    ///
    /// # Errors
    /// See [`BenchError`].
    pub fn measure(self, stop: &AtomicBool) -> Result<Option<RpcReport>, BenchError> {
        let measured = load::drive(self.bench, &self.plan, &load::Until { clock: &Clock::real(), stop })?;
        let is_something = measured.cycles > 0 || !stop.load(Ordering::Relaxed);
        Ok(is_something.then(|| RpcReport::new(self.bench, measured, self.grown)))
    }
}

fn check(bench: &RpcBench) -> Result<(), BenchError> {
    let wrong = |text: &str| Err(BenchError::Setting(text.to_owned()));
    match bench {
        b if b.connections == 0 || b.outstanding == 0 => wrong("connections and outstanding must be at least 1"),
        b if b.outstanding > load::MOST_OUTSTANDING => wrong("outstanding can be 4096 at most"),
        b if b.batch == 0 || b.batch > 65_535 => wrong("batch must be 1 to 65535"),
        b if b.key_bytes < frames::SHORTEST_KEY || b.key_bytes > 255 => wrong("key bytes must be 33 to 255"),
        b if b.keys < b.batch => wrong("keys must be at least the batch"),
        _ => Ok(()),
    }
}
