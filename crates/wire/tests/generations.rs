//! One server, several generations: what each form of a message means.

use yb_types::{ClientId, ReplicaType, ReplicateConfig, SoftPinAction, Uuid};
use yb_wire::messages::*;
use yb_wire::{
    Call, Form, Limits, List, Rpc, Service, WireError, WireProfile, WireTable, WireVersion, call, encode_reply,
    encode_request,
};

const TENANT: &[u8] = b"default";
const CLIENT: ClientId = ClientId(Uuid { first: 1, second: 2 });

fn request<C: Call>(version: WireVersion, args: &C::Args<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode_request::<C>(WireTable::of(version), 0, args, Form::Literal, &mut out).expect("encodes");
    out.split_off(20)
}

#[test]
fn the_main_port_tells_both_forms_of_batch_replica_clear_apart() {
    let keys: [&[u8]; 2] = [b"a", b"b"];
    let args = |tenant_id| BatchReplicaClearArgs {
        object_keys: List::from(&keys),
        client_id: CLIENT,
        segment_name: b"s",
        tenant_id,
    };
    let profile = WireProfile::main();
    let decode = |body: &[u8]| {
        profile
            .decode_args::<call::BatchReplicaClear>(body, Limits::default())
            .map(|args| (args.object_keys.to_vec().len(), args.tenant_id.to_vec()))
    };
    let old = request::<call::BatchReplicaClear>(WireVersion::V0_3_13, &args(b"lost"));
    let new = request::<call::BatchReplicaClear>(WireVersion::V0_3_14, &args(b"kept"));
    assert_eq!(decode(&old), Ok((2, TENANT.to_vec())));
    assert_eq!(decode(&new), Ok((2, b"kept".to_vec())));
    // Only generations of the port are understood.
    let other = request::<call::ExistKey>(WireVersion::V0_3_11, &KeyArgs { key: b"k", tenant_id: TENANT });
    let refused = profile.decode_args::<call::ExistKey>(&other, Limits::default());
    assert!(matches!(refused, Err(WireError::Decode { rpc: Rpc::ExistKey, .. })));
}

#[test]
fn the_publish_of_an_old_client_has_a_bare_key() {
    let metas = [ObjectMetaRef { key: b"k", object_checksum: Some(5) }];
    let args = BatchPutEndArgs {
        client_id: CLIENT,
        object_metas: List::from(&metas),
        replica_type: ReplicaType::ALL,
        tenant_id: b"t",
    };
    for version in WireVersion::ALL {
        let body = request::<call::BatchPutEnd>(*version, &args);
        let profile = WireProfile::exactly(*version);
        let back = profile.decode_args::<call::BatchPutEnd>(&body, Limits::default()).expect("decodes");
        let meta = back.object_metas.iter().next().expect("one");
        assert_eq!(meta.key, b"k");
        assert_eq!(meta.object_checksum, (*version >= WireVersion::V0_3_13).then_some(5));
        let has_type = *version >= WireVersion::V0_3_11;
        assert_eq!(back.replica_type, if has_type { ReplicaType::ALL } else { ReplicaType::MEMORY });
        assert_eq!(back.tenant_id, if *version >= WireVersion::V0_3_12 { b"t" } else { TENANT });
    }
}

#[test]
fn the_soft_pin_of_an_old_client_is_a_flag() {
    for (action, old) in [
        (SoftPinAction::ENABLE, SoftPinAction::ENABLE),
        (SoftPinAction::PRESERVE, SoftPinAction::PRESERVE),
        (SoftPinAction::DISABLE, SoftPinAction::PRESERVE),
    ] {
        let config = ReplicateConfig {
            soft_pin_action: action,
            soft_pin_ttl_ms: Some(1),
            with_hard_pin: true,
            session_ids: Some(vec!["s".into()]),
            ..ReplicateConfig::default()
        };
        let args = PutStartArgs { client_id: CLIENT, key: b"k", slice_length: 3, config, tenant_id: TENANT };
        for version in WireVersion::ALL {
            let body = request::<call::PutStart>(*version, &args);
            let profile = WireProfile::exactly(*version);
            let back = profile.decode_args::<call::PutStart>(&body, Limits::default()).expect("decodes").config;
            let is_new = *version >= WireVersion::V0_3_13;
            assert_eq!(back.soft_pin_action, if is_new { action } else { old }, "{version}");
            assert_eq!(back.soft_pin_ttl_ms, is_new.then_some(1));
            assert_eq!(back.with_hard_pin, *version >= WireVersion::V0_3_10_POST1);
            assert_eq!(back.session_ids.is_some(), *version >= WireVersion::V0_3_14);
        }
    }
}

/// 0.3.13 has no codes for what 0.3.14 appends, so each reads the other.
#[test]
fn neighbours_on_the_main_port_read_each_other() {
    let (old, new) = (WireTable::of(WireVersion::V0_3_13), WireTable::of(WireVersion::V0_3_14));
    let reply: ErrorOr<GetReplicaListResponse> =
        Ok(GetReplicaListResponse { resolved_tenant_id: Some("t".into()), ..Default::default() });
    for (writer, reader, tenant) in [(new, old, None), (old, new, None), (new, new, Some("t".to_owned()))] {
        let mut out = Vec::new();
        encode_reply::<call::GetReplicaList>(writer, 0, &reply, Form::Bare, &mut out).expect("encodes");
        let back = yb_wire::decode_reply::<call::GetReplicaList>(reader, &out[16..], Limits::default());
        assert_eq!(back.expect("decodes").expect("a value").resolved_tenant_id, tenant);
    }
    for rpc in Rpc::ALL.iter().filter(|rpc| **rpc != Rpc::BatchReplicaClear) {
        let Ok(before) = old.signature(*rpc) else { continue };
        let after = new.signature(*rpc).expect("nothing was dropped");
        assert_eq!((before.args.code(), before.reply.code()), (after.args.code(), after.reply.code()), "{rpc:?}");
    }
}

#[test]
fn what_a_generation_lacks_is_refused_by_name() {
    let mut out = b"x".to_vec();
    let args = KeyArgs { key: b"k", tenant_id: TENANT };
    let refused = encode_request::<call::ProbeKey>(WireTable::of(WireVersion::V0_3_13), 0, &args, Form::Bare, &mut out);
    let expected = WireError::NoSuchRpc { rpc: Rpc::ProbeKey, version: WireVersion::V0_3_13 };
    assert_eq!(refused, Err(expected.clone()));
    assert_eq!(expected.to_string(), "ProbeKey does not exist in wire generation 0.3.13");
    assert_eq!(out, b"x");
}

#[test]
fn services_share_no_port_but_ours_is_everywhere() {
    let table = WireTable::of(WireVersion::LATEST);
    let id = |rpc| table.signature(rpc).expect("newest").function_id;
    for version in WireVersion::ALL {
        let profile = WireProfile::of(*version);
        assert_eq!(profile.lookup(Service::Master, id(Rpc::ExistKey)), Some(Rpc::ExistKey));
        assert_eq!(profile.lookup(Service::Client, id(Rpc::ExistKey)), None);
        assert_eq!(profile.lookup(Service::Master, id(Rpc::Hello)), Some(Rpc::Hello));
        assert_eq!(profile.lookup(Service::Client, id(Rpc::Hello)), Some(Rpc::Hello));
    }
    assert_eq!(WireProfile::of(WireVersion::V0_3_13).version(), WireVersion::V0_3_14);
}

#[test]
fn a_heartbeat_hands_out_a_map_to_old_clients() {
    let task = OffloadTaskItem { tenant_id: TENANT, key: b"k", size: 7 };
    let reply: ErrorOr<OffloadTasks<'_>> = Ok(OffloadTasks(vec![task]));
    for version in WireVersion::ALL {
        let table = WireTable::of(*version);
        let mut out = Vec::new();
        encode_reply::<call::OffloadObjectHeartbeat>(table, 0, &reply, Form::Bare, &mut out).expect("encodes");
        let back = yb_wire::decode_reply::<call::OffloadObjectHeartbeat>(table, &out[16..], Limits::default());
        assert_eq!(back, Ok(reply.clone()), "{version}");
    }
}
