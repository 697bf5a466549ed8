//! The endpoints, by what they are about.

mod health;
mod keys;
mod page;
mod segments;

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use crate::access::Gate;
use crate::desk::Parts;
use crate::endpoint::{self, Endpoint};

/// Most bytes of a body.
const MAX_BODY: usize = 2 << 20;
/// Most bodies that come in at a time.
const MAX_BODIES: usize = 64;

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

/// How many requests are under way.
#[derive(Clone)]
struct Limits {
    served: Arc<Semaphore>,
    /// Of those whose bodies are coming in.
    bodies: Arc<Semaphore>,
}

pub(crate) fn router(parts: Parts, gate: &Gate, limit: Arc<Semaphore>) -> Router {
    let limits = Limits { served: limit, bodies: Arc::new(Semaphore::new(MAX_BODIES)) };
    endpoint::router(endpoints(), gate)
        .layer(from_fn(move |request, next| limited(limits.clone(), request, next)))
        .with_state(Arc::new(parts))
}

/// A request is served once it is here as a whole: one whose body trickles in holds no place that others wait for.
async fn limited(limits: Limits, request: Request, next: Next) -> Response {
    let request = match whole(&limits.bodies, request).await {
        Ok(request) => request,
        Err(status) => return status.into_response(),
    };
    match limits.served.acquire().await {
        Ok(_permit) => next.run(request).await,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
    }
}

async fn whole(bodies: &Semaphore, request: Request) -> Result<Request, StatusCode> {
    let (head, body) = request.into_parts();
    if body.is_end_stream() {
        return Ok(Request::from_parts(head, body));
    }
    let _permit = bodies.acquire().await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let bytes = to_bytes(body, MAX_BODY).await.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE)?;
    Ok(Request::from_parts(head, Body::from(bytes)))
}
