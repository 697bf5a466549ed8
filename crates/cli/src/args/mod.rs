//! The command line of `yuebing`.

mod bench;
mod objects;
mod pool;

use std::ffi::OsString;
use std::fmt::Display;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use yb_evict::PolicyKind;
use yb_replay::Speed;

use crate::failure::{Failure, Outcome};
use crate::size::Size;

pub use bench::*;
pub use objects::*;
pub use pool::*;

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
    /// Run a storage node; flags as of mooncake_client (see: yuebing node --help). To empty one: yuebing node drain
    #[command(disable_help_flag = true)]
    Node(DaemonArgs),
    /// Run an HTTP metadata server for Transfer Engines, as mooncake_http_metadata_server does
    MetadataServer(MetadataServerArgs),
    /// Show which NIC serves which memory first, as transfer_engine_topology_dump does
    Topology(TopologyArgs),
    /// Write a secret, an authority and a certificate for a pool that has none, and say how to use them
    Certs(CertsArgs),
    /// Mooncake's benchmark of its engine over ours; flags as there (see: yuebing transfer-engine-bench --help)
    #[command(disable_help_flag = true)]
    TransferEngineBench(DaemonArgs),
    /// Store a file under a key
    Put(PutArgs),
    /// Read an object into a file or to standard output
    Get(GetArgs),
    /// Show size and replicas of an object; renews its read lease
    Stat(StatArgs),
    /// List keys, sorted; asks the admin port
    Ls(LsArgs),
    /// Remove objects
    Rm(RmArgs),
    /// Show segments, use, keys and clients of a master
    Status(StatusArgs),
    /// Watch a pool: use, hit ratio, throughput, calls, segments; q leaves
    Top(TopArgs),
    /// Show the segments: whose they are, how full, in which state
    Segments(SegmentsArgs),
    /// Show tenants with their quotas, or change a quota
    Tenants(TenantsArgs),
    /// Show copy and move tasks, and jobs that empty segments
    Tasks(TasksArgs),
    /// Move everything off nodes before they end, and wait for it; the same as yuebing node drain
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

/// `certs`
#[derive(Debug, Args)]
pub struct CertsArgs {
    /// Folder for the files; an authority and a secret that are there stay, the certificate is made anew
    pub folder: PathBuf,
    /// Host names and IP addresses that the certificate is for, beside the pool's name [default: those of the last
    /// call for this folder]
    pub names: Vec<String>,
    /// How many days the certificate is valid from now on [default: for ever]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub days: Option<u32>,
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
#[command(after_help = "Flags of the master stand after --, for example:\n  \
                        yuebing up --nodes 2 -- --eviction_ratio=0.1 --default_kv_lease_ttl=10s")]
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
    /// Flags of the master, as of mooncake_master
    #[arg(last = true, value_name = "FLAGS")]
    pub master_flags: Vec<OsString>,
}

/// Where the admin port is.
#[derive(Debug, Args)]
pub struct AdminAddress {
    /// Admin (metrics) port of the master, host:port [default: port 9003 on the host of the master]
    #[arg(long, env = "YUEBING_ADMIN", value_name = "HOST:PORT", value_parser = admin_address)]
    admin: Option<String>,
    /// The master
    #[command(flatten)]
    pub master: MasterAddress,
}

/// Where a master is that nobody names.
pub const DEFAULT_MASTER: &str = "127.0.0.1:50051";

/// Where the master is.
#[derive(Clone, Debug, Args)]
pub struct MasterAddress {
    /// The master, host:port [default: master_server_address of the file named by MOONCAKE_CONFIG_PATH, else
    /// 127.0.0.1:50051]
    #[arg(long, env = "MOONCAKE_MASTER", value_name = "HOST:PORT", value_parser = master_address)]
    master: Option<String>,
}

fn master_address(text: &str) -> Result<String, String> {
    with_port(text, 50051)
}

fn admin_address(text: &str) -> Result<String, String> {
    with_port(text, 9003)
}

/// Refuses an address without a port. Nothing is nothing said, and what is no address at all is for those who dial it.
fn with_port(text: &str, usual: u16) -> Result<String, String> {
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
        !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) && (!host.contains(':') || host.ends_with(']'))
    });
    if text.is_empty() || text.contains("://") || has_port {
        return Ok(text.to_owned());
    }
    let host = text.strip_suffix(':').unwrap_or(text);
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    Err(format!("the port is missing: write {host}:{usual}"))
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
        Ok(self.named()?.unwrap_or_else(|| DEFAULT_MASTER.to_owned()))
    }

    /// The address asked for, else that of the configuration file; `None`: nobody named one.
    ///
    /// # Errors
    /// As [`MasterAddress::address`].
    pub fn named(&self) -> Outcome<Option<String>> {
        if let Some(address) = self.given() {
            return Ok(Some(address));
        }
        let path = std::env::var_os("MOONCAKE_CONFIG_PATH").filter(|path| !path.is_empty());
        Ok(path.map(|path| from_config_file(Path::new(&path))).transpose()?.flatten())
    }

    /// Whether the command line names it, not the environment.
    fn on_command_line(&self) -> bool {
        self.given().is_some() && self.given() != std::env::var("MOONCAKE_MASTER").ok()
    }
}

impl AdminAddress {
    /// The admin address asked for, if one was. That of the environment belongs to the environment's master: it says nothing
    /// of another one that the command line names.
    pub fn given(&self) -> Option<String> {
        let of_environment = || self.admin == std::env::var("YUEBING_ADMIN").ok();
        let admin = self.admin.as_deref().filter(|text| !text.is_empty())?;
        (!self.master.on_command_line() || !of_environment()).then(|| without_scheme(admin).to_owned())
    }
}

/// Where the admin port of a master is, unless somebody says otherwise.
pub fn usual_admin(master: &str) -> String {
    let host = master.rsplit_once(':').map_or(master, |(host, _)| host);
    format!("{host}:9003")
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

/// `config`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Value, source, default, meaning, the peer's name, whether it can change without a restart, and what becomes of it here
    Explain(ExplainArgs),
    /// Change settings of a running master until its next reload or start: all of them or none
    Set(ConfigSetArgs),
}

/// `config set`
#[derive(Debug, Args)]
pub struct ConfigSetArgs {
    /// What is to hold, for example eviction_ratio=0.1
    #[arg(required = true, value_name = "NAME=VALUE", value_parser = setting)]
    pub settings: Vec<(String, String)>,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Name and value around the first `=`.
fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("write NAME=VALUE".to_owned()),
    }
}

/// `config explain`
#[derive(Debug, Args)]
#[command(after_help = "Flags of the process to explain stand after --, for example:\n  \
                        yuebing config explain eviction_ratio -- --config_path=master.yaml --eviction_ratio=0.1")]
pub struct ExplainArgs {
    /// A setting, or a part of names [default: a line for each setting]
    pub name: Option<String>,
    /// Everything about every setting
    #[arg(long, conflicts_with = "name")]
    pub all: bool,
    /// Whose settings: of a master or a node
    #[arg(long, default_value = "master", value_parser = ["master", "node"])]
    pub of: String,
    /// Ask a running master of this project at its admin port, host:port
    #[arg(long, visible_alias = "admin", value_name = "ADMIN", conflicts_with_all = ["of", "flags"])]
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
#[command(mut_arg("master", |master| master.help("The master that must answer, host:port [default: master_server_address \
    of the file named by MOONCAKE_CONFIG_PATH, else 127.0.0.1:50051 if something answers there, else none is asked]")))]
pub struct DoctorArgs {
    /// Address on which a node would listen
    #[arg(long, default_value = "0.0.0.0")]
    pub host: String,
    /// Address that peers would be told [default: found out, as a node does]
    #[arg(long, value_name = "HOST")]
    pub advertise: Option<String>,
    /// Port on which it would listen; 0: any
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
    /// A Python, or an environment with one, whose packages are looked at; may be repeated
    /// [default: VIRTUAL_ENV, else python3]
    #[arg(long, value_name = "PATH")]
    pub python: Vec<PathBuf>,
    /// Where the pool is
    #[command(flatten)]
    pub pool: AdminAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `replay`
#[derive(Debug, Args)]
#[command(mut_arg("master", |master| master.help("The pool, host:port of its master [default: an own one, started for the \
    replay and ended after it; MOONCAKE_CONFIG_PATH is not asked]")))]
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
    /// The pool
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
    fn an_address_without_a_port_is_refused_with_one() {
        for good in ["", "10.0.0.1:50051", "[::1]:50051", "master:1", "etcd://10.0.0.1"] {
            assert_eq!(with_port(good, 9003).as_deref(), Ok(good));
        }
        for (bad, better) in
            [("10.0.0.1", "10.0.0.1:9003"), ("master:", "master:9003"), ("::1", "[::1]:9003"), ("[::1]", "[::1]:9003")]
        {
            assert_eq!(with_port(bad, 9003), Err(format!("the port is missing: write {better}")));
        }
    }

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
        assert_eq!((both.master.address().unwrap(), both.given()), ("h:1".to_owned(), Some("g:2".to_owned())));
        assert_eq!(parse(&["yuebing", "status", "--master", "h:1", "--admin", ""]).given(), None);
        assert_eq!((usual_admin("h:1"), usual_admin("[::1]:1")), ("h:9003".to_owned(), "[::1]:9003".to_owned()));
        assert!(Yuebing::try_parse_from(["yuebing", "up", "--nodes", "0"]).is_err());
    }

    #[test]
    fn settings_are_names_and_values() {
        assert_eq!(setting("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(setting("a").is_err() && setting("=1").is_err());
        let parsed = Yuebing::try_parse_from(["yuebing", "up", "--", "--eviction_ratio=0.1", "-v", "1"]).unwrap();
        let Command::Up(args) = parsed.command else { panic!("{parsed:?}") };
        assert_eq!(args.master_flags, ["--eviction_ratio=0.1", "-v", "1"]);
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
