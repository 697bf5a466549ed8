//! One client cannot reach a node that the master reaches: its writes go elsewhere, its reads take the other copy.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use common::{Master, Node, Way, copies, free_port, home, value, wait_for_copies, wait_until};
use yb_chaos::{Relay, Weather};
use yb_client::{CallLimits, Client, ClientConfig, PutOutcome};

const LEN: usize = 50_000;

/// Of one machine two hosts: a node at the second one is reached from the first one by way of relays.
fn far_node(master: &Master) -> (Node, [Relay; 2]) {
    let ports = [(); 2].map(|()| free_port());
    let relay = |port| Relay::start(SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::from(([127, 0, 0, 2], port)));
    let relays = ports.map(|port| relay(port).unwrap());
    let mut flags = common::node_flags(&master.address.to_string(), Way::Tcp, &[]);
    flags.retain(|flag| !flag.starts_with("--host="));
    flags.extend(["--host=127.0.0.2".to_owned(), "--advertise_host=127.0.0.1".to_owned()]);
    flags.extend([format!("--handshake_port={}", ports[0]), format!("--data_port={}", ports[1])]);
    (Node::start(flags), relays)
}

/// A client without memory whose calls have so much time that a busy machine fails none.
fn patient(master: &Master) -> Client {
    let limits = CallLimits { base: Duration::from_secs(10), ..CallLimits::default() };
    let config = ClientConfig {
        local_hostname: "127.0.0.1".into(),
        master_address: master.address.to_string(),
        shared_memory: false,
        limits,
        ..ClientConfig::default()
    };
    Client::connect(config).unwrap()
}

#[test]
fn a_client_that_cannot_reach_a_node_which_the_master_reaches_writes_elsewhere() {
    let master = Master::start(&["--client_ttl=60"]);
    let client = patient(&master);
    let near = master.node(Way::Tcp, &[]);
    wait_for_copies(&client, 1);
    assert_eq!(client.put("near", b"near", &copies(1)), Ok(PutOutcome::Stored));
    let near_home = home(&client, "near");
    let (far, relays) = far_node(&master);
    wait_for_copies(&client, 2);
    for key in 0..20 {
        assert_eq!(client.put(format!("old-{key}"), &value(key, LEN), &copies(2)), Ok(PutOutcome::Stored));
    }

    // Whoever connects gets a connection, the master too, and nothing more.
    relays.iter().for_each(|relay| relay.set(Weather::Cut));
    for key in 0..20 {
        assert_eq!(client.get(format!("old-{key}")), Ok(value(key, LEN)), "the other copy is read");
    }
    for round in 0..3 {
        for key in 0..20 {
            let (name, wanted) = (format!("key-{key}"), 1 + key % 2);
            let value = value(100 * round + key, LEN);
            assert_eq!(client.upsert(&name, &value, &copies(wanted)), Ok(()), "{name} of {round}");
            assert_eq!(client.get(&name), Ok(value));
            assert_eq!(home(&client, &name), near_home, "{name}");
        }
        let names: Vec<String> = (0..50).map(|key| format!("batch-{round}-{key}")).collect();
        let items: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), name.as_bytes())).collect();
        let stored = client.batch_put(&items, &copies(2));
        assert!(stored.iter().all(|answer| *answer == Ok(PutOutcome::Stored)), "{stored:?}");
    }

    relays.iter().for_each(|relay| relay.set(Weather::Fair));
    let mut number = 0;
    wait_until("the node gets objects again", || {
        number += 1;
        let name = format!("again-{number}");
        client.put(&name, b"again", &copies(2)) == Ok(PutOutcome::Stored) && homes(&client, &name) == 2
    });
    drop((near, far));
}

/// At how many addresses the copies of an object lie.
fn homes(client: &Client, key: &str) -> usize {
    let found = client.query(key).unwrap();
    let homes = found.replicas.iter().filter_map(|copy| Some(copy.memory()?.transport_endpoint.clone()));
    homes.collect::<BTreeSet<_>>().len()
}
