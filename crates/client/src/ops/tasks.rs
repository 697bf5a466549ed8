//! Probes, copies and moves asked for, replicas cleared.

use yb_types::{ClientId, Uuid};
use yb_wire::messages::{GrantLeasePolicy, LeaseMode, QueryTaskResponse, TaskStatus, TaskType};

use crate::core::Core;
use crate::deadline::Deadline;
use crate::{Error, Result};

/// A request that goes over the whole pool has this many times the time of one that does not.
const WALK: u32 = 15;

/// Which keys of a probe get read leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbePolicy {
    /// None of them.
    #[default]
    None,
    /// Those of the last group of so many keys that are all there. The keys are groups of that many, one after another.
    LastHitOnly(u64),
}

/// What the master knows of a copy or a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Which.
    pub id: Uuid,
    /// What it does.
    pub kind: TaskType,
    /// Where it stands.
    pub status: TaskStatus,
    /// When it was made, milliseconds since 1970.
    pub created_ms: i64,
    /// When it changed last, milliseconds since 1970.
    pub updated_ms: i64,
    /// Who has it.
    pub client: ClientId,
    /// Why it ended.
    pub message: String,
}

impl From<QueryTaskResponse<'_>> for Task {
    fn from(answer: QueryTaskResponse<'_>) -> Self {
        Task {
            id: answer.id,
            kind: answer.r#type,
            status: answer.status,
            created_ms: answer.created_at_ms_epoch,
            updated_ms: answer.last_updated_at_ms_epoch,
            client: answer.assigned_client,
            message: String::from_utf8_lossy(answer.message).into_owned(),
        }
    }
}

impl Core {
    /// The deadline of a request without bytes.
    pub(super) fn start(&self) -> Result<Deadline> {
        self.start_for(0)
    }

    /// The deadline of a request that has the master look at every object of the pool, however many there are.
    pub(crate) fn start_walk(&self) -> Result<Deadline> {
        let started = self.start()?;
        Ok(Deadline { at: started.started + self.config.limits.base * WALK, ..started })
    }

    /// The deadline of a request about so many keys.
    pub(super) fn start_for(&self, keys: usize) -> Result<Deadline> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        Ok(Deadline::for_keys(&self.clock, &self.config.limits, keys))
    }

    pub(crate) fn probe(&self, policy: ProbePolicy, keys: &[&[u8]]) -> Vec<Result<bool>> {
        if let ProbePolicy::LastHitOnly(group) = policy {
            if group == 0 || !(keys.len() as u64).is_multiple_of(group) {
                let error = Error::invalid(format!("{} keys are no groups of {group}", keys.len()));
                return keys.iter().map(|_| Err(error.clone())).collect();
            }
            // The groups are by place: every key goes along.
            let policy = GrantLeasePolicy { lease_mode: LeaseMode::LAST_HIT_ONLY.0, candidate_size: group };
            let start = self.start_for(keys.len());
            let answers = start.and_then(|deadline| self.link.probe_many(policy, keys, &deadline));
            return self.spread("BatchProbeKey", keys.len(), answers);
        }
        self.ask("ProbeKey", keys, |keys, deadline| match keys {
            [key] => self.link.probe(key, deadline),
            _ => self.link.probe_many(GrantLeasePolicy::default(), keys, deadline),
        })
    }

    pub(crate) fn create_copy_task(&self, key: &[u8], targets: &[&[u8]]) -> Result<Uuid> {
        self.link.create_copy_task(key, targets, &self.start()?)
    }

    pub(crate) fn create_move_task(&self, key: &[u8], source: &[u8], target: &[u8]) -> Result<Uuid> {
        self.link.create_move_task(key, (source, target), &self.start()?)
    }

    pub(crate) fn query_task(&self, id: Uuid) -> Result<Task> {
        self.link.query_task(id, &self.start()?)
    }

    pub(crate) fn clear_replicas(&self, keys: &[&[u8]], segment: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.link.clear_replicas(keys, segment, &self.start_for(keys.len())?)
    }
}
