//! An engine of this API: its start, its name, its peers.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use yb_secure::Security;
use yb_transfer::rdma::{RdmaMode, RdmaSettings};
use yb_transfer::{AddressError, Engine, EngineSettings, Notification, RemoteRegion, SegmentHandle};
use yb_types::MonotonicTime;

use crate::batches::BatchLedger;
use crate::options::{ClassicOptions, Environment, Protocol};
use crate::segments::{SegmentId, SegmentTable};
use crate::status::{ClassicError, StatusCode};

/// How long a question to a peer may take.
const ASK: Duration = Duration::from_secs(10);

/// A Transfer Engine as Mooncake's users know it. Clones are the same engine; it stops when the last one is dropped or
/// [`ClassicEngine::shutdown`] is called.
#[derive(Clone)]
pub struct ClassicEngine(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) environment: Environment,
    pub(crate) ledger: BatchLedger,
    pub(crate) filters: Vec<String>,
    name: String,
    endpoint: String,
    port: u16,
    segments: RwLock<SegmentTable>,
    /// One batch registration at a time, so that it is all or nothing.
    pub(crate) registering: Mutex<()>,
}

impl std::fmt::Debug for ClassicEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClassicEngine").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.engine.shutdown();
    }
}

impl ClassicEngine {
    /// Starts an engine: binds its ports, looks for devices, tells the metadata store.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that makes no sense, `Socket` for a port in use, `DeviceNotFound` when RDMA was
    /// demanded and no device is there, `Metadata` when the store does not answer.
    pub fn start(options: ClassicOptions) -> Result<Self, ClassicError> {
        let engine = build(&options)?;
        let endpoint = engine.endpoint().unwrap_or_default().to_owned();
        let port = endpoint.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0);
        let name = engine.name().unwrap_or_default().to_owned();
        let own = engine.open_segment(&name)?;
        let segments = RwLock::new(SegmentTable::new(&name, own));
        Ok(ClassicEngine(Arc::new(Inner {
            engine,
            environment: options.environment,
            filters: options.filters,
            ledger: BatchLedger::default(),
            name,
            endpoint,
            port,
            segments,
            registering: Mutex::new(()),
        })))
    }

    /// The engine below.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// The name that peers open: `host:port` without a metadata store, else the name given.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// `host:port` of the handshake.
    pub fn local_ip_and_port(&self) -> &str {
        &self.0.endpoint
    }

    /// Port of the handshake.
    pub fn rpc_port(&self) -> u16 {
        self.0.port
    }

    /// RDMA devices in use.
    pub fn contexts(&self) -> usize {
        self.0.engine.rdma_devices().iter().filter(|device| device.gid.is_ok()).count()
    }

    /// Whether peers on other hosts are reached over TCP only.
    pub fn is_tcp_only(&self) -> bool {
        self.contexts() == 0
    }

    /// Whether a transport of that name is installed: what the peer's `installTransport` and `getTransport` ask.
    ///
    /// # Errors
    /// `DeviceNotFound`, `NotSupportedTransport`.
    pub fn require_transport(&self, name: &str) -> Result<(), ClassicError> {
        match Protocol::exact(name)? {
            Protocol::Auto | Protocol::Tcp => Ok(()),
            Protocol::Rdma if self.contexts() > 0 => Ok(()),
            Protocol::Rdma => Err(no_rdma()),
        }
    }

    /// Opens a segment by name: `host:port`, or a name of the metadata store. Leading slashes are dropped. The owner is
    /// asked once; later calls answer from memory.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that makes no sense, `Socket` when nobody answers there, `Metadata` for a name that
    /// the store does not know.
    pub fn open_segment(&self, name: &str) -> Result<SegmentId, ClassicError> {
        self.open(name, self.0.environment.no_cache)
    }

    /// As [`ClassicEngine::open_segment`], and the owner is asked even if it was before.
    ///
    /// # Errors
    /// As there.
    pub fn open_segment_no_cache(&self, name: &str) -> Result<SegmentId, ClassicError> {
        self.open(name, true)
    }

    fn open(&self, name: &str, refresh: bool) -> Result<SegmentId, ClassicError> {
        let name = name.trim_start_matches('/');
        if name.is_empty() {
            return Err(ClassicError::new(StatusCode::InvalidArgument, "the name of a segment is empty"));
        }
        let known = self.0.segments.read().id(name);
        if let Some(id) = known.filter(|id| !refresh || *id == SegmentId::LOCAL) {
            return Ok(id);
        }
        let handle = self.0.engine.open_segment(name)?;
        self.0.engine.remote_regions(&handle, refresh, self.deadline())?;
        Ok(self.0.segments.write().add(name, handle))
    }

    /// Nothing has to be done when a segment is not used any more.
    ///
    /// # Errors
    /// `InvalidArgument` for a number that was never given out.
    pub fn close_segment(&self, id: SegmentId) -> Result<(), ClassicError> {
        self.handle(id).map(drop)
    }

    /// Forgets what the owner of the segment said; its next use asks again. The number stays valid.
    ///
    /// # Errors
    /// `InvalidArgument` for a name that is not open.
    pub fn remove_local_segment(&self, name: &str) -> Result<(), ClassicError> {
        let name = name.trim_start_matches('/');
        let id = self.0.segments.read().id(name);
        let Some(id) = id else {
            return Err(ClassicError::new(StatusCode::InvalidArgument, format!("segment {name:?} is not open")));
        };
        let handle = self.handle(id)?;
        // Asking again replaces what is known; an owner that does not answer is forgotten by the attempt.
        let _ = self.0.engine.remote_regions(&handle, true, self.deadline());
        Ok(())
    }

    /// Asks the owner of one segment, or of all open ones, what it has registered now.
    ///
    /// # Errors
    /// The first owner's that did not answer, after all were asked.
    pub fn sync_segment_cache(&self, name: Option<&str>) -> Result<(), ClassicError> {
        let handles = match name.filter(|name| !name.is_empty()) {
            Some(name) => {
                let id = self.0.segments.read().id(name.trim_start_matches('/'));
                match id {
                    Some(id) => vec![self.handle(id)?],
                    None => return self.open(name, true).map(drop),
                }
            }
            None => self.0.segments.read().peers(),
        };
        let mut first = Ok(());
        for handle in handles {
            let asked = self.0.engine.remote_regions(&handle, true, self.deadline());
            first = first.and(asked.map(drop));
        }
        Ok(first?)
    }

    /// What the owner of a segment has registered, in its order.
    ///
    /// # Errors
    /// `InvalidArgument` for a number that was never given out, `Socket` when the owner does not answer.
    pub fn segment_buffers(&self, id: SegmentId) -> Result<Vec<RemoteRegion>, ClassicError> {
        if id == SegmentId::LOCAL {
            let served = self.0.engine.regions().into_iter().filter(|r| r.access == yb_transfer::Access::Remote);
            return Ok(served.map(|r| RemoteRegion { address: r.address, len: r.len }).collect());
        }
        let handle = self.handle(id)?;
        Ok(self.0.engine.remote_regions(&handle, self.0.environment.no_cache, self.deadline())?)
    }

    /// First registered address of a segment; `None` when it has none.
    ///
    /// # Errors
    /// As [`ClassicEngine::open_segment`].
    pub fn first_buffer_address(&self, name: &str) -> Result<Option<u64>, ClassicError> {
        let id = self.open_segment(name)?;
        let first = |buffers: &[RemoteRegion]| buffers.first().map(|buffer| buffer.address);
        if let Some(address) = first(&self.segment_buffers(id)?) {
            return Ok(Some(address));
        }
        // The owner may have registered memory since it was asked.
        self.sync_segment_cache(Some(name))?;
        Ok(first(&self.segment_buffers(id)?))
    }

    /// Leaves a notification with the owner of a segment.
    ///
    /// # Errors
    /// `InvalidArgument` for a number that was never given out, `Socket` when the owner does not answer.
    pub fn send_notify(&self, id: SegmentId, notification: &Notification) -> Result<(), ClassicError> {
        let handle = self.handle(id)?;
        Ok(self.0.engine.notify(&handle, notification, self.deadline())?)
    }

    /// As [`ClassicEngine::send_notify`], by name.
    ///
    /// # Errors
    /// As there, and as [`ClassicEngine::open_segment`].
    pub fn send_notify_by_name(&self, name: &str, notification: &Notification) -> Result<(), ClassicError> {
        self.send_notify(self.open_segment(name)?, notification)
    }

    /// Notifications that peers left since the last call, oldest first.
    pub fn take_notifies(&self) -> Vec<Notification> {
        self.0.engine.take_notifications()
    }

    /// Asks whether the process behind a segment answers.
    ///
    /// # Errors
    /// `Socket` when it does not.
    pub fn probe(&self, id: SegmentId) -> Result<(), ClassicError> {
        let handle = self.handle(id)?;
        Ok(self.0.engine.probe(&handle, self.deadline())?)
    }

    /// As [`ClassicEngine::probe`], by name; the segment is not opened by it.
    ///
    /// # Errors
    /// As there, and `InvalidArgument` for a name that makes no sense.
    pub fn probe_by_name(&self, name: &str) -> Result<(), ClassicError> {
        let handle = self.0.engine.open_segment(name)?;
        Ok(self.0.engine.probe(&handle, self.deadline())?)
    }

    /// Stops serving, refuses new transfers, and waits until nothing is in flight. A second call does nothing.
    pub fn shutdown(&self) {
        self.0.engine.shutdown();
    }

    pub(crate) fn handle(&self, id: SegmentId) -> Result<SegmentHandle, ClassicError> {
        self.0
            .segments
            .read()
            .handle(id)
            .cloned()
            .ok_or_else(|| ClassicError::new(StatusCode::InvalidArgument, format!("segment {} was never opened", id.0)))
    }

    /// Until when a question to a peer may take.
    fn deadline(&self) -> MonotonicTime {
        self.0.engine.now() + ASK
    }
}

fn no_rdma() -> ClassicError {
    let detail = "no RDMA device with an active port was found; use tcp, or look at `yuebing doctor`";
    ClassicError::new(StatusCode::DeviceNotFound, detail)
}

fn build(options: &ClassicOptions) -> Result<Engine, ClassicError> {
    let store = yb_metadata::connect(&options.metadata).map_err(|e| ClassicError::new(StatusCode::Metadata, e))?;
    let builder = Engine::builder().settings(settings(options, store.is_some())?);
    let builder = match store {
        Some(store) => builder.metadata(store).name(&options.local_server_name),
        None => builder,
    };
    Ok(builder.build()?)
}

fn settings(options: &ClassicOptions, store: bool) -> Result<EngineSettings, ClassicError> {
    let mut settings = EngineSettings::from_env(|name| std::env::var(name).ok());
    settings.security = Security::from_env().map_err(|error| ClassicError::new(StatusCode::InvalidArgument, error))?;
    settings.shm &= options.same_host;
    settings.in_process = options.same_host;
    settings.rdma = rdma(options);
    if options.local_server_name.is_empty() {
        return Err(ClassicError::new(StatusCode::InvalidArgument, "the server name is empty"));
    }
    let applied = options.environment.addresses.apply(&mut settings, &options.local_server_name, store);
    applied.map_err(|error| {
        let code = if error == AddressError::NoInterface { StatusCode::Socket } else { StatusCode::InvalidArgument };
        ClassicError::new(code, error)
    })?;
    // Peers reach a loopback name through loopback only, so nobody else needs to.
    let loopback = settings.advertise_host.as_deref().and_then(|host| host.parse::<IpAddr>().ok());
    if let (Some(host), Some(listen)) = (loopback.filter(IpAddr::is_loopback), settings.listen.as_mut()) {
        listen.set_ip(host);
    }
    Ok(settings)
}

fn rdma(options: &ClassicOptions) -> RdmaSettings {
    let mode = match options.protocol {
        _ if options.environment.force_tcp => RdmaMode::Off,
        Protocol::Tcp => RdmaMode::Off,
        Protocol::Auto if !options.auto_discover => RdmaMode::Off,
        Protocol::Auto => RdmaMode::Auto,
        Protocol::Rdma => RdmaMode::Required,
    };
    let mut settings = RdmaSettings::from_env(|name| std::env::var(name).ok());
    settings.mode = mode;
    if !options.filters.is_empty() {
        settings.devices = options.filters.clone();
    }
    if options.matrix.is_some() {
        settings.matrix = options.matrix.clone();
    }
    settings
}
