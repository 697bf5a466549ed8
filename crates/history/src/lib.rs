//! Judges a history: what clients of a pool asked and were told, when, and who was dead or cut off meanwhile.
//!
//! [`check`] is a pure function. It knows nothing of the pool but its promises (`docs/failures.md`):
//!
//! - a read gives the whole value of one write of its key, which was not certainly overwritten or removed before the read began, or
//!   says that nothing is there, or fails;
//! - "stored" and "exists already" are said only of what can be read;
//! - what was acknowledged is readable until it is removed, its owners die or the master forgets it (each counted);
//! - every call ends by its deadline.
//!
//! "Certainly" makes the checker fair: a write or removal whose end nobody heard may have happened at any later time, or never.
#![forbid(unsafe_code)]

mod check;
mod index;
mod operation;
mod text;
mod trouble;

pub use check::{Excuse, Fault, FaultKind, Rules, Verdict, check};
pub use operation::{Call, Key, Operation, Outcome, Write};
pub use text::{BadLine, begin_line, end_line, parse};
pub use trouble::{Harm, Party, Trouble, Troubles};
