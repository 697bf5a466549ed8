//! Copies and moves: what the client that makes them asks for and reports.

use yb_catalog::{Caller, CopyCall, CopyEnd, CopyKind, CopyLease, CopyTarget, CopyView};
use yb_rpc::{Outcome, Reply};
use yb_types::{ClientId, ErrorCode, ReplicaDescriptor, Uuid};
use yb_wire::call;
use yb_wire::messages::{CopyStartResponse, ErrorOr, MoveStartResponse, NamedCopyArgs};

use super::lookup::descriptor;
use crate::service::Context;

/// A segment's name; one that is no text is the name of none.
pub(super) fn name(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("")
}

/// Source and targets, copied out of the catalog.
type Begun = (ReplicaDescriptor, Vec<ReplicaDescriptor>);

fn begin(context: &Context<'_, '_>, kind: CopyKind, call: &CopyCall<'_>) -> ErrorOr<Begun> {
    let catalog = &context.shared.catalog;
    let mut begun = None;
    let sink = |view: CopyView<'_>| {
        begun = Some((descriptor(view.source), view.targets.into_iter().map(descriptor).collect()));
    };
    let answer = match kind {
        CopyKind::Copy => catalog.copy_start(call, sink),
        CopyKind::Move => catalog.move_start(call, sink),
    };
    answer.and_then(|()| begun.ok_or(ErrorCode::INTERNAL_ERROR))
}

pub(crate) fn copy_start(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::CopyStart>(reply, |context, args| {
        let targets: Vec<&str> = args.tgt_segments.iter().map(name).collect();
        let caller = context.writer(args.client_id, args.tenant_id);
        let call = CopyCall { caller, key: args.key, source: name(args.src_segment), targets: &targets, lease: None };
        begin(context, CopyKind::Copy, &call).map(|(source, targets)| CopyStartResponse { source, targets })
    })
}

pub(crate) fn dynamic_copy_start(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::DynamicReplicaCopyStart>(reply, |context, args| {
        let targets: Vec<&str> = args.tgt_segments.iter().map(name).collect();
        let caller = context.writer(args.client_id, args.tenant_id);
        let lease = lease(args.dynamic_replication_lease_id, args.dynamic_replication_version_epoch);
        let call = CopyCall { caller, key: args.key, source: name(args.src_segment), targets: &targets, lease };
        begin(context, CopyKind::Copy, &call).map(|(source, targets)| CopyStartResponse { source, targets })
    })
}

pub(crate) fn move_start(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::MoveStart>(reply, |context, args| {
        let targets = [name(args.tgt_segment)];
        let caller = context.writer(args.client_id, args.tenant_id);
        let call = CopyCall { caller, key: args.key, source: name(args.src_segment), targets: &targets, lease: None };
        begin(context, CopyKind::Move, &call)
            .map(|(source, targets)| MoveStartResponse { source, target: targets.into_iter().next() })
    })
}

fn lease(id: Uuid, epoch: u64) -> Option<CopyLease> {
    Some(CopyLease { id, epoch })
}

/// Whose copy of which key a call is about.
struct About<'r> {
    client: ClientId,
    tenant: &'r [u8],
    key: &'r [u8],
    kind: CopyKind,
    lease: Option<CopyLease>,
    target: Option<CopyTarget>,
}

impl<'r> About<'r> {
    fn end(&self, context: &Context<'_, '_>) -> ErrorOr<CopyEnd<'r>> {
        let caller: Caller = context.caller(self.client, self.tenant)?;
        Ok(CopyEnd { caller, key: self.key, kind: self.kind, lease: self.lease, target: self.target })
    }
}

fn end(context: &mut Context<'_, '_>, about: &About<'_>) -> ErrorOr<()> {
    context.shared.catalog.copy_end(&about.end(context)?)
}

fn revoke(context: &mut Context<'_, '_>, about: &About<'_>) -> ErrorOr<()> {
    let end = about.end(context)?;
    let revoked = context.shared.catalog.copy_revoke(&end, &mut context.worker.effects);
    context.carry_out();
    revoked
}

macro_rules! ends {
    ($($handler:ident: $rpc:ident, $kind:ident, $then:ident;)*) => {$(
        pub(crate) fn $handler(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
            context.typed::<call::$rpc>(reply, |context, args| {
                let (client, tenant, key) = (args.client_id, args.tenant_id, args.key);
                $then(context, &About { client, tenant, key, kind: CopyKind::$kind, lease: None, target: None })
            })
        }
    )*};
}

ends! {
    copy_end: CopyEnd, Copy, end;
    copy_revoke: CopyRevoke, Copy, revoke;
    move_end: MoveEnd, Move, end;
    move_revoke: MoveRevoke, Move, revoke;
}

macro_rules! dynamic_ends {
    ($($handler:ident: $rpc:ident, $then:ident;)*) => {$(
        pub(crate) fn $handler(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
            context.typed::<call::$rpc>(reply, |context, args| {
                let lease = lease(args.dynamic_replication_lease_id, args.dynamic_replication_version_epoch);
                let (client, tenant, key) = (args.client_id, args.tenant_id, args.key);
                $then(context, &About { client, tenant, key, kind: CopyKind::Copy, lease, target: None })
            })
        }
    )*};
}

dynamic_ends! {
    dynamic_copy_end: DynamicReplicaCopyEnd, end;
    dynamic_copy_revoke: DynamicReplicaCopyRevoke, revoke;
}

impl<'r> From<NamedCopyArgs<'r>> for About<'r> {
    fn from(args: NamedCopyArgs<'r>) -> Self {
        let NamedCopyArgs { client_id: client, key, tenant_id: tenant, target, moves } = args;
        let kind = if moves { CopyKind::Move } else { CopyKind::Copy };
        About { client, tenant, key, kind, lease: None, target: Some(CopyTarget(target)) }
    }
}

/// A client of ours says which copy ended.
pub(crate) fn named_end(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::EndCopy>(reply, |context, args| end(context, &args.into()))
}

/// A client of ours says which copy it gives up.
pub(crate) fn named_revoke(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::RevokeCopy>(reply, |context, args| revoke(context, &args.into()))
}
