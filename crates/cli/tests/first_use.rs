//! What somebody meets who uses the commands for the first time: refusals say what would help.
#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{Master, Node, Way, code, copies, error_text, node_flags, timed, wait_until};
use rustix::process::{Pid, Signal, kill_process};

struct Pool {
    master: Master,
    _node: Node,
}

impl Pool {
    /// With a node of 64 MiB.
    fn start() -> Pool {
        Pool::with(&[])
    }

    fn with(flags: &[&str]) -> Pool {
        let master = Master::start(flags);
        let node = master.node(Way::SharedMemory, &[]);
        Pool { master, _node: node }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.master.command(arguments)
    }
}

fn file_of(bytes: usize) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&vec![7; bytes]).unwrap();
    file
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_put_that_never_fits_says_so_and_one_into_a_full_pool_says_something_else() {
    let pool = Pool::start();
    let huge = file_of(65 << 20);
    let refused = pool.run(&["put", "huge", huge.path().to_str().unwrap()]);
    let said = error_text(&refused);
    assert_eq!(code(&refused), 6, "{said}");
    assert!(said.contains("larger than every segment") && said.contains("64.00 MiB"), "{said}");
    assert!(said.contains("never fits") && !said.contains("try again"), "{said}");

    let half = file_of(40 << 20);
    let half = half.path().to_str().unwrap();
    assert_eq!(code(&pool.run(&["put", "first", half])), 0);
    // A lease keeps it from being evicted.
    assert_eq!(code(&pool.run(&["stat", "first"])), 0);
    let refused = pool.run(&["put", "second", half]);
    let said = error_text(&refused);
    assert_eq!(code(&refused), 6, "{said}");
    assert!(said.contains("the pool is full: 41943") && said.contains("try again"), "{said}");
}

#[test]
fn a_removal_of_many_tells_what_stayed_and_why() {
    // One lease lasts for all of the commands, however slow they are.
    let pool = Pool::with(&["--default_kv_lease_ttl=600000"]);
    let client = pool.master.client(Way::SharedMemory);
    for key in ["a/1", "a/2", "a.3", "b"] {
        client.put(key, b"value", &copies(1)).unwrap();
    }
    client.get("a/2").unwrap();
    let first = pool.run(&["rm", "--prefix", "a/"]);
    let said = error_text(&first);
    assert_eq!((code(&first), text(&first).as_str()), (1, "removed 1\n"), "{said}");
    assert!(said.contains("1 object was not removed") && said.contains("--force"), "{said}");
    // An empty variable of a script is no reason to remove everything.
    for flag in ["--prefix=", "--regex="] {
        let empty = pool.run(&["rm", flag, "--force"]);
        assert!(code(&empty) == 2 && error_text(&empty).contains("--all"), "{}", error_text(&empty));
    }
    // The text of a prefix is no pattern.
    assert_eq!(text(&pool.run(&["rm", "--prefix", "a."])), "removed 1\n");
    let json = pool.run(&["rm", "--all", "--json"]);
    assert_eq!((code(&json), text(&json).as_str()), (1, "{\"removed\":1,\"leased\":1,\"busy\":0}\n"));
    let single = pool.run(&["rm", "a/2", "--json"]);
    assert_eq!((code(&single), text(&single).as_str()), (1, "{\"removed\":0,\"leased\":1,\"busy\":0}\n"));
    let forced = pool.run(&["rm", "--regex", "^a", "--force"]);
    assert_eq!((code(&forced), text(&forced).as_str(), error_text(&forced).as_str()), (0, "removed 1\n", ""));
}

/// A command under way whose signals are caught: what is sent to it now does not kill it.
fn under_way(pool: &Pool, arguments: &[&str]) -> Child {
    let mut command = common::yuebing(arguments);
    command.env("MOONCAKE_MASTER", pool.master.address.to_string());
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    wait_until("it catches signals", || {
        let text = std::fs::read_to_string(&status).unwrap();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap().trim();
        // The last of those that it catches: all of the others are ready.
        u64::from_str_radix(caught, 16).unwrap() & (1 << (Signal::HUP.as_raw() - 1)) != 0
    });
    child
}

/// Ends it with Ctrl-C; what it said.
fn interrupted(child: Child) -> String {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let (output, took) = timed(|| child.wait_with_output().unwrap());
    let said = error_text(&output);
    assert_eq!(code(&output), 130, "{said}");
    // All of them would go on for minutes.
    assert!(took < Duration::from_secs(20), "{took:?}: {said}");
    assert_eq!(said.lines().filter(|line| line.starts_with("yuebing: interrupted: ")).count(), 1, "{said}");
    said
}

#[test]
fn ctrl_c_ends_long_work_with_one_line_about_what_was_done() {
    let pool = Pool::start();
    for arguments in [
        &["bench", "memcpy", "--seconds", "600"][..],
        &["bench", "submit", "--seconds", "600"],
        &["bench", "raw-tcp", "--seconds", "600"],
        &["bench", "rpc", "--seconds", "600"],
        &["bench", "store", "--seconds", "600", "--size", "4KiB", "--keys", "8"],
        &["bench", "transfer", "--transport", "local,file", "--seconds", "600", "--memory", "1MiB", "--block", "4KiB"],
    ] {
        let child = under_way(&pool, arguments);
        let said = interrupted(child);
        assert!(said.contains("were") || said.contains("was"), "{arguments:?}: {said}");
    }
    let mut trace = tempfile::NamedTempFile::new().unwrap();
    for timestamp in [0, 3_600_000] {
        let line = format!(r#"{{"timestamp":{timestamp},"input_length":1,"output_length":1,"hash_ids":[1]}}"#);
        writeln!(trace, "{line}").unwrap();
    }
    let replay = under_way(&pool, &["replay", trace.path().to_str().unwrap(), "--speed", "1x"]);
    assert!(interrupted(replay).contains("requests of the trace were replayed"));
}

#[test]
fn ctrl_c_shows_what_was_measured_and_how_much_of_a_trace_was_written() {
    let pool = Pool::start();
    let load = ["bench", "rpc", "--operation", "exist", "--keys", "128", "--connections", "2", "--warm-up", "0"];
    let bench = under_way(&pool, &[&load[..], &["--seconds", "600"]].concat());
    wait_until("it measures", || lookups(&pool) > 1000);
    let (status, shown, said) = ended_by_ctrl_c(bench);
    assert!(status == 130 && said.contains("above is what was measured until then"), "{said}");
    assert!(shown.contains("operations"), "{shown}");

    let trace = tempfile::NamedTempFile::new().unwrap();
    let path = trace.path().to_str().unwrap();
    let generate = under_way(&pool, &["trace", "generate", "--requests", "1000000", "--out", path]);
    wait_until("it writes", || std::fs::metadata(path).unwrap().len() > 0);
    let (status, _, said) = ended_by_ctrl_c(generate);
    let lines = std::fs::read_to_string(path).unwrap();
    assert!(lines.ends_with('\n'), "the last line is whole");
    let count = lines.lines().count();
    assert!(status == 130 && said.contains(&format!("{count} of 1000000 requests were written")), "{count}: {said}");
}

/// How often the master was asked for a key.
fn lookups(pool: &Pool) -> u64 {
    let mut page = String::new();
    let mut socket = TcpStream::connect(("127.0.0.1", pool.master.admin)).unwrap();
    socket.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    socket.read_to_string(&mut page).unwrap();
    let line = page.lines().find_map(|line| line.strip_prefix("master_exist_key_requests_total "));
    line.and_then(|count| count.parse().ok()).unwrap()
}

/// Code, output and errors of a command that gets one Ctrl-C.
fn ended_by_ctrl_c(child: Child) -> (i32, String, String) {
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    (code(&output), text(&output), error_text(&output))
}

#[test]
fn ctrl_c_leaves_no_half_value() {
    let pool = Pool::start();
    let put = under_way(&pool, &["put", "k", "-"]);
    assert!(interrupted(put).contains("nothing was stored"));
    assert_eq!(code(&pool.run(&["get", "k"])), 3);
    let value = file_of(10 << 20);
    assert_eq!(code(&pool.run(&["put", "k", value.path().to_str().unwrap()])), 0);
    let mut get = under_way(&pool, &["get", "k"]);
    // Nobody reads the rest: the pipe is full.
    get.stdout.as_mut().unwrap().read_exact(&mut [0; 1]).unwrap();
    let pid = Pid::from_raw(i32::try_from(get.id()).unwrap()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = get.wait_with_output().unwrap();
    let said = error_text(&output);
    assert_eq!(code(&output), 130, "{said}");
    assert!(said.contains("of 10485760 bytes were written"), "{said}");
}

#[test]
fn files_that_cannot_be_read_or_written_are_told_with_the_reason() {
    let pool = Pool::start();
    let small = file_of(3);
    let small = small.path().to_str().unwrap();
    assert_eq!(code(&pool.run(&["put", "k", small])), 0);
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    for (arguments, exit, words) in [
        (["put", "", small], 2, "the key is empty".to_owned()),
        (["put", "d", folder.path().to_str().unwrap()], 1, "it is a directory; a value is one file".to_owned()),
        (["put", "d", &at("none")], 1, "there is no such file".to_owned()),
        (["get", "k", folder.path().to_str().unwrap()], 1, "it is a directory; name a file in it".to_owned()),
        (["get", "k", &at("none/file")], 1, format!("there is no directory {}", at("none"))),
        (["get", "k", "/dev/full"], 1, "no space is left".to_owned()),
    ] {
        let output = pool.run(&arguments);
        let said = error_text(&output);
        assert!(code(&output) == exit && said.contains(&words), "{arguments:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let long = "x".repeat(65_536);
    assert_eq!(code(&pool.run(&["put", &long, small])), 0);
    assert_eq!(pool.run(&["get", &long]).stdout, [7; 3]);
    let longer = pool.run(&["put", &"x".repeat(100_000), small]);
    assert!(code(&longer) != 0 && error_text(&longer).contains("(-600)"));
}

#[test]
fn a_memory_file_is_refused_on_a_disk_and_stays_at_the_end() {
    let master = Master::start(&[]);
    let flags = |file: &str| node_flags(&master.address.to_string(), Way::Tcp, &[&format!("--segment_file={file}")]);
    let refused = common::yuebing(&flags("/proc/memory")).output().unwrap();
    let said = error_text(&refused);
    assert!(
        code(&refused) == 1 && said.contains("not memory but a file system") && said.contains("/dev/shm"),
        "{said}"
    );

    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = folder.path().join("memory");
    let mut command = common::yuebing(&flags(file.to_str().unwrap()));
    let mut node = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(node.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.contains("ready"), "{ready}");
    kill_process(Pid::from_raw(i32::try_from(node.id()).unwrap()).unwrap(), Signal::TERM).unwrap();
    let output = node.wait_with_output().unwrap();
    let said = error_text(&output);
    assert_eq!(code(&output), 0, "{said}");
    assert!(said.contains("the memory stays in this file for the next process"), "{said}");
    assert!(file.exists());
}

#[test]
fn every_name_of_the_peer_has_help_with_defaults() {
    let folder = tempfile::tempdir().unwrap();
    for (name, exit, flag) in [
        ("mooncake_master", 1, "-rpc_port"),
        ("mooncake_client", 0, "--global_segment_size"),
        ("transfer_engine_bench", 1, "-block_size"),
        ("mooncake_http_metadata_server", 0, "--port"),
        ("transfer_engine_topology_dump", 0, "--device-name"),
    ] {
        let link = folder.path().join(name);
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_yuebing"), &link).unwrap();
        for help in ["-h", "--help"] {
            let output = Command::new(&link).arg(help).output().unwrap();
            let said = text(&output);
            assert_eq!(code(&output), exit, "{name} {help}: {}", error_text(&output));
            assert!(said.contains(flag) && said.contains("default") && said.contains(name), "{name} {help}: {said}");
        }
    }
}

#[test]
fn what_is_wrong_on_a_command_line_is_named_with_what_is_right() {
    for (arguments, words) in [
        (&["status", "--admin", "10.0.0.1"][..], "the port is missing: write 10.0.0.1:9003"),
        (&["get", "k", "--master", "10.0.0.1"], "the port is missing: write 10.0.0.1:50051"),
        (&["config", "explain", "plain_from", "--", "--plain_from=10.0.0.0/40"], "10.0.0.0/40"),
        (&["config", "explain", "--", "--client_ttl=10s"], "seconds, without a unit"),
        (&["certs", "/nowhere", "bad name"], "neither a host name nor an IP address"),
        (&["put", "--replcas", "2", "k", "f"], "--replicas"),
    ] {
        let output = common::yuebing(arguments).output().unwrap();
        let said = error_text(&output);
        assert!(code(&output) == 2 && said.contains(words), "{arguments:?}: {} {said}", code(&output));
    }
}
