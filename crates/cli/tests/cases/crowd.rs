//! A crowd on one host (H13): all find ports, nobody is taken for another one, not even by those who mapped its forerunner.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

use yb_chaos::Process;
use yb_client::Client;
use yb_types::ReplicateConfig;

use crate::common::{Master, Node, Way, both_ways, node_flags, value, wait_until, yuebing};

const CROWD: usize = 16;
const LEN: usize = 128 << 10;

both_ways!(a_crowd_on_one_host, a_crowd_on_one_host_over_tcp, a_crowd_on_one_host_over_shared_memory);

fn a_crowd_on_one_host(way: Way) {
    let master = Master::start(&["--client_ttl=60"]);
    let mut nodes = crowd(&master, way);
    let client = master.client(way);
    let names: Vec<String> = segments(&master);
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), CROWD, "as many names as nodes: {names:?}");
    mark(&client, &names, 0);
    let reader = master.client(way);
    for (number, name) in names.iter().enumerate() {
        assert!(reader.get(marker(name, 0)).unwrap() == value(number as u64, LEN), "{name}");
    }
    // Four are killed, and four others take their ports.
    let taken: Vec<Node> = nodes.drain(..4).map(|node| node.followed_by_another()).collect();
    wait_until("all are in the pool again", || segments(&master).len() == CROWD);
    let names = segments(&master);
    mark(&client, &names, 1);
    for (number, name) in names.iter().enumerate() {
        for by in [&reader, &client, &master.client(way)] {
            assert!(by.get(marker(name, 1)).unwrap() == value(number as u64 + 100, LEN), "{name}");
            // What lay in memory that is gone is missing, and the rest is what it was.
            if let Ok(bytes) = by.get(marker(name, 0)) {
                assert!((0..CROWD as u64).any(|seed| bytes == value(seed, LEN)), "{name}");
            }
        }
    }
    drop(taken);
}

/// One of the crowd, with what it said when it was ready.
struct Member {
    process: Process,
    flags: Vec<String>,
    said: String,
}

impl Member {
    /// Starts one that is not ready yet.
    fn start(flags: Vec<String>) -> Member {
        let process = Process::start(yuebing(&flags).stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
        Member { process, flags, said: String::new() }
    }

    fn is_ready(&mut self) {
        BufReader::new(self.process.stdout().unwrap()).read_line(&mut self.said).unwrap();
        assert!(self.said.contains("ready"), "{:?} of {:?}", self.said, self.flags);
    }

    /// Kills it; another one takes the port of its name.
    fn followed_by_another(mut self) -> Node {
        self.process.kill();
        let name = self.said.split("segment ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
        let port = name.rsplit(':').next().unwrap();
        self.flags.push(format!("--port={port}"));
        Node::start(self.flags)
    }
}

/// All started at the same instant without a port, half of them named by a name.
fn crowd(master: &Master, way: Way) -> Vec<Member> {
    let flags = (0..CROWD).map(|number| {
        let host = if number % 2 == 0 { "--advertise_host=localhost" } else { "--advertise_host=127.0.0.1" };
        node_flags(&master.address.to_string(), way, &["--global_segment_size=16MiB", "--port=0", host])
    });
    let mut all: Vec<Member> = flags.map(Member::start).collect();
    all.iter_mut().for_each(Member::is_ready);
    all
}

fn segments(master: &Master) -> Vec<String> {
    let output = master.command(&["status", "--json"]);
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let segments = status["segments"].as_array().unwrap();
    segments.iter().map(|segment| segment["name"].as_str().unwrap().to_owned()).collect()
}

fn marker(name: &str, round: u64) -> String {
    format!("marker-{name}-{round}")
}

/// An object on each node, of its own.
fn mark(client: &Client, names: &[String], round: u64) {
    for (number, name) in names.iter().enumerate() {
        let config = ReplicateConfig { preferred_segments: vec![name.clone()], ..ReplicateConfig::default() };
        client.put(marker(name, round), &value(number as u64 + round * 100, LEN), &config).unwrap();
    }
}
