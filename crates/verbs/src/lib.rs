//! RDMA verbs: libibverbs, opened at run time and never linked, behind types that own what they made.
//!
//! ```text
//! Verbs (the library) ─ Context (a device) ─┬─ ProtectionDomain ─┬─ MemoryRegion<hold>   keys of memory
//!                                           └─ CompletionQueue ──┴─ QueuePair            work requests
//! ```
//! Each holds what it was made from, so the library sees them destroyed in the right order whatever the order of drops.
//!
//! Invariants that make the face safe:
//! - a device reaches memory only through a [`MemoryRegion`], which keeps the memory mapped and withdraws the right when
//!   it is dropped; wrong addresses and keys in work requests are refused by the device;
//! - bytes sent inline are borrowed for the call that copies them;
//! - posting, polling and asking for notifications go through the function table of the device's context, as in the
//!   library's own inline functions.

pub mod abi;
mod device;
mod error;
mod library;
mod memory;
mod pair;
mod queue;

pub use device::{Context, DeviceEvent, DeviceLimits, EventKind, GidEntry, GidKind, PortState, SYSFS};
pub use error::VerbsError;
pub use library::{Features, Verbs};
pub use memory::{Hold, MemoryAccess, MemoryRegion, ProtectionDomain};
pub use pair::{LocalBytes, PairSizes, Path, Patience, PostError, QueuePair, Receive, WorkKind, WorkRequest};
pub use queue::{Completion, CompletionQueue, WorkStatus};
