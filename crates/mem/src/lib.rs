//! Memory that other processes and sockets may touch while we look at it.
//!
//! The problem: a transfer engine copies between addresses that Rust cannot see the owner of: a mapping that another
//! process writes to, a buffer that belongs to an interpreter, a range that a peer named over the network. This crate
//! is the island where those addresses are turned into types that code without `unsafe` can use.
//!
//! Invariants:
//! - a [`Span`] is a range of mapped memory that stays mapped as long as its lifetime;
//! - a range given out by a [`Registry`] lies inside one registered region, and the region is not released while a
//!   [`RegionPin`] of it lives;
//! - memory received from a peer is sealed against shrinking, so a copy from it cannot fault.
//!
//! Spans may be written by others at any time. No reference to their bytes is ever made: they are only copied, sent and
//! received, and torn bytes are the worst that a race can give. Leases and generations above this crate keep races away.

mod control;
mod copy;
mod crc;
mod file;
mod group;
mod handover;
mod mapping;
mod memory_device;
mod numa;
mod process;
mod registry;
mod segment;
mod shared;
mod span;
mod stream;

pub use control::{ControlPage, NONCE_LEN, Pass};
pub use copy::{CopyHint, STREAMING_FROM, copy};
pub use crc::{Crc64, copy_summed};
pub use file::{read_at, write_at};
pub use group::{
    BLOB_BYTES, Blob, BlobError, Declaration, GroupError, GroupErrorKind, GroupSegment, Handle, HandleForm,
};
pub use handover::{Credentials, peer_credentials, recv_with_fds, send_with_fds};
pub use mapping::{MapError, Mapping, PeerView};
pub use memory_device::{Coherence, MemoryDevice};
pub use numa::{bind_thread, numa_node};
pub use process::{PeerProcess, PeerProcessError, allow_reader};
pub use registry::{
    Access, ForeignMemory, LocalBuffer, Location, RegionInfo, RegionPin, Registry, RegistryError, ShareableRegion,
};
pub use segment::{HugePages, MemorySegment, POPULATE_PART, SegmentOptions};
pub use shared::SharedMemory;
pub use span::{Span, SpanError};
pub use stream::{RecvList, SendList};
