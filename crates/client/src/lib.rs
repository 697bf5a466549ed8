//! Store client: puts and gets objects of a KV-cache pool, lends memory to it. See `docs/client.md`.
//!
//! The problem: the bytes are on one of many nodes, any of which may be slow, gone or restarted at any point of a call.
//! Invariants: right bytes or an error; a put is all or nothing; one deadline a call; one request to the master per
//! phase of a batch.
//!
//! # A whole program
//!
//! A pool needs a master, and at least one client that lends memory. Here all of it is one process; elsewhere the master is
//! the program `yuebing master`, nodes are `yuebing node`, and only the last client is yours.
//!
//! ```
//! use yb_client::{Client, Error, PutOutcome};
//! use yb_types::ReplicateConfig;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let master = yb_master::Master::start(yb_master::MasterConfig::embedded())?;
//! let connect = |lent| {
//!     Client::builder().local_hostname("127.0.0.1").master(master.rpc_address().to_string()).segment(lent).connect()
//! };
//! let node = connect(64 << 20)?;
//! let client = connect(0)?;
//!
//! let one_replica = ReplicateConfig::default();
//! assert_eq!(client.put("key", b"value", &one_replica)?, PutOutcome::Stored);
//! assert_eq!(client.get("key")?, b"value");
//!
//! // What is there stays as it is, until it is removed. A reader just now holds it, so force is needed.
//! assert_eq!(client.put("key", b"other", &one_replica)?, PutOutcome::AlreadyExists);
//! assert_eq!(client.size("key")?, 5);
//! client.remove("key", true)?;
//!
//! // A miss is an error of its own, and each error knows the number that the peer's clients give.
//! let missing = client.get("key");
//! assert_eq!(missing, Err(Error::NotFound));
//! assert_eq!(missing.map_err(|error| (error.code().0, error.retryable())), Err((-704, false)));
//!
//! client.close();
//! node.close();
//! # Ok(())
//! # }
//! ```
//!
//! # Many objects, without a copy
//!
//! Registered memory is named by address and length. A batch is one request to the master for each of its phases and one
//! transfer, so it costs little more than one call; each object has an answer of its own.
//!
//! ```
//! use yb_client::{Client, Error, MemoryRange};
//! use yb_types::ReplicateConfig;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let master = yb_master::Master::start(yb_master::MasterConfig::embedded())?;
//! # let address = master.rpc_address().to_string();
//! // A client may both lend memory and use the pool.
//! let client = Client::builder().local_hostname("127.0.0.1").master(address).segment(64 << 20).connect()?;
//! let memory = client.allocate_buffer(2 << 20)?;
//! let all = MemoryRange::of(&memory);
//! let block = |index: u64| all.part(index << 16, 1 << 16);
//!
//! let blocks: Vec<(String, MemoryRange)> = (0..8).map(|index| (format!("block/{index}"), block(index))).collect();
//! let stored = client.batch_put_from(&blocks, &ReplicateConfig::default());
//! assert!(stored.iter().all(Result::is_ok));
//!
//! let wanted = [("block/3", block(16)), ("missing", block(17)), ("block/5", block(18))];
//! let read = client.batch_get_into(&wanted);
//! assert_eq!(read, [Ok(1 << 16), Err(Error::NotFound), Ok(1 << 16)]);
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod asynchronous;
mod awaited;
mod bell;
mod client;
mod config;
mod core;
mod counters;
mod deadline;
mod departure;
mod directory;
pub mod environment;
mod error;
mod executor;
mod failures;
mod heartbeat;
mod herald;
mod hot;
mod kept;
mod leases;
mod lent;
mod link;
mod looker;
mod memory;
mod mover;
mod ops;
mod pace;
mod page;
mod pool;
mod quiesce;
mod reach;
mod reason;
mod removal;
mod replicas;
mod report;
mod room;
mod rpc_times;
mod segments;
mod setup;
mod suspects;
mod tasks;
mod why;

pub use asynchronous::AsyncClient;
pub use awaited::{AwaitedMaster, AwaitingPage};
pub use client::{Client, Health};
pub use config::{ClientBuilder, ClientConfig, MIN_SEGMENT_BYTES, MetricsConfig, P2P_HANDSHAKE, RPC_ONLY};
pub use counters::{Durations, LATENCY_BOUNDS_US, MetricsSnapshot};
pub use deadline::CallLimits;
pub use departure::Departure;
pub use error::{DaemonFailure, Error, MasterFailure, Result, TransferFailure};
pub use executor::Pending;
pub use failures::FailureCounts;
pub use hot::HotCacheConfig;
pub use kept::patiently;
pub use memory::{GetItem, MemoryRange, Parts, PutItem};
pub use ops::{Duplicates, Fragment, Lookup, ProbePolicy, PutOutcome, RangesItem, RangesSnapshot, Task};
pub use pool::{BufferLease, BufferPool, PoolConfig, PoolError, Turn};
pub use reach::is_lent_out_of_reach;
pub use reason::Reason;
pub use removal::Removed;
pub use room::NoRoom;
pub use rpc_times::RpcTimes;
pub use why::{Finding, Obstacle, Why};
pub use yb_transfer::{Engine, ForeignMemory, HugePages, LocalBuffer, MemorySegment, SegmentOptions};
pub use yb_wire::messages::{TaskStatus, TaskType};
