//! Drain jobs and tasks over HTTP.

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use yb_types::{ErrorCode, Uuid};

use crate::answer::{answer, refusal, refusal_saying};
use crate::desk::Desk;
use crate::endpoint::{Endpoint, Parameter};
use crate::query::Query;

/// What is to be drained.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DrainOrder {
    /// Names of the segments to empty.
    pub segments: Vec<String>,
    /// Names of the segments that may take the objects; empty: all others.
    pub target_segments: Vec<String>,
    /// Moves under way at a time.
    pub max_concurrency: u32,
    /// The job ends after so many seconds, done or not; 0: it takes as long as it takes. Ours.
    pub deadline_seconds: u32,
}

impl Default for DrainOrder {
    fn default() -> Self {
        DrainOrder { segments: Vec::new(), target_segments: Vec::new(), max_concurrency: 4, deadline_seconds: 0 }
    }
}

/// A drain job for people. Its members are those of the peer's answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrainRow {
    /// Its id.
    pub id: Uuid,
    /// Number of its status.
    pub status: i32,
    /// Name of it.
    pub status_name: &'static str,
    /// When it was created, milliseconds since 1970.
    pub created_ms: u64,
    /// When it changed last, milliseconds since 1970.
    pub updated_ms: u64,
    /// The segments it empties.
    pub segments: Vec<String>,
    /// Objects moved, or dropped.
    pub succeeded: u64,
    /// Those of them that were dropped, as every other segment has a replica. Ours.
    pub dropped: u64,
    /// Objects that failed for good.
    pub failed: u64,
    /// Objects that cannot be moved now.
    pub blocked: u64,
    /// Moves under way.
    pub active: u64,
    /// Objects still there, as far as is known. Ours; the peer does not say.
    pub left: u64,
    /// Bytes moved.
    pub migrated_bytes: u64,
    /// One line.
    pub message: String,
}

/// The jobs of a master, as the admin server sees them.
pub trait Jobs: Send + Sync + 'static {
    /// Begins to empty segments; answers the id of the job.
    ///
    /// # Errors
    /// INVALID_PARAMS, SEGMENT_NOT_FOUND, UNAVAILABLE_IN_CURRENT_STATUS.
    fn create_drain(&self, order: DrainOrder) -> Result<Uuid, ErrorCode>;
    /// How a job stands; `None` for one that is not known.
    fn drain(&self, id: Uuid) -> Option<DrainRow>;
    /// All jobs that are remembered, newest first.
    fn drains(&self) -> Vec<DrainRow>;
    /// Calls a job off.
    ///
    /// # Errors
    /// JOB_NOT_FOUND, UNAVAILABLE_IN_CURRENT_STATUS.
    fn cancel_drain(&self, id: Uuid) -> Result<(), ErrorCode>;
    /// Lets a drained segment take objects again.
    ///
    /// # Errors
    /// SEGMENT_NOT_FOUND; UNAVAILABLE_IN_CURRENT_STATUS for one that is not DRAINED.
    fn undo_drain(&self, segment: &str) -> Result<(), ErrorCode>;
    /// Tasks that wait, are under way, and have ended and are remembered.
    fn tasks(&self) -> [usize; 3];
}

/// A master without jobs.
pub(crate) struct NoJobs;

impl Jobs for NoJobs {
    fn create_drain(&self, _order: DrainOrder) -> Result<Uuid, ErrorCode> {
        Err(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE)
    }
    fn drain(&self, _id: Uuid) -> Option<DrainRow> {
        None
    }
    fn drains(&self) -> Vec<DrainRow> {
        Vec::new()
    }
    fn cancel_drain(&self, _id: Uuid) -> Result<(), ErrorCode> {
        Err(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE)
    }
    fn undo_drain(&self, _segment: &str) -> Result<(), ErrorCode> {
        Err(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE)
    }
    fn tasks(&self) -> [usize; 3] {
        [0; 3]
    }
}

const JOB: &[Parameter] = &[Parameter::required("job_id", "string", "As answered when the job was created.")];

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::write(Method::POST, "/api/v1/drain_jobs", "Begin to empty segments.", post(create))
            .body(r#"{"segments":["10.0.0.5:12345"],"target_segments":[],"max_concurrency":4,"deadline_seconds":0}"#)
            .codes(&[
                (400, "Bad body, a member of another name, or nothing to drain"),
                (404, "Unknown segment"),
                (409, "A segment is not in status OK"),
            ]),
        Endpoint::read("/api/v1/drain_jobs/list", "All jobs that are remembered, newest first.", get(list)),
        Endpoint::read("/api/v1/drain_jobs/query", "How far a job is.", get(query))
            .parameters(JOB)
            .codes(&[(400, "No or bad job_id"), (404, "Unknown job")]),
        Endpoint::write(Method::POST, "/api/v1/drain_jobs/cancel", "Stop a job.", post(cancel)).parameters(JOB).codes(
            &[
                (400, "No or bad job_id"),
                (404, "Unknown job"),
                (409, "The job has ended, or moves are under way: no new one starts, so try again in a moment"),
            ],
        ),
        Endpoint::write(
            Method::POST,
            "/api/v1/drain_jobs/undo",
            "Let a drained segment take objects again.",
            post(undo),
        )
        .body(r#"{"segment":"10.0.0.5:12345"}"#)
        .codes(&[(400, "Bad body"), (404, "Unknown segment"), (409, "It is not DRAINED")]),
        Endpoint::read("/api/v1/tasks/counts", "How many copy and move tasks there are.", get(tasks)),
    ]
}

fn short(id: Uuid, status: &str) -> Value {
    json!({"success": true, "job_id": id.to_string(), "status": status, "error_code": 0, "error_message": ""})
}

async fn create(State(desk): State<Desk>, body: Bytes) -> Response {
    let order: DrainOrder = match serde_json::from_slice(&body) {
        Ok(order) => order,
        Err(error) => return refusal_saying(ErrorCode::INVALID_PARAMS, &format!("Invalid JSON body: {error}")),
    };
    match desk.jobs.create_drain(order) {
        Ok(id) => answer(short(id, "CREATED")),
        Err(code) => refusal(code),
    }
}

/// The job that a query names.
fn job_id(raw: Option<&str>) -> Option<Uuid> {
    Query::parse(raw.unwrap_or("")).text("job_id")?.parse().ok()
}

fn bad_id() -> Response {
    refusal_saying(ErrorCode::INVALID_PARAMS, "Missing or invalid job_id")
}

fn row(job: &DrainRow) -> Value {
    json!({
        "success": true, "job_id": job.id.to_string(), "type": 0, "type_name": "DRAIN", "status": job.status,
        "status_name": job.status_name, "created_at_ms_epoch": job.created_ms,
        "last_updated_at_ms_epoch": job.updated_ms, "segments": job.segments, "succeeded_units": job.succeeded,
        "failed_units": job.failed, "blocked_units": job.blocked, "active_units": job.active, "left_units": job.left,
        "dropped_units": job.dropped, "migrated_bytes": job.migrated_bytes, "message": job.message, "error_code": 0, "error_message": "",
    })
}

async fn query(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let Some(id) = job_id(raw.as_deref()) else { return bad_id() };
    desk.jobs.drain(id).map_or_else(|| refusal(ErrorCode::JOB_NOT_FOUND), |job| answer(row(&job)))
}

async fn list(State(desk): State<Desk>) -> Response {
    answer(json!({"success": true, "jobs": desk.jobs.drains().iter().map(row).collect::<Vec<_>>()}))
}

async fn cancel(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let Some(id) = job_id(raw.as_deref()) else { return bad_id() };
    match desk.jobs.cancel_drain(id) {
        Ok(()) => answer(short(id, "CANCELED")),
        Err(code) => refusal(code),
    }
}

/// A segment that is to take objects again.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Undo {
    segment: String,
}

async fn undo(State(desk): State<Desk>, body: Bytes) -> Response {
    let segment = match serde_json::from_slice(&body) {
        Ok(Undo { segment }) => segment,
        Err(error) => return refusal_saying(ErrorCode::INVALID_PARAMS, &format!("Invalid JSON body: {error}")),
    };
    match desk.jobs.undo_drain(&segment) {
        Ok(()) => answer(json!({"success": true, "segment": segment, "error_code": 0, "error_message": ""})),
        Err(code) => refusal(code),
    }
}

async fn tasks(State(desk): State<Desk>) -> Response {
    let [pending, processing, finished] = desk.jobs.tasks();
    answer(json!({"success": true, "pending": pending, "processing": processing, "finished": finished}))
}
