//! Managed weight revisions over RPC.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Caller, Rig, TENANT, eventually};
use yb_types::{ErrorCode, ObjectDataType, ReplicateConfig};
use yb_wire::call;
use yb_wire::messages::*;

const GROUP: &[u8] = b"weight:32cd430c02d837bbbb3d2bbabfcd6fd455c1982c5adea158f8425a0a938cbef6";

fn identity<'a>() -> WeightRevisionIdentity<'a> {
    WeightRevisionIdentity {
        tenant_id: TENANT,
        name_space: b"ns",
        resource_id: b"model",
        revision: b"r1",
        weight_generation: 1,
    }
}

fn begin(caller: &Caller, count: u64) -> WeightResult<(Vec<u8>, u64)> {
    let request = BeginWeightImportRequest {
        identity: identity(),
        payload_group_id: b"",
        expected_payload_count: count,
        expected_logical_bytes: 1000,
    };
    let args = BeginWeightImportArgs { request, tenant_id: TENANT };
    caller.call::<call::BeginWeightImport, _>(&args, |reply| {
        reply.map(|begun| (begun.manifest.payload_group_id.to_vec(), begun.metadata_generation))
    })
}

fn put_member(caller: &Caller, key: &[u8], size: u64) {
    let config = ReplicateConfig {
        group_ids: Some(vec![String::from_utf8(GROUP.to_vec()).unwrap()]),
        with_hard_pin: true,
        data_type: ObjectDataType::WEIGHT,
        ..ReplicateConfig::default()
    };
    let args = PutStartArgs { client_id: caller.id, key, slice_length: size, config, tenant_id: TENANT };
    caller.call::<call::PutStart, _>(&args, |reply| reply.map(drop)).unwrap();
    caller.put_end(key).unwrap();
}

fn commit(caller: &Caller, keys_sha256: &[u8]) -> WeightResult<(WeightAvailabilityState, u64)> {
    let manifest = WeightManifestReference {
        manifest_key: b"weights/ns/model/r1/1/manifest",
        manifest_sha256: b"44",
        payload_group_id: GROUP,
        payload_keys_sha256: keys_sha256,
        payload_count: 1,
        logical_bytes: 1000,
    };
    let request = CommitWeightImportRequest { identity: identity(), expected_metadata_generation: 1, manifest };
    let args = CommitWeightImportArgs { request, tenant_id: TENANT };
    caller.call::<call::CommitWeightImport, _>(&args, |reply| {
        reply.map(|done| (done.availability, done.metadata_generation))
    })
}

fn get(caller: &Caller) -> WeightResult<(WeightAvailabilityState, u64)> {
    let args = GetWeightRevisionArgs { request: GetWeightRevisionRequest { identity: identity() }, tenant_id: TENANT };
    caller.call::<call::GetWeightRevision, _>(&args, |reply| {
        reply.map(|view| (view.metadata.availability, view.active_lease_count))
    })
}

#[test]
fn a_revision_is_imported_leased_and_deleted() {
    let rig = Rig::start();
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    assert_eq!(get(&caller), Err(WeightManagementError::NOT_FOUND));
    assert_eq!(begin(&caller, 1), Ok((GROUP.to_vec(), 1)));
    assert_eq!(begin(&caller, 1), Ok((GROUP.to_vec(), 1)));
    assert_eq!(begin(&caller, 2), Err(WeightManagementError::CONFLICT));
    let digest = sha_of_keys();
    assert_eq!(commit(&caller, digest.as_bytes()), Err(WeightManagementError::CONFLICT), "nothing is there");
    put_member(&caller, b"wkey1", 1000);
    put_member(&caller, b"weights/ns/model/r1/1/manifest", 20);
    assert_eq!(commit(&caller, b"not the digest"), Err(WeightManagementError::CONFLICT));
    assert_eq!(commit(&caller, digest.as_bytes()), Ok((WeightAvailabilityState::READY, 2)));
    let lease = AcquireWeightRevisionLeaseRequest {
        identity: identity(),
        expected_metadata_generation: 2,
        holder: b"h",
        ttl_ms: 60_000,
    };
    let args = AcquireWeightRevisionLeaseArgs { request: lease, tenant_id: TENANT };
    let lease_id = caller.call::<call::AcquireWeightRevisionLease, _>(&args, |reply| reply.unwrap().lease_id);
    assert_eq!(get(&caller), Ok((WeightAvailabilityState::READY, 1)));
    let delete = WeightRevisionAtArgs {
        request: WeightRevisionAt { identity: identity(), expected_metadata_generation: 2 },
        tenant_id: TENANT,
    };
    let delete = || {
        caller.call::<call::DeleteWeightRevision, _>(&delete, |reply| {
            reply.map(|gone| (gone.availability, gone.residency, gone.metadata_generation))
        })
    };
    assert_eq!(delete(), Err(WeightManagementError::BUSY));
    let cold = StartWeightResidencyOperationRequest {
        identity: identity(),
        expected_metadata_generation: 2,
        target_residency: WeightResidencyState::COLD,
    };
    let cold = StartWeightResidencyOperationArgs { request: cold, tenant_id: TENANT };
    let started = caller.call::<call::StartWeightResidencyOperation, _>(&cold, |reply| reply.map(|o| o.operation_id));
    assert_eq!(started, Err(WeightManagementError::NOT_READY), "no copy is on a disk");
    let release = ReleaseWeightRevisionLeaseArgs {
        request: ReleaseWeightRevisionLeaseRequest { tenant_id: TENANT, lease_id },
        tenant_id: TENANT,
    };
    assert_eq!(caller.call::<call::ReleaseWeightRevisionLease, _>(&release, |reply| reply), Ok(()));
    assert_eq!(delete(), Ok((WeightAvailabilityState::DELETED, WeightResidencyState::ABSENT, 4)));
    assert_eq!(get(&caller), Err(WeightManagementError::NOT_FOUND));
    assert!(!caller.exists(b"wkey1"), "its objects are gone, pinned or not");
    assert_eq!(caller.remove(b"wkey1", true), Err(ErrorCode::OBJECT_NOT_FOUND));
}

/// `sha256sum` of `5:wkey1` and a line end.
fn sha_of_keys() -> String {
    "99b129cf24277143db778da1e02385f6e75f5505f0969bb9ac45a0aaac2e1c71".to_owned()
}

#[test]
fn an_import_that_nothing_arrives_for_is_given_up() {
    let rig = Rig::with(|config| config.weight_idle_ms = 50);
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    begin(&caller, 1).unwrap();
    put_member(&caller, b"wkey1", 1000);
    eventually("it is given up with what it stored", || {
        get(&caller) == Err(WeightManagementError::NOT_FOUND) && !caller.exists(b"wkey1")
    });
}
