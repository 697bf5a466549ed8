//! What is asked of the master and what it says: the real wire's bytes on the way, values on both ends.

use yb_pack::Form;
use yb_rpc::Answered;
use yb_types::{
    ClientId, ClientStatus, ErrorCode, ReplicaId, ReplicaType, ReplicateConfig, Segment, SegmentId, WireVersion,
};
use yb_wire::messages::{
    BatchRevokeWritesArgs, ClientArgs, DirectoryEntry, EndWriteArgs, EndedWrite, HelloArgs, KeyArgs, MountSegmentArgs,
    NamedWrite, ObjectMetaRef, PollQuiesceArgs, PutEndArgs, PutRevokeArgs, PutStartArgs, QuiesceConfirmation,
    QuiesceQuestion, ReMountSegmentArgs, RemoveArgs, RosterArgs, SyncDirectoryArgs, SyncDirectoryReply,
    TellDirectoryArgs,
};
use yb_wire::{Call, Limits, List, WireTable, call};

use crate::directory::{Kept, Roster};
use crate::memory::{CELL, WriteId};

/// Keys are few, so that many meet on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub u8);

impl Key {
    /// Its name on the wire.
    pub fn name(self) -> [u8; 3] {
        [b'k', b'0' + self.0 / 10, b'0' + self.0 % 10]
    }

    /// The key of a name.
    pub fn of(name: &[u8]) -> Option<Key> {
        (0..100).map(Key).find(|key| key.name() == name)
    }
}

/// What a write does to an object that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Leaves it.
    Put,
    /// Replaces it.
    Upsert,
}

/// How a write is started.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// What is written.
    pub key: Key,
    /// Put or upsert.
    pub manner: Manner,
    /// Cells of the object.
    pub cells: u32,
    /// Copies that are wanted.
    pub copies: u64,
    /// Never evicted.
    pub pinned: bool,
    /// Names the attempt in the ledger; does not travel.
    pub write: WriteId,
}

/// Which write ends or is given up.
#[derive(Clone, Copy, Debug)]
pub struct Ending {
    /// What was written.
    pub key: Key,
    /// Put or upsert.
    pub manner: Manner,
    /// By what a client of ours names it; clients of the peer do not.
    pub name: Option<ReplicaId>,
    /// Names the attempt in the ledger; does not travel.
    pub write: WriteId,
}

/// A request to the master.
#[derive(Clone, Debug)]
pub enum Ask {
    /// A node of ours introduces itself, and says what it can do.
    Hello(u64),
    /// A segment joins.
    Mount(Segment),
    /// All segments of a client, after `NEED_REMOUNT`.
    Remount(Segment),
    /// A sign of life.
    Ping,
    /// A writer of ours says that it lives as long as this connection.
    Attend,
    /// Confirmed extents go, questions come.
    Poll(Vec<QuiesceConfirmation>),
    /// How far a directory is (life of the master, batch), and how many objects may come next.
    Sync {
        /// Of which segment.
        segment: SegmentId,
        /// The master that told what it has, and its last batch.
        mark: (u64, u64),
        /// Objects of one answer.
        limit: u32,
    },
    /// A page of a directory.
    Tell {
        /// Of which segment.
        segment: SegmentId,
        /// The master that told what it has.
        told_by: u64,
        /// By offset.
        page: Vec<(u64, Kept)>,
        /// There is nothing more.
        last: bool,
    },
    /// Which roster was heard last.
    Introduce(SegmentId, Roster),
    /// Where a key can be read.
    Lookup(Key),
    /// Whether it can.
    Exist(Key),
    /// Space for an object.
    Start(Start),
    /// Its bytes are there.
    End(Ending),
    /// It is given up; quietly: nothing of it is in flight.
    Revoke(Ending, bool),
    /// It is to go; by force: leases do not count.
    Remove(Key, bool),
}

impl Ask {
    /// The key that a write is about.
    pub fn written(&self) -> Option<Key> {
        match self {
            Ask::Start(start) => Some(start.key),
            Ask::End(of) | Ask::Revoke(of, _) => Some(of.key),
            _ => None,
        }
    }

    /// Whether the request names what it is about so well that it may come again at any time.
    pub fn is_named(&self) -> bool {
        match self {
            Ask::Poll(confirmed) => !confirmed.is_empty(),
            Ask::End(of) | Ask::Revoke(of, _) => of.name.is_some(),
            _ => false,
        }
    }

    /// Whether a repetition does nothing that the first did not do, as the client has it.
    pub fn is_repeatable(&self) -> bool {
        !matches!(self, Ask::Remove(..))
    }
}

/// A place where an object lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub replica: u64,
    /// Who serves the memory.
    pub endpoint: String,
    /// Where.
    pub address: u64,
    /// Bytes.
    pub size: u64,
    /// Whether it can be read.
    pub complete: bool,
}

/// What a master tells of a segment.
#[derive(Clone, Debug)]
pub struct Told {
    /// This life of the master.
    pub incarnation: u64,
    /// Number of the batch.
    pub batch: u64,
    /// As on the wire.
    pub order: u8,
    /// What is to be struck out.
    pub struck: Vec<u64>,
    /// What is to be noted.
    pub published: Vec<(u64, Kept)>,
    /// The number of the master's roster.
    pub roster: Option<u64>,
}

impl Told {
    /// The same as the wire has it.
    pub fn shown<R>(&self, then: impl FnOnce(&SyncDirectoryReply<'_>) -> R) -> R {
        let published = self.published.iter().map(|(offset, kept)| kept.entry(*offset)).collect();
        let Told { incarnation, batch, order, ref struck, roster, .. } = *self;
        then(&SyncDirectoryReply { incarnation, batch, order, struck: struck.clone(), published, roster })
    }

    fn of(reply: &SyncDirectoryReply<'_>) -> Told {
        let published = reply.published.iter().map(|entry| (entry.offset, Kept::new(entry))).collect();
        let SyncDirectoryReply { incarnation, batch, order, ref struck, roster, .. } = *reply;
        Told { incarnation, batch, order, struck: struck.clone(), published, roster }
    }
}

/// What the master said.
#[derive(Clone, Debug)]
pub enum Said {
    /// Done, or why not.
    Done(Result<(), ErrorCode>),
    /// Places, and for how many milliseconds they may be read.
    Found(Result<(Vec<Place>, u64), ErrorCode>),
    /// Yes or no.
    Exists(Result<bool, ErrorCode>),
    /// To a ping.
    Status(Result<ClientStatus, ErrorCode>),
    /// To a poll.
    Questions(Vec<QuiesceQuestion>),
    /// What comes next of a directory.
    Told(Result<Told, ErrorCode>),
    /// The present roster.
    Roster(Result<Roster, ErrorCode>),
    /// What of a page is to be struck out.
    Struck(Result<Vec<u64>, ErrorCode>),
    /// The RPC layer refused the call, or the answer makes no sense.
    Refused,
}

const TENANT: &[u8] = b"default";

fn table() -> &'static WireTable {
    WireTable::of(WireVersion::V0_3_14)
}

fn body<C: Call>(args: &C::Args<'_>) -> (u32, Vec<u8>) {
    let mut out = Vec::with_capacity(128);
    let Ok(signature) = table().signature(C::RPC) else { return (0, out) };
    // Every value that the simulator makes exists in this generation.
    let encoded = yb_pack::encode(args, &signature.args, Form::Bare, &mut out);
    debug_assert!(encoded.is_ok());
    (signature.function_id, out)
}

/// Function and body of a request.
pub fn encode(ask: &Ask, client_id: ClientId) -> (u32, Vec<u8>) {
    let tenant_id = TENANT;
    match ask {
        Ask::Hello(capabilities) => {
            let capabilities = *capabilities;
            body::<call::Hello>(&HelloArgs { client_id, node_version: "sim", capabilities })
        }
        Ask::Mount(segment) => body::<call::MountSegment>(&MountSegmentArgs { segment: segment.clone(), client_id }),
        Ask::Remount(segment) => {
            body::<call::ReMountSegment>(&ReMountSegmentArgs { segments: vec![segment.clone()], client_id })
        }
        Ask::Ping => body::<call::Ping>(&ClientArgs { client_id }),
        Ask::Attend => body::<call::Attend>(&ClientArgs { client_id }),
        Ask::Poll(confirmed) => {
            body::<call::PollQuiesce>(&PollQuiesceArgs { client_id, confirmed: List::from(confirmed), limit: 64 })
        }
        Ask::Sync { segment, mark: (incarnation, applied), limit } => {
            let (segment_id, incarnation, applied, limit) = (*segment, *incarnation, *applied, *limit);
            body::<call::SyncDirectory>(&SyncDirectoryArgs { client_id, segment_id, incarnation, applied, limit })
        }
        Ask::Tell { segment, told_by, page, last } => {
            let page: Vec<DirectoryEntry<'_>> = page.iter().map(|(offset, kept)| kept.entry(*offset)).collect();
            let (segment_id, incarnation, last) = (*segment, *told_by, *last);
            let entries = List::from(&page);
            body::<call::TellDirectory>(&TellDirectoryArgs { client_id, segment_id, incarnation, last, entries })
        }
        Ask::Introduce(segment, heard) => {
            let segment_id = *segment;
            let Roster { incarnation, term, number, .. } = *heard;
            let members = List::from(&heard.members[..]);
            body::<call::Roster>(&RosterArgs { client_id, segment_id, incarnation, term, number, members })
        }
        Ask::Lookup(key) => body::<call::GetReplicaList>(&KeyArgs { key: &key.name(), tenant_id }),
        Ask::Exist(key) => body::<call::ExistKey>(&KeyArgs { key: &key.name(), tenant_id }),
        Ask::Start(start) => {
            let config = ReplicateConfig {
                replica_num: start.copies,
                with_hard_pin: start.pinned,
                ..ReplicateConfig::default()
            };
            let key = &start.key.name()[..];
            let slice_length = u64::from(start.cells) * CELL;
            let args = PutStartArgs { client_id, key, slice_length, config, tenant_id };
            match start.manner {
                Manner::Put => body::<call::PutStart>(&args),
                Manner::Upsert => body::<call::UpsertStart>(&args),
            }
        }
        Ask::End(of) => end(of, client_id),
        Ask::Revoke(of, quiet) => revoke(of, *quiet, client_id),
        Ask::Remove(key, force) => body::<call::Remove>(&RemoveArgs { key: &key.name(), force: *force, tenant_id }),
    }
}

fn end(of: &Ending, client_id: ClientId) -> (u32, Vec<u8>) {
    let (key, replica_type, tenant_id) = (&of.key.name()[..], ReplicaType::ALL, TENANT);
    if let Some(replica) = of.name {
        let ended = EndedWrite { write: NamedWrite { key, replica }, checksum: None };
        return body::<call::EndWrite>(&EndWriteArgs { client_id, ended, replica_type, tenant_id });
    }
    let object_meta = ObjectMetaRef { key, object_checksum: None };
    let args = PutEndArgs { client_id, object_meta, replica_type, tenant_id };
    match of.manner {
        Manner::Put => body::<call::PutEnd>(&args),
        Manner::Upsert => body::<call::UpsertEnd>(&args),
    }
}

fn revoke(of: &Ending, quiet: bool, client_id: ClientId) -> (u32, Vec<u8>) {
    let (key, replica_type, tenant_id) = (&of.key.name()[..], ReplicaType::ALL, TENANT);
    if let Some(replica) = of.name {
        let writes = [NamedWrite { key, replica }];
        let writes = List::from(&writes[..]);
        let args = BatchRevokeWritesArgs { client_id, writes, replica_type, quiet, tenant_id };
        return body::<call::BatchRevokeWrites>(&args);
    }
    let args = PutRevokeArgs { client_id, key, replica_type, tenant_id };
    match of.manner {
        Manner::Put => body::<call::PutRevoke>(&args),
        Manner::Upsert => body::<call::UpsertRevoke>(&args),
    }
}

fn read<'a, C: Call>(bytes: &'a [u8], then: impl FnOnce(C::Reply<'a>) -> Said) -> Said {
    yb_wire::decode_reply::<C>(table(), bytes, Limits::default()).map_or(Said::Refused, then)
}

/// The answer to a request.
pub fn decode(ask: &Ask, answered: &Answered) -> Said {
    if answered.error_code() != 0 {
        return Said::Refused;
    }
    let bytes = answered.body();
    let places = |replicas: Vec<yb_types::ReplicaDescriptor>| -> Vec<Place> {
        let memory = replicas.iter().filter_map(|replica| {
            let buffer = replica.memory()?;
            Some(Place {
                replica: replica.id.0,
                endpoint: buffer.transport_endpoint.clone(),
                address: buffer.buffer_address,
                size: buffer.size,
                complete: replica.status == yb_types::ReplicaStatus::COMPLETE,
            })
        });
        memory.collect()
    };
    match ask {
        Ask::Hello(_) => read::<call::Hello>(bytes, |reply| Said::Done(reply.map(|_| ()))),
        Ask::Mount(_) => read::<call::MountSegment>(bytes, Said::Done),
        Ask::Remount(_) => read::<call::ReMountSegment>(bytes, Said::Done),
        Ask::Attend => read::<call::Attend>(bytes, Said::Done),
        Ask::Ping => read::<call::Ping>(bytes, |reply| Said::Status(reply.map(|ping| ping.client_status))),
        Ask::Poll(_) => read::<call::PollQuiesce>(bytes, |reply| Said::Questions(reply.unwrap_or_default())),
        Ask::Sync { .. } => read::<call::SyncDirectory>(bytes, |reply| Said::Told(reply.map(|told| Told::of(&told)))),
        Ask::Tell { .. } => read::<call::TellDirectory>(bytes, |reply| Said::Struck(reply.map(|told| told.refused))),
        Ask::Introduce(..) => read::<call::Roster>(bytes, |reply| Said::Roster(reply.map(Roster::from))),
        Ask::Lookup(_) => read::<call::GetReplicaList>(bytes, |reply| {
            Said::Found(reply.map(|found| (places(found.replicas), found.lease_ttl_ms)))
        }),
        Ask::Exist(_) => read::<call::ExistKey>(bytes, Said::Exists),
        Ask::Start(start) => {
            let found = |reply: Result<Vec<yb_types::ReplicaDescriptor>, ErrorCode>| {
                Said::Found(reply.map(|replicas| (places(replicas), 0)))
            };
            match start.manner {
                Manner::Put => read::<call::PutStart>(bytes, found),
                Manner::Upsert => read::<call::UpsertStart>(bytes, found),
            }
        }
        Ask::End(Ending { name: Some(_), .. }) => read::<call::EndWrite>(bytes, Said::Done),
        Ask::End(Ending { manner: Manner::Put, .. }) => read::<call::PutEnd>(bytes, Said::Done),
        Ask::End(Ending { manner: Manner::Upsert, .. }) => read::<call::UpsertEnd>(bytes, Said::Done),
        Ask::Revoke(Ending { name: Some(_), .. }, _) => {
            read::<call::BatchRevokeWrites>(bytes, |mut each| each.pop().map_or(Said::Refused, Said::Done))
        }
        Ask::Revoke(Ending { manner: Manner::Put, .. }, _) => read::<call::PutRevoke>(bytes, Said::Done),
        Ask::Revoke(Ending { manner: Manner::Upsert, .. }, _) => read::<call::UpsertRevoke>(bytes, Said::Done),
        Ask::Remove(..) => read::<call::Remove>(bytes, Said::Done),
    }
}
