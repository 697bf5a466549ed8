//! The metrics page: every name of the peer with its type and labels, numbers that are true, and the page in docs/ that
//! describes it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use common::Rig;

/// A family as the page shows it.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    labels: BTreeSet<String>,
    samples: usize,
}

fn families(page: &str) -> BTreeMap<String, Family> {
    let mut all: BTreeMap<String, Family> = BTreeMap::new();
    let mut help = "";
    let mut current = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').unwrap().1;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(!all.contains_key(name), "{name} is there twice");
            current = name.to_owned();
            let family = Family { kind: kind.to_owned(), help: help.to_owned(), ..Family::default() };
            all.insert(current.clone(), family);
        } else {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<f64>().unwrap() >= 0.0, "never below zero: {line}");
            let (name, labels) = series.split_once('{').unwrap_or((series, ""));
            let stem = ["", "_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end).filter(|n| *n == current));
            assert_eq!(stem, Some(current.as_str()), "a sample outside its family: {line}");
            let family = all.get_mut(&current).unwrap();
            family.samples += 1;
            let names = labels.trim_end_matches('}').split("\",").filter_map(|label| label.split_once("=\""));
            family.labels.extend(names.map(|(name, _)| name.to_owned()).filter(|name| name != "le"));
        }
    }
    all
}

/// A master that has seen a little of everything.
fn rig() -> Rig {
    let rig = Rig::with(|config| config.catalog.multi_tenant = false);
    let node = rig.caller();
    node.give_memory(1 << 20);
    node.put(b"key", 1000).unwrap();
    node.get(b"key").unwrap();
    assert!(!node.exists(b"other"));
    rig
}

#[test]
fn every_name_of_the_peer_is_there_with_its_type_and_labels() {
    let ours = families(&rig().page("/metrics"));
    for line in include_str!("peer-metrics.txt").lines().filter(|line| !line.starts_with('#')) {
        let [name, kind, labels, ..] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let family = ours.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        assert_eq!(family.kind, kind, "{name}");
        let wanted: BTreeSet<String> = labels.split(',').filter(|label| *label != "-").map(str::to_owned).collect();
        assert_eq!(family.labels, wanted, "{name}");
        assert!(family.samples > 0, "{name} has no sample");
    }
}

#[test]
fn numbers_follow_what_happened() {
    let rig = Rig::start();
    let node = rig.caller();
    node.give_memory(1 << 20);
    node.put(b"key", 1000).unwrap();
    assert!(node.put(b"key", 1000).is_err());
    node.get(b"key").unwrap();
    assert!(node.get(b"never").is_err());
    node.put(b"gone", 1000).unwrap();
    node.remove(b"gone", true).unwrap();
    assert!(node.get(b"gone").is_err());
    node.put_start(b"begun", 1000).unwrap();
    assert!(node.get(b"begun").is_err());
    for (name, value) in [
        ("master_key_count", 2),
        ("mem_cache_nums_", 1),
        ("master_put_start_requests_total", 4),
        ("master_put_start_failures_total", 1),
        ("master_put_start_object_already_exists_total", 1),
        ("yuebing_put_refusals_total{reason=\"exists\"}", 1),
        ("total_get_nums_", 4),
        ("valid_get_nums_", 1),
        ("mem_cache_hit_nums_", 1),
        ("mem_cache_hit_bytes_total", 1000),
        ("yuebing_get_misses_total{reason=\"never_seen\"}", 1),
        ("yuebing_get_misses_total{reason=\"removed\"}", 1),
        ("yuebing_get_misses_total{reason=\"being_written\"}", 1),
        ("yuebing_get_misses_total{reason=\"evicted\"}", 0),
        ("yuebing_requests_by_generation_total{generation=\"0.3.13 and 0.3.14\"}", 12),
        ("master_value_size_bytes_bucket{le=\"4096.000000\"}", 3),
        ("master_value_size_bytes_count", 3),
        ("yuebing_queue_depth{queue=\"slow_lane\"}", 0),
        ("yuebing_shard_lock_waits_total", 0),
    ] {
        assert_eq!(rig.metric(name), value, "{name}");
    }
    assert!(rig.metric("mooncake_process_rss_bytes") > 1 << 20);
    for _ in 0..400 {
        assert!(!node.exists(b"never"));
    }
    let looked_at = rig.metric("yuebing_exist_misses_total{reason=\"never_seen\"}");
    assert!(looked_at.is_multiple_of(16) && (16..=1600).contains(&looked_at), "{looked_at} of 400");
    let timed = rig.metric("yuebing_rpc_duration_seconds_count{rpc=\"exist_key\"}");
    assert!((1..=100).contains(&timed), "{timed} of 400 timed");
}

#[test]
fn samples_of_a_segment_go_with_it() {
    let rig = Rig::start();
    let node = rig.caller();
    let segment = node.give_memory(1 << 20);
    let series = format!("segment_total_capacity_bytes{{segment=\"{}\"}}", segment.name);
    assert_eq!(rig.metric(&series), 1 << 20);
    let args = yb_wire::messages::UnmountSegmentArgs { segment_id: segment.id, client_id: node.id };
    node.call::<yb_wire::call::UnmountSegment, _>(&args, |reply| reply).unwrap();
    assert!(!rig.page("/metrics").contains(&segment.name));
}

#[test]
fn the_summary_has_the_peers_fields_in_order() {
    let line = rig().page("/metrics/summary");
    let mut rest = line.as_str();
    for field in [
        "role=leader, state=serving, service_ready=true, master={Mem Storage: 1.00 KB / 1.00 MB (0.1%) | NVMe-oF SSD: 0 B / 0 B | SSD Storage: ",
        " | Keys: 1 (soft-pinned: 0) | Clients: 1 | Requests (Success/Total per sec): PutStart=",
        ", PutEnd=",
        ", PutRevoke=0.00/0.00",
        ", Get=",
        ", Exist=",
        ", Del=",
        ", DelAll=",
        ", Ping=",
        ", CopyStart=",
        ", CopyEnd=",
        ", CopyRevoke=",
        ", MoveStart=",
        ", MoveEnd=",
        ", MoveRevoke=",
        ", EvictDiskReplica=0.00/0.00 | ",
        "Batch Requests (per sec, Req=Success/PartialSuccess/Total, Item=Success/Total): PutStart:(Req=0.00/0.00/0.00, Item=0.00/0.00), ",
        "PutEnd:(",
        "PutRevoke:(",
        "Get:(",
        "ExistKey:(",
        "QueryIp:(",
        "Clear:(",
        "CreateMoveTask:(Req=0.00/0.00), ",
        "CreateCopyTask:(",
        "QueryTask:(",
        "FetchTasks:(",
        "MarkTaskToComplete:(Req=0.00/0.00) | ",
        "Eviction: Success/Attempts=0/0, AllocFail=0, PartialAlloc=0, keys=0, size=0 B | ",
        "Mem Eviction: Success/Attempts=0/0, keys=0, size=0 B | NoF Eviction: ",
        " | Discard: Released/Total=0/0, StagingSize=0 B | ",
        "Promotion: in_flight=0, ",
        "rejected(freq/wm/cap)=0/0/0 | Snapshots: Success=0, Fail=0}, ha={HA Metrics Summary: last_seq=0, ",
    ] {
        let at = rest.find(field).unwrap_or_else(|| panic!("{field:?} is missing or misplaced in {line}"));
        rest = &rest[at + field.len()..];
    }
}

/// Families that appear only with multi-tenancy or a node of ours: the page in docs/ shows them too. Labels of families
/// without a sample here are named in the test.
fn everything() -> BTreeMap<String, Family> {
    let mut all = families(&rig().page("/metrics"));
    let tenants = Rig::with(|config| config.catalog.multi_tenant = true);
    for (name, family) in families(&tenants.page("/metrics")) {
        all.entry(name).or_insert(family);
    }
    all
}

#[test]
fn the_docs_list_every_metric() {
    let peers: BTreeMap<&str, (&str, &str)> = include_str!("peer-metrics.txt")
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let parts: Vec<&str> = line.split(' ').collect();
            (parts[0], (parts[3], parts[4]))
        })
        .collect();
    let mut page = include_str!("metrics-intro.md").to_owned();
    for (name, family) in everything() {
        let labels: Vec<&str> = match (name.as_str(), family.labels.is_empty()) {
            ("mooncake_tenant_quota_reject_total", true) => vec!["reason", "tenant_id"],
            ("yuebing_nodes_by_version", true) => vec!["version"],
            ("yuebing_rpc_duration_seconds", true) => vec!["rpc"],
            ("yuebing_slow_lane_run_seconds" | "yuebing_slow_lane_wait_seconds", true) => vec!["lane"],
            (name, true)
                if name.starts_with("mooncake_tenant_") && !name.ends_with("_sum") && !name.contains("allocatable") =>
            {
                vec!["tenant_id"]
            }
            _ => family.labels.iter().map(String::as_str).collect(),
        };
        let since = match peers.get(name.as_str()) {
            Some(("yes", _)) => "0.3.13",
            Some(_) => "0.3.14",
            None if name.starts_with("yuebing_") => "ours",
            None => "peer, when used",
        };
        writeln!(
            page,
            "| `{name}` | {} | {} | {since} | {} |",
            family.kind,
            labels.join(", "),
            family.help.replace('|', "\\|")
        )
        .unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    if std::env::var_os("YB_BLESS").is_some() {
        std::fs::write(path, &page).unwrap();
    }
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    assert!(kept == page, "docs/metrics.md is stale: YB_BLESS=1 cargo test -p yb-master --test metrics");
}
