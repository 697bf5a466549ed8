//! The Transfer Engine: moves bytes between registered memory of two processes.
//!
//! The side that starts a transfer names an absolute address of the other process; the other application takes no part.
//! Three transports share one trait, and the cheapest that covers the remote range is used: a plain copy inside one
//! process, a copy from or to the peer's mapped memory on one host, and Mooncake's TCP data wire.
//! `docs/transfer.md` is the engine's page, `docs/transfer-net.md` draws the wires.
//!
//! Invariants:
//! - only ranges inside one registered region are read or written, on either side;
//! - a call returns, and a batch becomes terminal, only when nothing can touch its local memory any more;
//! - a [`BatchId`] of a released batch is an error, never another batch.
#![forbid(unsafe_code)]

mod addressing;
mod batch;
mod builder;
mod control;
mod cxl;
mod device;
mod directory;
mod engine;
mod error;
mod file;
#[cfg(test)]
mod fuzz;
mod handshake;
mod local;
mod metadata;
mod naming;
mod paths;
mod peer;
mod publish;
pub mod rdma;
mod reactor;
mod request;
mod segment;
mod serving;
mod settings;
mod shm;
mod stats;
mod submit;
mod tcp;
mod transport;

pub use addressing::{AddressError, AddressSettings, first_address};
pub use batch::{BatchError, BatchId, BatchProgress, BatchStatus, NotificationState, TaskState, TaskStatus};
pub use builder::EngineBuilder;
pub use cxl::CxlSettings;
pub use engine::Engine;
pub use error::{TransferError, TransferErrorKind};
pub use file::{FilePart, FileSettings, SharedFile};
pub use handshake::reply::Notification;
pub use metadata::{BufferDesc, CxlDesc, DescError, DeviceDesc, FileDesc, Protocol, SegmentDesc, ShmDesc, timestamp};
pub use peer::RemoteRegion;
pub use request::{BatchOutcome, Opcode, Request, RequestOptions};
pub use segment::SegmentHandle;
pub use serving::StartError;
pub use settings::EngineSettings;
pub use stats::{TransferStats, TransportStats};
pub use tcp::lanes::LaneStats;
pub use transport::{CancelToken, TransportKind};
pub use yb_mem::{
    Access, Coherence, ForeignMemory, HugePages, LocalBuffer, Location, MapError, MemoryDevice, MemorySegment,
    RegionInfo, RegistryError, SegmentOptions, Span,
};
pub use yb_sched::TrafficClass;
