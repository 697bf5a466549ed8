//! Transfers over RDMA: registered memory of a peer is read and written by the network devices of both hosts.

mod connectors;
mod driver;
mod endpoint;
pub mod gid;
mod hub;
mod link;
mod memory;
mod message;
mod nic;
mod peer;
mod plan;
mod rails;
mod roster;
mod settings;
mod stats;
mod ticket;
mod transport;

pub use nic::{NicGid, NicReport, survey};
pub use settings::{EvictionPolicy, RdmaMode, RdmaSettings};
pub use stats::{RailStats, RdmaStats};
pub(crate) use transport::RdmaTransport;
