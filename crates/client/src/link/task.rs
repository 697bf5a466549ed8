//! Requests about replicas: probes, copies and moves, clearing.

use std::sync::atomic::Ordering;

use smallvec::smallvec;
use yb_types::Uuid;
use yb_wire::messages::{
    BatchProbeKeyArgs, BatchReplicaClearArgs, CreateCopyTaskArgs, CreateMoveTaskArgs, GrantLeasePolicy, KeyArgs,
    TaskArgs,
};
use yb_wire::{List, WireVersion, call};

use super::{MasterLink, PerKey, Repeat, collect};
use crate::deadline::Deadline;
use crate::ops::Task;
use crate::{Error, Result};

/// The RPC layer's number for arguments that it cannot decode.
const BAD_ARGUMENTS: u16 = 4;

impl MasterLink {
    /// Existence of one key; no lease.
    pub(crate) fn probe(&self, key: &[u8], deadline: &Deadline) -> Result<PerKey<bool>> {
        let args = KeyArgs { key, tenant_id: &self.tenant };
        self.call_in::<call::ProbeKey, _>(self.newest, &args, deadline, |reply| smallvec![reply])
    }

    /// Existence of each key, with leases as `policy` says.
    pub(crate) fn probe_many(
        &self,
        policy: GrantLeasePolicy,
        keys: &[&[u8]],
        deadline: &Deadline,
    ) -> Result<PerKey<bool>> {
        let args = BatchProbeKeyArgs { policy, keys: List::from(keys), tenant_id: &self.tenant };
        let answers = self.call_in::<call::BatchProbeKey, _>(self.newest, &args, deadline, collect)?;
        self.complete("BatchProbeKey", keys.len(), answers, deadline)
    }

    /// Asks for replicas on more segments. The id of the task.
    pub(crate) fn create_copy_task(&self, key: &[u8], targets: &[&[u8]], deadline: &Deadline) -> Result<Uuid> {
        let args = CreateCopyTaskArgs { key, tenant_id: &self.tenant, targets: List::from(targets) };
        let answer = self.call::<call::CreateCopyTask, _>(&args, deadline, Repeat::Never, |reply| reply)?;
        answer.map_err(|code| Error::from_master("CreateCopyTask", code))
    }

    /// Asks for a replica to go from one segment to another. The id of the task.
    pub(crate) fn create_move_task(
        &self,
        key: &[u8],
        (source, target): (&[u8], &[u8]),
        deadline: &Deadline,
    ) -> Result<Uuid> {
        let args = CreateMoveTaskArgs { key, tenant_id: &self.tenant, source, target };
        let answer = self.call::<call::CreateMoveTask, _>(&args, deadline, Repeat::Never, |reply| reply)?;
        answer.map_err(|code| Error::from_master("CreateMoveTask", code))
    }

    /// What is known of a task.
    pub(crate) fn query_task(&self, task_id: Uuid, deadline: &Deadline) -> Result<Task> {
        let args = TaskArgs { task_id };
        let answer =
            self.call::<call::QueryTask, _>(&args, deadline, Repeat::Harmless, |reply| reply.map(Task::from))?;
        answer.map_err(|code| Error::from_master("QueryTask", code))
    }

    /// Clears this client's replicas of the keys, on one segment or (empty) on all. The keys that were cleared.
    ///
    /// The request of 0.3.14 names the tenant; masters before do not take it, and get the older one, which means the
    /// default tenant. For another tenant it would clear what is not ours, so it is not sent.
    pub(crate) fn clear_replicas(&self, keys: &[&[u8]], segment: &[u8], deadline: &Deadline) -> Result<Vec<Vec<u8>>> {
        let newer = !self.clears_by_default_tenant.load(Ordering::Relaxed);
        let args = BatchReplicaClearArgs {
            object_keys: List::from(keys),
            client_id: self.client_id,
            segment_name: segment,
            tenant_id: &self.tenant,
        };
        let table = if newer { self.newest } else { self.table };
        let answer = self.exchange::<call::BatchReplicaClear, _>(table, &args, (deadline, Repeat::Never), |reply| {
            reply.map(|cleared| cleared.into_iter().map(<[u8]>::to_vec).collect())
        });
        match answer {
            Err(Error::Rejected { code: BAD_ARGUMENTS, .. }) if newer && self.can_be_older() => {
                self.clears_by_default_tenant.store(true, Ordering::Relaxed);
                self.clear_replicas(keys, segment, deadline)
            }
            answer => answer?.map_err(|code| Error::from_master("BatchReplicaClear", code)),
        }
    }

    /// Whether the request without a tenant means the same.
    fn can_be_older(&self) -> bool {
        self.tenant == yb_types::DEFAULT_TENANT.as_bytes() && self.table.version() < WireVersion::V0_3_14
    }
}
