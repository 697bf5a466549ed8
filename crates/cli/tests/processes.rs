//! The command with real processes: a pool comes up, serves, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};

use common::{PATIENCE, code, error_text};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde_json::Value;

fn yuebing() -> Command {
    common::yuebing::<&str>(&[])
}

/// `yuebing up` and handles on all its processes.
struct Up {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
    own: OwnedFd,
    members: Vec<(String, OwnedFd)>,
    master_pid: u64,
    master: String,
    admin: String,
}

impl Up {
    fn start(nodes: usize) -> Up {
        Up::start_by(yuebing(), nodes)
    }

    fn start_by(mut command: Command, nodes: usize) -> Up {
        let mut child = command
            .args(["up", "--json", "--memory", "128MiB", "--nodes", &nodes.to_string()])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        if line.is_empty() {
            let output = child.wait_with_output().unwrap();
            panic!("the pool did not come up: {}", error_text(&output));
        }
        let said: Value = serde_json::from_str(&line).unwrap();
        let members = said["processes"].as_array().unwrap().iter();
        let members = members.map(|p| (p["name"].as_str().unwrap().to_owned(), handle(p["pid"].as_u64().unwrap())));
        Up {
            own: handle(child.id().into()),
            members: members.collect(),
            master_pid: said["processes"][0]["pid"].as_u64().unwrap(),
            master: said["master"].as_str().unwrap().to_owned(),
            admin: said["admin"].as_str().unwrap().to_owned(),
            child,
            stdout,
        }
    }

    fn run(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = yuebing();
        command.args(arguments).env("MOONCAKE_MASTER", &self.master).env("YUEBING_ADMIN", &self.admin);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        // A child that does not read its input closes it; that is its business.
        let writer = yb_env::spawn_thread("input", move || drop(stdin.write_all(&input))).unwrap();
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    }

    fn member(&self, name: &str) -> &OwnedFd {
        &self.members.iter().find(|(n, _)| n == name).unwrap().1
    }

    /// Waits for the command itself: exit code, the rest of its output, its errors.
    fn ended(mut self) -> (i32, String, String) {
        assert!(has_ended(&self.own), "yuebing up did not leave in {PATIENCE:?}");
        let (mut out, mut err) = (String::new(), String::new());
        self.stdout.read_to_string(&mut out).unwrap();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        let status = self.child.wait().unwrap();
        for (name, member) in &self.members {
            assert!(has_ended(member), "{name} was left behind");
        }
        (status.code().unwrap_or(-1), out, err)
    }
}

/// A failed test leaves nothing behind either; the members die with their parent.
impl Drop for Up {
    fn drop(&mut self) {
        // Fails only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn handle(pid: u64) -> OwnedFd {
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    pidfd_open(pid, PidfdFlags::empty()).unwrap()
}

fn has_ended(process: &OwnedFd) -> bool {
    let mut descriptors = [PollFd::new(process, PollFlags::IN)];
    poll(&mut descriptors, Some(&Timespec::try_from(PATIENCE).unwrap())).unwrap() == 1
}

#[test]
fn a_pool_serves_every_command_and_leaves_on_term() {
    let up = Up::start(2);
    let value: Vec<u8> = (0..300_000u32).flat_map(|n| n.to_le_bytes()).collect();

    let put = up.run(&["put", "model/block 1", "-"], &value);
    assert_eq!(code(&put), 0, "{}", error_text(&put));
    let get = up.run(&["get", "model/block 1"], &[]);
    assert_eq!(code(&get), 0, "{}", error_text(&get));
    assert!(get.stdout == value, "other bytes than were put");
    let file = tempfile::NamedTempFile::new().unwrap();
    let get = up.run(&["get", "model/block 1", file.path().to_str().unwrap()], &[]);
    assert_eq!(code(&get), 0, "{}", error_text(&get));
    assert!(std::fs::read(file.path()).unwrap() == value);

    let again = up.run(&["put", "model/block 1", "-"], b"other");
    assert_eq!(code(&again), 0);
    assert!(error_text(&again).contains("exists already"), "{}", error_text(&again));
    let put = up.run(&["put", "other", "/dev/null", "--json"], &[]);
    assert_eq!(put.stdout, b"{\"key\":\"other\",\"bytes\":0,\"stored\":true}\n", "{}", error_text(&put));
    assert_eq!(up.run(&["get", "other"], &[]).stdout, b"");

    let stat = up.run(&["stat", "model/block 1", "--json"], &[]);
    let stat: Value = serde_json::from_slice(&stat.stdout).unwrap();
    assert_eq!((stat["bytes"].as_u64(), stat["replicas"][0]["kind"].as_str()), (Some(1_200_000), Some("memory")));

    assert_eq!(up.run(&["ls"], &[]).stdout, b"model/block 1\nother\n");
    assert_eq!(up.run(&["ls", "--prefix", "model/"], &[]).stdout, b"model/block 1\n");
    assert_eq!(up.run(&["ls", "--regex", "^o", "--json"], &[]).stdout, b"[\"other\"]\n");

    let status: Value = serde_json::from_slice(&up.run(&["status", "--json"], &[]).stdout).unwrap();
    assert_eq!((status["keys"].as_u64(), status["segments"].as_array().unwrap().len()), (Some(2), 2), "{status}");
    assert!(status["used_bytes"].as_u64() >= Some(1_200_000) && status["clients"].as_u64() >= Some(2), "{status}");

    let miss = up.run(&["get", "no such"], &[]);
    assert_eq!(code(&miss), 3, "{}", error_text(&miss));
    assert!(error_text(&miss).contains("no such object"));
    assert_eq!(code(&up.run(&["rm", "--force", "model/block 1"], &[])), 0);
    let again = up.run(&["rm", "--json", "model/block 1"], &[]);
    assert_eq!((code(&again), again.stdout.as_slice()), (3, &b"{\"removed\":0,\"leased\":0,\"busy\":0}\n"[..]));
    assert_eq!(up.run(&["rm", "--force", "--regex", "^oth"], &[]).stdout, b"removed 1\n");
    assert_eq!(code(&up.run(&["put", "huge", "-"], &vec![1; 200 << 20])), 6);

    pidfd_send_signal(&up.own, Signal::TERM).unwrap();
    let (code, _, errors) = up.ended();
    assert_eq!((code, errors.as_str()), (0, ""));
}

#[test]
fn a_pool_ends_with_its_parent_however_that_ends() {
    let up = Up::start(1);
    pidfd_send_signal(&up.own, Signal::KILL).unwrap();
    up.ended();
}

#[test]
fn daemons_take_all_the_descriptors_they_may_have() {
    let mut low = Command::new("sh");
    low.args(["-c", "ulimit -Sn 150 && exec \"$@\"", "sh", env!("CARGO_BIN_EXE_yuebing")]);
    let up = Up::start_by(low, 1);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", up.master_pid)).unwrap();
    let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    let files: Vec<&str> = files.split_whitespace().collect();
    assert!(files[0] == files[1] && files[0] != "150", "{files:?}");
    pidfd_send_signal(&up.own, Signal::TERM).unwrap();
    assert_eq!(up.ended().0, 0);
}

#[test]
fn a_process_that_dies_is_named() {
    let up = Up::start(2);
    pidfd_send_signal(up.member("node 2"), Signal::KILL).unwrap();
    let (code, _, errors) = up.ended();
    assert_eq!(code, 1);
    assert!(errors.contains("the node 2 (pid ") && errors.contains("signal 9"), "{errors}");
    // The logs were kept for the reader of that message.
    let logs = errors.lines().find_map(|l| l.strip_prefix("The logs are kept in ")).unwrap();
    assert!(logs.contains("yuebing-"), "{logs}");
    std::fs::remove_dir_all(logs).unwrap();
}

#[test]
fn a_trace_is_replayed_in_a_pool_of_its_own() {
    let trace = yuebing().args(["trace", "generate", "--requests", "60", "--seed", "9"]).output().unwrap();
    assert_eq!(code(&trace), 0);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&trace.stdout).unwrap();
    let path = file.path().to_str().unwrap();
    let replay =
        yuebing().args(["replay", path, "--json", "--block-bytes", "4KiB", "--memory", "64MiB"]).output().unwrap();
    assert_eq!(code(&replay), 0, "{}", error_text(&replay));
    let report: Value = serde_json::from_slice(&replay.stdout).unwrap();
    assert_eq!((report["requests"].as_u64(), report["wrong_bytes"].as_u64()), (Some(60), Some(0)));
    assert!(report["hit_blocks"].as_u64() > Some(0) && report["failures"].as_u64() == Some(0), "{report}");
}

#[test]
fn a_pool_too_small_for_a_trace_evicts_or_refuses_and_no_byte_is_wrong() {
    let up = Up::start(2);
    let trace = yuebing().args(["trace", "generate", "--requests", "150"]).output().unwrap();
    let replay = up.run(&["replay", "-", "--block-bytes", "64KiB"], &trace.stdout);
    let text = String::from_utf8_lossy(&replay.stdout);
    assert_eq!(code(&replay), 0, "{}\n{text}", error_text(&replay));
    assert!(text.ends_with("wrong bytes: 0\n"), "{text}");
    pidfd_send_signal(&up.own, Signal::INT).unwrap();
    assert_eq!(up.ended().0, 0);
}

#[test]
fn loads_tell_rates_and_leave_nothing_behind() {
    let up = Up::start(1);
    let pid = up.master_pid.to_string();
    let store = ["bench", "store", "--size", "64KiB", "--keys", "32", "--batch", "4", "--clients", "2"];
    let options = ["--seconds", "0.1", "--check", "--json", "--server-pid", &pid];
    let output = up.run(&[&store[..], &options].concat(), &[]);
    assert_eq!(code(&output), 0, "{}", error_text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let phases = report["phases"].as_array().unwrap();
    let names: Vec<&str> = phases.iter().map(|p| p["phase"].as_str().unwrap()).collect();
    assert_eq!(names, ["put", "get", "exist", "remove"]);
    for phase in phases {
        // The others go on for a time, not for a number.
        let least = if ["put", "remove"].contains(&phase["phase"].as_str().unwrap()) { 32 } else { 1 };
        assert!(phase["objects"].as_u64() >= Some(least) && phase["misses"].as_u64() == Some(0), "{phase}");
        assert!(phase["wrong_bytes"].as_u64() == Some(0) && phase["server_cpu_us_per_object"].is_number(), "{phase}");
    }
    let left = up.run(&["ls"], &[]).stdout;
    assert!(left.is_empty(), "{}", String::from_utf8_lossy(&left));
    let rpc = ["bench", "rpc", "--operation", "batch-get", "--keys", "500", "--connections", "2"];
    let options = ["--seconds", "0.1", "--warm-up", "0", "--json", "--server-pid", &pid];
    let output = up.run(&[&rpc[..], &options].concat(), &[]);
    assert_eq!(code(&output), 0, "{}", error_text(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["operations"].as_u64() > Some(0) && report["server_cpu_us_per_operation"].is_number(), "{report}");
    pidfd_send_signal(&up.own, Signal::TERM).unwrap();
    assert_eq!(up.ended().0, 0);
}

#[test]
fn a_broken_line_of_a_trace_is_named() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(b"{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[1]}\nnonsense\n").unwrap();
    let stat = yuebing().args(["trace", "stat", file.path().to_str().unwrap()]).output().unwrap();
    assert_eq!(code(&stat), 1);
    assert!(error_text(&stat).contains("line 2"), "{}", error_text(&stat));
}

#[test]
fn nobody_at_the_address_has_an_exit_code_of_its_own() {
    for arguments in [
        &["get", "k", "--master", "127.0.0.1:1"][..],
        &["put", "k", "/dev/null", "--master", "127.0.0.1:1"],
        &["status", "--admin", "127.0.0.1:1"],
        &["ls", "--admin", "127.0.0.1:1"],
    ] {
        let output = yuebing().args(arguments).output().unwrap();
        assert_eq!(code(&output), 4, "{arguments:?}: {}", error_text(&output));
        assert!(error_text(&output).contains("127.0.0.1:1"), "{}", error_text(&output));
    }
    assert_eq!(code(&yuebing().args(["put", "k", "/no/such/file"]).output().unwrap()), 1);
    assert_eq!(code(&yuebing().args(["rm"]).output().unwrap()), 2);
    assert_eq!(code(&yuebing().args(["up", "--memory", "1MiB"]).output().unwrap()), 2);
}

#[test]
fn a_reader_that_stops_early_is_not_an_error() {
    let mut child = yuebing()
        .args(["trace", "generate", "--requests", "3000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 1];
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    let output = child.wait_with_output().unwrap();
    assert_eq!((code(&output), error_text(&output).as_str()), (0, ""));
}

#[test]
fn the_names_of_the_peer_are_understood() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["mooncake_master", "mooncake_client"] {
        let link = directory.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_yuebing"), &link).unwrap();
        let output = Command::new(&link).arg("--no_such_flag=1").stdin(File::open("/dev/null").unwrap()).output();
        let output = output.unwrap();
        assert_ne!(code(&output), 0);
        assert!(error_text(&output).contains("no_such_flag"), "{name}: {}", error_text(&output));
    }
}

#[test]
fn a_file_that_may_not_grow_is_an_error_not_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let script = "ulimit -f 8; exec \"$0\" trace generate --requests 5000 --out trace";
    let program = yuebing().get_program().to_owned();
    let output = Command::new("sh").args(["-c", script]).arg(program).current_dir(folder.path()).output().unwrap();
    // No exit code at all would be a signal.
    assert!(output.status.code().is_some_and(|code| code != 0), "{:?}", output.status);
    assert!(error_text(&output).contains("File too large"), "{}", error_text(&output));
}
