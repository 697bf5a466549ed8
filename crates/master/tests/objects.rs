//! Puts, lookups, removals over the wire.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::{Rig, TENANT, eventually};
use yb_pack::List;
use yb_types::{ErrorCode, ReplicaStatus, ReplicaType, ReplicateConfig};
use yb_wire::call;
use yb_wire::messages::*;

#[test]
fn an_object_lives_and_dies() {
    let rig = Rig::with(|config| config.catalog.lease_ttl = Duration::from_millis(200));
    let caller = rig.caller();
    let segment = caller.give_memory(1 << 20);
    assert_eq!(caller.get(b"k"), Err(ErrorCode::OBJECT_NOT_FOUND));
    let reserved = caller.put_start(b"k", 1000).unwrap();
    assert_eq!(reserved[0].status, ReplicaStatus::PROCESSING);
    assert_eq!(caller.get(b"k"), Err(ErrorCode::REPLICA_IS_NOT_READY));
    assert_eq!(caller.put_start(b"k", 1000), Err(ErrorCode::REPLICA_IS_NOT_READY), "busy, not \"exists\"");
    assert!(!caller.exists(b"k"));
    caller.put_end(b"k").unwrap();
    caller.put_end(b"k").unwrap();
    assert_eq!(caller.put_start(b"k", 1000), Err(ErrorCode::OBJECT_ALREADY_EXISTS));
    let found = caller.get(b"k").unwrap();
    let buffer = found.replicas[0].memory().unwrap();
    assert_eq!((buffer.size, buffer.protocol.as_str()), (1000, "tcp"));
    assert!(buffer.buffer_address >= segment.base && buffer.buffer_address + 1000 <= segment.base + segment.size);
    assert_eq!(found.resolved_tenant_id.as_deref(), Some("default"));
    assert_eq!(found.lease_ttl_ms, 200);
    assert_eq!(caller.remove(b"k", false), Err(ErrorCode::OBJECT_HAS_LEASE));
    eventually("the lease ends", || caller.remove(b"k", false).is_ok());
    assert_eq!(caller.remove(b"k", false), Err(ErrorCode::OBJECT_NOT_FOUND));
}

#[test]
fn batches_keep_the_order_of_their_keys() {
    let rig = Rig::start();
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    let keys: Vec<Vec<u8>> = (0..300).map(|i| format!("key-{i}").into_bytes()).collect();
    let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let lengths: Vec<u64> = (1..=300).collect();
    let args = BatchPutStartArgs {
        client_id: caller.id,
        keys: List::from(&borrowed),
        slice_lengths: List::from(&lengths),
        config: ReplicateConfig::default(),
        tenant_id: TENANT,
    };
    let started = caller.call::<call::BatchPutStart, _>(&args, |reply| reply);
    assert!(started.iter().zip(1..).all(|(one, size)| one.as_ref().unwrap()[0].memory().unwrap().size == size));
    let metas: Vec<ObjectMetaRef<'_>> =
        borrowed.iter().step_by(2).map(|key| ObjectMetaRef { key, object_checksum: Some(7) }).collect();
    let args = BatchPutEndArgs {
        client_id: caller.id,
        object_metas: List::from(&metas),
        replica_type: yb_types::ReplicaType::ALL,
        tenant_id: TENANT,
    };
    assert!(caller.call::<call::BatchPutEnd, _>(&args, |reply| reply.iter().all(Result::is_ok)));
    let keys = KeysArgs { keys: List::from(&borrowed), tenant_id: TENANT };
    let exists = caller.call::<call::BatchExistKey, _>(&keys, |reply| reply);
    assert!(exists.iter().enumerate().all(|(at, yes)| *yes == Ok(at % 2 == 0)));
    let found = caller.call::<call::BatchGetReplicaList, _>(&keys, |reply| reply);
    for (at, answer) in found.iter().enumerate() {
        match answer {
            Ok(found) => assert_eq!((found.replicas[0].memory().unwrap().size, at % 2), (at as u64 + 1, 0)),
            Err(code) => assert_eq!((*code, at % 2), (ErrorCode::REPLICA_IS_NOT_READY, 1)),
        }
    }
    assert_eq!(rig.metric("master_batch_get_replica_list_failed_items_total"), 150);
}

#[test]
fn strange_puts_get_an_answer_each() {
    let rig = Rig::start();
    let caller = rig.caller();
    assert_eq!(caller.put_start(b"k", 1), Err(ErrorCode::NO_AVAILABLE_HANDLE), "no segment yet");
    caller.give_memory(1 << 20);
    assert_eq!(caller.put_start(b"", 1), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(caller.put_start(b"large", 2 << 20), Err(ErrorCode::NO_AVAILABLE_HANDLE));
    assert!(caller.put(b"empty", 0).is_ok(), "an object of no bytes is legal on the wire");
    assert_eq!(caller.get(b"empty").unwrap().replicas[0].memory().unwrap().size, 0);
    assert_eq!(caller.put_end(b"never started"), Err(ErrorCode::OBJECT_NOT_FOUND));
    caller.put_start(b"mine", 1).unwrap();
    assert_eq!(rig.caller().put_end(b"mine"), Err(ErrorCode::ILLEGAL_CLIENT));
    let keys: [&[u8]; 3] = [b"twice", b"twice", b"once"];
    let call = |lengths: &[u64]| {
        let args = BatchPutStartArgs {
            client_id: caller.id,
            keys: List::from(&keys),
            slice_lengths: List::from(lengths),
            config: ReplicateConfig::default(),
            tenant_id: TENANT,
        };
        caller.call::<call::BatchPutStart, _>(&args, |reply| {
            reply.into_iter().map(|one| one.map(|replicas| replicas.len())).collect::<Vec<_>>()
        })
    };
    assert_eq!(call(&[1, 2]), vec![Err(ErrorCode::INVALID_PARAMS); 3], "lengths of another number");
    assert_eq!(call(&[1, 2, 3]), [Ok(1), Err(ErrorCode::REPLICA_IS_NOT_READY), Ok(1)], "a key twice in a batch");
    assert_eq!(rig.metric("yuebing_put_refusals_total{reason=\"larger_than_any_segment\"}"), 1);
}

#[test]
fn a_full_pool_makes_room_by_itself() {
    let rig = Rig::with(|config| config.catalog.lease_ttl = Duration::from_millis(1));
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    for i in 0..500 {
        let key = format!("key-{i}");
        eventually("a put finds space", || caller.put(key.as_bytes(), 16 << 10).is_ok());
    }
    assert!(caller.exists(b"key-499"));
    assert!(!caller.exists(b"key-0"));
    assert!(rig.metric("master_evicted_key_count") >= 400);
}

#[test]
fn patterns_and_everything() {
    let rig = Rig::with(|config| config.catalog.lease_ttl = Duration::from_millis(1));
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    for key in ["a1", "a2", "b1"] {
        caller.put(key.as_bytes(), 10).unwrap();
    }
    let pattern = |regex: &'static str| PatternArgs { regex: regex.as_bytes(), tenant_id: TENANT };
    let found = caller.call::<call::GetReplicaListByRegex, _>(&pattern("a[12]"), |reply| reply.map(|map| map.0.len()));
    assert_eq!(found, Ok(2));
    let bad = caller.call::<call::GetReplicaListByRegex, _>(&pattern("(["), |reply| reply.map(|map| map.0.len()));
    assert_eq!(bad, Err(ErrorCode::INVALID_PARAMS));
    let args = RemoveArgs { key: b"^a", force: true, tenant_id: TENANT };
    assert_eq!(caller.call::<call::RemoveByRegex, _>(&args, |reply| reply), Ok(2));
    let args = RemoveAllArgs { force: true, tenant_id: TENANT };
    assert_eq!(caller.call::<call::RemoveAll, _>(&args, |reply| reply), 1);
    assert_eq!(rig.metric("master_key_count"), 0);
}

#[test]
fn probes_lease_only_what_their_policy_says() {
    let rig = Rig::start();
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    for key in ["g1a", "g1b", "g2a"] {
        caller.put(key.as_bytes(), 10).unwrap();
    }
    let keys: [&[u8]; 4] = [b"g1a", b"g1b", b"g2a", b"missing"];
    let probe = |lease_mode, candidate_size| {
        let policy = GrantLeasePolicy { lease_mode, candidate_size };
        let args = BatchProbeKeyArgs { policy, keys: List::from(&keys), tenant_id: TENANT };
        caller.call::<call::BatchProbeKey, _>(&args, |reply| reply)
    };
    let there = [Ok(true), Ok(true), Ok(true), Ok(false)];
    assert_eq!(probe(0, 0), there);
    assert_eq!(caller.remove(b"g2a", false), Ok(()), "no lease yet");
    assert_eq!(probe(1, 2), [Ok(true), Ok(true), Ok(false), Ok(false)]);
    assert_eq!(caller.remove(b"g1a", false), Err(ErrorCode::OBJECT_HAS_LEASE));
    for bad in [(1, 3), (1, 0), (9, 2)] {
        assert_eq!(probe(bad.0, bad.1), vec![Err(ErrorCode::INVALID_PARAMS); 4]);
    }
    let args = KeyArgs { key: b"g1b", tenant_id: TENANT };
    let admin = caller.call::<call::GetReplicaListForAdmin, _>(&args, |reply| reply).unwrap();
    assert_eq!(admin.resolved_tenant_id, None);
}

#[test]
fn an_upsert_over_the_wire_switches_at_its_end() {
    let rig = Rig::start();
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    caller.put_start(b"k", 1000).unwrap();
    caller.put_end(b"k").unwrap();
    let old = caller.get(b"k").unwrap().replicas;
    let keys: [&[u8]; 2] = [b"k", b"new"];
    let args = BatchPutStartArgs {
        client_id: caller.id,
        keys: List::from(&keys[..]),
        slice_lengths: List::from(&[1000, 500][..]),
        config: ReplicateConfig::default(),
        tenant_id: TENANT,
    };
    let started = caller.call::<call::BatchUpsertStart, _>(&args, |reply| reply);
    let new = started[0].clone().unwrap();
    assert_ne!(new[0].id, old[0].id);
    assert_eq!(caller.get(b"k").unwrap().replicas, old, "read as before");
    assert_eq!(caller.remove(b"k", true), Err(ErrorCode::REPLICA_IS_NOT_READY));
    let metas = keys.map(|key| ObjectMetaRef { key, object_checksum: Some(9) });
    let args = BatchUpsertEndArgs { client_id: caller.id, object_metas: List::from(&metas[..]), tenant_id: TENANT };
    assert_eq!(caller.call::<call::BatchUpsertEnd, _>(&args, |reply| reply), [Ok(()), Ok(())]);
    let found = caller.get(b"k").unwrap();
    assert_eq!((found.replicas[0].id, found.object_checksum), (new[0].id, Some(9)));

    let config = ReplicateConfig::default();
    let args = PutStartArgs { client_id: caller.id, key: b"k", slice_length: 77, config, tenant_id: TENANT };
    caller.call::<call::UpsertStart, _>(&args, |reply| reply).unwrap();
    let args = BatchUpsertRevokeArgs { client_id: caller.id, keys: List::from(&keys[..]), tenant_id: TENANT };
    let revoked = caller.call::<call::BatchUpsertRevoke, _>(&args, |reply| reply);
    assert_eq!(revoked, [Ok(()), Err(ErrorCode::INVALID_WRITE)]);
    assert_eq!(caller.get(b"k").unwrap().replicas[0].id, new[0].id, "the old value stays");
}

#[test]
fn patterns_look_around_and_replicas_are_cleared_over_the_wire() {
    let rig = Rig::with(|config| config.catalog.lease_ttl = Duration::from_millis(1500));
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    for key in [&b"a-1"[..], b"a-2", b"b-1"] {
        caller.put_start(key, 100).unwrap();
        caller.put_end(key).unwrap();
    }
    let pattern = |regex: &'static [u8]| {
        let args = PatternArgs { regex, tenant_id: TENANT };
        caller.call::<call::GetReplicaListByRegex, _>(&args, |reply| {
            reply.map(|found| found.0.iter().map(|(key, _)| key.to_vec()).collect::<Vec<_>>())
        })
    };
    let keys: [&[u8]; 3] = [b"a-1", b"b-1", b"absent"];
    let clear = || {
        let object_keys = List::from(&keys[..]);
        let args = BatchReplicaClearArgs { object_keys, client_id: caller.id, segment_name: b"", tenant_id: TENANT };
        caller.call::<call::BatchReplicaClear, _>(&args, |reply| {
            reply.map(|cleared| cleared.iter().map(|key| key.to_vec()).collect::<Vec<_>>())
        })
    };
    assert_eq!(pattern(b"^a-(?!1)"), Ok(vec![b"a-2".to_vec()]));
    assert_eq!(pattern(b"^a-(?!1"), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(pattern(b"1$").map(|found| found.len()), Ok(2));
    assert_eq!(clear(), Ok(Vec::new()), "what matched has a lease");
    eventually("the leases end", || clear() == Ok(vec![b"a-1".to_vec(), b"b-1".to_vec()]));
    assert!(!caller.exists(b"a-1") && caller.exists(b"a-2"));
}

#[test]
fn ends_and_revokes_of_our_own_name_their_write() {
    let rig = Rig::start();
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    let (client_id, replica_type, tenant_id) = (caller.id, ReplicaType::ALL, TENANT);
    let start = |key| caller.put_start(key, 1000).unwrap()[0].id;
    let named = |key: &'static [u8], replica| NamedWrite { key, replica };
    let ended = |key, replica| EndedWrite { write: named(key, replica), checksum: Some(7) };
    let end = |key, replica| {
        let args = EndWriteArgs { client_id, ended: ended(key, replica), replica_type, tenant_id };
        caller.call::<call::EndWrite, _>(&args, |reply| reply)
    };
    let revoke = |quiet, writes: &[NamedWrite<'_>]| {
        let args = BatchRevokeWritesArgs { client_id, writes: List::from(writes), replica_type, quiet, tenant_id };
        caller.call::<call::BatchRevokeWrites, _>(&args, |reply| reply)
    };
    let gone = Err(ErrorCode::OBJECT_NOT_FOUND);
    let first = start(b"k");
    assert_eq!(revoke(true, &[named(b"k", first), named(b"none", first)]), [Ok(()), gone]);
    let second = start(b"k");
    assert_eq!((end(b"k", first), revoke(false, &[named(b"k", first)])), (gone, vec![gone]));
    assert!(!caller.exists(b"k"), "the bytes of the second write are not there");
    let other = start(b"other");
    let writes = [ended(b"other", other), ended(b"k", first), ended(b"k", second)];
    let args = BatchEndWritesArgs { client_id, ended: List::from(&writes[..]), replica_type, tenant_id };
    assert_eq!(caller.call::<call::BatchEndWrites, _>(&args, |reply| reply), [Ok(()), gone, Ok(())]);
    let found = caller.get(b"k").unwrap();
    assert_eq!((found.replicas[0].id, found.object_checksum), (second, Some(7)));
    assert_eq!(end(b"k", second), Ok(()), "a repetition");
}
