//! What a client is told at setup, and the check that it can work.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use yb_transfer::{Engine, SegmentOptions};
use yb_types::WireVersion;

use crate::{CallLimits, Client, Error, HotCacheConfig, Result};

/// The only metadata server this client works with: descriptors come from the owners themselves.
pub const P2P_HANDSHAKE: &str = "P2PHANDSHAKE";

/// The protocol of a client that only asks the master: it lends nothing and needs no devices.
pub const RPC_ONLY: &str = "rpc_only";

/// The smallest segment a client can lend; the same limit as the peer's.
pub const MIN_SEGMENT_BYTES: u64 = 16 << 20;

/// The protocols that the peer knows by name. Those that this build has not are refused by name, never replaced.
const PEER_PROTOCOLS: [&str; 15] = [
    "tcp",
    "rdma",
    "efa",
    "cxi",
    "nvmeof",
    "nvlink",
    "nvlink_intra",
    "musa",
    "hip",
    "barex",
    "cxl",
    "ascend",
    "ub",
    "ubshmem",
    "maca",
];

/// Ports from which the name of a client without one is made, as the peer does.
pub(crate) const NAME_PORTS: RangeInclusive<u16> = 12_300..=14_300;

/// What a client tells of what it counts. It always counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricsConfig {
    /// Whether the page has `/metrics`.
    pub enabled: bool,
    /// Time between two summaries in the log; zero: none.
    pub report_every: Duration,
    /// Label `cluster_id` of all metrics, unless empty.
    pub cluster_id: String,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        MetricsConfig { enabled: true, report_every: Duration::ZERO, cluster_id: String::new() }
    }
}

/// How a client is set up. Fields have the peer's names where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// `host` or `host:port`: the name of this client's segments, and the address it advertises.
    pub local_hostname: String,
    /// Never connects, and answers every call as closed: stands in where somebody else does a store's work.
    pub offline: bool,
    /// `P2PHANDSHAKE`: segments are named by the address of their handshake. Else the store in which names are looked up
    /// and this client's is published, when it lends memory: `http://host:port/metadata`, `etcd://...`, `redis://...`.
    pub metadata_server: String,
    /// Bytes lent to the pool; 0 lends nothing, otherwise at least [`MIN_SEGMENT_BYTES`].
    pub global_segment_size: u64,
    /// Accepted because the peer's setup has it; no staging memory is kept, bytes move straight from and to the caller's.
    pub local_buffer_size: u64,
    /// `tcp`: shared memory on one host, TCP between hosts; or [`RPC_ONLY`]. With an engine of the caller also what
    /// that engine has: `rdma`.
    pub protocol: String,
    /// Names of network devices, comma separated; without effect on `tcp`.
    pub device_names: String,
    /// `host:port` of the master.
    pub master_address: String,
    /// Whose key space.
    pub tenant_id: String,
    /// Address on which the handshake and data ports listen; `None`: the host of `local_hostname`, which is what peers
    /// are told in either case. Only a client that lends memory listens.
    pub listen_host: Option<String>,
    /// Handshake port; 0 lets the kernel choose.
    pub listen_port: u16,
    /// Data port; 0 lets the kernel choose.
    pub data_port: u16,
    /// The memory lent at setup is this file, on a tmpfs or hugetlbfs of this host, and outlives the process: another one
    /// with the same file takes it over. `None`: it goes with the process.
    pub segment_file: Option<std::path::PathBuf>,
    /// Whether memory may be shared with other processes of this host.
    pub shared_memory: bool,
    /// Touch every page of the segment in the background from setup on: no page faults later, and the memory is taken
    /// from the system at once.
    pub populate_segment: bool,
    /// How memory for segments is made. Reserved huge pages that are not there are replaced by ordinary ones, with a
    /// line in the log.
    pub segment_memory: SegmentOptions,
    /// The name of this host for placement; `None`: the host of `local_hostname`. Clients on one host that have different
    /// addresses (pods) find each other by it.
    pub placement_host: Option<String>,
    /// A put without a preference of its own goes to a segment of this client first.
    pub local_first: bool,
    /// Every put that asks for replicas in memory asks for so many at least: engines ask for one, whose node may die.
    pub least_replicas: u64,
    /// Copies of objects that are read often.
    pub hot_cache: HotCacheConfig,
    /// Ports from which one is drawn for a client that names none; `None`: any that is free.
    pub port_range: Option<RangeInclusive<u16>>,
    /// Where `/health`, `/metrics` and `/metrics/summary` are served; `None`: nowhere. Port 0 takes any free one.
    pub page: Option<SocketAddr>,
    /// The address for a page of which only the port is given.
    pub page_host: IpAddr,
    /// What is told of what is counted.
    pub metrics: MetricsConfig,
    /// Give every object a checksum when it is written, and compare it when the whole object was read. On unless
    /// `MOONCAKE_STORE_CHECKSUM` says otherwise. Writers and readers that differ in it understand each other.
    pub checksum: bool,
    /// The generation of the wire that the master is spoken to in.
    pub wire_version: WireVersion,
    /// How long calls may take.
    pub limits: CallLimits,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// Time between two pings of a client that lends memory.
    pub ping_interval: Duration,
    /// Threads of the asynchronous face, started on first use.
    pub async_threads: usize,
    /// Connections for data calls to the master; each carries many requests at a time.
    pub master_connections: usize,
    /// How connections to the master and to peers are secured, and who may connect to memory that is lent; `None`: the plain
    /// wire. [`ClientConfig::from_env`] reads it.
    pub security: Option<std::sync::Arc<yb_secure::Security>>,
}

impl Default for ClientConfig {
    /// A client that lends nothing, of a master on this machine. `YB_SHM=0` in the environment forbids shared memory,
    /// `MOONCAKE_STORE_CHECKSUM=0` turns checksums off.
    fn default() -> Self {
        ClientConfig {
            local_hostname: "localhost".to_owned(),
            offline: false,
            metadata_server: P2P_HANDSHAKE.to_owned(),
            global_segment_size: 0,
            local_buffer_size: 16 << 20,
            protocol: "tcp".to_owned(),
            device_names: String::new(),
            master_address: "127.0.0.1:50051".to_owned(),
            tenant_id: yb_types::DEFAULT_TENANT.to_owned(),
            listen_host: None,
            listen_port: 0,
            data_port: 0,
            segment_file: None,
            shared_memory: std::env::var_os("YB_SHM").is_none_or(|value| value != "0"),
            populate_segment: false,
            segment_memory: SegmentOptions::default(),
            placement_host: None,
            local_first: false,
            least_replicas: 1,
            hot_cache: HotCacheConfig::default(),
            port_range: None,
            page: None,
            page_host: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            metrics: MetricsConfig::default(),
            checksum: !std::env::var("MOONCAKE_STORE_CHECKSUM")
                .is_ok_and(|value| ["0", "false", "no", "off"].contains(&value.to_ascii_lowercase().as_str())),
            wire_version: WireVersion::V0_3_13,
            limits: CallLimits::default(),
            connect_timeout: Duration::from_secs(1),
            ping_interval: Duration::from_secs(1),
            async_threads: 4,
            master_connections: 1,
            security: None,
        }
    }
}

impl ClientConfig {
    /// Refuses what cannot work, naming the field. `engine`: the caller's, if the client is to use one.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn check(&self, engine: Option<&Engine>) -> Result<()> {
        let (host, port) = split_host_port(&self.local_hostname);
        if host.is_empty() || port.is_some_and(|p| p.parse::<u16>().is_err()) {
            return Err(Error::invalid(format!("local_hostname {:?} is not host or host:port", self.local_hostname)));
        }
        yb_metadata::StoreAddress::parse(self.metadata_address()).map_err(|error| Error::invalid(error.to_string()))?;
        self.check_protocol(engine)?;
        if self.global_segment_size != 0 && self.global_segment_size < MIN_SEGMENT_BYTES {
            return Err(Error::invalid(format!(
                "global_segment_size {} is below the smallest segment of {MIN_SEGMENT_BYTES} bytes",
                self.global_segment_size
            )));
        }
        if self.master_address.contains("://") {
            let text = format!("master address {:?}: high availability is not supported", self.master_address);
            return Err(Error::invalid(text));
        }
        match split_host_port(&self.master_address) {
            (host, Some(port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(()),
            _ => Err(Error::invalid(format!("master address {:?} is not host:port", self.master_address))),
        }
    }

    /// What is strange about the settings and yet no reason to refuse them.
    pub(crate) fn doubt(&self, memory: Option<u64>) -> Option<String> {
        let there = memory.filter(|there| self.global_segment_size > *there)?;
        let lent = self.global_segment_size;
        Some(format!(
            "global_segment_size {lent} is more than the {there} bytes of memory that this process may have: the system ends \
             processes once so much is written"
        ))
    }

    /// Where names are looked up; `P2PHANDSHAKE` in any case of its letters.
    pub(crate) fn metadata_address(&self) -> &str {
        if self.uses_store() { &self.metadata_server } else { P2P_HANDSHAKE }
    }

    /// Whether engines find each other by names in a metadata store.
    pub(crate) fn uses_store(&self) -> bool {
        !self.metadata_server.eq_ignore_ascii_case(P2P_HANDSHAKE)
    }

    fn check_protocol(&self, engine: Option<&Engine>) -> Result<()> {
        match self.protocol.as_str() {
            "tcp" => Ok(()),
            RPC_ONLY if self.global_segment_size == 0 => Ok(()),
            RPC_ONLY => Err(Error::invalid(
                "a client with protocol \"rpc_only\" lends no memory: global_segment_size has to be 0",
            )),
            "rdma" if engine.is_some_and(|engine| engine.rdma_stats().is_some()) => Ok(()),
            known if PEER_PROTOCOLS.contains(&known) => {
                Err(Error::invalid(format!("protocol {known:?} is not in this build, use \"tcp\"")))
            }
            other => Err(Error::invalid(format!("unknown protocol {other:?}, use \"tcp\""))),
        }
    }

    /// The host part of `local_hostname`.
    pub fn host(&self) -> &str {
        split_host_port(&self.local_hostname).0
    }

    /// The host for placement: empty when it names this machine only from the inside.
    pub fn host_id(&self) -> &str {
        if let Some(named) = &self.placement_host {
            return named;
        }
        let host = self.host();
        let inside = host == "localhost" || host.starts_with("127.") || host == "::1" || host == "0.0.0.0";
        if inside { "" } else { host }
    }
}

/// Splits `host:port`, `[v6]:port`, `host` and bare IPv6 addresses.
pub(crate) fn split_host_port(text: &str) -> (&str, Option<&str>) {
    if let Some(rest) = text.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => ("", None),
        };
    }
    match text.rsplit_once(':') {
        Some((host, _)) if host.contains(':') => (text, None),
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    }
}

/// Collects a [`ClientConfig`] and sets the client up.
#[derive(Clone, Debug, Default)]
pub struct ClientBuilder {
    config: ClientConfig,
}

impl ClientBuilder {
    /// `host` or `host:port`: the name of this client.
    #[must_use]
    pub fn local_hostname(mut self, name: impl Into<String>) -> Self {
        self.config.local_hostname = name.into();
        self
    }

    /// `host:port` of the master.
    #[must_use]
    pub fn master(mut self, address: impl Into<String>) -> Self {
        self.config.master_address = address.into();
        self
    }

    /// Bytes lent to the pool.
    #[must_use]
    pub fn segment(mut self, bytes: u64) -> Self {
        self.config.global_segment_size = bytes;
        self
    }

    /// See [`ClientConfig::local_buffer_size`].
    #[must_use]
    pub fn local_buffer(mut self, bytes: u64) -> Self {
        self.config.local_buffer_size = bytes;
        self
    }

    /// Whose key space.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.config.tenant_id = tenant.into();
        self
    }

    /// How long calls may take.
    #[must_use]
    pub fn limits(mut self, limits: CallLimits) -> Self {
        self.config.limits = limits;
        self
    }

    /// Sets the client up.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect(self) -> Result<Client> {
        Client::connect(self.config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut ClientConfig)) -> String {
        let mut config = ClientConfig::default();
        change(&mut config);
        config.check(None).unwrap_err().to_string()
    }

    #[test]
    fn the_default_is_accepted() {
        ClientConfig::default().check(None).unwrap();
        ClientConfig { protocol: RPC_ONLY.into(), ..ClientConfig::default() }.check(None).unwrap();
        for store in ["p2phandshake", "http://x/metadata", "etcd://a:1;b:2", "redis://x:6379"] {
            ClientConfig { metadata_server: store.into(), ..ClientConfig::default() }.check(None).unwrap();
        }
    }

    #[test]
    fn what_cannot_work_is_refused_by_name() {
        assert!(refused(|c| c.metadata_server = "ftp://x/metadata".into()).contains("ftp://x/metadata"));
        assert!(refused(|c| c.metadata_server = String::new()).contains("empty"));
        assert!(refused(|c| c.protocol = "rdma".into()).contains("not in this build"));
        assert!(refused(|c| c.protocol = "tpc".into()).contains("unknown protocol"));
        let lends = refused(|c| (c.protocol, c.global_segment_size) = (RPC_ONLY.into(), 1 << 30));
        assert!(lends.contains("lends no memory"));
        assert!(refused(|c| c.global_segment_size = 1000).contains("1000"));
        assert!(refused(|c| c.master_address = "etcd://h:1".into()).contains("high availability"));
        assert!(refused(|c| c.master_address = "h".into()).contains("host:port"));
        assert!(refused(|c| c.local_hostname = String::new()).contains("local_hostname"));
        assert!(refused(|c| c.local_hostname = "h:70000".into()).contains("local_hostname"));
    }

    #[test]
    fn hosts_and_ports() {
        assert_eq!(split_host_port("h:1"), ("h", Some("1")));
        assert_eq!(split_host_port("h"), ("h", None));
        assert_eq!(split_host_port("[::1]:5"), ("::1", Some("5")));
        assert_eq!(split_host_port("[::1]"), ("::1", None));
        assert_eq!(split_host_port("fe80::1"), ("fe80::1", None));
        let host_id = |name: &str| {
            let config = ClientConfig { local_hostname: name.into(), ..ClientConfig::default() };
            config.host_id().to_owned()
        };
        assert_eq!((host_id("10.1.2.3:5").as_str(), host_id("127.0.0.1:5").as_str()), ("10.1.2.3", ""));
    }
}
