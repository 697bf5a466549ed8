//! What can be set about RDMA, with the peer's names and defaults.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Whether an engine uses RDMA.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RdmaMode {
    /// Devices are not even looked for (protocol "tcp").
    #[default]
    Off,
    /// Used when a device works (protocol "auto").
    Auto,
    /// An engine without a working device does not start (protocol "rdma").
    Required,
}

/// Which endpoint makes room when there are too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EvictionPolicy {
    /// One that was not used since it was looked at last.
    #[default]
    Sieve,
    /// The oldest.
    Fifo,
}

/// Settings of the RDMA transport.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RdmaSettings {
    /// Whether it is used.
    pub mode: RdmaMode,
    /// Devices that may be used, by name; empty = all (`MC_TE_FILTERS`).
    pub devices: Vec<String>,
    /// The priority matrix to use instead of the machine's (`MC_CUSTOM_TOPO_JSON`, a file).
    pub matrix: Option<PathBuf>,
    /// Port of every device (`MC_IB_PORT`).
    pub port: u8,
    /// Place in the table of GIDs; `None` = chosen (`MC_GID_INDEX`, `NCCL_IB_GID_INDEX`).
    pub gid_index: Option<u8>,
    /// Partition key's place (`MC_PKEY_INDEX`).
    pub pkey_index: u16,
    /// Largest packet (`MC_MTU`: 512, 1024, 2048, 4096).
    pub mtu: u32,
    /// Traffic class (`MC_IB_TC`).
    pub traffic_class: u8,
    /// Service level (`MC_IB_SL`).
    pub service_level: u8,
    /// Let the bus reorder writes where it can be asked for (`MC_IB_PCI_RELAXED_ORDERING`).
    pub relaxed_ordering: bool,
    /// Completions that fit into the queue of a device (`MC_MAX_CQE_PER_CTX`).
    pub max_cqe: u32,
    /// Endpoints of a device (`MC_MAX_EP_PER_CTX`).
    pub max_endpoints: usize,
    /// Which of them makes room (`MC_ENDPOINT_STORE_TYPE`).
    pub eviction: EvictionPolicy,
    /// Queue pairs of an endpoint; both ends need the same (`MC_NUM_QP_PER_EP`).
    pub pairs_per_endpoint: usize,
    /// Work requests outstanding on a queue pair (`MC_MAX_WR`).
    pub max_wr: u32,
    /// Bytes sent inside of a work request (`MC_MAX_INLINE`).
    pub max_inline: u32,
    /// One work request in so many is signalled, and the last of a chain always (`MC_RDMA_SIGNAL_INTERVAL`).
    pub signal_interval: u32,
    /// Bytes of a work request (`MC_SLICE_SIZE`).
    pub slice: u64,
    /// A rest up to the slice divided by this joins the last slice (`MC_FRAGMENT_RATIO`).
    pub fragment_ratio: u64,
    /// How often a slice is tried (`MC_RETRY_CNT`).
    pub retries: u32,
    /// Longest memory region; longer registrations are cut (`MC_MAX_MR_SIZE`).
    pub max_mr_size: u64,
    /// How long a failed rail rests (`MC_RDMA_RAIL_PAUSE_SECONDS`).
    pub rail_pause: Duration,
    /// Address for other engines' connections, instead of the segment's name (`MC_RDMA_BIND_ADDRESS`).
    pub bind_address: Option<String>,
    /// How long the driver looks for completions before it sleeps (`MC_RDMA_WORKER_IDLE_SPIN_US`).
    pub spin: Duration,
    /// An answer may take 4.096 us times two to this power. The peer uses 14.
    pub ack_timeout: u8,
    /// How often an unanswered packet is sent again. The peer uses 7.
    pub ack_retries: u8,
    /// How long a slice may be outstanding before its rail counts as broken, should the device say nothing.
    pub slice_timeout: Duration,
    /// A rail takes no more than it moves in this time.
    pub horizon: Duration,
    /// How long transfers wait while no rail works.
    pub patience: Duration,
    /// How long a passive endpoint waits for the word that it may be used.
    pub ready_timeout: Duration,
}

impl Default for RdmaSettings {
    fn default() -> Self {
        RdmaSettings {
            mode: RdmaMode::Off,
            devices: Vec::new(),
            matrix: None,
            port: 1,
            gid_index: None,
            pkey_index: 0,
            mtu: 4096,
            traffic_class: 0,
            service_level: 0,
            relaxed_ordering: true,
            max_cqe: 4096,
            max_endpoints: 65_536,
            eviction: EvictionPolicy::Sieve,
            pairs_per_endpoint: 2,
            max_wr: 256,
            max_inline: 64,
            signal_interval: 16,
            slice: 64 << 10,
            fragment_ratio: 4,
            retries: 9,
            max_mr_size: 1 << 40,
            rail_pause: Duration::from_secs(30),
            bind_address: None,
            spin: Duration::from_micros(50),
            ack_timeout: 14,
            ack_retries: 7,
            slice_timeout: Duration::from_secs(10),
            horizon: Duration::from_millis(50),
            patience: Duration::from_secs(5),
            ready_timeout: Duration::from_secs(10),
        }
    }
}

/// The names of a list: comma-separated, blanks around them do not count.
pub fn names(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

impl RdmaSettings {
    /// The defaults, changed by environment variables. A value that makes no sense, or is out of its range, is reported
    /// and left at the default. The mode is not read from the environment: the protocol decides it.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let mut settings = RdmaSettings::default();
        let number = |name: &str, range: RangeInclusive<u64>| {
            let text = lookup(name)?;
            let value = text.trim().parse().ok().filter(|value| range.contains(value));
            if value.is_none() {
                tracing::warn!(name, text, ?range, "setting ignored: not a number in its range");
            }
            value
        };
        macro_rules! set {
            ($field:ident, $type:ty, $name:literal, $range:expr) => {
                if let Some(value) = number($name, $range).and_then(|value| <$type>::try_from(value).ok()) {
                    settings.$field = value;
                }
            };
        }
        settings.devices = lookup("MC_TE_FILTERS").map(|text| names(&text)).unwrap_or_default();
        settings.matrix = lookup("MC_CUSTOM_TOPO_JSON").filter(|path| !path.is_empty()).map(PathBuf::from);
        settings.bind_address = lookup("MC_RDMA_BIND_ADDRESS").filter(|address| !address.is_empty());
        set!(port, u8, "MC_IB_PORT", 1..=255);
        set!(pkey_index, u16, "MC_PKEY_INDEX", 0..=65_535);
        set!(traffic_class, u8, "MC_IB_TC", 0..=255);
        set!(service_level, u8, "MC_IB_SL", 0..=15);
        set!(max_cqe, u32, "MC_MAX_CQE_PER_CTX", 1..=65_535);
        set!(max_endpoints, usize, "MC_MAX_EP_PER_CTX", 1..=65_535);
        set!(pairs_per_endpoint, usize, "MC_NUM_QP_PER_EP", 1..=255);
        set!(max_wr, u32, "MC_MAX_WR", 4..=65_535);
        set!(max_inline, u32, "MC_MAX_INLINE", 0..=65_535);
        set!(signal_interval, u32, "MC_RDMA_SIGNAL_INTERVAL", 1..=65_535);
        set!(slice, u64, "MC_SLICE_SIZE", 4096..=1 << 30);
        set!(fragment_ratio, u64, "MC_FRAGMENT_RATIO", 1..=1 << 20);
        set!(retries, u32, "MC_RETRY_CNT", 1..=127);
        set!(max_mr_size, u64, "MC_MAX_MR_SIZE", 4096..=u64::MAX);
        settings.gid_index = number("MC_GID_INDEX", 0..=255)
            .or_else(|| number("NCCL_IB_GID_INDEX", 0..=255))
            .and_then(|index| u8::try_from(index).ok());
        if let Some(mtu) = number("MC_MTU", 512..=4096) {
            if [512, 1024, 2048, 4096].contains(&mtu) {
                settings.mtu = mtu as u32;
            } else {
                tracing::warn!(mtu, "MC_MTU ignored: 512, 1024, 2048 or 4096");
            }
        }
        if let Some(ordering) = number("MC_IB_PCI_RELAXED_ORDERING", 0..=2) {
            settings.relaxed_ordering = ordering != 0;
        }
        if let Some(seconds) = number("MC_RDMA_RAIL_PAUSE_SECONDS", 1..=3599) {
            settings.rail_pause = Duration::from_secs(seconds);
        }
        if let Some(micros) = number("MC_RDMA_WORKER_IDLE_SPIN_US", 0..=1_000_000) {
            settings.spin = Duration::from_micros(micros);
        }
        match lookup("MC_ENDPOINT_STORE_TYPE").as_deref() {
            None | Some("SIEVE") => {}
            Some("FIFO") => settings.eviction = EvictionPolicy::Fifo,
            Some(other) => tracing::warn!(other, "MC_ENDPOINT_STORE_TYPE ignored: FIFO or SIEVE"),
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_changes_the_defaults_within_bounds() {
        let set = |name: &str| {
            let value = match name {
                "MC_TE_FILTERS" => " mlx5_0, mlx5_1,",
                "NCCL_IB_GID_INDEX" => "3",
                "MC_MTU" => "1500",
                "MC_IB_TC" => "106",
                "MC_NUM_QP_PER_EP" => "4",
                "MC_ENDPOINT_STORE_TYPE" => "FIFO",
                "MC_IB_PCI_RELAXED_ORDERING" => "0",
                "MC_IB_TC_" | "MC_SLICE_SIZE" => "1",
                "MC_RDMA_RAIL_PAUSE_SECONDS" => "2",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let settings = RdmaSettings::from_env(set);
        assert_eq!(settings.devices, ["mlx5_0", "mlx5_1"]);
        assert_eq!((settings.gid_index, settings.mtu, settings.traffic_class), (Some(3), 4096, 106));
        assert_eq!((settings.pairs_per_endpoint, settings.eviction), (4, EvictionPolicy::Fifo));
        assert_eq!((settings.relaxed_ordering, settings.slice), (false, 65_536));
        assert_eq!(settings.rail_pause, Duration::from_secs(2));
        assert_eq!(settings.mode, RdmaMode::Off);
        assert_eq!(RdmaSettings::from_env(|_| None), RdmaSettings::default());
    }
}
