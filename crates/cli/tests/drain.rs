//! `yuebing node drain`: what an operator sees of a drain that goes through, that cannot, and that is called off.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::process::{Output, Stdio};
use std::time::Duration;

use common::{Master, Node, PATIENCE, Process, Way, code, copies, error_text, now, value, wait_until, yuebing};
use rustix::process::Signal;
use yb_client::Client;

const LEN: usize = 100_000;
const KEYS: u64 = 60;

/// The name under which the pool knows a node.
fn name(node: &Node) -> String {
    let port = node.flags.iter().find_map(|flag| flag.strip_prefix("--port=")).unwrap();
    format!("127.0.0.1:{port}")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A node that has all keys.
fn full(master: &Master, client: &Client) -> Node {
    let node = master.node(Way::Tcp, &[]);
    wait_until("the node takes objects", || client.put("key-0", &value(0, LEN), &copies(1)).is_ok());
    for key in 1..KEYS {
        client.put(format!("key-{key}"), &value(key, LEN), &copies(1)).unwrap();
    }
    node
}

fn all_there(client: &Client) {
    for key in 0..KEYS {
        assert!(client.get(format!("key-{key}")).unwrap() == value(key, LEN), "key-{key}");
    }
}

fn status_of(master: &Master, node: &str) -> String {
    let told = master.command(&["segments", "--json", node]);
    let told: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
    told[0]["status"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_node_is_emptied_and_may_go_and_a_drain_can_be_taken_back() {
    let master = Master::start(&[]);
    let client = master.client(Way::Tcp);
    let mut node = full(&master, &client);
    let drain = |more: &[&str]| master.command(&[&["node", "drain"], more].concat());
    let nobody = drain(&[]);
    assert!(code(&nobody) == 2 && error_text(&nobody).contains(&name(&node)), "{}", error_text(&nobody));
    for contradiction in [
        &["--cancel", "--deadline=5"][..],
        &["--cancel", "--watch"],
        &["--cancel", "--no-wait"],
        &["--cancel", "--to=10.9.9.9"],
        &["--no-wait", "--watch"],
    ] {
        let refused = drain(&[&[name(&node).as_str()], contradiction].concat());
        assert!(code(&refused) == 2 && error_text(&refused).contains("cannot be used with"), "{contradiction:?}");
    }
    let refused = drain(&["--job=1", "--concurrency=2"]);
    assert!(code(&refused) == 2 && error_text(&refused).contains("cannot be used with"), "{}", error_text(&refused));
    let unknown = drain(&["10.9.9.9"]);
    assert!(code(&unknown) == 1 && error_text(&unknown).contains(&name(&node)), "{}", error_text(&unknown));

    let asked = now();
    let alone = drain(&[&name(&node)]);
    assert_eq!(code(&alone), 1);
    assert!(error_text(&alone).contains("60 objects have nowhere to go"), "{}", error_text(&alone));
    assert!(now().since(asked) < Duration::from_secs(30), "it is known at once");
    assert_eq!(status_of(&master, &name(&node)), "OK");

    let _other = master.node(Way::Tcp, &[]);
    let drained = drain(&[&name(&node)]);
    assert_eq!(code(&drained), 0, "{}", error_text(&drained));
    let said = text(&drained);
    assert!(said.contains("moved") && said.contains("60 objects") && said.contains("end the nodes"), "{said}");
    assert_eq!(status_of(&master, &name(&node)), "DRAINED");
    all_there(&client);
    // The second time nothing is to be done.
    assert_eq!(code(&drain(&[&name(&node)])), 0);
    let back = drain(&[&name(&node), "--cancel"]);
    assert_eq!((code(&back), status_of(&master, &name(&node)).as_str()), (0, "OK"), "{}", error_text(&back));
    assert_eq!(code(&drain(&[&name(&node), "--cancel"])), 1, "nothing is to be taken back");

    assert_eq!(code(&drain(&[&name(&node)])), 0);
    node.process.signal(Signal::TERM).unwrap();
    assert_eq!(node.process.ends_within(PATIENCE).unwrap().code(), Some(0));
    all_there(&client);
}

/// What is to be in the log is there a moment later.
fn written() {
    yb_env::sleep(Duration::from_secs(1));
}

/// With a log, a restarted master knows what was emptied, and goes on with what was being emptied.
#[test]
fn drains_outlive_their_master() {
    let directory = tempfile::tempdir().unwrap();
    let log = format!("--journal_file={}", directory.path().join("log").display());
    let mut master = Master::start(&["--default_kv_lease_ttl=500", &log]);
    let client = master.client(Way::Tcp);
    let node = full(&master, &client);
    let other = master.node(Way::Tcp, &[]);
    let drain =
        |master: &Master, more: &[&str]| code(&master.command(&[&["node", "drain", &name(&node)], more].concat()));
    // Nothing gets through to the other one.
    other.process.signal(Signal::STOP).unwrap();
    assert_eq!(drain(&master, &["--no-wait"]), 0);
    assert_eq!(status_of(&master, &name(&node)), "DRAINING");
    written();
    master.process.kill();
    master.start_again();
    other.process.signal(Signal::CONT).unwrap();
    wait_until("the drain goes on and ends", || status_of(&master, &name(&node)) == "DRAINED");
    all_there(&client);
    written();
    for _ in 0..2 {
        master.process.kill();
        master.start_again();
        wait_until("the node is back", || !status_of(&master, &name(&node)).is_empty());
        assert_eq!(status_of(&master, &name(&node)), "DRAINED");
    }
    assert_eq!(drain(&master, &["--cancel"]), 0);
    assert_eq!(status_of(&master, &name(&node)), "OK");
    written();
    master.process.kill();
    master.start_again();
    wait_until("the node is back", || !status_of(&master, &name(&node)).is_empty());
    assert_eq!(status_of(&master, &name(&node)), "OK");
}

#[test]
fn a_drain_that_hangs_is_left_called_off_and_bounded() {
    let master = Master::start(&[]);
    let client = master.client(Way::Tcp);
    let node = full(&master, &client);
    let other = master.node(Way::Tcp, &[]);
    other.process.signal(Signal::STOP).unwrap();
    let mut command = yuebing(&["node", "drain", &name(&node), "--admin", &format!("127.0.0.1:{}", master.admin)]);
    let mut waiting = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
    wait_until("the drain runs", || status_of(&master, &name(&node)) == "DRAINING");
    // It may not have its signals yet: again and again.
    let mut ended = None;
    wait_until("the command ends", || {
        waiting.signal(Signal::INT).unwrap();
        ended = waiting.ends_within(Duration::from_millis(200));
        ended.is_some()
    });
    assert!(ended.unwrap().code() != Some(0));
    assert_eq!(status_of(&master, &name(&node)), "DRAINING", "it goes on without the command");
    let cancel = || code(&master.command(&["node", "drain", &name(&node), "--cancel"])) == 0;
    wait_until("it is called off", cancel);
    wait_until("the node takes objects", || status_of(&master, &name(&node)) == "OK");

    let late = master.command(&["node", "drain", &name(&node), "--deadline", "1"]);
    assert_eq!(code(&late), 1);
    assert!(error_text(&late).contains("its time of 1 s is over"), "{}", error_text(&late));
    other.process.signal(Signal::CONT).unwrap();
    all_there(&client);
    drop(other);
}
