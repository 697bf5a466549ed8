//! The engine: regions, open segments, and the choice of transport.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use smallvec::{SmallVec, smallvec};
use yb_env::Clock;
use yb_mem::{
    Access, ForeignMemory, LocalBuffer, MapError, MemorySegment, RegionInfo, Registry, RegistryError, SegmentOptions,
};
use yb_types::{ClientId, MonotonicTime};

use crate::batch::{BatchTable, Pushed};
use crate::local::LocalTransport;
use crate::segment::{Segment, SegmentHandle};
use crate::stats::EngineCounters;
use crate::transport::{Job, Limits, Transport};
use crate::{
    BatchError, BatchId, BatchOutcome, BatchStatus, CancelToken, Opcode, Request, TransferError, TransferErrorKind,
    TransferStats,
};

/// Engines of this process by endpoint, so that transfers between them need no socket.
static IN_PROCESS: Mutex<BTreeMap<Arc<str>, Weak<Shared>>> = Mutex::new(BTreeMap::new());

/// Most threads that run submitted batches.
const MAX_BATCH_WORKERS: usize = 4;

/// A submitted batch below this size that needs no socket is copied at once, in the caller.
const INLINE_BYTES: u64 = 256 << 10;

/// What can be set.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Where the handshake listens; `None` = serve nobody. Port 0 lets the kernel choose.
    pub listen: Option<SocketAddr>,
    /// Where the data port listens; `None` = the address of `listen` with port 0.
    pub data_listen: Option<SocketAddr>,
    /// The host that peers are told to connect to; `None` = the address of `listen`.
    pub advertise_host: Option<String>,
    /// Whether shared memory may be used, in both roles (`YB_SHM=0` says no).
    pub shm: bool,
    /// Who we are to the owners of memory that we write.
    pub client_id: ClientId,
}

impl Default for EngineSettings {
    fn default() -> Self {
        EngineSettings {
            listen: None,
            data_listen: None,
            advertise_host: None,
            shm: true,
            client_id: ClientId::default(),
        }
    }
}

/// Why an engine did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A socket could not be bound.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: SocketAddr,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The system refused something else that the engine needs.
    #[error("{what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// Collects the parts of an engine.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    settings: EngineSettings,
    clock: Clock,
}

impl EngineBuilder {
    /// Replaces all settings.
    pub fn settings(mut self, settings: EngineSettings) -> Self {
        self.settings = settings;
        self
    }

    /// Serves peers: the handshake listens here.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.settings.listen = Some(address);
        self
    }

    /// The host that peers are told, where it differs from the listen address.
    pub fn advertise_host(mut self, host: impl Into<String>) -> Self {
        self.settings.advertise_host = Some(host.into());
        self
    }

    /// Allows or forbids shared memory.
    pub fn shm(mut self, allowed: bool) -> Self {
        self.settings.shm = allowed;
        self
    }

    /// Who we are to the owners of memory that we write.
    pub fn client_id(mut self, id: ClientId) -> Self {
        self.settings.client_id = id;
        self
    }

    /// Another clock.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// Starts the engine. Sockets listen before anything is published.
    ///
    /// # Errors
    /// [`StartError`]: an address in use, no threads or descriptors left.
    pub fn build(self) -> Result<Engine, StartError> {
        let shared = Arc::new(Shared {
            endpoint: None,
            settings: self.settings,
            clock: self.clock,
            registry: Registry::default(),
            counters: EngineCounters::default(),
            segments: RwLock::new(BTreeMap::new()),
            transports: [Box::new(LocalTransport)],
            batches: BatchTable::default(),
            closed: AtomicBool::new(false),
        });
        if let Some(endpoint) = &shared.endpoint {
            IN_PROCESS.lock().insert(Arc::clone(endpoint), Arc::downgrade(&shared));
        }
        Ok(Engine(Arc::new(Running { shared })))
    }
}

pub(crate) struct Shared {
    pub(crate) endpoint: Option<Arc<str>>,
    pub(crate) settings: EngineSettings,
    pub(crate) clock: Clock,
    pub(crate) registry: Registry,
    pub(crate) counters: EngineCounters,
    segments: RwLock<BTreeMap<Arc<str>, SegmentHandle>>,
    transports: [Box<dyn Transport>; 1],
    batches: BatchTable,
    closed: AtomicBool,
}

struct Running {
    shared: Arc<Shared>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.close();
    }
}

/// A Transfer Engine. Clones are the same engine; it stops when the last one is dropped or [`Engine::shutdown`] is called.
#[derive(Clone)]
pub struct Engine(Arc<Running>);

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("endpoint", &self.0.shared.endpoint).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine that serves nobody, until told otherwise.
    pub fn builder() -> EngineBuilder {
        EngineBuilder { settings: EngineSettings::default(), clock: Clock::real() }
    }

    /// `host:port` that peers open; `None` when the engine serves nobody.
    pub fn endpoint(&self) -> Option<&str> {
        self.0.shared.endpoint.as_deref()
    }

    /// The time on the engine's clock: add to it to make a deadline.
    pub fn now(&self) -> MonotonicTime {
        self.0.shared.clock.now()
    }

    /// Makes a segment that peers on this host can map, and registers it.
    ///
    /// # Errors
    /// The system's; see [`MemorySegment::create`].
    pub fn allocate(&self, len: u64, options: SegmentOptions, access: Access) -> Result<Arc<MemorySegment>, MapError> {
        let segment = Arc::new(MemorySegment::create(len, options)?);
        let registered = self.register_segment(Arc::clone(&segment), access);
        debug_assert!(registered.is_ok(), "new memory overlaps nothing");
        Ok(segment)
    }

    /// Registers a segment of our own.
    ///
    /// # Errors
    /// [`RegistryError::Overlap`] when it is registered already.
    pub fn register_segment(&self, segment: Arc<MemorySegment>, access: Access) -> Result<(), RegistryError> {
        self.0.shared.registry.add_segment(segment, access)
    }

    /// Registers memory of somebody else. Peers reach it over TCP only.
    ///
    /// # Errors
    /// [`RegistryError::NotARange`], [`RegistryError::Overlap`].
    pub fn register_memory(&self, memory: ForeignMemory, access: Access) -> Result<(), RegistryError> {
        self.0.shared.registry.add_foreign(memory, access)
    }

    /// Releases the region that starts at `address`. When this succeeds nobody uses it any more through this engine.
    ///
    /// # Errors
    /// [`RegistryError::NotRegistered`]; [`RegistryError::Busy`] when transfers are still open after `patience`.
    pub fn unregister(&self, address: u64, patience: Duration) -> Result<(), RegistryError> {
        self.0.shared.registry.close(address);
        self.0.shared.registry.remove(address, patience)
    }

    /// Every registered region.
    pub fn regions(&self) -> Vec<RegionInfo> {
        self.0.shared.registry.regions()
    }

    /// A registered range as our side of a transfer.
    ///
    /// # Errors
    /// [`RegistryError::NotRegistered`] when it is not inside one region.
    pub fn local(&self, address: u64, len: u64) -> Result<LocalBuffer<'static>, RegistryError> {
        self.0.shared.registry.pin(address, len, Access::Local).map(LocalBuffer::from)
    }

    /// Opens the segment of the engine at `endpoint`. The answer is cached; nothing is connected until bytes move.
    ///
    /// # Errors
    /// [`TransferErrorKind::InvalidRequest`] when the text is not `host:port`.
    pub fn open_segment(&self, endpoint: &str) -> Result<SegmentHandle, TransferError> {
        self.0.shared.open_segment(endpoint)
    }

    /// Moves all requests and returns when nothing of them is in flight. Each has its own result.
    pub fn transfer_sync(&self, requests: &[Request<'_>], deadline: MonotonicTime) -> BatchOutcome {
        self.0.shared.run(requests, deadline, None)
    }

    /// As [`Engine::transfer_sync`], and another thread may stop it through `cancel`.
    pub fn transfer_until(
        &self,
        requests: &[Request<'_>],
        deadline: MonotonicTime,
        cancel: &CancelToken,
    ) -> BatchOutcome {
        self.0.shared.run(requests, deadline, Some(cancel))
    }

    /// Starts a batch. Small ones that need no socket are done when this returns.
    ///
    /// # Errors
    /// [`BatchError::TooMany`], [`BatchError::Closed`].
    pub fn submit(&self, requests: Vec<Request<'static>>, deadline: MonotonicTime) -> Result<BatchId, BatchError> {
        let shared = &self.0.shared;
        let total: u64 = requests.iter().map(|request| request.local.len()).sum();
        if total <= INLINE_BYTES && requests.iter().all(|request| request.segment.is_local()) {
            return shared.batches.push_done(shared.run(&requests, deadline, None));
        }
        match shared.batches.push(requests, deadline, MAX_BATCH_WORKERS)? {
            Pushed::Taken(id) => Ok(id),
            Pushed::StartWorker(id) => {
                let worker = Arc::clone(shared);
                let started = yb_env::spawn_thread("yb-batch", move || worker.serve_batches());
                if started.is_err() && shared.batches.worker_failed() {
                    return Err(BatchError::Closed);
                }
                Ok(id)
            }
        }
    }

    /// Where a batch stands.
    ///
    /// # Errors
    /// [`BatchError::Unknown`].
    pub fn status(&self, id: BatchId) -> Result<BatchStatus, BatchError> {
        self.0.shared.batches.status(id)
    }

    /// Waits until the batch is terminal or the time has come, and says where it stands.
    ///
    /// # Errors
    /// [`BatchError::Unknown`].
    pub fn wait(&self, id: BatchId, until: MonotonicTime) -> Result<BatchStatus, BatchError> {
        self.0.shared.batches.wait(id, until.since(self.now()))
    }

    /// Asks a batch to stop. It is terminal when its status says so.
    ///
    /// # Errors
    /// [`BatchError::Unknown`].
    pub fn cancel(&self, id: BatchId) -> Result<(), BatchError> {
        self.0.shared.batches.cancel(id)
    }

    /// Forgets a terminal batch.
    ///
    /// # Errors
    /// [`BatchError::Unknown`]; [`BatchError::Busy`] when it is not terminal.
    pub fn release(&self, id: BatchId) -> Result<(), BatchError> {
        self.0.shared.batches.release(id)
    }

    /// The counters now.
    pub fn stats(&self) -> TransferStats {
        self.0.shared.counters.snapshot()
    }

    /// Stops serving, cancels batches and refuses new transfers.
    pub fn shutdown(&self) {
        self.0.shared.close();
    }
}

impl Shared {
    fn open_segment(self: &Arc<Self>, endpoint: &str) -> Result<SegmentHandle, TransferError> {
        let endpoint = endpoint.trim_start_matches('/');
        if let Some(open) = self.segments.read().get(endpoint) {
            return Ok(open.clone());
        }
        if !endpoint.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
            return Err(TransferError::new(TransferErrorKind::InvalidRequest, endpoint, "an endpoint is host:port"));
        }
        let in_process = IN_PROCESS.lock().get(endpoint).cloned().unwrap_or_default();
        let endpoint: Arc<str> = endpoint.into();
        let segment = SegmentHandle(Arc::new(Segment { endpoint: Arc::clone(&endpoint), in_process }));
        Ok(self.segments.write().entry(endpoint).or_insert(segment).clone())
    }

    fn run(&self, requests: &[Request<'_>], deadline: MonotonicTime, cancel: Option<&CancelToken>) -> BatchOutcome {
        let limits = Limits { clock: &self.clock, deadline, cancel };
        let mut outcome = BatchOutcome { results: smallvec![Ok(()); requests.len()] };
        let mut left: SmallVec<[usize; 8]> = SmallVec::new();
        for (index, (request, result)) in requests.iter().zip(&mut outcome.results).enumerate() {
            match self.check(request) {
                Ok(true) => left.push(index),
                Ok(false) => {}
                Err(refused) => *result = Err(refused),
            }
        }
        for transport in &self.transports {
            if left.is_empty() {
                break;
            }
            self.run_on(transport.as_ref(), requests, &mut left, &limits, &mut outcome);
        }
        for index in left {
            if let (Some(request), Some(result)) = (requests.get(index), outcome.results.get_mut(index)) {
                *result = Err(request.segment.error(TransferErrorKind::Unreachable, "no transport reaches the range"));
            }
        }
        outcome
    }

    /// Whether there is something to move.
    fn check(&self, request: &Request<'_>) -> Result<bool, TransferError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(request.segment.error(TransferErrorKind::Closed, "the engine was shut down"));
        }
        if request.op == Opcode::Read && !request.local.span().is_writable() {
            return Err(request.segment.error(TransferErrorKind::InvalidRequest, "a read needs writable memory"));
        }
        Ok(!request.local.is_empty())
    }

    /// Runs those of `left` that the transport reaches, and takes them off.
    fn run_on(
        &self,
        transport: &dyn Transport,
        requests: &[Request<'_>],
        left: &mut SmallVec<[usize; 8]>,
        limits: &Limits<'_>,
        outcome: &mut BatchOutcome,
    ) {
        let mut jobs: SmallVec<[Job<'_>; 4]> = SmallVec::new();
        let mut taken: SmallVec<[usize; 8]> = SmallVec::new();
        left.retain(|index| {
            let Some(request) = requests.get(*index) else { return false };
            let (remote, len) = (request.remote.0, request.local.len());
            let reached = transport.reaches(&request.segment, remote, len, limits);
            if reached {
                let (op, local) = (request.op, request.local.span());
                jobs.push(Job { op, local, segment: &request.segment, remote, outcome: None });
                taken.push(*index);
            }
            !reached
        });
        if jobs.is_empty() {
            return;
        }
        transport.run(&mut jobs, limits);
        let counters = self.counters.of(transport.kind());
        for (job, index) in jobs.into_iter().zip(taken) {
            let result = job.outcome.unwrap_or_else(|| {
                Err(job.segment.error(TransferErrorKind::ConnectionLost, "the transport gave no outcome"))
            });
            match &result {
                Ok(()) => counters.succeeded(job.op, job.local.len() as u64),
                Err(_) => counters.failed(),
            }
            if let Some(slot) = outcome.results.get_mut(index) {
                *slot = result;
            }
        }
    }

    fn serve_batches(&self) {
        while let Some(work) = self.batches.next() {
            let outcome = self.run(&work.requests, work.deadline, Some(&work.cancel));
            drop(work.requests);
            self.batches.finish(work.id, outcome);
        }
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.batches.close();
        if let Some(endpoint) = &self.endpoint {
            IN_PROCESS.lock().remove(endpoint);
        }
    }
}
