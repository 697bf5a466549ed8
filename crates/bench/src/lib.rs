//! Load generators for any master and store of this wire, and what the machine itself can do.
#![forbid(unsafe_code)]

pub mod file;
pub mod memcpy;
pub mod peer;
pub mod process;
pub mod rpc;
pub mod store;
pub mod transfer;
