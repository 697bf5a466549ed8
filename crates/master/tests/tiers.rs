//! Disks of clients over RPC.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{Caller, Rig, TENANT};
use yb_pack::List;
use yb_types::{ErrorCode, ReplicaKind, ReplicaType};
use yb_wire::call;
use yb_wire::messages::*;

fn rig() -> Rig {
    Rig::with(|config| {
        config.catalog.tiers.enable_offload = true;
        config.catalog.tiers.promotion_on_hit = true;
        config.catalog.lease_ttl = std::time::Duration::from_millis(50);
    })
}

fn mount_disk(caller: &Caller) -> ErrorOr<()> {
    let args = OffloadingArgs { client_id: caller.id, enable_offloading: true };
    caller.call::<call::MountLocalDiskSegment, _>(&args, |reply| reply)
}

/// Keys that the client is to write down.
fn heartbeat(caller: &Caller) -> ErrorOr<Vec<(Vec<u8>, i64)>> {
    let args = OffloadingArgs { client_id: caller.id, enable_offloading: true };
    caller.call::<call::OffloadObjectHeartbeat, _>(&args, |reply| {
        reply.map(|tasks| tasks.0.iter().map(|task| (task.key.to_vec(), task.size)).collect())
    })
}

fn stored(caller: &Caller, key: &[u8], data_size: i64) -> ErrorOr<()> {
    let tasks = [OffloadedItem { tenant_id: TENANT, key, size: data_size }];
    let metadatas =
        [StorageObjectMetadata { bucket_id: 0, offset: 0, key_size: 1, data_size, transport_endpoint: "host:7" }];
    let args = NotifyOffloadSuccessArgs {
        client_id: caller.id,
        tasks: List::from(&tasks[..]),
        metadatas: List::from(&metadatas[..]),
    };
    caller.call::<call::NotifyOffloadSuccess, _>(&args, |reply| reply)
}

#[test]
fn a_master_without_the_feature_says_so() {
    let rig = Rig::start();
    let caller = rig.caller();
    assert_eq!(mount_disk(&caller), Err(ErrorCode::UNABLE_OFFLOAD));
    assert_eq!(heartbeat(&caller), Err(ErrorCode::SEGMENT_NOT_FOUND));
    assert_eq!(caller.call::<call::PollRemoveAll, _>(&ClientArgs { client_id: caller.id }, |reply| reply), Ok(false));
}

#[test]
fn an_object_goes_to_a_disk_and_comes_back() {
    let rig = rig();
    let owner = rig.caller();
    owner.give_memory(1 << 20);
    assert_eq!(heartbeat(&owner), Err(ErrorCode::SEGMENT_NOT_FOUND));
    mount_disk(&owner).unwrap();
    let capacity = ReportSsdCapacityArgs { client_id: owner.id, ssd_total_capacity_bytes: -1 };
    assert_eq!(owner.call::<call::ReportSsdCapacity, _>(&capacity, |r| r), Err(ErrorCode::INVALID_PARAMS));
    owner.put(b"k", 1000).unwrap();
    assert_eq!(heartbeat(&owner), Ok(vec![(b"k".to_vec(), 1000)]));
    stored(&owner, b"k", 1000).unwrap();
    let found = owner.get(b"k").unwrap();
    assert_eq!(found.replicas.len(), 2);
    let ReplicaKind::LocalDisk(disk) = &found.replicas[1].kind else { panic!("{:?}", found.replicas) };
    assert_eq!((disk.client_id, disk.object_size, disk.transport_endpoint.as_str()), (owner.id, 1000, "host:7"));
    assert!(rig.page("/batch_query_keys?keys=k").contains("\"local_disk_values\":[{"));
    let key = ClientKeyArgs { client_id: owner.id, key: b"k", tenant_id: TENANT };
    let prefetch = || owner.call::<call::RegisterPrefetchTask, _>(&key, |reply| reply);
    assert_eq!(prefetch(), Err(ErrorCode::PROMOTION_ALREADY_EXISTS), "it is in memory");
    let alloc = PromotionAllocStartArgs {
        client_id: owner.id,
        key: b"k",
        tenant_id: TENANT,
        size: 1000,
        preferred_segments: List::from(&[][..]),
    };
    let alloc = || owner.call::<call::PromotionAllocStart, _>(&alloc, |reply| reply.map(drop));
    assert_eq!(alloc(), Err(ErrorCode::REPLICA_IS_NOT_READY));
    let end = || owner.call::<call::NotifyPromotionSuccess, _>(&key, |reply| reply);
    assert_eq!(end(), Err(ErrorCode::REPLICA_IS_NOT_READY));
    assert_eq!(owner.call::<call::NotifyPromotionFailure, _>(&key, |reply| reply), Ok(()));
    let evict = |replica_type, id| {
        let args = EvictDiskReplicaIfCurrentArgs {
            client_id: owner.id,
            key: b"k",
            tenant_id: TENANT,
            replica_type,
            replica_id: id,
        };
        owner.call::<call::EvictDiskReplicaIfCurrent, _>(&args, |reply| reply)
    };
    assert_eq!(evict(ReplicaType::MEMORY, found.replicas[1].id), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(evict(ReplicaType::LOCAL_DISK, found.replicas[0].id), Ok(false));
    assert_eq!(evict(ReplicaType::LOCAL_DISK, found.replicas[1].id), Ok(true));
    let keys: [&[u8]; 2] = [b"k", b"none"];
    let args = BatchEvictDiskReplicaArgs {
        client_id: owner.id,
        keys: List::from(&keys[..]),
        tenant_id: TENANT,
        replica_type: ReplicaType::DISK,
    };
    let answers = owner.call::<call::BatchEvictDiskReplica, _>(&args, |reply| reply.to_vec());
    assert_eq!(answers, [Ok(()), Err(ErrorCode::OBJECT_NOT_FOUND)]);
    let all = RemoveAllArgs { force: true, tenant_id: b"" };
    assert_eq!(owner.call::<call::RemoveAll, _>(&all, |reply| reply), 1);
    assert_eq!(owner.call::<call::PollRemoveAll, _>(&ClientArgs { client_id: owner.id }, |reply| reply), Ok(true));
}

/// What a client finds on its disk after a restart of the master is taken up, and can be loaded.
#[test]
fn a_disk_is_known_again_after_a_restart() {
    let rig = rig();
    let owner = rig.caller();
    mount_disk(&owner).unwrap();
    stored(&owner, b"k", 500).unwrap();
    assert!(owner.exists(b"k"));
    owner.give_memory(1 << 20);
    let key = ClientKeyArgs { client_id: owner.id, key: b"k", tenant_id: TENANT };
    assert_eq!(owner.call::<call::RegisterPrefetchTask, _>(&key, |reply| reply), Ok(()));
    let alloc = PromotionAllocStartArgs {
        client_id: owner.id,
        key: b"k",
        tenant_id: TENANT,
        size: 500,
        preferred_segments: List::from(&[][..]),
    };
    let staged = owner.call::<call::PromotionAllocStart, _>(&alloc, |reply| reply).unwrap();
    assert_eq!(staged.memory_descriptor.memory().unwrap().size, 500);
    assert_eq!(owner.get(b"k").unwrap().replicas.len(), 1);
    assert_eq!(owner.call::<call::NotifyPromotionSuccess, _>(&key, |reply| reply), Ok(()));
    let found = owner.get(b"k").unwrap();
    assert!(found.replicas[0].memory().is_some() && found.replicas.len() == 2);
}
