//! A reply written piece by piece has the bytes of the same reply encoded as a value.

use proptest::prelude::*;
use yb_types::{
    BufferDescriptor, ClientId, DfsDescriptor, DiskDescriptor, ErrorCode, LocalDiskDescriptor, MemoryDescriptor,
    NofDescriptor, ReplicaDescriptor, ReplicaId, ReplicaKind, ReplicaStatus, SegmentLocality, Uuid,
};
use yb_wire::messages::{ErrorOr, GetReplicaListResponse};
use yb_wire::{
    BufferRef, Call, DfsRef, DiskRef, Form, LocalDiskRef, ReplicaKindRef, ReplicaRef, ReplyWriter, Rpc, Scratch,
    WireTable, WireVersion, call, encode_reply,
};

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![10 => "[a-z0-9:.]{0,20}", 1 => "[a-z]{250,300}"]
}

fn localities() -> impl Strategy<Value = Option<SegmentLocality>> {
    let names = prop::collection::vec(texts(), 0..3);
    prop::option::of((any::<i32>(), names).prop_map(|(numa_node, hca_names)| SegmentLocality { numa_node, hca_names }))
}

fn buffers() -> impl Strategy<Value = BufferDescriptor> {
    (any::<u64>(), any::<u64>(), texts(), texts(), localities()).prop_map(
        |(size, buffer_address, protocol, transport_endpoint, locality)| BufferDescriptor {
            size,
            buffer_address,
            protocol,
            transport_endpoint,
            locality,
        },
    )
}

fn kinds() -> impl Strategy<Value = ReplicaKind> {
    prop_oneof![
        4 => buffers().prop_map(|buffer| ReplicaKind::Memory(MemoryDescriptor { buffer })),
        1 => buffers().prop_map(|buffer| ReplicaKind::Nof(NofDescriptor { buffer })),
        1 => (texts(), any::<u64>())
            .prop_map(|(file_path, object_size)| ReplicaKind::Disk(DiskDescriptor { file_path, object_size })),
        1 => (any::<u64>(), any::<u64>(), texts()).prop_map(|(first, object_size, transport_endpoint)| {
            let client_id = ClientId(Uuid { first, second: 1 });
            ReplicaKind::LocalDisk(LocalDiskDescriptor { client_id, object_size, transport_endpoint })
        }),
        1 => (texts(), any::<u64>(), any::<i32>()).prop_map(|(file_path, offset, shard_idx)| {
            ReplicaKind::Dfs(DfsDescriptor { file_path, offset, object_size: 3, aligned_size: 4, shard_idx })
        }),
    ]
}

fn replicas() -> impl Strategy<Value = Vec<ReplicaDescriptor>> {
    let replica = (any::<u64>(), kinds(), any::<i32>()).prop_map(|(id, kind, status)| ReplicaDescriptor {
        id: ReplicaId(id),
        kind,
        status: ReplicaStatus(status),
    });
    prop::collection::vec(replica, 0..4)
}

fn lookups() -> impl Strategy<Value = ErrorOr<GetReplicaListResponse>> {
    let found = (replicas(), any::<u64>(), prop::option::of(any::<u64>()), prop::option::of(texts()));
    prop_oneof![
        1 => any::<i32>().prop_map(|code| Err(ErrorCode(code))),
        3 => found.prop_map(|(replicas, lease_ttl_ms, object_checksum, resolved_tenant_id)| {
            Ok(GetReplicaListResponse { replicas, lease_ttl_ms, object_checksum, resolved_tenant_id })
        }),
    ]
}

fn versions() -> impl Strategy<Value = WireVersion> {
    prop::sample::select(WireVersion::ALL)
}

fn borrow_buffer(buffer: &BufferDescriptor) -> BufferRef<'_> {
    BufferRef {
        size: buffer.size,
        buffer_address: buffer.buffer_address,
        protocol: &buffer.protocol,
        transport_endpoint: &buffer.transport_endpoint,
        locality: buffer.locality.as_ref(),
    }
}

fn borrow(replica: &ReplicaDescriptor) -> ReplicaRef<'_> {
    let kind = match &replica.kind {
        ReplicaKind::Memory(m) => return ReplicaRef::memory(replica.id, replica.status, borrow_buffer(&m.buffer)),
        ReplicaKind::Nof(n) => ReplicaKindRef::Nof(yb_wire::BufferHolderRef { buffer: borrow_buffer(&n.buffer) }),
        ReplicaKind::Disk(d) => ReplicaKindRef::Disk(DiskRef { file_path: &d.file_path, object_size: d.object_size }),
        ReplicaKind::LocalDisk(d) => ReplicaKindRef::LocalDisk(LocalDiskRef {
            client_id: d.client_id,
            object_size: d.object_size,
            transport_endpoint: &d.transport_endpoint,
        }),
        ReplicaKind::Dfs(d) => ReplicaKindRef::Dfs(DfsRef {
            file_path: &d.file_path,
            offset: d.offset,
            object_size: d.object_size,
            aligned_size: d.aligned_size,
            shard_idx: d.shard_idx,
        }),
    };
    ReplicaRef { id: replica.id, kind, status: replica.status }
}

fn write_lookup(writer: &mut ReplyWriter<'_>, lookup: &ErrorOr<GetReplicaListResponse>) {
    match lookup {
        Err(code) => writer.err(*code),
        Ok(found) => writer.lookup(
            found.replicas.iter().map(borrow),
            found.lease_ttl_ms,
            found.object_checksum,
            found.resolved_tenant_id.as_ref().map(|t| t.as_bytes()),
        ),
    }
}

/// The frame of `write`, after bytes that were there before.
fn written(
    version: WireVersion,
    rpc: Rpc,
    form: Form,
    expected: usize,
    write: impl FnOnce(&mut ReplyWriter<'_>),
) -> Option<Vec<u8>> {
    let (mut out, mut scratch) = (b"before".to_vec(), Scratch::default());
    let table = WireTable::of(version);
    let mut writer = ReplyWriter::begin(table, rpc, 9, form, expected, &mut out, &mut scratch).expect("in the table");
    write(&mut writer);
    let result = writer.finish();
    assert!(out.starts_with(b"before"));
    if result.is_err() {
        assert_eq!(out, b"before");
        return None;
    }
    Some(out.split_off(6))
}

fn encoded<C: Call>(version: WireVersion, form: Form, reply: &C::Reply<'_>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let result = encode_reply::<C>(WireTable::of(version), 9, reply, form, &mut out);
    if result.is_err() {
        assert!(out.is_empty());
        return None;
    }
    Some(out)
}

const FORMS: [Form; 2] = [Form::Bare, Form::Literal];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn batch_of_lookups(lookups in prop::collection::vec(lookups(), 0..6), version in versions(), expected in 0usize..400) {
        for form in FORMS {
            let written = written(version, Rpc::BatchGetReplicaList, form, expected, |writer| {
                writer.list(lookups.len());
                lookups.iter().for_each(|lookup| write_lookup(writer, lookup));
            });
            prop_assert_eq!(written, encoded::<call::BatchGetReplicaList>(version, form, &lookups));
        }
    }

    #[test]
    fn one_lookup(lookup in lookups(), version in versions()) {
        for form in FORMS {
            let written = written(version, Rpc::GetReplicaList, form, 0, |writer| write_lookup(writer, &lookup));
            prop_assert_eq!(written, encoded::<call::GetReplicaList>(version, form, &lookup));
        }
    }

    #[test]
    fn reservations(all in prop::collection::vec(replicas(), 0..4), version in versions()) {
        for form in FORMS {
            let written = written(version, Rpc::BatchPutStart, form, all.len(), |writer| {
                writer.list(all.len() + 1);
                all.iter().for_each(|replicas| writer.reservation(replicas.iter().map(borrow)));
                writer.err(ErrorCode::NO_AVAILABLE_HANDLE);
            });
            let mut value: Vec<ErrorOr<Vec<ReplicaDescriptor>>> = all.iter().cloned().map(Ok).collect();
            value.push(Err(ErrorCode::NO_AVAILABLE_HANDLE));
            prop_assert_eq!(written, encoded::<call::BatchPutStart>(version, form, &value));
        }
    }
}

/// More than 64 KiB: the total length takes four bytes; 300 elements: the sizes take two.
#[test]
fn a_long_batch() {
    let buffer = BufferDescriptor { protocol: "tcp".into(), transport_endpoint: "h:1".into(), ..Default::default() };
    let replica = ReplicaDescriptor {
        id: ReplicaId(1),
        kind: ReplicaKind::Memory(MemoryDescriptor { buffer }),
        status: ReplicaStatus::COMPLETE,
    };
    let found = GetReplicaListResponse {
        replicas: vec![replica],
        lease_ttl_ms: 5000,
        object_checksum: None,
        resolved_tenant_id: Some("default".into()),
    };
    for count in [255usize, 256, 300, 2000] {
        let all: Vec<ErrorOr<GetReplicaListResponse>> = vec![Ok(found.clone()); count];
        for (form, expected) in [(Form::Bare, 0), (Form::Literal, 0), (Form::Bare, count)] {
            let written = written(WireVersion::V0_3_14, Rpc::BatchGetReplicaList, form, expected, |writer| {
                writer.list(all.len());
                all.iter().for_each(|lookup| write_lookup(writer, lookup));
            });
            assert_eq!(written, encoded::<call::BatchGetReplicaList>(WireVersion::V0_3_14, form, &all));
        }
    }
}
