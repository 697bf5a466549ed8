//! A running master.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use parking_lot::Mutex;
use yb_admin::{Admin, AdminError, ChangeReport, Control, ControlError, MetadataOptions, MetadataServer, Parts};
use yb_catalog::{BadSettings, Catalog};
use yb_env::{Rng, spawn_thread};
use yb_rpc::{BoundListener, Server, ServerSettings, StartError};
use yb_types::WireVersion;
use yb_wire::WireProfile;

use crate::attendance::Attendance;
use crate::bulk::Bulk;
use crate::config::MasterConfig;
use crate::control::MasterControl;
use crate::dial::Dialer;
use crate::doubts::Doubts;
use crate::graceful::GracefulUnmounts;
use crate::janitor;
use crate::jobs::{self, Jobs, MasterJobs};
use crate::journal::{self, Journal, JournalError};
use crate::lane::{SlowLane, SlowMeter};
use crate::metrics::{MasterMetrics, ProcessMemory, Window};
use crate::nodes::Nodes;
use crate::origins::Origins;
use crate::pool::MasterPool;
use crate::quota_file::QuotaFileError;
use crate::service::MasterService;
use crate::shared::{HttpDoors, Shared, SharedRef, StorageAnswer, generation_text};
use crate::suspects::Suspects;
use crate::tenants::{PolicyStore, TenantDesk};
use crate::waiting::WaitingRoom;
use crate::waker::Waker;

/// A master did not start.
#[derive(Debug, thiserror::Error)]
pub enum MasterError {
    /// Settings contradict each other.
    #[error(transparent)]
    Settings(#[from] BadSettings),
    /// RPC listener or workers.
    #[error("{0} (settings rpc_address, rpc_port, compat_listen, rpc_unix_socket)")]
    Rpc(#[from] StartError),
    /// The quotas of tenants cannot be read.
    #[error(transparent)]
    Quotas(#[from] QuotaFileError),
    /// The log of the master.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Admin or metadata HTTP.
    #[error(transparent)]
    Admin(#[from] AdminError),
    /// A thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// A running master. Dropping it stops it.
pub struct Master {
    shared: SharedRef,
    server: Option<Server>,
    admin: Option<Admin>,
    metadata: Option<MetadataServer>,
    janitor: Option<JoinHandle<()>>,
    jobs: Option<JoinHandle<()>>,
    journal: Option<JoinHandle<()>>,
    listeners: Vec<(BoundListener, WireVersion)>,
    advertise: Option<String>,
    control: Option<Arc<MasterControl>>,
}

impl Master {
    /// Starts all threads; clients are served when it returns.
    ///
    /// # Errors
    /// See [`MasterError`]; nothing keeps running after one.
    pub fn start(config: MasterConfig) -> Result<Master, MasterError> {
        let (listeners, versions): (Vec<_>, Vec<_>) = config.listeners().into_iter().unzip();
        let mut shared = shared(&config, &versions)?;
        let journal = config.journal.as_ref().map(|options| Journal::open(options, &shared.catalog)).transpose()?;
        shared.journal_before = journal.as_ref().map(Journal::before);
        let metrics = &shared.metrics;
        let (lane, wait, run) = (metrics.shared_lane().clone(), metrics.slow_wait, metrics.slow_run);
        shared.slow = SlowLane::start(config.clock.clone(), SlowMeter { lane, wait, run })?;
        shared.dialer = config.dial_back.map(Dialer::start).transpose()?;
        if shared.jobs.repairs_losses() {
            shared.catalog.follow_losses();
        }
        let shared = Arc::new(shared);
        // From here on a drop of the half-built master stops what runs.
        let advertise = config.advertise.clone();
        let mut master = Master {
            shared,
            server: None,
            admin: None,
            metadata: None,
            janitor: None,
            jobs: None,
            journal: None,
            listeners: Vec::new(),
            advertise,
            control: None,
        };
        if let Some(mut journal) = journal {
            let shared = Arc::clone(&master.shared);
            master.journal = Some(spawn_thread("yb-journal", move || journal::run(&mut journal, &shared))?);
        }
        let settings = ServerSettings {
            workers: config.workers,
            backend: config.backend,
            cores: config.cores.clone(),
            limits: config.limits.clone(),
            clock: config.clock.clone(),
            security: config.security.clone(),
        };
        let service = Arc::new(MasterService { shared: Arc::clone(&master.shared) });
        let server = Server::start(settings, &listeners, service)?;
        let counters = server.counters();
        let _ = master.shared.security.set(config.security.clone());
        let _ = master.shared.connection_limit.set(server.connection_limit());
        // The cells are empty: they are set once, here.
        let _ = master.shared.server_counters.set(Box::new(move || counters.snapshot()));
        master.listeners = server.listeners().iter().cloned().zip(versions).collect();
        let shown = master.listeners.iter().map(|(bound, v)| format!("{} ({})", bound.address, generation_text(*v)));
        let _ = master.shared.listeners.set(shown.collect());
        master.server = Some(server);
        master.control =
            config.origin.clone().map(|origin| Arc::new(MasterControl::new(Arc::clone(&master.shared), origin)));
        if let Some(options) = &config.admin {
            let mut parts = parts(&master.shared);
            if let Some(control) = &master.control {
                parts.control = Arc::clone(control) as Arc<dyn Control>;
            }
            parts.door = master.shared.doors.admin.clone();
            master.admin = Some(Admin::start(options, parts)?);
        }
        let door = master.shared.doors.metadata.clone();
        let metadata = config.metadata.clone().map(|options| MetadataOptions { door, ..options });
        master.metadata = metadata.map(MetadataServer::start).transpose()?;
        if let (Some(server), Some(keys)) = (&master.metadata, &config.metadata_cleanup) {
            let _ = master.shared.cleaned.set((server.ledger(), keys.clone()));
        }
        let shared = Arc::clone(&master.shared);
        master.janitor = Some(spawn_thread("yb-janitor", move || janitor::run(&shared))?);
        let shared = Arc::clone(&master.shared);
        master.jobs = Some(spawn_thread("yb-jobs", move || jobs::run(&shared))?);
        Ok(master)
    }

    /// The main RPC address with its real port.
    pub fn rpc_address(&self) -> SocketAddr {
        let main = self.listeners.first().and_then(|(bound, _)| bound.tcp());
        main.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// What clients are to be told: `advertise_address` with the port added if it has none, else the listen address; of a
    /// listener on every address the one from which this host reaches others, or loopback where it reaches nobody.
    pub fn advertised(&self) -> String {
        let listen = self.rpc_address();
        match &self.advertise {
            Some(host) if has_port(host) => host.clone(),
            Some(host) => format!("{host}:{}", listen.port()),
            None if listen.ip().is_unspecified() => {
                SocketAddr::new(own_address(listen.ip()), listen.port()).to_string()
            }
            None => listen.to_string(),
        }
    }

    /// All RPC listeners with the generation of the wire that each speaks (0.3.14 stands for 0.3.13 too).
    pub fn listeners(&self) -> &[(BoundListener, WireVersion)] {
        &self.listeners
    }

    /// Where admin HTTP listens, `None` without.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::address)
    }

    /// Where the HTTP metadata server listens, `None` without.
    pub fn metadata_address(&self) -> Option<SocketAddr> {
        self.metadata.as_ref().map(MetadataServer::address)
    }

    /// Whether the workers use io_uring or epoll.
    pub fn backend(&self) -> Option<yb_rpc::BackendChoice> {
        self.server.as_ref().map(Server::backend)
    }

    /// Reads the settings again and lets take effect what may.
    ///
    /// # Errors
    /// The file or a value is bad, or this master has no settings; nothing changed.
    pub fn reload(&self) -> Result<ChangeReport, ControlError> {
        self.control.as_ref().map_or(Err(ControlError::NoSettings), |control| control.reload())
    }

    /// Where calls that change something are answered over HTTP, `None` without.
    pub fn admin_write_address(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(Admin::write_address)
    }

    /// Closes all connections and waits for all threads.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        self.shared.janitor.stop();
        self.shared.jobs.waker.stop();
        drop(self.admin.take());
        drop(self.metadata.take());
        drop(self.server.take());
        if let Some(dialer) = &self.shared.dialer {
            dialer.stop();
        }
        self.shared.slow.stop();
        if let Some(janitor) = self.janitor.take()
            && janitor.join().is_err()
        {
            tracing::error!("the janitor panicked");
        }
        if let Some(jobs) = self.jobs.take()
            && jobs.join().is_err()
        {
            tracing::error!("the thread of jobs panicked");
        }
        // Last: it writes down what the others did.
        self.shared.journal.stop();
        if let Some(journal) = self.journal.take()
            && journal.join().is_err()
        {
            tracing::error!("the thread of the log panicked");
        }
    }
}

/// The master as its admin server sees it.
fn parts(shared: &SharedRef) -> Parts {
    let mut parts = Parts::new(Arc::new(MasterPool(Arc::clone(shared))));
    parts.tenants = Arc::new(TenantDesk(Arc::clone(shared)));
    parts.jobs = Arc::new(MasterJobs(Arc::clone(shared)));
    parts
}

/// True for `host:port` and `[v6]:port`, false for `host`, `[v6]`.
fn has_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| !host.ends_with(':') && port.parse::<u16>().is_ok())
}

/// The address from which this host reaches others, of the family of `any` where it has one; loopback where it reaches nobody.
fn own_address(any: IpAddr) -> IpAddr {
    // A datagram socket that is connected, and sends nothing, knows the address it would send from. The two that it is
    // connected to are kept for documents: every route but the default one leaves them out.
    let from = |any: IpAddr, target: IpAddr| {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((target, 9))?;
        socket.local_addr()
    };
    let over_v4 = || from(Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into());
    let found = match any {
        IpAddr::V4(_) => over_v4(),
        IpAddr::V6(_) => from(any, Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()).or_else(|_| over_v4()),
    };
    let usable = found.ok().map(|address| address.ip()).filter(|ip| !ip.is_unspecified());
    usable.unwrap_or_else(|| if any.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() })
}

/// What a master works with, before any thread of it runs.
pub(crate) fn shared(config: &MasterConfig, versions: &[WireVersion]) -> Result<Shared, MasterError> {
    let workers = config.workers.max(1);
    let lease_ttl_ms = u64::try_from(config.catalog.lease_ttl.as_millis()).unwrap_or(u64::MAX);
    let catalog = Catalog::new(config.catalog.clone())?;
    let clock = config.clock.clone();
    catalog.begins(clock.now());
    catalog.measure_waits(Box::new(move || clock.now()));
    let open = |path: &PathBuf| PolicyStore::open(path, &catalog, config.clock.now());
    let policies = config.tenant_quotas.as_ref().map(open).transpose()?;
    let generations: Vec<String> = versions.iter().map(|version| generation_text(*version)).collect();
    let metrics = MasterMetrics::new(workers + 1, &generations);
    let storage = StorageAnswer { enable_disk_eviction: config.enable_disk_eviction, quota_bytes: config.quota_bytes };
    Ok(Shared {
        catalog,
        metrics,
        nodes: Nodes::default(),
        attendance: Attendance::default(),
        suspects: Suspects::default(),
        doubts: Doubts::default(),
        origins: Origins::new(config.segments_per_address_max),
        graceful: GracefulUnmounts::default(),
        jobs: Jobs::new(config.jobs),
        janitor: Waker::default(),
        journal: Waker::default(),
        journal_in_use: AtomicBool::new(false),
        journal_before: None,
        generation_noted: AtomicU64::new(0),
        waiting: WaitingRoom::new(config.put_wait),
        slow: SlowLane::closed(config.clock.clone()),
        bulk: Bulk::new(config.limits.max_buffered_bytes),
        dialer: None,
        profiles: versions.iter().map(|version| WireProfile::of(*version)).collect(),
        listeners: OnceLock::new(),
        server_counters: OnceLock::new(),
        security: OnceLock::new(),
        doors: HttpDoors::default(),
        connection_limit: OnceLock::new(),
        cleaned: OnceLock::new(),
        policies,
        weights: parking_lot::Mutex::default(),
        weight_idle_ms: config.weight_idle_ms,
        message_limits: config.message_limits,
        storage: Mutex::new(storage),
        report: AtomicBool::new(config.report),
        log: config.origin.as_ref().map(|origin| origin.log.clone()),
        started: config.clock.now(),
        clock: config.clock.clone(),
        lease_ttl_ms: AtomicU64::new(lease_ttl_ms),
        workers,
        window: Window::default(),
        memory_at_start: ProcessMemory::now().anonymous,
        worker_seed: AtomicU64::new(Rng::from_entropy().next_u64()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_others_can_use_stands_for_every_address() {
        for any in [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)] {
            let own = own_address(any);
            assert!(!own.is_unspecified(), "{own}");
            // Only an address of this host can be bound.
            UdpSocket::bind((own, 0)).unwrap();
        }
    }
}
