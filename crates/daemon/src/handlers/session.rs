//! Liveness, windows, loans.

use yb_types::{ClientStatus, ErrorCode};
use yb_wire::messages::{ClientArgs, ErrorOr, LocalKeysArgs, LocalNumberArgs, PingResponse};

use crate::service::Shared;

/// A sign of life. A dummy that is not known has to hand its windows over again.
pub(super) fn ping(shared: &Shared, args: ClientArgs) -> ErrorOr<PingResponse> {
    let known = shared.dummies.ping(args.client_id, shared.clock.now());
    let client_status = if known { ClientStatus::OK } else { ClientStatus::NEED_REMOUNT };
    Ok(PingResponse { view_version_id: 0, client_status })
}

pub(super) fn is_mapped(shared: &Shared, args: LocalNumberArgs) -> ErrorOr<bool> {
    Ok(shared.dummies.get(args.client_id).is_ok_and(|dummy| dummy.windows().starts_at(args.number)))
}

/// The dummy leaves. To leave twice is no mistake.
pub(super) fn unmap(shared: &Shared, args: ClientArgs) -> ErrorOr<()> {
    shared.dummies.forget(args.client_id, "it left");
    Ok(())
}

pub(super) fn unregister(shared: &Shared, args: LocalNumberArgs) -> ErrorOr<()> {
    let removed = shared.dummies.remove_window(args.client_id, args.number);
    if removed { Ok(()) } else { Err(ErrorCode::INVALID_PARAMS) }
}

pub(super) fn allocate(shared: &Shared, args: LocalNumberArgs) -> ErrorOr<(u64, u64)> {
    let windows = shared.dummies.get(args.client_id)?.windows();
    let loan = windows.lend(args.number).ok_or(ErrorCode::NO_AVAILABLE_HANDLE)?;
    Ok((loan.keep(), args.number))
}

pub(super) fn release(shared: &Shared, args: LocalNumberArgs) -> ErrorOr<()> {
    let taken = shared.dummies.get(args.client_id)?.windows().take_back(args.number);
    if taken { Ok(()) } else { Err(ErrorCode::INVALID_PARAMS) }
}

/// The peer says by this offset that the hot cache does not hold an object.
pub(super) fn no_hot_cache(_: &Shared, args: LocalKeysArgs<'_>) -> Vec<ErrorOr<(u64, u64)>> {
    args.keys.iter().map(|_| Ok((u64::MAX, 0))).collect()
}
