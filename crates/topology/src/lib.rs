//! Where a host's memory, RDMA NICs and GPUs are, and which NIC serves which memory first.
//!
//! [`Topology::from_sysfs`] reads what the kernel tells; [`Topology::matrix`] makes the peer's priority matrix of it;
//! [`Choice`] adds what an operator says about it (a matrix in a file, an allow-list of NICs). Everything is ordered, so
//! the same machine gives the same text each time.
#![forbid(unsafe_code)]

mod choice;
mod links;
mod matrix;
pub mod natural;
mod pci;
mod sysfs;
mod topology;

pub use choice::{Choice, Origin};
pub use links::{LinkReport, LocalNic};
pub use matrix::{Matrix, MatrixError, Preference};
pub use pci::PciPath;
pub use topology::{Gid, GidKind, Gpu, LinkLayer, LinkSpeed, Nic, NumaNode, Port, Topology};
