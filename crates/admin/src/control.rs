//! Settings over HTTP: what holds, and changes while the master runs.

use axum::body::Bytes;
use axum::extract::{RawQuery, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::{get, post, put};
use serde::Serialize;
use serde_json::{Value, json};
use yb_types::ErrorCode;

use crate::answer::{answer, refusal_saying};
use crate::desk::Desk;
use crate::endpoint::{Endpoint, Parameter};
use crate::query::Query;

/// A setting that changed, or could not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangeRow {
    /// Its name.
    pub name: &'static str,
    /// What held.
    pub old: String,
    /// What is wanted.
    pub new: String,
}

/// What came of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangeReport {
    /// In effect now.
    pub applied: Vec<ChangeRow>,
    /// Only after a restart.
    pub refused: Vec<ChangeRow>,
}

/// Why nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ControlError {
    /// A name, a value, a file or a combination that cannot be.
    #[error("{0}")]
    Bad(String),
    /// These settings cannot change while the process runs.
    #[error("needs a restart: {0}")]
    NeedsRestart(String),
    /// This master was started without settings, inside another process.
    #[error("this master has no settings")]
    NoSettings,
}

/// The settings of a running master.
pub trait Control: Send + Sync + 'static {
    /// What is known of a setting, of those whose name contains the text, or of all.
    ///
    /// # Errors
    /// No such name.
    fn explain(&self, name: Option<&str>) -> Result<Vec<Value>, ControlError>;
    /// Reads file and environment again and lets take effect what may.
    ///
    /// # Errors
    /// The file or a value is bad; nothing changed.
    fn reload(&self) -> Result<ChangeReport, ControlError>;
    /// Sets settings by name; all of them or none.
    ///
    /// # Errors
    /// See [`ControlError`]; nothing changed.
    fn set(&self, changes: &[(String, String)]) -> Result<ChangeReport, ControlError>;
}

/// A master without settings.
pub(crate) struct NoControl;

impl Control for NoControl {
    fn explain(&self, _: Option<&str>) -> Result<Vec<Value>, ControlError> {
        Err(ControlError::NoSettings)
    }
    fn reload(&self) -> Result<ChangeReport, ControlError> {
        Err(ControlError::NoSettings)
    }
    fn set(&self, _: &[(String, String)]) -> Result<ChangeReport, ControlError> {
        Err(ControlError::NoSettings)
    }
}

const NAME: &[Parameter] = &[Parameter::optional("name", "string", "A setting, or a part of names; absent: all.")];
const CODES: &[(u16, &str)] = &[(400, "Bad name, value, file or body; nothing changed"), (409, "Needs a restart")];

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::read("/api/v1/config", "Settings: value, source, meaning, whether they are live.", get(explain))
            .parameters(NAME)
            .codes(&[(400, "No such setting"), (409, "This master has no settings")]),
        Endpoint::write(
            Method::POST,
            "/api/v1/config/reload",
            "Read file and environment again, as SIGHUP.",
            post(reload),
        )
        .codes(CODES),
        Endpoint::write(Method::PUT, "/api/v1/config", "Set live settings until the next reload or start.", put(set))
            .body(r#"{"eviction_high_watermark_ratio":0.85,"v":1}"#)
            .codes(CODES),
    ]
}

fn refused(error: &ControlError) -> Response {
    let code = match error {
        ControlError::Bad(_) => ErrorCode::INVALID_PARAMS,
        ControlError::NeedsRestart(_) => ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS,
        ControlError::NoSettings => ErrorCode::UNAVAILABLE_IN_CURRENT_MODE,
    };
    refusal_saying(code, &error.to_string())
}

async fn explain(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    match desk.control.explain(query.text("name").filter(|name| !name.is_empty())) {
        Ok(rows) => answer(json!({"success": true, "settings": rows})),
        Err(error) => refused(&error),
    }
}

fn report(report: &ChangeReport) -> Response {
    let success = report.refused.is_empty();
    answer(json!({"success": success, "applied": report.applied, "refused": report.refused}))
}

async fn reload(State(desk): State<Desk>) -> Response {
    match tokio::task::spawn_blocking(move || desk.control.reload()).await {
        Ok(Ok(changes)) => report(&changes),
        Ok(Err(error)) => refused(&error),
        Err(_) => crate::answer::answer_with(StatusCode::INTERNAL_SERVER_ERROR, json!({"success": false})),
    }
}

async fn set(State(desk): State<Desk>, body: Bytes) -> Response {
    let changes = match serde_json::from_slice::<Value>(&body) {
        Ok(Value::Object(map)) if !map.is_empty() => map,
        Ok(_) => return refused(&ControlError::Bad("the body must be an object of settings".to_owned())),
        Err(error) => return refused(&ControlError::Bad(format!("Invalid JSON body: {error}"))),
    };
    let text = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let changes: Vec<(String, String)> = changes.into_iter().map(|(name, value)| (name, text(value))).collect();
    match desk.control.set(&changes) {
        Ok(changes) => report(&changes),
        Err(error) => refused(&error),
    }
}
