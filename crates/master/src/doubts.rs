//! Replicas at which a client read other bytes than were written.
//!
//! The word of one client is not enough: its own memory or network may be the sick part, and it would empty the cache. The
//! node that has the bytes, where it is one of ours, is asked what lies there, and its answer decides. Of others' nodes two
//! clients have to say the same. Until then readers find out for themselves and take the next replica.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use yb_catalog::{Effects, ReplicaName, Tenant};
use yb_types::{ClientId, ErrorCode, ReplicaId};
use yb_wire::messages::{DoubtAnswer, DoubtQuestion};

use crate::nodes::CAPABILITY_LOOKS;
use crate::shared::Shared;

/// Replicas in doubt at a time; a report beyond makes the one with the lowest number be forgotten.
const MOST_DOUBTS: usize = 1024;

#[derive(Clone, Debug)]
struct Doubt {
    tenant: Tenant,
    key: Vec<u8>,
    /// The checksum that the writer gave.
    written: u64,
    /// Who read other bytes.
    by: ClientId,
    /// Whom to ask, and what; `None` where nobody can be asked.
    question: Option<(ClientId, DoubtQuestion)>,
    asked: bool,
}

impl Doubt {
    fn name(&self, replica: ReplicaId) -> ReplicaName<'_> {
        ReplicaName { tenant: self.tenant, key: &self.key, replica, checksum: self.written }
    }
}

/// The replicas in doubt.
#[derive(Debug, Default)]
pub(crate) struct Doubts(Mutex<BTreeMap<ReplicaId, Doubt>>);

impl Doubts {
    /// Whether another client has said so already; else it is noted.
    fn is_said_by_another(&self, replica: ReplicaId, doubt: Doubt) -> bool {
        let mut doubts = self.0.lock();
        if let Some(known) = doubts.get(&replica) {
            return known.by != doubt.by;
        }
        if doubts.len() >= MOST_DOUBTS {
            doubts.pop_first();
        }
        doubts.insert(replica, doubt);
        false
    }

    /// Questions for a node, each given out once.
    pub(crate) fn take(&self, node: ClientId, limit: usize) -> Vec<DoubtQuestion> {
        let mut doubts = self.0.lock();
        let of_node = doubts.values_mut().filter(|doubt| !doubt.asked).filter_map(|doubt| {
            let (owner, question) = doubt.question?;
            (owner == node).then(|| {
                doubt.asked = true;
                question
            })
        });
        of_node.take(limit).collect()
    }

    fn known(&self, replica: ReplicaId) -> Option<Doubt> {
        self.0.lock().get(&replica).cloned()
    }

    fn settle(&self, replica: ReplicaId) {
        self.0.lock().remove(&replica);
    }

    /// It is asked about again.
    fn put_off(&self, replica: ReplicaId) {
        if let Some(doubt) = self.0.lock().get_mut(&replica) {
            doubt.asked = false;
        }
    }
}

/// What a client found.
pub(crate) struct Finding<'a> {
    pub(crate) by: ClientId,
    pub(crate) name: ReplicaName<'a>,
    pub(crate) found: u64,
}

/// Notes what a client found, and acts on it when another one found the same and nobody can be asked.
///
/// # Errors
/// `OBJECT_NOT_FOUND` when the replica is not there any more, or its object has another checksum.
pub(crate) fn report(shared: &Shared, finding: &Finding<'_>, effects: &mut Effects) -> Result<(), ErrorCode> {
    let Finding { by, name, found } = finding;
    shared.metrics.shared_lane().add(shared.metrics.corrupt_reported, 1);
    let place = shared.catalog.place_of(name).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
    tracing::warn!(event = "corrupt_reported", %by, owner = %place.owner, written = name.checksum, found, "a client read other bytes than were written");
    let question =
        DoubtQuestion { replica: name.replica, segment_id: place.segment, address: place.address, size: place.size };
    let question = shared.nodes.can(place.owner, CAPABILITY_LOOKS).then_some((place.owner, question));
    let can_be_asked = question.is_some();
    let doubt =
        Doubt { tenant: name.tenant, key: name.key.to_vec(), written: name.checksum, by: *by, question, asked: false };
    if shared.doubts.is_said_by_another(name.replica, doubt) && !can_be_asked {
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
    shared.doubts.settle(answer.replica);
}

fn quarantine(shared: &Shared, name: &ReplicaName<'_>, effects: &mut Effects) {
    match shared.catalog.quarantine(name, shared.clock.now(), effects) {
        Ok(()) => {
            shared.metrics.shared_lane().add(shared.metrics.corrupt_confirmed, 1);
            tracing::error!(
                event = "corrupt_confirmed",
                replica = name.replica.0,
                "a replica with other bytes than were written is taken away"
            );
            shared.doubts.settle(name.replica);
        }
        Err(ErrorCode::OBJECT_REPLICA_BUSY) => shared.doubts.put_off(name.replica),
        Err(_) => shared.doubts.settle(name.replica),
    }
}
