//! Offload to the owner's disk, and promotion back to memory.

use yb_pack::{DecodeError, List, Literal, Pack, Reader, Unpack, Version, Writer};
use yb_types::generation::V0_3_12;
use yb_types::{ClientId, DEFAULT_TENANT, ReplicaDescriptor};

/// A client, and whether it offloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct OffloadingArgs {
    /// Who.
    pub client_id: ClientId,
    /// Whether.
    pub enable_offloading: bool,
}

/// A client's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct ReportSsdCapacityArgs {
    /// Whose.
    pub client_id: ClientId,
    /// Bytes.
    pub ssd_total_capacity_bytes: i64,
}

/// An object to write to disk, or to load from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct OffloadTaskItem<'a> {
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
    /// The key.
    pub key: &'a [u8],
    /// Bytes.
    pub size: i64,
}

/// What a heartbeat hands out: before 0.3.12 a map from key to size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OffloadTasks<'a>(pub Vec<OffloadTaskItem<'a>>);

impl Pack for OffloadTasks<'_> {
    const MIN_BYTES: usize = 1;
    fn literal(version: Version, out: &mut Literal) {
        if version >= V0_3_12 {
            Vec::<OffloadTaskItem<'_>>::literal(version, out);
        } else {
            yb_pack::PackMap::<&[u8], i64>::literal(version, out);
        }
    }
    fn describe(version: Version, out: &mut String) {
        if version >= V0_3_12 {
            Vec::<OffloadTaskItem<'_>>::describe(version, out);
        } else {
            yb_pack::PackMap::<&[u8], i64>::describe(version, out);
        }
    }
    fn write(&self, w: &mut Writer<'_>) {
        // A map is a list of key and value, which is what an item without tenant is.
        self.0.write(w);
    }
}

impl<'a> Unpack<'a> for OffloadTasks<'a> {
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        Vec::read(r).map(OffloadTasks)
    }
}

/// An object that was written to disk: a bare key before 0.3.12.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(unwrapped_before = V0_3_12, name = "OffloadTaskItem")]
pub struct OffloadedItem<'a> {
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
    /// The key.
    pub key: &'a [u8],
    /// Bytes.
    #[pack(since = V0_3_12)]
    pub size: i64,
}

/// Where an object lies on the owner's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct StorageObjectMetadata<'a> {
    /// Bucket file.
    pub bucket_id: i64,
    /// Byte offset in it.
    pub offset: i64,
    /// Bytes of the key.
    pub key_size: i64,
    /// Bytes of the object; negative = it failed.
    pub data_size: i64,
    /// `host:port` of the owner's offload RPC server.
    pub transport_endpoint: &'a str,
}

/// Objects that were written to disk.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct NotifyOffloadSuccessArgs<'a> {
    /// The owner.
    pub client_id: ClientId,
    /// Which objects.
    pub tasks: List<'a, OffloadedItem<'a>>,
    /// Where, by index.
    pub metadatas: List<'a, StorageObjectMetadata<'a>>,
}

/// Memory wanted for an object that lies on disk.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct PromotionAllocStartArgs<'a> {
    /// The owner.
    pub client_id: ClientId,
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
    /// Bytes.
    pub size: u64,
    /// Segment names to try first.
    pub preferred_segments: List<'a, &'a [u8]>,
}

/// Memory to fill.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
pub struct PromotionAllocStartResponse {
    /// PROCESSING.
    pub memory_descriptor: ReplicaDescriptor,
}
