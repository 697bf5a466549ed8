//! A whole cluster from one seed.
//!
//! **Problem.** The faults that cost users bytes and hours need three processes, a pause at the wrong instruction and a
//! message that comes late. Tests with processes meet them by luck, and never twice.
//!
//! **Shape.** One thread, no clock, no sockets: an [agenda](agenda) of events over the real master (its dispatch, its
//! janitor, its catalog, the wire's own bytes), nodes and clients that decide by the client's rules, memory that
//! remembers whose bytes lie where, a network that delays, loses and cuts, and processes that die and stand still.
//! Checkers look at every step.
//!
//! **Invariants**
//! - the same seed gives the same run, to the last event;
//! - what the checkers know comes from what passes at the master's door, not from the master's own books.
//!
//! ```
//! let run = yb_sim::run(7, &yb_sim::Options::default());
//! assert_eq!(run.broken, None);
//! ```
//! `docs/simulator.md` says what is real, what is a model, and what is not covered.
#![forbid(unsafe_code)]

pub mod agenda;
mod calls;
mod checks;
mod directory;
mod faults;
mod keeping;
mod ledger;
mod log;
mod master;
pub mod memory;
mod moves;
mod net;
mod node;
mod parties;
#[cfg(feature = "planted")]
mod planted;
mod plays;
#[path = "../../client/src/quiesce.rs"]
#[allow(dead_code, unreachable_pub, reason = "the client's own file; a node uses a part of it")]
mod quiesce;
pub mod reading;
mod run;
pub mod scenario;
mod tasks;
mod world;
pub mod writing;

#[cfg(feature = "planted")]
pub use planted::Planted;
pub use run::{Options, Outcome, run};
pub use scenario::Slip;
pub use world::{Broken, Tally};
