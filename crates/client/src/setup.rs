//! From a configuration to a running client. Every step that fails undoes those before it.

// What a client lends, then and later, is in `segments.rs`.

use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use yb_env::{Clock, Rng};
use yb_transfer::{Engine, EngineSettings};
use yb_types::ClientId;

use crate::config::{ClientConfig, NAME_PORTS, split_host_port};
use crate::core::Core;
use crate::counters::Counters;
use crate::deadline::{CallLimits, Deadline};
use crate::directory::Ports;
use crate::executor::Executor;
use crate::heartbeat::check_version;
use crate::herald::Herald;
use crate::hot::HotCache;
use crate::kept::{KeptMemory, patiently};
use crate::leases::LeaseKeeper;
use crate::link::{LinkSettings, MasterLink};
use crate::ops::Sessions;
use crate::pace::Pace;
use crate::page::{self, Book, PageServer};
use crate::report::{Reporter, Told};
use crate::room::RoomKnown;
use crate::suspects::Suspects;
use crate::why::Questions;
use crate::{Error, P2P_HANDSHAKE, Result};

/// Who sets one of these says how long a transfer may make no progress.
const PROGRESS_VARIABLES: [&str; 2] = ["MC_TCP_PROGRESS_TIMEOUT_SEC", "MC_TCP_STATUS_TIMEOUT_SEC"];

impl Core {
    /// Sets a client up, on an engine of its own or on the caller's.
    pub(crate) fn connect(config: ClientConfig, clock: Clock, shared: Option<Engine>) -> Result<Arc<Core>> {
        config.check(shared.as_ref())?;
        if let Some(doubt) = config.doubt(yb_env::memory_limit()) {
            tracing::warn!("{doubt}");
        }
        let mut rng = Rng::from_entropy();
        let config = named(config, &mut rng);
        let size = config.global_segment_size;
        let mut herald = None;
        let open = |path: &std::path::PathBuf| {
            KeptMemory::open(path, size, |client_id| herald = announce(&config, &clock, client_id))
        };
        let mut kept = config.segment_file.as_ref().filter(|_| size > 0).map(open).transpose()?;
        let mut started = None;
        if let Some((kept, ports)) = kept.as_mut().and_then(|kept| kept.ports().map(|ports| (kept, ports))) {
            let client_id = kept.client().unwrap_or_default();
            match start_where_it_was(&config, &clock, client_id, ports) {
                Ok(engine) => started = Some(engine),
                Err(error) => {
                    let port = ports.handshake;
                    tracing::warn!(%error, port, "the old port cannot be had; the memory file starts empty");
                    kept.start_anew();
                    herald = None;
                }
            }
        }
        let client_id = kept.as_ref().and_then(KeptMemory::client).unwrap_or_else(|| ClientId(rng.uuid()));
        let link = MasterLink::new(link_settings(&config, client_id, config.master_connections), clock.clone())?;
        if !config.offline {
            greet(&link, &start(&clock, &config))?;
        }
        let shares_engine = shared.is_some();
        let engine = match (shared, started) {
            (Some(engine), _) | (None, Some(engine)) => engine,
            (None, None) => start_engine(&config, &clock, client_id, config.global_segment_size > 0)?,
        };
        let hostname = hostname(&config, &engine, &mut rng);
        // The last of the ports: from here on the master may be told.
        let page = config.page.map(page::listen).transpose()?;
        let counters = Arc::new(Counters::default());
        let leases = LeaseKeeper::new(Arc::clone(&link), clock.clone(), Arc::clone(&counters));
        let core = Core {
            leases,
            client_id,
            hostname,
            link,
            engine,
            lender: OnceLock::new(),
            hot: HotCache::new(config.hot_cache),
            told: Mutex::default(),
            shares_engine,
            suspects: Suspects::default(),
            pace: Pace::default(),
            counters,
            executor: Executor::new(config.async_threads),
            membership: Mutex::new(None),
            lent: Arc::default(),
            directories: Arc::default(),
            kept: Mutex::new(kept),
            registered: Mutex::default(),
            closed: AtomicBool::new(false),
            sessions: Sessions::default(),
            room_known: RoomKnown::default(),
            questions: Questions::default(),
            puts: Arc::default(),
            config,
            clock,
        };
        // Its last greeting must not come after the mount.
        drop(herald);
        if core.config.offline {
            core.close();
        } else if core.config.segment_file.is_some() && core.config.global_segment_size > 0 {
            core.mount_kept(&mut rng)?;
        } else if core.config.global_segment_size > 0 {
            core.mount_new(core.config.global_segment_size, core.config.segment_memory)?;
        }
        let core = Arc::new(core);
        let page = page.map(|listener| PageServer::start(listener, Book::Of(Arc::downgrade(&core)))).transpose()?;
        let reporter = Reporter::start(&core)?;
        *core.told.lock() = Told { page, _reporter: reporter };
        Ok(core)
    }
}

pub(crate) fn link_settings(config: &ClientConfig, client_id: ClientId, connections: usize) -> LinkSettings {
    LinkSettings {
        address: config.master_address.clone(),
        connections: connections.max(1),
        connect_timeout: config.connect_timeout,
        version: config.wire_version,
        client_id,
        tenant: config.tenant_id.clone(),
        security: config.security.clone(),
    }
}

pub(crate) fn start(clock: &Clock, config: &ClientConfig) -> Deadline {
    // Setup may wait for a dial back and for memory; it gets more than a data call.
    let base = config.limits.base.max(Duration::from_secs(2)) * 2;
    Deadline::start(clock, &CallLimits { base, ..config.limits }, 0)
}

/// Says to the master that this client is coming: it has to look at its memory first.
fn announce(config: &ClientConfig, clock: &Clock, client_id: ClientId) -> Option<Herald> {
    if config.offline {
        return None;
    }
    let link = MasterLink::new(link_settings(config, client_id, 1), clock.clone());
    let herald = link.and_then(|link| Herald::start(link, clock.clone(), config.ping_interval));
    herald.inspect_err(|error| tracing::debug!(%error, "the master hears nothing until the memory is looked at")).ok()
}

/// The first two requests of a session.
fn greet(link: &MasterLink, deadline: &Deadline) -> Result<()> {
    check_version(link, deadline)?;
    let directory = link.storage_directory(deadline)?;
    if !directory.is_empty() {
        tracing::warn!(%directory, "the master wants objects persisted on a shared directory; this client writes none");
    }
    Ok(())
}

/// An engine at the ports of an earlier process. Clients of the peer remember the data port for as long as they live; ours ask
/// again, so another one will do if somebody has it.
fn start_where_it_was(config: &ClientConfig, clock: &Clock, client_id: ClientId, ports: Ports) -> Result<Engine> {
    let any = ClientConfig { listen_port: ports.handshake, ..config.clone() };
    if config.data_port != 0 || ports.data == 0 {
        return patiently(|| start_engine(&any, clock, client_id, true));
    }
    let both = ClientConfig { data_port: ports.data, ..any.clone() };
    patiently(|| start_engine(&both, clock, client_id, true)).or_else(|error| {
        let engine = start_engine(&any, clock, client_id, true)?;
        tracing::warn!(%error, port = ports.data, "the old data port cannot be had; clients of the peer that know it do not reach this node");
        Ok(engine)
    })
}

/// `serves`: peers can reach memory in it.
pub(crate) fn start_engine(config: &ClientConfig, clock: &Clock, client_id: ClientId, serves: bool) -> Result<Engine> {
    let mut settings = EngineSettings {
        client_id,
        shm: config.shared_memory,
        security: config.security.clone(),
        ..EngineSettings::from_env(|name| std::env::var(name).ok())
    };
    if PROGRESS_VARIABLES.iter().all(|name| std::env::var_os(name).is_none()) {
        // A call without progress is over when a call without bytes would be.
        settings.progress_timeout = config.limits.base;
    }
    if serves {
        let host = config.listen_host.as_deref().unwrap_or(config.host());
        let ip = resolve(host)?;
        settings.listen = Some(SocketAddr::new(ip, config.listen_port));
        settings.data_listen = Some(SocketAddr::new(ip, config.data_port));
        if config.uses_store() && config.listen_port == 0 {
            settings.listen = Some(SocketAddr::new(ip, named_port(config, ip)));
        }
        settings.advertise_host = Some(config.host().to_owned());
        settings.port_range = config.port_range.clone();
    }
    let store = yb_metadata::connect(config.metadata_address()).map_err(|error| Error::setup("names", error))?;
    let builder = Engine::builder().settings(settings).clock(clock.clone());
    let builder = match store {
        Some(store) => builder.metadata(store).name(&config.local_hostname),
        None => builder,
    };
    let named = config.uses_store().then(|| {
        format!("; metadata_server is {:?} ({P2P_HANDSHAKE} means that no store is used)", config.metadata_server)
    });
    builder.build().map_err(|error| {
        Error::setup("the transfer engine", format!("{error}{}", named.as_deref().unwrap_or_default()))
    })
}

/// With a metadata store the name is what peers open: it has to be whole before the engine starts.
fn named(config: ClientConfig, rng: &mut Rng) -> ClientConfig {
    match split_host_port(&config.local_hostname) {
        (host, None) if config.uses_store() => {
            let local_hostname = drawn(host, &config, rng);
            ClientConfig { local_hostname, ..config }
        }
        _ => config,
    }
}

/// The port of the name, if it is free: who takes the name for an address (a master of ours dials it) finds us there.
/// If it is not, the handshake takes any, and the store tells which.
fn named_port(config: &ClientConfig, ip: IpAddr) -> u16 {
    let port = split_host_port(&config.local_hostname).1.and_then(|port| port.parse().ok()).unwrap_or(0);
    if TcpListener::bind((ip, port)).is_ok() { port } else { 0 }
}

/// The address to listen on; IPv4 before IPv6, as the peers connect.
fn resolve(host: &str) -> Result<IpAddr> {
    let failed = |reason: String| Error::setup("the listen address", format!("{host:?}: {reason}"));
    let found: Vec<SocketAddr> = (host, 0).to_socket_addrs().map_err(|error| failed(error.to_string()))?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.map(SocketAddr::ip).ok_or_else(|| failed("no address".to_owned()))
}

/// The name of this client and its segments. Without a port in it, that of the handshake is taken, or, when nothing
/// listens, any of the range from which the peer draws.
fn hostname(config: &ClientConfig, engine: &Engine, rng: &mut Rng) -> String {
    let (host, port) = split_host_port(&config.local_hostname);
    if port.is_some() {
        return config.local_hostname.clone();
    }
    if let Some(endpoint) = engine.endpoint() {
        return endpoint.to_owned();
    }
    drawn(host, config, rng)
}

fn drawn(host: &str, config: &ClientConfig, rng: &mut Rng) -> String {
    let range = config.port_range.clone().unwrap_or(NAME_PORTS);
    let port = u64::from(*range.start()) + rng.below(range.len() as u64);
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
