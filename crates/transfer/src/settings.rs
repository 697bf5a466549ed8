//! What can be set, with Mooncake's defaults where it has one.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use yb_mem::Coherence;
use yb_sched::TrafficClass;
use yb_secure::Security;
use yb_types::ClientId;

use crate::rdma::RdmaSettings;
use crate::{CxlSettings, FileSettings};

/// Everything about an engine that can be set.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    /// Where the handshake listens; `None` = serve nobody. Port 0 lets the kernel choose.
    pub listen: Option<SocketAddr>,
    /// Where the data port listens; `None` = the address of `listen` with port 0.
    pub data_listen: Option<SocketAddr>,
    /// The host that peers are told to connect to; `None` = the address of `listen`.
    pub advertise_host: Option<String>,
    /// Whether engines of this process are reached without a socket. Tests and measurements of TCP say no.
    pub in_process: bool,
    /// Whether shared memory may be used, in both roles (`YB_SHM`).
    pub shm: bool,
    /// The memory device that is shared with others, if there is one.
    pub cxl: Option<CxlSettings>,
    /// The CUDA driver to open; `None` = the one that the process has loaded, if any (`YB_CUDA_LIBRARY`).
    pub cuda_library: Option<PathBuf>,
    /// How file segments are used.
    pub file: FileSettings,
    /// Who we are to the owners of memory that we write.
    pub client_id: ClientId,
    /// Threads that serve the data port.
    pub data_threads: usize,
    /// Most connections to the data port; more are closed at once.
    pub max_data_connections: usize,
    /// Most handshakes at the same time; the oldest makes room.
    pub max_handshakes: usize,
    /// Most peers that may have our memory mapped; more use TCP.
    pub max_shm_peers: usize,
    /// Longest handshake message, either way (`MC_HANDSHAKE_MAX_LENGTH`, 1 MiB to 128 MiB).
    pub handshake_max_length: u64,
    /// Pending connections of the listening sockets (`MC_HANDSHAKE_LISTEN_BACKLOG`).
    pub backlog: i32,
    /// How long a peer's address may take to answer (`MC_HANDSHAKE_CONNECT_TIMEOUT`).
    pub connect_timeout: Duration,
    /// How long a peer may take to answer a handshake.
    pub handshake_timeout: Duration,
    /// How long a new connection may say nothing, and a header may take.
    pub silent_timeout: Duration,
    /// How long a transfer may make no progress (`MC_TCP_PROGRESS_TIMEOUT_SEC`, `MC_TCP_STATUS_TIMEOUT_SEC`).
    pub progress_timeout: Duration,
    /// Most connections over which one call is spread (`MC_TCP_LANES_PER_PEER`, 1 to 16).
    pub lanes_per_peer: usize,
    /// Bytes per connection from which on another one is used.
    pub stripe_min: u64,
    /// Most connections to one peer's data port; calls that need another one wait.
    pub max_lanes: usize,
    /// How long an idle connection is trusted.
    pub idle_lane_timeout: Duration,
    /// After how long the kernel probes an idle connection.
    pub keepalive: Duration,
    /// Submitted batches are cut into chunks of so many bytes; what is urgent waits for one of them at most.
    pub chunk_bytes: u64,
    /// How the classes of traffic share the workers.
    pub class_weights: [u32; TrafficClass::COUNT],
    /// Speak version 1 of the data wire only (`MC_TCP_PROTO=1`).
    pub version_1_only: bool,
    /// Ports from which one is drawn where a port is 0; `None` = the kernel's choice.
    pub port_range: Option<RangeInclusive<u16>>,
    /// Prefix of our keys in a metadata store (`MC_METADATA_CLUSTER_ID`).
    pub metadata_cluster: String,
    /// How long our records stay in a store that keeps leases when we are silent (`YB_METADATA_LEASE_SECONDS`).
    pub metadata_lease: Duration,
    /// How old what a peer said about itself may be when it is used; `None` = until it fails. Zero asks before every
    /// use (`MC_DISABLE_METACACHE`, `MC_TE_METADATA_REFRESH_INTERVAL_SECONDS`).
    pub metadata_max_age: Option<Duration>,
    /// RDMA: off unless its mode says otherwise (see `RdmaSettings::from_env` for the variables).
    pub rdma: RdmaSettings,
    /// Most notifications kept until they are fetched (`MC_HANDSHAKE_MAX_NOTIFY_ENTRIES`).
    pub max_notifications: usize,
    /// Who may connect, and how connections are secured, on the handshake port and the data port; `None`: everybody, over
    /// the plain wire. Set by whoever builds the engine, for it can fail.
    pub security: Option<Arc<Security>>,
    /// Most connections of one address to the data port; more are closed at once.
    pub max_data_connections_per_address: usize,
}

impl Default for EngineSettings {
    fn default() -> Self {
        EngineSettings {
            listen: None,
            data_listen: None,
            advertise_host: None,
            in_process: true,
            shm: true,
            cxl: None,
            cuda_library: None,
            file: FileSettings::default(),
            client_id: ClientId::default(),
            data_threads: 2,
            max_data_connections: 4096,
            max_handshakes: 256,
            max_shm_peers: 4096,
            handshake_max_length: 1 << 20,
            backlog: 128,
            connect_timeout: Duration::from_secs(5),
            handshake_timeout: Duration::from_secs(5),
            silent_timeout: Duration::from_secs(2),
            progress_timeout: Duration::from_secs(30),
            lanes_per_peer: 4,
            stripe_min: 4 << 20,
            max_lanes: 32,
            idle_lane_timeout: Duration::from_secs(60),
            keepalive: Duration::from_secs(30),
            chunk_bytes: 16 << 20,
            class_weights: TrafficClass::WEIGHTS,
            version_1_only: false,
            port_range: None,
            metadata_cluster: String::new(),
            metadata_lease: Duration::from_secs(30),
            metadata_max_age: None,
            rdma: RdmaSettings::default(),
            max_notifications: 1024,
            security: None,
            max_data_connections_per_address: 2048,
        }
    }
}

impl EngineSettings {
    /// The defaults, changed by environment variables. A value that makes no sense, or is out of its range, is
    /// reported and left at the default.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let mut settings = EngineSettings::default();
        let number = |name: &str, range: RangeInclusive<u64>| {
            let text = lookup(name)?;
            let value = text.parse().ok().filter(|value| range.contains(value));
            if value.is_none() {
                tracing::warn!(name, text, ?range, "setting ignored: not a number in its range");
            }
            value
        };
        let seconds = |name: &str, last: u64| number(name, 1..=last).map(Duration::from_secs);
        let says_no = |value: &str| matches!(value.trim(), "0" | "false" | "no" | "off");
        let unless_no = |name: &str| lookup(name).is_none_or(|value| !says_no(&value));
        settings.shm = unless_no("YB_SHM");
        settings.file.direct = unless_no("YB_FILE_DIRECT");
        settings.file.uring = unless_no("YB_FILE_URING");
        settings.file.durable = lookup("YB_FILE_DURABLE").is_some_and(|value| !value.is_empty() && !says_no(&value));
        settings.cxl = lookup("MC_CXL_DEV_PATH").filter(|path| !path.is_empty()).map(CxlSettings::new);
        if let Some(cxl) = &mut settings.cxl {
            cxl.size = number("MC_CXL_DEV_SIZE", 1..=u64::MAX);
            if lookup("YB_CXL_FLUSH").is_some_and(|value| !value.is_empty() && !says_no(&value)) {
                cxl.coherence = Coherence::Flush;
            }
        }
        settings.cuda_library = lookup("YB_CUDA_LIBRARY").filter(|path| !path.is_empty()).map(PathBuf::from);
        settings.rdma = RdmaSettings::from_env(&lookup);
        settings.version_1_only = lookup("MC_TCP_PROTO").as_deref() == Some("1");
        if let Some(length) = number("MC_HANDSHAKE_MAX_LENGTH", 1 << 20..=128 << 20) {
            settings.handshake_max_length = length;
        }
        if let Some(backlog) = number("MC_HANDSHAKE_LISTEN_BACKLOG", 1..=65_535) {
            settings.backlog = backlog as i32;
        }
        if let Some(timeout) = seconds("MC_HANDSHAKE_CONNECT_TIMEOUT", 3599) {
            settings.connect_timeout = timeout;
        }
        let progress = seconds("MC_TCP_PROGRESS_TIMEOUT_SEC", 86_400);
        if let Some(timeout) = progress.or_else(|| seconds("MC_TCP_STATUS_TIMEOUT_SEC", 86_400)) {
            settings.progress_timeout = timeout;
        }
        let lanes = number("MC_TCP_LANES_PER_PEER", 1..=16);
        if let Some(lanes) = lanes.or_else(|| number("MC_TCP_MAX_CONNECTIONS_PER_PEER", 1..=16)) {
            settings.lanes_per_peer = lanes as usize;
        }
        settings.metadata_cluster = lookup("MC_METADATA_CLUSTER_ID").unwrap_or_default();
        if let Some(lease) = seconds("YB_METADATA_LEASE_SECONDS", 86_400) {
            settings.metadata_lease = lease;
        }
        let interval = number("MC_TE_METADATA_REFRESH_INTERVAL_SECONDS", 0..=86_400).filter(|seconds| *seconds > 0);
        settings.metadata_max_age = match lookup("MC_DISABLE_METACACHE") {
            Some(_) => Some(Duration::ZERO),
            None => interval.map(Duration::from_secs),
        };
        if let Some(entries) = number("MC_HANDSHAKE_MAX_NOTIFY_ENTRIES", 1..=1 << 20) {
            settings.max_notifications = entries as usize;
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_changes_the_defaults_within_bounds() {
        let set = |name: &str| match name {
            "YB_SHM" => Some("0".to_owned()),
            "MC_CXL_DEV_PATH" => Some("/dev/dax0.0".to_owned()),
            "MC_CXL_DEV_SIZE" => Some("4096".to_owned()),
            "YB_FILE_DURABLE" => Some("1".to_owned()),
            "YB_FILE_URING" => Some("off".to_owned()),
            "MC_TCP_LANES_PER_PEER" => Some("17".to_owned()),
            "MC_TCP_MAX_CONNECTIONS_PER_PEER" => Some("3".to_owned()),
            "MC_HANDSHAKE_MAX_LENGTH" => Some("5".to_owned()),
            _ => None,
        };
        let settings = EngineSettings::from_env(set);
        assert!(!settings.shm);
        assert_eq!(settings.file, FileSettings { durable: true, uring: false, ..FileSettings::default() });
        assert_eq!(settings.cxl, Some(CxlSettings { size: Some(4096), ..CxlSettings::new("/dev/dax0.0") }));
        assert_eq!(settings.lanes_per_peer, 3);
        assert_eq!(settings.handshake_max_length, 1 << 20);
        assert!(EngineSettings::from_env(|_| None).shm);
    }
}
