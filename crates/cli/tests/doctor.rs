//! `yuebing doctor` for real: on this machine as it is, and with things broken on purpose.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

/// What the command promises to need at most.
const LIMIT: Duration = Duration::from_secs(10);

fn yuebing() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yuebing"));
    for name in ["MOONCAKE_MASTER", "YUEBING_ADMIN", "MOONCAKE_CONFIG_PATH", "MC_CXL_DEV_PATH"] {
        command.env_remove(name);
    }
    command
}

/// Runs it with `--json`: exit code and report.
fn doctor(arguments: &[&str]) -> (i32, Value) {
    let clock = yb_env::Clock::real();
    // A busy machine has more than one try.
    let in_time = (0..3).find_map(|_| {
        let started = clock.now();
        let output = yuebing().args(["doctor", "--json"]).args(arguments).output().unwrap();
        (clock.now().since(started) < LIMIT).then_some(output)
    });
    let output = in_time.unwrap_or_else(|| panic!("{arguments:?} took too long, three times"));
    let text = String::from_utf8(output.stdout).unwrap();
    let report = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no JSON: {text}"));
    (output.status.code().unwrap(), report)
}

fn check<'a>(report: &'a Value, id: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    checks.iter().find(|check| check["id"] == id).unwrap_or_else(|| panic!("no {id} in {report}"))
}

/// The run ends with 1, says no, and `id` failed with this in its text.
fn fails(arguments: &[&str], id: &str, text: &str) {
    let (code, report) = doctor(arguments);
    let found = check(&report, id);
    assert!(code == 1 && report["ok"] == false, "{report}");
    assert!(found["status"] == "fail" && found["text"].as_str().unwrap().contains(text), "{found}");
    assert!(found["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{found}");
    assert!(report["verdict"].as_str().unwrap().starts_with("no: "), "{report}");
    assert!(report["reasons"].as_array().unwrap().iter().any(|reason| reason.as_str().unwrap().starts_with(id)));
}

#[test]
fn every_check_is_told_as_text_and_as_json() {
    let (code, report) = doctor(&[]);
    assert_eq!((code == 0, report["schema"].as_u64()), (report["ok"] == true, Some(1)), "{report}");
    for id in [
        "interfaces",
        "ipv6",
        "advertised",
        "dial-back",
        "memlock",
        "open-files",
        "ephemeral-ports",
        "ptrace-scope",
        "clock",
        "huge-pages",
        "dev-shm",
        "memory-files",
        "io-uring",
        "rdma",
        "cuda",
        "cxl",
    ] {
        let found = check(&report, id);
        assert!(["ok", "warn", "fail"].contains(&found["status"].as_str().unwrap()), "{found}");
        assert!(!found["text"].as_str().unwrap().is_empty(), "{found}");
        assert_eq!(
            found["status"] == "ok",
            found.get("hint").is_none(),
            "what is not ok has a hint, and only that: {found}"
        );
    }
    assert_eq!(check(&report, "dial-back")["status"], "ok", "this machine reaches itself");
    let output = yuebing().arg("doctor").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let last = text.lines().last().unwrap();
    assert!(last.starts_with(if code == 0 { "yes: " } else { "no: " }), "{text}");
    assert!(output.stderr.is_empty(), "the report is all that is said");
}

#[test]
fn a_port_in_use_and_addresses_that_lead_nowhere_fail() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    fails(&["--host", "127.0.0.1", "--port", &port], "dial-back", "in use");
    fails(&["--advertise", "0.0.0.0"], "advertised", "dial themselves");
    fails(&["--host", "::", "--advertise", "[::]"], "advertised", "dial themselves");
    fails(&["--host", "127.0.0.1", "--advertise", "127.0.0.9"], "dial-back", "does not lead back");
    fails(&["--host", "203.0.113.7"], "dial-back", "cannot listen");
    fails(&["--cxl", "/dev/no-such-dax"], "cxl", "no-such-dax");
    fails(&["--memory", "100000TiB"], "free-memory", "are wanted");
}

#[test]
fn a_name_that_other_hosts_cannot_reach_is_told() {
    // Kept for documents: a master there is on no host, above all not on this one.
    let run = |name: Option<&str>, master: &str| {
        let mut command = yuebing();
        command.args(["doctor", "--json", "--master", master]).env_remove("MOONCAKE_CONFIG_PATH");
        match name {
            Some(name) => command.env("MOONCAKE_LOCAL_HOSTNAME", name),
            None => command.env_remove("MOONCAKE_LOCAL_HOSTNAME"),
        };
        let report: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
        check(&report, "local-hostname").clone()
    };
    let told = run(None, "192.0.2.1:50051");
    assert_eq!(told["status"], "warn", "{told}");
    assert!(told["hint"].as_str().unwrap().contains("MOONCAKE_LOCAL_HOSTNAME"), "{told}");
    assert_eq!(run(Some("10.0.0.5"), "192.0.2.1:50051")["status"], "ok");
    assert_eq!(run(None, "127.0.0.1:1")["status"], "ok");
}

#[test]
fn peers_and_masters_that_are_not_there_fail_in_time() {
    let closed = format!("127.0.0.1:{}", yb_env::free_port().unwrap());
    fails(&["--peer", &closed], "peer", &closed);
    fails(&["--master", &closed], "master", &closed);
    // The master of the configuration file is asked too.
    let file = std::env::temp_dir().join(format!("yuebing-doctor-{}.json", std::process::id()));
    std::fs::write(&file, format!("{{\"master_server_address\": \"{closed}\"}}")).unwrap();
    let output = yuebing().args(["doctor", "--json"]).env("MOONCAKE_CONFIG_PATH", &file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(check(&report, "master")["status"], "fail", "{report}");
    let asked = report["checks"].as_array().unwrap().iter().any(|check| check["id"] == "versions");
    assert!(!asked, "at the usual admin port may be another pool: {report}");
    // It takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = (silent.local_addr().unwrap().to_string(), silent);
    fails(&["--peer", &silent.0], "peer", &silent.0);
    fails(&["--peer", "no port"], "peer", "no port");
}

/// A pool that ends with the test.
struct Pool(Child);

impl Drop for Pool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_pool_that_runs_answers() {
    let mut command = yuebing();
    command.args(["up", "--json", "--memory", "64MiB"]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut pool = Pool(command.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(pool.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    let (master, admin) = (said["master"].as_str().unwrap(), said["admin"].as_str().unwrap());
    let status = yuebing().args(["status", "--json", "--admin", admin]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let node = status["segments"][0]["endpoint"].as_str().unwrap();
    let (_, report) = doctor(&["--master", master, "--peer", node]);
    for id in ["master", "peer", "advertised", "dial-back"] {
        assert_eq!(check(&report, id)["status"], "ok", "{report}");
    }
    assert!(check(&report, "advertised")["text"].as_str().unwrap().contains("reaches"), "{report}");
}
