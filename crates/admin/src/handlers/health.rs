//! Metrics, and who this master is.

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use serde_json::json;

use crate::answer::{answer, text, word};
use crate::desk::Desk;
use crate::endpoint::{Endpoint, TEXT, WORD};

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::read("/metrics", "Every metric, in the Prometheus text format.", get(metrics)).answers(TEXT),
        Endpoint::read("/metrics/summary", "One line about everything.", get(summary)).answers(TEXT),
        Endpoint::read("/health", "Whether the process answers, and its role. Always 200.", get(health)),
        Endpoint::read("/role", "`leader` or `standby`.", get(async || word("leader"))).answers(WORD),
        Endpoint::read("/ha_status", "Name of the state.", get(async || word("serving"))).answers(WORD),
        Endpoint::read("/leader", "Who leads; nobody is named without high availability.", get(leader)),
        Endpoint::read("/kv_events/status", "The publisher of KV events.", get(kv_events)),
    ]
}

async fn metrics(State(desk): State<Desk>) -> Response {
    text(desk.pool.metrics())
}

async fn summary(State(desk): State<Desk>) -> Response {
    text(desk.pool.summary())
}

async fn health() -> Response {
    answer(json!({
        "status": "ok", "role": "leader", "ha_state": "serving", "service_ready": true,
        "leader_address": null, "view_version": null,
    }))
}

async fn leader() -> Response {
    answer(json!({"present": false, "leader_address": null, "view_version": null}))
}

/// The last field is called `skipped_unparsed_keys` by 0.3.13 and `skipped_keyless_events` by 0.3.14.
async fn kv_events() -> Response {
    answer(json!({
        "enabled": false, "published_batches": 0, "published_events": 0, "dropped_events": 0,
        "skipped_unparsed_keys": 0, "skipped_keyless_events": 0,
    }))
}
