//! The table: one row per function.
//!
//! `Variant "name" Service Noun SINCE: arguments => result, "note";`
//! What differs between generations is on the types: a member says `since` or `until`.

use yb_pack::PackMap;
use yb_types::{ClientId, ReplicaDescriptor, SegmentStatus, Uuid, WireVersion};

use super::{Call, CallVisitor, Noun, Row, Service, describe, types_of};
use crate::messages::*;

macro_rules! rpc_table {
    ($a:lifetime; $($rpc:ident $name:literal $service:ident $noun:ident $since:ident:
        $args:ty => $reply:ty, $note:literal;)*) => {
        /// A function. The numbers are for arrays only, they never travel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Rpc {
            $(#[doc = concat!("`", $name, "`. ", $note)] $rpc,)*
        }

        impl Rpc {
            /// Every function, in the order of the table.
            pub const ALL: &'static [Rpc] = &[$(Rpc::$rpc),*];

            pub(crate) fn row(self) -> &'static Row {
                static ROWS: &[Row] = &[$(Row {
                    name: $name,
                    service: Service::$service,
                    noun: Noun::$noun,
                    since: WireVersion::$since,
                    types: types_of::<call::$rpc>,
                    describe: describe::<call::$rpc>,
                    note: $note,
                }),*];
                &ROWS[self as usize]
            }
        }

        impl Rpc {
            /// Calls `visitor` with the marker type of this function.
            pub fn visit<V: CallVisitor>(self, visitor: V) -> V::Output {
                match self { $(Rpc::$rpc => visitor.visit::<call::$rpc>(),)* }
            }
        }

        /// One marker type per function, for the typed calls of this crate.
        pub mod call {
            $(
                #[doc = concat!("`", $name, "`. ", $note)]
                #[derive(Clone, Copy, Debug)]
                pub struct $rpc;
            )*
        }

        $(
            impl Call for call::$rpc {
                const RPC: Rpc = Rpc::$rpc;
                type Args<$a> = $args;
                type Reply<$a> = $reply;
            }
        )*
    };
}

rpc_table! {
    'a;
    // Session
    ServiceReady "ServiceReady" Master Session V0_3_9:
        NoArgs => ErrorOr<&'a str>, "first call of every client; the store version, `2.0.0`";
    Ping "Ping" Master Session V0_3_9:
        ClientArgs => ErrorOr<PingResponse>, "every second from clients with segments; NEED_REMOUNT asks for ReMountSegment";
    GetStorageConfig "GetStorageConfig" Master Session V0_3_9:
        NoArgs => ErrorOr<GetStorageConfigResponse<'a>>, "second call of every client";
    GetFsdir "GetFsdir" Master Session V0_3_9:
        NoArgs => ErrorOr<&'a str>, "what a client asks when GetStorageConfig fails";
    // Segment
    MountSegment "MountSegment" Master Segment V0_3_9:
        MountSegmentArgs => ErrorOr<()>, "again with the same segment is ok";
    ReMountSegment "ReMountSegment" Master Segment V0_3_9:
        ReMountSegmentArgs => ErrorOr<()>, "after NEED_REMOUNT, with all segments";
    UnmountSegment "UnmountSegment" Master Segment V0_3_9:
        UnmountSegmentArgs => ErrorOr<()>, "an unknown segment is ok";
    GracefulUnmountSegment "GracefulUnmountSegment" Master Segment V0_3_11:
        GracefulUnmountSegmentArgs => ErrorOr<()>, "readable until the grace time ends";
    QuerySegmentStatus "QuerySegmentStatus" Master Segment V0_3_11:
        NameArgs<'a> => ErrorOr<SegmentStatus>, "-101 unknown";
    QuerySegmentStatusById "QuerySegmentStatusById" Master Segment V0_3_11:
        SegmentIdArgs => ErrorOr<SegmentStatus>, "-101 unknown";
    BatchQueryIp "BatchQueryIp" Master Segment V0_3_9:
        BatchQueryIpArgs<'a> => ErrorOr<PackMap<ClientId, Vec<&'a [u8]>>>, "order of the map says nothing";
    // Task
    CreateCopyTask "CreateCopyTask" Master Task V0_3_9:
        CreateCopyTaskArgs<'a> => ErrorOr<Uuid>, "targets are segment names";
    CreateMoveTask "CreateMoveTask" Master Task V0_3_9:
        CreateMoveTaskArgs<'a> => ErrorOr<Uuid>, "";
    QueryTask "QueryTask" Master Task V0_3_9:
        TaskArgs => ErrorOr<QueryTaskResponse<'a>>, "";
    FetchTasks "FetchTasks" Master Task V0_3_9:
        FetchTasksArgs => ErrorOr<Vec<TaskAssignment<'a>>>, "every second from clients with segments; payload is JSON";
    MarkTaskToComplete "MarkTaskToComplete" Master Task V0_3_9:
        MarkTaskToCompleteArgs<'a> => ErrorOr<()>, "FAILED or SUCCESS";
    CopyStart "CopyStart" Master Task V0_3_9:
        CopyStartArgs<'a> => ErrorOr<CopyStartResponse>, "source COMPLETE, targets PROCESSING";
    CopyEnd "CopyEnd" Master Task V0_3_9:
        ClientKeyArgs<'a> => ErrorOr<()>, "";
    CopyRevoke "CopyRevoke" Master Task V0_3_9:
        ClientKeyArgs<'a> => ErrorOr<()>, "";
    MoveStart "MoveStart" Master Task V0_3_9:
        MoveStartArgs<'a> => ErrorOr<MoveStartResponse>, "";
    MoveEnd "MoveEnd" Master Task V0_3_9:
        ClientKeyArgs<'a> => ErrorOr<()>, "";
    MoveRevoke "MoveRevoke" Master Task V0_3_9:
        ClientKeyArgs<'a> => ErrorOr<()>, "";
    DynamicReplicaCopyStart "DynamicReplicaCopyStart" Master Task V0_3_13:
        DynamicReplicaCopyStartArgs<'a> => ErrorOr<CopyStartResponse>, "";
    DynamicReplicaCopyEnd "DynamicReplicaCopyEnd" Master Task V0_3_13:
        DynamicReplicaCopyEndArgs<'a> => ErrorOr<()>, "";
    DynamicReplicaCopyRevoke "DynamicReplicaCopyRevoke" Master Task V0_3_13:
        DynamicReplicaCopyEndArgs<'a> => ErrorOr<()>, "";
    // Lookup
    ExistKey "ExistKey" Master Lookup V0_3_9:
        KeyArgs<'a> => ErrorOr<bool>, "true only with a readable replica";
    BatchExistKey "BatchExistKey" Master Lookup V0_3_9:
        KeysArgs<'a> => Vec<ErrorOr<bool>>, "one element per key";
    ProbeKey "ProbeKey" Master Lookup V0_3_14:
        KeyArgs<'a> => ErrorOr<bool>, "as ExistKey, without a lease";
    BatchProbeKey "BatchProbeKey" Master Lookup V0_3_14:
        BatchProbeKeyArgs<'a> => Vec<ErrorOr<bool>>, "leases as the policy says";
    GetReplicaList "GetReplicaList" Master Lookup V0_3_9:
        KeyArgs<'a> => ErrorOr<GetReplicaListResponse>, "grants a read lease; -704 unknown, -703 not readable yet";
    BatchGetReplicaList "BatchGetReplicaList" Master Lookup V0_3_9:
        KeysArgs<'a> => Vec<ErrorOr<GetReplicaListResponse>>, "one element per key";
    GetReplicaListByRegex "GetReplicaListByRegex" Master Lookup V0_3_9:
        PatternArgs<'a> => ErrorOr<PackMap<&'a [u8], Vec<ReplicaDescriptor>>>, "-600 bad pattern; order of the map says nothing";
    GetReplicaListForAdmin "GetReplicaListForAdmin" Master Lookup V0_3_14:
        KeyArgs<'a> => ErrorOr<GetReplicaListResponse>, "no lease, no statistics";
    BatchGetReplicaListForAdmin "BatchGetReplicaListForAdmin" Master Lookup V0_3_14:
        KeysArgs<'a> => Vec<ErrorOr<GetReplicaListResponse>>, "one element per key";
    // Put
    PutStart "PutStart" Master Put V0_3_9:
        PutStartArgs<'a> => ErrorOr<Vec<ReplicaDescriptor>>, "replicas PROCESSING; -705 exists, -703 being written, -200 no space";
    PutEnd "PutEnd" Master Put V0_3_9:
        PutEndArgs<'a> => ErrorOr<()>, "ALL for memory, DISK for the file replica";
    PutRevoke "PutRevoke" Master Put V0_3_9:
        PutRevokeArgs<'a> => ErrorOr<()>, "drops unfinished replicas";
    BatchPutStart "BatchPutStart" Master Put V0_3_9:
        BatchPutStartArgs<'a> => Vec<ErrorOr<Vec<ReplicaDescriptor>>>, "one element per key";
    BatchPutEnd "BatchPutEnd" Master Put V0_3_9:
        BatchPutEndArgs<'a> => Vec<ErrorOr<()>>, "";
    BatchPutRevoke "BatchPutRevoke" Master Put V0_3_9:
        BatchPutRevokeArgs<'a> => Vec<ErrorOr<()>>, "";
    UpsertStart "UpsertStart" Master Put V0_3_10_POST2:
        PutStartArgs<'a> => ErrorOr<Vec<ReplicaDescriptor>>, "replaces an object of the same key";
    UpsertEnd "UpsertEnd" Master Put V0_3_10_POST2:
        PutEndArgs<'a> => ErrorOr<()>, "";
    UpsertRevoke "UpsertRevoke" Master Put V0_3_10_POST2:
        PutRevokeArgs<'a> => ErrorOr<()>, "";
    BatchUpsertStart "BatchUpsertStart" Master Put V0_3_10_POST2:
        BatchPutStartArgs<'a> => Vec<ErrorOr<Vec<ReplicaDescriptor>>>, "";
    BatchUpsertEnd "BatchUpsertEnd" Master Put V0_3_10_POST2:
        BatchUpsertEndArgs<'a> => Vec<ErrorOr<()>>, "no replica type";
    BatchUpsertRevoke "BatchUpsertRevoke" Master Put V0_3_10_POST2:
        BatchUpsertRevokeArgs<'a> => Vec<ErrorOr<()>>, "no replica type";
    // Remove
    Remove "Remove" Master Remove V0_3_9:
        RemoveArgs<'a> => ErrorOr<()>, "-706 under lease unless forced";
    BatchRemove "BatchRemove" Master Remove V0_3_10_POST1:
        BatchRemoveArgs<'a> => Vec<ErrorOr<()>>, "";
    RemoveByRegex "RemoveByRegex" Master Remove V0_3_9:
        RemoveArgs<'a> => ErrorOr<i64>, "the number removed";
    RemoveAll "RemoveAll" Master Remove V0_3_9:
        RemoveAllArgs<'a> => i64, "a bare number";
    BatchReplicaClear "BatchReplicaClear" Master Remove V0_3_9:
        BatchReplicaClearArgs<'a> => ErrorOr<Vec<&'a [u8]>>, "the keys that were cleared; the one function with different codes in 0.3.13 and 0.3.14";
    EvictDiskReplica "EvictDiskReplica" Master Remove V0_3_10:
        EvictDiskReplicaArgs<'a> => ErrorOr<()>, "DISK or LOCAL_DISK, else -600";
    BatchEvictDiskReplica "BatchEvictDiskReplica" Master Remove V0_3_10_POST1:
        BatchEvictDiskReplicaArgs<'a> => Vec<ErrorOr<()>>, "";
    EvictDiskReplicaIfCurrent "EvictDiskReplicaIfCurrent" Master Remove V0_3_14:
        EvictDiskReplicaIfCurrentArgs<'a> => ErrorOr<bool>, "false: another replica or another owner";
    // Offload
    MountLocalDiskSegment "MountLocalDiskSegment" Master Offload V0_3_9:
        OffloadingArgs => ErrorOr<()>, "-1300 without offload";
    UnmountLocalDiskSegment "UnmountLocalDiskSegment" Master Offload V0_3_13:
        ClientArgs => ErrorOr<()>, "";
    ReportSsdCapacity "ReportSsdCapacity" Master Offload V0_3_11:
        ReportSsdCapacityArgs => ErrorOr<()>, "";
    OffloadObjectHeartbeat "OffloadObjectHeartbeat" Master Offload V0_3_9:
        OffloadingArgs => ErrorOr<OffloadTasks<'a>>, "what to write to disk";
    NotifyOffloadSuccess "NotifyOffloadSuccess" Master Offload V0_3_9:
        NotifyOffloadSuccessArgs<'a> => ErrorOr<()>, "tasks and metadatas pair up by index";
    PollRemoveAll "PollRemoveAll" Master Offload V0_3_12_POST1:
        ClientArgs => ErrorOr<bool>, "true once after a RemoveAll";
    PromotionObjectHeartbeat "PromotionObjectHeartbeat" Master Offload V0_3_11:
        ClientArgs => ErrorOr<OffloadTasks<'a>>, "what to load from disk";
    PromotionAllocStart "PromotionAllocStart" Master Offload V0_3_11:
        PromotionAllocStartArgs<'a> => ErrorOr<PromotionAllocStartResponse>, "memory to fill";
    NotifyPromotionSuccess "NotifyPromotionSuccess" Master Offload V0_3_11:
        ClientKeyArgs<'a> => ErrorOr<()>, "";
    NotifyPromotionFailure "NotifyPromotionFailure" Master Offload V0_3_11:
        ClientKeyArgs<'a> => ErrorOr<()>, "";
    RegisterPrefetchTask "RegisterPrefetchTask" Master Offload V0_3_14:
        ClientKeyArgs<'a> => ErrorOr<()>, "-600 not the owner, -715 already in memory";
    // Nof
    MountNofSegment "MountNoFSegment" Master Nof V0_3_11:
        MountNofSegmentArgs<'a> => ErrorOr<()>, "-1011 without NVMe-oF";
    ReMountNofSegment "ReMountNoFSegment" Master Nof V0_3_11:
        ReMountNofSegmentArgs<'a> => ErrorOr<()>, "-1011 without NVMe-oF";
    UnmountNofSegment "UnmountNoFSegment" Master Nof V0_3_11:
        UnmountSegmentArgs => ErrorOr<()>, "-1011 without NVMe-oF";
    GetAllNofSegments "GetAllNoFSegments" Master Nof V0_3_11:
        NoArgs => ErrorOr<Vec<NofSegment<'a>>>, "";
    GetNofSegmentsByName "GetNoFSegmentsByName" Master Nof V0_3_11:
        NameArgs<'a> => ErrorOr<Vec<NofSegmentOwnerInfo>>, "-101 unknown";
    // Weight
    BeginWeightImport "BeginWeightImport" Master Weight V0_3_14:
        BeginWeightImportArgs<'a> => WeightResult<WeightRevisionMetadata<'a>>, "";
    CommitWeightImport "CommitWeightImport" Master Weight V0_3_14:
        CommitWeightImportArgs<'a> => WeightResult<WeightRevisionMetadata<'a>>, "";
    AbortWeightImport "AbortWeightImport" Master Weight V0_3_14:
        WeightRevisionAtArgs<'a> => WeightResult<WeightRevisionMetadata<'a>>, "";
    GetWeightRevision "GetWeightRevision" Master Weight V0_3_14:
        GetWeightRevisionArgs<'a> => WeightResult<WeightRevisionView<'a>>, "";
    ListWeightRevisions "ListWeightRevisions" Master Weight V0_3_14:
        ListWeightRevisionsArgs<'a> => WeightResult<ListWeightRevisionsResponse<'a>>, "";
    AcquireWeightRevisionLease "AcquireWeightRevisionLease" Master Weight V0_3_14:
        AcquireWeightRevisionLeaseArgs<'a> => WeightResult<WeightRevisionLease<'a>>, "";
    RenewWeightRevisionLease "RenewWeightRevisionLease" Master Weight V0_3_14:
        RenewWeightRevisionLeaseArgs<'a> => WeightResult<WeightRevisionLease<'a>>, "";
    ReleaseWeightRevisionLease "ReleaseWeightRevisionLease" Master Weight V0_3_14:
        ReleaseWeightRevisionLeaseArgs<'a> => WeightResult<()>, "";
    StartWeightResidencyOperation "StartWeightResidencyOperation" Master Weight V0_3_14:
        StartWeightResidencyOperationArgs<'a> => WeightResult<WeightResidencyOperation<'a>>, "";
    QueryWeightOperation "QueryWeightOperation" Master Weight V0_3_14:
        QueryWeightOperationArgs<'a> => WeightResult<WeightResidencyOperation<'a>>, "";
    DeleteWeightRevision "DeleteWeightRevision" Master Weight V0_3_14:
        WeightRevisionAtArgs<'a> => WeightResult<WeightRevisionMetadata<'a>>, "";
    // Peer
    BatchGetOffloadObject "batch_get_offload_object" Client Peer V0_3_13:
        BatchGetOffloadObjectArgs<'a> => ErrorOr<BatchGetOffloadObjectResponse<'a>>, "keys with tenant prefix";
    ReleaseOffloadBuffer "release_offload_buffer" Client Peer V0_3_13:
        ReleaseOffloadBufferArgs => bool, "a bare bool";
    VerifyDiskReplica "verify_disk_replica" Client Peer V0_3_14:
        VerifyDiskReplicaArgs<'a> => ErrorOr<VerifyDiskReplicaResponse<'a>>, "";
    BatchGetOffloadObjectRanges "batch_get_offload_object_ranges" Client Peer V0_3_14:
        BatchGetOffloadObjectRangesArgs<'a> => ErrorOr<BatchGetOffloadObjectResponse<'a>>, "";
    PrefetchOffloadObject "prefetch_offload_object" Client Peer V0_3_14:
        PrefetchOffloadObjectArgs<'a> => bool, "a bare bool; bare keys";
    // Local
    PutDummyHelper "put_dummy_helper" Client Local V0_3_13:
        LocalPutArgs<'a> => ErrorOr<()>, "";
    UpsertDummyHelper "upsert_dummy_helper" Client Local V0_3_13:
        LocalPutArgs<'a> => ErrorOr<()>, "";
    PutBatchDummyHelper "put_batch_dummy_helper" Client Local V0_3_13:
        LocalPutBatchArgs<'a> => ErrorOr<()>, "";
    UpsertBatchDummyHelper "upsert_batch_dummy_helper" Client Local V0_3_13:
        LocalPutBatchArgs<'a> => ErrorOr<()>, "";
    PutPartsDummyHelper "put_parts_dummy_helper" Client Local V0_3_13:
        LocalPutPartsArgs<'a> => ErrorOr<()>, "";
    UpsertPartsDummyHelper "upsert_parts_dummy_helper" Client Local V0_3_13:
        LocalPutPartsArgs<'a> => ErrorOr<()>, "";
    UpsertFromDummyHelper "upsert_from_dummy_helper" Client Local V0_3_13:
        LocalUpsertFromArgs<'a> => ErrorOr<()>, "";
    RemoveInternal "remove_internal" Client Local V0_3_13:
        LocalRemoveArgs<'a> => ErrorOr<()>, "";
    RemoveByRegexInternal "removeByRegex_internal" Client Local V0_3_13:
        LocalRemoveArgs<'a> => ErrorOr<i64>, "";
    RemoveAllInternal "removeAll_internal" Client Local V0_3_13:
        LocalForceArgs => ErrorOr<i64>, "";
    BatchRemoveInternal "batchRemove_internal" Client Local V0_3_13:
        LocalBatchRemoveArgs<'a> => Vec<ErrorOr<()>>, "";
    IsExistInternal "isExist_internal" Client Local V0_3_13:
        LocalKeyArgs<'a> => ErrorOr<bool>, "";
    BatchIsExistInternal "batchIsExist_internal" Client Local V0_3_13:
        LocalKeysArgs<'a> => Vec<ErrorOr<bool>>, "";
    GetSizeInternal "getSize_internal" Client Local V0_3_13:
        LocalKeyArgs<'a> => ErrorOr<i64>, "";
    BatchPutFromDummyHelper "batch_put_from_dummy_helper" Client Local V0_3_13:
        LocalBatchPutFromArgs<'a> => Vec<ErrorOr<()>>, "";
    BatchUpsertFromDummyHelper "batch_upsert_from_dummy_helper" Client Local V0_3_13:
        LocalBatchUpsertFromArgs<'a> => Vec<ErrorOr<()>>, "";
    BatchPutFromMultiBuffersDummyHelper "batch_put_from_multi_buffers_dummy_helper" Client Local V0_3_13:
        LocalBatchPutFromBuffersArgs<'a> => Vec<ErrorOr<()>>, "";
    BatchUpsertFromMultiBuffersDummyHelper "batch_upsert_from_multi_buffers_dummy_helper" Client Local V0_3_13:
        LocalBatchPutFromBuffersArgs<'a> => Vec<ErrorOr<()>>, "";
    BatchPutFromCudaIpcDummyHelper "batch_put_from_cuda_ipc_dummy_helper" Client Local V0_3_13:
        LocalCudaIpcWriteArgs<'a> => Vec<ErrorOr<()>>, "";
    BatchUpsertFromCudaIpcDummyHelper "batch_upsert_from_cuda_ipc_dummy_helper" Client Local V0_3_13:
        LocalCudaIpcWriteArgs<'a> => Vec<ErrorOr<()>>, "";
    BatchGetIntoDummyHelper "batch_get_into_dummy_helper" Client Local V0_3_13:
        LocalBatchGetIntoArgs<'a> => Vec<ErrorOr<i64>>, "";
    BatchGetIntoMultiBuffersDummyHelper "batch_get_into_multi_buffers_dummy_helper" Client Local V0_3_13:
        LocalBatchGetIntoBuffersArgs<'a> => Vec<ErrorOr<i64>>, "";
    BatchGetIntoCudaIpcDummyHelper "batch_get_into_cuda_ipc_dummy_helper" Client Local V0_3_13:
        LocalCudaIpcReadArgs<'a> => Vec<ErrorOr<i64>>, "";
    GetIntoRangeShmHelper "get_into_range_shm_helper" Client Local V0_3_13:
        LocalGetIntoRangeArgs<'a> => ErrorOr<i64>, "";
    GetIntoRangesShmHelper "get_into_ranges_shm_helper" Client Local V0_3_13:
        LocalGetIntoRangesArgs<'a> => Vec<Vec<Vec<ErrorOr<i64>>>>, "";
    MapShmInternal "map_shm_internal" Client Local V0_3_13:
        LocalMapShmArgs => ErrorOr<()>, "";
    AscendShmInternal "ascend_shm_internal" Client Local V0_3_13:
        LocalAscendShmArgs<'a> => ErrorOr<()>, "";
    AscendIpcShmInternal "ascend_ipc_shm_internal" Client Local V0_3_13:
        LocalAscendShmArgs<'a> => ErrorOr<()>, "";
    AscendUnmapShmInternal "ascend_unmap_shm_internal" Client Local V0_3_13:
        ClientArgs => ErrorOr<()>, "";
    IsShmMappedInternal "is_shm_mapped_internal" Client Local V0_3_13:
        LocalNumberArgs => ErrorOr<bool>, "";
    UnmapShmInternal "unmap_shm_internal" Client Local V0_3_13:
        ClientArgs => ErrorOr<()>, "";
    UnregisterShmBufferInternal "unregister_shm_buffer_internal" Client Local V0_3_13:
        LocalNumberArgs => ErrorOr<()>, "";
    ServiceReadyInternal "service_ready_internal" Client Local V0_3_13:
        NoArgs => ErrorOr<()>, "";
    LocalPing "ping" Client Local V0_3_13:
        ClientArgs => ErrorOr<PingResponse>, "";
    AcquireHotCache "acquire_hot_cache" Client Local V0_3_13:
        LocalKeyArgs<'a> => ErrorOr<AddressAndSize>, "";
    ReleaseHotCache "release_hot_cache" Client Local V0_3_13:
        LocalKeyArgs<'a> => ErrorOr<()>, "";
    BatchAcquireHotCache "batch_acquire_hot_cache" Client Local V0_3_13:
        LocalKeysArgs<'a> => Vec<ErrorOr<AddressAndSize>>, "";
    BatchReleaseHotCache "batch_release_hot_cache" Client Local V0_3_13:
        LocalKeysArgs<'a> => ErrorOr<()>, "";
    AcquireBufferDummy "acquire_buffer_dummy" Client Local V0_3_13:
        LocalKeyClientArgs<'a> => ErrorOr<AddressAndSize>, "";
    ReleaseBufferDummy "release_buffer_dummy" Client Local V0_3_13:
        LocalNumberArgs => ErrorOr<()>, "";
    BatchAcquireBufferDummy "batch_acquire_buffer_dummy" Client Local V0_3_13:
        LocalKeysClientArgs<'a> => Vec<ErrorOr<AddressAndSize>>, "";
    AllocateBufferDummy "allocate_buffer_dummy" Client Local V0_3_13:
        LocalNumberArgs => ErrorOr<AddressAndSize>, "";
    LocalCreateCopyTask "create_copy_task" Client Local V0_3_13:
        LocalCreateCopyTaskArgs<'a> => ErrorOr<Uuid>, "";
    LocalCreateMoveTask "create_move_task" Client Local V0_3_13:
        LocalCreateMoveTaskArgs<'a> => ErrorOr<Uuid>, "";
    LocalQueryTask "query_task" Client Local V0_3_13:
        TaskArgs => ErrorOr<QueryTaskResponse<'a>>, "";
    ProbeKeyInternal "probeKey_internal" Client Local V0_3_14:
        LocalKeyArgs<'a> => ErrorOr<bool>, "";
    BatchProbeKeyInternal "batchProbeKey_internal" Client Local V0_3_14:
        LocalBatchProbeKeyArgs<'a> => Vec<ErrorOr<bool>>, "";
    GetIntoRangesStagedShmHelper "get_into_ranges_staged_shm_helper" Client Local V0_3_14:
        LocalGetIntoRangesStagedArgs<'a> => Vec<Vec<Vec<ErrorOr<i64>>>>, "";
    // Own
    Hello "Hello" Yuebing Own V0_3_9:
        HelloArgs<'a> => ErrorOr<HelloReply<'a>>, "a node of ours says what it can do; -1012 from a master that does not care";
    PollQuiesce "PollQuiesce" Yuebing Own V0_3_9:
        PollQuiesceArgs<'a> => ErrorOr<Vec<QuiesceQuestion>>, "a node of ours confirms early frees and takes new questions";
    BatchPutRevokeQuiet "BatchPutRevokeQuiet" Yuebing Own V0_3_9:
        BatchPutRevokeArgs<'a> => Vec<ErrorOr<()>>, "as BatchPutRevoke, from a writer that knows that nothing of the puts is in flight: their space is free at once";
    SyncDirectory "SyncDirectory" Yuebing Own V0_3_9:
        SyncDirectoryArgs => ErrorOr<SyncDirectoryReply<'a>>, "a node of ours follows the directory of a segment, batch by batch; -101 not mounted, -703 it is to introduce itself (Roster) and to ask again, -1010 none is kept";
    Roster "Roster" Yuebing Own V0_3_9:
        RosterArgs<'a> => ErrorOr<RosterReply>, "a node of ours tells which roster of up-to-date directories it heard last, and hears the present one; -101 not mounted, -1010 no directory is kept";
    TellDirectory "TellDirectory" Yuebing Own V0_3_9:
        TellDirectoryArgs<'a> => ErrorOr<TellDirectoryReply>, "a node of ours tells a directory to a master that started";
    ReportSuspect "ReportSuspect" Yuebing Own V0_3_9:
        ReportSuspectArgs<'a> => ErrorOr<()>, "a client of ours found nobody at the data address of a node; -101 when no segment is there";
    ReportSlow "ReportSlow" Yuebing Own V0_3_9:
        ReportSuspectArgs<'a> => ErrorOr<()>, "a client of ours could not write to a node in time: nothing more is placed there until it pings; -101 when no segment is there";
    ReportCorrupt "ReportCorrupt" Yuebing Own V0_3_9:
        ReportCorruptArgs<'a> => ErrorOr<()>, "a client of ours read other bytes of a replica than were written; -704 when it is not there any more, or has another checksum";
    Attend "Attend" Yuebing Own V0_3_9:
        ClientArgs => ErrorOr<()>, "a client of ours writes, over this connection among others: if all of them end, it has ended";
    Depart "Depart" Yuebing Own V0_3_9:
        DepartArgs => ErrorOr<DepartReply<'a>>, "a client of ours is about to end: its objects go elsewhere as far as its time allows; asked again and again; -101 when it lends nothing";
    PollDoubts "PollDoubts" Yuebing Own V0_3_9:
        PollDoubtsArgs<'a> => ErrorOr<Vec<DoubtQuestion>>, "a node of ours tells what lies at replicas in doubt and takes new questions";
    EndWrite "EndWrite" Yuebing Own V0_3_9:
        EndWriteArgs<'a> => ErrorOr<()>, "as PutEnd and UpsertEnd, of one write: -704 when it is gone, whatever else the client has under the key";
    BatchEndWrites "BatchEndWrites" Yuebing Own V0_3_9:
        BatchEndWritesArgs<'a> => Vec<ErrorOr<()>>, "the same of many";
    BatchRevokeWrites "BatchRevokeWrites" Yuebing Own V0_3_9:
        BatchRevokeWritesArgs<'a> => Vec<ErrorOr<()>>, "as BatchPutRevoke and BatchPutRevokeQuiet, of just these writes";
    EndCopy "EndCopy" Yuebing Own V0_3_9:
        NamedCopyArgs<'a> => ErrorOr<()>, "as CopyEnd and MoveEnd, of one copy: -709 when it is not the one under way";
    RevokeCopy "RevokeCopy" Yuebing Own V0_3_9:
        NamedCopyArgs<'a> => ErrorOr<()>, "as CopyRevoke and MoveRevoke, of one copy";
    Why "Why" Yuebing Own V0_3_9:
        WhyArgs<'a> => ErrorOr<WhyReply>, "a client of ours whose call failed asks what stood in its way: who writes the key, which node is silent, how long it is leased, how full the pool is; -600 for a client that others are";
    RemoveMatching "RemoveMatching" Yuebing Own V0_3_9:
        RemoveArgs<'a> => ErrorOr<RemovalReply>, "as RemoveByRegex, with an empty pattern as RemoveAll: what was removed, and what stayed and why";
}
