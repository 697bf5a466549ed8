//! The storage node process: memory given to the pool.
//!
//! The problem: a machine has memory to lend and no application of its own that would lend it. A node is a client that
//! mounts one segment, serves it, puts and gets for the dummy clients of its host (`docs/daemon.md`), and leaves the pool
//! cleanly when it is asked to end.
//!
//! Invariants: nothing is advertised before it listens; a node that says it is ready is mounted; SIGTERM and SIGINT end
//! it with exit code 0 within a second of the time that it has for moving its objects to others (`drain_seconds`), and the
//! master knows at once. A node that finds no master waits for it, holds nothing meanwhile, and ends at once when it is asked to.
#![forbid(unsafe_code)]

mod config;
mod node;
mod process;
mod settings;
mod vigil;

pub use config::{ConfigError, DummyService, NodeConfig};
pub use node::{Node, NodeError};
pub use process::run;
pub use settings::NODE;
pub use vigil::MasterWait;
