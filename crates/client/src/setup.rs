//! From a configuration to a running client. Every step that fails undoes those before it.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use parking_lot::Mutex;
use yb_env::{Clock, Rng};
use yb_transfer::{Access, Engine, EngineSettings, SegmentOptions};
use yb_types::{ClientId, Segment, SegmentId};

use crate::config::{ClientConfig, split_host_port};
use crate::core::Core;
use crate::counters::Counters;
use crate::deadline::{CallLimits, Deadline};
use crate::executor::Executor;
use crate::heartbeat::{Lent, Membership, Pulse, check_version};
use crate::link::{CAPABILITY_QUIESCE, LinkSettings, MasterLink};
use crate::ops::Sessions;
use crate::suspects::Suspects;
use crate::{Error, Result};

/// Ports from which the name of a client without one is made, as the peer does.
const NAME_PORTS: std::ops::Range<u64> = 12_300..14_300;

impl Core {
    /// Sets a client up.
    pub(crate) fn connect(config: ClientConfig) -> Result<Arc<Core>> {
        config.check()?;
        let clock = Clock::real();
        let mut rng = Rng::from_entropy();
        let client_id = ClientId(rng.uuid());
        let link = MasterLink::new(link_settings(&config, client_id, config.master_connections), clock.clone())?;
        if !config.offline {
            greet(&link, &start(&clock, &config))?;
        }
        let engine = start_engine(&config, &clock, client_id)?;
        let hostname = hostname(&config, &engine, &mut rng);
        let counters = Arc::new(Counters::default());
        let core = Core {
            client_id,
            hostname,
            link,
            engine,
            suspects: Suspects::default(),
            counters,
            executor: Executor::new(config.async_threads),
            membership: Mutex::new(None),
            closed: AtomicBool::new(false),
            sessions: Sessions::default(),
            puts: Arc::default(),
            config,
            clock,
        };
        if core.config.offline {
            core.close();
        } else if core.config.global_segment_size > 0 {
            core.join(SegmentId(rng.uuid()))?;
        }
        Ok(Arc::new(core))
    }

    /// Lends memory to the pool. A failure drops the core, which unmounts what was mounted.
    fn join(&self, id: SegmentId) -> Result<()> {
        let size = self.config.global_segment_size;
        let memory = self
            .engine
            .allocate(size, SegmentOptions::default(), Access::Remote)
            .map_err(|error| Error::setup("segment memory", format!("{size} bytes: {error}")))?;
        if self.config.populate_segment {
            self.engine.populate_behind(&memory);
        }
        let segment = Segment {
            id,
            name: self.hostname.clone(),
            base: memory.address(),
            size,
            te_endpoint: self.engine.endpoint().unwrap_or_default().to_owned(),
            protocol: self.config.protocol.clone(),
            host_id: self.config.host_id().to_owned(),
            ..Segment::default()
        };
        let ours = self.link.hello(&start(&self.clock, &self.config))?;
        if let Some((version, _)) = &ours {
            tracing::debug!(%version, "the master is one of ours");
        }
        self.link.mount(&segment, &start(&self.clock, &self.config)).map_err(|error| match error {
            Error::Refused { code, .. } => Error::setup("mounting the segment", code),
            // A master of ours dials the advertised address back, and says so when nobody answers there.
            Error::Rejected { message, .. } => Error::setup("mounting the segment", message),
            other => other,
        })?;
        let pulse = Pulse {
            link: MasterLink::new(link_settings(&self.config, self.client_id, 1), self.clock.clone())?,
            clock: self.clock.clone(),
            interval: self.config.ping_interval,
            counters: Arc::clone(&self.counters),
            engine: self.engine.clone(),
            client_id: self.client_id,
            puts: Arc::clone(&self.puts),
            asks: ours.is_some_and(|(_, capabilities)| capabilities & CAPABILITY_QUIESCE != 0),
        };
        let id = segment.id;
        let membership = Membership::start(vec![Lent { segment, memory }], pulse).inspect_err(|_| {
            // The mount stands already.
            let _ = self.link.unmount(id, &start(&self.clock, &self.config));
        })?;
        *self.membership.lock() = Some(membership);
        Ok(())
    }
}

fn link_settings(config: &ClientConfig, client_id: ClientId, connections: usize) -> LinkSettings {
    LinkSettings {
        address: config.master_address.clone(),
        connections: connections.max(1),
        connect_timeout: config.connect_timeout,
        version: config.wire_version,
        client_id,
        tenant: config.tenant_id.clone(),
    }
}

fn start(clock: &Clock, config: &ClientConfig) -> Deadline {
    // Setup may wait for a dial back and for memory; it gets more than a data call.
    let base = config.limits.base.max(Duration::from_secs(2)) * 2;
    Deadline::start(clock, &CallLimits { base, ..config.limits }, 0)
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

fn start_engine(config: &ClientConfig, clock: &Clock, client_id: ClientId) -> Result<Engine> {
    let mut settings = EngineSettings {
        client_id,
        shm: config.shared_memory,
        ..EngineSettings::from_env(|name| std::env::var(name).ok())
    };
    if config.global_segment_size > 0 {
        let host = config.listen_host.as_deref().unwrap_or(config.host());
        let ip = resolve(host)?;
        settings.listen = Some(SocketAddr::new(ip, config.listen_port));
        settings.data_listen = Some(SocketAddr::new(ip, config.data_port));
        settings.advertise_host = Some(config.host().to_owned());
    }
    let engine = Engine::builder().settings(settings).clock(clock.clone()).build();
    engine.map_err(|error| Error::setup("the transfer engine", error))
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
    let port = NAME_PORTS.start + rng.below(NAME_PORTS.end - NAME_PORTS.start);
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}
