//! The table, and the page that is made of it.

/// What becomes of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Treatment {
    /// It does what it does with the peer, or more.
    Honoured,
    /// It does nothing, for this reason; a line in the log says so when it is set.
    Ignored(&'static str),
    /// Setup fails, since doing without would do something else than was asked for.
    Refused {
        /// Values, in small letters, that ask for nothing.
        harmless: &'static [&'static str],
        /// Why, and what to do instead.
        why: &'static str,
    },
}

/// A variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What counts when it is not set.
    pub default: &'static str,
    /// What it is for.
    pub meaning: &'static str,
    /// What becomes of it.
    pub treatment: Treatment,
}

const fn honoured(name: &'static str, default: &'static str, meaning: &'static str) -> Variable {
    Variable { name, default, meaning, treatment: Treatment::Honoured }
}

const fn ignored(name: &'static str, meaning: &'static str, why: &'static str) -> Variable {
    Variable { name, default: "", meaning, treatment: Treatment::Ignored(why) }
}

const OFF: &[&str] = &["0", "false", "no", "off"];

const fn refused(name: &'static str, meaning: &'static str, why: &'static str) -> Variable {
    Variable { name, default: "", meaning, treatment: Treatment::Refused { harmless: OFF, why } }
}

const NO_STAGING: &str = "bytes move straight from and to the caller's memory";
const NO_DISK: &str = "offload to a disk is not built";
const ONE_RPC: &str = "the master is asked over a few connections that carry many requests each";
const OWN_BATCHES: &str = "the engine cuts and queues by itself";
const NOT_HERE: &str = "this build has no transport for such devices";
const NO_NOF: &str = "NVMe-oF is not built";
const ONE_ENGINE: &str = "there is one engine";

/// Every variable that is known, in the order of the page.
pub static VARIABLES: &[Variable] = &[
    // Joining a pool.
    honoured("MOONCAKE_CONFIG_PATH", "", "JSON file with the fields below, by their names in small letters"),
    honoured("MOONCAKE_MASTER", "", "the master, `host:port` (field `master_server_address`)"),
    honoured("MOONCAKE_LOCAL_HOSTNAME", "localhost", "own host, with a port or without"),
    honoured(
        "MOONCAKE_TE_META_DATA_SERVER",
        "P2PHANDSHAKE",
        "field `metadata_server`; or a store of names: `http://host:port/metadata`, `etcd://…`, `redis://…`",
    ),
    honoured("MOONCAKE_GLOBAL_SEGMENT_SIZE", "3200 MiB", "bytes lent to the pool, such as `4GB`"),
    honoured(
        "MOONCAKE_LOCAL_BUFFER_SIZE",
        "1 GiB",
        "half of what a `BufferPool` holds when nothing says how much; values are not staged in it",
    ),
    honoured("MOONCAKE_PROTOCOL", "tcp", "`tcp` or `rpc_only`"),
    honoured("MOONCAKE_DEVICE", "", "field `device_name`; without effect on tcp"),
    honoured("MOONCAKE_TENANT_ID", "default", "whose key space"),
    honoured("MOONCAKE_OFFLOAD_ENABLED", "false", "offload to a disk: true is refused, it is not built"),
    honoured("MOONCAKE_ENABLE_CLIENT_HTTP_SERVER", "false", "serve `/health`, `/metrics`, `/metrics/summary`"),
    honoured("MOONCAKE_CLIENT_HTTP_PORT", "9300", "where; 0 takes any free port"),
    // The client.
    honoured("MOONCAKE_STORE_CHECKSUM", "true", "checksums at writing and reading; the peer's default is off"),
    honoured(
        "MC_STORE_LOCAL_HOT_CACHE_SIZE",
        "0",
        "bytes of copies of objects that are read often ([its page](client-cache.md))",
    ),
    honoured("MC_STORE_LOCAL_HOT_ADMISSION_THRESHOLD", "2", "reads before an object is kept, 1 to 255"),
    honoured(
        "MC_STORE_USE_HUGEPAGE",
        "",
        "set: segments on reserved huge pages; ordinary ones when there are none, with a line in the log",
    ),
    honoured("MC_STORE_HUGEPAGE_SIZE", "2MB", "`2MB` or `1GB`"),
    honoured("MC_STORE_NUMA_SOCKET_ID", "", "NUMA node on which segments are made while it has room"),
    honoured(
        "MC_STORE_CLIENT_MIN_PORT",
        "",
        "least port that is drawn for both listeners of a client that lends memory (handshake, bytes), and for the name of one without a port; not set: listeners take any free port, names 12300 to 14300",
    ),
    honoured(
        "MC_STORE_CLIENT_MAX_PORT",
        "",
        "greatest such port (14300 where the least alone is set); a port in `local_hostname` is part of the name, and the handshake's port only with a metadata server",
    ),
    honoured("MC_STORE_CLIENT_METRIC", "1", "0: `/metrics` is off"),
    honoured("MC_STORE_CLIENT_METRIC_INTERVAL", "0", "seconds between summaries in the log; 0: none"),
    honoured("MC_STORE_CLUSTER_ID", "", "label `cluster_id` of all metrics"),
    honoured(
        "MC_RPC_TIMEOUT_MS",
        "2000",
        "time for a call, beside that for its bytes; negative: an hour (the peer: 30000, no limit)",
    ),
    honoured("MC_RPC_CONNECT_TIMEOUT_MS", "1000", "time for one attempt to connect to the master (the peer: 30000)"),
    honoured("YB_SHM", "1", "0: no shared memory with other processes of this host"),
    honoured(
        "YB_REPLICAS",
        "1",
        "1 to 16: every put asks for so many replicas in memory at least, whatever the engine asks for; fewer are made where there are fewer nodes",
    ),
    honoured("YB_LOCAL_FIRST", "0", "1: puts without a preference go to own segments first"),
    honoured(
        "YB_HOST_ID",
        "the host of the name",
        "name of this host for placement, where clients of one host have several addresses",
    ),
    honoured("YB_POPULATE", "0", "1: touch all pages of segments in the background from setup on"),
    honoured("YB_CLIENT_HTTP_HOST", "0.0.0.0", "address on which the client's page listens"),
    honoured("YB_ALLOW_EMPTY", "0", "1: values of no bytes can be stored (Python)"),
    honoured("YB_LOG", "warn", "what is logged to standard error (Python): error, warn, info, debug, trace"),
    // Who may connect, and how: docs/security.md.
    honoured("YUEBING_SECRET_FILE", "", "file with the pool's secret ([security](security.md))"),
    honoured("YUEBING_SECRET", "", "the secret itself; a file is better"),
    honoured("YUEBING_TLS_CA", "", "PEM file of the pool's authority: connections to master and peers are TLS"),
    honoured("YUEBING_TLS_CERT", "", "PEM file of the own certificate: peers connect by TLS"),
    honoured("YUEBING_TLS_KEY", "", "PEM file of its key"),
    honoured("YUEBING_TLS_MUTUAL", "0", "1: peers must show a certificate too"),
    honoured("YUEBING_TLS_NAME", "yuebing", "name in the certificates of others; `address`: the one dialled"),
    honoured("YUEBING_PLAIN_FROM", "", "from where the plain wire is taken: `any`, `none`, `10.0.0.0/8,::1`"),
    honoured("YUEBING_PLAIN_TO", "", "to where connections stay plain although there is a secret or TLS"),
    ignored("MC_STORE_MEMCPY", "copy inside one process", "own memory and memory of the same host are found out"),
    ignored(
        "MC_STORE_REPLICA_SCORING",
        "order of replicas",
        "own process, own host and others are told apart, and who failed comes last",
    ),
    ignored("MC_STORE_CLIENT_SETUP_RETRIES", "tries to find a port", "a port is bound before it is named"),
    ignored("MC_MMAP_ARENA_POOL_SIZE", "arena of mappings", "a segment is one mapping"),
    ignored("MC_DISABLE_MMAP_ARENA", "arena of mappings", "a segment is one mapping"),
    ignored("MC_STORE_LOCAL_HOT_BLOCK_SIZE", "blocks of the hot cache", "an object takes its own size"),
    ignored(
        "MC_STORE_LOCAL_HOT_CACHE_USE_SHM",
        "hot cache for dummy clients",
        "they read segments of this host where they are",
    ),
    ignored("MC_STORE_CLIENT_METRIC_BANDWIDTH", "bandwidth in summaries", "bytes are counted, whoever reads divides"),
    ignored("MC_STORE_RPC_CLIENT_IO_THREADS", "threads for requests", ONE_RPC),
    ignored("MC_RPC_CLIENT_IO_THREADS", "threads for requests", ONE_RPC),
    ignored("MC_TE_RPC_CLIENT_IO_THREADS", "threads for requests", ONE_RPC),
    ignored("MC_FILEREAD_WORKERS", "threads that read files", "replicas in files are not read"),
    ignored("MC_STORE_HCA_AFFINITY", "NICs near a buffer", "the engine chooses by its topology"),
    ignored("MC_STORE_HCA_NUMA_SEGMENTS", "segments split by NIC", "a segment is one range"),
    ignored(
        "MC_STORE_PIN_MEMORY_MAX_BYTES",
        "segments registered with CUDA",
        "segments are not registered with a GPU driver",
    ),
    ignored("MC_STORE_PINNED_RESTORE_ARENA_SIZE_BYTES", "staging for GPUs", NO_STAGING),
    ignored("MC_MS_AUTO_DISC", "discovery of NICs", "tcp needs none"),
    ignored("MC_MS_FILTERS", "NICs to use", "tcp needs none"),
    ignored("MOONCAKE_USE_URING", "disk tier", NO_DISK),
    ignored("MOONCAKE_OFFLOAD_FILE_STORAGE_PATH", "disk tier", NO_DISK),
    ignored("MOONCAKE_OFFLOAD_STORAGE_BACKEND_DESCRIPTOR", "disk tier", NO_DISK),
    ignored("MOONCAKE_OFFLOAD_LOCAL_BUFFER_SIZE_BYTES", "disk tier", NO_DISK),
    ignored("MOONCAKE_OFFLOAD_HEARTBEAT_INTERVAL_SECONDS", "disk tier", NO_DISK),
    ignored("MOONCAKE_OFFLOAD_FLUSH_PARTIAL_BUCKETS", "disk tier", NO_DISK),
    ignored("MOONCAKE_BUCKET_MAX_TOTAL_SIZE", "disk tier", NO_DISK),
    ignored("MOONCAKE_BUCKET_EVICTION_POLICY", "disk tier", NO_DISK),
    ignored("MOONCAKE_OFFSET_EVICTION_POLICY", "disk tier", NO_DISK),
    ignored("MOONCAKE_DFS_ROOT_DIR", "distributed file system", NO_DISK),
    ignored("MOONCAKE_DFS_FS_ADAPTER", "distributed file system", NO_DISK),
    ignored("MC_NOF_WORKERS", "NVMe-oF", NO_NOF),
    ignored("MC_NOF_SUBMIT_CHUNK_BYTES", "NVMe-oF", NO_NOF),
    ignored("MC_NOF_INFLIGHT_BYTES_LIMIT", "NVMe-oF", NO_NOF),
    ignored("MC_NOF_DEBUG", "NVMe-oF", NO_NOF),
    ignored("MC_STORE_REGISTER_SPDK", "NVMe-oF", NO_NOF),
    ignored("MC_USE_TENT", "another engine", ONE_ENGINE),
    ignored("MC_USE_TEV1", "another engine", ONE_ENGINE),
    ignored("MC_TENT_CONF", "another engine", ONE_ENGINE),
    ignored("ASCEND_ENABLE_USE_FABRIC_MEM", "Ascend", NOT_HERE),
    ignored("SUNRISE_USE_DEVICE_MEM", "Sunrise", NOT_HERE),
    Variable {
        name: "MC_RPC_PROTOCOL",
        default: "tcp",
        meaning: "`rdma`: requests over RDMA",
        treatment: Treatment::Refused { harmless: &["tcp"], why: "requests to the master go over TCP; unset it" },
    },
    refused(
        "MOONCAKE_ENABLE_EMBEDDED_MASTER",
        "a master inside the client",
        "it is not built: start `mooncake_master`, or unset it",
    ),
    // The transfer engine below.
    honoured("MC_TCP_PROTO", "", "1: version 1 of the data wire only"),
    honoured("MC_TCP_LANES_PER_PEER", "4", "connections over which one call is spread, 1 to 16"),
    honoured("MC_TCP_MAX_CONNECTIONS_PER_PEER", "", "old name of it"),
    honoured("MC_TCP_PROGRESS_TIMEOUT_SEC", "2", "seconds that a transfer may make no progress"),
    honoured("MC_TCP_STATUS_TIMEOUT_SEC", "2", "the same, when the other is not set"),
    honoured("MC_HANDSHAKE_CONNECT_TIMEOUT", "5", "seconds to connect to a peer"),
    honoured("MC_HANDSHAKE_LISTEN_BACKLOG", "128", "pending connections"),
    honoured("MC_HANDSHAKE_MAX_LENGTH", "1 MiB", "longest handshake message, 1 MiB to 128 MiB"),
    honoured("MC_HANDSHAKE_MAX_NOTIFY_ENTRIES", "1024", "notifications kept"),
    honoured("MC_DISABLE_METACACHE", "", "set: ask peers before every use of what they said"),
    honoured("MC_TE_METADATA_REFRESH_INTERVAL_SECONDS", "0", "how old it may be; 0: until it fails"),
    honoured("MC_CXL_DEV_PATH", "", "memory device that hosts share"),
    honoured("MC_CXL_DEV_SIZE", "all of it", "bytes of it"),
    ignored("MC_TCP_ENABLE_CONNECTION_POOL", "connections are kept", "they always are"),
    ignored("MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER", "queue to a peer", OWN_BATCHES),
    ignored("MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER", "queue to a peer", OWN_BATCHES),
    ignored("MC_TCP_ADMISSION_TIMEOUT_MS", "queue to a peer", OWN_BATCHES),
    ignored("MC_TCP_SLICE_SIZE", "pieces on a socket", OWN_BATCHES),
    ignored("MC_WORKERS_PER_CTX", "threads for each NIC", OWN_BATCHES),
    ignored("MC_ENABLE_PARALLEL_REG_MR", "threads that register memory", OWN_BATCHES),
    ignored("MC_TE_METRIC", "log of the throughput", "`/metrics` and `transfer_stats` show it"),
    ignored("MC_TE_METRIC_INTERVAL_SECONDS", "log of the throughput", "`/metrics` and `transfer_stats` show it"),
    ignored("MC_LOG_LEVEL", "logging", "YB_LOG says what is logged"),
    ignored("MC_LOG_DIR", "logging", "logs go to standard error"),
    ignored("MC_YLT_LOG_LEVEL", "logging", "YB_LOG says what is logged"),
    ignored("MC_FORCE_HCA", "RDMA without a NIC", "a device that is asked for and not there is an error"),
    ignored("MC_USE_RDMA_TWOSIDED", "another transport", NOT_HERE),
    ignored("MC_FORCE_MNNVL", "NVLink", NOT_HERE),
    ignored("MC_INTRANODE_NVLINK", "NVLink", NOT_HERE),
    ignored("MC_EFA_CQ_THREADS", "EFA", NOT_HERE),
];

/// The page about them, in Markdown.
pub fn page() -> String {
    let mut text = String::from(INTRO);
    text += "\n| variable | default | here | meaning |\n|---|---|---|---|\n";
    for Variable { name, default, meaning, treatment } in VARIABLES {
        let here = match treatment {
            Treatment::Honoured => "honoured".to_owned(),
            Treatment::Ignored(why) => format!("ignored, with a line in the log: {why}"),
            Treatment::Refused { why, .. } => format!("refused: {why}"),
        };
        let default = if default.is_empty() { String::new() } else { format!("`{default}`") };
        text += &format!("| `{name}` | {default} | {here} | {meaning} |\n");
    }
    text
}

const INTRO: &str = "\
# Environment variables of the client

This page is generated from the table in `crates/client/src/environment/table.rs`; a test compares the two
(`YB_BLESS=1 cargo test -p yb-client --test environment` writes it anew), and tries every row.

A value that cannot be read makes setup fail with -600 and names the variable (the peer takes its default instead). Blank is
the same as not set. Switches take true, 1, yes, on, enable and their opposites. A variable that is ignored is named in the log
when it is set. Rust programs get the same from `ClientConfig::from_env`, and from `ClientConfig::load` with the first twelve rows,
which the Python package leaves to `mooncake.mooncake_config`; what a program says in `setup` counts more than the environment.
Those of RDMA devices, of metadata servers and of `mooncake.engine` are on the pages of
[the engine](transfer-rdma.md), [metadata](transfer-metadata.md) and [its Python package](python-engine.md).
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_there_twice() {
        let mut names: Vec<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
