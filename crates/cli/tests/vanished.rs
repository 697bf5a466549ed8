//! Whoever was at the other end is gone: of standard error, and of a connection.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};

use common::{Master, PATIENCE, Process, Way, copies, node_flags, within, yuebing};
use rustix::process::Signal;

/// A standard error that takes nothing, like that of a log disk which is full.
fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

fn with_full(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(full())
}

fn node_with_full(master: &Master) -> Process {
    let flags = node_flags(&master.address.to_string(), Way::Tcp, &["--drain_seconds=0"]);
    let mut node = Process::start(with_full(&mut yuebing(&flags)).env("YUEBING_MISSPELT", "1")).unwrap();
    let mut line = String::new();
    BufReader::new(node.stdout().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("ready"), "{line:?}");
    node
}

#[test]
fn a_node_that_cannot_log_lends_its_memory_to_the_next_master_too_and_leaves_politely() {
    let mut master = Master::start(&["--default_kv_lease_ttl=500"]);
    let mut node = node_with_full(&master);
    // The heartbeat says in the log that the master is gone.
    master.process.kill();
    master.start_again();
    let client = master.client(Way::Tcp);
    within("the node is in the new master's pool", PATIENCE, || client.put("k", b"v", &copies(1)).is_ok());
    node.signal(Signal::TERM).unwrap();
    assert_eq!(node.ends_within(PATIENCE).unwrap().code(), Some(0));
}

#[test]
fn commands_that_cannot_say_what_failed_end_with_its_code() {
    let master = Master::start(&[]);
    let address = format!("--master={}", master.address);
    let codes = |to_full: bool| {
        ["get", "no-such-command"].map(|name| {
            let mut command = yuebing(&[name, "nothing-there", &address]);
            if to_full { with_full(&mut command) } else { &mut command }.output().unwrap().status.code()
        })
    };
    let expected = codes(false);
    assert!(!expected.contains(&Some(0)) && !expected.contains(&Some(101)), "{expected:?}");
    assert_eq!(codes(true), expected);
}

/// Whether the kernel has a timer at work on the end of the connection that was accepted: an idle one that is asked about.
fn is_watched(caller: &TcpStream) -> bool {
    let hex = |address: SocketAddr| format!(":{:04X}", address.port());
    let (theirs, ours) = (hex(caller.peer_addr().unwrap()), hex(caller.local_addr().unwrap()));
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // Columns 2 and 3: addresses; 6: kind of timer and when it is due. Kind 2: keepalive.
        fields.len() > 5 && fields[1].ends_with(&theirs) && fields[2].ends_with(&ours) && fields[5].starts_with("02:")
    })
}

#[test]
fn connections_of_callers_that_vanish_are_noticed_by_the_system() {
    let master = Master::start(&[]);
    let (handshake, data) = (common::free_port(), common::free_port());
    let ports = [format!("--handshake_port={handshake}"), format!("--data_port={data}")];
    let _node = master.node(Way::Tcp, &[&ports[0], &ports[1]]);
    for port in [master.address.port(), master.admin, handshake, data] {
        let caller = TcpStream::connect(("127.0.0.1", port)).unwrap();
        within(&format!("a connection to {port} is watched"), PATIENCE, || is_watched(&caller));
    }
}
