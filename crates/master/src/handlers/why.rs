//! `yuebing::Why`: what stood in the way of a call that was answered with a number.

use std::time::Duration;

use yb_catalog::{Caller, Hindrance, NodeName};
use yb_rpc::{Outcome, Reply};
use yb_types::{ClientId, ErrorCode};
use yb_wire::call;
use yb_wire::messages::{RoomReply, WHY_KEYS, WhyAnswer, WhyQuestion, WhyReason, WhyReply};

use crate::service::Context;

/// Answers [`WHY_KEYS`] questions at most, each with a look at one key.
pub(crate) fn why(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::Why>(reply, |context, args| {
        // What a client has begun is nobody else's business.
        if !context.may_speak_for(args.client_id) {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        let caller = context.caller(args.client_id, args.tenant_id)?;
        let answers = args.questions.iter().take(WHY_KEYS).map(|question| answer(context, &caller, question));
        Ok(WhyReply { answers: answers.collect(), room: args.room.then(|| room(context, args.client_id)) })
    })
}

fn answer(context: &Context<'_, '_>, caller: &Caller, question: WhyQuestion<'_>) -> WhyAnswer {
    let catalog = &context.shared.catalog;
    if question.code == ErrorCode::TENANT_QUOTA_EXCEEDED {
        let usage = catalog.tenants().usage(caller.tenant);
        return usage.map_or_else(WhyAnswer::default, |usage| WhyAnswer {
            bytes: usage.used.0,
            limit: usage.limit.0,
            ..because(WhyReason::QUOTA)
        });
    }
    match catalog.hindrance(caller, question.key) {
        Hindrance::Nothing => WhyAnswer::default(),
        Hindrance::Written { writer, age, node } => {
            let is_own = writer == caller.client;
            let reason = if is_own { WhyReason::OWN_WRITE } else { WhyReason::WRITER };
            let (host, age_ms) = (host_of(context, writer), millis(age));
            WhyAnswer { writer, host, age_ms, ..at(node, reason) }
        }
        Hindrance::Owed => WhyAnswer { writer: caller.client, ..because(WhyReason::OWN_WRITE) },
        Hindrance::Hidden { node, silent: Some(silent) } => {
            WhyAnswer { age_ms: millis(silent), ..at(Some(node), WhyReason::SILENT_NODE) }
        }
        Hindrance::Hidden { node, silent: None } => at(Some(node), WhyReason::HIDDEN_NODE),
        Hindrance::Leased(left) => WhyAnswer { left_ms: millis(left), ..because(WhyReason::LEASE) },
        Hindrance::Copied { by, left } => {
            let (host, left_ms) = (host_of(context, by), millis(left));
            WhyAnswer { writer: by, host, left_ms, ..because(WhyReason::COPY) }
        }
    }
}

fn because(reason: WhyReason) -> WhyAnswer {
    WhyAnswer { reason: reason.0, ..WhyAnswer::default() }
}

fn at(node: Option<NodeName>, reason: WhyReason) -> WhyAnswer {
    match node {
        Some(NodeName { name, endpoint, owner }) => WhyAnswer { node: name, endpoint, owner, ..because(reason) },
        None => because(reason),
    }
}

/// Where a client is: under the name of what it lends, or where it calls from; empty when neither is known.
fn host_of(context: &Context<'_, '_>, client: ClientId) -> String {
    let lent = context.shared.catalog.names_of(client).into_iter().next();
    let calls_from = || context.shared.attendance.address_of(client).map(|address| address.to_string());
    lent.or_else(calls_from).unwrap_or_default()
}

fn room(context: &Context<'_, '_>, client: ClientId) -> RoomReply {
    let catalog = &context.shared.catalog;
    let (vacancy, own) = (catalog.vacancy(context.now()), catalog.unfinished_of(client));
    RoomReply {
        segments: vacancy.segments,
        largest: vacancy.largest.0,
        used: vacancy.used.0,
        capacity: vacancy.capacity.0,
        largest_free: vacancy.largest_free.0,
        resting: vacancy.resting,
        own_begun: own.used.0,
        own_limit: own.limit.0,
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
