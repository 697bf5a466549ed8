//! Put and upsert: reserve, publish, revoke. They differ in what the catalog does at the start; an end and a revoke are
//! the same for both.

use yb_catalog::{Caller, Catalog, PutCall, PutRefusal, Quiet};
use yb_metrics::Lane;
use yb_pack::List;
use yb_rpc::{Outcome, Reply};
use yb_types::{ErrorCode, ReplicaId, ReplicaType, ReplicateConfig};
use yb_wire::messages::{
    BatchPutStartArgs, EndedWrite, ErrorOr, ObjectMetaRef, PutEndArgs, PutRevokeArgs, PutStartArgs,
};
use yb_wire::{Rpc, call};

use super::lookup::replica_ref;
use crate::service::{Context, write_body, written};
use crate::shared::Shared;
use crate::waiting::{Start, Waiting, WaitingAnswer, WaitingStart};

pub(crate) fn put_start(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::PutStart>() else { return reply.bad_arguments() };
    start_one(context, args, reply)
}

pub(crate) fn upsert_start(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::UpsertStart>() else { return reply.bad_arguments() };
    start_one(context, args, reply)
}

fn start_one(context: &mut Context<'_, '_>, mut args: PutStartArgs<'_>, reply: Reply<'_>) -> Outcome {
    context.shared.catalog.narrow_preferred(&mut args.config);
    let items = [(args.key, args.slice_length)];
    let caller = context.writer(args.client_id, args.tenant_id);
    reserve(context, caller, &args.config, items.into_iter(), false, reply)
}

pub(crate) fn batch_put_start(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchPutStart>() else { return reply.bad_arguments() };
    start_many(context, args, reply)
}

pub(crate) fn batch_upsert_start(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchUpsertStart>() else { return reply.bad_arguments() };
    start_many(context, args, reply)
}

fn start_many(context: &mut Context<'_, '_>, mut args: BatchPutStartArgs<'_>, reply: Reply<'_>) -> Outcome {
    let count = args.keys.len();
    let nics = args.config.per_key_preferred_hca_names.as_ref();
    if args.slice_lengths.len() != count || nics.is_some_and(|nics| nics.len() != count) {
        return refuse_each(context, count, ErrorCode::INVALID_PARAMS, reply);
    }
    context.shared.catalog.narrow_preferred(&mut args.config);
    let items = args.keys.iter().zip(args.slice_lengths.iter());
    let caller = context.writer(args.client_id, args.tenant_id);
    reserve(context, caller, &args.config, items, true, reply)
}

fn reserve<'k>(
    context: &mut Context<'_, '_>,
    caller: Caller,
    config: &ReplicateConfig,
    items: impl ExactSizeIterator<Item = (&'k [u8], u64)> + Clone,
    batch: bool,
    mut reply: Reply<'_>,
) -> Outcome {
    let count = items.len();
    let call = PutCall { caller, config, allow_empty: true, waited: false };
    let start =
        if matches!(context.rpc, Rpc::UpsertStart | Rpc::BatchUpsertStart) { Start::Upsert } else { Start::Put };
    let (shared, worker) = (context.shared, &mut *context.worker);
    let mut refused = Vec::new();
    let (rng, effects, scratch) = (&mut worker.rng, &mut worker.effects, &mut worker.scratch);
    let form = (context.rpc, context.profile, if batch { count } else { 0 });
    let written = write_body(form, scratch, reply.body(), |writer| {
        if batch {
            writer.list(count);
        }
        let mut random = || rng.next_u64();
        start.run(&shared.catalog, &call, items.clone(), &mut random, effects, |at, answer| match answer {
            Ok(view) => {
                shared.metrics.value_size(&worker.lane, view.size());
                writer.reservation(view.replicas().map(replica_ref));
            }
            Err(refusal) => {
                refused.push((at, refusal));
                writer.err(refusal.code());
            }
        });
    });
    context.carry_out();
    if let Err(error) = written {
        return reply.failed(error);
    }
    let waits = refused.iter().any(|(_, refusal)| refusal.waits());
    if waits && let Some(until) = shared.waiting.admit(caller.client, count, context.now()) {
        let (deferred, outcome) = reply.defer();
        let items = items.map(|(key, size)| (key.to_vec(), size)).collect();
        // It is looked at every few milliseconds: what the start has checked stays behind.
        let config = ReplicateConfig {
            session_ids: None,
            residency_affinity_ids: None,
            per_key_preferred_hca_names: None,
            ..config.clone()
        };
        let start = WaitingStart { start, caller, config, items, batch };
        let answer = WaitingAnswer { rpc: context.rpc, profile: context.profile, deferred, until };
        shared.waiting.enter(Waiting { start, refused, answer });
        shared.janitor.wake();
        return outcome;
    }
    for (_, refusal) in &refused {
        count_refusal(shared, &context.worker.lane, *refusal, batch);
    }
    context.count((count as u64, refused.len() as u64));
    reply.done()
}

/// Counts a write that is refused for good.
pub(crate) fn count_refusal(shared: &Shared, lane: &Lane, refusal: PutRefusal, batch: bool) {
    if refusal == PutRefusal::Exists {
        shared.metrics.existed(lane, batch);
    }
    shared.metrics.refused(lane, refusal);
}

pub(crate) fn put_end(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::PutEnd>(reply, end_one)
}

pub(crate) fn upsert_end(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::UpsertEnd>(reply, end_one)
}

fn end_one(context: &mut Context<'_, '_>, args: PutEndArgs<'_>) -> ErrorOr<()> {
    let meta = args.object_meta;
    let mut result = Err(ErrorCode::INTERNAL_ERROR);
    let caller = context.caller(args.client_id, args.tenant_id)?;
    let items = [(meta.key, meta.object_checksum)];
    context.shared.catalog.put_end(&caller, args.replica_type, items, |_, answer| result = answer);
    result
}

pub(crate) fn batch_put_end(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchPutEnd>() else { return reply.bad_arguments() };
    let caller = context.caller(args.client_id, args.tenant_id);
    end_many(context, caller, args.replica_type, &args.object_metas, reply)
}

pub(crate) fn batch_upsert_end(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchUpsertEnd>() else { return reply.bad_arguments() };
    let caller = context.caller(args.client_id, args.tenant_id);
    end_many(context, caller, ReplicaType::ALL, &args.object_metas, reply)
}

fn end_many(
    context: &mut Context<'_, '_>,
    caller: ErrorOr<Caller>,
    which: ReplicaType,
    metas: &List<'_, ObjectMetaRef<'_>>,
    reply: Reply<'_>,
) -> Outcome {
    let count = metas.len();
    let caller = match caller {
        Ok(caller) => caller,
        Err(code) => return refuse_each(context, count, code, reply),
    };
    let items = metas.iter().map(|meta| (meta.key, meta.object_checksum));
    each(context, count, reply, |catalog, sink| catalog.put_end(&caller, which, items, |_, answer| sink(answer)))
}

pub(crate) fn put_revoke(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let outcome = context.typed::<call::PutRevoke>(reply, revoke_one);
    context.carry_out();
    outcome
}

pub(crate) fn upsert_revoke(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let outcome = context.typed::<call::UpsertRevoke>(reply, revoke_one);
    context.carry_out();
    outcome
}

fn revoke_one(context: &mut Context<'_, '_>, args: PutRevokeArgs<'_>) -> ErrorOr<()> {
    let mut result = Err(ErrorCode::INTERNAL_ERROR);
    let caller = context.caller(args.client_id, args.tenant_id)?;
    let effects = &mut context.worker.effects;
    context.shared.catalog.put_revoke(&caller, args.replica_type, [args.key], effects, |_, answer| result = answer);
    result
}

pub(crate) fn batch_put_revoke(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchPutRevoke>() else { return reply.bad_arguments() };
    let caller = context.caller(args.client_id, args.tenant_id);
    revoke_many(context, caller, args.replica_type, &args.keys, reply)
}

pub(crate) fn batch_upsert_revoke(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchUpsertRevoke>() else { return reply.bad_arguments() };
    let caller = context.caller(args.client_id, args.tenant_id);
    revoke_many(context, caller, ReplicaType::ALL, &args.keys, reply)
}

fn revoke_many(
    context: &mut Context<'_, '_>,
    caller: ErrorOr<Caller>,
    which: ReplicaType,
    keys: &List<'_, &[u8]>,
    reply: Reply<'_>,
) -> Outcome {
    let count = keys.len();
    let caller = match caller {
        Ok(caller) => caller,
        Err(code) => return refuse_each(context, count, code, reply),
    };
    let mut effects = std::mem::take(&mut context.worker.effects);
    let outcome = each(context, count, reply, |catalog, sink| {
        catalog.put_revoke(&caller, which, keys.iter(), &mut effects, |_, answer| sink(answer));
    });
    context.worker.effects = effects;
    context.carry_out();
    outcome
}

pub(crate) fn batch_put_revoke_quiet(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchPutRevokeQuiet>() else { return reply.bad_arguments() };
    let count = args.keys.len();
    let caller = match context.caller(args.client_id, args.tenant_id) {
        Ok(caller) => caller,
        Err(code) => return refuse_each(context, count, code, reply),
    };
    each(context, count, reply, |catalog, sink| {
        catalog.put_revoke_quiet(&caller, args.replica_type, args.keys.iter(), |_, answer| sink(answer));
    })
}

/// A client of ours names the write that it ends.
pub(crate) fn end_write(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::EndWrite>(reply, |context, args| {
        let mut result = Err(ErrorCode::INTERNAL_ERROR);
        let caller = context.caller(args.client_id, args.tenant_id)?;
        let items = [named(args.ended)];
        context.shared.catalog.end_writes(&caller, args.replica_type, items, |_, answer| result = answer);
        result
    })
}

/// The same of many.
pub(crate) fn batch_end_writes(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchEndWrites>() else { return reply.bad_arguments() };
    let count = args.ended.len();
    let caller = match context.caller(args.client_id, args.tenant_id) {
        Ok(caller) => caller,
        Err(code) => return refuse_each(context, count, code, reply),
    };
    let items = args.ended.iter().map(named);
    let which = args.replica_type;
    each(context, count, reply, |catalog, sink| catalog.end_writes(&caller, which, items, |_, answer| sink(answer)))
}

fn named(ended: EndedWrite<'_>) -> (&[u8], ReplicaId, Option<u64>) {
    (ended.write.key, ended.write.replica, ended.checksum)
}

/// A client of ours names the writes that it gives up.
pub(crate) fn batch_revoke_writes(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchRevokeWrites>() else { return reply.bad_arguments() };
    let count = args.writes.len();
    let caller = match context.caller(args.client_id, args.tenant_id) {
        Ok(caller) => caller,
        Err(code) => return refuse_each(context, count, code, reply),
    };
    let how = (args.replica_type, if args.quiet { Quiet::Yes } else { Quiet::No });
    let mut effects = std::mem::take(&mut context.worker.effects);
    let outcome = each(context, count, reply, |catalog, sink| {
        let writes = args.writes.iter().map(|write| (write.key, write.replica));
        catalog.revoke_writes(&caller, how, writes, &mut effects, |_, answer| sink(answer));
    });
    context.worker.effects = effects;
    context.carry_out();
    outcome
}

/// Answers every element of a batch with the same code.
pub(super) fn refuse_each(context: &mut Context<'_, '_>, count: usize, code: ErrorCode, reply: Reply<'_>) -> Outcome {
    context.count((count as u64, count as u64));
    written(context.rpc, context.profile, count, &mut context.worker.scratch, reply, |writer| {
        writer.list(count);
        (0..count).for_each(|_| writer.err(code));
    })
}

/// Answers a batch whose elements are results without a value.
pub(super) fn each(
    context: &mut Context<'_, '_>,
    count: usize,
    reply: Reply<'_>,
    run: impl FnOnce(&Catalog, &mut dyn FnMut(ErrorOr<()>)),
) -> Outcome {
    let mut failed = 0;
    let catalog = &context.shared.catalog;
    let outcome = written(context.rpc, context.profile, count, &mut context.worker.scratch, reply, |writer| {
        writer.list(count);
        run(catalog, &mut |answer: ErrorOr<()>| match answer {
            Ok(()) => writer.ok(),
            Err(code) => {
                failed += 1;
                writer.err(code);
            }
        });
    });
    context.count((count as u64, failed));
    outcome
}
