//! The master is killed and started again, and the cache is still warm (H10); a node is killed and takes its memory over.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use yb_client::{CallLimits, Client, ClientConfig};
use yb_env::Clock;
use yb_types::ReplicateConfig;

/// A process that ends with the test.
struct Process(Child);

impl Process {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has ended, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn yuebing(arguments: &[String]) -> Command {
    let binary = std::env::var_os("YB_BINARY").unwrap_or(env!("CARGO_BIN_EXE_yuebing").into());
    let mut command = Command::new(binary);
    for name in ["MOONCAKE_MASTER", "MOONCAKE_CONFIG_PATH", "YUEBING_ADMIN"] {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null()).stderr(Stdio::null());
    command
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn eventually(what: &str, within: Duration, mut is_so: impl FnMut() -> bool) {
    let clock = Clock::real();
    let start = clock.now();
    while !is_so() {
        assert!(clock.now().since(start) < within, "never: {what}");
        yb_env::sleep(Duration::from_millis(20));
    }
}

/// A master at ports that stay.
struct Master {
    address: String,
    flags: Vec<String>,
    process: Process,
}

impl Master {
    fn start(more: &[&str]) -> Master {
        let address = format!("127.0.0.1:{}", free_port());
        let mut flags = vec![
            "master".to_owned(),
            "--rpc_address=127.0.0.1".to_owned(),
            format!("--rpc_port={}", address.rsplit(':').next().unwrap()),
            "--metrics_host=127.0.0.1".to_owned(),
            "--metrics_port=0".to_owned(),
        ];
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        let process = Process(yuebing(&flags).stdout(Stdio::null()).spawn().unwrap());
        let master = Master { address, flags, process };
        master.answers();
        master
    }

    fn answers(&self) {
        let within = Duration::from_secs(30);
        eventually("the master listens", within, || std::net::TcpStream::connect(&self.address).is_ok());
    }

    fn start_again(&mut self) {
        self.process = Process(yuebing(&self.flags).stdout(Stdio::null()).spawn().unwrap());
        self.answers();
    }

    fn node(&self, more: &[&str]) -> Process {
        let mut child = yuebing(&node_flags(&self.address, more)).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "{line:?}");
        Process(child)
    }

    fn client(&self) -> Client {
        let limits = CallLimits { base: Duration::from_secs(2), ..CallLimits::default() };
        let config = ClientConfig {
            local_hostname: "127.0.0.1".into(),
            master_address: self.address.clone(),
            limits,
            ..ClientConfig::default()
        };
        Client::connect(config).unwrap()
    }
}

fn node_flags(master: &str, more: &[&str]) -> Vec<String> {
    let mut flags = vec![
        "node".to_owned(),
        "--host=127.0.0.1".to_owned(),
        "--port=0".to_owned(),
        "--populate=false".to_owned(),
        format!("--master_server_address={master}"),
    ];
    flags.extend(more.iter().map(|&flag| flag.to_owned()));
    flags
}

fn value(key: u64, len: usize) -> Vec<u8> {
    let mut rng = yb_env::Rng::seeded(key);
    (0..len.div_ceil(8)).flat_map(|_| rng.next_u64().to_le_bytes()).take(len).collect()
}

/// How many of the keys are read, each with the right bytes or not at all.
fn readable(client: &Client, keys: std::ops::Range<u64>, len: usize) -> u64 {
    let mut right = 0;
    for key in keys {
        if let Ok(got) = client.get(format!("key-{key}")) {
            assert!(got == value(key, len), "wrong bytes of key-{key}");
            right += 1;
        }
    }
    right
}

/// What is known to have reached the nodes: told within a moment.
fn told() {
    yb_env::sleep(Duration::from_millis(500));
}

#[test]
fn a_master_that_is_killed_again_and_again_finds_its_objects() {
    const LEN: usize = 64 << 10;
    let mut master = Master::start(&["--default_kv_lease_ttl=500"]);
    let _nodes: Vec<_> = (0..2).map(|_| master.node(&["--global_segment_size=64MiB"])).collect();
    let client = master.client();
    let plain = ReplicateConfig::default();
    let mut keys = 400;
    for key in 0..keys {
        client.put(format!("key-{key}"), &value(key, LEN), &plain).unwrap();
    }
    let limit = Duration::from_secs(10);
    for round in 0..10 {
        told();
        master.process.kill();
        let failure = client.get("key-0").unwrap_err();
        assert!(!failure.to_string().contains("not found"), "an outage is no miss: {failure}");
        master.start_again();
        let clock = Clock::real();
        let started = clock.now();
        eventually("all is found again", limit, || readable(&client, 0..keys, LEN) == keys);
        println!("round {round}: {keys} keys after {:?}", clock.now().since(started));
        // New objects go beside the old ones, which stay as they were.
        eventually("room for new objects", limit, || {
            client.put(format!("key-{keys}"), &value(keys, LEN), &plain).is_ok()
        });
        for key in keys + 1..keys + 20 {
            client.put(format!("key-{key}"), &value(key, LEN), &plain).unwrap();
        }
        keys += 20;
        assert_eq!(readable(&master.client(), 0..keys, LEN), keys, "a client that is new finds the same");
    }
}

/// The memory of a node is a file: a process that comes after one that was killed, or that left in order, has its objects.
#[test]
fn a_node_takes_over_the_memory_of_the_one_before() {
    const LEN: usize = 64 << 10;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("memory");
    let file = format!("--segment_file={}", path.display());
    let flags = [file.as_str(), "--global_segment_size=64MiB"];
    let mut master = Master::start(&["--default_kv_lease_ttl=500"]);
    let mut node = master.node(&flags);
    let client = master.client();
    for key in 0..200 {
        client.put(format!("key-{key}"), &value(key, LEN), &ReplicateConfig::default()).unwrap();
    }
    let second = yuebing(&node_flags(&master.address, &flags)).output().unwrap();
    assert_eq!(second.status.code(), Some(1), "one process at a time");
    let limit = Duration::from_secs(10);
    for round in 0..3 {
        told();
        if round == 1 {
            // In order: the segment stays, and another process comes.
            let pid = node.0.id().to_string();
            assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
            assert_eq!(node.0.wait().unwrap().code(), Some(0));
        } else {
            node.kill();
        }
        if round == 2 {
            master.process.kill();
            master.start_again();
        }
        node = master.node(&flags);
        eventually("all is found again", limit, || readable(&client, 0..200, LEN) == 200);
        eventually("and there is room for more", limit, || {
            client.put(format!("new-{round}"), &[7; 1000], &ReplicateConfig::default()).is_ok()
        });
        assert_eq!(client.get(format!("new-{round}")).unwrap(), [7; 1000]);
        assert_eq!(readable(&client, 0..200, LEN), 200);
    }
    drop(node);
}

/// The figure of a million keys on four nodes: `cargo test --release -p yb-cli --test restart -- --ignored --nocapture million`;
/// `YB_RESTART_KEYS` takes another number.
#[test]
#[ignore = "takes a minute and a gigabyte"]
fn a_million_keys_are_known_again_soon_after_the_master_was_killed() {
    const BATCH: u64 = 1000;
    let usual = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let count: u64 = std::env::var("YB_RESTART_KEYS").ok().and_then(|keys| keys.parse().ok()).unwrap_or(usual);
    let mut master = Master::start(&[]);
    let _nodes: Vec<_> = (0..4).map(|_| master.node(&["--global_segment_size=128MiB"])).collect();
    let client = master.client();
    for first in (0..count).step_by(BATCH as usize) {
        let item = |key: u64| (format!("key-{key:08}"), value(key, 64));
        let items: Vec<(String, Vec<u8>)> = (first..(first + BATCH).min(count)).map(item).collect();
        assert!(client.batch_put(&items, &ReplicateConfig::default()).iter().all(Result::is_ok));
    }
    told();
    let clock = Clock::real();
    master.process.kill();
    master.start_again();
    let started = clock.now();
    let exist = |range: std::ops::Range<u64>| {
        let keys: Vec<String> = range.map(|key| format!("key-{key:08}")).collect();
        client.batch_exists(&keys).into_iter().filter(|answer| matches!(answer, Ok(true))).count() as u64
    };
    let all = || (0..count).step_by(20_000).map(|first| exist(first..(first + 20_000).min(count))).sum::<u64>();
    let mut found = 0;
    let limit = Duration::from_secs(10);
    while found < count && clock.now().since(started) < limit {
        found = all();
        println!("{found} of {count} keys after {:?}", clock.now().since(started));
    }
    assert!(found * 1000 >= count * 999, "{found} of {count}");
    // And they are what they were.
    for key in (0..count).step_by(count as usize / 500) {
        assert!(client.get(format!("key-{key:08}")).unwrap() == value(key, 64), "{key}");
    }
}
