//! The metadata server and the topology dump as processes, under the peer's names and ours.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

fn program(name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yuebing"));
    command.arg0(name);
    for variable in
        ["MC_METADATA_HTTP_TOKEN", "MC_CUSTOM_TOPO_JSON", "MC_TE_FILTERS", "MC_USE_TENT", "MC_USE_TEV1", "RUST_LOG"]
    {
        command.env_remove(variable);
    }
    command
}

/// A daemon, ended with the test.
struct Daemon {
    child: Child,
    log: BufReader<ChildStderr>,
    address: String,
}

impl Daemon {
    /// Starts it and waits for the line of its log that says where the metadata server listens.
    fn start(command: &mut Command) -> Daemon {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut daemon = Daemon { child, log, address: String::new() };
        let mut seen = String::new();
        while daemon.address.is_empty() {
            let mut line = String::new();
            assert!(daemon.log.read_line(&mut line).unwrap() > 0, "it ended: {seen}");
            let after = line.split_once("metadata server").and_then(|(_, rest)| rest.split_once("http://"));
            if let Some((_, rest)) = after {
                daemon.address = rest.split('/').next().unwrap().to_owned();
            }
            seen.push_str(&line);
        }
        daemon
    }

    fn ask(&self, line: &str, body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(&self.address).unwrap();
        write!(
            socket,
            "{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    fn end(mut self) -> i32 {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), Signal::TERM).unwrap();
        let _ = self.log.read_to_string(&mut String::new());
        self.child.wait().unwrap().code().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_metadata_server_serves_under_both_names_and_in_the_master() {
    let server = Daemon::start(program("mooncake_http_metadata_server").args(["--host", "127.0.0.1", "--port", "0"]));
    assert_eq!(server.ask("PUT /metadata?key=mooncake%2Frpc_meta%2Fz", "{}"), (200, "metadata updated".to_owned()));
    let again = server.ask("PUT /metadata?key=mooncake/rpc_meta/z", "{}");
    assert_eq!(again, (400, "Duplicate rpc_meta key not allowed".to_owned()));
    assert_eq!(server.ask("GET /metadata", ""), (400, "metadata key is required".to_owned()));
    assert_eq!(server.ask("PUT /metadata?key=%20%20", "{}").0, 400, "a key of blanks is none");
    assert_eq!(server.ask("PUT /metadata?key=%20edges%20", "{}").0, 200);
    assert_eq!(server.ask("GET /metadata?key=edges", ""), (200, "{}".to_owned()));
    assert_eq!(server.end(), 0);
    let server =
        Daemon::start(program("yuebing").args(["metadata-server", "--host=127.0.0.1", "--port=0", "--newest-wins"]));
    for value in ["1", "2"] {
        assert_eq!(server.ask("PUT /metadata?key=rpc_meta", value).0, 200);
    }
    assert_eq!(server.end(), 0);
    let flags = ["--rpc_address=127.0.0.1", "--rpc_port=0", "--port=0", "--metrics_port=0", "--metrics_host=127.0.0.1"];
    let mut master = program("mooncake_master");
    master.args(flags).args(["--enable_http_metadata_server=true", "--http_metadata_server_port=0"]);
    let master = Daemon::start(master.arg("--http_metadata_server_host=127.0.0.1"));
    assert_eq!(master.ask("GET /health", ""), (200, "OK".to_owned()));
    assert_eq!(master.ask("PUT /metadata?key=rpc_meta", "{}"), (200, "metadata updated".to_owned()));
    assert_eq!(master.ask("PUT /metadata?key=rpc_meta", "{}"), (200, "metadata unchanged".to_owned()));
    assert_eq!(master.ask("GET /metadata", ""), (400, "Missing key parameter".to_owned()));
    assert_eq!(master.end(), 0);
}

#[test]
fn a_metadata_server_that_cannot_start_says_why() {
    let mut command = program("mooncake_http_metadata_server");
    let (code, _, error) =
        said(&command.args(["--host", "0.0.0.0", "--port", "0", "--require-token"]).output().unwrap());
    assert!(code == 1 && error.contains("MC_METADATA_HTTP_TOKEN"), "{code} {error}");
    let mut command = program("mooncake_http_metadata_server");
    command.args(["--host", "127.0.0.1", "--port", "0"]).env("MC_METADATA_HTTP_TOKEN", "");
    let (code, _, error) = said(&command.output().unwrap());
    assert!(code == 2 && error.contains("MC_METADATA_HTTP_TOKEN is set, but empty"), "{error}");
    let (code, _, error) = said(&program("mooncake_http_metadata_server").arg("--prot=1").output().unwrap());
    assert!(code == 2 && error.contains("--port"), "{code} {error}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut command = program("yuebing");
    let (code, _, error) =
        said(&command.args(["metadata-server", "--host=127.0.0.1", "--port", &port]).output().unwrap());
    assert!(code == 1 && error.contains(&port), "{code} {error}");
}

#[test]
fn the_topology_is_dumped_in_the_peers_form() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("matrix.json");
    std::fs::write(&path, r#"{"cpu:0":[[],[]]}"#).unwrap();
    let dump = |arguments: &[&str]| said(&program("transfer_engine_topology_dump").args(arguments).output().unwrap());
    let shown = path.to_str().unwrap();
    // Recorded with the peer, whose output has an empty line at the end too.
    let recorded = "{\n\t\"cpu:0\" : \n\t[\n\t\t[],\n\t\t[]\n\t]\n}\n\n";
    let custom = dump(&["--custom-topo-json", shown]);
    assert_eq!(custom, (0, format!("Local topology [te/custom ({shown})]: {recorded}"), String::new()));
    let (code, text, _) = dump(&["--backend", "tent", "--device-name", "none"]);
    assert!(
        code == 0 && text.starts_with("Local topology [tent/discover]: {\n\t\"cpu:0\" : \n\t[\n\t\t[],\n"),
        "{text}"
    );
    assert_eq!(dump(&["--backend", "foo"]).0, 2);
    assert_eq!(dump(&["--nope"]).0, 2);
    let (code, help, _) = dump(&["--help"]);
    assert!(code == 0 && help.starts_with("Show which NIC") && help.contains("--device-name"), "{help}");
    assert_eq!(dump(&["--use-custom-topo"]).0, 1);
    std::fs::write(&path, "{").unwrap();
    assert_eq!(dump(&["--custom-topo-json", shown]).0, 1);
    let (code, text, error) = dump(&["--custom-topo-json", "/nowhere/at/all"]);
    assert!(
        code == 0 && text.starts_with("Local topology [te/discover]") && error.contains("/nowhere"),
        "{text} {error}"
    );
    let (code, text, _) = said(&program("yuebing").args(["topology", "--json"]).output().unwrap());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(code == 0 && json["local_nics"].is_array() && json["topology"]["cpu:0"].is_array(), "{text}");
}
