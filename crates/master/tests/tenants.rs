//! Tenants over RPC and HTTP.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Caller, Rig, eventually};
use serde_json::{Value, json};
use yb_env::Rng;
use yb_pack::List;
use yb_types::{ErrorCode, ReplicaType, ReplicateConfig};
use yb_wire::call;
use yb_wire::messages::*;

/// A file that goes with the test.
struct QuotaFile(PathBuf);

impl QuotaFile {
    fn new(text: &str) -> QuotaFile {
        let path = std::env::temp_dir().join(format!("yb-quotas-{}.yaml", Rng::from_entropy().uuid()));
        std::fs::write(&path, text).unwrap();
        QuotaFile(path)
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for QuotaFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn multi(file: &Path) -> Rig {
    Rig::with(|config| {
        config.catalog.multi_tenant = true;
        config.tenant_quotas = Some(file.to_owned());
    })
}

fn http(rig: &Rig, line: &str, body: &str) -> (u16, Value) {
    let mut socket = TcpStream::connect(rig.master.admin_address().unwrap()).unwrap();
    write!(socket, "{line} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::String(body.to_owned())))
}

/// Calls of one tenant.
struct Tenant<'a>(&'a Caller, &'a [u8]);

impl Tenant<'_> {
    fn start(&self, key: &[u8], size: u64) -> ErrorOr<()> {
        let (client_id, config, tenant_id) = (self.0.id, ReplicateConfig::default(), self.1);
        let args = PutStartArgs { client_id, key, slice_length: size, config, tenant_id };
        self.0.call::<call::PutStart, _>(&args, |reply| reply.map(drop))
    }

    fn end(&self, key: &[u8]) -> ErrorOr<()> {
        let object_meta = ObjectMetaRef { key, object_checksum: None };
        let args = PutEndArgs { client_id: self.0.id, object_meta, replica_type: ReplicaType::ALL, tenant_id: self.1 };
        self.0.call::<call::PutEnd, _>(&args, |reply| reply)
    }

    fn put(&self, key: &[u8], size: u64) -> ErrorOr<()> {
        self.start(key, size)?;
        self.end(key)
    }

    fn get(&self, key: &[u8]) -> ErrorOr<GetReplicaListResponse> {
        self.0.call::<call::GetReplicaList, _>(&KeyArgs { key, tenant_id: self.1 }, |reply| reply)
    }

    fn exists(&self, key: &[u8]) -> ErrorOr<bool> {
        self.0.call::<call::ExistKey, _>(&KeyArgs { key, tenant_id: self.1 }, |reply| reply)
    }

    fn exist_all(&self, keys: &[&[u8]]) -> Vec<ErrorOr<bool>> {
        let args = KeysArgs { keys: List::from(keys), tenant_id: self.1 };
        self.0.call::<call::BatchExistKey, _>(&args, |reply| reply.to_vec())
    }

    fn remove(&self, key: &[u8]) -> ErrorOr<()> {
        self.0.call::<call::Remove, _>(&RemoveArgs { key, force: true, tenant_id: self.1 }, |reply| reply)
    }

    fn remove_all(&self) -> i64 {
        self.0.call::<call::RemoveAll, _>(&RemoveAllArgs { force: true, tenant_id: self.1 }, |reply| reply)
    }
}

#[test]
fn one_tenant_ignores_the_string() {
    let rig = Rig::start();
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    Tenant(&caller, b"_not a name").put(b"k", 10).unwrap();
    assert_eq!(Tenant(&caller, b"another").get(b"k").unwrap().resolved_tenant_id.as_deref(), Some("default"));
    assert_eq!(http(&rig, "GET /api/v1/tenant_quotas", "").0, 409);
    assert_eq!(Tenant(&caller, b"a third").remove_all(), 1);
}

#[test]
fn each_class_of_calls_has_its_code_for_names_it_does_not_know() {
    let file = QuotaFile::new("version: 1\ntenants: [{name: alice, quota: 1MB}, {name: bob, quota: 100KB}]");
    let rig = multi(&file.0);
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    for name in [&b"default"[..], b"", b"_bad", b"nobody"] {
        assert_eq!(Tenant(&caller, name).start(b"k", 10), Err(ErrorCode::TENANT_NOT_REGISTERED));
    }
    let (bad, nobody) = (Tenant(&caller, b"_bad"), Tenant(&caller, b"nobody"));
    assert_eq!(bad.get(b"k").unwrap_err(), ErrorCode::INVALID_PARAMS);
    assert_eq!(bad.exists(b"k"), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(bad.exist_all(&[b"k", b"l"]), [Err(ErrorCode::INVALID_PARAMS); 2]);
    assert_eq!((bad.end(b"k"), bad.remove(b"k")), (Err(ErrorCode::INVALID_PARAMS), Err(ErrorCode::INVALID_PARAMS)));
    assert_eq!(bad.remove_all(), 0);
    assert_eq!(nobody.get(b"k").unwrap_err(), ErrorCode::OBJECT_NOT_FOUND);
    assert_eq!((nobody.exists(b"k"), nobody.remove_all()), (Ok(false), 0));
    let (alice, bob) = (Tenant(&caller, b"alice"), Tenant(&caller, b"bob"));
    alice.put(b"k", 10).unwrap();
    bob.put(b"k", 20).unwrap();
    let found = alice.get(b"k").unwrap();
    assert_eq!((found.replicas[0].memory().unwrap().size, found.resolved_tenant_id.as_deref()), (10, Some("alice")));
    assert_eq!(bob.put(b"huge", 200_000), Err(ErrorCode::TENANT_QUOTA_EXCEEDED));
    assert_eq!((alice.remove_all(), bob.exists(b"k")), (1, Ok(true)));
    assert_eq!(Tenant(&caller, b"").remove_all(), 1, "everybody's");
    let line = "mooncake_tenant_quota_reject_total{tenant_id=\"bob\",reason=\"quota_exceeded\"}";
    assert_eq!(rig.metric(line), 1);
}

/// The answers that the peer's master gave, of both generations.
#[test]
fn policies_over_http_have_the_peers_shapes() {
    let file = QuotaFile::new("version: 1\ntenants:\n  - name: alice\n    quota: 8MB\n");
    let rig = multi(&file.0);
    let row = |name: &str, requested: u64, effective: u64| {
        json!({
            "tenant_id": name, "requested_quota_bytes": requested, "effective_quota_bytes": effective,
            "charged_bytes": 0, "admission_closed": false, "over_quota": false, "has_explicit_policy": true,
        })
    };
    let failed = |code: i32, message: &str| json!({"success": false, "error_code": code, "error_message": message});
    let ok = |data: Value| (200, json!({"success": true, "data": data}));
    let path = "/api/v1/tenant_quotas";
    let ask = |method: &str, query: &str, body: &str| http(&rig, &format!("{method} {path}{query}"), body);
    assert_eq!(ask("GET", "", ""), ok(json!([row("alice", 8_388_608, 0)])));
    assert_eq!(ask("GET", "?tenant_id=", ""), ok(json!([row("alice", 8_388_608, 0)])));
    assert_eq!(ask("GET", "?tenant_id=alice", ""), ok(row("alice", 8_388_608, 0)));
    assert_eq!(ask("GET", "?tenant_id=bob", ""), (404, failed(-704, "OBJECT_NOT_FOUND")));
    assert_eq!(ask("PUT", "?tenant_id=bob", "{\"requested_quota_bytes\":100}"), ok(row("bob", 100, 0)));
    let no_name = (400, failed(-600, "Missing or invalid tenant_id"));
    assert_eq!(ask("PUT", "", "{\"requested_quota_bytes\":100}"), no_name);
    assert_eq!(ask("PUT", "?tenant_id=_bob", "{\"requested_quota_bytes\":5}"), no_name);
    assert_eq!(ask("DELETE", "", ""), no_name);
    let range = (400, failed(-600, "Tenant quota must be in [1, 2^63 - 1] bytes"));
    assert_eq!(ask("PUT", "?tenant_id=bob", "{\"requested_quota_bytes\":0}"), range);
    assert_eq!(ask("PUT", "?tenant_id=bob", "{}"), range);
    for body in ["{\"requested_quota_bytes\":-5}", "{\"quota\":1}", "{bad", "{\"requested_quota_bytes\":\"7\"}", ""] {
        let (status, answer) = ask("PUT", "?tenant_id=bob", body);
        assert_eq!((status, &answer["error_code"]), (400, &json!(-600)), "{body}");
        assert!(answer["error_message"].as_str().unwrap().starts_with("Invalid JSON body: "), "{answer}");
    }
    assert_eq!(ask("DELETE", "?tenant_id=bob", ""), ok(Value::Null));
    assert_eq!(ask("DELETE", "?tenant_id=bob", ""), (404, failed(-704, "OBJECT_NOT_FOUND")));
    assert_eq!(http(&rig, &format!("POST {path}"), ""), (404, Value::String("404 Not Found".to_owned())));
    assert_eq!(file.text(), "version: 1\n\ntenants:\n  - name: \"alice\"\n    quota: 8388608\n");
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    Tenant(&caller, b"alice").put(b"k", 10).unwrap();
    assert_eq!(ask("DELETE", "?tenant_id=alice", ""), (409, failed(-1702, "TENANT_NOT_EMPTY")));
    assert_eq!(rig.page("/api/v1/keys?tenant_id=alice"), "{\"keys\":[\"k\"],\"next\":null}");
}

#[test]
fn what_cannot_be_kept_is_not_applied() {
    let directory = std::env::temp_dir().join(format!("yb-quotas-{}", Rng::from_entropy().uuid()));
    std::fs::create_dir(&directory).unwrap();
    let path = directory.join("quotas.yaml");
    std::fs::write(&path, "version: 1\ntenants: [{name: alice, quota: 1}]").unwrap();
    let rig = multi(&path);
    std::fs::remove_dir_all(&directory).unwrap();
    let answer = http(&rig, "PUT /api/v1/tenant_quotas?tenant_id=bob", "{\"requested_quota_bytes\":5}");
    assert_eq!((answer.0, &answer.1["error_message"]), (500, &json!("PERSISTENT_FAIL")));
    assert_eq!(http(&rig, "DELETE /api/v1/tenant_quotas?tenant_id=alice", "").0, 500);
    let (_, all) = http(&rig, "GET /api/v1/tenant_quotas", "");
    assert_eq!((all["data"].as_array().unwrap().len(), &all["data"][0]["admission_closed"]), (1, &json!(false)));
}

#[test]
fn an_edited_file_is_the_new_policy_and_a_broken_one_is_not() {
    let file = QuotaFile::new("version: 1\ntenants: [{name: alice, quota: 1MB}]");
    let rig = multi(&file.0);
    let caller = rig.caller();
    caller.give_memory(1 << 20);
    Tenant(&caller, b"alice").put(b"k", 10).unwrap();
    std::fs::write(&file.0, "version: 1\ntenants: [{name: bob").unwrap();
    let quota = |name: &str| http(&rig, &format!("GET /api/v1/tenant_quotas?tenant_id={name}"), "");
    // The next whole file proves that the broken one was looked at or skipped, and changed nothing.
    assert_eq!(quota("alice").1["data"]["has_explicit_policy"], json!(true));
    std::fs::write(&file.0, "version: 1\ntenants: [{name: bob, quota: 1KB}]").unwrap();
    eventually("bob is registered", || quota("bob").0 == 200);
    let alice = &quota("alice").1["data"];
    assert_eq!((&alice["admission_closed"], &alice["has_explicit_policy"]), (&json!(true), &json!(false)));
    assert_eq!(Tenant(&caller, b"alice").start(b"l", 10), Err(ErrorCode::TENANT_NOT_REGISTERED));
    assert_eq!(Tenant(&caller, b"alice").exists(b"k"), Ok(true));
    assert_eq!(Tenant(&caller, b"alice").remove_all(), 1);
    assert_eq!(quota("alice").0, 404);
}

#[test]
fn a_master_does_not_start_with_quotas_that_it_cannot_read() {
    let mut config = yb_master::MasterConfig::embedded();
    config.catalog.multi_tenant = true;
    config.tenant_quotas = Some("/nowhere/quotas.yaml".into());
    let error = yb_master::Master::start(config).err().unwrap().to_string();
    assert!(error.contains("/nowhere/quotas.yaml") && error.contains("tenant_quota_connector_uri"), "{error}");
}

/// While one tenant's 50,000 objects are removed, another tenant's calls are answered, and short jobs of the slow lane
/// do not wait for the end of it.
#[test]
fn a_clear_of_one_tenant_does_not_hold_up_another() {
    let file = QuotaFile::new("version: 1\ntenants: [{name: alice, quota: 1GB}, {name: bob, quota: 1GB}]");
    let rig = multi(&file.0);
    let (caller, other) = (rig.caller(), rig.caller());
    caller.give_memory(1 << 30);
    let keys: Vec<Vec<u8>> = (0..50_000).map(|at| format!("key-{at}").into_bytes()).collect();
    // A busy machine may wake this thread late, which is not the master's doing: one good round of five will do.
    let rounds = (0..5).map(|_| clear_beside_a_clear(&caller, &other, &keys));
    let good = |(short, long): &(Duration, Duration)| *short < *long / 2;
    let seen: Vec<_> = rounds.take_while(|round| !good(round)).collect();
    assert!(seen.len() < 5, "a short clear and the long one beside it took {seen:?}");
}

/// Fills and clears one tenant, and meanwhile another that has one key: how long the second and the first took.
fn clear_beside_a_clear(caller: &Caller, other: &Caller, keys: &[Vec<u8>]) -> (Duration, Duration) {
    for chunk in keys.chunks(2500) {
        fill(caller, b"alice", chunk);
    }
    Tenant(other, b"bob").put(b"bobs", 64).unwrap();
    let clock = yb_env::Clock::real();
    let began = clock.now();
    std::thread::scope(|scope| {
        let clearing = scope.spawn(|| {
            let removed = Tenant(caller, b"alice").remove_all();
            (removed, clock.now().since(began))
        });
        // RemoveAll of another tenant goes the same way.
        let bobs = Tenant(other, b"bob").remove_all();
        let short = clock.now().since(began);
        assert_eq!(bobs, 1);
        let (removed, long) = clearing.join().unwrap();
        assert_eq!(removed, keys.len() as i64);
        (short, long)
    })
}

fn fill(caller: &Caller, tenant_id: &[u8], keys: &[Vec<u8>]) {
    let borrowed: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let lengths = vec![64; keys.len()];
    let args = BatchPutStartArgs {
        client_id: caller.id,
        keys: List::from(&borrowed),
        slice_lengths: List::from(&lengths),
        config: ReplicateConfig::default(),
        tenant_id,
    };
    assert!(caller.call::<call::BatchPutStart, _>(&args, |reply| reply.iter().all(Result::is_ok)));
    let metas: Vec<ObjectMetaRef<'_>> =
        borrowed.iter().map(|key| ObjectMetaRef { key, object_checksum: None }).collect();
    let (client_id, replica_type) = (caller.id, ReplicaType::ALL);
    let args = BatchPutEndArgs { client_id, object_metas: List::from(&metas), replica_type, tenant_id };
    assert!(caller.call::<call::BatchPutEnd, _>(&args, |reply| reply.iter().all(Result::is_ok)));
}
