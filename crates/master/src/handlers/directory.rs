//! Directories of nodes: what they are told, and what they tell a master that started.

use std::ops::Range;
use std::time::Duration;

use yb_catalog::{Adopting, Order, Published, Roster, SyncCall, Whereabouts};
use yb_rpc::{Outcome, Reply};
use yb_types::{ClientId, ErrorCode};
use yb_wire::messages::{DirectoryEntry, ErrorOr, RosterArgs, RosterReply, SyncDirectoryReply, TellDirectoryReply};
use yb_wire::{Call, call};

use crate::service::{Context, encode_body};

/// Objects of one answer, whatever a node asks for.
const LIMIT: usize = 1024;
/// The flag of a hard pin.
const HARD_PIN: u8 = 1;

/// What is told of one replica; its texts lie in the buffer of the answer.
struct Copied {
    entry: DirectoryEntry<'static>,
    tenant: Range<usize>,
    group: Range<usize>,
    key: Range<usize>,
}

/// The objects of one answer, copied: they are shown under the lock of their shard.
#[derive(Default)]
struct Copies {
    texts: Vec<u8>,
    entries: Vec<Copied>,
}

impl Copies {
    fn text(&mut self, text: &[u8]) -> Range<usize> {
        let start = self.texts.len();
        self.texts.extend_from_slice(text);
        start..self.texts.len()
    }

    fn add(&mut self, record: &Published<'_>, now_ms: u64) {
        let entry = DirectoryEntry { tenant: b"", group: b"", key: b"", ..entry_of(record, now_ms) };
        let (tenant, group) = (self.text(record.tenant.as_bytes()), self.text(record.group.as_bytes()));
        let key = self.text(record.key);
        self.entries.push(Copied { entry, tenant, group, key });
    }

    fn entries(&self) -> Vec<DirectoryEntry<'_>> {
        let text = |range: &Range<usize>| self.texts.get(range.clone()).unwrap_or_default();
        let entry = |copied: &Copied| -> DirectoryEntry<'_> {
            DirectoryEntry {
                tenant: text(&copied.tenant),
                group: text(&copied.group),
                key: text(&copied.key),
                ..copied.entry
            }
        };
        self.entries.iter().map(entry).collect()
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A replica as it is told.
pub(crate) fn entry_of<'a>(record: &Published<'a>, now_ms: u64) -> DirectoryEntry<'a> {
    DirectoryEntry {
        offset: record.offset,
        size: record.size,
        generation: record.generation,
        replica: record.replica,
        writer: record.writer,
        checksum: record.checksum,
        flags: if record.hard_pin { HARD_PIN } else { 0 },
        data_type: record.data_type,
        soft_pin_until_ms: record.soft_pin.map_or(0, |left| now_ms.saturating_add(millis(left))),
        tenant: record.tenant.as_bytes(),
        group: record.group.as_bytes(),
        key: record.key,
    }
}

/// A record as it was told; texts that are none are of no tenant and no group that there can be.
pub(crate) fn published<'a>(entry: &DirectoryEntry<'a>, now_ms: u64) -> Published<'a> {
    let left = entry.soft_pin_until_ms.checked_sub(now_ms).filter(|left| *left > 0);
    let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).unwrap_or("\u{fffd}");
    Published {
        offset: entry.offset,
        size: entry.size,
        generation: entry.generation,
        replica: entry.replica,
        writer: entry.writer,
        checksum: entry.checksum,
        hard_pin: entry.flags & HARD_PIN != 0,
        soft_pin: left.map(Duration::from_millis),
        data_type: entry.data_type,
        tenant: text(entry.tenant),
        group: text(entry.group),
        key: entry.key,
    }
}

fn check_ours(context: &Context<'_, '_>, client: ClientId) -> ErrorOr<()> {
    if context.shared.nodes.is_ours(client) { Ok(()) } else { Err(ErrorCode::ILLEGAL_CLIENT) }
}

/// A node that was another master's meanwhile mounts anew.
fn check_here(context: &mut Context<'_, '_>, sync: &SyncCall) -> ErrorOr<()> {
    match context.shared.catalog.was_elsewhere(sync) {
        Whereabouts::Here => return Ok(()),
        Whereabouts::Unclear => return Err(ErrorCode::REPLICA_IS_NOT_READY),
        Whereabouts::Elsewhere => {}
    }
    tracing::warn!(
        event = "node_was_elsewhere",
        client = %sync.client,
        segment = %sync.segment,
        "another master had this node meanwhile: what lay there is forgotten, and it mounts anew. Two masters serve one pool"
    );
    context.shared.catalog.disown(sync.client, sync.now, &mut context.worker.effects);
    context.carry_out();
    Err(ErrorCode::SEGMENT_NOT_FOUND)
}

pub(crate) fn sync(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::SyncDirectory>() else { return reply.bad_arguments() };
    let sync = SyncCall {
        client: args.client_id,
        segment: args.segment_id,
        incarnation: args.incarnation,
        applied: args.applied,
        limit: usize::try_from(args.limit).unwrap_or(LIMIT).clamp(1, LIMIT),
        now: context.now(),
    };
    let (mut copies, now_ms) = (Copies::default(), yb_env::epoch_millis());
    let told = check_ours(context, args.client_id)
        .and_then(|()| check_here(context, &sync))
        .and_then(|()| context.shared.catalog.tell_directory(&sync, |record| copies.add(&record, now_ms)));
    if told.as_ref().is_ok_and(|told| told.disbelieved) {
        context.worker.lane.add(context.shared.metrics.directory_disbelieved, 1);
        tracing::warn!(event = "directory_disbelieved", client = %args.client_id, segment = %args.segment_id, "something was removed or replaced while this node was away: nothing of what it brings is offered");
    }
    let answer = told.map(|told| SyncDirectoryReply {
        incarnation: told.incarnation,
        batch: told.batch,
        order: match told.order {
            Order::Apply => 0,
            Order::ClearFirst => 1,
            Order::Tell => 2,
        },
        struck: told.struck,
        published: copies.entries(),
        roster: Some(told.roster),
    });
    // To be asked to wait is no failure.
    let is_failure = answer.as_ref().is_err_and(|code| *code != ErrorCode::REPLICA_IS_NOT_READY);
    answered::<call::SyncDirectory>(context, reply, &answer, is_failure)
}

pub(crate) fn roster(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::Roster>(reply, |context, args| {
        check_ours(context, args.client_id)?;
        let RosterArgs { incarnation, term, number, .. } = args;
        let heard = Roster { incarnation, term, number, members: args.members.iter().collect() };
        let catalog = &context.shared.catalog;
        let present = catalog.introduce((args.client_id, args.segment_id), heard, context.now())?;
        let Roster { incarnation, term, number, members } = present;
        Ok(RosterReply { incarnation, term, number, members })
    })
}

pub(crate) fn tell(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::TellDirectory>() else { return reply.bad_arguments() };
    let adopting = Adopting {
        client: args.client_id,
        segment: args.segment_id,
        incarnation: args.incarnation,
        last: args.last && args.entries.is_empty(),
        now: context.now(),
    };
    let (mut refused, now_ms, count) = (Vec::new(), yb_env::epoch_millis(), args.entries.len());
    let page = args.entries.iter().map(|entry| published(&entry, now_ms));
    let adopted = check_ours(context, args.client_id)
        .and_then(|()| context.shared.catalog.adopt(&adopting, page, |offset| refused.push(offset)));
    let (lane, metrics) = (&context.worker.lane, &context.shared.metrics);
    lane.add(metrics.directory_refused, refused.len() as u64);
    lane.add(metrics.directory_adopted, (count - refused.len()) as u64);
    if adopting.last && adopted.is_ok() {
        tracing::info!(event = "directory_read", client = %args.client_id, segment = %args.segment_id, "what the node keeps is known again");
    }
    let answer = adopted.map(|()| TellDirectoryReply { refused });
    answered::<call::TellDirectory>(context, reply, &answer, answer.is_err())
}

fn answered<C: Call>(
    context: &mut Context<'_, '_>,
    mut reply: Reply<'_>,
    answer: &C::Reply<'_>,
    failed: bool,
) -> Outcome {
    context.count((1, u64::from(failed)));
    match encode_body::<C>(context.profile, answer, reply.body()) {
        Ok(()) => reply.done(),
        Err(error) => reply.failed(error),
    }
}
