//! Drain jobs over HTTP.

use axum::http::Method;
use axum::routing::{get, post};

use crate::answer::not_built;
use crate::endpoint::{Endpoint, Parameter};

const JOB: &[Parameter] = &[Parameter::required("job_id", "string", "As answered when the job was created.")];

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::write(
            Method::POST,
            "/api/v1/drain_jobs",
            "Begin to empty segments.",
            post(async || not_built("drain jobs")),
        )
        .body(r#"{"segments":["10.0.0.5:12345"],"target_segments":[],"max_concurrency":4}"#)
        .codes(&[(400, "Bad body or nothing to drain"), (404, "Unknown segment")]),
        Endpoint::read("/api/v1/drain_jobs/query", "How far a job is.", get(async || not_built("drain jobs")))
            .parameters(JOB)
            .codes(&[(400, "No or bad job_id"), (404, "Unknown job")]),
        Endpoint::write(
            Method::POST,
            "/api/v1/drain_jobs/cancel",
            "Stop a job.",
            post(async || not_built("drain jobs")),
        )
        .parameters(JOB)
        .codes(&[(400, "No or bad job_id"), (404, "Unknown job"), (409, "The job has ended")]),
    ]
}
