//! Store client: puts and gets objects of a KV-cache pool, lends memory to it. See `docs/client.md`.
//!
//! The problem: the bytes are on one of many nodes, any of which may be slow, gone or restarted at any point of a call.
//! Invariants: right bytes or an error; a put is all or nothing; one deadline a call; one request to the master per
//! phase of a batch.
#![forbid(unsafe_code)]

mod asynchronous;
mod client;
mod config;
mod core;
mod counters;
mod deadline;
mod error;
mod executor;
mod heartbeat;
mod link;
mod memory;
mod mover;
mod ops;
mod quiesce;
mod replicas;
mod setup;
mod suspects;
mod tasks;

pub use asynchronous::AsyncClient;
pub use client::{Client, Health};
pub use config::{ClientBuilder, ClientConfig, MIN_SEGMENT_BYTES, P2P_HANDSHAKE};
pub use counters::{LATENCY_BOUNDS_US, MetricsSnapshot};
pub use deadline::CallLimits;
pub use error::{Error, MasterFailure, Result, TransferFailure};
pub use executor::Pending;
pub use memory::{GetItem, MemoryRange, Parts, PutItem};
pub use ops::{Duplicates, Lookup, PutOutcome};
pub use yb_transfer::{ForeignMemory, LocalBuffer, MemorySegment};
