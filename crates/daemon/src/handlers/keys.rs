//! Existence, size, removal.

use yb_client::{Error, ProbePolicy};
use yb_types::ErrorCode;
use yb_wire::messages::{
    ErrorOr, LeaseMode, LocalBatchProbeKeyArgs, LocalBatchRemoveArgs, LocalForceArgs, LocalKeyArgs, LocalKeysArgs,
    LocalRemoveArgs,
};

use crate::service::{Shared, code, signed};

pub(super) fn exists(shared: &Shared, args: LocalKeyArgs<'_>) -> ErrorOr<bool> {
    shared.client.exists(args.key).map_err(|error| code(&error))
}

pub(super) fn batch_exists(shared: &Shared, args: LocalKeysArgs<'_>) -> Vec<ErrorOr<bool>> {
    let answers = shared.client.batch_exists(&args.keys.to_vec()).into_iter();
    answers.map(|answer| answer.map_err(|error| code(&error))).collect()
}

pub(super) fn probe(shared: &Shared, args: LocalKeyArgs<'_>) -> ErrorOr<bool> {
    let answer = shared.client.batch_probe(&[args.key], ProbePolicy::None).pop();
    answer.unwrap_or(Err(Error::Closed)).map_err(|error| code(&error))
}

pub(super) fn batch_probe(shared: &Shared, args: LocalBatchProbeKeyArgs<'_>) -> Vec<ErrorOr<bool>> {
    let policy = match args.policy.mode() {
        LeaseMode::NONE => ProbePolicy::None,
        LeaseMode::LAST_HIT_ONLY => ProbePolicy::LastHitOnly(args.policy.candidate_size),
        _ => return args.keys.iter().map(|_| Err(ErrorCode::INVALID_PARAMS)).collect(),
    };
    let answers = shared.client.batch_probe(&args.keys.to_vec(), policy).into_iter();
    answers.map(|answer| answer.map_err(|error| code(&error))).collect()
}

pub(super) fn size(shared: &Shared, args: LocalKeyArgs<'_>) -> ErrorOr<i64> {
    shared.client.size(args.key).map(signed).map_err(|error| code(&error))
}

pub(super) fn remove(shared: &Shared, args: LocalRemoveArgs<'_>) -> ErrorOr<()> {
    shared.client.remove(args.key, args.force).map_err(|error| code(&error))
}

pub(super) fn batch_remove(shared: &Shared, args: LocalBatchRemoveArgs<'_>) -> Vec<ErrorOr<()>> {
    let answers = shared.client.batch_remove(&args.keys.to_vec(), args.force).into_iter();
    answers.map(|answer| answer.map_err(|error| code(&error))).collect()
}

pub(super) fn remove_by_regex(shared: &Shared, args: LocalRemoveArgs<'_>) -> ErrorOr<i64> {
    let pattern = std::str::from_utf8(args.key).map_err(|_| ErrorCode::INVALID_PARAMS)?;
    shared.client.remove_by_regex(pattern, args.force).map(signed).map_err(|error| code(&error))
}

pub(super) fn remove_all(shared: &Shared, args: LocalForceArgs) -> ErrorOr<i64> {
    shared.client.remove_all(args.force).map(signed).map_err(|error| code(&error))
}
