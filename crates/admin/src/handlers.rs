//! The endpoints.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use bytes::Bytes;
use futures_util::stream::unfold;
use serde_json::{Map, Value, json};
use tokio::sync::Semaphore;
use yb_types::{ErrorCode, ReplicaDescriptor, ReplicaKind};

use crate::pool::{Cursor, Pool, SegmentRow, status_name};
use crate::query::Query;

type Shared = State<Arc<dyn Pool>>;

/// Keys asked of the pool at once.
const PAGE: usize = 4096;
/// Most keys of one answer of `/keys.json`.
const MAX_PAGE: usize = 10_000;
const TEXT: &str = "text/plain; version=0.0.4";
const GIB: f64 = (1u64 << 30) as f64;

pub(crate) fn router(pool: Arc<dyn Pool>, limit: Arc<Semaphore>) -> Router {
    Router::new()
        .route("/", get(page))
        .route("/status.json", get(status))
        .route("/keys.json", get(keys_page))
        .route("/metrics", get(metrics))
        .route("/metrics/summary", get(summary))
        .route("/health", get(health))
        .route("/role", get(async || text("leader")))
        .route("/ha_status", get(async || text("serving")))
        .route("/leader", get(async || answer(json!({"present": false, "leader_address": null, "view_version": null}))))
        .route("/kv_events/status", get(kv_events))
        .route("/query_key", get(query_key))
        .route("/batch_query_keys", get(batch_query_keys))
        .route("/get_all_keys", get(all_keys))
        .route("/get_all_segments", get(all_segments))
        .route("/get_segments_detail", get(segments_detail))
        .route("/query_segment", get(query_segment))
        .route("/api/v1/segments/status", get(segment_status))
        .route("/api/v1/remove_all", post(remove_all))
        .route("/api/v1/tenant_quotas", any(tenant_quotas))
        .route("/api/v1/drain_jobs", any(async || not_built("drain jobs")))
        .route("/api/v1/drain_jobs/query", any(async || not_built("drain jobs")))
        .route("/api/v1/drain_jobs/cancel", any(async || not_built("drain jobs")))
        .fallback(async || (StatusCode::NOT_FOUND, "404 Not Found"))
        .method_not_allowed_fallback(async || (StatusCode::NOT_FOUND, "404 Not Found"))
        .layer(from_fn(move |request, next| limited(limit.clone(), request, next)))
        .with_state(pool)
}

async fn limited(limit: Arc<Semaphore>, request: Request, next: Next) -> Response {
    match limit.acquire().await {
        Ok(_permit) => next.run(request).await,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

fn text(body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, TEXT)], body.into()).into_response()
}

fn answer(body: Value) -> Response {
    answer_with(StatusCode::OK, body)
}

fn answer_with(status: StatusCode, body: Value) -> Response {
    (status, [(header::CONTENT_TYPE, "application/json")], body.to_string()).into_response()
}

/// The peer's mapping of error codes to HTTP.
fn refusal(code: ErrorCode) -> Response {
    let status = match code {
        ErrorCode::INVALID_PARAMS => StatusCode::BAD_REQUEST,
        ErrorCode::OBJECT_NOT_FOUND
        | ErrorCode::SEGMENT_NOT_FOUND
        | ErrorCode::JOB_NOT_FOUND
        | ErrorCode::TENANT_NOT_REGISTERED => StatusCode::NOT_FOUND,
        ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS
        | ErrorCode::UNAVAILABLE_IN_CURRENT_MODE
        | ErrorCode::TENANT_NOT_EMPTY => StatusCode::CONFLICT,
        ErrorCode::REPLICA_IS_NOT_READY => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let name = code.name().unwrap_or("UNKNOWN");
    answer_with(status, json!({"success": false, "error_code": code.0, "error_message": name}))
}

fn not_built(feature: &str) -> Response {
    let message = format!("{feature}: not built yet");
    let body = json!({"success": false, "error_code": ErrorCode::NOT_SUPPORTED.0, "error_message": message});
    answer_with(StatusCode::NOT_IMPLEMENTED, body)
}

async fn page() -> Response {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], include_str!("status.html")).into_response()
}

async fn status(State(pool): Shared) -> Response {
    let mut body = serde_json::to_value(pool.overview()).unwrap_or(Value::Null);
    if let Value::Object(map) = &mut body {
        map.insert("segments".to_owned(), pool.segments().iter().map(segment_detail).collect());
    }
    answer(body)
}

async fn keys_page(State(pool): Shared, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    let number = |name: &str| query.text(name).and_then(|text| text.parse::<u64>().ok());
    let limit = number("limit").map_or(1000, |n| usize::try_from(n).unwrap_or(MAX_PAGE)).clamp(1, MAX_PAGE);
    let page = pool.keys(Cursor(number("after").unwrap_or(0)), limit);
    let keys: Vec<_> = page.keys.iter().map(|key| String::from_utf8_lossy(key)).collect();
    answer(json!({"keys": keys, "next": page.next.map(|cursor| cursor.0.to_string())}))
}

async fn metrics(State(pool): Shared) -> Response {
    text(pool.metrics())
}

async fn summary(State(pool): Shared) -> Response {
    text(format!("role=leader, state=serving, service_ready=true, master={{{}}}\n", pool.summary()))
}

async fn health() -> Response {
    answer(json!({
        "status": "ok", "role": "leader", "ha_state": "serving", "service_ready": true,
        "leader_address": null, "view_version": null,
    }))
}

async fn kv_events() -> Response {
    answer(json!({
        "enabled": false, "published_batches": 0, "published_events": 0, "dropped_events": 0,
        "skipped_unparsed_keys": 0,
    }))
}

fn memory_values(replicas: &[ReplicaDescriptor]) -> Vec<Value> {
    let buffers = replicas.iter().filter_map(ReplicaDescriptor::memory);
    buffers
        .map(|buffer| {
            json!({
                "size_": buffer.size, "buffer_address_": buffer.buffer_address, "protocol_": buffer.protocol,
                "transport_endpoint_": buffer.transport_endpoint,
            })
        })
        .collect()
}

async fn query_key(State(pool): Shared, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    match pool.replicas(query.bytes("key").unwrap_or_default()) {
        Ok(replicas) => answer(json!({"success": true, "data": memory_values(&replicas)})),
        Err(code) => refusal(code),
    }
}

async fn batch_query_keys(State(pool): Shared, RawQuery(raw): RawQuery) -> Response {
    let Some(keys) = Query::list(raw.as_deref().unwrap_or(""), "keys") else {
        let body = json!({"success": false, "error": "No keys provided. Use ?keys=key1,key2,..."});
        return answer_with(StatusCode::BAD_REQUEST, body);
    };
    let data: Map<String, Value> =
        keys.iter().map(|key| (String::from_utf8_lossy(key).into_owned(), batch_item(&*pool, key))).collect();
    answer(json!({"success": true, "data": data}))
}

fn batch_item(pool: &dyn Pool, key: &[u8]) -> Value {
    let replicas = match pool.replicas(key) {
        Ok(replicas) => replicas,
        Err(code) => {
            return json!({
                "ok": false, "error": code.name().unwrap_or("UNKNOWN"), "values": null, "disk_values": null,
                "local_disk_values": null, "nof_values": null,
            });
        }
    };
    let mut lists: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for replica in &replicas {
        match &replica.kind {
            ReplicaKind::Disk(disk) => lists
                .entry("disk_values")
                .or_default()
                .push(json!({"file_path": disk.file_path, "object_size": disk.object_size})),
            ReplicaKind::LocalDisk(disk) => lists.entry("local_disk_values").or_default().push(json!({
                "client_id": disk.client_id.to_string(), "object_size": disk.object_size,
                "transport_endpoint": disk.transport_endpoint,
            })),
            _ => {}
        }
    }
    json!({
        "ok": true, "error": null, "values": memory_values(&replicas), "disk_values": lists.get("disk_values"),
        "local_disk_values": lists.get("local_disk_values"), "nof_values": null,
    })
}

async fn all_keys(State(pool): Shared) -> Response {
    let pages = unfold(Some(Cursor::default()), move |from| {
        let pool = pool.clone();
        async move {
            let page = pool.keys(from?, PAGE);
            // Other requests get their turn between two pages.
            tokio::task::yield_now().await;
            let mut body = Vec::with_capacity(page.keys.iter().map(|key| key.len() + 1).sum());
            for key in &page.keys {
                body.extend_from_slice(key);
                body.push(b'\n');
            }
            Some((Ok::<_, Infallible>(Bytes::from(body)), page.next))
        }
    });
    text(Body::from_stream(pages))
}

async fn all_segments(State(pool): Shared) -> Response {
    let rows = pool.segments();
    let names = rows.iter().filter(|row| row.status == yb_types::SegmentStatus::OK);
    text(names.map(|row| format!("{}\n", row.segment.name)).collect::<String>())
}

fn segment_detail(row: &SegmentRow) -> Value {
    let size = row.segment.size;
    let percent = if size == 0 { 0.0 } else { row.used as f64 * 100.0 / size as f64 };
    json!({
        "segment_name": row.segment.name,
        "segment_id": row.segment.id.to_string(),
        "client_id": row.client.to_string(),
        "base_address": format!("{:#x}", row.segment.base),
        "size_bytes": size,
        "size_human": format!("{:.4} GiB", size as f64 / GIB),
        "te_endpoint": row.segment.te_endpoint,
        "protocol": row.segment.protocol,
        "status": status_name(row.status),
        "allocator_used_bytes": row.used,
        "allocator_capacity_bytes": size,
        "allocator_usage_percent": percent,
    })
}

async fn segments_detail(State(pool): Shared) -> Response {
    let rows: Vec<Value> = pool.segments().iter().map(segment_detail).collect();
    answer(json!({"total_segments": rows.len(), "segments": rows}))
}

async fn query_segment(State(pool): Shared, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    let name = query.text("segment").unwrap_or("");
    let rows: Vec<SegmentRow> = pool.segments().into_iter().filter(|row| row.segment.name == name).collect();
    if rows.is_empty() {
        return (StatusCode::INTERNAL_SERVER_ERROR, "Failed to query segment").into_response();
    }
    let used: u64 = rows.iter().map(|row| row.used).sum();
    let capacity: u64 = rows.iter().map(|row| row.segment.size).sum();
    text(format!("{name}\nUsed(bytes): {used}\nCapacity(bytes) : {capacity}\n"))
}

async fn segment_status(State(pool): Shared, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    let Some(name) = query.text("segment").filter(|name| !name.is_empty()) else {
        let body = json!({
            "success": false, "error_code": ErrorCode::INVALID_PARAMS.0,
            "error_message": "Missing segment query parameter",
        });
        return answer_with(StatusCode::BAD_REQUEST, body);
    };
    match pool.segments().into_iter().find(|row| row.segment.name == name) {
        Some(row) => answer(json!({
            "success": true, "segment": name, "status": row.status.0, "status_name": status_name(row.status),
            "error_code": 0, "error_message": "",
        })),
        None => refusal(ErrorCode::SEGMENT_NOT_FOUND),
    }
}

async fn remove_all(State(pool): Shared, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    let force = matches!(query.text("force"), Some("true" | "1"));
    answer(json!({"success": true, "removed_count": pool.remove_all(force)}))
}

async fn tenant_quotas() -> Response {
    refusal(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE)
}
