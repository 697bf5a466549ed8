//! The dashboard and the alert rules in deploy/: every metric they name exists, and promtool accepts them.
//!
//! Without promtool (Debian: `apt-get install prometheus`) that half says so in one line; with `CI=true` it is a failure.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::Rig;
use serde_json::Value;

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

/// The families of a master, with those that only multi-tenancy shows.
fn families() -> BTreeSet<String> {
    let rigs = [Rig::start(), Rig::with(|config| config.catalog.multi_tenant = true)];
    let pages = rigs.map(|rig| rig.page("/metrics"));
    let types = pages.iter().flat_map(|page| page.lines()).filter_map(|line| line.strip_prefix("# TYPE "));
    types.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Words of an expression that are names of metrics: all those with a prefix that our metrics have.
fn metrics_in(expression: &str) -> BTreeSet<&str> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let prefixes =
        ["master_", "yuebing_", "mooncake_", "mem_cache", "file_cache", "segment_", "total_get", "valid_get", "ha_"];
    words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).collect()
}

fn assert_known(families: &BTreeSet<String>, expression: &str) -> usize {
    let metrics = metrics_in(expression);
    for name in &metrics {
        let stem = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let known = |name: &str| families.contains(name);
        assert!(known(name) || stem.is_some_and(known), "{name} is no metric, in: {expression}");
    }
    metrics.len()
}

/// Every expression of the dashboard.
fn expressions(node: &Value, into: &mut Vec<String>) {
    match node {
        Value::Object(map) => {
            into.extend(map.get("expr").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|child| expressions(child, into));
        }
        Value::Array(items) => items.iter().for_each(|child| expressions(child, into)),
        _ => {}
    }
}

fn dashboard() -> Vec<String> {
    let board: Value = serde_json::from_str(&std::fs::read_to_string(deploy("grafana/master.json")).unwrap()).unwrap();
    let mut found = Vec::new();
    expressions(&board, &mut found);
    found
}

#[test]
fn every_metric_of_the_dashboard_and_the_rules_exists() {
    let families = families();
    let board = dashboard();
    assert!(board.len() > 40, "{} expressions", board.len());
    for expression in &board {
        assert!(assert_known(&families, expression) > 0, "no metric in {expression}");
    }
    let rules = std::fs::read_to_string(deploy("prometheus/alerts.yml")).unwrap();
    let lines = rules.lines().filter(|line| !line.contains("description:") && !line.contains("summary:"));
    assert!(lines.map(|line| assert_known(&families, line)).sum::<usize>() > 15);
    let texts = rules.lines().filter(|line| line.contains("description:"));
    texts.for_each(|line| {
        assert_known(&families, line);
    });
}

#[test]
fn every_alert_has_a_row_that_says_what_to_do() {
    let rules = std::fs::read_to_string(deploy("prometheus/alerts.yml")).unwrap();
    let page = std::fs::read_to_string(deploy("../docs/book/alerts.md")).unwrap();
    let alerts: BTreeSet<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    let rows: BTreeSet<&str> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .filter(|name| *name != "alert")
        .collect();
    assert!(alerts.len() > 15 && alerts == rows, "{:?}", alerts.symmetric_difference(&rows));
}

/// Runs promtool; `None` when it is not there.
fn promtool(arguments: &[&str], folder: &Path) -> Option<(bool, String)> {
    let output = Command::new("promtool").args(arguments).current_dir(folder).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    Some((output.status.success(), text))
}

#[test]
fn promtool_accepts_rules_and_expressions() {
    let folder = deploy("prometheus");
    let Some((good, text)) = promtool(&["check", "rules", "alerts.yml"], &folder) else {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "promtool is missing (apt-get install prometheus)"
        );
        println!("rules not checked: promtool is missing (apt-get install prometheus)");
        return;
    };
    assert!(good, "{text}");
    let (good, text) = promtool(&["test", "rules", "alerts.test.yml"], &folder).unwrap();
    assert!(good, "{text}");
    // The dashboard's expressions as recording rules, with Grafana's variables filled in.
    let rules: Vec<Value> = dashboard()
        .iter()
        .enumerate()
        .map(|(at, expr)| {
            let expr = expr.replace("$__rate_interval", "5m").replace("$instance", ".*");
            serde_json::json!({"record": format!("panel:{at}"), "expr": expr})
        })
        .collect();
    let file = tempfile::Builder::new().suffix(".yml").tempfile().unwrap();
    let groups = serde_json::json!({"groups": [{"name": "dashboard", "rules": rules}]});
    std::fs::write(file.path(), groups.to_string()).unwrap();
    let (good, text) = promtool(&["check", "rules", file.path().to_str().unwrap()], &folder).unwrap();
    assert!(good, "{text}");
}

#[test]
fn promtool_finds_no_fault_in_the_metrics_page() {
    let rig = Rig::start();
    let page = rig.page("/metrics");
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut child) = check.spawn() else {
        assert!(
            std::env::var_os("CI").is_none_or(|ci| ci != "true"),
            "promtool is missing (apt-get install prometheus)"
        );
        println!("the metrics page was not checked: promtool is missing (apt-get install prometheus)");
        return;
    };
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), page.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    // The names of the peer's metrics break rules of style; ours do not.
    let faults: Vec<&str> =
        text.lines().filter(|line| line.starts_with("yuebing_") || line.contains("error")).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}
