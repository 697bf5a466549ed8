//! Functions of our own; no peer has them.

use yb_pack::{List, Pack};
use yb_types::{ClientId, ErrorCode, ReplicaId, ReplicaType, SegmentId};

/// A node of ours introduces itself to a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct HelloArgs<'a> {
    /// Who.
    pub client_id: ClientId,
    /// Version of the node.
    pub node_version: &'a str,
    /// What it can do: a bit each, meaning given by the crates that set them; unknown bits are ignored.
    pub capabilities: u64,
}

/// A master of ours introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct HelloReply<'a> {
    /// Version of the master.
    pub master_version: &'a str,
    /// What it can do, as in [`HelloArgs`].
    pub capabilities: u64,
}

/// An extent whose put was given up; its writer may still write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct QuiesceQuestion {
    /// The segment.
    pub segment_id: SegmentId,
    /// Absolute address in the owner's process.
    pub address: u64,
    /// Bytes that the writer was allowed to write.
    pub size: u64,
    /// The write that was given up.
    pub generation: u64,
    /// Who may still be writing.
    pub writer: ClientId,
}

/// A question answered with "nobody writes there any more, and nobody can begin to".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct QuiesceConfirmation {
    /// As asked.
    pub segment_id: SegmentId,
    /// As asked.
    pub address: u64,
    /// As asked.
    pub generation: u64,
}

/// A client that lends memory is about to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct DepartArgs {
    /// Who.
    pub client_id: ClientId,
    /// Milliseconds that it stays at most, counted from its first request.
    pub within_ms: u64,
}

/// How far its objects have been moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct DepartReply<'a> {
    /// Nothing more is moved: it may go.
    pub ended: bool,
    /// Objects moved.
    pub moved_units: u64,
    /// Bytes moved.
    pub moved_bytes: u64,
    /// Objects still there, as far as is known, those with other replicas among them.
    pub left_units: u64,
    /// One line for people.
    pub message: &'a str,
}

/// A client found nobody at the data address of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct ReportSuspectArgs<'a> {
    /// Who found it.
    pub client_id: ClientId,
    /// The address, as the replicas there name it.
    pub endpoint: &'a str,
    /// What was found, in words.
    pub reason: &'a str,
}

/// A client read other bytes than were written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct ReportCorruptArgs<'a> {
    /// Who read them.
    pub client_id: ClientId,
    /// The object.
    pub key: &'a [u8],
    /// Whose key.
    pub tenant_id: &'a [u8],
    /// The replica that has them.
    pub replica: ReplicaId,
    /// The checksum of the object, as its writer gave it.
    pub written: u64,
    /// The checksum of what was read.
    pub found: u64,
}

/// A replica at one of whose readers other bytes arrived than were written: what lies there?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct DoubtQuestion {
    /// The replica.
    pub replica: ReplicaId,
    /// Its segment.
    pub segment_id: SegmentId,
    /// Absolute address in the owner's process.
    pub address: u64,
    /// Bytes of the object.
    pub size: u64,
}

/// What lies there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct DoubtAnswer {
    /// As asked.
    pub replica: ReplicaId,
    /// CRC-64/ECMA-182 of the bytes.
    pub found: u64,
}

/// A node tells what it found and takes new questions.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct PollDoubtsArgs<'a> {
    /// The node.
    pub client_id: ClientId,
    /// Answers to earlier questions.
    pub answers: List<'a, DoubtAnswer>,
    /// Most questions it takes.
    pub limit: u32,
}

/// A node tells what it can confirm and takes new questions.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct PollQuiesceArgs<'a> {
    /// The node.
    pub client_id: ClientId,
    /// Earlier questions that it can confirm. What it cannot confirm it keeps to itself: time decides.
    pub confirmed: List<'a, QuiesceConfirmation>,
    /// Most questions it takes.
    pub limit: u32,
}

/// A key for which a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct WhyQuestion<'a> {
    /// The key.
    pub key: &'a [u8],
    /// What was answered for it.
    pub code: ErrorCode,
}

/// A client asks what stood in the way of a call that failed.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct WhyArgs<'a> {
    /// Who asks.
    pub client_id: ClientId,
    /// Whose keys.
    pub tenant_id: &'a [u8],
    /// What is asked for, [`WHY_KEYS`] at most: those behind are not answered.
    pub questions: List<'a, WhyQuestion<'a>>,
    /// Whether it wants to know of the space, too.
    pub room: bool,
}

/// Questions that are answered in one call.
pub const WHY_KEYS: usize = 16;

/// What stands in the way of a call. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WhyReason(pub u8);

impl WhyReason {
    /// Nothing any more: the key can be read, or is not there.
    pub const NOTHING: WhyReason = WhyReason(0);
    /// Somebody writes the key: `writer`, `host`, `age_ms`; the space is at `node`.
    pub const WRITER: WhyReason = WhyReason(1);
    /// The caller itself began to write the key and has not ended: as above.
    pub const OWN_WRITE: WhyReason = WhyReason(2);
    /// Nobody hears of `node`, of client `owner`, for `age_ms`, and no other has the object.
    pub const SILENT_NODE: WhyReason = WhyReason(3);
    /// `node`, of client `owner`, has the object and does not offer it now.
    pub const HIDDEN_NODE: WhyReason = WhyReason(4);
    /// Read leases on the object end in `left_ms`.
    pub const LEASE: WhyReason = WhyReason(5);
    /// The object is copied or moved: by `writer`, who has `left_ms` for it, where that has begun.
    pub const COPY: WhyReason = WhyReason(6);
    /// Somebody works with the bytes of the object.
    pub const IN_USE: WhyReason = WhyReason(7);
    /// The tenant has used `bytes` of the `limit` that it may.
    pub const QUOTA: WhyReason = WhyReason(8);
}

/// What stands in the way of a call for one key, when it was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
pub struct WhyAnswer {
    /// A [`WhyReason`], which says which of the others mean something.
    pub reason: u8,
    /// Name of a segment, `host:port`; empty: none.
    pub node: String,
    /// Its data address; empty: none.
    pub endpoint: String,
    /// Whose segment that is.
    pub owner: ClientId,
    /// Who writes.
    pub writer: ClientId,
    /// Where the writer is: the name of its segment, or the address it calls from; empty: not known.
    pub host: String,
    /// Milliseconds since then.
    pub age_ms: u64,
    /// Milliseconds until then.
    pub left_ms: u64,
    /// Bytes in use.
    pub bytes: u64,
    /// Bytes that may be in use.
    pub limit: u64,
}

/// The answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
pub struct WhyReply {
    /// One for each question.
    pub answers: Vec<WhyAnswer>,
    /// The space, where it was asked for.
    pub room: Option<RoomReply>,
}

/// Why a write may have found no room: the segments that take new objects, and what its client has begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pack)]
pub struct RoomReply {
    /// How many segments there are.
    pub segments: u64,
    /// Bytes of the largest.
    pub largest: u64,
    /// Bytes in use in all of them.
    pub used: u64,
    /// Bytes of all of them.
    pub capacity: u64,
    /// Bytes of the largest free piece, about.
    pub largest_free: u64,
    /// Whether all of them take nothing for a while: bytes that somebody may still read lie there.
    pub resting: bool,
    /// Bytes that the client has begun and not ended, or that rest because it may still write there.
    pub own_begun: u64,
    /// Bytes of these that it may have.
    pub own_limit: u64,
}

/// What became of the objects that were to be removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pack)]
pub struct RemovalReply {
    /// Objects removed.
    pub removed: u64,
    /// Objects that stayed because of a read lease or a pin.
    pub leased: u64,
    /// Objects that stayed because somebody writes, copies or uses them.
    pub busy: u64,
}

/// A replica as the directory of a node knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct DirectoryEntry<'a> {
    /// First byte, from the start of the segment.
    pub offset: u64,
    /// Bytes of the object.
    pub size: u64,
    /// Which write made it.
    pub generation: u64,
    /// The replica's number.
    pub replica: ReplicaId,
    /// Who wrote it.
    pub writer: ClientId,
    /// CRC-64/ECMA-182 of the object, if its writer gave one.
    pub checksum: Option<u64>,
    /// Bit 0: never evicted. Others are 0.
    pub flags: u8,
    /// What the bytes are, as the writer said.
    pub data_type: u8,
    /// When the soft pin ends, in milliseconds since 1970; 0: none.
    pub soft_pin_until_ms: u64,
    /// Whose key; empty: the default tenant's.
    pub tenant: &'a [u8],
    /// The group that it belongs to; empty: none.
    pub group: &'a [u8],
    /// The key.
    pub key: &'a [u8],
}

/// A node says how far it has followed what it was told of its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct SyncDirectoryArgs {
    /// The node.
    pub client_id: ClientId,
    /// Its segment.
    pub segment_id: SegmentId,
    /// The life of the master that told what it has; 0: it has nothing.
    pub incarnation: u64,
    /// The last batch of that life that it has applied.
    pub applied: u64,
    /// Most objects that it takes.
    pub limit: u32,
}

/// What a node is told of its segment.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
pub struct SyncDirectoryReply<'a> {
    /// This life of the master.
    pub incarnation: u64,
    /// Number of the batch; one that was applied already says nothing.
    pub batch: u64,
    /// 0: apply the batch. 1: strike everything out first. 2: tell all (`TellDirectory`), there is no batch.
    pub order: u8,
    /// First bytes of the extents to strike out, before anything is noted.
    pub struck: Vec<u64>,
    /// Objects to note.
    pub published: Vec<DirectoryEntry<'a>>,
    /// Number of the master's present roster: one that the node does not have it fetches (`Roster`) before it does anything of
    /// this. 0: there is none yet.
    #[pack(compatible = 1)]
    pub roster: Option<u64>,
}

/// A node tells which roster it heard last: the segments whose directories were up to date, as a master said.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct RosterArgs<'a> {
    /// The node.
    pub client_id: ClientId,
    /// Its segment, for which it heard it.
    pub segment_id: SegmentId,
    /// The life of the master that made it.
    pub incarnation: u64,
    /// Larger than those of the masters before.
    pub term: u64,
    /// Which of the rosters of its master; 0: it heard none.
    pub number: u64,
    /// The segments.
    pub members: List<'a, SegmentId>,
}

/// The present roster.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
pub struct RosterReply {
    /// This life of the master.
    pub incarnation: u64,
    /// Larger than those of the masters before.
    pub term: u64,
    /// Which of its rosters; 0: there is none yet, and the node keeps the one that it has.
    pub number: u64,
    /// The segments.
    pub members: Vec<SegmentId>,
}

/// A node tells what it has, page by page, in order of offset.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct TellDirectoryArgs<'a> {
    /// The node.
    pub client_id: ClientId,
    /// Its segment.
    pub segment_id: SegmentId,
    /// The life of the master that told what it has.
    pub incarnation: u64,
    /// There is nothing more, and what was refused is struck out. Only without entries.
    pub last: bool,
    /// The page.
    pub entries: List<'a, DirectoryEntry<'a>>,
}

/// What becomes of a page.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
pub struct TellDirectoryReply {
    /// First bytes of the entries to strike out: nobody knows them any more.
    pub refused: Vec<u64>,
}

/// One write of a key, among all that there ever are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct NamedWrite<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The first of the replicas that its start was answered with.
    pub replica: ReplicaId,
}

/// A write whose bytes have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct EndedWrite<'a> {
    /// Which.
    pub write: NamedWrite<'a>,
    /// CRC-64/ECMA-182 of the whole object, if the writer computed it.
    pub checksum: Option<u64>,
}

/// A write to publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct EndWriteArgs<'a> {
    /// The writer.
    pub client_id: ClientId,
    /// Which.
    pub ended: EndedWrite<'a>,
    /// Which of its replicas.
    pub replica_type: ReplicaType,
    /// Whose key.
    pub tenant_id: &'a [u8],
}

/// Writes to publish.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchEndWritesArgs<'a> {
    /// The writer.
    pub client_id: ClientId,
    /// Which.
    pub ended: List<'a, EndedWrite<'a>>,
    /// Which of their replicas.
    pub replica_type: ReplicaType,
    /// Whose keys.
    pub tenant_id: &'a [u8],
}

/// Writes to give up.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct BatchRevokeWritesArgs<'a> {
    /// The writer.
    pub client_id: ClientId,
    /// Which.
    pub writes: List<'a, NamedWrite<'a>>,
    /// Which of their replicas.
    pub replica_type: ReplicaType,
    /// Nothing of them is in flight: their space is free at once.
    pub quiet: bool,
    /// Whose keys.
    pub tenant_id: &'a [u8],
}

/// A copy or a move that ended, well or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct NamedCopyArgs<'a> {
    /// Who made it.
    pub client_id: ClientId,
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    pub tenant_id: &'a [u8],
    /// The first of the targets that its start was answered with.
    pub target: ReplicaId,
    /// It was a move.
    pub moves: bool,
}
