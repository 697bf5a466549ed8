//! Request traces of LLM serving: read them, make them, replay them against a pool.
//!
//! A trace says, request by request, which 512-token prefix blocks a prompt consists of. Replaying it turns each block
//! id into an object of a pool: the blocks that are there are read and compared with what that id must contain, the
//! others are written. So one run answers three questions: what hit ratio does this pool reach, how fast is it, and is
//! every byte right.
//!
//! Invariants:
//! - the content of a block is a pure function of its id and size ([`content`]), so any reader can check any writer;
//! - a block that cannot be stored for want of space is counted, not an error; a wrong byte is never tolerated;
//! - generator, statistics and pacing are pure: same seed, same trace.
#![forbid(unsafe_code)]

pub mod content;
pub mod generate;
mod latency;
mod pace;
mod pool;
mod report;
mod runner;
pub mod stat;
pub mod trace;

pub use latency::{Latencies, LatencySummary};
pub use pace::{ParseSpeedError, Speed};
pub use pool::{Pool, PoolError, ReadOutcome, WriteOutcome};
pub use report::Report;
pub use runner::{Progress, ReplayError, ReplayOptions, Stop, replay};
pub use trace::{Request, TraceError, TraceReader};
