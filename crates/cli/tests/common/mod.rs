//! A pool of real processes: the program under test as master and nodes, clients in the test's own process.
#![allow(
    dead_code,
    unused,
    clippy::unwrap_used,
    reason = "each test file uses a part; a step that fails is a failed test"
)]

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

pub use yb_chaos::{PATIENCE, Process, now};
use yb_client::{CallLimits, Client, ClientConfig};
use yb_types::{MonotonicTime, ReplicateConfig};

/// How bytes get from a node to its readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Over TCP only.
    Tcp,
    /// Over shared memory of this host.
    SharedMemory,
}

/// A case of failure, played over TCP only and over shared memory.
macro_rules! both_ways {
    ($case:ident, $tcp:ident, $shared_memory:ident) => {
        #[test]
        fn $tcp() {
            $case(crate::common::Way::Tcp);
        }

        #[test]
        fn $shared_memory() {
            $case(crate::common::Way::SharedMemory);
        }
    };
}
pub(crate) use both_ways;

/// The program under test, or the one that `YB_BINARY` names.
pub fn yuebing<S: AsRef<std::ffi::OsStr>>(arguments: &[S]) -> Command {
    let binary = std::env::var_os("YB_BINARY").unwrap_or(env!("CARGO_BIN_EXE_yuebing").into());
    let mut command = Command::new(binary);
    for name in
        ["MOONCAKE_MASTER", "MOONCAKE_CONFIG_PATH", "MOONCAKE_TENANT_ID", "YUEBING_ADMIN", "YUEBING_ADMIN_TOKEN"]
    {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

pub fn error_text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A port that is free now.
pub fn free_port() -> u16 {
    yb_chaos::free_port().unwrap()
}

/// Asks again and again.
pub fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    yb_chaos::wait_until(what, is_so).unwrap();
}

/// Asks again and again, no longer than this; how long it took.
pub fn within(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) -> Duration {
    let start = now();
    while !is_so() {
        assert!(now().since(start) < limit, "not within {limit:?}: {what}");
        yb_env::sleep(Duration::from_millis(10));
    }
    now().since(start)
}

/// A master at ports that stay.
pub struct Master {
    pub address: SocketAddr,
    pub admin: u16,
    flags: Vec<String>,
    pub process: Process,
}

impl Master {
    pub fn start(more: &[&str]) -> Master {
        Master::start_at(free_port(), more)
    }

    /// At a port that somebody knows already.
    pub fn start_at(port: u16, more: &[&str]) -> Master {
        let admin = free_port();
        let mut flags = vec![
            "master".to_owned(),
            "--rpc_address=127.0.0.1".to_owned(),
            format!("--rpc_port={port}"),
            "--metrics_host=127.0.0.1".to_owned(),
            format!("--metrics_port={admin}"),
        ];
        flags.extend(more.iter().map(|&flag| flag.to_owned()));
        let process = Process::start(yuebing(&flags).stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
        let master = Master { address: ([127, 0, 0, 1], port).into(), admin, flags, process };
        master.answers();
        master
    }

    fn answers(&self) {
        wait_until("the master listens", || std::net::TcpStream::connect(self.address).is_ok());
    }

    /// Another process at the same ports, after the one before has ended.
    pub fn start_again(&mut self) {
        self.process = Process::start(yuebing(&self.flags).stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
        self.answers();
    }

    /// A node that is ready.
    pub fn node(&self, way: Way, more: &[&str]) -> Node {
        Node::start(node_flags(&self.address.to_string(), way, more))
    }

    /// A client that lends nothing.
    pub fn client(&self, way: Way) -> Client {
        client(&self.address.to_string(), way)
    }

    /// The master's answer to a page of its HTTP server, or nothing.
    pub fn command(&self, arguments: &[&str]) -> Output {
        let mut command = yuebing(arguments);
        command.env("MOONCAKE_MASTER", self.address.to_string());
        command.env("YUEBING_ADMIN", format!("127.0.0.1:{}", self.admin)).output().unwrap()
    }
}

/// A client that lends nothing, of the master at an address; its calls have two seconds.
pub fn client(master: &str, way: Way) -> Client {
    let limits = CallLimits { base: Duration::from_secs(2), ..CallLimits::default() };
    let config = ClientConfig {
        local_hostname: "127.0.0.1".into(),
        master_address: master.into(),
        shared_memory: way == Way::SharedMemory,
        limits,
        ..ClientConfig::default()
    };
    Client::connect(config).unwrap()
}

/// Of a node that lends 64 MiB at a port that is free now.
pub fn node_flags(master: &str, way: Way, more: &[&str]) -> Vec<String> {
    let mut flags = vec![
        "node".to_owned(),
        "--host=127.0.0.1".to_owned(),
        format!("--port={}", free_port()),
        "--populate=false".to_owned(),
        format!("--master_server_address={master}"),
        format!("--shared_memory={}", way == Way::SharedMemory),
        "--global_segment_size=64MiB".to_owned(),
    ];
    flags.extend(more.iter().map(|&flag| flag.to_owned()));
    flags
}

/// A process that lends memory.
pub struct Node {
    pub flags: Vec<String>,
    pub process: Process,
}

impl Node {
    /// Starts one and waits until it is ready.
    pub fn start(flags: Vec<String>) -> Node {
        let mut process = Process::start(yuebing(&flags).stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "{line:?} of {flags:?}");
        Node { flags, process }
    }

    /// Another process with the same flags and ports.
    pub fn start_again(&mut self) {
        self.process.kill();
        *self = Node::start(self.flags.clone());
    }
}

/// So many copies, anywhere.
pub fn copies(number: u64) -> ReplicateConfig {
    ReplicateConfig { replica_num: number, ..ReplicateConfig::default() }
}

/// Until an object gets so many copies: so many nodes take part.
pub fn wait_for_copies(client: &Client, number: u64) {
    wait_until("an object has its copies", || {
        let _ = client.remove("probe", true);
        client.put("probe", b"probe", &copies(number)).is_ok()
            && client.query("probe").is_ok_and(|found| found.replicas.len() as u64 == number)
    });
    client.remove("probe", true).unwrap();
}

/// Where the first copy of an object is.
pub fn home(client: &Client, key: &str) -> String {
    let found = client.query(key).unwrap();
    found.replicas[0].memory().unwrap().transport_endpoint.clone()
}

/// Bytes that differ by seed and place.
pub use yb_chaos::value::bytes as value;

/// What a call says, and how long it took.
pub fn timed<T>(call: impl FnOnce() -> T) -> (T, Duration) {
    let before: MonotonicTime = now();
    let answer = call();
    (answer, now().since(before))
}

/// The time below which this share of the times is.
pub fn percentile(times: &[Duration], share: f64) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    times.get((last as f64 * share) as usize).copied().unwrap_or_default()
}
