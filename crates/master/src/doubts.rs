//! Replicas at which a client read other bytes than were written.
//!
//! The word of one client is not enough: its own memory or network may be the sick part, and it would empty the cache. The
//! node that has the bytes, where it is one of ours, is asked what lies there, and its answer decides. Of others' nodes two
//! clients have to say the same. Until then readers find out for themselves and take the next replica.
//!
//! Looking costs a node the time to sum the replica. A client whose word a node refuted is not believed for a while, a
//! replica that was found good is not looked at again for a while, and one client, and one address, has only so many
//! replicas in doubt at a time.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use yb_catalog::{Effects, ReplicaName, Tenant};
use yb_types::{ClientId, ErrorCode, MonotonicTime, ReplicaId};
use yb_wire::messages::{DoubtAnswer, DoubtQuestion};

use crate::nodes::CAPABILITY_LOOKS;
use crate::shared::Shared;

/// Replicas in doubt at a time; a report beyond makes the one with the lowest number be forgotten.
const MOST_DOUBTS: usize = 1024;
/// Of these by one client; a report beyond is not followed.
const MOST_OF_CLIENT: usize = 64;
/// Of these by all clients of one address.
const MOST_OF_ADDRESS: usize = 256;
/// How long a client is not believed whose word was refuted.
const CLIENT_DISBELIEVED: Duration = Duration::from_secs(60);
/// How long a replica that was found good is not looked at.
const REPLICA_TRUSTED: Duration = Duration::from_secs(10);
/// Clients, and replicas, that are remembered as refuted; the oldest goes first.
const MOST_REFUTED: usize = 1024;

#[derive(Clone, Debug)]
struct Doubt {
    tenant: Tenant,
    key: Vec<u8>,
    /// The checksum that the writer gave.
    written: u64,
    /// Who read other bytes.
    by: ClientId,
    /// From where.
    address: Option<IpAddr>,
    /// Whom to ask, and what; `None` where nobody can be asked.
    question: Option<(ClientId, DoubtQuestion)>,
    asked: bool,
}

impl Doubt {
    fn name(&self, replica: ReplicaId) -> ReplicaName<'_> {
        ReplicaName { tenant: self.tenant, key: &self.key, replica, checksum: self.written }
    }
}

/// Names that are not listened to until some time.
#[derive(Debug)]
struct Until<N>(VecDeque<(N, MonotonicTime)>);

impl<N> Default for Until<N> {
    fn default() -> Self {
        Until(VecDeque::new())
    }
}

impl<N: PartialEq> Until<N> {
    fn add(&mut self, name: N, until: MonotonicTime) {
        self.0.retain(|(known, _)| *known != name);
        if self.0.len() >= MOST_REFUTED {
            self.0.pop_front();
        }
        self.0.push_back((name, until));
    }

    fn has(&mut self, name: &N, now: MonotonicTime) -> bool {
        while self.0.front().is_some_and(|(_, until)| *until <= now) {
            self.0.pop_front();
        }
        self.0.iter().any(|(known, _)| known == name)
    }
}

#[derive(Debug, Default)]
struct Book {
    open: BTreeMap<ReplicaId, Doubt>,
    disbelieved: Until<ClientId>,
    trusted: Until<ReplicaId>,
}

impl Book {
    /// Whether a report costs a look that it is not worth.
    fn is_idle(&mut self, replica: ReplicaId, doubt: &Doubt, now: MonotonicTime) -> bool {
        // A node that finds its own memory bad is the one that looks.
        if doubt.question.is_some_and(|(owner, _)| owner == doubt.by) {
            return false;
        }
        if self.disbelieved.has(&doubt.by, now) || self.trusted.has(&replica, now) {
            return true;
        }
        let of = |is: &dyn Fn(&Doubt) -> bool| self.open.values().filter(|open| is(open)).count();
        of(&|open| open.by == doubt.by) >= MOST_OF_CLIENT
            || of(&|open| open.address == doubt.address) >= MOST_OF_ADDRESS
    }
}

/// What is made of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// It is not followed.
    Idle,
    /// The first of it.
    Noted,
    /// Another client has said so already.
    Again,
}

/// The replicas in doubt.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<Book>);

impl Doubts {
    fn hear(&self, replica: ReplicaId, doubt: Doubt, now: MonotonicTime) -> Heard {
        let mut book = self.0.lock();
        if let Some(known) = book.open.get(&replica) {
            return if known.by == doubt.by { Heard::Noted } else { Heard::Again };
        }
        if book.is_idle(replica, &doubt, now) {
            return Heard::Idle;
        }
        if book.open.len() >= MOST_DOUBTS {
            book.open.pop_first();
        }
        book.open.insert(replica, doubt);
        Heard::Noted
    }

    /// Questions for a node, each given out once.
    pub(crate) fn take(&self, node: ClientId, limit: usize) -> Vec<DoubtQuestion> {
        let mut book = self.0.lock();
        let of_node = book.open.values_mut().filter(|doubt| !doubt.asked).filter_map(|doubt| {
            let (owner, question) = doubt.question?;
            (owner == node).then(|| {
                doubt.asked = true;
                question
            })
        });
        of_node.take(limit).collect()
    }

    fn known(&self, replica: ReplicaId) -> Option<Doubt> {
        self.0.lock().open.get(&replica).cloned()
    }

    fn settle(&self, replica: ReplicaId) {
        self.0.lock().open.remove(&replica);
    }

    /// The node has what was written there. What else the client said is not looked at.
    fn refute(&self, replica: ReplicaId, by: ClientId, now: MonotonicTime) {
        let mut book = self.0.lock();
        book.open.retain(|known, doubt| *known != replica && (doubt.by != by || doubt.asked));
        book.disbelieved.add(by, now + CLIENT_DISBELIEVED);
        book.trusted.add(replica, now + REPLICA_TRUSTED);
    }

    /// It is asked about again.
    fn put_off(&self, replica: ReplicaId) {
        if let Some(doubt) = self.0.lock().open.get_mut(&replica) {
            doubt.asked = false;
        }
    }
}

/// What a client found.
pub(crate) struct Finding<'a> {
    pub(crate) by: ClientId,
    /// From where it says so.
    pub(crate) address: Option<IpAddr>,
    pub(crate) name: ReplicaName<'a>,
    pub(crate) found: u64,
}

/// Notes what a client found, and acts on it when another one found the same and nobody can be asked.
///
/// # Errors
/// `OBJECT_NOT_FOUND` when the replica is not there any more, or its object has another checksum.
pub(crate) fn report(shared: &Shared, finding: &Finding<'_>, effects: &mut Effects) -> Result<(), ErrorCode> {
    let Finding { by, address, name, found } = finding;
    shared.metrics.shared_lane().add(shared.metrics.corrupt_reported, 1);
    let place = shared.catalog.place_of(name).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
    let question =
        DoubtQuestion { replica: name.replica, segment_id: place.segment, address: place.address, size: place.size };
    let question = shared.nodes.can(place.owner, CAPABILITY_LOOKS).then_some((place.owner, question));
    let can_be_asked = question.is_some();
    let (key, written) = (name.key.to_vec(), name.checksum);
    let doubt = Doubt { tenant: name.tenant, key, written, by: *by, address: *address, question, asked: false };
    let heard = shared.doubts.hear(name.replica, doubt, shared.clock.now());
    if heard == Heard::Idle {
        shared.metrics.shared_lane().add(shared.metrics.reports_disbelieved, 1);
        return Ok(());
    }
    tracing::warn!(event = "corrupt_reported", %by, owner = %place.owner, written, found, "a client read other bytes than were written");
    if heard == Heard::Again && !can_be_asked {
        quarantine(shared, name, effects);
    }
    Ok(())
}

/// What a node found in its own memory.
pub(crate) fn answered(shared: &Shared, node: ClientId, answer: &DoubtAnswer, effects: &mut Effects) {
    let Some(doubt) = shared.doubts.known(answer.replica) else { return };
    if doubt.question.is_none_or(|(owner, _)| owner != node) {
        return;
    }
    if answer.found != doubt.written {
        return quarantine(shared, &doubt.name(answer.replica), effects);
    }
    shared.metrics.shared_lane().add(shared.metrics.corrupt_refuted, 1);
    tracing::warn!(event = "corrupt_refuted", by = %doubt.by, %node, "the node has the bytes that were written: the memory or network of the client that read others may be sick");
    shared.doubts.refute(answer.replica, doubt.by, shared.clock.now());
}

fn quarantine(shared: &Shared, name: &ReplicaName<'_>, effects: &mut Effects) {
    // Before it goes: operators want to know whose memory it was.
    let place = shared.catalog.place_of(name);
    match shared.catalog.quarantine(name, shared.clock.now(), effects) {
        Ok(()) => {
            shared.metrics.shared_lane().add(shared.metrics.corrupt_confirmed, 1);
            tracing::error!(
                event = "corrupt_confirmed",
                replica = name.replica.0,
                node = place.as_ref().map(|place| tracing::field::display(place.owner)),
                segment = place.as_ref().map(|place| place.name.as_str()),
                "a replica with other bytes than were written is taken away"
            );
            shared.doubts.settle(name.replica);
        }
        Err(ErrorCode::OBJECT_REPLICA_BUSY) => shared.doubts.put_off(name.replica),
        Err(_) => shared.doubts.settle(name.replica),
    }
}
