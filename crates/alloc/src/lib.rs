//! Allocators of extents inside a segment; pure, 64-bit.
#![forbid(unsafe_code)]
