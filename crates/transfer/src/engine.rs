//! The engine: regions, open segments, and the choice of transport.

use std::collections::BTreeMap;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use yb_env::Clock;
use yb_mem::{
    Access, ForeignMemory, LocalBuffer, Location, MapError, MemoryDevice, MemorySegment, RegionInfo, Registry,
    RegistryError, SegmentOptions,
};
use yb_types::{ClientId, MonotonicTime};

use crate::batch::queue::WorkQueue;
use crate::batch::table::BatchTable;
use crate::builder::Hardware;
use crate::control::ControlThread;
use crate::cxl;
use crate::file::{self, FileSet};
use crate::handshake::client::{Timing, exchange, kind_of};
use crate::handshake::frame::MessageType;
use crate::handshake::reply::Notification;
use crate::metadata::{BufferDesc, SegmentDesc};
use crate::naming::Naming;
use crate::paths::Paths;
use crate::publish::Held;
use crate::rdma::{NicReport, RdmaStats, RdmaTransport};
use crate::segment::{Segment, SegmentHandle};
use crate::serving::{Serving, Sockets, StartError};
use crate::settings::EngineSettings;
use crate::stats::EngineCounters;
use crate::tcp::server::DataThread;
use crate::transport::Limits;
use crate::{BatchOutcome, CancelToken, EngineBuilder, FilePart, FileSettings, Request, TransferError, TransferStats};

/// Engines of this process by endpoint, so that transfers between them need no socket.
static IN_PROCESS: Mutex<BTreeMap<Arc<str>, InProcess>> = Mutex::new(BTreeMap::new());

/// An engine, and the process that it is in: a child made by fork has only a copy of its parent's memory.
#[derive(Clone)]
struct InProcess {
    process: u32,
    engine: Weak<Shared>,
    /// Set when it ends, or loses its name.
    left: Arc<AtomicBool>,
}

impl InProcess {
    fn of(engine: &Arc<Shared>) -> Self {
        let left = Arc::clone(&engine.naming.left);
        InProcess { process: std::process::id(), engine: Arc::downgrade(engine), left }
    }

    /// Whether the engine is in the process that asks, and has its name.
    fn is_here(&self) -> bool {
        self.process == std::process::id() && !self.left.load(Ordering::Acquire)
    }
}

/// How many segments are remembered though nothing is open to them.
const KEPT_SEGMENTS: usize = 1024;

pub(crate) struct Shared {
    pub(crate) serving: Option<Serving>,
    pub(crate) settings: EngineSettings,
    pub(crate) clock: Clock,
    pub(crate) registry: Registry,
    pub(crate) counters: Arc<EngineCounters>,
    segments: RwLock<BTreeMap<Arc<str>, SegmentHandle>>,
    pub(crate) paths: Paths,
    pub(crate) hardware: Hardware,
    pub(crate) naming: Naming,
    pub(crate) batches: BatchTable,
    pub(crate) queue: WorkQueue,
    closed: AtomicBool,
}

pub(crate) struct Running {
    pub(crate) shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Running {
    fn serve(&self, sockets: Sockets) -> Result<(), StartError> {
        let Some(serving) = &self.shared.serving else { return Ok(()) };
        let mut threads = self.threads.lock();
        let mut listener = Some(sockets.data);
        for index in 0..serving.data.lanes.len() {
            let thread = DataThread::new(Arc::clone(&self.shared), Arc::clone(&serving.data), index, listener.take());
            threads.push(start("yb-data", move || thread.run())?);
        }
        let control = ControlThread::new(Arc::clone(&self.shared), Arc::clone(&serving.control), sockets.handshake);
        threads.push(start("yb-control", move || control.run())?);
        drop(threads);
        self.announce()
    }

    /// Publishes our records, where there is a store for them, and keeps them. Whoever reads them finds us listening.
    fn announce(&self) -> Result<(), StartError> {
        let Some(publisher) = self.shared.naming.publisher.clone() else { return Ok(()) };
        let shared = Arc::clone(&self.shared);
        let settings = self.shared.settings.clone();
        let own = move |version| shared.versioned_desc(version);
        publisher.claim(&settings, &own)?;
        self.threads.lock().push(start("yb-publish", move || publisher.run(&settings, own))?);
        Ok(())
    }

    fn stop(&self) {
        self.shared.close();
        self.shared.queue.join();
        self.shared.paths.stop();
        for thread in self.threads.lock().drain(..) {
            let _ = thread.join();
        }
    }
}

fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    yb_env::spawn_thread(name, body).map_err(|source| StartError::Os { what: "starting a thread", source })
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A Transfer Engine. Clones are the same engine; it stops when the last one is dropped or [`Engine::shutdown`] is called.
#[derive(Clone)]
pub struct Engine(pub(crate) Arc<Running>);

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("endpoint", &self.endpoint()).finish_non_exhaustive()
    }
}

impl Engine {
    /// An engine that serves nobody, until told otherwise.
    pub fn builder() -> EngineBuilder {
        EngineBuilder::default()
    }

    pub(crate) fn start(shared: Shared, sockets: Option<Sockets>) -> Result<Self, StartError> {
        let shared = Arc::new(shared);
        let engine = Engine(Arc::new(Running { shared: Arc::clone(&shared), threads: Mutex::new(Vec::new()) }));
        if let Some(sockets) = sockets {
            engine.0.serve(sockets)?;
        }
        if let Some(serving) = &shared.serving {
            let scoped = shared.naming.scoped(serving);
            IN_PROCESS.lock().insert(scoped, InProcess::of(&shared));
        }
        Ok(engine)
    }

    /// The name that peers open: that of the metadata store, else [`Engine::endpoint`]; `None` when the engine serves
    /// nobody.
    pub fn name(&self) -> Option<&str> {
        self.0.shared.serving.as_ref().map(|_| &*self.0.shared.naming.name)
    }

    /// Where the engine is that has taken this one's name in the metadata store: peers that open the name reach that one.
    /// `None` while the name is ours, or needs no store.
    pub fn name_taken_by(&self) -> Option<Arc<str>> {
        self.0.shared.naming.publisher.as_ref()?.taken_by()
    }

    /// As [`Engine::name_taken_by`], by what the store says now; it is asked, which takes as long as it needs.
    pub fn confirm_name(&self) -> Option<Arc<str>> {
        self.0.shared.naming.publisher.as_ref()?.confirm()
    }

    /// What this engine tells peers about itself now.
    pub fn own_desc(&self) -> SegmentDesc {
        let shared = &self.0.shared;
        match &shared.naming.publisher {
            Some(publisher) => shared.versioned_desc(publisher.version()),
            None => shared.own_desc(),
        }
    }

    /// Makes several changes of regions, and publishes them together, where a metadata store is in use.
    pub fn publish_together<T>(&self, changes: impl FnOnce() -> T) -> T {
        let _held = self.0.shared.naming.publisher.as_deref().map(Held::new);
        changes()
    }

    /// `host:port` that peers open; `None` when the engine serves nobody.
    pub fn endpoint(&self) -> Option<&str> {
        self.0.shared.serving.as_ref().map(|serving| &*serving.endpoint)
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.0.shared
    }

    /// The time on the engine's clock: add to it to make a deadline.
    pub fn now(&self) -> MonotonicTime {
        self.0.shared.clock.now()
    }

    /// Makes a segment that peers on this host can map, and registers it.
    ///
    /// # Errors
    /// The system's, see [`MemorySegment::create`]; [`MapError::Overlap`].
    pub fn allocate(&self, len: u64, options: SegmentOptions, access: Access) -> Result<Arc<MemorySegment>, MapError> {
        let segment = Arc::new(MemorySegment::create(len, options)?);
        if let Some(error) = segment.misplaced() {
            tracing::warn!(node = ?options.numa_node, %error, "memory is not placed on the NUMA node that was asked for");
        }
        self.register_segment(Arc::clone(&segment), access).map_err(|_| MapError::Overlap)?;
        Ok(segment)
    }

    /// Touches every page of a segment in the background, so that transfers do not pay for page faults, and then tells
    /// peers on this host that mapping the pages costs no memory. The memory is taken from the system by this.
    pub fn populate_behind(&self, segment: &Arc<MemorySegment>) {
        let (segment, shared) = (Arc::clone(segment), Arc::downgrade(&self.0.shared));
        let open = |shared: &Weak<Shared>| shared.upgrade().is_some_and(|s| !s.closed.load(Ordering::SeqCst));
        let started = yb_env::spawn_thread("yb-populate", move || {
            if let Err(error) = segment.populate(|| open(&shared)) {
                tracing::warn!(%error, "the segment's pages are made at first use");
            }
            if let Some(shared) = shared.upgrade().filter(|_| segment.is_populated()) {
                shared.regions_changed();
            }
        });
        if let Err(error) = started {
            tracing::warn!(%error, "the segment's pages are made at first use");
        }
    }

    /// Registers a segment of our own.
    ///
    /// # Errors
    /// [`RegistryError::Overlap`] when it is registered already; [`RegistryError::Refused`].
    pub fn register_segment(&self, segment: Arc<MemorySegment>, access: Access) -> Result<(), RegistryError> {
        self.register_segment_at(segment, access, Location::default())
    }

    /// As [`Engine::register_segment`], and says where the memory lives.
    ///
    /// # Errors
    /// As [`Engine::register_segment`].
    pub fn register_segment_at(
        &self,
        segment: Arc<MemorySegment>,
        access: Access,
        location: Location,
    ) -> Result<(), RegistryError> {
        let shared = &self.0.shared;
        shared.publish(&shared.registry.prepare_segment(segment, access, location)?)
    }

    /// Registers memory of somebody else, also on a GPU, which is found out. Peers cannot map it.
    ///
    /// # Errors
    /// [`RegistryError::NotARange`], [`RegistryError::Overlap`], [`RegistryError::Refused`].
    pub fn register_memory(&self, memory: ForeignMemory, access: Access) -> Result<(), RegistryError> {
        self.register_memory_at(memory, access, Location::default())
    }

    /// As [`Engine::register_memory`], and says where the memory lives.
    ///
    /// # Errors
    /// As [`Engine::register_memory`].
    pub fn register_memory_at(
        &self,
        memory: ForeignMemory,
        access: Access,
        location: Location,
    ) -> Result<(), RegistryError> {
        let shared = &self.0.shared;
        let (memory, location) = shared.hardware.gpus.mark(memory, location)?;
        shared.publish(&shared.registry.prepare_foreign(memory, access, location)?)
    }

    /// Releases the region that starts at `address`. When this succeeds nobody uses it any more through this engine.
    ///
    /// # Errors
    /// [`RegistryError::NotRegistered`]; [`RegistryError::Busy`] when transfers are still open after `patience`.
    pub fn unregister(&self, address: u64, patience: Duration) -> Result<(), RegistryError> {
        let shared = &self.0.shared;
        shared.registry.close(address);
        if let Some(serving) = &shared.serving {
            serving.data.recall();
        }
        shared.naming.changed();
        let shm = shared.serving.as_ref().and_then(|serving| serving.shm.as_ref());
        if shm.is_some_and(|shm| !shm.let_copies_end(patience)) {
            return Err(RegistryError::Busy { address, users: 1 });
        }
        shared.registry.remove_after(address, patience, || shared.paths.region_removed(address))
    }

    /// The mapped memory device of the settings. Parts of it are registered as [`ForeignMemory::of_device`].
    pub fn memory_device(&self) -> Option<&Arc<MemoryDevice>> {
        self.0.shared.hardware.device.as_ref()
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

    /// Registered memory from `address` to the end of its region, as our side of transfers.
    ///
    /// # Errors
    /// [`RegistryError::NotRegistered`] when it is in no region.
    pub fn local_rest(&self, address: u64) -> Result<LocalBuffer<'static>, RegistryError> {
        self.0.shared.registry.pin_rest(address, Access::Local).map(LocalBuffer::from)
    }

    /// Opens the segment of the engine at `endpoint`, or of that name in the metadata store. The answer is cached;
    /// nothing is connected until bytes move. Names of a store with a `/` in them may be segments of files, which are
    /// opened at the paths that the store has for this engine's name. `file://PATH` opens a local file or
    /// block device, anew with each call, with the engine's [`FileSettings`]; `cxl://` opens the engine's memory
    /// device: remote addresses are offsets in it.
    ///
    /// # Errors
    /// [`TransferErrorKind::InvalidRequest`] when the text is not `host:port`; for files as [`Engine::open_files`].
    pub fn open_segment(&self, endpoint: &str) -> Result<SegmentHandle, TransferError> {
        if let Some(path) = endpoint.strip_prefix(file::SCHEME) {
            let part = FilePart { path: path.into(), len: None };
            return self.open_files(endpoint, &[part], self.0.shared.settings.file);
        }
        match self.0.shared.naming.files(endpoint)? {
            Some(files) => self.open_files(endpoint, &files, self.0.shared.settings.file),
            None => self.0.shared.open_segment(endpoint),
        }
    }

    /// Opens files, laid end to end, as one segment: a remote address is an offset into them. Where writing is not
    /// allowed they are opened for reading.
    ///
    /// # Errors
    /// [`TransferErrorKind::Unreachable`] when a file is not there; [`TransferErrorKind::InvalidRequest`] when it cannot
    /// be opened, is of no use as a segment, or all are empty.
    pub fn open_files(
        &self,
        name: &str,
        files: &[FilePart],
        settings: FileSettings,
    ) -> Result<SegmentHandle, TransferError> {
        let opened = FileSet::open(name, files, settings)?;
        Ok(SegmentHandle(Arc::new(Segment::of_files(name.into(), opened))))
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

    /// The counters of the RDMA transport; `None` when RDMA is not used.
    pub fn rdma_stats(&self) -> Option<RdmaStats> {
        self.0.shared.paths.rdma().map(RdmaTransport::stats)
    }

    /// The RDMA devices of this engine, in their order, and the address of each; empty when RDMA is not used.
    pub fn rdma_devices(&self) -> Vec<NicReport> {
        self.0.shared.paths.rdma().map(RdmaTransport::devices).unwrap_or_default()
    }

    /// The counters now.
    pub fn stats(&self) -> TransferStats {
        self.0.shared.counters.snapshot()
    }

    /// Stops serving, refuses new transfers, cancels batches and waits until nothing of them is in flight.
    pub fn shutdown(&self) {
        self.0.stop();
    }

    /// Notifications that peers left since the last call, oldest first.
    pub fn take_notifications(&self) -> Vec<Notification> {
        let serving = self.0.shared.serving.as_ref();
        serving.map(|serving| serving.control.mailbox.lock().take()).unwrap_or_default()
    }

    /// Leaves a notification with a peer.
    ///
    /// # Errors
    /// [`TransferErrorKind::Unreachable`] and [`TransferErrorKind::Protocol`].
    pub fn notify(
        &self,
        segment: &SegmentHandle,
        notification: &Notification,
        deadline: MonotonicTime,
    ) -> Result<(), TransferError> {
        self.0.shared.notify(segment, notification, deadline)
    }

    /// Asks whether a peer's process answers.
    ///
    /// # Errors
    /// [`TransferErrorKind::Unreachable`] when it does not.
    pub fn probe(&self, segment: &SegmentHandle, deadline: MonotonicTime) -> Result<(), TransferError> {
        self.0.shared.message(segment, MessageType::Probe, "{}\n", deadline)
    }

    /// Ends the writes of peers over TCP that are under way here, soon after: for an owner whose memory is about to be
    /// given to others. Peers that have it mapped cannot be stopped.
    pub fn end_writes(&self) {
        if let Some(serving) = &self.0.shared.serving {
            serving.data.end_writes();
        }
    }

    /// Whether no transfer that a peer started can still write into `address..address+len`, as far as an owner can
    /// know: no TCP session is writing there or holds bytes that were not looked at, and no peer that says it is
    /// `writer` has our memory mapped (without a writer: no peer at all). TCP names no writer, so its sessions count
    /// whoever they belong to; bytes still under way in the network are not seen.
    pub fn is_quiesced(&self, address: u64, len: u64, writer: Option<ClientId>) -> bool {
        let Some(serving) = &self.0.shared.serving else { return true };
        serving.data.is_quiet(address, len) && serving.shm.as_ref().is_none_or(|shm| shm.is_quiet(writer))
    }
}

impl Shared {
    pub(crate) fn new(
        settings: EngineSettings,
        clock: Clock,
        counters: Arc<EngineCounters>,
        paths: Paths,
        serving: Option<Serving>,
        hardware: Hardware,
        naming: Naming,
    ) -> Self {
        let queue = WorkQueue::new(settings.class_weights);
        Shared {
            serving,
            settings,
            clock,
            registry: Registry::default(),
            counters,
            segments: RwLock::new(BTreeMap::new()),
            paths,
            hardware,
            naming,
            batches: BatchTable::default(),
            queue,
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn notify(
        &self,
        segment: &SegmentHandle,
        notification: &Notification,
        deadline: MonotonicTime,
    ) -> Result<(), TransferError> {
        let limits = Limits { clock: &self.clock, deadline, cancel: None };
        if let Some(sent) = self.paths.notify(segment, notification, &limits) {
            return sent;
        }
        let json = serde_json::json!({"name": notification.name, "notify_msg": notification.message});
        self.message(segment, MessageType::Notify, &format!("{json}\n"), deadline)
    }

    fn message(
        &self,
        segment: &SegmentHandle,
        kind: MessageType,
        json: &str,
        deadline: MonotonicTime,
    ) -> Result<(), TransferError> {
        let limits = Limits { clock: &self.clock, deadline, cancel: None };
        let timing = Timing::of(&self.settings);
        let send = |refresh| {
            let place = segment.handshake(&self.settings, refresh, &limits)?;
            let sent = exchange(&place.host, place.port, kind, json.as_bytes(), &timing, &limits);
            sent.map_err(|error| segment.error(kind_of(&error), format!("{kind:?}: {error}")))
        };
        let sent = send(false).or_else(|error| if segment.is_named() { send(true) } else { Err(error) });
        sent.map(drop)
    }

    /// What we say about ourselves now.
    pub(crate) fn own_desc(&self) -> SegmentDesc {
        let Some(serving) = &self.serving else { return SegmentDesc::default() };
        let published = self.registry.regions().into_iter().filter(|region| region.access == Access::Remote);
        let mut desc = SegmentDesc {
            buffers: published.map(|region| BufferDesc::new(region.address, region.len)).collect(),
            data_host: Some(serving.host.clone()),
            data_port: serving.data_port,
            shm: serving.shm.as_ref().map(|shm| shm.desc.clone()),
            ..SegmentDesc::tcp(self.naming.name.to_string())
        };
        self.paths.describe(&mut desc);
        desc
    }

    /// As [`Shared::own_desc`], as a store keeps it.
    fn versioned_desc(&self, version: u64) -> SegmentDesc {
        SegmentDesc { metadata_version: Some(version), ..self.own_desc() }
    }

    /// Makes a prepared region usable for every transport, and opens it.
    fn publish(&self, region: &RegionInfo) -> Result<(), RegistryError> {
        if let Err(refused) = self.paths.region_added(region) {
            self.registry.abandon(region.address);
            return Err(refused);
        }
        self.registry.publish(region.address);
        self.regions_changed();
        Ok(())
    }

    /// Tells peers that have our memory mapped to look again, and the metadata store what there is now.
    fn regions_changed(&self) {
        if let Some(shm) = self.serving.as_ref().and_then(|serving| serving.shm.as_ref()) {
            shm.page.bump();
        }
        self.naming.changed();
    }

    fn open_segment(self: &Arc<Self>, endpoint: &str) -> Result<SegmentHandle, TransferError> {
        let endpoint = endpoint.trim_start_matches('/');
        if let Some(open) = self.segments.read().get(endpoint).filter(|open| !open.0.is_left()) {
            return Ok(open.clone());
        }
        if !(endpoint.starts_with(cxl::SCHEME) && self.hardware.device.is_some()) {
            self.naming.directory.check(endpoint)?;
        }
        let scoped = self.naming.directory.scoped(endpoint);
        let found = || IN_PROCESS.lock().get(&scoped).filter(|found| found.is_here()).cloned();
        let found = self.settings.in_process.then(found).flatten();
        let (in_process, left) = found.map(|found| (found.engine, Some(found.left))).unwrap_or_default();
        let endpoint: Arc<str> = endpoint.into();
        let mut made = Segment::new(Arc::clone(&endpoint), in_process, self.naming.directory.clone());
        made.left = left;
        let segment = SegmentHandle(Arc::new(made));
        let mut segments = self.segments.write();
        if segments.get(&endpoint).is_some_and(|open| open.0.is_left()) {
            segments.remove(&endpoint);
        }
        self.prune(&mut segments);
        Ok(segments.entry(endpoint).or_insert(segment).clone())
    }

    /// Peers come back under new names: what is kept for the old ones is let go when a new one is met.
    fn prune(&self, segments: &mut BTreeMap<Arc<str>, SegmentHandle>) {
        let now = self.clock.now();
        let crowded = segments.len() >= KEPT_SEGMENTS;
        segments.retain(|_, segment| {
            let open = segment.prune(now, self.settings.idle_lane_timeout);
            open || !crowded || Arc::strong_count(&segment.0) > 1
        });
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    fn close(&self) {
        if self.closed.swap(true, Ordering::SeqCst) {
            return;
        }
        for batch in self.batches.close() {
            // Cancelling all of a batch cannot be refused.
            let _ = batch.cancel(None);
        }
        self.queue.close();
        if let Some(serving) = &self.serving {
            self.naming.left.store(true, Ordering::Release);
            let scoped = self.naming.scoped(serving);
            let mut engines = IN_PROCESS.lock();
            // A younger engine may have taken the name.
            if engines.get(&scoped).is_some_and(|found| std::ptr::eq(found.engine.as_ptr(), self)) {
                engines.remove(&scoped);
            }
            drop(engines);
            if let Some(publisher) = &self.naming.publisher {
                publisher.stop();
            }
            serving.control.stop();
            serving.data.stop();
        }
    }
}
