//! The endpoints, by what they are about.

mod health;
mod keys;
mod page;
mod segments;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use crate::access::Gate;
use crate::desk::Parts;
use crate::endpoint::{self, Endpoint};

/// Every endpoint of the admin server.
pub fn endpoints() -> Vec<Endpoint> {
    let all = [
        page::endpoints(),
        crate::openapi::endpoints(),
        health::endpoints(),
        keys::endpoints(),
        segments::endpoints(),
        crate::jobs::endpoints(),
        crate::control::endpoints(),
        crate::tenants::endpoints(),
    ];
    all.into_iter().flatten().collect()
}

pub(crate) fn router(parts: Parts, gate: &Gate, limit: Arc<Semaphore>) -> Router {
    endpoint::router(endpoints(), gate)
        .layer(from_fn(move |request, next| limited(limit.clone(), request, next)))
        .with_state(Arc::new(parts))
}

async fn limited(limit: Arc<Semaphore>, request: Request, next: Next) -> Response {
    match limit.acquire().await {
        Ok(_permit) => next.run(request).await,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}
