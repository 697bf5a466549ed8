//! `yuebing tenants`: quotas and use, and changes of quotas.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::admin;
use crate::args::{TenantChange, TenantsArgs};
use crate::commands::status::percent;
use crate::connect;
use crate::failure::{Failure, Outcome};
use crate::size::bytes;
use crate::{http, output};

const PATH: &str = "/api/v1/tenant_quotas";

/// A tenant as either master shows it.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Tenant {
    tenant_id: String,
    requested_quota_bytes: u64,
    effective_quota_bytes: u64,
    charged_bytes: u64,
    admission_closed: bool,
    over_quota: bool,
    has_explicit_policy: bool,
}

/// Shows tenants, or changes one.
pub fn run(args: &TenantsArgs) -> Outcome {
    match &args.change {
        None => show(args),
        Some(TenantChange::Set(set)) => {
            let body = json!({ "requested_quota_bytes": set.quota.0 }).to_string();
            call(&connect::admin(&set.admin)?, "PUT", &one(&set.name), &body)?;
            output::line(format!("{} may use {}", set.name, bytes(set.quota.0)))
        }
        Some(TenantChange::Rm(rm)) => {
            call(&connect::admin(&rm.admin)?, "DELETE", &one(&rm.name), "")?;
            output::line(format!("{} is forgotten", rm.name))
        }
    }
}

fn one(name: &str) -> String {
    format!("{PATH}?tenant_id={}", http::encode(name))
}

fn show(args: &TenantsArgs) -> Outcome {
    let answer = call(&connect::admin(&args.admin)?, "GET", PATH, "")?;
    let tenants: Vec<Tenant> = serde_json::from_value(answer["data"].clone())
        .map_err(|error| Failure::failed(format!("{PATH}: not a list of tenants: {error}")))?;
    match args.json {
        true => output::json(&tenants),
        false => output::line(text(&tenants)),
    }
}

/// Says how to turn tenants on where they are off.
fn call(admin: &str, method: &str, path: &str, body: &str) -> Outcome<Value> {
    admin::call(admin, method, path, body).map_err(|failure| match failure.to_string() {
        text if text.contains("UNAVAILABLE_IN_CURRENT_MODE") => Failure::new(
            failure.exit,
            format!(
                "{text}\nThis master serves all as one tenant. Start it with --enable_multi_tenants \
                 --tenant_quota_connector_uri=FILE"
            ),
        ),
        text if text.contains("TENANT_NOT_EMPTY") => {
            Failure::new(failure.exit, format!("{text}\nRemove its objects first: yuebing rm --all --tenant NAME"))
        }
        _ => failure,
    })
}

fn text(tenants: &[Tenant]) -> String {
    if tenants.is_empty() {
        return "no tenants".to_owned();
    }
    let mut table = output::table(&["tenant", "state", "used", "may use", "promised", "use"], 2);
    for tenant in tenants {
        let state = match (tenant.admission_closed, tenant.over_quota, tenant.has_explicit_policy) {
            (true, ..) => "closed",
            (_, true, _) => "over quota",
            (_, _, false) => "no policy",
            _ => "open",
        };
        table.add_row([
            output::shown(&tenant.tenant_id),
            state.to_owned(),
            bytes(tenant.charged_bytes),
            bytes(tenant.effective_quota_bytes),
            bytes(tenant.requested_quota_bytes),
            percent(tenant.charged_bytes, tenant.effective_quota_bytes),
        ]);
    }
    table.trim_fmt()
}
