//! The local helper service: a client process, the daemon, that serves dummy clients on its host (`docs/daemon.md`).
#![allow(missing_docs, reason = "members are the peer's, and their names say all that is known")]

use yb_pack::{CharSpan, List, Pack, PackMap};
use yb_types::{ClientId, ErrorCode, ReplicateConfig};

use super::{GetReplicaListResponse, GrantLeasePolicy};

/// Keys of one ranged read.
pub type KeyLists<'a> = Vec<List<'a, &'a [u8]>>;
/// Numbers per buffer, per key, per range.
pub type RangeLists<'a> = Vec<Vec<List<'a, u64>>>;
/// An address and a size.
pub type AddressAndSize = (u64, u64);

/// A buffer shared between processes through CUDA IPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(memory_copied)]
pub struct CudaIpcShmBufferRef {
    pub ptr: u64,
    pub size: u64,
}

/// A CUDA IPC handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(memory_copied)]
pub struct CudaIpcBufferHandle {
    pub handle: [u8; 64],
    pub offset: u64,
    pub size: u64,
    pub device_id: i32,
}

/// One write out of a CUDA IPC buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct CudaIpcWriteRequest<'a> {
    pub key: &'a [u8],
    pub metadata: CudaIpcShmBufferRef,
    pub payload: CudaIpcBufferHandle,
}

/// One read into a CUDA IPC buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct CudaIpcReadRequest<'a> {
    pub key: &'a [u8],
    pub destination: CudaIpcBufferHandle,
    pub source_offset: u64,
    pub size: u64,
}

/// A lookup that the caller made before.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
pub struct CachedQueryResultResponse {
    pub success: bool,
    pub value: GetReplicaListResponse,
    pub error: ErrorCode,
}

macro_rules! local_args {
    ($($name:ident { $($field:ident: $ty:ty),* $(,)? })*) => {$(
        /// Arguments of the local helper service.
        #[derive(Clone, Debug, PartialEq, Pack)]
        #[pack(args)]
        pub struct $name<'a> { $(pub $field: $ty),* }
    )*};
}

/// Arguments of the local helper service: whether leases are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct LocalForceArgs {
    pub force: bool,
}

/// Arguments of the local helper service: an address or a size, and who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct LocalNumberArgs {
    pub number: u64,
    pub client_id: ClientId,
}

/// Arguments of the local helper service: shared memory to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct LocalMapShmArgs {
    pub fd: i32,
    pub shm_base_addr: u64,
    pub shm_size: u64,
    pub is_local_buffer: bool,
    pub client_id: ClientId,
}

local_args! {
    LocalPutArgs { key: &'a [u8], value: CharSpan<'a>, config: ReplicateConfig, client_id: ClientId }
    LocalPutBatchArgs {
        keys: List<'a, &'a [u8]>, values: List<'a, CharSpan<'a>>, config: ReplicateConfig, client_id: ClientId,
    }
    LocalPutPartsArgs {
        key: &'a [u8], values: List<'a, CharSpan<'a>>, config: ReplicateConfig, client_id: ClientId,
    }
    LocalUpsertFromArgs {
        key: &'a [u8], dummy_buffer: u64, size: u64, config: ReplicateConfig, client_id: ClientId,
    }
    LocalRemoveArgs { key: &'a [u8], force: bool }
    LocalBatchRemoveArgs { keys: List<'a, &'a [u8]>, force: bool }
    LocalKeyArgs { key: &'a [u8] }
    LocalKeysArgs { keys: List<'a, &'a [u8]> }
    LocalBatchPutFromArgs {
        keys: List<'a, &'a [u8]>, dummy_buffers: List<'a, u64>, sizes: List<'a, u64>, config: ReplicateConfig,
        device_id: i32, client_id: ClientId,
    }
    LocalBatchUpsertFromArgs {
        keys: List<'a, &'a [u8]>, dummy_buffers: List<'a, u64>, sizes: List<'a, u64>, config: ReplicateConfig,
        client_id: ClientId,
    }
    LocalBatchPutFromBuffersArgs {
        keys: List<'a, &'a [u8]>, dummy_all_buffers: Vec<List<'a, u64>>, all_sizes: Vec<List<'a, u64>>,
        config: ReplicateConfig, device_id: i32, client_id: ClientId,
    }
    LocalCudaIpcWriteArgs { requests: Vec<CudaIpcWriteRequest<'a>>, config: ReplicateConfig, client_id: ClientId }
    LocalCudaIpcReadArgs { requests: Vec<CudaIpcReadRequest<'a>>, client_id: ClientId }
    LocalBatchGetIntoArgs {
        keys: List<'a, &'a [u8]>, buffers: List<'a, u64>, sizes: List<'a, u64>, device_id: i32, client_id: ClientId,
    }
    LocalBatchGetIntoBuffersArgs {
        keys: List<'a, &'a [u8]>, dummy_all_buffers: Vec<List<'a, u64>>, all_sizes: Vec<List<'a, u64>>,
        prefer_alloc_in_same_node: bool, device_id: i32, client_id: ClientId,
    }
    LocalGetIntoRangeArgs {
        key: &'a [u8], buffer: u64, dst_offset: u64, src_offset: u64, size: u64, size_is_buffer_capacity: bool,
        verify_checksum: bool, client_id: ClientId,
    }
    LocalGetIntoRangesArgs {
        dummy_buffers: List<'a, u64>, all_keys: KeyLists<'a>, all_dst_offsets: RangeLists<'a>,
        all_src_offsets: RangeLists<'a>, all_sizes: RangeLists<'a>,
        cached_query_results: PackMap<&'a [u8], CachedQueryResultResponse>, device_id: i32, client_id: ClientId,
    }
    LocalGetIntoRangesStagedArgs {
        dummy_buffers: List<'a, u64>, unnamed_u64s: List<'a, u64>, all_keys: KeyLists<'a>,
        all_dst_offsets: RangeLists<'a>, all_src_offsets: RangeLists<'a>, all_sizes: RangeLists<'a>,
        cached_query_results: PackMap<&'a [u8], CachedQueryResultResponse>, device_id: i32, client_id: ClientId,
    }
    LocalAscendShmArgs {
        dummy_base_addr: u64, size: u64, is_local_buffer: bool, handle_bytes: &'a [u8], device_id: i32,
        client_id: ClientId,
    }
    LocalKeyClientArgs { key: &'a [u8], client_id: ClientId }
    LocalKeysClientArgs { keys: List<'a, &'a [u8]>, client_id: ClientId }
    LocalCreateCopyTaskArgs { key: &'a [u8], targets: List<'a, &'a [u8]> }
    LocalCreateMoveTaskArgs { key: &'a [u8], source: &'a [u8], target: &'a [u8] }
    LocalBatchProbeKeyArgs { keys: List<'a, &'a [u8]>, policy: GrantLeasePolicy }
}
