//! `yuebing replay --simulate` as a command.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;

fn yuebing(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_yuebing")).env_remove("MOONCAKE_MASTER").args(arguments).output().unwrap()
}

fn generated(requests: &str) -> tempfile::NamedTempFile {
    let trace = yuebing(&["trace", "generate", "--requests", requests, "--seed", "3"]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&trace.stdout).unwrap();
    file
}

fn simulated(trace: &str, arguments: &[&str]) -> Value {
    let output = yuebing(&[&["replay", trace, "--simulate", "--json"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn a_policy_is_put_between_lru_and_the_optimum() {
    let file = generated("400");
    let path = file.path().to_str().unwrap();
    let one = simulated(path, &["--capacity", "500"]);
    let number = |field: &str| one[field].as_f64().unwrap();
    assert_eq!((&one["policy"], &one["capacity"], &one["requests"]), (&"chain".into(), &500.into(), &400.into()));
    assert!(number("lru") > 0.0 && number("optimum") > number("lru"), "{one}");
    assert!(number("block_hit_ratio") > number("lru") && number("block_hit_ratio") < number("optimum"), "{one}");
    assert!(number("prefix_hit_ratio") <= number("block_hit_ratio") && number("blocks") > 400.0, "{one}");

    let several = simulated(path, &["--capacity", "100,1000000", "--policy", "lru"]);
    let large = &several[1];
    assert_eq!(several.as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&large["block_hit_ratio"], &large["lru"]),
        (&large["optimum"], &large["optimum"]),
        "nothing is evicted"
    );
    assert_eq!(large["evicted_blocks"], 0);

    let table = yuebing(&["replay", path, "--simulate", "--capacity", "100,200", "--policy", "s3-fifo"]);
    let text = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(text.starts_with("policy s3-fifo, 400 requests") && text.lines().count() == 5, "{text}");
}

#[test]
fn what_cannot_be_simulated_is_said() {
    let refused = |arguments: &[&str], code: i32, words: &[&str]| {
        let output = yuebing(arguments);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    let names = ["chain", "lru", "near-lru", "s3-fifo", "nonsense"];
    refused(&["replay", "x", "--simulate", "--capacity", "5", "--policy", "nonsense"], 2, &names);
    refused(&["replay", "x", "--simulate", "--capacity", "0"], 2, &["--capacity", "at least 1"]);
    refused(&["replay", "x", "--simulate"], 2, &["--capacity"]);
    refused(&["replay", "x", "--capacity", "5"], 2, &["--simulate"]);
    refused(&["replay", "/no/such/trace", "--simulate", "--capacity", "5"], 1, &["/no/such/trace"]);
    let mut broken = tempfile::NamedTempFile::new().unwrap();
    broken.write_all(b"{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\nnonsense\n").unwrap();
    refused(&["replay", broken.path().to_str().unwrap(), "--simulate", "--capacity", "5"], 1, &["line 2"]);
    let empty = tempfile::NamedTempFile::new().unwrap();
    refused(&["replay", empty.path().to_str().unwrap(), "--simulate", "--capacity", "5"], 1, &["no requests"]);
}

/// The published traces, if they are there.
fn published(name: &str) -> Option<String> {
    let folder = std::env::var_os("YB_TRACES")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/traces"), PathBuf::from);
    let path = folder.join(name);
    path.is_file().then(|| path.to_string_lossy().into_owned())
}

/// Capacity, LRU, the optimum, and the least that the default policy is to reach.
type Row = (usize, f64, f64, f64);

#[test]
fn the_published_traces_give_the_published_yardsticks_and_ours_stays_above_its_floor() {
    let rows: [(&str, [Row; 3]); 2] =
        [("conversation_trace.jsonl", FLOORS_CONVERSATION), ("synthetic_trace.jsonl", FLOORS_SYNTHETIC)];
    for (name, rows) in rows {
        let Some(path) = published(name) else {
            eprintln!("skipped: no {name} in YB_TRACES or ../shared/data/traces");
            continue;
        };
        let capacities = rows.map(|row| row.0.to_string()).join(",");
        let lines = simulated(&path, &["--capacity", &capacities]);
        for (line, (capacity, lru, optimum, floor)) in lines.as_array().unwrap().iter().zip(rows) {
            let number = |field: &str| line[field].as_f64().unwrap();
            assert_eq!(line["capacity"], capacity);
            assert!((number("lru") - lru).abs() < 0.001 && (number("optimum") - optimum).abs() < 0.001, "{line}");
            assert!(number("block_hit_ratio") >= floor && number("prefix_hit_ratio") >= floor, "{line}");
        }
    }
}

const FLOORS_CONVERSATION: [Row; 3] =
    [(5_000, 0.110, 0.341, 0.165), (10_000, 0.211, 0.366, 0.230), (20_000, 0.288, 0.366, 0.300)];
const FLOORS_SYNTHETIC: [Row; 3] =
    [(1_000, 0.083, 0.277, 0.085), (5_000, 0.279, 0.526, 0.285), (10_000, 0.424, 0.618, 0.450)];
