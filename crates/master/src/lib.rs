//! The master: catalog, RPC service, janitor and admin HTTP as one process. See `docs/master.md`.
//!
//! The problem: thousands of connections ask small questions about where objects lie, and no answer may wait for
//! another. Invariants:
//! - an RPC worker never blocks; what scans the table or waits for a socket runs on a lane of its own and answers later;
//! - replies of the hot functions are encoded straight from the catalog into the connection's buffer, without heap per key;
//! - every function of the peer is answered with its own type, also where the feature is not built.
//!
//! ```no_run
//! let master = yb_master::Master::start(yb_master::MasterConfig::embedded())?;
//! println!("clients use {}", master.rpc_address());
//! master.shutdown();
//! # Ok::<(), yb_master::MasterError>(())
//! ```
#![forbid(unsafe_code)]

mod attendance;
mod bare;
mod bulk;
mod command;
mod config;
mod control;
mod dial;
mod doubts;
mod graceful;
mod handlers;
mod janitor;
mod jobs;
mod journal;
mod lane;
mod log;
mod log_file;
mod master;
mod metrics;
mod nodes;
mod origins;
mod pool;
mod quota_file;
mod service;
mod shared;
mod suspects;
mod tenants;
mod waiting;
mod waker;
mod weights;

pub use bare::BareMaster;
pub use command::{CommandStyle, run};
pub use config::{CompatListener, MasterConfig};
pub use control::Origin;
pub use jobs::JobSettings;
pub use journal::{JournalError, JournalOptions};
pub use log::LogHandle;
pub use master::{Master, MasterError};
pub use nodes::CAPABILITY_QUIESCE;
