//! Files as segments: a segment's bytes are those of one file, or of several laid end to end.
//!
//! A range is cut into pieces ([`plan`]) that go past the page cache where the file system allows it, through aligned
//! buffers of our own where the caller's memory is not aligned, and through the page cache for the ends of a write that
//! cover a page in part. [`run`] drives the pieces over io_uring, or with plain reads and writes where that is forbidden.

mod fixed;
mod lane;
mod open;
mod plan;
mod run;
mod shared;
mod transport;

pub use open::{FilePart, FileSettings};
pub(crate) use open::{FileSet, SCHEME};
pub use shared::SharedFile;
pub(crate) use transport::FileTransport;
