//! The command line of `yuebing`.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use yb_bench::rpc::Operation;
use yb_bench::transfer::sweep::Route;
use yb_evict::PolicyKind;
use yb_replay::Speed;

use crate::failure::{Failure, Outcome};
use crate::size::Size;

/// A KV-cache pool for LLM serving, wire compatible with Mooncake.
#[derive(Debug, Parser)]
#[command(name = "yuebing", version, arg_required_else_help = true, max_term_width = 110)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong command line, 3 no such key, 4 master unreachable, \
                        5 wrong bytes, 6 no room in the pool, 130 interrupted.")]
pub struct Yuebing {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a pool on this machine until Ctrl-C: one master and some nodes
    Up(UpArgs),
    /// Run a master; flags as of mooncake_master (see: yuebing master --help)
    #[command(disable_help_flag = true)]
    Master(DaemonArgs),
    /// Run a storage node; flags as of mooncake_client (see: yuebing node --help)
    #[command(disable_help_flag = true)]
    Node(DaemonArgs),
    /// Run an HTTP metadata server for Transfer Engines, as mooncake_http_metadata_server does
    MetadataServer(MetadataServerArgs),
    /// Show which NIC serves which memory first, as transfer_engine_topology_dump does
    Topology(TopologyArgs),
    /// Mooncake's benchmark of its engine over ours; flags as there (see: yuebing transfer-engine-bench --help)
    #[command(disable_help_flag = true)]
    TransferEngineBench(DaemonArgs),
    /// Store a file under a key
    Put(PutArgs),
    /// Read an object into a file or to standard output
    Get(GetArgs),
    /// Show size and replicas of an object; renews its read lease
    Stat(StatArgs),
    /// List keys of the default tenant, sorted; asks the admin port
    Ls(LsArgs),
    /// Remove objects
    Rm(RmArgs),
    /// Show segments, use, keys and clients of a master
    Status(StatusArgs),
    /// Move everything off segments before their node leaves; watch or call off such a job
    Drain(DrainArgs),
    /// Settings: what they mean, what holds, and where it came from
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Replay a request trace against a pool: read hits and check every byte, store misses
    ///
    /// Without --master and MOONCAKE_MASTER the replay starts a pool of its own and ends it.
    Replay(ReplayArgs),
    /// Whether this machine can take part in a pool: addresses, limits, memory, devices; yes or no at the end
    Doctor(DoctorArgs),
    /// Measure: a master, a whole store, this machine
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Make request traces, and look at them
    #[command(subcommand)]
    Trace(TraceCommand),
}

/// Flags that go to a daemon as they are.
#[derive(Debug, Args)]
pub struct DaemonArgs {
    /// Flags of the form --name=value
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub flags: Vec<OsString>,
}

/// `metadata-server`, `mooncake_http_metadata_server`
#[derive(Debug, Args)]
pub struct MetadataServerArgs {
    /// Address to listen on
    #[arg(long, default_value = "0.0.0.0")]
    pub host: String,
    /// Port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// What is logged: DEBUG, INFO, WARNING, ERROR or CRITICAL
    #[arg(long, default_value = "INFO", ignore_case = true, value_parser = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"])]
    pub log_level: String,
    /// Refuse to listen where others can connect, unless MC_METADATA_HTTP_TOKEN is set (as 0.3.14 does)
    #[arg(long)]
    pub require_token: bool,
    /// Let the newest engine have a name though it does not say which life of it it is, as engines of Mooncake
    #[arg(long)]
    pub newest_wins: bool,
}

/// `topology`, `transfer_engine_topology_dump`
#[derive(Debug, Args)]
pub struct TopologyArgs {
    /// Only these NICs, separated by commas [default: those of MC_TE_FILTERS, else all]
    #[arg(long, default_value = "", hide_default_value = true, value_name = "NAMES")]
    pub device_name: String,
    /// Whose word stands in the output: te, tent, or auto for what MC_USE_TENT and MC_USE_TEV1 say
    #[arg(long, default_value = "auto", value_parser = ["auto", "te", "tent"])]
    pub backend: String,
    /// Use the priority matrix of the file that MC_CUSTOM_TOPO_JSON names, not the host's own
    #[arg(long)]
    pub use_custom_topo: bool,
    /// Use the priority matrix of this file
    #[arg(long, value_name = "PATH")]
    pub custom_topo_json: Option<PathBuf>,
    /// Show the NICs too, with speed and NUMA node
    #[arg(long)]
    pub links: bool,
    /// Print one JSON object (links and matrix)
    #[arg(long)]
    pub json: bool,
}

/// `up`
#[derive(Debug, Args)]
pub struct UpArgs {
    /// How many nodes
    #[arg(long, default_value_t = 1, value_parser = node_count)]
    pub nodes: usize,
    /// Memory of the whole pool, divided among the nodes
    #[arg(long, default_value = "2GiB")]
    pub memory: Size,
    /// Port of the master [default: a free one]
    #[arg(long)]
    pub port: Option<u16>,
    /// Admin port of the master [default: a free one]
    #[arg(long)]
    pub admin_port: Option<u16>,
    /// Print addresses and process numbers as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Where the admin port is.
#[derive(Debug, Args)]
pub struct AdminAddress {
    /// Admin (metrics) port of the master, host:port [default: port 9003 on the host of the master]
    #[arg(long, env = "YUEBING_ADMIN", value_name = "HOST:PORT")]
    admin: Option<String>,
    /// The master
    #[command(flatten)]
    pub master: MasterAddress,
}

/// Where the master is.
#[derive(Clone, Debug, Args)]
pub struct MasterAddress {
    /// The master, host:port [default: master_server_address of the file named by MOONCAKE_CONFIG_PATH, else
    /// 127.0.0.1:50051]
    #[arg(long, env = "MOONCAKE_MASTER", value_name = "HOST:PORT")]
    master: Option<String>,
}

impl MasterAddress {
    /// The address asked for, if one was.
    pub fn given(&self) -> Option<String> {
        self.master.clone().filter(|text| !text.is_empty())
    }

    /// The address asked for, else that of the configuration file, else the default.
    ///
    /// # Errors
    /// If the environment names a configuration file that cannot be read: a command must not go to another pool then.
    pub fn address(&self) -> Outcome<String> {
        if let Some(address) = self.given() {
            return Ok(address);
        }
        let path = std::env::var_os("MOONCAKE_CONFIG_PATH").filter(|path| !path.is_empty());
        let named = path.map(|path| from_config_file(Path::new(&path))).transpose()?.flatten();
        Ok(named.unwrap_or_else(|| "127.0.0.1:50051".to_owned()))
    }
}

impl AdminAddress {
    /// The address asked for, else the default port on the master's host.
    ///
    /// # Errors
    /// As [`MasterAddress::address`].
    pub fn address(&self) -> Outcome<String> {
        if let Some(text) = self.admin.as_deref().filter(|text| !text.is_empty()) {
            return Ok(without_scheme(text).to_owned());
        }
        let master = self.master.address()?;
        let host = master.rsplit_once(':').map_or(master.as_str(), |(host, _)| host);
        Ok(format!("{host}:9003"))
    }
}

/// `host:port` of an address that may be written as a URL.
pub fn without_scheme(text: &str) -> &str {
    text.strip_prefix("http://").map_or(text, |rest| rest.trim_end_matches('/'))
}

/// Mooncake's clients read their master from the same file. `None`: the file names none.
fn from_config_file(path: &Path) -> Outcome<Option<String>> {
    let wrong = |reason: &dyn Display| Failure::usage(format!("MOONCAKE_CONFIG_PATH={}: {reason}", path.display()));
    let text = std::fs::read(path).map_err(|e| wrong(&e))?;
    let json: serde_json::Value = serde_json::from_slice(&text).map_err(|e| wrong(&e))?;
    Ok(json.get("master_server_address").and_then(|address| address.as_str()).map(str::to_owned))
}

/// `status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `drain`
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Names of the segments to empty, as `yuebing status` shows them
    #[arg(value_name = "SEGMENT", conflicts_with = "job")]
    pub segments: Vec<String>,
    /// Only these segments take the objects [default: all others]
    #[arg(long, value_name = "SEGMENT")]
    pub to: Vec<String>,
    /// Moves under way at a time; nodes of Mooncake ask for work once a second, so give them 16 or more
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub concurrency: u32,
    /// A job that runs already
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Wait for the end of the job and show how far it is
    #[arg(long)]
    pub watch: bool,
    /// Call the job off; its segments take objects again
    #[arg(long, requires = "job")]
    pub cancel: bool,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `config`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Value, source, default, meaning, the peer's name, whether it can change without a restart, and what becomes of it here
    Explain(ExplainArgs),
}

/// `config explain`
#[derive(Debug, Args)]
#[command(after_help = "Flags of the process to explain stand after --, for example:\n  \
                        yuebing config explain eviction_ratio -- --config_path=master.yaml --eviction_ratio=0.1")]
pub struct ExplainArgs {
    /// A setting, or a part of names [default: all]
    pub name: Option<String>,
    /// Whose settings: of a master or a node
    #[arg(long, default_value = "master", value_parser = ["master", "node"])]
    pub of: String,
    /// Ask a running master of this project at its admin port, host:port
    #[arg(long, value_name = "ADMIN", conflicts_with = "of")]
    pub running: Option<String>,
    /// Print a JSON list
    #[arg(long)]
    pub json: bool,
    /// Flags as the process would get them
    #[arg(last = true, value_name = "FLAGS")]
    pub flags: Vec<OsString>,
}

/// `doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Address on which a node would listen
    #[arg(long, default_value = "0.0.0.0")]
    pub host: String,
    /// Address that peers would be told [default: found out, as a node does]
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<String>,
    /// Port on which it would listen [default: any]
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// A node or engine that must answer, host:port; may be repeated
    #[arg(long, value_name = "HOST:PORT")]
    pub peer: Vec<String>,
    /// Memory that a node is to lend: is there as much?
    #[arg(long)]
    pub memory: Option<Size>,
    /// A memory device that is to be mapped [default: MC_CXL_DEV_PATH]
    #[arg(long, value_name = "PATH")]
    pub cxl: Option<PathBuf>,
    /// A master that must answer [default: none is asked, unless MOONCAKE_MASTER names one]
    #[command(flatten)]
    pub master: MasterAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `put`
#[derive(Debug, Args)]
pub struct PutArgs {
    /// The key
    pub key: OsString,
    /// File to store, - for standard input
    pub file: PathBuf,
    /// Copies on different nodes, fewer if not so many have room
    #[arg(long, default_value_t = 1)]
    pub replicas: u64,
    /// Where the pool is
    #[command(flatten)]
    pub master: MasterAddress,
    /// Print what was done as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `get`
#[derive(Debug, Args)]
pub struct GetArgs {
    /// The key
    pub key: OsString,
    /// File to write [default: standard output]
    pub file: Option<PathBuf>,
    /// Where the pool is
    #[command(flatten)]
    pub master: MasterAddress,
}

/// `stat`
#[derive(Debug, Args)]
pub struct StatArgs {
    /// The key
    pub key: OsString,
    /// Where the pool is
    #[command(flatten)]
    pub master: MasterAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `ls`
#[derive(Debug, Args)]
pub struct LsArgs {
    /// Only keys that begin with this
    #[arg(long)]
    pub prefix: Option<OsString>,
    /// Only keys in which this is found
    #[arg(long)]
    pub regex: Option<String>,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

/// `rm`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["keys", "regex", "all"]))]
pub struct RmArgs {
    /// The keys
    #[arg(value_name = "KEY")]
    pub keys: Vec<OsString>,
    /// All keys in which this is found
    #[arg(long, value_name = "PATTERN")]
    pub regex: Option<String>,
    /// All keys
    #[arg(long)]
    pub all: bool,
    /// Also those that somebody is reading
    #[arg(long)]
    pub force: bool,
    /// Where the pool is
    #[command(flatten)]
    pub master: MasterAddress,
    /// Print what was done as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The trace: one JSON object a line with timestamp, input_length, output_length, hash_ids; - for standard input
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Size of the object that stands for one block
    #[arg(long, default_value = "64KiB")]
    pub block_bytes: Size,
    /// Clients at once, each with connections of its own
    #[arg(long, default_value_t = 2)]
    pub clients: usize,
    /// max, or a factor: 1x takes as long as the trace did
    #[arg(long, default_value = "max")]
    pub speed: Speed,
    /// Only the first so many requests
    #[arg(long)]
    pub requests: Option<u64>,
    /// What the keys begin with; the same prefix finds the blocks of an earlier run
    #[arg(long, default_value = "replay")]
    pub key_prefix: String,
    /// The pool [default: an own one, started for the replay]
    #[command(flatten)]
    pub master: MasterAddress,
    /// Nodes of the own pool
    #[arg(long, default_value_t = 2, value_parser = node_count)]
    pub nodes: usize,
    /// Memory of the own pool
    #[arg(long, default_value = "2GiB")]
    pub memory: Size,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Touch no pool: count the hits of an eviction policy, beside LRU and the offline optimum
    #[arg(long, requires = "capacity")]
    pub simulate: bool,
    /// The simulated policy: chain, lru, near-lru (what Mooncake does), s3-fifo
    #[arg(long, default_value_t, requires = "simulate", value_name = "NAME")]
    pub policy: PolicyKind,
    /// Blocks that the simulated pool holds; several give a line each: 1000,5000
    #[arg(long, requires = "simulate", value_delimiter = ',', value_parser = block_count, value_name = "BLOCKS")]
    pub capacity: Vec<usize>,
}

/// `trace`
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Make conversations with the statistics of the published conversation trace
    Generate(TraceGenerateArgs),
    /// Count requests, blocks and repetitions of a trace
    Stat(TraceStatArgs),
}

/// `trace generate`
#[derive(Debug, Args)]
pub struct TraceGenerateArgs {
    /// How many requests; they always span one hour
    #[arg(long, default_value_t = 1000)]
    pub requests: usize,
    /// The same seed gives the same trace
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// File to write [default: standard output]
    #[arg(long, short)]
    pub out: Option<PathBuf>,
}

/// `trace stat`
#[derive(Debug, Args)]
pub struct TraceStatArgs {
    /// The trace, - for standard input
    pub file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `bench`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// RPCs of a master: operations per second, latencies, CPU and memory of the server; stores no bytes
    Rpc(BenchRpcArgs),
    /// Put, get, look up and remove objects, against any master and nodes of this wire
    Store(BenchStoreArgs),
    /// One copy between a segment and a buffer: the limit of shared memory on this machine
    Memcpy(BenchMemcpyArgs),
    /// The Transfer Engine between two processes: every transport, block, batch and number of threads
    Transfer(BenchTransferArgs),
    /// One TCP connection on loopback without an engine: the limit of transfers over one connection
    RawTcp(BenchRawTcpArgs),
    /// The engine itself: what submitting and polling cost when next to no bytes move
    Submit(BenchSubmitArgs),
}

/// `bench rpc`
#[derive(Debug, Args)]
pub struct BenchRpcArgs {
    /// What each request does
    #[arg(long, default_value = "get", value_parser = operation_names())]
    pub operation: String,
    /// Connections
    #[arg(long, default_value_t = 64)]
    pub connections: usize,
    /// Requests under way on each connection
    #[arg(long, default_value_t = 1)]
    pub outstanding: usize,
    /// Keys of a batch request
    #[arg(long, default_value_t = 128)]
    pub batch: usize,
    /// Measured time
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Time before it, in seconds
    #[arg(long, default_value_t = 0.5)]
    pub warm_up: f64,
    /// Keys stored before the run
    #[arg(long, default_value_t = 200_000)]
    pub keys: usize,
    /// Bytes of a key
    #[arg(long, default_value_t = 45)]
    pub key_bytes: usize,
    /// Core for the load generator
    #[arg(long)]
    pub core: Option<usize>,
    /// Process of the master on this machine, whose CPU time and memory are told
    #[arg(long, value_name = "PID")]
    pub server_pid: Option<u32>,
    /// Where the master is
    #[command(flatten)]
    pub master: MasterAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `bench store`
#[derive(Debug, Args)]
pub struct BenchStoreArgs {
    /// Bytes of an object
    #[arg(long, default_value = "1MiB")]
    pub size: Size,
    /// Objects of a call
    #[arg(long, default_value_t = 1)]
    pub batch: usize,
    /// Objects of all clients together; they must fit into the pool
    #[arg(long, default_value_t = 256)]
    pub keys: usize,
    /// Clients at once
    #[arg(long, default_value_t = 1)]
    pub clients: usize,
    /// Copies of an object on different nodes
    #[arg(long, default_value_t = 1)]
    pub replicas: u64,
    /// How long the get phase and the lookup phase last
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Compare every byte that is read
    #[arg(long)]
    pub check: bool,
    /// Process of this machine whose CPU time is told per object; may be repeated (master, nodes)
    #[arg(long, value_name = "PID")]
    pub server_pid: Vec<u32>,
    /// Where the pool is
    #[command(flatten)]
    pub master: MasterAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `bench memcpy`
#[derive(Debug, Args)]
pub struct BenchMemcpyArgs {
    /// Bytes of a copy
    #[arg(long, default_value = "1MiB")]
    pub size: Size,
    /// Different buffers copied to, in turn
    #[arg(long, default_value_t = 1)]
    pub buffers: u64,
    /// How long each kind of copy runs
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `bench raw-tcp`
#[derive(Debug, Args)]
pub struct BenchRawTcpArgs {
    /// Bytes of the buffer on each side, sent over and over
    #[arg(long, default_value = "16MiB")]
    pub memory: Size,
    /// How long each write size is measured
    #[arg(long, default_value_t = 0.5)]
    pub seconds: f64,
    /// Print the fastest write size as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `bench submit`
#[derive(Debug, Args)]
pub struct BenchSubmitArgs {
    /// How long to measure
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `bench transfer`
#[derive(Debug, Args)]
pub struct BenchTransferArgs {
    /// Ways of the bytes
    #[arg(long, value_delimiter = ',', default_values = Route::ALL.map(Route::name), value_parser = route_names())]
    pub transport: Vec<String>,
    /// Directions, seen from here
    #[arg(long, value_delimiter = ',', default_value = "write", value_parser = ["read", "write"])]
    pub operation: Vec<String>,
    /// Bytes of a request
    #[arg(long, value_delimiter = ',', default_value = "4KiB,64KiB,1MiB,16MiB")]
    pub block: Vec<Size>,
    /// Requests of a batch
    #[arg(long, value_delimiter = ',', default_value = "1,16")]
    pub batch: Vec<u64>,
    /// Threads, each with its own batches
    #[arg(long, value_delimiter = ',', default_value = "1")]
    pub threads: Vec<u64>,
    /// Measured time of each combination
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Time before it, in seconds
    #[arg(long, default_value_t = 0.2)]
    pub warm_up: f64,
    /// Bytes of the buffer on each side; combinations that need more are left out
    #[arg(long, default_value = "256MiB")]
    pub memory: Size,
    /// Walk over the whole buffers, so that caches do not help
    #[arg(long)]
    pub cold: bool,
    /// Also draw throughput over block size into this file (.svg or .png)
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Be the other process
    #[arg(long, hide = true, value_name = "TRANSPORT")]
    pub serve: Option<String>,
}

fn route_names() -> clap::builder::PossibleValuesParser {
    Route::ALL.map(Route::name).into()
}

fn operation_names() -> clap::builder::PossibleValuesParser {
    Operation::ALL.map(Operation::name).into()
}

/// At least one, and few enough for one machine.
fn node_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=256).contains(&count) => Ok(count),
        _ => Err("a number from 1 to 256".to_owned()),
    }
}

/// Blocks of a simulated pool: at least one, and few enough to count in 32 bits.
fn block_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if (1..=0x7fff_ffff).contains(&count) => Ok(count),
        _ => Err("a number of blocks, at least 1".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Exit;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Yuebing::command().debug_assert();
    }

    #[test]
    fn flags_of_daemons_pass_through_untouched() {
        let parsed = Yuebing::try_parse_from(["yuebing", "master", "--help", "-rpc_port", "5", "--no-such"]).unwrap();
        let Command::Master(args) = parsed.command else { panic!("{parsed:?}") };
        assert_eq!(args.flags, ["--help", "-rpc_port", "5", "--no-such"]);
    }

    #[test]
    fn where_the_master_is() {
        let parse = |line: &[&str]| match Yuebing::try_parse_from(line).unwrap().command {
            Command::Status(args) => args.admin,
            other => panic!("{other:?}"),
        };
        let both = parse(&["yuebing", "status", "--master", "h:1", "--admin", "http://g:2/"]);
        assert_eq!((both.master.address().unwrap(), both.address().unwrap()), ("h:1".to_owned(), "g:2".to_owned()));
        assert_eq!(parse(&["yuebing", "status", "--master", "h:1", "--admin", ""]).address().unwrap(), "h:9003");
        assert!(Yuebing::try_parse_from(["yuebing", "up", "--nodes", "0"]).is_err());
    }

    #[test]
    fn a_configuration_file_is_read_or_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("mooncake.json");
        assert_eq!(from_config_file(&path).unwrap_err().exit, Exit::Usage);
        std::fs::write(&path, "{").unwrap();
        assert_eq!(from_config_file(&path).unwrap_err().exit, Exit::Usage);
        std::fs::write(&path, r#"{"protocol": "tcp"}"#).unwrap();
        assert_eq!(from_config_file(&path).unwrap(), None);
        std::fs::write(&path, r#"{"master_server_address": "h:1"}"#).unwrap();
        assert_eq!(from_config_file(&path).unwrap().as_deref(), Some("h:1"));
    }
}
