//! Cases of failure with real processes, each over TCP only and over shared memory; `docs/failures.md` lists them.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

#[path = "../common/mod.rs"]
mod common;
mod crowd;
mod joins;
mod leases;
mod writers;
