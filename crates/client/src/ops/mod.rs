//! What a client does, as batches; the single call is a batch of one.

mod get;
mod hot_reads;
mod keys;
mod portions;
mod put;
mod ranges;
mod sessions;
mod snapshot;
mod tasks;

pub use get::Lookup;
pub(crate) use put::Writing;
pub use put::{Duplicates, PutOutcome};
pub(crate) use ranges::Known;
pub use ranges::{Fragment, RangesItem};
pub(crate) use sessions::Sessions;
pub use snapshot::RangesSnapshot;
pub use tasks::{ProbePolicy, Task};
