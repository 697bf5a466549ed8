//! What a client does, as batches; the single call is a batch of one.

mod get;
mod keys;
mod put;

pub use get::Lookup;
pub use put::{Duplicates, PutOutcome};
