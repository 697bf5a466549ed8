//! Copies, moves and drains with real nodes: what is moved comes back byte for byte, whoever's master asks for it.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::{MIB, Process, bytes, node, on, plain, requester, wait_until, wheel_master};
use yb_client::{Client, Error, PutOutcome};
use yb_jobs::{HeatMode, HeatSettings};
use yb_master::{Master, MasterConfig};
use yb_rpc::{ClientPool, ClientSettings, RpcAddress};
use yb_types::{ErrorCode, ReplicateConfig, Uuid};
use yb_wire::messages::{CreateCopyTaskArgs, CreateMoveTaskArgs, ErrorOr, TaskArgs, TaskStatus};
use yb_wire::{Call, Form, List, WireTable, WireVersion, call};

/// Asks a master for tasks.
struct Asker(ClientPool);

impl Asker {
    fn new(master: &str) -> Asker {
        Asker(ClientPool::new(RpcAddress::resolve(master).unwrap(), ClientSettings::default()))
    }

    fn ask<C: Call, R>(&self, args: &C::Args<'_>, then: impl FnOnce(C::Reply<'_>) -> R) -> R {
        let table = WireTable::of(WireVersion::V0_3_13);
        let signature = table.signature(C::RPC).unwrap();
        let mut body = Vec::new();
        yb_pack::encode(args, &signature.args, Form::Bare, &mut body).unwrap();
        let reply = self.0.call(signature.function_id, &body, self.0.deadline_in(Duration::from_secs(10))).unwrap();
        then(yb_wire::decode_reply::<C>(table, &reply, yb_wire::Limits::default()).unwrap())
    }

    fn copy(&self, key: &str, targets: &[&Client]) -> ErrorOr<Uuid> {
        let names: Vec<&[u8]> = targets.iter().map(|target| target.hostname().as_bytes()).collect();
        let targets = List::from(names.as_slice());
        let args = CreateCopyTaskArgs { key: key.as_bytes(), tenant_id: b"default", targets };
        self.ask::<call::CreateCopyTask, _>(&args, |reply| reply)
    }

    fn shift(&self, key: &str, source: &Client, target: &Client) -> ErrorOr<Uuid> {
        let args = CreateMoveTaskArgs {
            key: key.as_bytes(),
            tenant_id: b"default",
            source: source.hostname().as_bytes(),
            target: target.hostname().as_bytes(),
        };
        self.ask::<call::CreateMoveTask, _>(&args, |reply| reply)
    }

    /// Status and message of a task.
    fn query(&self, task: Uuid) -> ErrorOr<(TaskStatus, String)> {
        self.ask::<call::QueryTask, _>(&TaskArgs { task_id: task }, |reply| {
            reply.map(|task| (task.status, String::from_utf8_lossy(task.message).into_owned()))
        })
    }

    /// Waits for the end of a task.
    fn end_of(&self, task: Uuid) -> (TaskStatus, String) {
        let mut last = None;
        wait_until("the task ends", || {
            last = self.query(task).ok();
            last.as_ref().is_some_and(|(status, _)| *status == TaskStatus::SUCCESS || *status == TaskStatus::FAILED)
        });
        last.unwrap()
    }
}

fn ours(change: impl FnOnce(&mut MasterConfig)) -> (Master, String) {
    let mut config = MasterConfig::embedded();
    change(&mut config);
    let master = Master::start(config).unwrap();
    let address = master.rpc_address().to_string();
    (master, address)
}

/// Runs a test under our master, and under the peer's where it is installed.
fn under_each(test: impl Fn(&str)) {
    let (_master, address) = ours(|_| ());
    test(&address);
    let wheel: Option<(Process, String)> = wheel_master(&[]);
    if let Some((_process, address)) = wheel {
        test(&address);
    }
}

/// On which nodes an object is.
fn holders(client: &Client, key: &str) -> Vec<String> {
    let found = client.query(key).unwrap();
    found.replicas.iter().map(|replica| replica.memory().unwrap().transport_endpoint.clone()).collect()
}

fn endpoint(node: &Client) -> String {
    node.endpoint().unwrap().to_owned()
}

#[test]
fn a_node_of_ours_copies_and_moves_what_either_master_asks_for() {
    under_each(|master| {
        let (a, b, c) = (node(master, 32 * MIB), node(master, 32 * MIB), node(master, 32 * MIB));
        let (client, asker) = (requester(master), Asker::new(master));
        let value = bytes(1, 3 * MIB as usize + 17);
        client.put("k", &value, &on(&a)).unwrap();
        let task = asker.copy("k", &[&b, &c]).unwrap();
        assert_eq!(asker.end_of(task).0, TaskStatus::SUCCESS);
        assert_eq!(holders(&client, "k").len(), 3);
        // Each replica alone has the bytes.
        client.put("m", &value, &on(&a)).unwrap();
        let task = asker.shift("m", &a, &b).unwrap();
        assert_eq!(asker.end_of(task).0, TaskStatus::SUCCESS);
        assert_eq!(holders(&client, "m"), [endpoint(&b)]);
        assert!(client.get("m").unwrap() == value, "moved");
        a.close();
        wait_until("the source is gone", || holders(&client, "k").len() == 2);
        assert!(client.get("k").unwrap() == value, "copied");
        b.close();
        wait_until("one is left", || holders(&client, "k") == [endpoint(&c)]);
        assert!(client.get("k").unwrap() == value, "copied to both");
        assert_eq!(client.get("m"), Err(Error::NotFound));
    });
}

#[test]
fn what_cannot_be_done_is_told() {
    under_each(|master| {
        let (a, b) = (node(master, 32 * MIB), node(master, 16 * MIB));
        let (client, asker) = (requester(master), Asker::new(master));
        assert_eq!(asker.copy("none", &[&b]), Err(ErrorCode::OBJECT_NOT_FOUND));
        client.put("k", &bytes(1, 17 * MIB as usize), &on(&a)).unwrap();
        assert_eq!(asker.copy("k", &[]), Err(ErrorCode::INVALID_PARAMS));
        assert_eq!(asker.shift("k", &a, &a), Err(ErrorCode::INVALID_PARAMS));
        assert_eq!(asker.query(Uuid { first: 1, second: 2 }), Err(ErrorCode::TASK_NOT_FOUND));
        // Larger than the target: tried ten times, then given up.
        let task = asker.copy("k", &[&b]).unwrap();
        let (status, message) = asker.end_of(task);
        assert_eq!(status, TaskStatus::FAILED);
        assert!(message.contains("NO_AVAILABLE_HANDLE"), "{message}");
        assert_eq!(holders(&client, "k"), [endpoint(&a)]);
    });
}

/// Status line number and body.
fn http(admin: SocketAddr, method: &str, path: &str, body: &str) -> (u16, serde_json::Value) {
    let mut socket = TcpStream::connect(admin).unwrap();
    write!(socket, "{method} {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

struct Drain {
    admin: SocketAddr,
    job: String,
}

impl Drain {
    fn start(master: &Master, node: &Client, concurrency: u32) -> Drain {
        let admin = master.admin_address().unwrap();
        let body = format!(r#"{{"segments":["{}"],"max_concurrency":{concurrency}}}"#, node.hostname());
        let (status, answer) = http(admin, "POST", "/api/v1/drain_jobs", &body);
        assert_eq!((status, answer["status"].as_str()), (200, Some("CREATED")), "{answer}");
        Drain { admin, job: answer["job_id"].as_str().unwrap().to_owned() }
    }

    fn query(&self) -> serde_json::Value {
        http(self.admin, "GET", &format!("/api/v1/drain_jobs/query?job_id={}", self.job), "").1
    }

    fn end(&self) -> serde_json::Value {
        let mut last = serde_json::Value::Null;
        wait_until("the drain ends", || {
            last = self.query();
            last["status"].as_i64().unwrap() >= 3
        });
        last
    }

    fn segment(&self, node: &Client) -> String {
        let path = format!("/api/v1/segments/status?segment={}", node.hostname());
        http(self.admin, "GET", &path, "").1["status_name"].as_str().unwrap_or("none").to_owned()
    }
}

#[test]
fn a_drained_node_is_empty_and_nothing_is_lost() {
    let (master, address) = ours(|_| ());
    let (a, b, c) = (node(&address, 64 * MIB), node(&address, 64 * MIB), node(&address, 64 * MIB));
    let client = requester(&address);
    let pinned = ReplicateConfig { with_hard_pin: true, ..on(&a) };
    for i in 0..60 {
        let config = if i % 10 == 0 { pinned.clone() } else { on(&a) };
        client.put(format!("k{i}"), &bytes(i, 100_000 + i as usize), &config).unwrap();
    }
    // One that is everywhere, and one with a lease.
    let everywhere = ReplicateConfig { replica_num: 3, ..plain() };
    client.put("everywhere", b"e", &everywhere).unwrap();
    client.get("k1").unwrap();
    let drain = Drain::start(&master, &a, 8);
    let end = drain.end();
    assert_eq!((end["status_name"].as_str(), drain.segment(&a).as_str()), (Some("SUCCEEDED"), "DRAINED"), "{end}");
    assert_eq!((end["succeeded_units"].as_u64(), end["failed_units"].as_u64()), (Some(61), Some(0)), "{end}");
    let moved: u64 = (0..60).map(|i| 100_000 + i).sum();
    assert_eq!((end["migrated_bytes"].as_u64(), end["left_units"].as_u64()), (Some(moved), Some(0)), "{end}");
    a.close();
    for i in 0..60 {
        assert!(client.get(format!("k{i}")).unwrap() == bytes(i, 100_000 + i as usize), "k{i}");
    }
    assert_eq!(client.get("everywhere"), Ok(b"e".to_vec()));
    drop((b, c));
}

#[test]
fn a_node_that_dies_while_it_is_drained_is_no_success() {
    let (master, address) = ours(|_| ());
    let (a, _b) = (node(&address, 64 * MIB), node(&address, 64 * MIB));
    let client = requester(&address);
    for i in 0..40 {
        client.put(format!("k{i}"), &bytes(i, MIB as usize), &on(&a)).unwrap();
    }
    let drain = Drain::start(&master, &a, 1);
    wait_until("something was moved", || drain.query()["succeeded_units"].as_u64().unwrap() > 0);
    a.close();
    let end = drain.end();
    let (moved, left) = (end["succeeded_units"].as_u64().unwrap(), end["left_units"].as_u64().unwrap());
    assert_eq!(end["status_name"], "FAILED", "{end}");
    assert!(moved < 40 && left > 0 && end["message"].as_str().unwrap().contains("went away"), "{end}");
    let there = (0..40).filter(|i| client.exists(format!("k{i}")) == Ok(true)).count() as u64;
    assert!(there >= moved, "{there} of {moved} that were moved");
}

#[test]
fn a_drain_can_be_called_off() {
    let (master, address) = ours(|_| ());
    let (a, _b) = (node(&address, 64 * MIB), node(&address, 64 * MIB));
    let client = requester(&address);
    for i in 0..50 {
        client.put(format!("k{i}"), &bytes(i, MIB as usize), &on(&a)).unwrap();
    }
    let drain = Drain::start(&master, &a, 1);
    assert_eq!(drain.segment(&a), "DRAINING");
    let admin = master.admin_address().unwrap();
    let body = format!(r#"{{"segments":["{}"]}}"#, a.hostname());
    let again = http(admin, "POST", "/api/v1/drain_jobs", &body);
    assert_eq!((again.0, again.1["error_code"].as_i64()), (409, Some(-1010)));
    let cancel = format!("/api/v1/drain_jobs/cancel?job_id={}", drain.job);
    // Refused while a move is under way, but none begins after that.
    wait_until("the drain is called off", || http(admin, "POST", &cancel, "").0 == 200);
    assert_eq!((drain.query()["status_name"].as_str(), drain.segment(&a).as_str()), (Some("CANCELED"), "OK"));
    assert_eq!(http(admin, "POST", &cancel, "").0, 409);
    assert_eq!(client.put("new", b"n", &on(&a)), Ok(PutOutcome::Stored));
    assert_eq!((0..50).filter(|i| client.exists(format!("k{i}")) == Ok(true)).count(), 50);
}

#[test]
fn a_hot_object_gets_another_replica() {
    let (master, address) = ours(|config| {
        config.jobs.heat = HeatSettings { mode: HeatMode::Enforce, ..HeatSettings::default() };
    });
    let (a, _b) = (node(&address, 32 * MIB), node(&address, 32 * MIB));
    let client = requester(&address);
    client.put("hot", &bytes(1, 100_000), &on(&a)).unwrap();
    client.put("cold", &bytes(2, 100_000), &on(&a)).unwrap();
    for _ in 0..8 {
        client.get("hot").unwrap();
    }
    client.get("cold").unwrap();
    let admin = master.admin_address().unwrap();
    let replicas_of = |key: &str| {
        let (_, answer) = http(admin, "GET", &format!("/query_key?key={key}"), "");
        answer["data"].as_array().map_or(0, Vec::len)
    };
    wait_until("the hot object has two replicas", || replicas_of("hot") == 2);
    assert_eq!(replicas_of("cold"), 1);
    a.close();
    assert!(client.get("hot").unwrap() == bytes(1, 100_000), "from the other node");
}
