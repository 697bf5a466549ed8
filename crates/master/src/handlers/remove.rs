//! Removal. What walks over all keys goes to the slow lane.

use yb_catalog::{ClearCursor, Force, Tenant};
use yb_rpc::{Outcome, Reply};
use yb_types::ErrorCode;
use yb_wire::messages::ErrorOr;
use yb_wire::{Rpc, call};

use super::lookup::Search;
use super::put::{each, refuse_each};
use crate::metrics::Tally;
use crate::service::{Context, encode_body};

pub(crate) fn remove(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::Remove>(reply, |context, args| {
        let mut result = Err(ErrorCode::INTERNAL_ERROR);
        let (tenant, force, now) = (context.tenant(args.tenant_id)?, args.force.into(), context.now());
        context.shared.catalog.remove(tenant, [args.key], force, now, |_, answer| result = answer);
        result
    })
}

pub(crate) fn batch_remove(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchRemove>() else { return reply.bad_arguments() };
    let (count, now) = (args.keys.len(), context.now());
    let tenant = match context.tenant(args.tenant_id) {
        Ok(tenant) => tenant,
        Err(code) => return refuse_each(context, count, code, reply),
    };
    each(context, count, reply, |catalog, sink| {
        catalog.remove(tenant, args.keys.iter(), args.force.into(), now, |_, answer| sink(answer));
    })
}

pub(crate) fn batch_replica_clear(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::BatchReplicaClear>(reply, |context, args| {
        let caller = context.caller(args.client_id, args.tenant_id)?;
        let segment = match args.segment_name {
            [] => None,
            name => Some(std::str::from_utf8(name).map_err(|_| ErrorCode::INVALID_PARAMS)?),
        };
        let keys: Vec<&[u8]> = args.object_keys.iter().collect();
        let mut cleared = Vec::new();
        context.shared.catalog.clear_replicas(&caller, segment, keys.iter().copied(), |at, went| {
            cleared.extend(went.then_some(keys[at]));
        });
        Ok(cleared)
    })
}

pub(crate) fn remove_by_regex(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::RemoveByRegex>() else { return reply.bad_arguments() };
    let (shared, profile, force) = (context.shared.clone(), context.profile, Force::from(args.force));
    let mut search = Search::new(context.tenant(args.tenant_id), args.key);
    let (deferred, outcome) = reply.defer();
    let (mut count, mut deferred) = (0, Some(deferred));
    let queued = context.shared.slow.submit_steps(move || {
        let done = match search.step(|tenant, pattern, walk| {
            shared.catalog.regex_removal_step((tenant, force), pattern, walk, shared.clock.now(), &mut count)
        }) {
            Ok(true) => return true,
            Ok(false) => Ok(()),
            Err(code) => Err(code),
        };
        let Some(deferred) = deferred.take() else { return false };
        let removed: ErrorOr<i64> = done.map(|()| i64::try_from(count).unwrap_or(i64::MAX));
        let (items, failed) = removed.tally();
        shared.metrics.call(shared.metrics.shared_lane(), Rpc::RemoveByRegex, items, failed);
        deferred.send(|out| {
            if let Err(error) = encode_body::<call::RemoveByRegex>(profile, &removed, out) {
                tracing::error!(error, "the answer of a removal cannot be encoded");
            }
        });
        false
    });
    if !queued {
        tracing::warn!(event = "slow_lane_full", "a removal by pattern was refused: too many wait");
    }
    outcome
}

/// Objects that one step of a removal of everything looks at.
const CLEAR_STEP: u32 = 4096;

pub(crate) fn remove_all(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::RemoveAll>() else { return reply.bad_arguments() };
    let force = Force::from(args.force);
    let whose = whose(context, args.tenant_id);
    let (shared, profile) = (context.shared.clone(), context.profile);
    let (deferred, outcome) = reply.defer();
    let (mut cursor, mut deferred) = (ClearCursor::default(), Some(deferred));
    let queued = context.shared.slow.submit_steps(move || {
        let now = shared.clock.now();
        if whose.is_some_and(|whose| shared.catalog.clear_step(whose, force, &mut cursor, CLEAR_STEP, now)) {
            return true;
        }
        let Some(deferred) = deferred.take() else { return false };
        let removed = i64::try_from(cursor.removed).unwrap_or(i64::MAX);
        shared.metrics.call(shared.metrics.shared_lane(), Rpc::RemoveAll, 1, 0);
        deferred.send(|out| {
            if let Err(error) = encode_body::<call::RemoveAll>(profile, &removed, out) {
                tracing::error!(error, "the answer of a removal cannot be encoded");
            }
        });
        false
    });
    if !queued {
        tracing::warn!(event = "slow_lane_full", "a removal of everything was refused: too many wait");
    }
    outcome
}

/// Whose objects a removal of everything means: `Some(None)` for everybody's, `None` for a name that cannot be a
/// tenant's, where the peer answers that nothing was removed.
fn whose(context: &Context<'_, '_>, name: &[u8]) -> Option<Option<Tenant>> {
    if name.is_empty() || !context.shared.catalog.tenants().is_multi() {
        return Some(None);
    }
    context.tenant(name).ok().map(Some)
}
