//! The client's own HTTP page: whether it is well, and what it has counted.
//!
//! ```text
//! GET /health           200 {"status":"healthy","code":0}, or 503 with the state and health_check's number
//! GET /metrics          Prometheus text
//! GET /metrics/summary  a few lines for people
//! ```
//!
//! Invariants: a visitor that is slow or silent holds up nobody but itself, and that for a bounded time; the page only
//! reads.

mod request;
mod server;
mod text;

pub(crate) use server::{PageServer, listen};
pub(crate) use text::summary;

use std::sync::Weak;

use crate::Health;
use crate::core::Core;

/// What a page tells of.
#[derive(Clone, Debug)]
pub(crate) enum Book {
    /// A client, for as long as it lives.
    Of(Weak<Core>),
    /// One that waits for its master: there is no client yet.
    Awaiting,
}

impl Book {
    /// What it says under `path`; `None`: its client is gone.
    fn answer(&self, path: &str) -> Option<Answer> {
        match (self, path) {
            (Book::Of(core), path) => core.upgrade().map(|core| answer(&core, path)),
            (Book::Awaiting, "/health") => Some(unwell("waiting for the master", 2)),
            (Book::Awaiting, _) => Some(Answer::text("503 Service Unavailable", "waiting for the master\n")),
        }
    }
}

/// An answer.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    status: &'static str,
    kind: &'static str,
    body: String,
}

impl Answer {
    fn text(status: &'static str, body: impl Into<String>) -> Self {
        Answer { status, kind: "text/plain; charset=utf-8", body: body.into() }
    }

    fn to_bytes(&self, head_only: bool) -> Vec<u8> {
        let Answer { status, kind, body } = self;
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        );
        let mut bytes = head.into_bytes();
        if !head_only {
            bytes.extend_from_slice(body.as_bytes());
        }
        bytes
    }
}

/// What the page says under `path`.
fn answer(core: &Core, path: &str) -> Answer {
    match path {
        "/health" => health(core.health()),
        "/metrics" | "/metrics/summary" if !core.config.metrics.enabled => {
            Answer::text("404 Not Found", "metrics are off (MC_STORE_CLIENT_METRIC)\n")
        }
        "/metrics" => {
            let body = text::prometheus(core);
            Answer { status: "200 OK", kind: "text/plain; version=0.0.4; charset=utf-8", body }
        }
        "/metrics/summary" => Answer::text("200 OK", summary(core)),
        _ => Answer::text("404 Not Found", "there are /health, /metrics and /metrics/summary\n"),
    }
}

fn health(health: Health) -> Answer {
    match health {
        Health::Healthy => state("200 OK", "healthy", 0),
        Health::Closed => unwell("closed", 1),
        Health::MasterUnreachable => unwell("master unreachable", 2),
    }
}

fn unwell(name: &str, code: u32) -> Answer {
    state("503 Service Unavailable", name, code)
}

fn state(status: &'static str, name: &str, code: u32) -> Answer {
    Answer { status, kind: "application/json", body: format!("{{\"status\":\"{name}\",\"code\":{code}}}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_told_as_the_peer_tells_it() {
        let well = health(Health::Healthy);
        assert_eq!((well.status, well.body.as_str()), ("200 OK", "{\"status\":\"healthy\",\"code\":0}"));
        assert!(health(Health::MasterUnreachable).status.starts_with("503"));
        let bytes = String::from_utf8(well.to_bytes(false)).unwrap();
        assert!(
            bytes.ends_with("Content-Length: 29\r\nConnection: close\r\n\r\n{\"status\":\"healthy\",\"code\":0}"),
            "{bytes}"
        );
        assert!(String::from_utf8(well.to_bytes(true)).unwrap().ends_with("\r\n\r\n"));
    }
}
