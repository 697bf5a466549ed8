//! The command line of `yuebing bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use yb_bench::rpc::Operation;
use yb_bench::transfer::sweep::Route;

use super::MasterAddress;
use crate::size::Size;

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
