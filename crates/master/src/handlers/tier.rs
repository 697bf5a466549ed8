//! Disks of clients: what is to be written down and loaded, and what became of it.

use yb_catalog::{Errand, Offloaded, PromotionCall};
use yb_rpc::{Outcome, Reply};
use yb_types::{DEFAULT_TENANT, ErrorCode, ReplicaId, ReplicaType};
use yb_wire::messages::{ErrorOr, OffloadTaskItem, OffloadTasks, PromotionAllocStartResponse};
use yb_wire::{Call, call};

use super::lookup::descriptor;
use super::put::{each, refuse_each};
use crate::metrics::Tally;
use crate::service::{Context, encode_body};

pub(crate) fn mount(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::MountLocalDiskSegment>(reply, |context, args| {
        context.shared.catalog.mount_disk(args.client_id, args.enable_offloading)
    })
}

pub(crate) fn unmount(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::UnmountLocalDiskSegment>(reply, |context, args| {
        context.shared.catalog.unmount_disk(args.client_id)
    })
}

pub(crate) fn report_capacity(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::ReportSsdCapacity>(reply, |context, args| {
        context.shared.catalog.report_ssd(args.client_id, args.ssd_total_capacity_bytes)
    })
}

pub(crate) fn poll_remove_all(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context
        .typed::<call::PollRemoveAll>(reply, |context, args| Ok(context.shared.catalog.poll_remove_all(args.client_id)))
}

pub(crate) fn offload_heartbeat(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::OffloadObjectHeartbeat>() else { return reply.bad_arguments() };
    let errands = context.shared.catalog.offload_heartbeat(args.client_id, args.enable_offloading);
    hand_out::<call::OffloadObjectHeartbeat>(context, &errands, reply)
}

pub(crate) fn promotion_heartbeat(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::PromotionObjectHeartbeat>() else { return reply.bad_arguments() };
    let errands = context.shared.catalog.promotion_heartbeat(args.client_id, context.now());
    hand_out::<call::PromotionObjectHeartbeat>(context, &errands, reply)
}

/// Answers with what a client is to do.
fn hand_out<C>(context: &mut Context<'_, '_>, errands: &ErrorOr<Vec<Errand>>, mut reply: Reply<'_>) -> Outcome
where
    C: for<'e> Call<Reply<'e> = ErrorOr<OffloadTasks<'e>>>,
{
    let tenants = context.shared.catalog.tenants();
    let name = |errand: &Errand| tenants.name(errand.tenant).unwrap_or_else(|| DEFAULT_TENANT.into());
    let named: ErrorOr<Vec<_>> = match errands {
        Ok(errands) => Ok(errands.iter().map(|errand| (name(errand), errand)).collect()),
        Err(code) => Err(*code),
    };
    let value = match &named {
        Ok(named) => Ok(OffloadTasks(named.iter().map(|(name, errand)| item(name, errand)).collect())),
        Err(code) => Err(*code),
    };
    context.count(value.tally());
    match encode_body::<C>(context.profile, &value, reply.body()) {
        Ok(()) => reply.done(),
        Err(error) => reply.failed(error),
    }
}

fn item<'e>(name: &'e str, errand: &'e Errand) -> OffloadTaskItem<'e> {
    let size = i64::try_from(errand.size).unwrap_or(i64::MAX);
    OffloadTaskItem { tenant_id: name.as_bytes(), key: &errand.key, size }
}

pub(crate) fn offloaded(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::NotifyOffloadSuccess>(reply, |context, args| {
        if args.tasks.len() != args.metadatas.len() {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        let catalog = &context.shared.catalog;
        // A name that cannot be a tenant's has no objects.
        let items = args.tasks.iter().zip(args.metadatas.iter()).filter_map(|(task, stored)| {
            let tenant = catalog.tenants().reader(task.tenant_id).ok()?;
            let size = u64::try_from(stored.data_size).ok();
            Some(Offloaded { tenant, key: task.key, size, endpoint: stored.transport_endpoint })
        });
        catalog.offloaded(args.client_id, items)
    })
}

pub(crate) fn promotion_start(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let outcome = context.typed::<call::PromotionAllocStart>(reply, |context, args| {
        let caller = context.writer(args.client_id, args.tenant_id);
        if context.shared.catalog.tenants().is_multi() && caller.tenant == yb_catalog::Tenant::NOBODY {
            return Err(ErrorCode::TENANT_NOT_REGISTERED);
        }
        let names = args.preferred_segments.iter().map(|name| String::from_utf8_lossy(name).into_owned());
        let preferred: Vec<String> = names.collect();
        let call = PromotionCall { caller, key: args.key, size: args.size, preferred: &preferred };
        let (rng, effects) = (&mut context.worker.rng, &mut context.worker.effects);
        let mut random = || rng.next_u64();
        let mut staged = None;
        context.shared.catalog.promotion_start(&call, &mut random, effects, |view| {
            staged = view.replicas().next().map(descriptor);
        })?;
        let memory_descriptor = staged.ok_or(ErrorCode::NO_AVAILABLE_HANDLE)?;
        Ok(PromotionAllocStartResponse { memory_descriptor })
    });
    context.carry_out();
    outcome
}

pub(crate) fn promotion_end(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::NotifyPromotionSuccess>(reply, |context, args| {
        let caller = context.caller(args.client_id, args.tenant_id)?;
        context.shared.catalog.promotion_end(&caller, args.key)
    })
}

pub(crate) fn promotion_failed(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let outcome = context.typed::<call::NotifyPromotionFailure>(reply, |context, args| {
        let caller = context.caller(args.client_id, args.tenant_id)?;
        context.shared.catalog.promotion_failed(&caller, args.key, &mut context.worker.effects)
    });
    context.carry_out();
    outcome
}

pub(crate) fn register_prefetch(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::RegisterPrefetchTask>(reply, |context, args| {
        let caller = context.caller(args.client_id, args.tenant_id)?;
        context.shared.catalog.register_prefetch(&caller, args.key)
    })
}

pub(crate) fn evict(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::EvictDiskReplica>(reply, |context, args| {
        let caller = context.caller(args.client_id, args.tenant_id)?;
        context.shared.catalog.evict_disk(&caller, args.key, args.replica_type, None).map(drop)
    })
}

pub(crate) fn batch_evict(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchEvictDiskReplica>() else { return reply.bad_arguments() };
    let count = args.keys.len();
    let caller = match context.caller(args.client_id, args.tenant_id) {
        Ok(caller) => caller,
        Err(code) => return refuse_each(context, count, code, reply),
    };
    each(context, count, reply, |catalog, sink| {
        args.keys.iter().for_each(|key| sink(catalog.evict_disk(&caller, key, args.replica_type, None).map(drop)));
    })
}

pub(crate) fn evict_if_current(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::EvictDiskReplicaIfCurrent>(reply, |context, args| {
        let caller = context.caller(args.client_id, args.tenant_id)?;
        let (which, id): (ReplicaType, ReplicaId) = (args.replica_type, args.replica_id);
        if which != ReplicaType::LOCAL_DISK {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        context.shared.catalog.evict_disk(&caller, args.key, which, Some(id))
    })
}
