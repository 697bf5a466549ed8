//! Collects the parts of an engine and puts them together.

use std::net::SocketAddr;
use std::sync::Arc;

use yb_env::Clock;
use yb_mem::MemoryDevice;
use yb_metadata::MetadataStore;
use yb_types::ClientId;

use crate::cxl::{CxlSettings, CxlTransport};
use crate::device::{Gpus, IpcTransport};
use crate::engine::{Engine, Shared};
use crate::file::FileTransport;
use crate::local::LocalTransport;
use crate::naming::Naming;
use crate::paths::Paths;
use crate::rdma::RdmaTransport;
use crate::serving::{Sockets, StartError};
use crate::settings::EngineSettings;
use crate::shm::client::ShmTransport;
use crate::shm::neighbours::Neighbours;
use crate::shm::process_vm::ProcessVmTransport;
use crate::stats::EngineCounters;
use crate::tcp::client::TcpTransport;
use crate::transport::Transport;

/// Collects the parts of an engine.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    settings: EngineSettings,
    clock: Clock,
    store: Option<Arc<dyn MetadataStore>>,
    name: Option<String>,
}

impl Default for EngineBuilder {
    fn default() -> Self {
        EngineBuilder { settings: EngineSettings::default(), clock: Clock::real(), store: None, name: None }
    }
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

    /// Names of segments are looked up in this store, and ours is published there. Without one they are `host:port`.
    pub fn metadata(mut self, store: Arc<dyn MetadataStore>) -> Self {
        self.store = Some(store);
        self
    }

    /// The name under which peers find this engine in the store, such as `nodeA:44201`. Means nothing without a store.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Starts the engine. Sockets listen before anything is published.
    ///
    /// # Errors
    /// [`StartError`]: an address in use, no threads or descriptors left, a memory device that cannot be mapped, RDMA
    /// that is required and not there; with a store, a name that cannot be published.
    pub fn build(self) -> Result<Engine, StartError> {
        if let Some(security) = self.settings.security.as_ref().filter(|_| self.settings.listen.is_some()) {
            security.can_serve()?;
        }
        let sockets = self.settings.listen.map(|listen| Sockets::bind(listen, &self.settings)).transpose()?;
        let serving = sockets.as_ref().map(|sockets| sockets.serving(self.settings.shm)).transpose()?;
        let counters = Arc::new(EngineCounters::default());
        let hardware = Hardware::open(&self.settings)?;
        let mut transports = transports(&self.settings, &counters, &hardware);
        let naming = Naming::new(self.store, self.name, serving.as_ref(), &self.settings, &self.clock)?;
        let server = serving.as_ref().map(|_| &naming.name);
        let publisher = naming.publisher.clone();
        let changed = move || publisher.iter().for_each(|publisher| publisher.stale());
        let rdma = RdmaTransport::start(&self.settings, &self.clock, server, Box::new(changed));
        if let Some(rdma) = rdma.map_err(|reason| StartError::Rdma { reason })? {
            transports.push(Box::new(rdma));
        }
        let paths = Paths::new(transports, Arc::clone(&counters)).with_gpus(Arc::clone(&hardware.gpus));
        Engine::start(Shared::new(self.settings, self.clock, counters, paths, serving, hardware, naming), sockets)
    }
}

/// What an engine has beside memory of the host.
pub(crate) struct Hardware {
    /// The memory device that is shared with others.
    pub(crate) device: Option<Arc<MemoryDevice>>,
    pub(crate) gpus: Arc<Gpus>,
}

impl Hardware {
    /// Maps the memory device that the settings name; looks for GPUs only when they are needed.
    fn open(settings: &EngineSettings) -> Result<Self, StartError> {
        let open = |cxl: &CxlSettings| {
            let opened = MemoryDevice::open(&cxl.path, cxl.size, cxl.coherence);
            opened.map(Arc::new).map_err(|source| StartError::Device { path: cxl.path.clone(), source })
        };
        let device = settings.cxl.as_ref().map(open).transpose()?;
        Ok(Hardware { device, gpus: Arc::new(Gpus::new(settings.cuda_library.clone())) })
    }
}

/// The transports that the settings and the machine allow, in any order.
fn transports(
    settings: &EngineSettings,
    counters: &Arc<EngineCounters>,
    hardware: &Hardware,
) -> Vec<Box<dyn Transport>> {
    let mut list: Vec<Box<dyn Transport>> = vec![
        Box::new(LocalTransport { device: hardware.device.clone(), gpus: Arc::clone(&hardware.gpus) }),
        Box::new(FileTransport::new(settings.file, Arc::clone(counters))),
        Box::new(TcpTransport::new(settings.clone())),
    ];
    list.push(Box::new(IpcTransport::new(Arc::clone(&hardware.gpus), settings)));
    if let Some(device) = &hardware.device {
        list.push(Box::new(CxlTransport::new(Arc::clone(device), settings)));
    }
    if settings.shm {
        let neighbours = Arc::new(Neighbours::new(settings.clone(), Arc::clone(counters)));
        list.push(Box::new(ShmTransport::new(Arc::clone(&neighbours))));
        list.push(Box::new(ProcessVmTransport::new(neighbours)));
    }
    list
}
