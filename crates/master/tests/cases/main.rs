//! Cases of failure, with the master as a process of its own: a write storm into a small pool, a big client that goes
//! away, two writers of the same keys, wrong peers, edges of size and name. What must hold is asserted; what should hold is
//! printed (`cargo test -p yb-master --test cases -- --nocapture`). `YB_CASES=full` takes the numbers of the case book.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;
mod edges;
mod ground;
mod owner_lost;
mod storm;
mod writers;
