//! One handler per function.

mod copy;
mod directory;
mod lookup;
mod own;
mod put;
mod remove;
mod segment;
mod session;
mod task;
mod tier;
mod unbuilt;
mod weight;
mod why;

pub(crate) use directory::{entry_of, published};
pub(crate) use lookup::{descriptors, replica_ref};
pub(crate) use put::count_refusal;
pub(crate) use weight::discard;

use yb_rpc::{Outcome, Reply};
use yb_wire::Rpc;

use crate::service::Context;

pub(crate) fn dispatch(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    match context.rpc {
        Rpc::ExistKey => lookup::exist_key(context, reply),
        Rpc::BatchExistKey => lookup::batch_exist_key(context, reply),
        Rpc::GetReplicaList => lookup::get_replica_list(context, reply),
        Rpc::BatchGetReplicaList => lookup::batch_get_replica_list(context, reply),
        Rpc::ProbeKey => lookup::probe_key(context, reply),
        Rpc::BatchProbeKey => lookup::batch_probe_key(context, reply),
        Rpc::GetReplicaListForAdmin => lookup::get_replica_list_for_admin(context, reply),
        Rpc::BatchGetReplicaListForAdmin => lookup::batch_get_replica_list_for_admin(context, reply),
        Rpc::GetReplicaListByRegex => lookup::get_replica_list_by_regex(context, reply),
        Rpc::PutStart => put::put_start(context, reply),
        Rpc::BatchPutStart => put::batch_put_start(context, reply),
        Rpc::PutEnd => put::put_end(context, reply),
        Rpc::BatchPutEnd => put::batch_put_end(context, reply),
        Rpc::PutRevoke => put::put_revoke(context, reply),
        Rpc::BatchPutRevoke => put::batch_put_revoke(context, reply),
        Rpc::UpsertStart => put::upsert_start(context, reply),
        Rpc::BatchUpsertStart => put::batch_upsert_start(context, reply),
        Rpc::UpsertEnd => put::upsert_end(context, reply),
        Rpc::BatchUpsertEnd => put::batch_upsert_end(context, reply),
        Rpc::UpsertRevoke => put::upsert_revoke(context, reply),
        Rpc::BatchUpsertRevoke => put::batch_upsert_revoke(context, reply),
        Rpc::Remove => remove::remove(context, reply),
        Rpc::BatchRemove => remove::batch_remove(context, reply),
        Rpc::BatchReplicaClear => remove::batch_replica_clear(context, reply),
        Rpc::RemoveByRegex => remove::remove_by_regex(context, reply),
        Rpc::RemoveAll => remove::remove_all(context, reply),
        Rpc::ServiceReady => session::service_ready(context, reply),
        Rpc::Ping => session::ping(context, reply),
        Rpc::GetStorageConfig => session::get_storage_config(context, reply),
        Rpc::GetFsdir => session::get_fsdir(context, reply),
        Rpc::MountSegment => segment::mount(context, reply),
        Rpc::ReMountSegment => segment::remount(context, reply),
        Rpc::UnmountSegment => segment::unmount(context, reply),
        Rpc::GracefulUnmountSegment => segment::graceful_unmount(context, reply),
        Rpc::QuerySegmentStatus => segment::query_status(context, reply),
        Rpc::QuerySegmentStatusById => segment::query_status_by_id(context, reply),
        Rpc::BatchQueryIp => segment::batch_query_ip(context, reply),
        Rpc::MountLocalDiskSegment => tier::mount(context, reply),
        Rpc::UnmountLocalDiskSegment => tier::unmount(context, reply),
        Rpc::ReportSsdCapacity => tier::report_capacity(context, reply),
        Rpc::PollRemoveAll => tier::poll_remove_all(context, reply),
        Rpc::OffloadObjectHeartbeat => tier::offload_heartbeat(context, reply),
        Rpc::NotifyOffloadSuccess => tier::offloaded(context, reply),
        Rpc::PromotionObjectHeartbeat => tier::promotion_heartbeat(context, reply),
        Rpc::PromotionAllocStart => tier::promotion_start(context, reply),
        Rpc::NotifyPromotionSuccess => tier::promotion_end(context, reply),
        Rpc::NotifyPromotionFailure => tier::promotion_failed(context, reply),
        Rpc::RegisterPrefetchTask => tier::register_prefetch(context, reply),
        Rpc::EvictDiskReplica => tier::evict(context, reply),
        Rpc::BatchEvictDiskReplica => tier::batch_evict(context, reply),
        Rpc::EvictDiskReplicaIfCurrent => tier::evict_if_current(context, reply),
        Rpc::Hello => own::hello(context, reply),
        Rpc::PollQuiesce => own::poll_quiesce(context, reply),
        Rpc::SyncDirectory => directory::sync(context, reply),
        Rpc::TellDirectory => directory::tell(context, reply),
        Rpc::Roster => directory::roster(context, reply),
        Rpc::Attend => own::attend(context, reply),
        Rpc::Depart => own::depart(context, reply),
        Rpc::ReportSuspect => own::report_suspect(context, reply),
        Rpc::ReportSlow => own::report_slow(context, reply),
        Rpc::ReportCorrupt => own::report_corrupt(context, reply),
        Rpc::Why => why::why(context, reply),
        Rpc::RemoveMatching => remove::remove_matching(context, reply),
        Rpc::PollDoubts => own::poll_doubts(context, reply),
        Rpc::BatchPutRevokeQuiet => put::batch_put_revoke_quiet(context, reply),
        Rpc::EndWrite => put::end_write(context, reply),
        Rpc::BatchEndWrites => put::batch_end_writes(context, reply),
        Rpc::BatchRevokeWrites => put::batch_revoke_writes(context, reply),
        Rpc::EndCopy => copy::named_end(context, reply),
        Rpc::RevokeCopy => copy::named_revoke(context, reply),
        Rpc::CopyStart => copy::copy_start(context, reply),
        Rpc::CopyEnd => copy::copy_end(context, reply),
        Rpc::CopyRevoke => copy::copy_revoke(context, reply),
        Rpc::MoveStart => copy::move_start(context, reply),
        Rpc::MoveEnd => copy::move_end(context, reply),
        Rpc::MoveRevoke => copy::move_revoke(context, reply),
        Rpc::DynamicReplicaCopyStart => copy::dynamic_copy_start(context, reply),
        Rpc::DynamicReplicaCopyEnd => copy::dynamic_copy_end(context, reply),
        Rpc::DynamicReplicaCopyRevoke => copy::dynamic_copy_revoke(context, reply),
        Rpc::CreateCopyTask => task::create_copy_task(context, reply),
        Rpc::CreateMoveTask => task::create_move_task(context, reply),
        Rpc::QueryTask => task::query_task(context, reply),
        Rpc::FetchTasks => task::fetch_tasks(context, reply),
        Rpc::MarkTaskToComplete => task::mark_task_to_complete(context, reply),
        _ => unbuilt::dispatch(context, reply),
    }
}
