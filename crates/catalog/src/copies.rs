//! Copies that are under way or planned, as the object and the catalog remember them.
//!
//! The object holds the copy itself; the index here finds it by deadline and by owner, so that nobody searches for what is
//! overdue or orphaned.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;
use yb_types::{ClientId, MonotonicTime, ReplicaId, Uuid};

use crate::copy::CopyTarget;
use crate::key::KeyHash;

/// Whether the source stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyKind {
    /// It does.
    Copy,
    /// It is given up in the end.
    Move,
}

/// The right to make one planned copy of one write of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyLease {
    /// Its id.
    pub id: Uuid,
    /// The write: the number of its generation.
    pub epoch: u64,
}

/// A copy that the master wants and nobody has begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    pub lease: CopyLease,
    pub source: String,
    pub target: String,
    /// Who may make it.
    pub client: ClientId,
    pub until: MonotonicTime,
}

/// A copy that a client is making.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// Tells it from others of the same object.
    pub ticket: u64,
    pub kind: CopyKind,
    pub client: ClientId,
    pub source: ReplicaId,
    pub targets: SmallVec<[ReplicaId; 2]>,
    /// The replica that was at a move's target already.
    pub existing: Option<ReplicaId>,
    /// Nobody writes to the targets after this time.
    pub until: MonotonicTime,
    pub lease: Option<CopyLease>,
}

impl Running {
    /// What names it.
    pub fn name(&self) -> CopyTarget {
        CopyTarget(self.targets.first().copied().unwrap_or_default())
    }
}

/// What an object knows of its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Copying {
    Planned(Plan),
    Running(Running),
}

impl Copying {
    pub fn running(&self) -> Option<&Running> {
        match self {
            Copying::Running(running) => Some(running),
            Copying::Planned(_) => None,
        }
    }
}

/// Where an object with a running copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    pub shard: usize,
    pub slot: u32,
    pub ticket: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ticket {
    client: ClientId,
    shard: usize,
    slot: u32,
    /// When it is given up.
    due: MonotonicTime,
}

/// A client and a key, by hash: a collision refuses a copy that could be made, once in a blue moon.
type ClientAndKey = (ClientId, u64);

/// The index of running copies, and of those that ended without their client.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    tickets: BTreeMap<u64, Ticket>,
    by_due: BTreeSet<(MonotonicTime, u64)>,
    by_client: BTreeSet<(ClientId, u64)>,
    /// Ended without their client, which may still say how they ended; forgotten at a time.
    stale: BTreeMap<ClientAndKey, (MonotonicTime, CopyTarget)>,
    stale_by_time: BTreeSet<(MonotonicTime, ClientAndKey)>,
}

fn client_and_key(client: ClientId, hash: KeyHash) -> ClientAndKey {
    (client, (hash.shard as u64) << 32 | u64::from(hash.word))
}

impl Copies {
    pub fn add(&mut self, running: &Running, shard: usize, slot: u32) {
        let ticket = Ticket { client: running.client, shard, slot, due: running.until };
        self.by_due.insert((ticket.due, running.ticket));
        self.by_client.insert((ticket.client, running.ticket));
        self.tickets.insert(running.ticket, ticket);
    }

    pub fn remove(&mut self, ticket: u64) {
        if let Some(known) = self.tickets.remove(&ticket) {
            self.by_due.remove(&(known.due, ticket));
            self.by_client.remove(&(known.client, ticket));
        }
    }

    /// The client is gone: its copies are due now.
    pub fn hurry(&mut self, client: ClientId, now: MonotonicTime) {
        for &(_, number) in self.by_client.range((client, 0)..=(client, u64::MAX)) {
            if let Some(ticket) = self.tickets.get_mut(&number) {
                self.by_due.remove(&(ticket.due, number));
                ticket.due = ticket.due.min(now);
                self.by_due.insert((ticket.due, number));
            }
        }
    }

    /// A copy that is due; it stays until it is removed.
    pub fn due(&self, now: MonotonicTime) -> Option<Whereabouts> {
        let &(due, number) = self.by_due.first()?;
        let ticket = self.tickets.get(&number).filter(|_| due <= now)?;
        Some(Whereabouts { shard: ticket.shard, slot: ticket.slot, ticket: number })
    }

    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// A copy ended without its client. What the client says of it later is about nothing.
    pub fn set_stale(&mut self, copy: &Running, hash: KeyHash, until: MonotonicTime) {
        let id = client_and_key(copy.client, hash);
        if let Some((old, _)) = self.stale.insert(id, (until, copy.name())) {
            self.stale_by_time.remove(&(old, id));
        }
        self.stale_by_time.insert((until, id));
    }

    /// Whether the client has yet to say how an older copy of this key ended.
    pub fn is_stale(&self, client: ClientId, hash: KeyHash, now: MonotonicTime) -> bool {
        self.stale.get(&client_and_key(client, hash)).is_some_and(|(until, _)| *until > now)
    }

    /// The client says how a copy ended: if an older one was open, it was about that one, unless it names another.
    pub fn settle_stale(&mut self, client: ClientId, hash: KeyHash, named: Option<CopyTarget>) -> bool {
        let id = client_and_key(client, hash);
        let Some(&(until, target)) = self.stale.get(&id) else { return false };
        if named.is_some_and(|named| named != target) {
            return false;
        }
        self.stale.remove(&id);
        self.stale_by_time.remove(&(until, id));
        true
    }

    pub fn forget_stale(&mut self, now: MonotonicTime) {
        while let Some(&(until, id)) = self.stale_by_time.first()
            && until <= now
        {
            self.stale_by_time.remove(&(until, id));
            self.stale.remove(&id);
        }
    }
}
