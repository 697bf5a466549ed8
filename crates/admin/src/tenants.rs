//! Quotas of tenants over HTTP.

use axum::http::Method;
use axum::routing::{delete, get, put};
use yb_types::ErrorCode;

use crate::answer::refusal;
use crate::endpoint::{Endpoint, Parameter};

const PATH: &str = "/api/v1/tenant_quotas";
const ANY: &[Parameter] = &[Parameter::optional("tenant_id", "string", "The tenant; absent: all.")];
const ONE: &[Parameter] = &[Parameter::required("tenant_id", "string", "The tenant.")];

pub(crate) fn endpoints() -> Vec<Endpoint> {
    let off = async || refusal(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE);
    vec![
        Endpoint::read(PATH, "Quota and use of one tenant or all.", get(off))
            .parameters(ANY)
            .codes(&[(404, "Unknown tenant"), (409, "Multi-tenancy is off")]),
        Endpoint::write(Method::PUT, PATH, "Set the quota of a tenant.", put(off))
            .parameters(ONE)
            .body(r#"{"requested_quota_bytes":1073741824}"#)
            .codes(&[(400, "Bad tenant_id or body"), (409, "Multi-tenancy is off")]),
        Endpoint::write(Method::DELETE, PATH, "Forget the quota of a tenant.", delete(off)).parameters(ONE).codes(&[
            (400, "Bad tenant_id"),
            (404, "Unknown tenant"),
            (409, "It has objects, or multi-tenancy is off"),
        ]),
    ]
}
