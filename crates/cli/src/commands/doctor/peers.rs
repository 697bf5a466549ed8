//! Whether others answer: a master, and engines of other nodes.

use std::time::Duration;

use yb_client::Error;
use yb_transfer::Engine;
use yb_types::STORE_VERSION;

use super::report::{Check, Level};
use super::versions;
use crate::connect::usual_admin_of;

/// A master, and the versions that its usual admin port tells if `versions_too`. Of a master that does not answer nothing more
/// is asked: at that port may be another pool.
pub fn pool(address: &str, versions_too: bool) -> Vec<Check> {
    let master = master(address);
    let answers = master.level == Level::Ok;
    let mut checks = vec![master];
    if versions_too && answers {
        checks.push(match usual_admin_of(address) {
            Ok(admin) => versions::check(&admin, true),
            Err(other) => Check::ok("versions", format!("not known: {other}")),
        });
    }
    checks
}

/// Whether other hosts reach what a program on this one lends that takes its settings from the environment; `None` when these
/// cannot be read, which such a program says itself.
pub fn local_hostname(master: &str) -> Option<Check> {
    let usual = |name: &str| (name == "MOONCAKE_MASTER").then(|| master.to_owned());
    let variable = |name: &str| std::env::var(name).ok().or_else(|| usual(name));
    let name = yb_client::ClientConfig::load(&variable).ok()?.local_hostname;
    let check = if yb_client::is_lent_out_of_reach(&name, master) {
        Check::warn(
            "local-hostname",
            format!(
                "programs here lend memory as {name:?}, which leads other hosts to themselves; the master {master} is on another host"
            ),
            "set MOONCAKE_LOCAL_HOSTNAME, or local_hostname of the setup, to an address of this host (see \"advertised\")",
        )
    } else {
        Check::ok("local-hostname", format!("programs here lend memory as {name:?}"))
    };
    Some(check.with("local_hostname", name))
}

/// Sets a session up with a master, as every client does.
fn master(address: &str) -> Check {
    let security = match yb_secure::Security::from_env() {
        Ok(security) => security,
        Err(error) => {
            return Check::fail("master", error.to_string(), "see the variables YUEBING_SECRET_FILE, YUEBING_TLS_CA");
        }
    };
    let config = yb_client::ClientConfig {
        master_address: address.to_owned(),
        local_hostname: "127.0.0.1".to_owned(),
        security,
        ..yb_client::ClientConfig::default()
    };
    match yb_client::Client::connect(config) {
        Ok(_) => Check::ok("master", format!("{address} answers; it serves store version {STORE_VERSION}, as we do"))
            .with("address", address)
            .with("version", STORE_VERSION),
        Err(Error::Incompatible { theirs, ours, .. }) => Check::fail(
            "master",
            format!("{address} serves store version {theirs}, we need {ours}"),
            "run programs of one version on both sides",
        ),
        Err(error) => Check::fail(
            "master",
            format!("{address}: {error}"),
            "is it running, and does a firewall let this port through? --master takes its RPC address, not the admin port",
        ),
    }
}

/// Asks the engine of a peer whether it answers, and what it says about itself.
pub fn peer(address: &str, patience: Duration) -> Check {
    let hint = "is the process running, and does it listen there? For a node, this is the endpoint that `yuebing segments` shows";
    let failed = |error: &dyn std::fmt::Display| Check::fail("peer", format!("{address}: {error}"), hint);
    let engine = match Engine::builder().shm(false).build() {
        Ok(engine) => engine,
        Err(error) => return failed(&error),
    };
    let segment = match engine.open_segment(address) {
        Ok(segment) => segment,
        Err(error) => return failed(&error),
    };
    match engine.probe(&segment, engine.now() + patience) {
        Ok(()) => Check::ok("peer", format!("{address} answers the handshake")).with("address", address),
        Err(error) => failed(&error),
    }
}
