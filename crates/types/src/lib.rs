//! Ids, units, error codes and the values that master, nodes and clients exchange.
//!
//! Everything here is pure data: no I/O, no clock, no threads. Structures that travel on the wire keep the
//! peer's field order; their layouts per generation come from the `Pack` derive.
#![forbid(unsafe_code)]

mod error_code;
mod ids;
mod object;
mod replica;
mod segment;
mod units;
mod wire_version;

pub use error_code::ErrorCode;
pub use ids::{ClientId, Generation, ReplicaId, SegmentId, Uuid};
pub use object::{ObjectDataType, ObjectMeta, ReplicateConfig, SoftPinAction};
pub use replica::{
    BufferDescriptor, DfsDescriptor, DiskDescriptor, LocalDiskDescriptor, MemoryDescriptor, NofDescriptor,
    ReplicaDescriptor, ReplicaKind, ReplicaStatus, ReplicaType,
};
pub use segment::{ClientStatus, Segment, SegmentLocality, SegmentStatus};
pub use units::{ByteLen, MonotonicTime, SegmentAddress};
pub use wire_version::{UnknownWireVersion, WireVersion, generation};

/// The store version string that the peer's clients require from `ServiceReady` (0.3.9 to 0.3.14).
pub const STORE_VERSION: &str = "2.0.0";

/// How long a reader counts on the bytes of a lookup, however long the lease is that the lookup got.
///
/// An object that is taken away under its lease (forced removal, upsert) leaves space that rests until the lease is over,
/// and never longer than this: leases may be long to keep objects from eviction, no read is that long. A client of ours
/// takes a longer lease as one of this length and renews it in time. A read of the peer's clients asks for at most 30 s
/// and moves bytes for at most 60 s.
pub const READ_LIMIT: std::time::Duration = std::time::Duration::from_secs(90);

/// The tenant that every call belongs to unless it names another.
pub const DEFAULT_TENANT: &str = "default";
