//! Many nodes join at once (H09): nobody who is well is given up for it. The master that sleeps is in `paused.rs`.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;
use yb_chaos::Process;

use crate::common::{Master, Way, both_ways, code, copies, error_text, node_flags, value, within, yuebing};

const JOINING: usize = 12;

both_ways!(many_join_at_once, many_join_at_once_over_tcp, many_join_at_once_over_shared_memory);

fn many_join_at_once(way: Way) {
    let ttl = 2;
    let master = Master::start(&[&format!("--client_ttl={ttl}"), "--client_suspicion_ttl_sec=0"]);
    let _node = master.node(way, &[]);
    let client = master.client(way);
    let keys: Vec<String> = (0..200).map(|key| format!("key-{key}")).collect();
    for (seed, key) in (0..).zip(&keys) {
        client.put(key, &value(seed, 10_000), &copies(1)).unwrap();
    }
    let start = || {
        let flags = node_flags(&master.address.to_string(), way, &["--global_segment_size=16MiB", "--port=0"]);
        Process::start(yuebing(&flags).stdout(Stdio::piped()).stderr(Stdio::null())).unwrap()
    };
    let mut joining: Vec<Process> = (0..JOINING).map(|_| start()).collect();
    for node in &mut joining {
        let mut line = String::new();
        BufReader::new(node.stdout().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "{line:?}");
    }
    let status = || -> Value {
        let output = master.command(&["status", "--json"]);
        assert_eq!(code(&output), 0, "{}", error_text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let limit = std::time::Duration::from_secs(20);
    let all = || status()["segments"].as_array().map(Vec::len) == Some(JOINING + 1);
    within("all are in the pool", limit, all);
    // Longer than a silent one would be kept.
    yb_env::sleep(std::time::Duration::from_secs(ttl + 1));
    assert!(all(), "nobody was given up");
    for (seed, key) in (0..).zip(&keys) {
        assert!(client.get(key).unwrap() == value(seed, 10_000), "{key}");
    }
}
