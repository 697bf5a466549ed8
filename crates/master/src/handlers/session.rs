//! Start of a session, and liveness.

use yb_rpc::{Outcome, Reply};
use yb_types::STORE_VERSION;
use yb_wire::call;
use yb_wire::messages::{GetStorageConfigResponse, PingResponse};

use crate::service::Context;

pub(crate) fn service_ready(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::ServiceReady>(reply, |_, _| Ok(STORE_VERSION))
}

pub(crate) fn ping(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::Ping>(reply, |context, args| {
        let client_status = context.shared.catalog.ping(args.client_id, context.now())?;
        Ok(PingResponse { view_version_id: 0, client_status })
    })
}

pub(crate) fn get_storage_config(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::GetStorageConfig>(reply, |context, _| {
        let storage = *context.shared.storage.lock();
        Ok(GetStorageConfigResponse {
            fsdir: "",
            enable_disk_eviction: storage.enable_disk_eviction,
            quota_bytes: storage.quota_bytes,
        })
    })
}

pub(crate) fn get_fsdir(context: &mut Context<'_, '_>, reply: Reply<'_>) -> Outcome {
    context.typed::<call::GetFsdir>(reply, |_, _| Ok(""))
}
