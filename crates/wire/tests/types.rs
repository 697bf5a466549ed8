//! Ids, literals and type codes of every function in every generation equal those of the peer.

mod common;

use common::{find, hex, lines, text};
use yb_pack::{BodyType, Pack};
use yb_types::{
    BufferDescriptor, ClientStatus, DfsDescriptor, DiskDescriptor, ErrorCode, LocalDiskDescriptor, MemoryDescriptor,
    NofDescriptor, ObjectDataType, ObjectMeta, ReplicaDescriptor, ReplicaStatus, ReplicaType, ReplicateConfig, Segment,
    SegmentLocality, SegmentStatus, SoftPinAction, Uuid,
};
use yb_wire::messages::*;
use yb_wire::{Rpc, Service, WireTable, WireVersion};

const TYPES: &str = include_str!("fixtures/store-rpc-types.jsonl");

fn number(text: &str) -> u32 {
    u32::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hex number")
}

#[test]
fn functions_of_every_generation() {
    let mut checked = 0;
    for row in lines(TYPES).iter().filter(|row| row["kind"] == "rpc") {
        let name = text(row, "rpc");
        let service = if row["service"] == "client" { Service::Client } else { Service::Master };
        for wheel in row["wheels"].as_array().expect("a list") {
            let version: WireVersion = wheel.as_str().expect("a text").parse().expect("a generation");
            let table = WireTable::of(version);
            let label = format!("{name} in {version}");
            // Clients declared it, no master ever served it.
            if name == "CalcCacheStats" {
                assert_eq!(table.lookup(number(text(row, "function_id"))), None);
                continue;
            }
            let rpc = find(table, service, name).unwrap_or_else(|| panic!("{label} is not in the table"));
            assert_eq!(rpc.qualified_name(), text(row, "qualified_name"));
            let signature = table.signature(rpc).expect("found above");
            assert_eq!(signature.function_id, number(text(row, "function_id")), "{label}");
            assert_eq!(table.lookup(signature.function_id), Some(rpc), "{label}");
            assert_eq!(signature.args.literal(), hex(text(row, "arg_literal")), "arguments of {label}");
            assert_eq!(signature.reply.literal(), hex(text(row, "ret_literal")), "result of {label}");
            if !signature.args.is_absent() {
                assert_eq!(signature.args.code(), number(text(row, "arg_code")), "arguments of {label}");
            }
            assert_eq!(signature.reply.code(), number(text(row, "ret_code")), "result of {label}");
            check_levels(row, "arg_compatible_versions", signature.args.levels(), &label);
            check_levels(row, "ret_compatible_versions", signature.reply.levels(), &label);
            checked += 1;
        }
    }
    assert!(checked > 700, "only {checked} functions were checked");
}

fn check_levels(row: &serde_json::Value, key: &str, levels: yb_pack::Levels, label: &str) {
    let expected: Vec<u64> =
        row[key].as_array().map(|list| list.iter().filter_map(|n| n.as_u64()).collect()).unwrap_or_default();
    let found: Vec<u64> = levels.iter().map(u64::from).collect();
    assert_eq!(found, expected, "{key} of {label}");
}

#[test]
fn no_function_more_than_the_peer_has() {
    for version in WireVersion::ALL {
        let rows = lines(TYPES);
        let known = |rpc: &Rpc| {
            rows.iter().any(|row| {
                row["kind"] == "rpc"
                    && text(row, "qualified_name") == rpc.qualified_name()
                    && row["wheels"].as_array().is_some_and(|wheels| {
                        wheels.iter().any(|w| w.as_str().is_some_and(|w| w.parse() == Ok(*version)))
                    })
            })
        };
        for rpc in Rpc::ALL.iter().filter(|rpc| rpc.service() != Service::Yuebing && rpc.since() <= *version) {
            assert!(known(rpc), "{} is not in {version}", rpc.name());
        }
    }
}

#[test]
fn masters_serve_as_many_functions_as_the_peer() {
    let count = |version| {
        let table = WireTable::of(version);
        Rpc::ALL.iter().filter(|rpc| rpc.service() == Service::Master && table.signature(**rpc).is_ok()).count()
    };
    assert_eq!(count(WireVersion::V0_3_14), 81);
    assert_eq!(count(WireVersion::V0_3_13), 64);
    assert_eq!(count(WireVersion::V0_3_12_POST1), 60);
    assert_eq!(count(WireVersion::V0_3_12), 59);
    assert_eq!(count(WireVersion::V0_3_11), 59);
    assert_eq!(count(WireVersion::V0_3_10_POST2), 46);
    assert_eq!(count(WireVersion::V0_3_10_POST1), 40);
    assert_eq!(count(WireVersion::V0_3_10), 38);
    assert_eq!(count(WireVersion::V0_3_9), 37);
}

/// The type of ours that stands for the peer's struct.
fn struct_type(name: &str, version: WireVersion) -> BodyType {
    fn of<T: Pack>(version: WireVersion) -> BodyType {
        BodyType::of::<T>(version.ordinal())
    }
    match name {
        "AllocatedBuffer::Descriptor" => of::<BufferDescriptor>(version),
        "CopyStartResponse" => of::<CopyStartResponse>(version),
        "DiskDescriptor" => of::<DiskDescriptor>(version),
        "GetReplicaListResponse" => of::<GetReplicaListResponse>(version),
        "GetStorageConfigResponse" => of::<GetStorageConfigResponse<'_>>(version),
        "LocalDiskDescriptor" => of::<LocalDiskDescriptor>(version),
        "MemoryDescriptor" => of::<MemoryDescriptor>(version),
        "MoveStartResponse" => of::<MoveStartResponse>(version),
        "PingResponse" => of::<PingResponse>(version),
        "QueryTaskResponse" => of::<QueryTaskResponse<'_>>(version),
        "Replica::Descriptor" => of::<ReplicaDescriptor>(version),
        "ReplicateConfig" => of::<ReplicateConfig>(version),
        "Segment" => of::<Segment>(version),
        "StorageObjectMetadata" => of::<StorageObjectMetadata<'_>>(version),
        "TaskAssignment" => of::<TaskAssignment<'_>>(version),
        "TaskCompleteRequest" => of::<TaskCompleteRequest<'_>>(version),
        "NoFDescriptor" => of::<NofDescriptor>(version),
        "NoFSegment" => of::<NofSegment<'_>>(version),
        "NoFSegmentOwnerInfo" => of::<NofSegmentOwnerInfo>(version),
        "PromotionAllocStartResponse" => of::<PromotionAllocStartResponse>(version),
        "OffloadTaskItem" | "PromotionTaskItem" => of::<OffloadTaskItem<'_>>(version),
        "BatchGetOffloadObjectResponse" => of::<BatchGetOffloadObjectResponse<'_>>(version),
        "CachedQueryResultResponse" => of::<CachedQueryResultResponse>(version),
        "CudaIpcBufferHandle" => of::<CudaIpcBufferHandle>(version),
        "CudaIpcReadRequest" => of::<CudaIpcReadRequest<'_>>(version),
        "CudaIpcShmBufferRef" => of::<CudaIpcShmBufferRef>(version),
        "CudaIpcWriteRequest" => of::<CudaIpcWriteRequest<'_>>(version),
        "DistributedFSDescriptor" => of::<DfsDescriptor>(version),
        "ObjectMeta" => of::<ObjectMeta>(version),
        "UUID" => of::<Uuid>(version),
        "GrantLeasePolicy" => of::<GrantLeasePolicy>(version),
        "SegmentLocality" => of::<SegmentLocality>(version),
        "VerifyDiskReplicaRequest" => of::<VerifyDiskReplicaRequest<'_>>(version),
        "VerifyDiskReplicaResponse" => of::<VerifyDiskReplicaResponse<'_>>(version),
        "AbortWeightImportRequest" | "DeleteWeightRevisionRequest" => of::<WeightRevisionAt<'_>>(version),
        "AcquireWeightRevisionLeaseRequest" => of::<AcquireWeightRevisionLeaseRequest<'_>>(version),
        "BeginWeightImportRequest" => of::<BeginWeightImportRequest<'_>>(version),
        "CommitWeightImportRequest" => of::<CommitWeightImportRequest<'_>>(version),
        "GetWeightRevisionRequest" => of::<GetWeightRevisionRequest<'_>>(version),
        "ListWeightRevisionsRequest" => of::<ListWeightRevisionsRequest<'_>>(version),
        "ListWeightRevisionsResponse" => of::<ListWeightRevisionsResponse<'_>>(version),
        "QueryWeightOperationRequest" => of::<QueryWeightOperationRequest<'_>>(version),
        "ReleaseWeightRevisionLeaseRequest" => of::<ReleaseWeightRevisionLeaseRequest<'_>>(version),
        "RenewWeightRevisionLeaseRequest" => of::<RenewWeightRevisionLeaseRequest<'_>>(version),
        "StartWeightResidencyOperationRequest" => of::<StartWeightResidencyOperationRequest<'_>>(version),
        "WeightManifestReference" => of::<WeightManifestReference<'_>>(version),
        "WeightResidencyOperation" => of::<WeightResidencyOperation<'_>>(version),
        "WeightRevisionIdentity" => of::<WeightRevisionIdentity<'_>>(version),
        "WeightRevisionLease" => of::<WeightRevisionLease<'_>>(version),
        "WeightRevisionMetadata" => of::<WeightRevisionMetadata<'_>>(version),
        "WeightRevisionView" => of::<WeightRevisionView<'_>>(version),
        other => panic!("no type for {other}"),
    }
}

#[test]
fn structs_of_every_generation() {
    for row in lines(TYPES).iter().filter(|row| row["kind"] == "struct") {
        for wheel in row["wheels"].as_array().expect("a list") {
            let version: WireVersion = wheel.as_str().expect("a text").parse().expect("a generation");
            let ty = struct_type(text(row, "name"), version);
            let label = format!("{} in {version}", text(row, "name"));
            assert_eq!(ty.literal(), hex(text(row, "literal")), "{label}");
            assert_eq!(ty.code(), number(text(row, "code")), "{label}");
        }
    }
}

/// Our number for a name of an enum of the peer; `None` for an enum that we do not name.
fn enum_number(name: &str, value: &str) -> Option<i64> {
    let number = match (name, value) {
        ("ErrorCode", value) => {
            return ErrorCode::ALL.iter().find(|code| code.name() == Some(value)).map(|code| i64::from(code.0));
        }
        ("ClientStatus", "OK") => ClientStatus::OK.0,
        ("ClientStatus", "NEED_REMOUNT") => ClientStatus::NEED_REMOUNT.0,
        ("ReplicaStatus", "INITIALIZED") => ReplicaStatus::INITIALIZED.0,
        ("ReplicaStatus", "PROCESSING") => ReplicaStatus::PROCESSING.0,
        ("ReplicaStatus", "COMPLETE") => ReplicaStatus::COMPLETE.0,
        ("ReplicaStatus", "REMOVED") => ReplicaStatus::REMOVED.0,
        ("ReplicaStatus", "FAILED") => ReplicaStatus::FAILED.0,
        ("ReplicaType", "MEMORY") => ReplicaType::MEMORY.0,
        ("ReplicaType", "DISK") => ReplicaType::DISK.0,
        ("ReplicaType", "LOCAL_DISK") => ReplicaType::LOCAL_DISK.0,
        ("ReplicaType", "NOF_SSD") => ReplicaType::NOF_SSD.0,
        ("ReplicaType", "ALL") => ReplicaType::ALL.0,
        ("ReplicaType", "DFS") => ReplicaType::DFS.0,
        ("SegmentStatus", "OK") => SegmentStatus::OK.0,
        ("SegmentStatus", "DRAINING") => SegmentStatus::DRAINING.0,
        ("SegmentStatus", "DRAINED") => SegmentStatus::DRAINED.0,
        ("SegmentStatus", "GRACEFULLY_UNMOUNTING") => SegmentStatus::GRACEFULLY_UNMOUNTING.0,
        ("SegmentStatus", "UNMOUNTING") => SegmentStatus::UNMOUNTING.0,
        ("TaskStatus", "PENDING") => TaskStatus::PENDING.0,
        ("TaskStatus", "PROCESSING") => TaskStatus::PROCESSING.0,
        ("TaskStatus", "FAILED") => TaskStatus::FAILED.0,
        ("TaskStatus", "SUCCESS") => TaskStatus::SUCCESS.0,
        ("TaskType", "REPLICA_COPY") => TaskType::REPLICA_COPY.0,
        ("TaskType", "REPLICA_MOVE") => TaskType::REPLICA_MOVE.0,
        ("SoftPinAction", "PRESERVE") => i32::from(SoftPinAction::PRESERVE.0),
        ("SoftPinAction", "ENABLE") => i32::from(SoftPinAction::ENABLE.0),
        ("SoftPinAction", "DISABLE") => i32::from(SoftPinAction::DISABLE.0),
        ("ObjectDataType", "KVCACHE") => i32::from(ObjectDataType::KVCACHE.0),
        ("ObjectDataType", "WEIGHT") => i32::from(ObjectDataType::WEIGHT.0),
        ("ObjectDataType", "METADATA") => i32::from(ObjectDataType::METADATA.0),
        ("ObjectDataType", "GENERAL") => i32::from(ObjectDataType::GENERAL.0),
        ("ProbeLeaseMode", "LastHitOnly") => i32::from(LeaseMode::LAST_HIT_ONLY.0),
        ("WeightManagementError", "DURABILITY_FAILED") => i32::from(WeightManagementError::DURABILITY_FAILED.0),
        ("WeightAvailabilityState", "DELETED") => i32::from(WeightAvailabilityState::DELETED.0),
        ("WeightOperationState", "REPAIRING") => i32::from(WeightOperationState::REPAIRING.0),
        ("WeightResidencyState", "ABSENT") => i32::from(WeightResidencyState::ABSENT.0),
        _ => return None,
    };
    Some(i64::from(number))
}

#[test]
fn numbers_of_enums() {
    let mut checked = 0;
    for row in lines(TYPES).iter().filter(|row| row["kind"] == "enum") {
        let name = text(row, "name");
        for (value, number) in row["values"].as_object().expect("an object") {
            let Some(ours) = enum_number(name, value) else {
                assert_ne!(name, "ErrorCode", "{value} has no name here");
                continue;
            };
            assert_eq!(number.as_i64(), Some(ours), "{name}::{value} in {}", row["wheels"]);
            checked += 1;
        }
    }
    assert!(checked > 500, "only {checked} numbers were checked");
}
