//! Mooncake's engine API over ours: what its C, C++ and Python users call, with their numbers.
//!
//! The problem: those users name memory by address, segments and batches by number, and expect negative ints. The engine
//! below speaks of registered regions, open segments and typed errors. This crate is the one place that translates, so
//! that the C library, the Python module, the benchmark and Rust users of that API behave alike.
//!
//! Invariants:
//! - a call that is refused moves nothing;
//! - a task is terminal only when nothing can touch its memory any more, whatever its state is;
//! - numbers of batches that were freed, and of segments that were never opened, are errors.
//!
//! The crate holds `unsafe` because addresses come from the caller: each function that takes one says what it trusts.
//! `docs/c-api.md` has the picture.

mod batches;
mod engine;
mod memory;
mod options;
mod report;
mod scatter;
mod segments;
mod status;
mod sync;

pub use batches::{SubmitOptions, TransferRequest};
pub use engine::ClassicEngine;
pub use memory::{ANY_LOCATION, BufferEntry};
pub use options::{ClassicOptions, Environment, P2P_HANDSHAKE, Protocol, device_list};
pub use report::{NicLoad, topology_text};
pub use scatter::{PageField, ScatterPiece, ScatterRegion, ScatterStatus, ScatterTicket, expand_pages};
pub use segments::SegmentId;
pub use status::{ClassicError, StatusCode, TaskState, TransferStatus};
pub use sync::{AsyncState, Range, SyncOptions};
pub use yb_transfer::{BatchId, Notification, Opcode, RemoteRegion};
