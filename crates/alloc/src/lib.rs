//! Allocators of extents inside a segment; pure, 64-bit.
//!
//! **Problem.** A segment is one long range of bytes in another process. The master cuts it into extents, one for each
//! replica, and takes them back in any order, hundreds of thousands of times a second, without ever touching the bytes.
//!
//! **Invariants** of [`OffsetAllocator`]:
//! - extents in use never overlap, lie inside the capacity and start at a multiple of the alignment;
//! - two neighbours are never both free, so the largest free extent is as large as it can be without moving data;
//! - an allocation fails only when no free extent can hold it: sizes are rounded to the alignment, never to a bin;
//! - `used + free = capacity`, to the byte, after every call.
#![forbid(unsafe_code)]

mod adaptive;
mod bins;
mod nodes;
mod offset;
mod pages;
mod restore;

pub use adaptive::{AdaptiveAllocator, Cutting};
pub use nodes::NodeId;
pub use offset::{Alignment, BadNode, Extent, OffsetAllocator, Owned};
pub use restore::Restoring;
