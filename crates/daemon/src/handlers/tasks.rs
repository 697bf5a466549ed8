//! Copy and move tasks, asked for by a dummy.

use yb_rpc::{Outcome, Reply};
use yb_types::{ErrorCode, Uuid};
use yb_wire::call;
use yb_wire::messages::{ErrorOr, LocalCreateCopyTaskArgs, LocalCreateMoveTaskArgs, QueryTaskResponse};

use crate::service::{Incoming, Shared, code, finish};

pub(super) fn copy(shared: &Shared, args: LocalCreateCopyTaskArgs<'_>) -> ErrorOr<Uuid> {
    shared.client.create_copy_task(args.key, &args.targets.to_vec()).map_err(|error| code(&error))
}

pub(super) fn move_(shared: &Shared, args: LocalCreateMoveTaskArgs<'_>) -> ErrorOr<Uuid> {
    let text = |name: &[u8]| std::str::from_utf8(name).map(str::to_owned).map_err(|_| ErrorCode::INVALID_PARAMS);
    let (source, target) = (text(args.source)?, text(args.target)?);
    shared.client.create_move_task(args.key, &source, &target).map_err(|error| code(&error))
}

/// What is known of a task.
pub(super) fn query(call: Incoming<'_>, reply: Reply<'_>) -> Outcome {
    let Some(args) = call.args::<call::LocalQueryTask>() else { return reply.bad_arguments() };
    let answer = call.shared.client.query_task(args.task_id).map_err(|error| code(&error));
    let answer = answer.as_ref().map_err(|code| *code).map(|task| QueryTaskResponse {
        id: task.id,
        r#type: task.kind,
        status: task.status,
        created_at_ms_epoch: task.created_ms,
        last_updated_at_ms_epoch: task.updated_ms,
        assigned_client: task.client,
        message: task.message.as_bytes(),
    });
    finish::<call::LocalQueryTask>(reply, &answer)
}
