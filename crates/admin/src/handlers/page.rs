//! The status page, and what it shows.

use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::Value;

use crate::answer::answer;
use crate::desk::Desk;
use crate::endpoint::Endpoint;

const HTML: &str = "text/html; charset=utf-8";

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::read("/", "The status page.", get(page)).answers(HTML),
        Endpoint::read("/status.json", "The numbers of the status page.", get(status)),
    ]
}

async fn page() -> Response {
    ([(header::CONTENT_TYPE, HTML)], include_str!("status.html")).into_response()
}

async fn status(State(desk): State<Desk>) -> Response {
    let mut body = serde_json::to_value(desk.pool.overview()).unwrap_or(Value::Null);
    if let Value::Object(map) = &mut body {
        map.insert("segments".to_owned(), desk.pool.segments().iter().map(super::segments::detail).collect());
    }
    answer(body)
}
