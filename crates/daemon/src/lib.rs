//! The daemon of a host: puts and gets for other processes, over windows of their memory. See `docs/daemon.md`.
//!
//! The problem: dummies may be slow, wrong or killed at any point of a call, and share one client.
//! Invariants: an address of a dummy is good only inside a window of that dummy; a window stays mapped while a call uses
//! it, whatever becomes of the dummy; no call of one dummy waits for another's.
#![forbid(unsafe_code)]

mod daemon;
mod door;
mod dummies;
mod handlers;
mod hands;
mod host;
mod service;
mod side_channel;
mod users;
mod window;

pub use daemon::{Daemon, DaemonSettings, DaemonStats, Doors, StartError};
pub use users::{BadUsers, Users};
