//! Requests of writers: reserve, publish, give up.

use std::sync::atomic::Ordering;

use smallvec::{SmallVec, smallvec};
use yb_types::{ReplicaDescriptor, ReplicaType, ReplicateConfig};
use yb_wire::messages::{
    BatchEndWritesArgs, BatchPutEndArgs, BatchPutRevokeArgs, BatchPutStartArgs, BatchRevokeWritesArgs,
    BatchUpsertEndArgs, BatchUpsertRevokeArgs, EndWriteArgs, EndedWrite, NamedWrite, ObjectMetaRef, PutEndArgs,
    PutRevokeArgs, PutStartArgs,
};
use yb_wire::{List, call};

use super::{MasterLink, PerKey, Repeat, collect};
use crate::deadline::Deadline;
use crate::{Error, Result};

/// The RPC layer's number for a function that it does not know.
const NO_SUCH_FUNCTION: u16 = 11;

/// What a write does to a readable object that has its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Leaves it as it is.
    Put,
    /// Replaces it, at the end.
    Upsert,
}

/// Space for objects; as many sizes as keys.
#[derive(Clone, Debug)]
pub(crate) struct Reservation<'a> {
    pub(crate) manner: Manner,
    pub(crate) keys: &'a [&'a [u8]],
    pub(crate) sizes: &'a [u64],
    pub(crate) config: ReplicateConfig,
}

/// Whose writes end, and which of their replicas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) manner: Manner,
    pub(crate) replicas: ReplicaType,
}

impl Ending {
    /// All replicas of such writes.
    pub(crate) fn all(manner: Manner) -> Self {
        Ending { manner, replicas: ReplicaType::ALL }
    }
}

impl MasterLink {
    /// Reserves space.
    pub(crate) fn write_start(
        &self,
        wanted: Reservation<'_>,
        deadline: &Deadline,
    ) -> Result<PerKey<Vec<ReplicaDescriptor>>> {
        let Reservation { manner, keys, sizes, config } = wanted;
        self.attend(deadline);
        let (client_id, tenant_id) = (self.client_id, self.tenant.as_slice());
        let table = self.table_for(&config);
        if let ([key], [size]) = (keys, sizes) {
            let args = PutStartArgs { client_id, key, slice_length: *size, config, tenant_id };
            return match manner {
                Manner::Put => self.call_in::<call::PutStart, _>(table, &args, deadline, |reply| smallvec![reply]),
                Manner::Upsert => {
                    self.call_in::<call::UpsertStart, _>(table, &args, deadline, |reply| smallvec![reply])
                }
            };
        }
        let (keys, slice_lengths) = (List::from(keys), List::from(sizes));
        let expected = keys.len();
        let args = BatchPutStartArgs { client_id, keys, slice_lengths, config, tenant_id };
        let answers = match manner {
            Manner::Put => self.call_in::<call::BatchPutStart, _>(table, &args, deadline, collect)?,
            Manner::Upsert => self.call_in::<call::BatchUpsertStart, _>(table, &args, deadline, collect)?,
        };
        self.complete("BatchPutStart", expected, answers, deadline)
    }

    /// Publishes objects. A master of ours is told which writes are meant, so that a late request finds no other one.
    pub(crate) fn write_end(
        &self,
        ending: Ending,
        ended: &[EndedWrite<'_>],
        deadline: &Deadline,
    ) -> Result<PerKey<()>> {
        if self.names_writes()
            && let Some(answers) = self.unless_unknown(self.end_named(ending.replicas, ended, deadline))
        {
            return answers;
        }
        let metas: SmallVec<[ObjectMetaRef<'_>; 1]> = ended.iter().map(unnamed).collect();
        match (metas.as_slice(), ending) {
            ([meta], _) => self.end_one(ending, *meta, deadline),
            (_, Ending { manner: Manner::Put, replicas }) => self.end_puts(replicas, &metas, deadline),
            (_, Ending { replicas: ReplicaType::ALL, .. }) => self.end_upserts(&metas, deadline),
            // The batch form of upserts cannot say which replicas.
            _ => each(&metas, |meta| self.end_one(ending, *meta, deadline)),
        }
    }

    /// Whether the master understands ends and revokes that name their write, as far as is known.
    pub(crate) fn names_writes(&self) -> bool {
        self.names_writes.load(Ordering::Relaxed)
    }

    /// `None` when the master does not know the function: then it is not asked again.
    pub(crate) fn unless_unknown<T>(&self, answer: Result<T>) -> Option<Result<T>> {
        match answer {
            Err(Error::Rejected { code: NO_SUCH_FUNCTION, .. }) => {
                self.names_writes.store(false, Ordering::Relaxed);
                None
            }
            answer => Some(answer),
        }
    }

    fn end_named(
        &self,
        replica_type: ReplicaType,
        ended: &[EndedWrite<'_>],
        deadline: &Deadline,
    ) -> Result<PerKey<()>> {
        let (client_id, tenant_id) = (self.client_id, self.tenant.as_slice());
        if let [ended] = *ended {
            let args = EndWriteArgs { client_id, ended, replica_type, tenant_id };
            return self.call::<call::EndWrite, _>(&args, deadline, Repeat::Harmless, |reply| smallvec![reply]);
        }
        let args = BatchEndWritesArgs { client_id, ended: List::from(ended), replica_type, tenant_id };
        let answers = self.call::<call::BatchEndWrites, _>(&args, deadline, Repeat::Harmless, collect)?;
        self.complete("BatchEndWrites", ended.len(), answers, deadline)
    }

    fn end_one(&self, ending: Ending, object_meta: ObjectMetaRef<'_>, deadline: &Deadline) -> Result<PerKey<()>> {
        let (client_id, tenant_id) = (self.client_id, self.tenant.as_slice());
        let args = PutEndArgs { client_id, object_meta, replica_type: ending.replicas, tenant_id };
        match ending.manner {
            Manner::Put => self.call::<call::PutEnd, _>(&args, deadline, Repeat::Harmless, |reply| smallvec![reply]),
            Manner::Upsert => {
                self.call::<call::UpsertEnd, _>(&args, deadline, Repeat::Harmless, |reply| smallvec![reply])
            }
        }
    }

    fn end_puts(
        &self,
        replica_type: ReplicaType,
        metas: &[ObjectMetaRef<'_>],
        deadline: &Deadline,
    ) -> Result<PerKey<()>> {
        let (client_id, tenant_id) = (self.client_id, self.tenant.as_slice());
        let args = BatchPutEndArgs { client_id, object_metas: List::from(metas), replica_type, tenant_id };
        let answers = self.call::<call::BatchPutEnd, _>(&args, deadline, Repeat::Harmless, collect)?;
        self.complete("BatchPutEnd", metas.len(), answers, deadline)
    }

    fn end_upserts(&self, metas: &[ObjectMetaRef<'_>], deadline: &Deadline) -> Result<PerKey<()>> {
        let (client_id, tenant_id) = (self.client_id, self.tenant.as_slice());
        let args = BatchUpsertEndArgs { client_id, object_metas: List::from(metas), tenant_id };
        let answers = self.call::<call::BatchUpsertEnd, _>(&args, deadline, Repeat::Harmless, collect)?;
        self.complete("BatchUpsertEnd", metas.len(), answers, deadline)
    }

    /// Gives reservations up; `quiet`: nothing of them is in flight, so a master of ours frees their space at once.
    pub(crate) fn write_revoke(
        &self,
        (ending, quiet): (Ending, bool),
        writes: &[NamedWrite<'_>],
        deadline: &Deadline,
    ) -> Result<PerKey<()>> {
        if self.names_writes()
            && let Some(answers) = self.unless_unknown(self.revoke_named((ending.replicas, quiet), writes, deadline))
        {
            return answers;
        }
        let keys: SmallVec<[&[u8]; 1]> = writes.iter().map(|write| write.key).collect();
        if quiet && ending.replicas == ReplicaType::ALL {
            return self.revoke_quiet(ending.manner, &keys, deadline);
        }
        self.revoke_unnamed(ending, &keys, deadline)
    }

    fn revoke_named(
        &self,
        (replica_type, quiet): (ReplicaType, bool),
        writes: &[NamedWrite<'_>],
        deadline: &Deadline,
    ) -> Result<PerKey<()>> {
        let (client_id, tenant_id) = (self.client_id, self.tenant.as_slice());
        let args = BatchRevokeWritesArgs { client_id, writes: List::from(writes), replica_type, quiet, tenant_id };
        let answers = self.call::<call::BatchRevokeWrites, _>(&args, deadline, Repeat::Harmless, collect)?;
        self.complete("BatchRevokeWrites", writes.len(), answers, deadline)
    }

    fn revoke_unnamed(&self, ending: Ending, keys: &[&[u8]], deadline: &Deadline) -> Result<PerKey<()>> {
        match (keys, ending) {
            ([key], _) => self.revoke_one(ending, key, deadline),
            (_, Ending { manner: Manner::Put, replicas }) => self.revoke_puts(replicas, keys, deadline),
            (_, Ending { replicas: ReplicaType::ALL, .. }) => self.revoke_upserts(keys, deadline),
            _ => each(keys, |key| self.revoke_one(ending, key, deadline)),
        }
    }

    fn revoke_one(&self, ending: Ending, key: &[u8], deadline: &Deadline) -> Result<PerKey<()>> {
        let (client_id, tenant_id) = (self.client_id, self.tenant.as_slice());
        let args = PutRevokeArgs { client_id, key, replica_type: ending.replicas, tenant_id };
        match ending.manner {
            Manner::Put => self.call::<call::PutRevoke, _>(&args, deadline, Repeat::Harmless, |reply| smallvec![reply]),
            Manner::Upsert => {
                self.call::<call::UpsertRevoke, _>(&args, deadline, Repeat::Harmless, |reply| smallvec![reply])
            }
        }
    }

    fn revoke_puts(&self, replica_type: ReplicaType, keys: &[&[u8]], deadline: &Deadline) -> Result<PerKey<()>> {
        let (client_id, tenant_id) = (self.client_id, self.tenant.as_slice());
        let args = BatchPutRevokeArgs { client_id, keys: List::from(keys), replica_type, tenant_id };
        let answers = self.call::<call::BatchPutRevoke, _>(&args, deadline, Repeat::Harmless, collect)?;
        self.complete("BatchPutRevoke", keys.len(), answers, deadline)
    }

    fn revoke_upserts(&self, keys: &[&[u8]], deadline: &Deadline) -> Result<PerKey<()>> {
        let (client_id, tenant_id) = (self.client_id, self.tenant.as_slice());
        let args = BatchUpsertRevokeArgs { client_id, keys: List::from(keys), tenant_id };
        let answers = self.call::<call::BatchUpsertRevoke, _>(&args, deadline, Repeat::Harmless, collect)?;
        self.complete("BatchUpsertRevoke", keys.len(), answers, deadline)
    }

    /// To an older master of ours, whichever manner the writes were of.
    fn revoke_quiet(&self, manner: Manner, keys: &[&[u8]], deadline: &Deadline) -> Result<PerKey<()>> {
        if !self.knows_quiet_revoke.load(Ordering::Relaxed) {
            return self.revoke_unnamed(Ending::all(manner), keys, deadline);
        }
        let (client_id, tenant_id) = (self.client_id, self.tenant.as_slice());
        let args = BatchPutRevokeArgs { client_id, keys: List::from(keys), replica_type: ReplicaType::ALL, tenant_id };
        match self.call::<call::BatchPutRevokeQuiet, _>(&args, deadline, Repeat::Harmless, collect) {
            Err(Error::Rejected { .. }) => {
                self.knows_quiet_revoke.store(false, Ordering::Relaxed);
                self.revoke_unnamed(Ending::all(manner), keys, deadline)
            }
            answers => self.complete("BatchPutRevokeQuiet", keys.len(), answers?, deadline),
        }
    }
}

/// As the peer's masters take it.
fn unnamed<'a>(ended: &EndedWrite<'a>) -> ObjectMetaRef<'a> {
    ObjectMetaRef { key: ended.write.key, object_checksum: ended.checksum }
}

/// One request for each; a request without an answer ends it.
fn each<T>(items: &[T], mut ask: impl FnMut(&T) -> Result<PerKey<()>>) -> Result<PerKey<()>> {
    let mut answers = PerKey::new();
    for item in items {
        answers.extend(ask(item)?);
    }
    Ok(answers)
}
