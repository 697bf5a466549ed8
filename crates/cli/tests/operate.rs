//! The commands that look at a pool and change it, with a real one: top, segments, tenants, tasks, config set, flags of `up`.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn yuebing() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yuebing"));
    for name in
        ["MOONCAKE_MASTER", "YUEBING_ADMIN", "MOONCAKE_CONFIG_PATH", "MOONCAKE_TENANT_ID", "YUEBING_ADMIN_TOKEN"]
    {
        command.env_remove(name);
    }
    command
}

/// `yuebing up`, which ends with the test.
struct Pool {
    child: Child,
    master: String,
    admin: String,
}

impl Pool {
    fn start(flags: &[&str]) -> Pool {
        let mut command = yuebing();
        command.args(["up", "--json", "--memory", "64MiB", "--nodes", "2", "--"]).args(flags);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        let text = |name: &str| said[name].as_str().unwrap().to_owned();
        Pool { child, master: text("master"), admin: text("admin") }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.run_with(arguments, b"")
    }

    fn run_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = yuebing();
        command.args(arguments).env("MOONCAKE_MASTER", &self.master).env("YUEBING_ADMIN", &self.admin);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A command that reads nothing may have ended by now.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// The text of a command that has to succeed.
    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", said(&output));
        assert!(output.stderr.is_empty(), "{arguments:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[arguments, &["--json"]].concat())).unwrap()
    }

    /// What a command says that has to fail.
    fn refused(&self, arguments: &[&str], code: i32) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", said(&output));
        said(&output)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_pool_is_watched() {
    let pool = Pool::start(&[]);
    let stored = pool.run_with(&["put", "k", "-"], &[7; 100_000]);
    assert_eq!(stored.status.code(), Some(0), "{}", said(&stored));
    let view = pool.json(&["top", "--interval", "0.05"]);
    assert_eq!((view["schema"].as_u64(), view["keys"].as_u64()), (Some(1), Some(1)), "{view}");
    assert!(view["used_bytes"].as_u64() >= Some(100_000) && view["interval_seconds"].as_f64() >= Some(0.05), "{view}");
    assert!(view["calls"].as_array().unwrap().iter().any(|call| call["total"].as_u64() > Some(0)), "{view}");
    assert_eq!(view["segments"].as_array().unwrap().len(), 2);
    let picture = pool.text(&["top", "--once", "--interval", "0.05"]);
    assert!(picture.contains("yuebing top  http://") && picture.contains("keys 1"), "{picture}");
    // Nobody looks at standard output as a page: one picture and the end.
    let piped = pool.text(&["top", "--interval", "0.05"]);
    assert!(!piped.contains('\x1b') && piped.contains("memory  ["), "{piped}");

    let segments = pool.json(&["segments", "--sort", "used"]);
    let used: Vec<u64> = segments.as_array().unwrap().iter().map(|s| s["used_bytes"].as_u64().unwrap()).collect();
    assert!(used.len() == 2 && used[0] >= 100_000 && used[1] <= used[0], "{segments}");
    let name = segments[0]["name"].as_str().unwrap();
    assert!(segments[0]["client"].is_string() && segments[0]["status"] == "OK", "{segments}");
    assert_eq!(pool.json(&["segments", name]).as_array().unwrap().len(), 1);
    assert!(pool.text(&["segments", "no such"]).contains("no name of the 2 segments"));

    // The admin port of the environment is that of the environment's master, not of one that the command line names.
    for command in ["status", "ls", "segments", "top"] {
        let said = pool.refused(&[command, "--master", "127.0.0.1:1"], 4);
        assert!(said.contains("127.0.0.1:1"), "{command}: {said}");
    }

    let tasks = pool.json(&["tasks"]);
    assert_eq!((tasks["pending"].as_u64(), tasks["drain_jobs"].as_array().map(Vec::len)), (Some(0), Some(0)));
    let drained = pool.json(&["drain", name, "--watch"]);
    assert_eq!(drained["status_name"], "SUCCEEDED", "{drained}");
    let text = pool.text(&["tasks"]);
    assert!(text.contains("SUCCEEDED") && text.contains(name), "{text}");
    let unreachable = pool.refused(&["top", "--once", "--admin", "127.0.0.1:1"], 4);
    assert!(unreachable.contains("127.0.0.1:1"), "{unreachable}");
}

#[test]
fn settings_come_with_up_and_change_while_it_runs() {
    let pool = Pool::start(&["--eviction_ratio=0.2", "--default_kv_lease_ttl=3s"]);
    let ratio = || {
        let found = pool.json(&["config", "explain", "eviction_ratio", "--running", &pool.admin]);
        let exact =
            found.as_array().unwrap().iter().find(|setting| setting["name"] == "eviction_ratio").unwrap().clone();
        (exact["value"].as_str().unwrap().to_owned(), exact["source"].as_str().unwrap().to_owned())
    };
    assert_eq!(ratio(), ("0.2".to_owned(), "flag".to_owned()));
    let changed = pool.text(&["config", "set", "eviction_ratio=0.1"]);
    assert_eq!(changed, "eviction_ratio: 0.2 -> 0.1\n");
    assert_eq!(ratio().0, "0.1");
    assert!(pool.refused(&["config", "set", "eviction_rato=0.1"], 1).contains("did you mean eviction_ratio?"));
    assert!(pool.refused(&["config", "set", "eviction_ratio=0.3", "rpc_port=5"], 1).contains("restart"));
    assert_eq!(ratio().0, "0.1", "all of them or none");
    pool.refused(&["config", "set", "eviction_ratio"], 2);
    pool.refused(&["config", "set", "v=1", "v=2"], 2);
    // A flag that leads the nodes astray, and one that the master refuses.
    pool.refused(&["up", "--", "--rpc_port=5"], 2);
    let bad = pool.refused(&["up", "--", "--no_such_flag=5"], 1);
    assert!(bad.contains("no_such_flag"), "{bad}");
}

#[test]
fn tenants_are_apart() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "version: 1\ntenants:\n  - name: default\n    quota: 16MB\n").unwrap();
    let source = format!("--tenant_quota_connector_uri={}", file.path().display());
    let pool = Pool::start(&["--enable_multi_tenants", &source]);
    assert_eq!(pool.text(&["tenants", "set", "alice", "8MiB"]), "alice may use 8 MiB\n");
    for (tenant, value) in [("default", b"one"), ("alice", b"two")] {
        let stored = pool.run_with(&["put", "k%1", "-", "--tenant", tenant], value);
        assert_eq!(stored.status.code(), Some(0), "{}", said(&stored));
    }
    assert_eq!(pool.text(&["get", "k%1"]), "one");
    assert_eq!(pool.text(&["get", "k%1", "--tenant", "alice"]), "two");
    assert_eq!(pool.text(&["ls", "--tenant", "alice"]), "k%1\n");
    assert_eq!(pool.text(&["rm", "--force", "--tenant", "alice", "k%1"]), "");
    assert_eq!(pool.text(&["ls", "--tenant", "alice"]), "");
    assert_eq!(pool.text(&["ls"]), "k%1\n");
    let tenants = pool.json(&["tenants"]);
    let alice = tenants.as_array().unwrap().iter().find(|tenant| tenant["tenant_id"] == "alice").unwrap();
    assert_eq!(alice["requested_quota_bytes"].as_u64(), Some(8 << 20), "{tenants}");
    assert!(pool.text(&["tenants"]).lines().any(|line| line.starts_with("alice") && line.contains("open")));
    pool.text(&["tenants", "rm", "alice"]);
    for nobody in ["alice", "nosuch"] {
        assert!(pool.refused(&["tenants", "rm", nobody], 3).contains(&format!("no tenant \"{nobody}\"")));
    }
    pool.refused(&["tenants", "rm", ""], 2);
    pool.refused(&["tenants", "set", "bob", "0"], 2);
    assert_eq!(pool.text(&["ls", "--tenant", "alice"]), "", "a name that nobody registered owns nothing");
    assert!(pool.refused(&["tenants", "rm", "default"], 1).contains("rm --all"));
}

#[test]
fn a_pool_without_tenants_says_so() {
    let pool = Pool::start(&[]);
    let refused = pool.refused(&["tenants"], 1);
    assert!(refused.contains("--enable_multi_tenants"), "{refused}");
}
