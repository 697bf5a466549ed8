//! An owner of one of two copies is killed: after a while there are two again, and the next owner may go too.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use common::{Master, Node, Way, copies, wait_until};
use yb_client::Client;

fn value(key: usize) -> Vec<u8> {
    (0..50_000 + key).map(|at| (at * 31 + key) as u8).collect()
}

/// Two copies of each object, and where they are.
fn homes(client: &Client, keys: usize) -> Option<Vec<Vec<String>>> {
    let homes = |key| {
        let found = client.query(format!("k{key}")).ok()?;
        let mut homes: Vec<String> = found.replicas.iter().map(|replica| format!("{replica:?}")).collect();
        homes.sort_unstable();
        (homes.len() == 2).then_some(homes)
    };
    (0..keys).map(homes).collect()
}

fn metric(admin: u16, name: &str) -> Option<u64> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", admin)).ok()?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").ok()?;
    let mut page = String::new();
    stream.read_to_string(&mut page).ok()?;
    let line = page.lines().find(|line| line.starts_with(name))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Three nodes, and a client that has stored so many objects with two copies each.
fn three_nodes(master: &Master, keys: usize) -> (Vec<Node>, Client) {
    let nodes = (0..3).map(|_| master.node(Way::Tcp, &[])).collect();
    wait_until("three nodes", || metric(master.admin, "yuebing_segments ") == Some(3));
    let client = master.client(Way::Tcp);
    for key in 0..keys {
        client.put(format!("k{key}"), &value(key), &copies(2)).unwrap();
    }
    (nodes, client)
}

#[test]
fn lost_copies_are_made_again_from_those_that_are_left() {
    const KEYS: usize = 60;
    let master = Master::start(&["--client_ttl=2", "--client_suspicion_ttl_sec=1", "--default_kv_lease_ttl=500"]);
    let admin = master.admin;
    let (mut nodes, client) = three_nodes(&master, KEYS);
    for left in [2, 1] {
        wait_until("each object has two copies", || homes(&client, KEYS).is_some());
        nodes.remove(0).process.kill();
        wait_until("the master gives its memory up", || metric(admin, "yuebing_segments ") == Some(left));
    }
    // The first two owners are gone, and with them every object whose two copies were only there.
    for key in 0..KEYS {
        assert!(client.get(format!("k{key}")).unwrap() == value(key), "k{key}");
    }
    let made = metric(admin, "yuebing_repairs_total{result=\"made\"}").unwrap();
    assert!(made > 0 && metric(admin, "yuebing_repairs_running ") == Some(0), "{made}");
    wait_until("nothing is forgotten, though with one node there is no other place", || {
        metric(admin, "yuebing_repairs_waiting ") == Some(KEYS as u64)
    });
}

#[test]
fn copies_are_made_while_a_node_is_away_and_before_it_is_given_up() {
    const KEYS: usize = 30;
    let master = Master::start(&["--client_ttl=2", "--client_suspicion_ttl_sec=600", "--repair_grace_ms=500"]);
    let admin = master.admin;
    let (mut nodes, client) = three_nodes(&master, KEYS);
    nodes.remove(0).process.kill();
    wait_until("copies are made", || {
        metric(admin, "yuebing_repairs_total{result=\"made\"}").is_some_and(|made| made > 0)
    });
    wait_until("each object has two copies", || homes(&client, KEYS).is_some());
    assert_eq!(metric(admin, "yuebing_segments "), Some(3), "what the node holds is known still");
    for key in 0..KEYS {
        assert!(client.get(format!("k{key}")).unwrap() == value(key), "k{key}");
    }
}
