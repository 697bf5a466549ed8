//! Which versions meet in the pool.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::report::Check;
use crate::http;

const OURS: &str = env!("CARGO_PKG_VERSION");

/// What the admin port tells of the master and of those who ping it. `guessed`: nobody named this address.
pub fn check(admin: &str, guessed: bool) -> Check {
    let status = match http::get(admin, "/status.json") {
        Ok(answer) => answer,
        Err(error) if guessed => {
            return Check::ok("versions", format!("not known: {error}")).with("asked", admin);
        }
        Err(error) => {
            return Check::fail(
                "versions",
                error,
                "--admin takes the admin (metrics) port of the master, 9003 unless said",
            );
        }
    };
    if status.status != 200 {
        return Check::ok("versions", format!("{admin} is a master of Mooncake: it tells none")).with("asked", admin);
    }
    let version =
        serde_json::from_slice::<Value>(&status.body).unwrap_or_default()["version"].as_str().map(str::to_owned);
    let clients = http::get(admin, "/api/v1/clients?limit=10000").ok();
    let clients: Value = clients.and_then(|answer| serde_json::from_slice(&answer.body).ok()).unwrap_or_default();
    judge(&version.unwrap_or_else(|| "unknown".to_owned()), &count(&clients)).with("asked", admin)
}

/// Clients by the version that they said; `None` for those that say none.
fn count(clients: &Value) -> BTreeMap<Option<String>, u64> {
    let mut counts = BTreeMap::new();
    for client in clients["clients"].as_array().into_iter().flatten() {
        *counts.entry(client["version"].as_str().map(str::to_owned)).or_insert(0) += 1;
    }
    counts
}

fn judge(master: &str, clients: &BTreeMap<Option<String>, u64>) -> Check {
    let told = clients.iter().map(|(version, count)| match version {
        Some(version) => format!("{count} of {version}"),
        None => format!("{count} that say none (of Mooncake, or clients that lend nothing)"),
    });
    let told = told.collect::<Vec<_>>().join(", ");
    let clients_told = if told.is_empty() { "none".to_owned() } else { told };
    let text = format!("this program {OURS}, master {master}, clients: {clients_told}");
    let same = master == OURS && clients.keys().flatten().all(|version| version == OURS);
    let check = match same {
        true => Check::ok("versions", text),
        false => Check::warn(
            "versions",
            text,
            "they work together as far as the wire goes; bring all to one version, the master first",
        ),
    };
    let counts: BTreeMap<&str, u64> =
        clients.iter().map(|(version, count)| (version.as_deref().unwrap_or("none"), *count)).collect();
    check.with("master", master).with("clients", json!(counts))
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    #[test]
    fn another_version_in_the_pool_is_told() {
        let clients =
            |version: Value| count(&json!({"clients": [{"version": OURS}, {"version": null}, {"version": version}]}));
        let same = judge(OURS, &clients(json!(OURS)));
        assert!(same.level == Level::Ok && same.text.contains(&format!("2 of {OURS}")), "{same:?}");
        let mixed = judge(OURS, &clients(json!("0.0.1")));
        assert!(mixed.level == Level::Warn && mixed.text.contains("1 of 0.0.1"), "{mixed:?}");
        assert_eq!(judge("0.0.1", &BTreeMap::new()).level, Level::Warn);
    }
}
