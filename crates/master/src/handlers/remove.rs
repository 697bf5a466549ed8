//! Removal. What walks over all keys goes to the slow lane.

use yb_catalog::{ClearCursor, Force, Removal, Tenant};
use yb_rpc::{Outcome, Reply};
use yb_types::ErrorCode;
use yb_wire::messages::{RemovalReply, RemoveArgs};
use yb_wire::{Call, call};

use super::lookup::Search;
use super::put::{each, refuse_each};
use crate::metrics::Tally;
use crate::service::{Context, encode_body};
use crate::shared::Shared;

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

/// Objects that one step of a removal of everything looks at.
const CLEAR_STEP: u32 = 4096;

/// A removal that walks over keys.
struct Walk {
    force: Force,
    what: What,
}

enum What {
    Matching(Search, Removal),
    /// Of whom, see [`whose`].
    All(Option<Option<Tenant>>, ClearCursor),
}

impl Walk {
    fn matching(tenant: Result<Tenant, ErrorCode>, args: &RemoveArgs<'_>) -> Walk {
        let what = What::Matching(Search::new(tenant, args.key), Removal::default());
        Walk { force: args.force.into(), what }
    }

    fn all(whose: Option<Option<Tenant>>, force: bool) -> Walk {
        Walk { force: force.into(), what: What::All(whose, ClearCursor::default()) }
    }

    /// Does a step; answers whether there are more.
    fn step(&mut self, shared: &Shared) -> Result<bool, ErrorCode> {
        let (force, now) = (self.force, shared.clock.now());
        match &mut self.what {
            What::Matching(search, tally) => search.step(|tenant, pattern, walk| {
                shared.catalog.regex_removal_step((tenant, force), pattern, walk, now, tally)
            }),
            What::All(Some(whose), cursor) => Ok(shared.catalog.clear_step(*whose, force, cursor, CLEAR_STEP, now)),
            What::All(None, _) => Ok(false),
        }
    }

    fn tally(&self) -> Removal {
        match &self.what {
            What::Matching(_, tally) => *tally,
            What::All(_, cursor) => cursor.tally,
        }
    }
}

pub(crate) fn remove_by_regex(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::RemoveByRegex>() else { return reply.bad_arguments() };
    let walk = Walk::matching(context.tenant(args.tenant_id), &args);
    walk_slowly::<call::RemoveByRegex, _>(context, reply, walk, |done| done.map(|tally| signed(tally.removed)))
}

pub(crate) fn remove_all(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::RemoveAll>() else { return reply.bad_arguments() };
    let walk = Walk::all(whose(context, args.tenant_id), args.force);
    walk_slowly::<call::RemoveAll, _>(context, reply, walk, |done| done.map_or(0, |tally| signed(tally.removed)))
}

/// Both of them, for those who want to know what stayed.
pub(crate) fn remove_matching(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::RemoveMatching>() else { return reply.bad_arguments() };
    let walk = match args.key {
        [] => Walk::all(whose(context, args.tenant_id), args.force),
        _ => Walk::matching(context.tenant(args.tenant_id), &args),
    };
    walk_slowly::<call::RemoveMatching, _>(context, reply, walk, |done| {
        done.map(|Removal { removed, leased, busy }| RemovalReply { removed, leased, busy })
    })
}

fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Walks in the slow lane, and answers at the end.
fn walk_slowly<C, T>(
    context: &Context<'_, '_>,
    reply: Reply<'_>,
    mut walk: Walk,
    answer: impl Fn(Result<Removal, ErrorCode>) -> T + Send + 'static,
) -> Outcome
where
    C: for<'r> Call<Reply<'r> = T>,
    T: Tally,
{
    let (shared, profile) = (context.shared.clone(), context.profile);
    let (deferred, outcome) = reply.defer();
    let mut deferred = Some(deferred);
    let queued = context.shared.slow.submit_steps(move || {
        let done = match walk.step(&shared) {
            Ok(true) => return true,
            Ok(false) => Ok(walk.tally()),
            Err(code) => Err(code),
        };
        let Some(deferred) = deferred.take() else { return false };
        let value = answer(done);
        let (items, failed) = value.tally();
        shared.metrics.call(shared.metrics.shared_lane(), C::RPC, items, failed);
        deferred.send(|out| {
            if let Err(error) = encode_body::<C>(profile, &value, out) {
                tracing::error!(error, "the answer of a removal cannot be encoded");
            }
        });
        false
    });
    if !queued {
        tracing::warn!(event = "slow_lane_full", "a removal was refused: too many wait");
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
