//! Segments: names, use, status.

use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use yb_types::{ErrorCode, SegmentStatus};

use crate::answer::{answer, refusal, refusal_saying, text};
use crate::desk::Desk;
use crate::endpoint::{Endpoint, Parameter, TEXT};
use crate::pool::SegmentRow;
use crate::query::{Query, Window};

const GIB: f64 = (1u64 << 30) as f64;
const NAME: &[Parameter] = &[Parameter::required("segment", "string", "Name of the segment.")];
const PAGE: &[Parameter] = &[
    Parameter::optional("offset", "integer", "Rows to leave out at the front."),
    Parameter::optional("limit", "integer", "Most rows of the answer, 1 to 10000; 100 if absent."),
    Parameter::optional("sort", "string", "`name`, `used`, `size`, `percent` or `status`; by name if absent."),
    Parameter::optional("descending", "boolean", "The other way round."),
    Parameter::optional("name", "string", "Only names that contain this."),
];

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::read("/get_all_segments", "Names of segments that take objects, a line each.", get(names))
            .answers(TEXT),
        Endpoint::read("/get_segments_detail", "All segments at once, as the peer shows them.", get(details)),
        Endpoint::read("/api/v1/segments", "Segments by page, sorted.", get(page)).parameters(PAGE),
        Endpoint::read("/query_segment", "Use of the segments of a name, as text.", get(query_segment))
            .parameters(NAME)
            .answers(TEXT)
            .codes(&[(500, "No such segment (the peer's code)")]),
        Endpoint::read("/api/v1/segments/status", "Where a segment stands.", get(status))
            .parameters(NAME)
            .codes(&[(400, "No segment named"), (404, "No such segment")]),
    ]
}

async fn names(State(desk): State<Desk>) -> Response {
    let rows = desk.pool.segments();
    let names = rows.iter().filter(|row| row.status == SegmentStatus::OK);
    text(names.map(|row| format!("{}\n", row.segment.name)).collect::<String>())
}

/// A segment in the peer's words.
fn detail(row: &SegmentRow) -> Value {
    let size = row.segment.size;
    json!({
        "segment_name": row.segment.name,
        "segment_id": row.segment.id.to_string(),
        "client_id": row.client.to_string(),
        "base_address": format!("{:#x}", row.segment.base),
        "size_bytes": size,
        "size_human": format!("{:.4} GiB", size as f64 / GIB),
        "te_endpoint": row.segment.te_endpoint,
        "protocol": row.segment.protocol,
        "status": row.word(),
        "allocator_used_bytes": row.used,
        "allocator_capacity_bytes": size,
        "allocator_usage_percent": percent(row),
    })
}

fn percent(row: &SegmentRow) -> f64 {
    if row.segment.size == 0 { 0.0 } else { row.used as f64 * 100.0 / row.segment.size as f64 }
}

async fn details(State(desk): State<Desk>) -> Response {
    let rows: Vec<Value> = desk.pool.segments().iter().map(detail).collect();
    answer(json!({"total_segments": rows.len(), "segments": rows}))
}

async fn page(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    let window = match Window::of(&query) {
        Ok(window) => window,
        Err(message) => return refusal_saying(ErrorCode::INVALID_PARAMS, &message),
    };
    let mut rows = desk.pool.segments();
    let total = rows.len();
    if let Some(part) = query.text("name").filter(|part| !part.is_empty()) {
        rows.retain(|row| row.segment.name.contains(part));
    }
    let by_name =
        |a: &SegmentRow, b: &SegmentRow| (&a.segment.name, a.segment.id).cmp(&(&b.segment.name, b.segment.id));
    match query.text("sort").unwrap_or("name") {
        "name" => rows.sort_by(by_name),
        "used" => rows.sort_by(|a, b| a.used.cmp(&b.used).then_with(|| by_name(a, b))),
        "size" => rows.sort_by(|a, b| a.segment.size.cmp(&b.segment.size).then_with(|| by_name(a, b))),
        "percent" => rows.sort_by(|a, b| percent(a).total_cmp(&percent(b)).then_with(|| by_name(a, b))),
        "status" => {
            rows.sort_by(|a, b| (a.status.0, a.silent).cmp(&(b.status.0, b.silent)).then_with(|| by_name(a, b)))
        }
        other => return refusal_saying(ErrorCode::INVALID_PARAMS, &format!("cannot sort by {other:?}")),
    }
    if query.flag("descending") {
        rows.reverse();
    }
    let matching = rows.len();
    let shown: Vec<Value> = rows.iter().skip(window.offset).take(window.limit).map(detail).collect();
    answer(json!({"total_segments": total, "matching": matching, "offset": window.offset, "segments": shown}))
}

async fn query_segment(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    let name = query.text("segment").unwrap_or("");
    let rows: Vec<SegmentRow> = desk.pool.segments().into_iter().filter(|row| row.segment.name == name).collect();
    if rows.is_empty() {
        let body = "Failed to query segment";
        return (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, TEXT)], body).into_response();
    }
    let used: u64 = rows.iter().map(|row| row.used).sum();
    let capacity: u64 = rows.iter().map(|row| row.segment.size).sum();
    text(format!("{name}\nUsed(bytes): {used}\nCapacity(bytes) : {capacity}\n"))
}

async fn status(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    let Some(name) = query.text("segment").filter(|name| !name.is_empty()) else {
        return refusal_saying(ErrorCode::INVALID_PARAMS, "Missing segment query parameter");
    };
    match desk.pool.segments().into_iter().find(|row| row.segment.name == name) {
        Some(row) => answer(json!({
            "success": true, "segment": name, "status": row.status.0, "status_name": row.word(),
            "error_code": 0, "error_message": "",
        })),
        None => refusal(ErrorCode::SEGMENT_NOT_FOUND),
    }
}
