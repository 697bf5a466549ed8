//! What each command does.

pub mod bench;
mod bench_transfer;
pub mod certs;
pub mod config;
pub mod doctor;
pub mod drain;
pub mod objects;
pub mod replay;
pub mod rm;
pub mod segments;
pub mod simulate;
pub mod status;
pub mod tasks;
pub mod tenants;
pub mod top;
pub mod topology;
pub mod trace;
pub mod up;
