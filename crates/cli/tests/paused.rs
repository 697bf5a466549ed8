//! A master that is stopped for longer than its clients may be silent (a paused machine, a debugger) gives them the time
//! it slept: nobody is given up, nothing is lost.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// The time to live of a client, in seconds.
const TTL: u64 = 2;
const PAUSE: Duration = Duration::from_secs(2 * TTL + 1);

struct Process {
    child: Child,
    handle: OwnedFd,
}

impl Process {
    fn start(arguments: &[String]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_yuebing"));
        let child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        Process { handle: pidfd_open(pid, PidfdFlags::empty()).unwrap(), child }
    }

    fn signal(&self, signal: Signal) {
        pidfd_send_signal(&self.handle, signal).unwrap();
    }

    /// Lets time pass in which the process must not end.
    fn lives_on(&self, time: Duration) {
        let mut descriptors = [PollFd::new(&self.handle, PollFlags::IN)];
        assert_eq!(poll(&mut descriptors, Some(&Timespec::try_from(time).unwrap())).unwrap(), 0, "it ended");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn run(master: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_yuebing"));
    command.args(arguments).env("MOONCAKE_MASTER", master).env_remove("MOONCAKE_CONFIG_PATH");
    command.stdin(Stdio::null()).output().unwrap()
}

#[test]
fn a_stopped_master_loses_no_client() {
    let (port, admin) = (free_port(), free_port());
    let address = format!("127.0.0.1:{port}");
    let flags = [
        "master".to_owned(),
        "--rpc_address=127.0.0.1".to_owned(),
        format!("--rpc_port={port}"),
        "--metrics_host=127.0.0.1".to_owned(),
        format!("--metrics_port={admin}"),
        format!("--client_ttl={TTL}"),
        "--client_suspicion_ttl_sec=0".to_owned(),
    ];
    let master = Process::start(&flags);
    let answers = || TcpListener::bind(("127.0.0.1", admin)).is_err();
    for _ in 0..300 {
        if answers() {
            break;
        }
        master.lives_on(Duration::from_millis(100));
    }
    let flags = [
        "node".to_owned(),
        "--host=127.0.0.1".to_owned(),
        format!("--port={}", free_port()),
        format!("--master_server_address={address}"),
        "--metadata_server=P2PHANDSHAKE".to_owned(),
        "--protocol=tcp".to_owned(),
        "--global_segment_size=16MiB".to_owned(),
    ];
    let node = Process::start(&flags);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), [7; 1000]).unwrap();
    let path = file.path().to_str().unwrap();
    let mut put = run(&address, &["put", "key", path]);
    for _ in 0..100 {
        if put.status.success() {
            break;
        }
        node.lives_on(Duration::from_millis(200));
        put = run(&address, &["put", "key", path]);
    }
    assert!(put.status.success(), "{}", String::from_utf8_lossy(&put.stderr));

    master.signal(Signal::STOP);
    node.lives_on(PAUSE);
    master.signal(Signal::CONT);
    let get = run(&address, &["get", "key"]);
    assert_eq!(get.stdout, [7; 1000], "{}", String::from_utf8_lossy(&get.stderr));
    // And the node's pings come again before the time that it was given is over.
    node.lives_on(Duration::from_secs(TTL + 1));
    let get = run(&address, &["get", "key"]);
    assert_eq!(get.stdout, [7; 1000], "{}", String::from_utf8_lossy(&get.stderr));

    // A node that does stop is noticed all the same.
    node.signal(Signal::STOP);
    master.lives_on(Duration::from_secs(TTL + 3));
    let get = run(&address, &["get", "key"]);
    assert_eq!(get.status.code(), Some(3), "{}", String::from_utf8_lossy(&get.stderr));
}
