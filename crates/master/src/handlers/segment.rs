//! Segments come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use yb_catalog::{Effects, MountRefusal};
use yb_pack::PackMap;
use yb_rpc::{DeferredReply, Outcome, Reply};
use yb_types::{ClientId, ErrorCode, MonotonicTime, Segment, SegmentId, SegmentStatus};
use yb_wire::{Call, Rpc, WireProfile, call};

use crate::dial::can_dial;
use crate::service::{Context, encode_body};
use crate::shared::Shared;

/// What a client wants mounted.
struct Mounting {
    segments: Vec<Segment>,
    client: ClientId,
    /// After NEED_REMOUNT: all or nothing.
    again: bool,
    /// Who asks; `None` over a UNIX socket.
    from: Option<IpAddr>,
}

impl Mounting {
    /// Addresses of the segments that are new, each once.
    fn endpoints(&self, shared: &Shared) -> Vec<String> {
        let new = self.segments.iter().filter(|segment| shared.catalog.segment_status(segment.id).is_none());
        let mut endpoints: Vec<String> =
            new.map(|segment| segment.te_endpoint.clone()).filter(|endpoint| can_dial(endpoint)).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        endpoints
    }

    fn run(self, shared: &Shared, now: MonotonicTime, effects: &mut Effects) -> Result<(), ErrorCode> {
        let Mounting { segments, client, again, from } = self;
        let described = describe(&segments);
        let is_new = |id: &SegmentId| shared.catalog.segment_status(*id).is_none();
        let new: Vec<SegmentId> = segments.iter().map(|segment| segment.id).filter(is_new).collect();
        if from.is_some_and(|address| !shared.origins.enter(address, &new)) {
            tracing::warn!(event = "mount_refused", %client, ?from, "mount refused: too many segments of one address (max_segments_per_address)");
            return Err(ErrorCode::INTERNAL_ERROR);
        }
        let mounted = if again {
            shared.catalog.remount(segments, client, now, effects)
        } else {
            segments.into_iter().try_for_each(|segment| shared.catalog.mount(segment, client, now, effects))
        };
        match mounted {
            Ok(()) => {
                tracing::info!(event = "mounted", %client, segments = described, "mounted");
                Ok(())
            }
            Err(refusal) => {
                new.into_iter().filter(is_new).for_each(|id| shared.origins.leave(id));
                Err(refused(client, &refusal))
            }
        }
    }
}

/// Segments that a line of the log names.
const NAMED_IN_LOG: usize = 8;
/// Letters of a name that it shows.
const LETTERS_IN_LOG: usize = 128;

fn describe(segments: &[Segment]) -> String {
    let short = |text: &str| text.chars().take(LETTERS_IN_LOG).collect::<String>();
    let one = |s: &Segment| format!("{:?} ({}, {})", short(&s.name), yb_types::ByteLen(s.size), short(&s.te_endpoint));
    let mut named: Vec<String> = segments.iter().take(NAMED_IN_LOG).map(one).collect();
    if segments.len() > NAMED_IN_LOG {
        named.push(format!("{} more", segments.len() - NAMED_IN_LOG));
    }
    named.join(", ")
}

fn refused(client: ClientId, refusal: &MountRefusal) -> ErrorCode {
    tracing::warn!(event = "mount_refused", %client, %refusal, "mount refused");
    refusal.code()
}

pub(crate) fn mount(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::MountSegment>() else { return reply.bad_arguments() };
    let mounting =
        Mounting { segments: vec![args.segment], client: args.client_id, again: false, from: context.origin() };
    mount_checked::<call::MountSegment>(context, mounting, reply)
}

pub(crate) fn remount(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::ReMountSegment>() else { return reply.bad_arguments() };
    let mounting = Mounting { segments: args.segments, client: args.client_id, again: true, from: context.origin() };
    mount_checked::<call::ReMountSegment>(context, mounting, reply)
}

/// Mounts at once what a peer's client announces; what a node of ours announces only if somebody answers there.
fn mount_checked<C>(context: &mut Context<'_, '_>, mounting: Mounting, mut reply: Reply<'_>) -> Outcome
where
    C: for<'a> Call<Reply<'a> = Result<(), ErrorCode>>,
{
    let shared = Arc::clone(context.shared);
    let endpoints = mounting.endpoints(&shared);
    let dialer = shared.dialer.as_ref().filter(|_| !endpoints.is_empty());
    if let Some(dialer) = dialer
        && shared.nodes.is_ours(mounting.client)
    {
        let (deferred, outcome) = reply.defer();
        let (later, profile, rpc) = (Arc::clone(&shared), context.profile, context.rpc);
        let queued = dialer.check(endpoints, move |verdict| {
            answer_after_dial::<C>(&later, mounting, verdict, Answer { deferred, profile, rpc });
        });
        if !queued {
            tracing::warn!(event = "dial_back_crowded", "a mount was refused: too many dial-backs wait");
        }
        return outcome;
    }
    if let Some(dialer) = dialer {
        let (later, client) = (Arc::clone(&shared), mounting.client);
        dialer.check(endpoints, move |verdict| note_dial(&later, client, &verdict));
    }
    let value = mounting.run(&shared, context.now(), &mut context.worker.effects);
    context.count((1, u64::from(value.is_err())));
    context.carry_out();
    match encode_body::<C>(context.profile, &value, reply.body()) {
        Ok(()) => reply.done(),
        Err(error) => reply.failed(error),
    }
}

/// Where the answer to a mount goes when the dial-back is through.
struct Answer {
    deferred: DeferredReply,
    profile: WireProfile,
    rpc: Rpc,
}

fn note_dial(shared: &Shared, client: ClientId, verdict: &Result<(), String>) {
    let lane = shared.metrics.shared_lane();
    lane.add(shared.metrics.dial_backs, 1);
    if let Err(why) = verdict {
        lane.add(shared.metrics.dial_back_failures, 1);
        tracing::warn!(event = "dial_back_failed", %client, "the data address of a mounted segment does not answer: {why}");
    }
}

fn answer_after_dial<C>(shared: &Shared, mounting: Mounting, verdict: Result<(), String>, answer: Answer)
where
    C: for<'a> Call<Reply<'a> = Result<(), ErrorCode>>,
{
    let lane = shared.metrics.shared_lane();
    note_dial(shared, mounting.client, &verdict);
    if let Err(why) = verdict {
        shared.metrics.call(lane, answer.rpc, 1, 1);
        let text = format!(
            "mount refused: the master cannot reach the data address of this node ({why}); other nodes and clients \
             could not either. Give an address that is reachable from the master (node setting --host), or start the \
             master with --dial_back=false"
        );
        return answer.deferred.fail(&text);
    }
    let mut effects = Effects::default();
    let value = mounting.run(shared, shared.clock.now(), &mut effects);
    shared.metrics.call(lane, answer.rpc, 1, u64::from(value.is_err()));
    shared.carry_out(&mut effects, lane);
    answer.deferred.send(|out| {
        if let Err(error) = encode_body::<C>(answer.profile, &value, out) {
            tracing::error!(error, "the answer to a mount cannot be encoded");
        }
    });
}

pub(crate) fn unmount(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let outcome = context.typed::<call::UnmountSegment>(reply, |context, args| {
        let now = context.now();
        context.shared.catalog.unmount(args.segment_id, args.client_id, now, &mut context.worker.effects)
    });
    context.carry_out();
    outcome
}

pub(crate) fn graceful_unmount(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::GracefulUnmountSegment>(reply, |context, args| {
        context.shared.catalog.begin_to_leave(args.segment_id, args.client_id)?;
        let deadline = context.now() + Duration::from_millis(args.grace_period_ms);
        context.shared.graceful.schedule(args.segment_id, args.client_id, deadline);
        context.shared.janitor.wake();
        Ok(())
    })
}

pub(crate) fn query_status(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::QuerySegmentStatus>(reply, |context, args| {
        let name = std::str::from_utf8(args.segment_name).map_err(|_| ErrorCode::SEGMENT_NOT_FOUND)?;
        context.shared.catalog.segment_status_by_name(name).ok_or(ErrorCode::SEGMENT_NOT_FOUND)
    })
}

pub(crate) fn query_status_by_id(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::QuerySegmentStatusById>(reply, |context, args| {
        context.shared.catalog.segment_status(args.segment_id).ok_or(ErrorCode::SEGMENT_NOT_FOUND)
    })
}

pub(crate) fn batch_query_ip(context: &mut Context<'_, '_>, mut reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::BatchQueryIp>() else { return reply.bad_arguments() };
    let segments = context.shared.catalog.segments();
    let mut by_client: BTreeMap<ClientId, Vec<&[u8]>> =
        args.client_ids.iter().map(|client| (client, Vec::new())).collect();
    let mut owners = BTreeSet::new();
    for segment in segments.iter().filter(|segment| segment.status() != SegmentStatus::UNMOUNTING) {
        let Some(list) = by_client.get_mut(&segment.owner()) else { continue };
        owners.insert(segment.owner());
        if let Some(host) = host_of(&segment.info().te_endpoint).map(str::as_bytes)
            && !list.contains(&host)
        {
            list.push(host);
        }
    }
    let hosts: Vec<(ClientId, Vec<&[u8]>)> =
        by_client.into_iter().filter(|(client, _)| owners.contains(client)).collect();
    let missing = args.client_ids.len().saturating_sub(hosts.len());
    context.count((args.client_ids.len() as u64, missing as u64));
    match encode_body::<call::BatchQueryIp>(context.profile, &Ok(PackMap(hosts)), reply.body()) {
        Ok(()) => reply.done(),
        Err(error) => reply.failed(error),
    }
}

/// `a.b.c.d:port` and `[v6]:port` without the port and brackets; a bare IPv6 address as it is; nothing for an empty one.
fn host_of(endpoint: &str) -> Option<&str> {
    if endpoint.is_empty() {
        return None;
    }
    if let Some((host, _)) = endpoint.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        return Some(host);
    }
    match endpoint.split_once(':') {
        Some((host, port)) if !port.contains(':') => Some(host),
        _ => Some(endpoint),
    }
}

#[cfg(test)]
mod tests {
    use super::host_of;

    #[test]
    fn hosts() {
        assert_eq!(host_of("10.0.0.1:99"), Some("10.0.0.1"));
        assert_eq!(host_of("[fe80::1%eth0]:99"), Some("fe80::1%eth0"));
        assert_eq!(host_of("fe80::1"), Some("fe80::1"));
        assert_eq!(host_of("node-1"), Some("node-1"));
        assert_eq!(host_of(""), None);
    }
}
