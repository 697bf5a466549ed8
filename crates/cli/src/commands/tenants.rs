//! `yuebing tenants`: quotas and use, and changes of quotas.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::admin;
use crate::args::{TenantChange, TenantRmArgs, TenantsArgs};
use crate::commands::status::percent;
use crate::connect;
use crate::failure::{Exit, Failure, Outcome};
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
            named(&set.name)?;
            if set.quota.0 == 0 {
                return Err(Failure::usage("a quota is at least 1 byte; tenants rm forgets a tenant"));
            }
            let body = json!({ "requested_quota_bytes": set.quota.0 }).to_string();
            let said = call(&connect::admin(&set.admin)?, "PUT", &one(&set.name), &body)?;
            match set.json {
                true => output::json(&said["data"]),
                false => output::line(format!("{} may use {}", set.name, bytes(set.quota.0))),
            }
        }
        Some(TenantChange::Rm(rm)) => forget(rm),
    }
}

fn forget(rm: &TenantRmArgs) -> Outcome {
    named(&rm.name)?;
    let admin = connect::admin(&rm.admin)?;
    // The master forgets one that it does not know without a word, as Mooncake's does.
    if !list(&admin)?.iter().any(|tenant| tenant.tenant_id == rm.name) {
        let text = format!("there is no tenant {:?}; yuebing tenants shows them", rm.name);
        return Err(Failure::new(Exit::Miss, text));
    }
    call(&admin, "DELETE", &one(&rm.name), "")?;
    match rm.json {
        true => output::json(&json!({ "tenant_id": rm.name, "forgotten": true })),
        false => output::line(format!("{} is forgotten", rm.name)),
    }
}

fn named(name: &str) -> Outcome {
    if name.is_empty() { Err(Failure::usage("the name of the tenant is empty")) } else { Ok(()) }
}

fn one(name: &str) -> String {
    format!("{PATH}?tenant_id={}", http::encode(name))
}

fn show(args: &TenantsArgs) -> Outcome {
    let tenants = list(&connect::admin(&args.admin)?)?;
    match args.json {
        true => output::json(&tenants),
        false => output::line(text(&tenants)),
    }
}

fn list(admin: &str) -> Outcome<Vec<Tenant>> {
    let answer = call(admin, "GET", PATH, "")?;
    serde_json::from_value(answer["data"].clone())
        .map_err(|error| Failure::failed(format!("{PATH}: not a list of tenants: {error}")))
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
