//! Lookups: encoded straight from the catalog, nothing on the heap per key.

use smallvec::SmallVec;
use yb_catalog::{DiskView, KeyPattern, KeyWalk, ObjectView, Probe, ReplicaView, Tenant};
use yb_pack::{List, PackMap};
use yb_rpc::{DeferredReply, Outcome, Reply};
use yb_types::{
    BufferDescriptor, DEFAULT_TENANT, ErrorCode, LocalDiskDescriptor, MemoryDescriptor, ReplicaDescriptor, ReplicaKind,
    ReplicaStatus,
};
use yb_wire::messages::{ErrorOr, KeyArgs, LeaseMode};
use yb_wire::{BufferRef, LocalDiskRef, ReplicaKindRef, ReplicaRef, ReplyWriter, Rpc, call};

use super::put::refuse_each;
use crate::metrics::{Dice, Miss, Tally};
use crate::service::{Context, encode_body, written};

/// What the peer's master writes for every buffer that is not CXL, whatever transport the segment has.
const PROTOCOL: &str = "tcp";

/// A replica as it goes on the wire.
pub(crate) fn replica_ref(replica: ReplicaView<'_>) -> ReplicaRef<'_> {
    let info = replica.segment.info();
    let buffer = BufferRef {
        size: replica.size,
        buffer_address: replica.address,
        protocol: PROTOCOL,
        transport_endpoint: &info.te_endpoint,
        locality: info.locality.as_ref(),
    };
    ReplicaRef::memory(replica.id, replica.status, buffer)
}

/// A copy on a disk as it goes on the wire.
fn disk_ref(copy: DiskView<'_>) -> ReplicaRef<'_> {
    let disk = LocalDiskRef { client_id: copy.owner, object_size: copy.size, transport_endpoint: copy.endpoint };
    ReplicaRef { id: copy.id, kind: ReplicaKindRef::LocalDisk(disk), status: ReplicaStatus::COMPLETE }
}

/// Everything that can be read of an object, owned.
pub(crate) fn descriptors(view: &ObjectView<'_>) -> Vec<ReplicaDescriptor> {
    let on_disk = view.disk_copies().map(|copy| {
        let (client_id, object_size) = (copy.owner, copy.size);
        let disk = LocalDiskDescriptor { client_id, object_size, transport_endpoint: copy.endpoint.to_owned() };
        ReplicaDescriptor { id: copy.id, kind: ReplicaKind::LocalDisk(disk), status: ReplicaStatus::COMPLETE }
    });
    view.replicas().map(descriptor).chain(on_disk).collect()
}

/// The same, owned.
pub(crate) fn descriptor(replica: ReplicaView<'_>) -> ReplicaDescriptor {
    let info = replica.segment.info();
    let buffer = BufferDescriptor {
        size: replica.size,
        buffer_address: replica.address,
        protocol: PROTOCOL.to_owned(),
        transport_endpoint: info.te_endpoint.clone(),
        locality: info.locality.clone(),
    };
    ReplicaDescriptor { id: replica.id, kind: ReplicaKind::Memory(MemoryDescriptor { buffer }), status: replica.status }
}

/// What lookups found so far.
#[derive(Default)]
struct Found {
    keys: u64,
    bytes: u64,
    /// Of these, objects that lie on disks only, and their bytes.
    cold: (u64, u64),
    missed: u64,
    /// Which keys are not there: what became of them is looked up afterwards, not while shards are locked.
    absent: SmallVec<[Missed; 8]>,
}

/// A key that was not found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Missed {
    /// Its number among the keys of the call.
    at: u32,
    /// Something is under the key that cannot be read now.
    not_ready: bool,
}

impl Missed {
    fn new(at: usize, not_ready: bool) -> Missed {
        Missed { at: u32::try_from(at).unwrap_or(u32::MAX), not_ready }
    }
}

impl Found {
    fn write(
        &mut self,
        writer: &mut ReplyWriter<'_>,
        at: usize,
        answer: Result<ObjectView<'_>, ErrorCode>,
        lookup: &LookupForm<'_>,
    ) {
        match answer {
            Ok(view) => {
                self.keys += 1;
                self.bytes += view.size();
                if view.is_cold() {
                    self.cold = (self.cold.0 + 1, self.cold.1 + view.size());
                }
                let replicas = view.replicas().map(replica_ref).chain(view.disk_copies().map(disk_ref));
                writer.lookup(replicas, lookup.ttl_ms, view.checksum(), lookup.tenant);
            }
            Err(code) => {
                self.missed += 1;
                self.absent.push(Missed::new(at, code != ErrorCode::OBJECT_NOT_FOUND));
                writer.err(code);
            }
        }
    }
}

/// What every answer of a lookup says beside the replicas.
struct LookupForm<'a> {
    ttl_ms: u64,
    tenant: Option<&'a [u8]>,
}

impl<'a> LookupForm<'a> {
    /// The answer names the tenant that was meant: the default one for none, and for all while there is only one.
    fn leased(context: &Context<'_, '_>, name: &'a [u8]) -> LookupForm<'a> {
        let is_default = name.is_empty() || !context.shared.catalog.tenants().is_multi();
        let tenant = if is_default { DEFAULT_TENANT.as_bytes() } else { name };
        LookupForm { ttl_ms: context.shared.lease_ms(), tenant: Some(tenant) }
    }

    fn for_admin(context: &Context<'_, '_>) -> LookupForm<'a> {
        LookupForm { ttl_ms: context.shared.lease_ms(), tenant: None }
    }
}

/// Answers a lookup of one key with a code.
fn refuse(context: &mut Context<'_, '_>, code: ErrorCode, reply: Reply<'_>) -> Outcome {
    context.count((1, 1));
    written(context.rpc, context.profile, 0, &mut context.worker.scratch, reply, |writer| writer.err(code))
}

fn count_found<'k>(
    context: &Context<'_, '_>,
    tenant: Tenant,
    keys: impl Iterator<Item = &'k [u8]> + Clone,
    found: &mut Found,
) {
    let heat = &context.shared.jobs.heat;
    if heat.is_on() {
        let is_hit = |at: usize| !found.absent.iter().any(|absent| absent.at as usize == at);
        let hits = keys.clone().enumerate().filter(|(at, _)| is_hit(*at));
        hits.for_each(|(_, key)| heat.hit(tenant, key, context.now()));
    }
    let total = found.keys + found.missed;
    context.count((total, found.missed));
    let (metrics, lane) = (&context.shared.metrics, &context.worker.lane);
    metrics.lookups(lane, total, found.keys, found.bytes, found.cold);
    let catalog = &context.shared.catalog;
    for (key, not_ready) in chosen(keys, &mut found.absent) {
        let why = match not_ready {
            true if catalog.is_hidden(tenant, key, context.now()) => Miss::Offline,
            true => Miss::BeingWritten,
            false => Miss::Absent(catalog.why_absent(tenant, key)),
        };
        metrics.get_missed(lane, why, 1);
    }
}

/// The keys that were not found, and whether they are not ready.
fn chosen<'k, 'n>(
    keys: impl Iterator<Item = &'k [u8]> + 'n,
    missed: &'n mut SmallVec<[Missed; 8]>,
) -> impl Iterator<Item = (&'k [u8], bool)> + 'n {
    // The answers come in any order.
    missed.sort_unstable();
    let mut missed = missed.iter().peekable();
    keys.enumerate().filter_map(move |(at, key)| {
        missed.next_if(|missed| missed.at as usize == at).map(|missed| (key, missed.not_ready))
    })
}

/// Counts keys that were asked for: how many are there, and why some that were picked are not.
fn count_exists<'k>(
    context: &Context<'_, '_>,
    tenant: Tenant,
    keys: impl Iterator<Item = &'k [u8]>,
    asked: &mut Asked,
) {
    let (metrics, lane) = (&context.shared.metrics, &context.worker.lane);
    lane.add(metrics.exist_found, asked.found);
    let catalog = &context.shared.catalog;
    for (key, _) in chosen(keys, &mut asked.picked) {
        let is_hidden = catalog.is_hidden(tenant, key, context.now());
        let why = if is_hidden { Miss::Offline } else { Miss::Absent(catalog.why_absent(tenant, key)) };
        metrics.exist_missed(lane, why);
    }
}

/// What questions for existence found.
struct Asked {
    found: u64,
    dice: Dice,
    /// Some of the keys that are not there.
    picked: SmallVec<[Missed; 8]>,
}

impl Asked {
    fn new(dice: Dice) -> Asked {
        Asked { found: 0, dice, picked: SmallVec::new() }
    }

    fn note(&mut self, at: usize, exists: bool) {
        self.found += u64::from(exists);
        if !exists && self.dice.picks() {
            self.picked.push(Missed::new(at, false));
        }
    }
}

pub(crate) fn get_replica_list(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::GetReplicaList>() else { return reply.bad_arguments() };
    let tenant = match context.tenant(args.tenant_id) {
        Ok(tenant) => tenant,
        Err(code) => return refuse(context, code, reply),
    };
    let (mut found, form, now) = (Found::default(), LookupForm::leased(context, args.tenant_id), context.now());
    let catalog = &context.shared.catalog;
    let outcome = written(context.rpc, context.profile, 0, &mut context.worker.scratch, reply, |writer| {
        catalog.get_replicas(tenant, [args.key], now, |at, answer| found.write(writer, at, answer, &form));
    });
    count_found(context, tenant, [args.key].into_iter(), &mut found);
    outcome
}

pub(crate) fn batch_get_replica_list(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchGetReplicaList>() else { return reply.bad_arguments() };
    let count = args.keys.len();
    let tenant = match context.tenant(args.tenant_id) {
        Ok(tenant) => tenant,
        Err(code) => return refuse_each(context, count, code, reply),
    };
    let (mut found, form, now) = (Found::default(), LookupForm::leased(context, args.tenant_id), context.now());
    let catalog = &context.shared.catalog;
    let outcome = written(context.rpc, context.profile, count, &mut context.worker.scratch, reply, |writer| {
        writer.list(count);
        catalog.get_replicas(tenant, args.keys.iter(), now, |at, answer| found.write(writer, at, answer, &form));
    });
    count_found(context, tenant, args.keys.iter(), &mut found);
    outcome
}

pub(crate) fn get_replica_list_for_admin(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::GetReplicaListForAdmin>() else { return reply.bad_arguments() };
    let tenant = match context.tenant(args.tenant_id) {
        Ok(tenant) => tenant,
        Err(code) => return refuse(context, code, reply),
    };
    let (mut found, form) = (Found::default(), LookupForm::for_admin(context));
    let catalog = &context.shared.catalog;
    let outcome = written(context.rpc, context.profile, 0, &mut context.worker.scratch, reply, |writer| {
        catalog.peek(tenant, [args.key], |at, answer| found.write(writer, at, answer, &form));
    });
    context.count((1, found.missed));
    outcome
}

pub(crate) fn batch_get_replica_list_for_admin(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchGetReplicaListForAdmin>() else { return reply.bad_arguments() };
    let count = args.keys.len();
    let tenant = match context.tenant(args.tenant_id) {
        Ok(tenant) => tenant,
        Err(code) => return refuse_each(context, count, code, reply),
    };
    let (mut found, form) = (Found::default(), LookupForm::for_admin(context));
    let catalog = &context.shared.catalog;
    let outcome = written(context.rpc, context.profile, count, &mut context.worker.scratch, reply, |writer| {
        writer.list(count);
        catalog.peek(tenant, args.keys.iter(), |at, answer| found.write(writer, at, answer, &form));
    });
    context.count((count as u64, found.missed));
    outcome
}

pub(crate) fn exist_key(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::ExistKey>() else { return reply.bad_arguments() };
    exist_one(context, &args, Probe::Lease, reply)
}

pub(crate) fn probe_key(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::ProbeKey>() else { return reply.bad_arguments() };
    exist_one(context, &args, Probe::Only, reply)
}

fn exist_one(context: &mut Context<'_, '_>, args: &KeyArgs<'_>, probe: Probe, reply: Reply<'_>) -> Outcome {
    let tenant = match context.tenant(args.tenant_id) {
        Ok(tenant) => tenant,
        Err(code) => return refuse(context, code, reply),
    };
    let (catalog, now) = (&context.shared.catalog, context.now());
    let mut asked = Asked::new(context.worker.dice);
    let outcome = written(context.rpc, context.profile, 0, &mut context.worker.scratch, reply, |writer| {
        catalog.exist(tenant, [args.key], probe, now, |at, exists| {
            asked.note(at, exists);
            write_bool(writer, exists);
        });
    });
    context.worker.dice = asked.dice;
    count_exists(context, tenant, [args.key].into_iter(), &mut asked);
    context.count((1, 0));
    outcome
}

fn write_bool(writer: &mut ReplyWriter<'_>, value: bool) {
    writer.ok();
    writer.put(&value);
}

pub(crate) fn batch_exist_key(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchExistKey>() else { return reply.bad_arguments() };
    match context.tenant(args.tenant_id) {
        Ok(tenant) => exist_many(context, tenant, &args.keys, Probe::Lease, reply),
        Err(code) => refuse_each(context, args.keys.len(), code, reply),
    }
}

fn exist_many(
    context: &mut Context<'_, '_>,
    tenant: Tenant,
    keys: &List<'_, &[u8]>,
    probe: Probe,
    reply: Reply<'_>,
) -> Outcome {
    let (catalog, now, count) = (&context.shared.catalog, context.now(), keys.len());
    let mut asked = Asked::new(context.worker.dice);
    let outcome = written(context.rpc, context.profile, count, &mut context.worker.scratch, reply, |writer| {
        writer.list(count);
        catalog.exist(tenant, keys.iter(), probe, now, |at, exists| {
            asked.note(at, exists);
            write_bool(writer, exists);
        });
    });
    context.worker.dice = asked.dice;
    count_exists(context, tenant, keys.iter(), &mut asked);
    context.count((count as u64, 0));
    outcome
}

/// Existence with the lease policy of 0.3.14: the keys are groups of `candidate_size`; the last group that is there as a
/// whole gets read leases.
pub(crate) fn batch_probe_key(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchProbeKey>() else { return reply.bad_arguments() };
    let tenant = match context.tenant(args.tenant_id) {
        Ok(tenant) => tenant,
        Err(code) => return refuse_each(context, args.keys.len(), code, reply),
    };
    if args.policy.mode() == LeaseMode::NONE {
        return exist_many(context, tenant, &args.keys, Probe::Only, reply);
    }
    let count = args.keys.len();
    let group = usize::try_from(args.policy.candidate_size).unwrap_or(0);
    let valid = args.policy.mode() == LeaseMode::LAST_HIT_ONLY && group > 0 && count % group == 0;
    let (catalog, now) = (&context.shared.catalog, context.now());
    let mut exists = vec![false; count];
    if valid {
        catalog.exist(tenant, args.keys.iter(), Probe::Only, now, |at, yes| exists[at] = yes);
        if let Some(last) = exists.chunks(group).rposition(|group| group.iter().all(|yes| *yes)) {
            let hit = args.keys.iter().skip(last * group).take(group);
            catalog.exist(tenant, hit, Probe::Lease, now, |at, yes| exists[last * group + at] = yes);
        }
    }
    let outcome = written(Rpc::BatchProbeKey, context.profile, count, &mut context.worker.scratch, reply, |writer| {
        writer.list(count);
        for yes in &exists {
            if valid { write_bool(writer, *yes) } else { writer.err(ErrorCode::INVALID_PARAMS) }
        }
    });
    context.count((count as u64, if valid { 0 } else { count as u64 }));
    outcome
}

/// Walks over all keys, so the slow lane does it, in turns with its other work.
pub(crate) fn get_replica_list_by_regex(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::GetReplicaListByRegex>() else { return reply.bad_arguments() };
    let (shared, profile) = (context.shared.clone(), context.profile);
    let mut search = Search::new(context.tenant(args.tenant_id), args.regex);
    let (deferred, outcome) = reply.defer();
    let (mut matches, mut deferred, mut part) = (Matches::new(), Some(deferred), shared.bulk.part());
    let queued = context.shared.slow.submit_steps(move || {
        if !deferred.as_ref().is_some_and(DeferredReply::is_wanted) {
            return false;
        }
        let mut grown = 0;
        let stepped = search.step(|tenant, pattern, walk| {
            shared.catalog.regex_lookup_step(tenant, pattern, walk, shared.clock.now(), |view| {
                let found = (view.key().to_vec(), descriptors(&view));
                grown += bytes_of(&found);
                matches.push(found);
            })
        });
        if !part.grow(grown) {
            tracing::warn!(event = "slow_lane_full", "a regex lookup was refused: large answers hold too many bytes");
            deferred.take().into_iter().for_each(|deferred| deferred.fail(TOO_MUCH_FOUND));
            return false;
        }
        let done = match stepped {
            Ok(true) => return true,
            Ok(false) => Ok(()),
            Err(code) => Err(code),
        };
        let Some(deferred) = deferred.take() else { return false };
        let borrowed: ErrorOr<PackMap<&[u8], Vec<ReplicaDescriptor>>> = done
            .map(|()| PackMap(matches.iter_mut().map(|(key, all)| (key.as_slice(), std::mem::take(all))).collect()));
        let (items, failed) = borrowed.tally();
        shared.metrics.call(shared.metrics.shared_lane(), Rpc::GetReplicaListByRegex, items, failed);
        deferred.send(|out| {
            if let Err(error) = encode_body::<call::GetReplicaListByRegex>(profile, &borrowed, out) {
                tracing::error!(error, "a regex lookup cannot be encoded");
            }
        });
        false
    });
    if !queued {
        tracing::warn!(event = "slow_lane_full", "a regex lookup was refused: too many wait");
    }
    outcome
}

const TOO_MUCH_FOUND: &str = "large answers hold too many bytes; try again later, or ask for less";

/// What a match costs until its answer is sent, roughly: here, and again in the answer.
fn bytes_of((key, replicas): &(Vec<u8>, Vec<ReplicaDescriptor>)) -> usize {
    2 * (key.len() + replicas.len() * (size_of::<ReplicaDescriptor>() + 64)) + size_of::<Vec<u8>>() * 2
}

type Matches = Vec<(Vec<u8>, Vec<ReplicaDescriptor>)>;

/// A walk over the keys of a tenant that match a pattern. The pattern is compiled by the first step.
pub(super) struct Search {
    tenant: Result<Tenant, ErrorCode>,
    text: Vec<u8>,
    pattern: Option<KeyPattern>,
    walk: KeyWalk,
}

impl Search {
    pub(super) fn new(tenant: Result<Tenant, ErrorCode>, pattern: &[u8]) -> Search {
        Search { tenant, text: pattern.to_vec(), pattern: None, walk: KeyWalk::default() }
    }

    /// Does a step; answers whether there are more.
    pub(super) fn step(
        &mut self,
        work: impl FnOnce(Tenant, &KeyPattern, &mut KeyWalk) -> Result<bool, ErrorCode>,
    ) -> Result<bool, ErrorCode> {
        let tenant = self.tenant?;
        let pattern = match &mut self.pattern {
            Some(pattern) => pattern,
            none => none.insert(KeyPattern::new(&self.text)?),
        };
        work(tenant, pattern, &mut self.walk)
    }
}
