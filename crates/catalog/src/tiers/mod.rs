//! Disks of clients below the memory of the pool: which objects lie there, what is on its way there and back.
//!
//! The master sees no byte of it. A client registers its disk, asks what to write down and what to load, and says
//! what it did. What lies on disks is kept beside the table of a shard, on its *shelf*: objects in memory know nothing of it, and
//! a pool without disks pays nothing.
//!
//! Invariants:
//! - a record names one write (its generation); copies of another write are never added to it. Whoever replaces or
//!   removes an object takes its record away, and leaves a *tombstone* for each client that has, or may still write, the old
//!   bytes, so that a late word of theirs changes nothing;
//! - a write has at most one mark of an offload and one of a promotion; a mark is made after its errand was accepted, and
//!   goes with a deadline;
//! - an object that is being written down is not evicted.

mod disk;
mod offload;
mod promote;
mod shelf;
mod sketch;
mod upkeep;

pub use offload::{Errand, Offloaded};
pub use promote::PromotionCall;

pub(crate) use disk::Tiers;
pub(crate) use shelf::{Record, Shelf};
