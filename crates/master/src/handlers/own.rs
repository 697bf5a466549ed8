//! Functions of our own.

use std::time::Duration;

use yb_catalog::ReplicaName;
use yb_jobs::CreateRefusal;
use yb_rpc::{Outcome, Reply};
use yb_types::{ErrorCode, Generation};
use yb_wire::call;
use yb_wire::messages::{DepartReply, HelloReply, QuiesceQuestion};

use crate::attendance;
use crate::doubts::{self, Finding};
use crate::nodes::{MASTER_CAPABILITIES, keeper};
use crate::service::{Context, encode_body};
use crate::suspects::{self, Report};

pub(crate) fn hello(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::Hello>(reply, |context, args| {
        let reply = HelloReply { master_version: env!("CARGO_PKG_VERSION"), capabilities: MASTER_CAPABILITIES };
        if !context.may_speak_for(args.client_id) {
            tracing::warn!(event = "hello_refused", client = %args.client_id, version = args.node_version, peer = ?context.request.peer, "somebody else says hello for this client");
            return Ok(reply);
        }
        tracing::info!(event = "hello", client = %args.client_id, version = args.node_version, peer = ?context.request.peer, "hello");
        context.shared.nodes.hello(args.client_id, args.node_version, args.capabilities);
        context.shared.catalog.greet(args.client_id, context.now());
        context.shared.catalog.expect_directory(args.client_id, keeper(args.capabilities));
        Ok(reply)
    })
}

/// A writer says that it lives as long as this connection, or another one over which it said so.
pub(crate) fn attend(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::Attend>() else { return reply.bad_arguments() };
    let (shared, client) = (context.shared, args.client_id);
    let from = context.request.peer;
    if reply.when_closed(attendance::farewell(shared, client)) && !shared.attendance.came(client, from) {
        tracing::debug!(%client, "too many writers attend");
    }
    context.typed::<call::Attend>(reply, |_, _| Ok(()))
}

/// A client that lends memory is about to end.
pub(crate) fn depart(context: &mut Context<'_, '_>, mut reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::Depart>() else { return reply.bad_arguments() };
    let shared = context.shared;
    let within = Duration::from_millis(args.within_ms);
    let report = if !context.may_speak_for(args.client_id) {
        tracing::warn!(event = "departure_refused", client = %args.client_id, peer = ?context.request.peer, "somebody else says that this client leaves");
        Err(ErrorCode::INVALID_PARAMS)
    } else {
        shared.jobs.leave(shared, args.client_id, within).map_err(|refusal| match refusal {
            // It names no segment: it has none.
            CreateRefusal::Params => ErrorCode::SEGMENT_NOT_FOUND,
            refusal => refusal.code(),
        })
    };
    let answer = report.as_ref().map_err(|code| *code).map(|report| DepartReply {
        ended: report.status.is_terminal(),
        moved_units: report.succeeded_units,
        moved_bytes: report.migrated_bytes,
        left_units: report.left_units,
        message: &report.message,
    });
    context.count((1, u64::from(answer.is_err())));
    match encode_body::<call::Depart>(context.profile, &answer, reply.body()) {
        Ok(()) => reply.done(),
        Err(error) => reply.failed(error),
    }
}

/// A client found nobody at the data address of a node.
pub(crate) fn report_suspect(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::ReportSuspect>(reply, |context, args| {
        let is_own = context.may_speak_for(args.client_id);
        let found = Report { by: args.client_id, endpoint: args.endpoint, reason: args.reason, is_own };
        let answer = suspects::report(context.shared, &found, &mut context.worker.effects);
        context.carry_out();
        answer
    })
}

/// A node did not take in time what a client wrote.
pub(crate) fn report_slow(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::ReportSlow>(reply, |context, args| {
        let is_own = context.may_speak_for(args.client_id);
        let found = Report { by: args.client_id, endpoint: args.endpoint, reason: args.reason, is_own };
        let answer = suspects::report_slow(context.shared, &found, &mut context.worker.effects);
        context.carry_out();
        answer
    })
}

/// A client read other bytes of a replica than were written.
pub(crate) fn report_corrupt(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::ReportCorrupt>(reply, |context, args| {
        let tenant = context.shared.catalog.tenants().reader(args.tenant_id)?;
        let name = ReplicaName { tenant, key: args.key, replica: args.replica, checksum: args.written };
        let address = context.request.peer.map(|peer| peer.ip());
        let finding = Finding { by: args.client_id, address, name, found: args.found };
        let answer = doubts::report(context.shared, &finding, &mut context.worker.effects);
        context.carry_out();
        answer
    })
}

/// Takes away what the node finds bad in its own memory, and hands out new questions.
pub(crate) fn poll_doubts(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::PollDoubts>(reply, |context, args| {
        let shared = context.shared;
        if !shared.nodes.is_ours(args.client_id) {
            return Err(ErrorCode::ILLEGAL_CLIENT);
        }
        for answer in args.answers.iter() {
            doubts::answered(shared, args.client_id, &answer, &mut context.worker.effects);
        }
        context.carry_out();
        Ok(shared.doubts.take(args.client_id, usize::try_from(args.limit).unwrap_or(usize::MAX)))
    })
}

/// Frees what the node confirms, in its own segments only, and hands out new questions.
pub(crate) fn poll_quiesce(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::PollQuiesce>(reply, |context, args| {
        let shared = context.shared;
        if !shared.nodes.is_ours(args.client_id) {
            return Err(ErrorCode::ILLEGAL_CLIENT);
        }
        for confirmed in args.confirmed.iter() {
            let is_own = shared.catalog.segment_owner(confirmed.segment_id) == Some(args.client_id);
            if let (true, Some(generation)) = (is_own, std::num::NonZeroU64::new(confirmed.generation)) {
                shared.catalog.confirm_quiesced(confirmed.segment_id, confirmed.address, Generation(generation));
            }
        }
        let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
        let questions = shared.nodes.take_questions(args.client_id, limit);
        let questions = questions.into_iter().map(|question| QuiesceQuestion {
            segment_id: question.segment,
            address: question.address,
            size: question.size.0,
            generation: question.generation.0.get(),
            writer: question.writer,
        });
        Ok(questions.collect())
    })
}
