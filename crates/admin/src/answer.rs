//! Answers in the peer's shapes.

use axum::body::Body;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use yb_types::ErrorCode;

use crate::endpoint::{JSON, TEXT, WORD};

/// A text as in the peer's listings.
pub(crate) fn text(body: impl Into<Body>) -> Response {
    ([(header::CONTENT_TYPE, TEXT)], body.into()).into_response()
}

/// A single word.
pub(crate) fn word(body: &'static str) -> Response {
    ([(header::CONTENT_TYPE, WORD)], body).into_response()
}

/// JSON with status 200.
pub(crate) fn answer(body: Value) -> Response {
    answer_with(StatusCode::OK, body)
}

/// JSON with any status.
pub(crate) fn answer_with(status: StatusCode, body: Value) -> Response {
    (status, [(header::CONTENT_TYPE, JSON)], body.to_string()).into_response()
}

/// The peer's mapping of error codes to HTTP.
fn status_of(code: ErrorCode) -> StatusCode {
    match code {
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
    }
}

/// An error with its code's name as the message.
pub(crate) fn refusal(code: ErrorCode) -> Response {
    refusal_saying(code, code.name().unwrap_or("UNKNOWN"))
}

/// An error with a message of its own.
pub(crate) fn refusal_saying(code: ErrorCode, message: &str) -> Response {
    let body = json!({"success": false, "error_code": code.0, "error_message": message});
    answer_with(status_of(code), body)
}
