//! Tasks: made by clients, fetched, done and reported by the clients that own the sources.

use std::collections::BTreeSet;

use yb_jobs::{CopyWork, MoveWork, Purpose, TaskId, Work};
use yb_rpc::{Outcome, Reply};
use yb_types::{ErrorCode, Uuid};
use yb_wire::call;
use yb_wire::messages::{ErrorOr, QueryTaskResponse, TaskAssignment, TaskType};

use super::copy::name;
use crate::jobs::both_clocks;
use crate::service::{Context, encode_body};

/// Tasks handed out with one call, whatever is asked for.
const FETCH_MAX: usize = 1024;

fn give(context: &Context<'_, '_>, work: Work, client: yb_types::ClientId) -> ErrorOr<Uuid> {
    let given = context.shared.jobs.give(work, Purpose::Asked(context.origin()), client, both_clocks(context.now()));
    given.map(|id| id.0).map_err(|_| ErrorCode::TASK_PENDING_LIMIT_EXCEEDED)
}

/// A tenant as tasks say it.
fn tenant_text(context: &Context<'_, '_>, tenant: &[u8]) -> String {
    let known = context.shared.catalog.tenants().reader(tenant).ok();
    let name = known.and_then(|tenant| context.shared.catalog.tenants().name(tenant));
    name.map_or_else(|| yb_types::DEFAULT_TENANT.to_owned(), |name| name.to_string())
}

pub(crate) fn create_copy_task(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::CreateCopyTask>(reply, |context, args| {
        let mut seen = BTreeSet::new();
        // Each once, so that there are no more than segments: all are looked up.
        let targets: Vec<&str> = args.targets.iter().map(name).filter(|target| seen.insert(*target)).collect();
        let tenant = context.shared.catalog.tenants().writer(args.tenant_id);
        let rng = &mut context.worker.rng;
        let mut random = || rng.next_u64();
        let source = context.shared.catalog.copy_source(tenant, args.key, &targets, &mut random)?;
        let work = CopyWork {
            tenant: tenant_text(context, args.tenant_id),
            key: args.key.into(),
            source: source.segment,
            targets: targets.into_iter().map(str::to_owned).collect(),
            dynamic: None,
        };
        give(context, Work::Copy(work), source.owner)
    })
}

pub(crate) fn create_move_task(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::CreateMoveTask>(reply, |context, args| {
        let tenant = context.shared.catalog.tenants().writer(args.tenant_id);
        let (from, to) = (name(args.source), name(args.target));
        let source = context.shared.catalog.move_source(tenant, args.key, from, to)?;
        let work = MoveWork {
            tenant: tenant_text(context, args.tenant_id),
            key: args.key.into(),
            source: source.segment,
            target: to.to_owned(),
        };
        give(context, Work::Move(work), source.owner)
    })
}

pub(crate) fn query_task(context: &mut Context<'_, '_>, mut reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::QueryTask>() else { return reply.bad_arguments() };
    let tasks = context.shared.jobs.tasks.lock();
    let task = tasks.get(TaskId(args.task_id));
    let answer = task.map(|task| QueryTaskResponse {
        id: task.id.0,
        r#type: task.work.task_type(),
        status: task.status,
        created_at_ms_epoch: signed(task.created_ms),
        last_updated_at_ms_epoch: signed(task.updated_ms),
        assigned_client: task.client,
        message: task.message.as_bytes(),
    });
    let answer = answer.ok_or(ErrorCode::TASK_NOT_FOUND);
    let encoded = encode_body::<call::QueryTask>(context.profile, &answer, reply.body());
    let failed = answer.is_err();
    drop(tasks);
    context.count((1, u64::from(failed)));
    match encoded {
        Ok(()) => reply.done(),
        Err(error) => reply.failed(error),
    }
}

/// A task on its way to a client.
struct Assigned {
    id: Uuid,
    kind: TaskType,
    payload: Vec<u8>,
    created_ms: u64,
    retries: bool,
}

pub(crate) fn fetch_tasks(context: &mut Context<'_, '_>, mut reply: Reply<'_>) -> Outcome {
    let Some(args) = context.args::<call::FetchTasks>() else { return reply.bad_arguments() };
    let most = usize::try_from(args.batch_size).unwrap_or(FETCH_MAX).min(FETCH_MAX);
    let mut assigned = Vec::new();
    let max_retry_attempts = {
        let mut tasks = context.shared.jobs.tasks.lock();
        tasks.fetch(args.client_id, most, both_clocks(context.now()), |task| {
            let (kind, payload) = (task.work.task_type(), task.work.to_json());
            let retries = !matches!(task.purpose, Purpose::Leave(_));
            assigned.push(Assigned { id: task.id.0, kind, payload, created_ms: task.created_ms, retries });
        });
        tasks.limits().max_retry_attempts
    };
    let assignments = assigned.iter().map(|task| TaskAssignment {
        id: task.id,
        r#type: task.kind,
        payload: &task.payload,
        created_at_ms_epoch: signed(task.created_ms),
        max_retry_attempts: if task.retries { max_retry_attempts } else { 0 },
    });
    let answer = Ok(assignments.collect());
    context.count((1, 0));
    match encode_body::<call::FetchTasks>(context.profile, &answer, reply.body()) {
        Ok(()) => reply.done(),
        Err(error) => reply.failed(error),
    }
}

pub(crate) fn mark_task_to_complete(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::MarkTaskToComplete>(reply, |context, args| {
        let (request, now) = (args.request, both_clocks(context.now()));
        let jobs = &context.shared.jobs;
        let id = TaskId(request.id);
        let marked = jobs.tasks.lock().mark(args.client_id, id, request.status, request.message, now);
        if let Some(ended) = marked.map_err(|refusal| refusal.code())? {
            jobs.note_ended(ended);
        }
        Ok(())
    })
}

fn signed(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}
