//! What the daemon does for dummies, by noun.

mod get;
mod keys;
mod put;
mod ranges;
mod session;
mod tasks;

use yb_rpc::{Outcome, Reply};
use yb_types::ErrorCode;
use yb_wire::messages::ErrorOr;
use yb_wire::{Rpc, call};

use crate::service::Incoming;

/// Whether a call may wait for the master or for bytes.
pub(crate) fn waits(rpc: Rpc) -> bool {
    !matches!(
        rpc,
        Rpc::ServiceReadyInternal
            | Rpc::LocalPing
            | Rpc::IsShmMappedInternal
            | Rpc::UnmapShmInternal
            | Rpc::UnregisterShmBufferInternal
            | Rpc::MapShmInternal
            | Rpc::ReleaseBufferDummy
            | Rpc::AllocateBufferDummy
            | Rpc::AcquireHotCache
            | Rpc::ReleaseHotCache
            | Rpc::BatchAcquireHotCache
            | Rpc::BatchReleaseHotCache
    )
}

/// Answers one call.
pub(crate) fn dispatch(call: Incoming<'_>, reply: Reply<'_>) -> Outcome {
    match call.rpc {
        Rpc::ServiceReadyInternal => call.answer::<call::ServiceReadyInternal>(reply, |_, _| Ok(())),
        Rpc::LocalPing => call.answer::<call::LocalPing>(reply, session::ping),
        Rpc::MapShmInternal => call.answer::<call::MapShmInternal>(reply, |_, _| Err(ErrorCode::NOT_SUPPORTED)),
        Rpc::IsShmMappedInternal => call.answer::<call::IsShmMappedInternal>(reply, session::is_mapped),
        Rpc::UnmapShmInternal => call.answer::<call::UnmapShmInternal>(reply, session::unmap),
        Rpc::UnregisterShmBufferInternal => {
            call.answer::<call::UnregisterShmBufferInternal>(reply, session::unregister)
        }
        Rpc::AllocateBufferDummy => call.answer::<call::AllocateBufferDummy>(reply, session::allocate),
        Rpc::ReleaseBufferDummy => call.answer::<call::ReleaseBufferDummy>(reply, session::release),
        Rpc::AcquireHotCache => call.answer::<call::AcquireHotCache>(reply, |_, _| Err(ErrorCode::OBJECT_NOT_FOUND)),
        Rpc::ReleaseHotCache => call.answer::<call::ReleaseHotCache>(reply, |_, _| Err(ErrorCode::INVALID_PARAMS)),
        Rpc::BatchAcquireHotCache => call.answer::<call::BatchAcquireHotCache>(reply, session::no_hot_cache),
        Rpc::BatchReleaseHotCache => call.answer::<call::BatchReleaseHotCache>(reply, |_, _| Ok(())),
        _ => dispatch_put(call, reply),
    }
}

fn dispatch_put(call: Incoming<'_>, reply: Reply<'_>) -> Outcome {
    use put::Manner::{Put, Upsert};
    match call.rpc {
        Rpc::PutDummyHelper => call.answer::<call::PutDummyHelper>(reply, |s, a| put::value(s, a, Put)),
        Rpc::UpsertDummyHelper => call.answer::<call::UpsertDummyHelper>(reply, |s, a| put::value(s, a, Upsert)),
        Rpc::PutPartsDummyHelper => call.answer::<call::PutPartsDummyHelper>(reply, |s, a| put::parts(s, a, Put)),
        Rpc::UpsertPartsDummyHelper => {
            call.answer::<call::UpsertPartsDummyHelper>(reply, |s, a| put::parts(s, a, Upsert))
        }
        Rpc::PutBatchDummyHelper => call.answer::<call::PutBatchDummyHelper>(reply, |s, a| put::values(s, a, Put)),
        Rpc::UpsertBatchDummyHelper => {
            call.answer::<call::UpsertBatchDummyHelper>(reply, |s, a| put::values(s, a, Upsert))
        }
        Rpc::UpsertFromDummyHelper => call.answer::<call::UpsertFromDummyHelper>(reply, put::upsert_from),
        Rpc::BatchPutFromDummyHelper => call.answer::<call::BatchPutFromDummyHelper>(reply, put::put_from),
        Rpc::BatchUpsertFromDummyHelper => {
            call.answer::<call::BatchUpsertFromDummyHelper>(reply, put::batch_upsert_from)
        }
        Rpc::BatchPutFromMultiBuffersDummyHelper => {
            call.answer::<call::BatchPutFromMultiBuffersDummyHelper>(reply, |s, a| put::from_buffers(s, a, Put))
        }
        Rpc::BatchUpsertFromMultiBuffersDummyHelper => {
            call.answer::<call::BatchUpsertFromMultiBuffersDummyHelper>(reply, |s, a| put::from_buffers(s, a, Upsert))
        }
        Rpc::BatchPutFromCudaIpcDummyHelper => {
            call.answer::<call::BatchPutFromCudaIpcDummyHelper>(reply, |_, a| not_supported(a.requests.len()))
        }
        Rpc::BatchUpsertFromCudaIpcDummyHelper => {
            call.answer::<call::BatchUpsertFromCudaIpcDummyHelper>(reply, |_, a| not_supported(a.requests.len()))
        }
        _ => dispatch_get(call, reply),
    }
}

fn dispatch_get(call: Incoming<'_>, reply: Reply<'_>) -> Outcome {
    match call.rpc {
        Rpc::BatchGetIntoDummyHelper => call.answer::<call::BatchGetIntoDummyHelper>(reply, get::into),
        Rpc::BatchGetIntoMultiBuffersDummyHelper => {
            call.answer::<call::BatchGetIntoMultiBuffersDummyHelper>(reply, get::into_buffers)
        }
        Rpc::BatchGetIntoCudaIpcDummyHelper => {
            call.answer::<call::BatchGetIntoCudaIpcDummyHelper>(reply, |_, a| not_supported(a.requests.len()))
        }
        Rpc::AcquireBufferDummy => call.answer::<call::AcquireBufferDummy>(reply, get::acquire),
        Rpc::BatchAcquireBufferDummy => call.answer::<call::BatchAcquireBufferDummy>(reply, get::batch_acquire),
        Rpc::GetIntoRangeShmHelper => call.answer::<call::GetIntoRangeShmHelper>(reply, ranges::into_range),
        Rpc::GetIntoRangesShmHelper => call.answer::<call::GetIntoRangesShmHelper>(reply, ranges::into_ranges),
        Rpc::GetIntoRangesStagedShmHelper => {
            call.answer::<call::GetIntoRangesStagedShmHelper>(reply, ranges::into_ranges_staged)
        }
        _ => dispatch_keys(call, reply),
    }
}

fn dispatch_keys(call: Incoming<'_>, reply: Reply<'_>) -> Outcome {
    match call.rpc {
        Rpc::IsExistInternal => call.answer::<call::IsExistInternal>(reply, keys::exists),
        Rpc::BatchIsExistInternal => call.answer::<call::BatchIsExistInternal>(reply, keys::batch_exists),
        Rpc::GetSizeInternal => call.answer::<call::GetSizeInternal>(reply, keys::size),
        Rpc::RemoveInternal => call.answer::<call::RemoveInternal>(reply, keys::remove),
        Rpc::BatchRemoveInternal => call.answer::<call::BatchRemoveInternal>(reply, keys::batch_remove),
        Rpc::RemoveByRegexInternal => call.answer::<call::RemoveByRegexInternal>(reply, keys::remove_by_regex),
        Rpc::RemoveAllInternal => call.answer::<call::RemoveAllInternal>(reply, keys::remove_all),
        Rpc::ProbeKeyInternal => call.answer::<call::ProbeKeyInternal>(reply, keys::probe),
        Rpc::BatchProbeKeyInternal => call.answer::<call::BatchProbeKeyInternal>(reply, keys::batch_probe),
        Rpc::LocalCreateCopyTask => call.answer::<call::LocalCreateCopyTask>(reply, tasks::copy),
        Rpc::LocalCreateMoveTask => call.answer::<call::LocalCreateMoveTask>(reply, tasks::move_),
        Rpc::LocalQueryTask => tasks::query(call, reply),
        _ => reply.unknown_function(),
    }
}

fn not_supported<T>(count: usize) -> Vec<ErrorOr<T>> {
    (0..count).map(|_| Err(ErrorCode::NOT_SUPPORTED)).collect()
}
