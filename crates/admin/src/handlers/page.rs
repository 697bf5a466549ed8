//! The status page, and what it shows.

use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Value, json};
use yb_types::ErrorCode;

use crate::answer::{answer, refusal_saying};
use crate::desk::Desk;
use crate::endpoint::{Endpoint, Parameter};
use crate::query::{Query, Window};

const WINDOW: &[Parameter] = &[
    Parameter::optional("offset", "integer", "Rows to leave out at the front."),
    Parameter::optional("limit", "integer", "Most rows of the answer, 1 to 10000; 100 if absent."),
];
const HTML: &str = "text/html; charset=utf-8";

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::read("/", "The status page.", get(page)).answers(HTML),
        Endpoint::read("/status.json", "The numbers of the status page.", get(status)),
        Endpoint::read("/api/v1/clients", "Clients that ping, by page.", get(clients))
            .parameters(WINDOW)
            .codes(&[(400, "Bad parameter")]),
    ]
}

async fn page() -> Response {
    ([(header::CONTENT_TYPE, HTML)], include_str!("status.html")).into_response()
}

async fn status(State(desk): State<Desk>) -> Response {
    answer(serde_json::to_value(desk.pool.overview()).unwrap_or(Value::Null))
}

async fn clients(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    let window = match Window::of(&query) {
        Ok(window) => window,
        Err(message) => return refusal_saying(ErrorCode::INVALID_PARAMS, &message),
    };
    let rows = desk.pool.clients();
    let shown: Vec<_> = rows.iter().skip(window.offset).take(window.limit).collect();
    answer(json!({"total": rows.len(), "matching": rows.len(), "offset": window.offset, "clients": shown}))
}
