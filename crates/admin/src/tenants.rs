//! Quotas of tenants over HTTP, in the peer's shapes.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::http::Method;
use axum::response::Response;
use axum::routing::{delete, get, put};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use yb_types::ErrorCode;

use crate::answer::{answer, refusal, refusal_saying};
use crate::desk::{Desk, Parts};
use crate::endpoint::{Endpoint, Parameter};
use crate::query::Query;

/// How a tenant stands, as the peer shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TenantRow {
    /// Its name.
    pub tenant_id: String,
    /// What the operator promised it.
    pub requested_quota_bytes: u64,
    /// What it may use now.
    pub effective_quota_bytes: u64,
    /// What it uses.
    pub charged_bytes: u64,
    /// Its writes are refused.
    pub admission_closed: bool,
    /// It uses more than it may.
    pub over_quota: bool,
    /// It has a policy; else only objects.
    pub has_explicit_policy: bool,
}

/// The tenants as the admin server sees them. May wait for the place where policies are kept.
pub trait Tenants: Send + Sync + 'static {
    /// All tenants, by name.
    ///
    /// # Errors
    /// UNAVAILABLE_IN_CURRENT_MODE while multi-tenancy is off.
    fn quotas(&self) -> Result<Vec<TenantRow>, ErrorCode>;
    /// One tenant.
    ///
    /// # Errors
    /// As above; OBJECT_NOT_FOUND.
    fn quota(&self, name: &str) -> Result<TenantRow, ErrorCode>;
    /// Keeps a policy and applies it.
    ///
    /// # Errors
    /// As above; INVALID_PARAMS for the name or the quota, PERSISTENT_FAIL when it cannot be kept: then nothing changed.
    fn set(&self, name: &str, bytes: u64) -> Result<TenantRow, ErrorCode>;
    /// Deletes a policy. Answers how the tenant stands if something is left of it.
    ///
    /// # Errors
    /// As above; TENANT_NOT_EMPTY while the tenant has objects.
    fn delete(&self, name: &str) -> Result<Option<TenantRow>, ErrorCode>;
}

/// A master without tenants.
pub(crate) struct NoTenants;

impl Tenants for NoTenants {
    fn quotas(&self) -> Result<Vec<TenantRow>, ErrorCode> {
        Err(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE)
    }
    fn quota(&self, _name: &str) -> Result<TenantRow, ErrorCode> {
        Err(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE)
    }
    fn set(&self, _name: &str, _bytes: u64) -> Result<TenantRow, ErrorCode> {
        Err(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE)
    }
    fn delete(&self, _name: &str) -> Result<Option<TenantRow>, ErrorCode> {
        Err(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE)
    }
}

const PATH: &str = "/api/v1/tenant_quotas";
const ANY: &[Parameter] = &[Parameter::optional("tenant_id", "string", "The tenant; absent: all.")];
const ONE: &[Parameter] = &[Parameter::required("tenant_id", "string", "The tenant.")];

pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::read(PATH, "Quota and use of one tenant or all.", get(show))
            .parameters(ANY)
            .codes(&[(404, "Unknown tenant"), (409, "Multi-tenancy is off")]),
        Endpoint::write(Method::PUT, PATH, "Set the quota of a tenant.", put(set))
            .parameters(ONE)
            .body(r#"{"requested_quota_bytes":1073741824}"#)
            .codes(&[(400, "Bad tenant_id or body"), (409, "Multi-tenancy is off"), (500, "It cannot be kept")]),
        Endpoint::write(Method::DELETE, PATH, "Forget the quota of a tenant.", delete(forget)).parameters(ONE).codes(
            &[
                (400, "Bad tenant_id"),
                (404, "Unknown tenant"),
                (409, "It has objects, or multi-tenancy is off"),
                (500, "The change cannot be kept"),
            ],
        ),
    ]
}

/// The name in the query; `None` when there is none.
fn name_of(raw: Option<&str>) -> Option<String> {
    Query::parse(raw.unwrap_or("")).text("tenant_id").filter(|name| !name.is_empty()).map(str::to_owned)
}

fn no_name() -> Response {
    refusal_saying(ErrorCode::INVALID_PARAMS, "Missing or invalid tenant_id")
}

/// Asks on a thread where waiting is allowed.
async fn asked<T: Send + 'static>(
    desk: Desk,
    ask: impl FnOnce(&dyn Tenants) -> Result<T, ErrorCode> + Send + 'static,
) -> Result<T, ErrorCode> {
    let parts: Arc<Parts> = desk;
    tokio::task::spawn_blocking(move || ask(&*parts.tenants)).await.unwrap_or(Err(ErrorCode::INTERNAL_ERROR))
}

fn shown(data: Result<impl Serialize, ErrorCode>) -> Response {
    match data {
        Ok(data) => answer(json!({"success": true, "data": serde_json::to_value(data).unwrap_or(Value::Null)})),
        Err(code) => refusal(code),
    }
}

async fn show(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    match name_of(raw.as_deref()) {
        Some(name) => shown(asked(desk, move |tenants| tenants.quota(&name)).await),
        None => shown(asked(desk, |tenants| tenants.quotas()).await),
    }
}

/// The body of a PUT. A member of another name is a mistake of the caller's, not a quota of none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    /// Missing: as 0, which is refused.
    #[serde(default)]
    requested_quota_bytes: u64,
}

async fn set(State(desk): State<Desk>, RawQuery(raw): RawQuery, body: Bytes) -> Response {
    let Some(name) = name_of(raw.as_deref()) else { return no_name() };
    let wanted: Wanted = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(error) => return refusal_saying(ErrorCode::INVALID_PARAMS, &format!("Invalid JSON body: {error}")),
    };
    let bytes = wanted.requested_quota_bytes;
    if bytes == 0 || bytes > i64::MAX as u64 {
        return refusal_saying(ErrorCode::INVALID_PARAMS, "Tenant quota must be in [1, 2^63 - 1] bytes");
    }
    match asked(desk, move |tenants| tenants.set(&name, bytes)).await {
        Err(ErrorCode::INVALID_PARAMS) => no_name(),
        answer => shown(answer),
    }
}

async fn forget(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let Some(name) = name_of(raw.as_deref()) else { return no_name() };
    shown(asked(desk, move |tenants| tenants.delete(&name)).await)
}
