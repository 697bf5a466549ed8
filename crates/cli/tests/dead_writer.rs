//! A writer that lends no memory is killed half-way through a put: others hear "busy" and then have the key, soon.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::time::Duration;

use common::{Master, Process, Way, now, wait_until};
use rustix::process::Signal;
use yb_client::{CallLimits, Client, ClientConfig};
use yb_types::ReplicateConfig;

/// Without anybody's noticing the key would be free after this time.
const DISCARD: Duration = Duration::from_secs(30);

fn unfinished(admin: u16) -> Option<u64> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", admin)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    let line = page.lines().find(|line| line.starts_with("yuebing_unfinished_puts "))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// The writer: this test, started again as a process of its own, for as long as it is let.
#[test]
#[ignore = "started by the test below"]
fn writes_until_it_is_killed() {
    let Some(master) = std::env::var_os("YB_DEAD_WRITER") else { return };
    let limits = CallLimits { base: Duration::from_secs(60), ..CallLimits::default() };
    let config = ClientConfig {
        local_hostname: "127.0.0.1".into(),
        master_address: master.into_string().unwrap(),
        shared_memory: false,
        limits,
        ..ClientConfig::default()
    };
    let client = Client::connect(config).unwrap();
    loop {
        let _ = client.put("k", &vec![1; 8 << 20], &ReplicateConfig::default());
        yb_env::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_writer_that_is_killed_frees_its_key() {
    // The node stands still for a while and is to be in the pool all the same.
    let master = Master::start(&["--client_ttl=60"]);
    let admin = master.admin;
    let node = master.node(Way::Tcp, &[]);
    let config = ClientConfig {
        local_hostname: "127.0.0.1".into(),
        master_address: master.address.to_string(),
        shared_memory: false,
        ..ClientConfig::default()
    };
    let client = Client::connect(config).unwrap();
    let plain = ReplicateConfig::default();
    wait_until("there is room", || client.put("first", &[0; 1000], &plain).is_ok());
    node.process.signal(Signal::STOP).unwrap();
    let mut writer = std::process::Command::new(std::env::current_exe().unwrap());
    writer
        .args(["--ignored", "--exact", "writes_until_it_is_killed"])
        .env("YB_DEAD_WRITER", master.address.to_string());
    let mut writer = Process::start(writer.stdout(std::process::Stdio::null())).unwrap();
    wait_until("a put is under way", || unfinished(admin) == Some(1));
    writer.kill();
    let died = now();
    let refused = client.put("k", &[2; 1000], &plain).unwrap_err();
    assert!(!client.exists("k").unwrap(), "nobody has written it: {refused}");
    wait_until("the key is free", || unfinished(admin) == Some(0));
    let after = now().since(died);
    println!("free {after:?} after the writer was killed");
    assert!(after < DISCARD / 2, "{after:?}");
    node.process.signal(Signal::CONT).unwrap();
    wait_until("the next writer has it", || client.put("k", &[2; 1000], &plain).is_ok());
    assert_eq!(client.get("k").unwrap(), [2; 1000]);
}
