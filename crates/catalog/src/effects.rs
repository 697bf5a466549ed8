//! What the catalog tells the master: why a put was refused, what is to be done, what happened.

use crate::segment::Reach;
use yb_types::{ByteLen, ClientId, ErrorCode, Generation, SegmentId};

/// Why a put did not start. `code` is what goes on the wire; the rest is for logs, counters and our own clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum PutRefusal {
    /// Keys have at least one byte.
    #[error("the key is empty")]
    EmptyKey,
    /// The peer's clients may not store zero bytes; ours may, see [`PutCall::allow_empty`](crate::PutCall).
    #[error("the object has no bytes, and this caller may not store empty objects")]
    EmptyObject,
    /// All three replica counts are zero.
    #[error("no replica of any kind is asked for")]
    NoReplicaWanted,
    /// DFS replicas: at most one, beside a memory replica, of the default tenant.
    #[error("this combination with a DFS replica is not possible")]
    DfsRules,
    /// This master has no distributed filesystem.
    #[error("no distributed filesystem is configured")]
    DfsUnavailable,
    /// This master has no NVMe-oF pool.
    #[error("NVMe-oF replicas are not available here")]
    NofUnavailable,
    /// A soft-pin time without the action ENABLE, or above the maximum.
    #[error("the soft pin's time to live is not allowed")]
    SoftPinRules,
    /// The placement in use goes by the writer's preferred segment, and none is named.
    #[error("this placement needs a preferred segment")]
    PreferredNeeded,
    /// A list of groups, sessions or affinities has another length than the list of keys, or a session has a name of more
    /// than 256 bytes.
    #[error("group_ids, session_ids and residency_affinity_ids must name one thing for each key, in 256 bytes at most")]
    GroupCount,
    /// The tenant is not registered, or on its way out.
    #[error("the tenant is not registered")]
    TenantNotRegistered,
    /// The tenant's quota is used up, and evicting its objects did not help. Retry later.
    #[error("the quota of the tenant is used up")]
    QuotaExceeded,
    /// The object is larger than its tenant's quota; eviction cannot help.
    #[error("the object is larger than the quota of its tenant")]
    LargerThanQuota,
    /// The key is readable already.
    #[error("the key exists and is readable")]
    Exists,
    /// Another write of the key is under way. Retry when it has ended.
    #[error("the key is being written by somebody else")]
    Busy,
    /// The caller itself has a write of the key under way that it has neither ended nor revoked, perhaps one that another
    /// client overtook: its end could not be told from that of the new one. Retry when it has answered for the old one.
    #[error("the caller has another write of the key under way")]
    OwnWriteOpen,
    /// An upsert names another group than the object has, or a residency affinity for an object that is there.
    #[error("the object belongs to another group, or has its affinity already")]
    OtherGroup,
    /// A client copies or moves the object. Retry later.
    #[error("the object is being copied or moved")]
    Copied,
    /// Somebody works with the bytes of the object. Retry later.
    #[error("the object is in use")]
    Referenced,
    /// The client has reserved so much that it has not filled, or that rests for it, that it begins nothing more for now. Retry
    /// when some of its writes have ended.
    #[error("the client has too much memory reserved that it has not filled (max_unfinished_per_client)")]
    ShareExceeded,
    /// No segment is mounted.
    #[error("no segment is mounted")]
    NoSegment,
    /// Larger than the largest segment; eviction cannot help.
    #[error("the object is larger than every segment")]
    LargerThanAnySegment,
    /// A key, or the name of a group, is longer than `max_key_bytes`.
    #[error("the key or the name of the group is longer than the master takes (max_key_bytes)")]
    NameTooLong,
    /// What is known of the objects fills the memory that the master may use for it. Retry when some are evicted.
    #[error("the master has no memory for one object more (max_objects_memory)")]
    MasterFull,
    /// No segment has a free extent of that size, and evicting did not make one. Retry later.
    #[error("no segment has a free extent of that size")]
    NoSpace,
    /// No space, and everything that is stored is leased, pinned, in use or being written: waiting a moment is of no use.
    /// Retry when leases have ended.
    #[error("no space is free, and nothing may be evicted now: all objects are leased, pinned or in use")]
    NothingEvictable,
    /// The shard's table is full (2^32 objects).
    #[error("the catalog is full")]
    CatalogFull,
}

impl PutRefusal {
    /// The peer's code. A key being written answers REPLICA_IS_NOT_READY: the peer's clients take OBJECT_ALREADY_EXISTS
    /// for success.
    pub fn code(self) -> ErrorCode {
        match self {
            PutRefusal::Exists => ErrorCode::OBJECT_ALREADY_EXISTS,
            PutRefusal::Copied => ErrorCode::OBJECT_HAS_REPLICATION_TASK,
            PutRefusal::Referenced => ErrorCode::OBJECT_REPLICA_BUSY,
            PutRefusal::Busy | PutRefusal::OwnWriteOpen => ErrorCode::REPLICA_IS_NOT_READY,
            PutRefusal::TenantNotRegistered => ErrorCode::TENANT_NOT_REGISTERED,
            PutRefusal::QuotaExceeded | PutRefusal::LargerThanQuota => ErrorCode::TENANT_QUOTA_EXCEEDED,
            PutRefusal::DfsUnavailable => ErrorCode::DFS_SERVICE_UNAVAILABLE,
            PutRefusal::NoSegment
            | PutRefusal::LargerThanAnySegment
            | PutRefusal::NoSpace
            | PutRefusal::NothingEvictable
            | PutRefusal::ShareExceeded
            | PutRefusal::MasterFull
            | PutRefusal::CatalogFull => ErrorCode::NO_AVAILABLE_HANDLE,
            _ => ErrorCode::INVALID_PARAMS,
        }
    }

    /// Whether objects have to go before the put can succeed.
    pub fn lacks_space(self) -> bool {
        self.waits() || self == PutRefusal::NothingEvictable
    }

    /// Whether that may be done in a moment: the put may wait for it.
    pub fn waits(self) -> bool {
        matches!(self, PutRefusal::NoSpace | PutRefusal::MasterFull)
    }

    /// Whether the same call can succeed later.
    pub fn is_retryable(self) -> bool {
        use PutRefusal::{Busy, Copied, OwnWriteOpen, QuotaExceeded, Referenced};
        use PutRefusal::{MasterFull, NoSegment, NoSpace, NothingEvictable, ShareExceeded};
        let later = matches!(self, Busy | OwnWriteOpen | Copied | Referenced | QuotaExceeded);
        later || matches!(self, MasterFull | NoSegment | NoSpace | NothingEvictable | ShareExceeded)
    }
}

/// Why a segment was not mounted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MountRefusal {
    /// Base or size is zero.
    #[error("segment {0}: base and size must not be 0")]
    EmptyRange(SegmentId),
    /// The range ends behind the last address.
    #[error("segment {0}: the range leaves the address space")]
    RangeTooLong(SegmentId),
    /// Its name, address, host or protocol has more than 4,096 bytes.
    #[error("segment {0}: a name of more than 4096 bytes")]
    NameTooLong(SegmentId),
    /// The segments of the pool would hold more bytes together than can be counted.
    #[error("segment {0}: the pool would be larger than 4 EiB")]
    PoolTooLarge(SegmentId),
    /// The client has this memory in the pool already, under another id.
    #[error("segment {0}: overlaps segment {1} of the same client")]
    Overlap(SegmentId, SegmentId),
    /// A remount describes a mounted segment in another way, or another client owns it.
    #[error("segment {0}: is mounted already with another owner or description")]
    Different(SegmentId),
    /// The segment is mounted, but being drained or unmounted.
    #[error("segment {0}: is being drained or unmounted")]
    OnItsWayOut(SegmentId),
    /// Too many clients.
    #[error("client {0}: too many clients")]
    TooManyClients(ClientId),
    /// The client, or all together, have as many segments as they may. Retry when some were unmounted.
    #[error("segment {0}: its client, or the pool, has too many segments (max_segments_per_client, max_segments)")]
    TooManySegments(SegmentId),
}

impl MountRefusal {
    /// The peer's code.
    pub fn code(&self) -> ErrorCode {
        match self {
            MountRefusal::TooManyClients(_) | MountRefusal::TooManySegments(_) => ErrorCode::INTERNAL_ERROR,
            MountRefusal::OnItsWayOut(_) => ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS,
            _ => ErrorCode::INVALID_PARAMS,
        }
    }
}

/// An extent that waits: its put was given up, but its writer may still write to it. It comes free after the release
/// timeout, or as soon as [`Catalog::confirm_quiesced`](crate::Catalog::confirm_quiesced) repeats segment, address and
/// generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiesce {
    /// The segment.
    pub segment: SegmentId,
    /// Who mounted the segment and can confirm.
    pub owner: ClientId,
    /// Absolute address in the owner's process.
    pub address: u64,
    /// Bytes that the writer was allowed to write.
    pub size: ByteLen,
    /// The write that was given up.
    pub generation: Generation,
    /// Who may still be writing.
    pub writer: ClientId,
    /// The writer itself gave the write up, so it will not begin another transfer. Otherwise it is only presumed gone.
    pub revoked: bool,
}

/// Why a segment went away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnmountCause {
    /// Its client asked for it.
    Asked,
    /// Its client did not ping in time.
    ClientExpired,
    /// Another client now has the same memory at the same endpoint, or answers at its address, so the old one is gone.
    Replaced,
    /// Its memory was another master's meanwhile.
    Elsewhere,
}

/// A segment that went away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentGone {
    /// The segment.
    pub id: SegmentId,
    /// Its name.
    pub name: String,
    /// Who had mounted it.
    pub owner: ClientId,
    /// Why.
    pub cause: UnmountCause,
}

/// What a call wants done outside. The master empties it after each call.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    /// Extents whose node may be asked whether their writer is done.
    pub quiesce: Vec<Quiesce>,
    /// Segments that are gone.
    pub segments_gone: Vec<SegmentGone>,
    /// Clients that were given up, and why.
    pub clients_gone: Vec<(ClientId, UnmountCause)>,
    /// Clients that fell silent or came back, and how far their segments can be used now.
    pub clients_turned: Vec<(ClientId, Reach)>,
}

impl Effects {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.quiesce.is_empty()
            && self.segments_gone.is_empty()
            && self.clients_gone.is_empty()
            && self.clients_turned.is_empty()
    }
}
