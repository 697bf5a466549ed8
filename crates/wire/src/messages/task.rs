//! Tasks, copy and move.

use yb_pack::{List, Pack};
use yb_types::generation::{V0_3_10, V0_3_12};
use yb_types::{ClientId, DEFAULT_TENANT, ReplicaDescriptor, Uuid};

/// What a task does. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pack)]
#[pack(transparent)]
pub struct TaskType(pub i32);

impl TaskType {
    /// Copies a replica.
    pub const REPLICA_COPY: TaskType = TaskType(0);
    /// Moves a replica.
    pub const REPLICA_MOVE: TaskType = TaskType(1);
}

/// Where a task stands. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pack)]
#[pack(transparent)]
pub struct TaskStatus(pub i32);

impl TaskStatus {
    /// Nobody has it yet.
    pub const PENDING: TaskStatus = TaskStatus(0);
    /// A client works on it.
    pub const PROCESSING: TaskStatus = TaskStatus(1);
    /// Given up.
    pub const FAILED: TaskStatus = TaskStatus(2);
    /// Done.
    pub const SUCCESS: TaskStatus = TaskStatus(3);
}

/// A task for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct TaskAssignment<'a> {
    /// Its id.
    pub id: Uuid,
    /// What it does.
    pub r#type: TaskType,
    /// JSON.
    pub payload: &'a [u8],
    /// When it was made, milliseconds since 1970.
    pub created_at_ms_epoch: i64,
    /// How often to try again.
    #[pack(since = V0_3_10)]
    pub max_retry_attempts: u32,
}

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct TaskCompleteRequest<'a> {
    /// Which.
    pub id: Uuid,
    /// FAILED or SUCCESS.
    pub status: TaskStatus,
    /// Why.
    pub message: &'a [u8],
}

/// What is known of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct QueryTaskResponse<'a> {
    /// Which.
    pub id: Uuid,
    /// What it does.
    pub r#type: TaskType,
    /// Where it stands.
    pub status: TaskStatus,
    /// When it was made, milliseconds since 1970.
    pub created_at_ms_epoch: i64,
    /// When it changed last, milliseconds since 1970.
    pub last_updated_at_ms_epoch: i64,
    /// Who has it.
    pub assigned_client: ClientId,
    /// Why it ended.
    pub message: &'a [u8],
}

/// A copy to make.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct CreateCopyTaskArgs<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
    /// Segment names.
    pub targets: List<'a, &'a [u8]>,
}

/// A move to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct CreateMoveTaskArgs<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
    /// Segment name.
    pub source: &'a [u8],
    /// Segment name.
    pub target: &'a [u8],
}

/// A task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct TaskArgs {
    /// Which.
    pub task_id: Uuid,
}

/// A request for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct FetchTasksArgs {
    /// Who asks.
    pub client_id: ClientId,
    /// How many at most.
    pub batch_size: u64,
}

/// A task that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct MarkTaskToCompleteArgs<'a> {
    /// Who worked on it.
    pub client_id: ClientId,
    /// How it ended.
    pub request: TaskCompleteRequest<'a>,
}

/// A copy that begins.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct CopyStartArgs<'a> {
    /// Who copies.
    pub client_id: ClientId,
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
    /// Segment name of the source.
    pub src_segment: &'a [u8],
    /// Segment names of the targets.
    pub tgt_segments: List<'a, &'a [u8]>,
}

/// Where to copy from and to.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
pub struct CopyStartResponse {
    /// COMPLETE.
    pub source: ReplicaDescriptor,
    /// PROCESSING.
    pub targets: Vec<ReplicaDescriptor>,
}

/// A move that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct MoveStartArgs<'a> {
    /// Who moves.
    pub client_id: ClientId,
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
    /// Segment name of the source.
    pub src_segment: &'a [u8],
    /// Segment name of the target.
    pub tgt_segment: &'a [u8],
}

/// Where to move from and to.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
pub struct MoveStartResponse {
    /// COMPLETE.
    pub source: ReplicaDescriptor,
    /// PROCESSING.
    pub target: Option<ReplicaDescriptor>,
}

/// A dynamic copy that begins.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct DynamicReplicaCopyStartArgs<'a> {
    /// Who copies.
    pub client_id: ClientId,
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    pub tenant_id: &'a [u8],
    /// Segment name of the source.
    pub src_segment: &'a [u8],
    /// Segment names of the targets.
    pub tgt_segments: List<'a, &'a [u8]>,
    /// From the task's payload.
    pub dynamic_replication_lease_id: Uuid,
    /// From the task's payload.
    pub dynamic_replication_version_epoch: u64,
}

/// A dynamic copy that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct DynamicReplicaCopyEndArgs<'a> {
    /// Who copies.
    pub client_id: ClientId,
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    pub tenant_id: &'a [u8],
    /// From the task's payload.
    pub dynamic_replication_lease_id: Uuid,
    /// From the task's payload.
    pub dynamic_replication_version_epoch: u64,
}
