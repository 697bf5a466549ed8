//! Where a host's memory, RDMA NICs and GPUs are, and which NIC serves which memory first.
#![forbid(unsafe_code)]

mod matrix;
pub mod natural;

pub use matrix::{Matrix, MatrixError, Preference};
