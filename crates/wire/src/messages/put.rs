//! Put and upsert: reserve, publish, revoke.

use yb_pack::{List, Pack};
use yb_types::generation::{V0_3_11, V0_3_12, V0_3_13};
use yb_types::{ClientId, DEFAULT_TENANT, ReplicaType, ReplicateConfig};

/// Space for one object.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct PutStartArgs<'a> {
    /// The writer.
    pub client_id: ClientId,
    /// The key.
    pub key: &'a [u8],
    /// Bytes of the whole object.
    pub slice_length: u64,
    /// Placement.
    pub config: ReplicateConfig,
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// Space for many objects.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchPutStartArgs<'a> {
    /// The writer.
    pub client_id: ClientId,
    /// The keys.
    pub keys: List<'a, &'a [u8]>,
    /// Bytes of each object; as many as keys.
    pub slice_lengths: List<'a, u64>,
    /// Placement of all.
    pub config: ReplicateConfig,
    /// Whose keys.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// An object whose bytes have arrived: a bare key before 0.3.13. See [`yb_types::ObjectMeta`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pack)]
#[pack(unwrapped_before = V0_3_13, name = "ObjectMeta")]
pub struct ObjectMetaRef<'a> {
    /// The key.
    pub key: &'a [u8],
    /// CRC-64/ECMA-182 of the whole object, if the writer computed it.
    #[pack(since = V0_3_13)]
    pub object_checksum: Option<u64>,
}

/// An object to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct PutEndArgs<'a> {
    /// The writer.
    pub client_id: ClientId,
    /// Which object.
    pub object_meta: ObjectMetaRef<'a>,
    /// Which of its replicas.
    pub replica_type: ReplicaType,
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// An object to give up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct PutRevokeArgs<'a> {
    /// The writer.
    pub client_id: ClientId,
    /// The key.
    pub key: &'a [u8],
    /// Which of its replicas.
    pub replica_type: ReplicaType,
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// Objects to publish.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchPutEndArgs<'a> {
    /// The writer.
    pub client_id: ClientId,
    /// Which objects.
    pub object_metas: List<'a, ObjectMetaRef<'a>>,
    /// Which of their replicas; memory before 0.3.11.
    #[pack(since = V0_3_11, default = ReplicaType::MEMORY)]
    pub replica_type: ReplicaType,
    /// Whose keys.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// Objects to give up.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchPutRevokeArgs<'a> {
    /// The writer.
    pub client_id: ClientId,
    /// The keys.
    pub keys: List<'a, &'a [u8]>,
    /// Which of their replicas; memory before 0.3.11.
    #[pack(since = V0_3_11, default = ReplicaType::MEMORY)]
    pub replica_type: ReplicaType,
    /// Whose keys.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// Upserted objects to publish: unlike [`BatchPutEndArgs`], all replicas are meant.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchUpsertEndArgs<'a> {
    /// The writer.
    pub client_id: ClientId,
    /// Which objects.
    pub object_metas: List<'a, ObjectMetaRef<'a>>,
    /// Whose keys.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// Upserted objects to give up.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchUpsertRevokeArgs<'a> {
    /// The writer.
    pub client_id: ClientId,
    /// The keys.
    pub keys: List<'a, &'a [u8]>,
    /// Whose keys.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}
