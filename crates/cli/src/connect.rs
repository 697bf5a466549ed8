//! From a master's address to a client, and from a client's errors to exit codes.

use std::time::Duration;

use yb_client::{CallLimits, Client, ClientConfig, Error};
use yb_secure::Security;

use crate::args::{AdminAddress, DEFAULT_MASTER, MasterAddress, Tenant, usual_admin};
use crate::failure::{Exit, Failure, Outcome};
use crate::http;

/// A client that lends no memory.
///
/// # Errors
/// [`Exit::Unreachable`] if no master answers there.
pub fn connect(master: &MasterAddress, tenant: &Tenant) -> Outcome<Client> {
    let master = master.address()?;
    connect_with(&master, |config| match tenant.name() {
        Some(name) => ClientConfig { tenant_id: name.to_owned(), ..config },
        None => config,
    })
}

/// The admin port to ask: the one that is named, else the usual one of the master.
///
/// # Errors
/// [`Exit::Unreachable`] if a master is named that does not answer: at the usual port may be that of another pool.
pub fn admin(address: &AdminAddress) -> Outcome<String> {
    if let Some(admin) = address.given() {
        return Ok(admin);
    }
    let Some(master) = address.master.named()? else { return Ok(usual_admin(DEFAULT_MASTER)) };
    connect_to(&master)?;
    usual_admin_of(&master)
}

/// The usual admin port of a master that answers.
///
/// # Errors
/// If the admin port there says that its master listens elsewhere.
pub fn usual_admin_of(master: &str) -> Outcome<String> {
    let admin = usual_admin(master);
    let wanted = master.rsplit_once(':').map_or("", |(_, port)| port);
    match rpc_port(&admin) {
        Some(port) if port != wanted && port != "0" => Err(Failure::new(
            Exit::Unreachable,
            format!(
                "http://{admin} is the admin port of a master that listens at port {port}, not of {master}; \
                 name its admin port with --admin host:port"
            ),
        )),
        _ => Ok(admin),
    }
}

/// The RPC port of the master behind an admin port, if it tells.
fn rpc_port(admin: &str) -> Option<String> {
    let answer = http::get(admin, "/api/v1/config?name=rpc_port").ok().filter(|answer| answer.status == 200)?;
    let body: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
    let rows = body["settings"].as_array()?;
    rows.iter().find(|row| row["name"] == "rpc_port")?["value"].as_str().map(str::to_owned)
}

/// As [`connect_to`], with more time for each call than an engine gives it.
pub fn connect_patiently(master: &str, base: Duration) -> Outcome<Client> {
    connect_with(master, |config| ClientConfig { limits: CallLimits { base, ..config.limits }, ..config })
}

/// The same for an address that is known, as the default tenant.
pub fn connect_to(master: &str) -> Outcome<Client> {
    connect_with(master, |config| config)
}

fn connect_with(master: &str, change: impl FnOnce(ClientConfig) -> ClientConfig) -> Outcome<Client> {
    let config = ClientConfig {
        master_address: master.to_owned(),
        local_hostname: "127.0.0.1".to_owned(),
        security: Security::from_env().map_err(|error| Failure::new(Exit::Usage, error.to_string()))?,
        ..ClientConfig::default()
    };
    Client::connect(change(config)).map_err(|e| failure(&format!("master {master}"), &e))
}

/// What a call that failed means for the command.
pub fn failure(what: &str, error: &Error) -> Failure {
    let exit = match error {
        Error::NotFound => Exit::Miss,
        Error::NoSpace(_) => Exit::NoSpace,
        Error::MasterUnreachable(_) => Exit::Unreachable,
        Error::Invalid(_) => Exit::Usage,
        _ => Exit::Failed,
    };
    let hint = match error {
        Error::MasterUnreachable(failure) if is_about_security(&failure.reason) => {
            "\nGive this command what the pool has: YUEBING_SECRET_FILE, YUEBING_TLS_CA and the like; yuebing doctor looks at them"
        }
        Error::MasterUnreachable(_) => "\nName the master with --master host:port, or start a pool with: yuebing up",
        Error::Refused { code, .. } if *code == yb_types::ErrorCode::OBJECT_HAS_LEASE => {
            "\nSomebody read it a moment ago: try again later, or use --force"
        }
        Error::Refused { code, .. } if *code == yb_types::ErrorCode::TENANT_QUOTA_EXCEEDED => {
            "\nThe tenant has used what it may: see yuebing tenants, raise it with yuebing tenants set NAME QUOTA"
        }
        Error::Refused { code, .. } if *code == yb_types::ErrorCode::TENANT_NOT_REGISTERED => {
            "\nThe master knows no such tenant: see yuebing tenants, add it with yuebing tenants set NAME QUOTA"
        }
        _ => "",
    };
    // Errors of the master name its address themselves.
    match error {
        Error::MasterUnreachable(_) => Failure::new(exit, format!("{error}{hint}")),
        _ => Failure::new(exit, format!("{what}: {error}{hint}")),
    }
}

/// Whether somebody answers, but not to whom does not have the pool's secret or certificates.
fn is_about_security(reason: &str) -> bool {
    ["secret", "secured", "TLS", "certificate"].iter().any(|word| reason.contains(word))
}
