//! Managed weight revisions. What walks over the objects of a revision goes to the slow lane.

use std::sync::Arc;

use yb_catalog::{Caller, Force};
use yb_rpc::{Outcome, Reply};
use yb_types::{ClientId, DEFAULT_TENANT};
use yb_wire::messages::*;
use yb_wire::{Call, Rpc, call};

use crate::metrics::Tally;
use crate::service::{Context, encode_body};
use crate::shared::Shared;
use crate::weights::{At, Identity, Lease, Manifest, Member, Operation, Revision};

/// The name under which a tenant's revisions are kept.
fn tenant_name(shared: &Shared, name: &[u8]) -> Vec<u8> {
    let is_default = name.is_empty() || !shared.catalog.tenants().is_multi();
    if is_default { DEFAULT_TENANT.as_bytes().to_vec() } else { name.to_vec() }
}

fn identity(shared: &Shared, tenant: &[u8], wire: &WeightRevisionIdentity<'_>) -> Identity {
    Identity {
        tenant: tenant_name(shared, tenant),
        name_space: wire.name_space.to_vec(),
        resource: wire.resource_id.to_vec(),
        revision: wire.revision.to_vec(),
        generation: wire.weight_generation,
    }
}

fn wire_identity(identity: &Identity) -> WeightRevisionIdentity<'_> {
    WeightRevisionIdentity {
        tenant_id: &identity.tenant,
        name_space: &identity.name_space,
        resource_id: &identity.resource,
        revision: &identity.revision,
        weight_generation: identity.generation,
    }
}

fn manifest(wire: &WeightManifestReference<'_>) -> Manifest {
    Manifest {
        key: wire.manifest_key.to_vec(),
        sha256: wire.manifest_sha256.to_vec(),
        group: wire.payload_group_id.to_vec(),
        keys_sha256: wire.payload_keys_sha256.to_vec(),
        count: wire.payload_count,
        bytes: wire.logical_bytes,
    }
}

fn wire_revision(revision: &Revision) -> WeightRevisionMetadata<'_> {
    let Manifest { key, sha256, group, keys_sha256, count, bytes } = &revision.manifest;
    WeightRevisionMetadata {
        identity: wire_identity(&revision.identity),
        manifest: WeightManifestReference {
            manifest_key: key,
            manifest_sha256: sha256,
            payload_group_id: group,
            payload_keys_sha256: keys_sha256,
            payload_count: *count,
            logical_bytes: *bytes,
        },
        availability: revision.availability,
        residency: revision.residency,
        operation: revision.operation,
        operation_id: revision.operation_id,
        metadata_generation: revision.generation,
        created_at_ms: revision.created_ms,
        updated_at_ms: revision.updated_ms,
    }
}

fn wire_view((revision, leases, nearest): &(Revision, u64, Option<u64>)) -> WeightRevisionView<'_> {
    WeightRevisionView {
        metadata: wire_revision(revision),
        active_lease_count: *leases,
        nearest_lease_expiry_ms: *nearest,
    }
}

fn wire_lease(lease: &Lease) -> WeightRevisionLease<'_> {
    WeightRevisionLease {
        lease_id: lease.id,
        identity: wire_identity(&lease.identity),
        holder: &lease.holder,
        expires_at_ms: lease.expires_ms,
        fenced_metadata_generation: lease.fenced,
    }
}

fn wire_operation(operation: &Operation) -> WeightResidencyOperation<'_> {
    WeightResidencyOperation {
        operation_id: operation.id,
        identity: wire_identity(&operation.identity),
        operation: operation.operation,
        target_residency: operation.target,
        fenced_metadata_generation: operation.fenced,
        started_at_ms: operation.started_ms,
        updated_at_ms: operation.updated_ms,
        processed_members: operation.processed,
        total_members: operation.total,
        cursor: b"",
        message: b"",
    }
}

/// Answers a call.
fn answer<C: Call>(context: &mut Context<'_, '_>, value: &C::Reply<'_>, mut reply: Reply<'_>) -> Outcome
where
    for<'a> C::Reply<'a>: Tally,
{
    context.count(value.tally());
    match encode_body::<C>(context.profile, value, reply.body()) {
        Ok(()) => reply.done(),
        Err(error) => reply.failed(error),
    }
}

/// Runs `work` on the slow lane and sends what it answers.
fn later<T: Send + 'static>(
    context: &mut Context<'_, '_>,
    reply: Reply<'_>,
    work: impl FnOnce(&Shared) -> T + Send + 'static,
    encode: impl FnOnce(&T, &mut Vec<u8>) -> Result<(), String> + Send + 'static,
) -> Outcome {
    let (shared, rpc) = (Arc::clone(context.shared), context.rpc);
    let (deferred, outcome) = reply.defer();
    let queued = context.shared.slow.submit(move || {
        let value = work(&shared);
        shared.metrics.call(shared.metrics.shared_lane(), rpc, 1, 0);
        deferred.send(|out| {
            if let Err(error) = encode(&value, out) {
                tracing::error!(error, "the answer about a weight revision cannot be encoded");
            }
        });
    });
    if !queued {
        tracing::warn!("a call about weight revisions was refused: too many wait");
    }
    outcome
}

pub(crate) fn dispatch(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    match context.rpc {
        Rpc::BeginWeightImport => begin(context, reply),
        Rpc::CommitWeightImport => commit(context, reply),
        Rpc::AbortWeightImport => abort(context, reply),
        Rpc::GetWeightRevision => get(context, reply),
        Rpc::ListWeightRevisions => list(context, reply),
        Rpc::AcquireWeightRevisionLease => acquire(context, reply),
        Rpc::RenewWeightRevisionLease => renew(context, reply),
        Rpc::ReleaseWeightRevisionLease => release(context, reply),
        Rpc::StartWeightResidencyOperation => start(context, reply),
        Rpc::QueryWeightOperation => query(context, reply),
        Rpc::DeleteWeightRevision => delete(context, reply),
        _ => reply.unknown_function(),
    }
}

fn begin(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BeginWeightImport>() else { return reply.bad_arguments() };
    let request = &args.request;
    let shared = context.shared;
    let identity = identity(shared, args.tenant_id, &request.identity);
    let tenants = shared.catalog.tenants();
    let is_registered = !tenants.is_multi() || tenants.writer(&identity.tenant) != yb_catalog::Tenant::NOBODY;
    let expected = (request.expected_payload_count, request.expected_logical_bytes);
    let begun = if is_registered {
        shared.weights.lock().begin(&identity, request.payload_group_id, expected, yb_env::epoch_millis())
    } else {
        Err(WeightManagementError::INVALID_ARGUMENT)
    };
    answer::<call::BeginWeightImport>(context, &begun.as_ref().map(wire_revision).map_err(|code| *code), reply)
}

/// The readable objects of a revision's group.
fn members(shared: &Shared, identity: &Identity) -> Vec<Member> {
    let Ok(tenant) = shared.catalog.tenants().reader(&identity.tenant) else { return Vec::new() };
    let mut found = Vec::new();
    shared.catalog.group_members(tenant, &identity.group(), |view| {
        found.push(Member { key: view.key().to_vec(), size: view.size() });
    });
    found
}

fn commit(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::CommitWeightImport>() else { return reply.bad_arguments() };
    let identity = identity(context.shared, args.tenant_id, &args.request.identity);
    let (expected, manifest) = (args.request.expected_metadata_generation, manifest(&args.request.manifest));
    let profile = context.profile;
    let work = move |shared: &Shared| {
        let members = members(shared, &identity);
        let at = At { identity: &identity, expected, now_ms: yb_env::epoch_millis() };
        shared.weights.lock().commit(at, &manifest, members)
    };
    later(context, reply, work, move |done, out| {
        let value = done.as_ref().map(wire_revision).map_err(|code| *code);
        encode_body::<call::CommitWeightImport>(profile, &value, out)
    })
}

/// Removes objects whatever leases they have; the revision's own say whether that may be.
fn remove(shared: &Shared, identity: &Identity, keys: &[Vec<u8>]) {
    if let Ok(tenant) = shared.catalog.tenants().reader(&identity.tenant) {
        shared.catalog.remove(tenant, keys, Force::Yes, shared.clock.now(), |_, _| {});
    }
}

/// Removes what an import that was given up has stored, and forgets it.
pub(crate) fn discard(shared: &Shared, identity: &Identity) {
    let keys: Vec<Vec<u8>> = members(shared, identity).into_iter().map(|member| member.key).collect();
    remove(shared, identity, &keys);
    shared.weights.lock().forget(identity);
}

fn abort(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::AbortWeightImport>() else { return reply.bad_arguments() };
    let identity = identity(context.shared, args.tenant_id, &args.request.identity);
    let (expected, profile) = (args.request.expected_metadata_generation, context.profile);
    let work = move |shared: &Shared| {
        let at = At { identity: &identity, expected, now_ms: yb_env::epoch_millis() };
        let aborted = shared.weights.lock().abort(at);
        if aborted.is_ok() {
            discard(shared, &identity);
        }
        aborted
    };
    later(context, reply, work, move |done, out| {
        let value = done.as_ref().map(wire_revision).map_err(|code| *code);
        encode_body::<call::AbortWeightImport>(profile, &value, out)
    })
}

fn delete(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::DeleteWeightRevision>() else { return reply.bad_arguments() };
    let identity = identity(context.shared, args.tenant_id, &args.request.identity);
    let (expected, profile) = (args.request.expected_metadata_generation, context.profile);
    let work = move |shared: &Shared| {
        let at = At { identity: &identity, expected, now_ms: yb_env::epoch_millis() };
        let (gone, keys) = shared.weights.lock().begin_delete(at)?;
        remove(shared, &identity, &keys);
        shared.weights.lock().forget(&identity);
        Ok::<_, WeightManagementError>(gone)
    };
    later(context, reply, work, move |done, out| {
        let value = done.as_ref().map(wire_revision).map_err(|code| *code);
        encode_body::<call::DeleteWeightRevision>(profile, &value, out)
    })
}

fn get(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::GetWeightRevision>() else { return reply.bad_arguments() };
    let identity = identity(context.shared, args.tenant_id, &args.request.identity);
    let found = context.shared.weights.lock().get(&identity, yb_env::epoch_millis());
    answer::<call::GetWeightRevision>(context, &found.as_ref().map(wire_view).map_err(|code| *code), reply)
}

fn list(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::ListWeightRevisions>() else { return reply.bad_arguments() };
    let (request, tenant) = (&args.request, tenant_name(context.shared, args.tenant_id));
    let of = (&tenant[..], request.name_space, request.resource_id);
    let found = context.shared.weights.lock().list(of, request.page_token, request.limit, yb_env::epoch_millis());
    let value = match &found {
        Ok((page, next)) => {
            Ok(ListWeightRevisionsResponse { revisions: page.iter().map(wire_view).collect(), next_page_token: next })
        }
        Err(code) => Err(*code),
    };
    answer::<call::ListWeightRevisions>(context, &value, reply)
}

fn acquire(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::AcquireWeightRevisionLease>() else { return reply.bad_arguments() };
    let identity = identity(context.shared, args.tenant_id, &args.request.identity);
    let expected = args.request.expected_metadata_generation;
    let at = At { identity: &identity, expected, now_ms: yb_env::epoch_millis() };
    let lease = context.shared.weights.lock().acquire(at, args.request.holder, args.request.ttl_ms);
    answer::<call::AcquireWeightRevisionLease>(context, &lease.as_ref().map(wire_lease).map_err(|code| *code), reply)
}

fn renew(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::RenewWeightRevisionLease>() else { return reply.bad_arguments() };
    let (tenant, request) = (tenant_name(context.shared, args.tenant_id), &args.request);
    let mut weights = context.shared.weights.lock();
    let lease = weights.renew(&tenant, request.lease_id, request.ttl_ms, yb_env::epoch_millis());
    drop(weights);
    answer::<call::RenewWeightRevisionLease>(context, &lease.as_ref().map(wire_lease).map_err(|code| *code), reply)
}

fn release(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::ReleaseWeightRevisionLease>() else { return reply.bad_arguments() };
    let tenant = tenant_name(context.shared, args.tenant_id);
    context.shared.weights.lock().release(&tenant, args.request.lease_id);
    answer::<call::ReleaseWeightRevisionLease>(context, &Ok(()), reply)
}

fn query(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::QueryWeightOperation>() else { return reply.bad_arguments() };
    let tenant = tenant_name(context.shared, args.tenant_id);
    let found = context.shared.weights.lock().operation(&tenant, args.request.operation_id);
    answer::<call::QueryWeightOperation>(context, &found.as_ref().map(wire_operation).map_err(|code| *code), reply)
}

/// Every member has a copy on the wanted tier already; of those wanted on disk, the memory is given up afterwards.
fn start(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::StartWeightResidencyOperation>() else { return reply.bad_arguments() };
    let identity = identity(context.shared, args.tenant_id, &args.request.identity);
    let (expected, target) = (args.request.expected_metadata_generation, args.request.target_residency);
    let (profile, again) = (context.profile, Arc::clone(context.shared));
    let work = move |shared: &Shared| {
        let at = At { identity: &identity, expected, now_ms: yb_env::epoch_millis() };
        let keys = shared.weights.lock().members_to_change(at, target)?;
        let tenant = shared.catalog.tenants().reader(&identity.tenant);
        let tenant = tenant.map_err(|_| WeightManagementError::INVALID_ARGUMENT)?;
        let mut there = 0;
        shared.catalog.peek(tenant, &keys, |_, found| {
            there += usize::from(found.is_ok_and(|view| match target {
                WeightResidencyState::COLD => view.disk_copies().next().is_some(),
                _ => view.replicas().next().is_some(),
            }));
        });
        if there < keys.len() {
            return Err(WeightManagementError::NOT_READY);
        }
        let operation = shared.weights.lock().start(at, target)?;
        let id = operation.id;
        again.clone().slow.submit(move || {
            let caller = Caller { tenant, client: ClientId::default(), now: again.clock.now() };
            let cold = target == WeightResidencyState::COLD;
            let moved =
                if cold { keys.iter().filter(|key| again.catalog.cool(&caller, key)).count() } else { keys.len() };
            again.weights.lock().finish(id, moved as u64, yb_env::epoch_millis());
        });
        Ok(operation)
    };
    later(context, reply, work, move |done, out| {
        let value = done.as_ref().map(wire_operation).map_err(|code| *code);
        encode_body::<call::StartWeightResidencyOperation>(profile, &value, out)
    })
}
