//! Settings of a real master: explained, changed by SIGHUP and over HTTP, and refused.
#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn yuebing(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_yuebing")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_setting_is_explained() {
    let explained = yuebing(&["config", "explain", "eviction_ratio", "--", "--eviction_ratio=0.1"]);
    assert_eq!(explained.status.code(), Some(0));
    let text = stdout(&explained);
    for part in ["value       0.1", "from        flag", "default     0.05", "--eviction_ratio", "live        yes"] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
    assert!(text.contains("No running master was asked"), "{text}");
    let table = stdout(&yuebing(&["config", "explain"]));
    assert!(table.lines().count() < 200 && table.lines().any(|line| line.starts_with("eviction_ratio ")), "{table}");
    assert!(stdout(&yuebing(&["config", "explain", "--all"])).lines().count() > 1000);
    let refused = yuebing(&["config", "explain", "eviction_rato"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("did you mean eviction_ratio?"));
    let all: Value = serde_json::from_slice(&yuebing(&["config", "explain", "--json"]).stdout).unwrap();
    assert!(all.as_array().unwrap().len() > 100);
    let node = yuebing(&["config", "explain", "--of", "node", "global_segment_size"]);
    assert!(stdout(&node).contains("global_segment_size"));
}

#[test]
fn a_variable_that_nobody_reads_is_named() {
    let warned = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_yuebing"));
        let output = command.args(["config", "explain", "eviction_ratio"]).env(name, "1").output().unwrap();
        assert_eq!(output.status.code(), Some(0));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let text = warned("YUEBING_SECRT_FILE");
    assert!(text.lines().count() == 1 && text.contains("did you mean YUEBING_SECRET_FILE?"), "{text}");
    assert_eq!(warned("YB_SHM"), "");
}

/// A master with a settings file, and its log line by line.
struct Running {
    child: Child,
    log: BufReader<ChildStderr>,
    admin: String,
}

impl Running {
    fn start(file: &Path) -> Running {
        let mut child = Command::new(env!("CARGO_BIN_EXE_yuebing"))
            .args(["master", "--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1", "--metrics_port=0", "--port=0"])
            .args([&format!("--config_path={}", file.display()), "--log_format=json"])
            .env_remove("RUST_LOG")
            .env_remove("YUEBING_ADMIN_TOKEN")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut running = Running { child, log, admin: String::new() };
        let line = running.event("admin_listens");
        let message = line["message"].as_str().unwrap();
        running.admin = message.split("http://").nth(1).unwrap().trim_end_matches('/').to_owned();
        running
    }

    /// Reads the log until this event.
    fn event(&mut self, name: &str) -> Value {
        loop {
            let mut line = String::new();
            assert!(self.log.read_line(&mut line).unwrap() > 0, "the log ends before {name}");
            let line: Value = serde_json::from_str(&line).unwrap();
            if line["event"] == name {
                return line;
            }
        }
    }

    fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    fn request(&self, line: &str, body: &str) -> (u16, Value) {
        let mut socket = TcpStream::connect(&self.admin).unwrap();
        write!(socket, "{line} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    fn value(&self, name: &str) -> (String, String) {
        let (_, answer) = self.request(&format!("GET /api/v1/config?name={name}"), "");
        let setting = &answer["settings"][0];
        (setting["value"].as_str().unwrap().to_owned(), setting["source"].as_str().unwrap().to_owned())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn settings_change_by_hang_up_and_over_http() {
    let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
    let write = |text: &str| std::fs::write(file.path(), text).unwrap();
    write("eviction_ratio: 0.1\nmax_request_elements: 100\n");
    let mut master = Running::start(file.path());
    assert_eq!(master.value("eviction_ratio"), ("0.1".to_owned(), "file".to_owned()));

    write("eviction_ratio: 0.2\nmax_request_elements: 200\nv: 1\n");
    master.hang_up();
    let changed = master.event("setting_changed");
    let refused = master.event("setting_refused");
    assert!([("v", "0", "1"), ("eviction_ratio", "0.1", "0.2")].contains(&(
        changed["name"].as_str().unwrap(),
        changed["old"].as_str().unwrap(),
        changed["new"].as_str().unwrap()
    )));
    assert_eq!((refused["name"].as_str(), refused["new"].as_str()), (Some("max_request_elements"), Some("200")));
    let done = master.event("settings_reloaded");
    assert_eq!((done["applied"].as_u64(), done["refused"].as_u64()), (Some(2), Some(1)));
    assert_eq!(master.value("eviction_ratio").0, "0.2");
    assert_eq!(master.value("max_request_elements").0, "100");

    write("eviction_rato: 0.3\n");
    master.hang_up();
    let failed = master.event("reload_failed");
    assert!(failed["error"].as_str().unwrap().contains("did you mean eviction_ratio?"), "{failed}");
    let (status, answer) = master.request("POST /api/v1/config/reload", "");
    assert_eq!((status, answer["error_code"].as_i64()), (400, Some(-600)));
    assert_eq!(master.value("eviction_ratio").0, "0.2", "nothing changed");

    let (status, answer) = master.request("PUT /api/v1/config", r#"{"default_kv_lease_ttl":"3s"}"#);
    assert_eq!((status, answer["applied"][0]["new"].as_str()), (200, Some("3000")));
    assert_eq!(master.value("default_kv_lease_ttl"), ("3000".to_owned(), "http".to_owned()));
    let (status, answer) = master.request("PUT /api/v1/config", r#"{"rpc_port":1,"eviction_ratio":0.4}"#);
    assert_eq!(status, 409);
    assert!(answer["error_message"].as_str().unwrap().contains("needs a restart: rpc_port"), "{answer}");
    let (status, answer) = master.request("PUT /api/v1/config", r#"{"put_start_discard_timeout_sec":700}"#);
    assert_eq!(status, 400, "longer than the release timeout: {answer}");
    assert_eq!(master.value("eviction_ratio").0, "0.2", "all or nothing");

    let explained = yuebing(&["config", "explain", "eviction_ratio", "--running", &master.admin]);
    assert!(stdout(&explained).contains("from        file"), "{}", stdout(&explained));
    let table = stdout(&yuebing(&["config", "explain", "--admin", &master.admin]));
    assert!(
        table.contains("eviction_ratio") && table.contains(&format!("Asked the master at http://{}", master.admin))
    );
    kill_process(Pid::from_child(&master.child), Signal::TERM).unwrap();
    master.event("master_stops");
    assert_eq!(master.child.wait().unwrap().code(), Some(0));
}
