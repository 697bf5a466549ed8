//! The token that a caller must show.

use axum::http::{HeaderMap, HeaderValue, header};

use crate::refusals::Refusal;

/// Why a call with these headers is refused, if it is.
pub(crate) fn refusal_by_token(headers: &HeaderMap, token: &str) -> Option<Refusal> {
    match shows(headers, token) {
        true => None,
        false if headers.contains_key(header::AUTHORIZATION) => Some(Refusal::WrongToken),
        false => Some(Refusal::NoToken),
    }
}

/// Whether the headers carry `Authorization: Bearer TOKEN`.
fn shows(headers: &HeaderMap, token: &str) -> bool {
    let given = headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
    let given = given.strip_prefix(b"Bearer ").unwrap_or_default();
    // The time does not tell how much of it was right.
    let differences = given.iter().zip(token.as_bytes()).fold(0, |seen, (a, b)| seen | (a ^ b));
    given.len() == token.len() && differences == 0
}
