//! Which keys a full pool gives up.
//!
//! A [`Policy`] is told what the master sees anyway: batches that are looked up, batches that become readable, keys that
//! are removed. Asked for a victim, it names the key whose loss costs least. It knows only the past, does no I/O, and
//! every operation costs the same however many keys there are.
//!
//! A key is a [`Slot`] for it: the number of the place where its owner keeps it; [`Keyed`] is for owners that keep none.
//!
//! - [`PolicyKind`] lists the policies by name; [`Chain`] is ours and the default.
//! - [`simulate`](simulate()) plays the requests of a trace to a policy and counts hits; [`optimum`](optimum()) is the most
//!   that any policy could reach, by Belady's rule, which sees the future; [`textbook_lru`] is the yardstick.
//! - [`workload`] makes a seeded workload that differs from the published traces.
//!
//! Invariants, checked by property tests:
//! - a victim is a key that was inserted, was not removed, and that the caller lets go;
//! - [`Chain`] never names a key that has a resident child, as long as a key without one may go;
//! - work per operation does not grow with the number of keys ([`Policy::steps`] counts it).
#![forbid(unsafe_code)]

mod arena;
mod chain;
mod density;
mod ghosts;
mod keyed;
mod lru;
mod near_lru;
mod optimum;
mod policy;
mod s3fifo;
mod simulate;
pub mod workload;

pub use chain::{Chain, ChainSettings};
pub use keyed::Keyed;
pub use lru::Lru;
pub use near_lru::NearLru;
pub use optimum::optimum;
pub use policy::{Judge, Key, Newcomer, Policy, PolicyKind, Seen, Slot, UnknownPolicy, Verdict, Victims};
pub use s3fifo::S3Fifo;
pub use simulate::{Access, Score, simulate, textbook_lru};
