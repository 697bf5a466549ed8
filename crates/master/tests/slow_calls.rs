//! What takes long on the slow lane keeps nothing else there waiting, nor the end of the master.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{Rig, TENANT, eventually};
use yb_wire::call;
use yb_wire::messages::*;

/// Takes some ten thousand steps on every key of [`filled`], and finds none.
const COSTLY: &[u8] = b"^(?:a|a)*(?=b)c";
const KEYS: usize = 3000;

fn filled() -> Rig {
    fill(Rig::start())
}

fn fill(rig: Rig) -> Rig {
    let node = rig.caller();
    node.give_memory(64 << 20);
    let keys: Vec<String> = (0..KEYS).map(|at| format!("{}-{at}", "a".repeat(12))).collect();
    for key in &keys {
        node.put(key.as_bytes(), 64).unwrap();
    }
    rig
}

#[test]
fn a_costly_pattern_keeps_no_other_call_waiting() {
    let rig = filled();
    let (costly, other, ended) = (rig.caller(), rig.caller(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let args = RemoveArgs { key: COSTLY, force: true, tenant_id: TENANT };
            // The client may give up first.
            let removed = costly.try_call::<call::RemoveByRegex, _>(&args, |reply| reply);
            assert!(removed.is_err() || removed == Ok(Ok(0)), "{removed:?}");
            ended.store(true, Ordering::SeqCst);
        });
        eventually("the costly walk has begun", || rig.metric("yuebing_queue_depth{queue=\"slow_lane\"}") > 0);
        let args = PatternArgs { regex: b"^aaaaaaaaaaaa-17$", tenant_id: TENANT };
        let found = other.call::<call::GetReplicaListByRegex, _>(&args, |reply| reply.map(|found| found.0.len()));
        assert_eq!(found, Ok(1));
        assert!(!ended.load(Ordering::SeqCst), "the costly walk was not long enough to tell");
    });
}

#[test]
fn answers_that_grow_too_large_are_given_up_and_others_are_not() {
    let rig = fill(Rig::with(|config| config.limits.max_buffered_bytes = 256 << 10));
    let caller = rig.caller();
    let find = |regex: &[u8]| {
        let args = PatternArgs { regex, tenant_id: TENANT };
        caller.try_call::<call::GetReplicaListByRegex, _>(&args, |reply| reply.map(|found| found.0.len()))
    };
    for _ in 0..3 {
        assert!(find(b".*").is_err(), "three thousand keys are more than the master may hold");
        assert_eq!(find(b"-17$").unwrap(), Ok(1), "nothing is left of the one that was given up");
    }
}

#[test]
fn a_master_stops_in_the_middle_of_a_costly_walk() {
    let rig = filled();
    let costly = rig.caller();
    let signature = costly.table.signature(yb_wire::Rpc::RemoveByRegex).unwrap();
    let mut body = Vec::new();
    let args = RemoveArgs { key: COSTLY, force: true, tenant_id: TENANT };
    yb_pack::encode(&args, &signature.args, yb_pack::Form::Literal, &mut body).unwrap();
    for _ in 0..20 {
        // Nobody waits for these.
        let _ = costly.pool.call(signature.function_id, &body, costly.pool.deadline_in(Duration::from_millis(50)));
    }
    let clock = yb_env::Clock::real();
    let before = clock.now();
    rig.master.shutdown();
    assert!(clock.now().since(before) < Duration::from_secs(20), "{:?}", clock.now().since(before));
}
