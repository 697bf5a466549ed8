//! Tasks and drains over the wire and over HTTP, with clients that do exactly what a test wants.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::{Caller, Rig, TENANT, eventually};
use yb_jobs::{TaskId, Work};
use yb_pack::List;
use yb_types::{ErrorCode, Segment, Uuid};
use yb_wire::call;
use yb_wire::messages::*;

/// A client with a segment of its own name.
fn node(rig: &Rig, name: &str) -> (Caller, Segment) {
    let caller = rig.caller();
    let segment = caller.segment(name, 1 << 20);
    caller.mount(&segment).unwrap().unwrap();
    (caller, segment)
}

fn copy_task(caller: &Caller, key: &[u8], targets: &[&[u8]]) -> ErrorOr<Uuid> {
    let args = CreateCopyTaskArgs { key, tenant_id: TENANT, targets: List::from(targets) };
    caller.call::<call::CreateCopyTask, _>(&args, |reply| reply)
}

fn move_task(caller: &Caller, key: &[u8], source: &[u8], target: &[u8]) -> ErrorOr<Uuid> {
    let args = CreateMoveTaskArgs { key, tenant_id: TENANT, source, target };
    caller.call::<call::CreateMoveTask, _>(&args, |reply| reply)
}

fn fetch(caller: &Caller) -> Vec<(TaskId, Work)> {
    let args = FetchTasksArgs { client_id: caller.id, batch_size: 16 };
    caller.call::<call::FetchTasks, _>(&args, |reply| {
        let read = |task: &TaskAssignment<'_>| {
            assert_eq!(task.max_retry_attempts, 10);
            (TaskId(task.id), Work::from_json(task.r#type, task.payload).unwrap())
        };
        reply.unwrap().iter().map(read).collect()
    })
}

fn status(caller: &Caller, id: Uuid) -> ErrorOr<(TaskStatus, String, yb_types::ClientId)> {
    caller.call::<call::QueryTask, _>(&TaskArgs { task_id: id }, |reply| {
        reply.map(|task| (task.status, String::from_utf8(task.message.to_vec()).unwrap(), task.assigned_client))
    })
}

fn mark(caller: &Caller, id: TaskId, status: TaskStatus) -> ErrorOr<()> {
    let request = TaskCompleteRequest { id: id.0, status, message: b"as told" };
    let args = MarkTaskToCompleteArgs { client_id: caller.id, request };
    caller.call::<call::MarkTaskToComplete, _>(&args, |reply| reply)
}

/// Does a move as its client would, without bytes.
fn do_move(caller: &Caller, work: &Work) -> ErrorOr<()> {
    let Work::Move(work) = work else { panic!("a move") };
    let (key, tenant_id) = (&*work.key, work.tenant.as_bytes());
    let args = MoveStartArgs {
        client_id: caller.id,
        key,
        tenant_id,
        src_segment: work.source.as_bytes(),
        tgt_segment: work.target.as_bytes(),
    };
    caller.call::<call::MoveStart, _>(&args, |reply| reply.map(|_| ()))?;
    caller.call::<call::MoveEnd, _>(&ClientKeyArgs { client_id: caller.id, key, tenant_id }, |reply| reply)
}

fn put_in(caller: &Caller, key: &[u8], segment: &str) {
    let config = yb_types::ReplicateConfig {
        preferred_segments: vec![segment.to_owned()],
        ..yb_types::ReplicateConfig::default()
    };
    let args = PutStartArgs { client_id: caller.id, key, slice_length: 1000, config, tenant_id: TENANT };
    caller.call::<call::PutStart, _>(&args, |reply| reply).unwrap();
    caller.put_end(key).unwrap();
}

#[test]
fn tasks_go_to_the_owner_of_the_source_and_end_there() {
    let rig = Rig::start();
    let ((a, _), (b, _)) = (node(&rig, "a"), node(&rig, "b"));
    put_in(&a, b"k\xff\"", "a");
    assert_eq!(copy_task(&b, b"none", &[b"b"]), Err(ErrorCode::OBJECT_NOT_FOUND));
    assert_eq!(copy_task(&b, b"k\xff\"", &[]), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(copy_task(&b, b"k\xff\"", &[b"nowhere"]), Err(ErrorCode::INVALID_PARAMS));
    let id = copy_task(&b, b"k\xff\"", &[b"b"]).unwrap();
    assert_eq!(status(&b, id), Ok((TaskStatus::PENDING, String::new(), a.id)));
    assert_eq!(fetch(&b), []);
    let fetched = fetch(&a);
    assert_eq!((fetched.len(), fetched[0].0, fetched[0].1.object()), (1, TaskId(id), ("default", &b"k\xff\""[..])));
    assert_eq!(fetch(&a), []);
    assert_eq!(mark(&b, TaskId(id), TaskStatus::SUCCESS), Err(ErrorCode::ILLEGAL_CLIENT));
    assert_eq!(mark(&a, TaskId(id), TaskStatus::PROCESSING), Err(ErrorCode::INVALID_PARAMS));
    assert_eq!(mark(&a, TaskId::default(), TaskStatus::SUCCESS), Err(ErrorCode::TASK_NOT_FOUND));
    assert_eq!(mark(&a, TaskId(id), TaskStatus::FAILED), Ok(()));
    assert_eq!(mark(&a, TaskId(id), TaskStatus::SUCCESS), Ok(()));
    assert_eq!(status(&b, id), Ok((TaskStatus::FAILED, "as told".into(), a.id)));
    assert_eq!(rig.metric("master_create_copy_task_requests_total"), 4);
    assert_eq!(rig.metric("master_create_copy_task_failures_total"), 3);
    assert_eq!(rig.metric("yuebing_queue_depth{queue=\"tasks_pending\"}"), 0);
}

#[test]
fn the_limits_of_the_queue_are_settings() {
    let rig = Rig::with(|config| {
        config.jobs.tasks.pending = 1;
        config.jobs.tasks.pending_timeout = Duration::from_millis(100);
    });
    let ((a, _), (_b, _)) = (node(&rig, "a"), node(&rig, "b"));
    put_in(&a, b"k", "a");
    let id = copy_task(&a, b"k", &[b"b"]).unwrap();
    assert_eq!(copy_task(&a, b"k", &[b"b"]), Err(ErrorCode::TASK_PENDING_LIMIT_EXCEEDED));
    eventually("the task has failed", || status(&a, id).unwrap().0 == TaskStatus::FAILED);
    assert!(status(&a, id).unwrap().1.contains("no client fetched it"));
}

#[test]
fn a_task_whose_owner_leaves_goes_to_another_replica_or_fails_at_once() {
    let rig = Rig::start();
    let ((a, first), (b, _), (_c, _)) = (node(&rig, "a"), node(&rig, "b"), node(&rig, "c"));
    put_in(&a, b"two", "a");
    put_in(&a, b"one", "a");
    let move_of_two = move_task(&a, b"two", b"a", b"b").unwrap();
    let fetched = fetch(&a);
    // Both segments hold "two" from here on.
    let to_b: [&[u8]; 1] = [b"b"];
    let args = CopyStartArgs {
        client_id: a.id,
        key: b"two",
        tenant_id: TENANT,
        src_segment: b"a",
        tgt_segments: List::from(&to_b[..]),
    };
    a.call::<call::CopyStart, _>(&args, |reply| reply.map(|_| ())).unwrap();
    let about = ClientKeyArgs { client_id: a.id, key: b"two", tenant_id: TENANT };
    a.call::<call::CopyEnd, _>(&about, |reply| reply).unwrap();
    assert_eq!(fetched[0].0, TaskId(move_of_two));
    let copies: Vec<Uuid> = (0..20).map(|_| copy_task(&b, b"two", &[b"c"]).unwrap()).collect();
    let of_one = copy_task(&b, b"one", &[b"c"]).unwrap();
    let args = UnmountSegmentArgs { segment_id: first.id, client_id: a.id };
    a.call::<call::UnmountSegment, _>(&args, |reply| reply).unwrap();
    eventually("a copy of one replica fails", || status(&b, of_one).unwrap().0 == TaskStatus::FAILED);
    assert_eq!(status(&b, move_of_two).unwrap().1, "the segment of the source is gone");
    // Each was given to one of the two, at random; now all are b's.
    assert!(
        copies.iter().all(|id| status(&b, *id).unwrap().2 == b.id && status(&b, *id).unwrap().0 == TaskStatus::PENDING)
    );
}

#[test]
fn a_drain_moves_what_is_there_and_says_so() {
    let rig = Rig::start();
    let ((a, _), (_b, _)) = (node(&rig, "a"), node(&rig, "b"));
    for i in 0..10 {
        put_in(&a, format!("k{i}").as_bytes(), "a");
    }
    let post = |path: &str, body: &str| -> serde_json::Value {
        use std::io::{Read, Write};
        let mut socket = std::net::TcpStream::connect(rig.master.admin_address().unwrap()).unwrap();
        write!(socket, "POST {path} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let bad = post("/api/v1/drain_jobs", "{bad");
    assert!(
        bad["error_code"] == -600 && bad["error_message"].as_str().unwrap().starts_with("Invalid JSON body: "),
        "{bad}"
    );
    assert_eq!(post("/api/v1/drain_jobs", r#"{"segments":["x"]}"#)["error_message"], "SEGMENT_NOT_FOUND");
    assert_eq!(post("/api/v1/drain_jobs", r#"{"segments":[]}"#)["error_message"], "INVALID_PARAMS");
    assert_eq!(post("/api/v1/drain_jobs/cancel?job_id=1-2", "")["error_message"], "JOB_NOT_FOUND");
    let misspelt = post("/api/v1/drain_jobs", r#"{"segments":["a"],"target":["b"]}"#);
    let said = misspelt["error_message"].as_str().unwrap();
    assert!(
        misspelt["error_code"] == -600 && said.contains("target") && said.contains("target_segments"),
        "{misspelt}"
    );
    let undone = post("/api/v1/drain_jobs/undo", r#"{"segment":"a"}"#);
    assert_eq!(undone["error_message"], "UNAVAILABLE_IN_CURRENT_STATUS", "it is not drained");
    let created = post("/api/v1/drain_jobs", r#"{"segments":["a"],"max_concurrency":3}"#);
    assert!(
        created["success"] == true && created["status"] == "CREATED" && created["error_message"] == "",
        "{created}"
    );
    let path = format!("/api/v1/drain_jobs/query?job_id={}", created["job_id"].as_str().unwrap());
    let query = || -> serde_json::Value { serde_json::from_str(&rig.page(&path)).unwrap() };
    let mut fetched = Vec::new();
    let mut failed = 0;
    eventually("the drain ends", || {
        let job = query();
        assert!(job["active_units"].as_u64().unwrap() <= 3, "{job}");
        fetched.extend(fetch(&a));
        for (id, work) in fetched.drain(..) {
            // Some fail at first.
            let fails = failed < 2 && work.object().1 == b"k3";
            failed += u32::from(fails);
            let done = if fails { Err(ErrorCode::INTERNAL_ERROR) } else { do_move(&a, &work) };
            mark(&a, id, if done.is_ok() { TaskStatus::SUCCESS } else { TaskStatus::FAILED }).unwrap();
        }
        job["status"].as_i64().unwrap() >= 3
    });
    let job = query();
    let numbers = ["type", "succeeded_units", "failed_units", "blocked_units", "active_units", "migrated_bytes"];
    assert_eq!(numbers.map(|name| job[name].as_u64().unwrap()), [0, 10, 0, 0, 0, 10_000], "{job}");
    assert_eq!((job["status_name"].as_str(), failed), (Some("SUCCEEDED"), 2));
    assert_eq!(job["message"], "Drain job finished successfully");
    for i in 0..10 {
        let found = a.get(format!("k{i}").as_bytes()).unwrap();
        assert_eq!(found.replicas[0].memory().unwrap().transport_endpoint, "b");
    }
    let list: serde_json::Value = serde_json::from_str(&rig.page("/api/v1/drain_jobs/list")).unwrap();
    assert_eq!(list["jobs"].as_array().map(Vec::len), Some(1));
}
