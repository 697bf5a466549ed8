//! The ground that the cases stand on: the master's process, clients as processes, and memory that remembers whose bytes
//! lie where.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use yb_env::Clock;
use yb_types::{ClientId, ErrorCode, ReplicaDescriptor, ReplicateConfig, WireVersion};
use yb_wire::call;
use yb_wire::messages::*;

use crate::common::{Caller, TENANT};

pub const MIB: u64 = 1 << 20;

/// Whether the case book's own numbers are wanted; otherwise a run takes seconds.
pub fn full() -> bool {
    std::env::var_os("YB_CASES").is_some_and(|wanted| wanted == "full")
}

/// Ends the process with the test.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A master as a process.
pub struct MasterProcess {
    pub process: Process,
    pub address: SocketAddr,
    pub admin: SocketAddr,
}

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], yb_env::free_port().unwrap()))
}

impl MasterProcess {
    /// Starts it; answers when it serves.
    pub fn start(flags: &[&str]) -> MasterProcess {
        // The example stands beside the tests: cargo builds both.
        let me = std::env::current_exe().unwrap();
        let program = me.parent().and_then(|deps| deps.parent()).unwrap().join("examples").join("master");
        let (address, admin) = (free_address(), free_address());
        let child = Command::new(&program)
            .args(["--rpc_address=127.0.0.1", "--dial_back=false", "--minloglevel=2"])
            .args([format!("--rpc_port={}", address.port()), format!("--metrics_port={}", admin.port())])
            .args(["--metrics_host=127.0.0.1"])
            .args(flags)
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        let master = MasterProcess { process: Process(child), address, admin };
        for port in [address, admin] {
            wait_until("the master listens", || TcpStream::connect(port).is_ok());
        }
        master
    }

    pub fn caller(&self) -> Caller {
        Caller::new(self.address, WireVersion::V0_3_14)
    }

    /// Another connection of the same client.
    pub fn caller_as(&self, id: ClientId) -> Caller {
        Caller { id, ..self.caller() }
    }

    pub fn page(&self, path: &str) -> String {
        use std::io::{Read, Write};
        let mut socket = TcpStream::connect(self.admin).unwrap();
        write!(socket, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// A metric, summed over its labels.
    pub fn metric(&self, name: &str) -> f64 {
        let page = self.page("/metrics");
        let mine = page
            .lines()
            .filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ') || rest.starts_with('{')));
        mine.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
    }

    pub fn resident_bytes(&self) -> u64 {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", self.process.0.id())).unwrap();
        statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
    }
}

/// Asks until the answer is yes; fails after forty seconds.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = Clock::real();
    let begin = clock.now();
    while !is_so() {
        assert!(clock.now().since(begin) < Duration::from_secs(40), "never: {what}");
        yb_env::sleep(Duration::from_millis(10));
    }
}

/// A client as a process of its own, which only pings: this test's own program with `the_pinging_client` as its test.
pub fn pinging_process(master: &MasterProcess, id: ClientId) -> Process {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "ground::the_pinging_client"])
        .env("YB_CASES_MASTER", master.address.to_string())
        .env("YB_CASES_CLIENT", id.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    Process(child)
}

/// Not a test: the client process of [`pinging_process`].
#[test]
#[ignore = "the client process of other tests"]
fn the_pinging_client() {
    let (Ok(master), Ok(id)) = (std::env::var("YB_CASES_MASTER"), std::env::var("YB_CASES_CLIENT")) else { return };
    let caller =
        Caller { id: ClientId(id.parse().unwrap()), ..Caller::new(master.parse().unwrap(), WireVersion::V0_3_14) };
    let clock = Clock::real();
    let begin = clock.now();
    // Killed by the test; a test that died does not leave it behind for long.
    while clock.now().since(begin) < Duration::from_secs(120) && caller.ping().is_ok() {
        yb_env::sleep(Duration::from_millis(200));
    }
}

/// What lies in the nodes' memory: whose bytes are where. Nobody moves real bytes in these cases; writers note here what
/// they would have written, and readers look whether it is what they came for.
#[derive(Default)]
pub struct Bytes(Mutex<BTreeMap<Place, (u64, Vec<u8>)>>);

/// Endpoint and address.
type Place = (String, u64);

impl Bytes {
    /// Writes an object's value to where its replicas are; what it lies over is gone.
    pub fn write(&self, replicas: &[ReplicaDescriptor], value: &[u8]) {
        let mut all = self.0.lock().unwrap();
        for buffer in replicas.iter().filter_map(|replica| replica.memory()) {
            let (at, len) = (buffer.buffer_address, buffer.size);
            let endpoint = &buffer.transport_endpoint;
            let before = all.range((endpoint.clone(), 0)..(endpoint.clone(), at + len));
            let over = before.rev().take_while(|((_, a), (l, _))| a + l > at).map(|(place, _)| place.clone());
            let over: Vec<Place> = over.collect();
            over.iter().for_each(|place| drop(all.remove(place)));
            all.insert((endpoint.clone(), at), (len, value.to_vec()));
        }
    }

    /// What a reader of the first replica gets.
    pub fn read(&self, replicas: &[ReplicaDescriptor]) -> Option<Vec<u8>> {
        let buffer = replicas.first()?.memory()?;
        let all = self.0.lock().unwrap();
        let (len, value) = all.get(&(buffer.transport_endpoint.clone(), buffer.buffer_address))?;
        (*len == buffer.size).then(|| value.clone())
    }
}

/// What a get came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Right,
    Miss,
    Error(ErrorCode),
    Wrong,
}

/// Gets a key whose value must be one of these.
pub fn read(caller: &Caller, bytes: &Bytes, key: &[u8], values: &[&[u8]]) -> Outcome {
    match caller.get(key) {
        Ok(found) => match bytes.read(&found.replicas) {
            Some(value) if values.contains(&value.as_slice()) => Outcome::Right,
            _ => Outcome::Wrong,
        },
        Err(ErrorCode::OBJECT_NOT_FOUND | ErrorCode::REPLICA_IS_NOT_READY) => Outcome::Miss,
        Err(code) => Outcome::Error(code),
    }
}

/// Start, bytes, end.
pub fn put(caller: &Caller, bytes: &Bytes, key: &[u8], size: u64, config: &ReplicateConfig) -> ErrorOr<()> {
    let args =
        PutStartArgs { client_id: caller.id, key, slice_length: size, config: config.clone(), tenant_id: TENANT };
    let replicas = caller.call::<call::PutStart, _>(&args, |reply| reply)?;
    bytes.write(&replicas, key);
    caller.put_end(key)
}

/// The value at a share of a sorted list.
pub fn quantile(sorted: &[Duration], share: f64) -> Duration {
    sorted.get(((sorted.len() as f64 - 1.0) * share) as usize).copied().unwrap_or_default()
}
