//! `libtransfer_engine.so`, also installed as `libmooncake_store.so`: the C APIs of Mooncake's engine and of its store, so
//! that their users (NIXL, TensorRT-LLM; the Go package, Mooncake's Rust crate) link ours instead.
//!
//! The headers are `include/transfer_engine_c.h` and `include/store_c.h`; `docs/c-api.md` explains them. This crate is an island of `unsafe`: every
//! function takes pointers from C. What it trusts is only what no library can check, that a pointer that is not null
//! points to what its type says. Everything else is checked: null pointers, handles (numbers in a table, never
//! addresses), numbers of batches and segments, text that is not UTF-8. No panic crosses the boundary.

mod batches;
mod handles;
mod lifecycle;
mod memory;
mod notify;
mod report;
mod segments;
mod store;
mod table;
mod text;
mod types;

pub use batches::{allocateBatchID, freeBatchID, getTransferStatus, submitTransfer, submitTransferWithNotify};
pub use lifecycle::{
    createTransferEngine, destroyTransferEngine, discoverTopology, enableGracefulShutdown, getLocalIpAndPort,
    installTransport, uninstallTransport,
};
pub use memory::{registerLocalMemory, registerLocalMemoryBatch, unregisterLocalMemory, unregisterLocalMemoryBatch};
pub use notify::{freeNotifsMsgBuf, genNotifyInEngine, getNotifsFromEngine};
pub use report::{getNicLoadStats, showLinks};
pub use segments::{
    closeSegment, openSegment, openSegmentNoCache, removeLocalSegment, syncSegmentCache, warmupEfaSegment,
};
pub use store::*;
pub use types::{BufferEntry, NicLoadStat, NotifyMsg, TransferRequest, TransferStatus};
