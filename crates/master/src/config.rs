//! What a master is started with, from the settings.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use yb_admin::{AdminOptions, MetadataOptions, WriteRules};
use yb_catalog::{Alignment, AllocationStrategy, CatalogSettings, Cutting, PolicyKind, TierSettings};
use yb_env::{Clock, Rng};
use yb_jobs::{HeatMode, HeatSettings, QueueLimits, RepairSettings};
use yb_metadata::{Keys, Reply};
use yb_pack::Limits;
use yb_rpc::{BackendChoice, Listener, ListenerTag, ServerLimits};
use yb_secure::{Security, SecuritySettings};
use yb_settings::{SettingsError, Source, Values};
use yb_types::{ByteLen, ReplicaId, WireVersion};

use crate::control::Origin;
use crate::jobs::JobSettings;
use crate::journal::JournalOptions;

/// A listener for an older generation of the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompatListener {
    /// What its clients speak.
    pub version: WireVersion,
    /// Where.
    pub address: SocketAddr,
}

/// What a master is started with.
#[derive(Clone, Debug)]
pub struct MasterConfig {
    /// Main RPC address; port 0 takes a free one.
    pub listen: SocketAddr,
    /// What clients are told to use instead of the listen address, host or host:port.
    pub advertise: Option<String>,
    /// Ports for older generations.
    pub compat: Vec<CompatListener>,
    /// UNIX socket beside the main port.
    pub unix_socket: Option<PathBuf>,
    /// RPC worker threads.
    pub workers: usize,
    /// Kernel interface of the workers.
    pub backend: BackendChoice,
    /// Cores of the workers.
    pub cores: Vec<usize>,
    /// What a connection may cost.
    pub limits: ServerLimits,
    /// What a message may hold.
    pub message_limits: Limits,
    /// Admin HTTP; `None` for none.
    pub admin: Option<AdminOptions>,
    /// HTTP metadata server of Transfer Engines; `None` for none.
    pub metadata: Option<MetadataOptions>,
    /// Under which keys of that server the records of clients that stopped pinging are removed; `None` leaves them.
    pub metadata_cleanup: Option<Keys>,
    /// Whether a summary is logged every 10 seconds.
    pub report: bool,
    /// State machine.
    pub catalog: CatalogSettings,
    /// Segments that may be mounted over the connections of one address.
    pub segments_per_address_max: usize,
    /// An import of weights without new objects is given up after this many milliseconds.
    pub weight_idle_ms: u64,
    /// The file with the quotas of tenants; `None` keeps them nowhere.
    pub tenant_quotas: Option<PathBuf>,
    /// Copy and move tasks, hot objects.
    pub jobs: JobSettings,
    /// Handed to clients: files may be evicted.
    pub enable_disk_eviction: bool,
    /// Handed to clients: bytes on disk.
    pub quota_bytes: u64,
    /// How long a write that finds no space waits for some.
    pub put_wait: Duration,
    /// How long a connection to a node's data address may take at mount; `None` does not connect.
    pub dial_back: Option<Duration>,
    /// The log of the master; `None` for none.
    pub journal: Option<JournalOptions>,
    /// Who may connect, and how; `None`: everybody, over the plain wire.
    pub security: Option<Arc<Security>>,
    /// The clock of everything.
    pub clock: Clock,
    /// Where the settings came from, so that they can be read again; `None` for a master inside another process.
    pub origin: Option<Origin>,
}

impl MasterConfig {
    /// A master inside another process: one free port on the loopback address, admin HTTP on another, one worker.
    pub fn embedded() -> MasterConfig {
        MasterConfig {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            advertise: None,
            compat: Vec::new(),
            unix_socket: None,
            workers: 1,
            backend: BackendChoice::Auto,
            cores: Vec::new(),
            limits: ServerLimits::default(),
            message_limits: Limits::default(),
            admin: Some(AdminOptions {
                listen: "127.0.0.1:0".to_owned(),
                max_requests: 16,
                write: WriteRules::default(),
            }),
            metadata: None,
            metadata_cleanup: None,
            report: false,
            catalog: CatalogSettings {
                hash_seed: Rng::from_entropy().next_u64(),
                first_replica_id: first_replica_id(),
                ..CatalogSettings::default()
            },
            segments_per_address_max: 4096,
            weight_idle_ms: 300_000,
            tenant_quotas: None,
            jobs: JobSettings::default(),
            enable_disk_eviction: true,
            quota_bytes: 0,
            put_wait: Duration::from_millis(250),
            dial_back: Some(Duration::from_secs(2)),
            journal: None,
            security: None,
            clock: Clock::real(),
            origin: None,
        }
    }

    /// From the settings table [`yb_settings::master::MASTER`].
    ///
    /// # Errors
    /// An address that is none, an unknown generation, settings that contradict each other.
    pub fn from_values(values: &Values) -> Result<MasterConfig, SettingsError> {
        let interface = values.text("rpc_interface");
        let found = if interface.is_empty() { None } else { Some(interface_address(interface)?) };
        let host = found.as_deref().unwrap_or(values.text("rpc_address"));
        let port = match values.number("rpc_port") {
            0 => values.number("port"),
            port => port,
        };
        let security = security(values)?;
        let admin = AdminOptions {
            listen: join_host(values.text("metrics_host"), values.number("metrics_port")),
            max_requests: whole(values, "admin_max_connections"),
            write: write_rules(values)?,
        };
        let unix_socket = values.text("rpc_unix_socket");
        let advertise = values.text("advertise_address");
        Ok(MasterConfig {
            listen: resolve("rpc_address", host, &join_host(host, port))?,
            advertise: (!advertise.is_empty()).then(|| advertise.to_owned()),
            compat: values.list("compat_listen").iter().map(|text| compat(text, host)).collect::<Result<_, _>>()?,
            unix_socket: (!unix_socket.is_empty()).then(|| unix_socket.into()),
            workers: workers(values),
            backend: match values.text("rpc_backend") {
                "epoll" => BackendChoice::Epoll,
                "uring" => BackendChoice::Uring,
                _ => BackendChoice::Auto,
            },
            cores: values.list("rpc_cores").iter().map(|text| core(text)).collect::<Result<_, _>>()?,
            limits: limits(values),
            message_limits: Limits { max_elements: narrow(values, "max_request_elements") },
            admin: Some(admin),
            metadata: values.flag("enable_http_metadata_server").then(|| metadata(values, security.clone())),
            metadata_cleanup: metadata_cleanup(values)?,
            report: values.flag("enable_metric_reporting"),
            catalog: catalog(values)?,
            segments_per_address_max: whole(values, "max_segments_per_address"),
            weight_idle_ms: values.number("weight_import_idle_timeout_ms"),
            tenant_quotas: tenant_quotas(values)?,
            jobs: jobs(values),
            enable_disk_eviction: values.flag("enable_disk_eviction"),
            quota_bytes: values.number("quota_bytes"),
            put_wait: millis(values, "put_wait"),
            dial_back: values.flag("dial_back").then(|| Duration::from_millis(values.number("dial_back_timeout"))),
            journal: journal(values),
            security,
            clock: Clock::real(),
            origin: None,
        })
    }

    /// The listeners with the generation of each, in the order of their tags.
    pub(crate) fn listeners(&self) -> Vec<(Listener, WireVersion)> {
        let mut all = vec![(Listener::tcp(self.listen, ListenerTag(0)), WireVersion::LATEST)];
        if let Some(path) = &self.unix_socket {
            all.push((Listener::unix(path, ListenerTag(1)), WireVersion::LATEST));
        }
        for compat in &self.compat {
            let tag = ListenerTag(u32::try_from(all.len()).unwrap_or(u32::MAX));
            all.push((Listener::tcp(compat.address, tag), compat.version));
        }
        all
    }
}

fn journal(values: &Values) -> Option<JournalOptions> {
    let path = values.text("journal_file");
    let options = || JournalOptions {
        path: path.into(),
        sync: values.flag("journal_sync"),
        max_age: millis(values, "journal_max_age"),
    };
    (!path.is_empty()).then(options)
}

fn security(values: &Values) -> Result<Option<Arc<Security>>, SettingsError> {
    let settings = SecuritySettings::from_values(values, |name| std::env::var(name).ok());
    settings
        .and_then(|settings| Security::open(&settings))
        .and_then(|security| security.as_ref().map_or(Ok(()), |security| security.can_serve()).map(|()| security))
        .map_err(|error| SettingsError::Conflict(error.to_string()))
}

fn write_rules(values: &Values) -> Result<WriteRules, SettingsError> {
    let (port, token, file) =
        (values.number("admin_write_port"), values.text("admin_token"), values.text("admin_token_file"));
    let token = match (token, file) {
        ("", "") => None,
        (token, "") => Some(token.to_owned()),
        ("", file) => {
            let wrong = |why: String| illegal("admin_token_file", file, why);
            let text = std::fs::read_to_string(file).map_err(|error| wrong(error.to_string()))?;
            yb_secure::warn_if_open("admin_token_file", Path::new(file));
            let first = text.lines().next().map(str::trim).filter(|token| !token.is_empty());
            Some(first.ok_or_else(|| wrong("its first line is empty".to_owned()))?.to_owned())
        }
        _ => return Err(SettingsError::Conflict("admin_token and admin_token_file are both set".to_owned())),
    };
    Ok(WriteRules { listen: (port != 0).then(|| join_host(values.text("admin_write_host"), port)), token })
}

fn metadata_cleanup(values: &Values) -> Result<Option<Keys>, SettingsError> {
    if !values.flag("enable_metadata_cleanup_on_timeout") {
        return Ok(None);
    }
    if !values.flag("enable_http_metadata_server") {
        let text = "enable_metadata_cleanup_on_timeout needs enable_http_metadata_server: other stores are not cleaned";
        return Err(SettingsError::Conflict(text.to_owned()));
    }
    Ok(Some(Keys::new(&std::env::var("MC_METADATA_CLUSTER_ID").unwrap_or_default())))
}

/// The server as it stands in the peer's master: an address record may be written again as it is.
fn metadata(values: &Values, security: Option<Arc<Security>>) -> MetadataOptions {
    let listen = join_host(values.text("http_metadata_server_host"), values.number("http_metadata_server_port"));
    let mut options = MetadataOptions::from_env(listen, |name| std::env::var(name).ok());
    options.limits.unchanged = true;
    options.security = security;
    MetadataOptions { missing_key: Reply::text(400, "Missing key parameter"), ..options }
}

/// Disks of clients, by the peer's flags and bounds.
fn tiers(values: &Values) -> TierSettings {
    let threshold = values.number("promotion_admission_threshold").clamp(1, u64::from(u8::MAX));
    TierSettings {
        enable_offload: values.flag("enable_offload"),
        offload_on_evict: values.flag("offload_on_evict"),
        offload_force_evict: values.flag("offload_force_evict"),
        offloading_queue_limit: whole(values, "offloading_queue_limit"),
        offload_cap_ratio: values.double("offload_cap_ratio"),
        promotion_on_hit: values.flag("promotion_on_hit"),
        promotion_admission_threshold: u8::try_from(threshold).unwrap_or(u8::MAX),
        promotion_queue_limit: whole(values, "promotion_queue_limit"),
        promotion_max_per_heartbeat: whole(values, "promotion_max_per_heartbeat").max(1),
    }
}

/// Where quotas are kept, with multi-tenancy.
fn tenant_quotas(values: &Values) -> Result<Option<PathBuf>, SettingsError> {
    if !values.flag("enable_multi_tenants") {
        return Ok(None);
    }
    let (name, kind) = ("tenant_quota_connector_type", values.text("tenant_quota_connector_type"));
    if kind != "file" {
        return Err(illegal(name, kind, "must be file: policies are kept nowhere else".to_owned()));
    }
    let path = values.text("tenant_quota_connector_uri");
    if path.is_empty() {
        let text = "enable_multi_tenants needs tenant_quota_connector_uri, the path of the file with the quotas";
        return Err(SettingsError::Conflict(text.to_owned()));
    }
    Ok(Some(path.into()))
}

/// The share of its quota at which a tenant is trimmed: that of the pool unless it is given.
fn tenant_watermark(values: &Values) -> f64 {
    match values.source("tenant_eviction_high_watermark_ratio") {
        Source::Default => values.double("eviction_high_watermark_ratio"),
        _ => values.double("tenant_eviction_high_watermark_ratio"),
    }
}

fn whole(values: &Values, name: &str) -> usize {
    usize::try_from(values.number(name)).unwrap_or(usize::MAX)
}

fn narrow(values: &Values, name: &str) -> u32 {
    u32::try_from(values.number(name)).unwrap_or(u32::MAX)
}

fn seconds(values: &Values, name: &str) -> Duration {
    Duration::from_secs(values.number(name))
}

fn millis(values: &Values, name: &str) -> Duration {
    Duration::from_millis(values.number(name))
}

/// `rpc_thread_num`, else `max_threads` but not more than there are cores, as the peer counts.
fn workers(values: &Values) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    match whole(values, "rpc_thread_num") {
        0 => whole(values, "max_threads").min(cores).max(1),
        workers => workers,
    }
}

fn limits(values: &Values) -> ServerLimits {
    ServerLimits {
        max_body_bytes: narrow(values, "max_request_body"),
        max_connections: whole(values, "max_connections"),
        max_connections_per_address: whole(values, "max_connections_per_address"),
        max_deferred_per_address: whole(values, "max_deferred_per_address"),
        max_buffered_per_address: whole(values, "max_buffered_per_address"),
        max_unsent_bytes: whole(values, "max_unsent_bytes"),
        max_buffered_bytes: whole(values, "max_buffered_bytes"),
        stalled_frame_timeout: millis(values, "partial_request_timeout"),
        idle_timeout: Some(seconds(values, "rpc_conn_timeout_seconds")).filter(|timeout| !timeout.is_zero()),
        tcp_no_delay: values.flag("rpc_enable_tcp_no_delay"),
        ..ServerLimits::default()
    }
}

fn catalog(values: &Values) -> Result<CatalogSettings, SettingsError> {
    let settings = CatalogSettings {
        lease_ttl: millis(values, "default_kv_lease_ttl"),
        soft_pin_ttl: millis(values, "default_kv_soft_pin_ttl"),
        soft_pin_ttl_max: millis(values, "max_kv_soft_pin_ttl"),
        evict_soft_pinned: values.flag("allow_evict_soft_pinned_objects"),
        eviction_policy: policy(values.text("eviction_policy"))?,
        eviction_ratio: values.double("eviction_ratio"),
        eviction_high_watermark: values.double("eviction_high_watermark_ratio"),
        discard_timeout: seconds(values, "put_start_discard_timeout_sec"),
        release_timeout: seconds(values, "put_start_release_timeout_sec"),
        client_ttl: seconds(values, "client_ttl"),
        client_suspicion_ttl: seconds(values, "client_suspicion_ttl_sec"),
        repair_grace: millis(values, "repair_grace_ms"),
        allocation_strategy: strategy(values.text("allocation_strategy")),
        alignment: alignment(values)?,
        cutting: if values.flag("memory_page_runs") { Cutting::Adaptive } else { Cutting::Offset },
        tiers: tiers(values),
        multi_tenant: values.flag("enable_multi_tenants"),
        tenant_high_watermark: tenant_watermark(values),
        segments_max: whole(values, "max_segments"),
        segments_per_client_max: whole(values, "max_segments_per_client"),
        key_max: ByteLen(values.number("max_key_bytes")),
        objects_memory: objects_memory(values.number("max_objects_memory")),
        unfinished_per_client: Some(values.number("max_unfinished_per_client")).filter(|bytes| *bytes > 0).map(ByteLen),
        hash_seed: Rng::from_entropy().next_u64(),
        first_replica_id: first_replica_id(),
        ..CatalogSettings::default()
    };
    settings.check().map_err(|error| SettingsError::Conflict(error.to_string()))?;
    Ok(settings)
}

/// What is set, or half of what this process may use.
fn objects_memory(set: u64) -> ByteLen {
    let half = || yb_env::memory_limit().map_or(OBJECTS_MEMORY_UNTOLD, |limit| limit / 2);
    ByteLen(if set > 0 { set } else { half() })
}

/// Where nobody tells how much memory there is.
const OBJECTS_MEMORY_UNTOLD: u64 = 16 << 30;

/// Where this life of the master starts to number replicas: above the numbers of every earlier life, as long as the time of
/// day goes forward and no life made a million a millisecond.
fn first_replica_id() -> u64 {
    let within = Rng::from_entropy().next_u64() >> (64 - IDS_PER_MILLISECOND);
    ReplicaId::NEVER_REUSED | yb_env::epoch_millis() << IDS_PER_MILLISECOND | within
}

/// A power of two.
const IDS_PER_MILLISECOND: u32 = 20;

fn alignment(values: &Values) -> Result<Alignment, SettingsError> {
    let bytes = values.number("memory_alignment");
    let why = || illegal("memory_alignment", &bytes.to_string(), "must be a power of two".to_owned());
    Alignment::new(bytes).ok_or_else(why)
}

fn jobs(values: &Values) -> JobSettings {
    let tasks = QueueLimits {
        finished: whole(values, "max_total_finished_tasks"),
        pending: whole(values, "max_total_pending_tasks"),
        processing: whole(values, "max_total_processing_tasks"),
        per_address: whole(values, "max_tasks_per_address"),
        pending_timeout: seconds(values, "pending_task_timeout_sec"),
        processing_timeout: seconds(values, "processing_task_timeout_sec"),
        max_retry_attempts: narrow(values, "max_retry_attempts"),
    };
    let heat = HeatSettings {
        mode: match values.text("dynamic_replication_mode") {
            "observe" => HeatMode::Observe,
            "enforce" => HeatMode::Enforce,
            _ => HeatMode::Off,
        },
        window: seconds(values, "dynamic_replication_heat_window_seconds"),
        threshold_qps: values.double("dynamic_replication_admission_qps_threshold"),
        max_replicas: narrow(values, "dynamic_replication_max_memory_replicas"),
        ..HeatSettings::default()
    };
    let repair = RepairSettings {
        bytes_per_second: values.number("repair_bytes_per_second"),
        running: whole(values, "repair_max_running").max(1),
    };
    JobSettings { tasks, heat, repair }
}

fn policy(name: &str) -> Result<PolicyKind, SettingsError> {
    name.parse().map_err(|error: yb_catalog::UnknownPolicy| illegal("eviction_policy", name, error.to_string()))
}

fn strategy(name: &str) -> AllocationStrategy {
    match name {
        "random" => AllocationStrategy::Random,
        "free_ratio_first" => AllocationStrategy::FreeRatioFirst,
        "ssd_free_ratio_first" => AllocationStrategy::SsdFreeRatioFirst,
        "local_first" => AllocationStrategy::LocalFirst,
        "cxl" => AllocationStrategy::Cxl,
        _ => AllocationStrategy::Balanced,
    }
}

/// The IPv4 address of a network interface.
fn interface_address(name: &str) -> Result<String, SettingsError> {
    let all = if_addrs::get_if_addrs().map_err(|error| illegal("rpc_interface", name, error.to_string()))?;
    let found = all.iter().find(|interface| interface.name == name && interface.ip().is_ipv4());
    found.map(|interface| interface.ip().to_string()).ok_or_else(|| {
        let mut names: Vec<&str> = all.iter().filter(|i| i.ip().is_ipv4()).map(|i| i.name.as_str()).collect();
        names.dedup();
        illegal(
            "rpc_interface",
            name,
            format!("no interface of this name has an IPv4 address; there are {}", names.join(", ")),
        )
    })
}

fn core(text: &str) -> Result<usize, SettingsError> {
    text.parse().map_err(|_| illegal("rpc_cores", text, "must be numbers of cores separated by commas".to_owned()))
}

fn illegal(name: &str, text: &str, why: String) -> SettingsError {
    SettingsError::Illegal { name: name.to_owned(), text: text.to_owned(), why }
}

/// `host:port`, with brackets around an IPv6 address that lacks them.
fn join_host(host: &str, port: u64) -> String {
    if host.contains(':') && !host.starts_with('[') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn resolve(name: &str, text: &str, address: &str) -> Result<SocketAddr, SettingsError> {
    let found = address.to_socket_addrs().map_err(|error| illegal(name, text, error.to_string()))?.next();
    found.ok_or_else(|| illegal(name, text, "has no address".to_owned()))
}

/// `GENERATION:PORT` or `GENERATION:ADDRESS:PORT`.
fn compat(text: &str, host: &str) -> Result<CompatListener, SettingsError> {
    let name = "compat_listen";
    let form =
        || illegal(name, text, "must be GENERATION:PORT or GENERATION:ADDRESS:PORT, e.g. 0.3.12:50061".to_owned());
    let (version, rest) = text.split_once(':').ok_or_else(form)?;
    let is_served = |version: &WireVersion| *version >= WireVersion::V0_3_10;
    let version: WireVersion = version.parse().ok().filter(is_served).ok_or_else(|| {
        let known: Vec<&str> = WireVersion::ALL.iter().filter(|v| is_served(v)).map(|v| v.name()).collect();
        illegal(name, text, format!("the generation must be one of {}", known.join(", ")))
    })?;
    let address = match rest.rsplit_once(':') {
        Some((address, port)) => join_host(address, port.parse::<u16>().map_err(|_| form())?.into()),
        None => join_host(host, rest.parse::<u16>().map_err(|_| form())?.into()),
    };
    Ok(CompatListener { version, address: resolve(name, text, &address)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compat_forms() {
        let parsed = compat("0.3.12:50061", "127.0.0.1").unwrap();
        assert_eq!((parsed.version, parsed.address), (WireVersion::V0_3_12, "127.0.0.1:50061".parse().unwrap()));
        let parsed = compat("0.3.11:[::1]:5", "127.0.0.1").unwrap();
        assert_eq!(parsed.address, "[::1]:5".parse().unwrap());
        assert!(compat("0.3.99:1", "127.0.0.1").unwrap_err().to_string().contains("0.3.10.post2"));
        for bad in ["0.3.9:50061", "0.3.12", "0.3.12:", "0.3.12:x", "0.3.12:127.0.0.1:99999"] {
            assert!(compat(bad, "127.0.0.1").is_err(), "{bad}");
        }
    }

    #[test]
    fn interfaces_by_name() {
        assert_eq!(interface_address("lo").unwrap(), "127.0.0.1");
        assert!(interface_address("none").unwrap_err().to_string().contains("there are lo"));
    }

    #[test]
    fn ipv6_hosts_get_brackets() {
        assert_eq!(join_host("::", 9003), "[::]:9003");
        assert_eq!(join_host("[::1]", 1), "[::1]:1");
        assert_eq!(join_host("0.0.0.0", 1), "0.0.0.0:1");
    }
}
