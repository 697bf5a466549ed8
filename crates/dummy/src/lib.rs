//! A dummy client: a store whose work a daemon on the same host does. See `docs/daemon.md`.
//!
//! The problem: a process that owns no segment, no engine and no connection to a master wants the same calls as one that
//! does. It lends windows of its memory to the daemon and names them by address.
//! Invariants: no byte of a value crosses a socket; memory that the daemon may still touch is never used for anything
//! else; a daemon that was restarted gets every window again without anybody asking.
#![forbid(unsafe_code)]

mod config;
mod core;
mod dummy;
mod get;
mod keys;
mod link;
mod pulse;
mod put;
mod ranges;
mod side;
mod stage;
mod windows;

pub use config::DummyConfig;
pub use dummy::Dummy;
pub use get::Found;
