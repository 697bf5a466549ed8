//! Replays against a pool in memory that forgets, refuses, corrupts and dies on demand.

#![allow(clippy::unwrap_used, reason = "a poisoned lock is a failed test")]
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use yb_replay::generate::generate;
use yb_replay::stat::TraceCounter;
use yb_replay::{
    Pool, PoolError, ReadOutcome, ReplayError, ReplayOptions, Report, Request, Speed, Stop, WriteOutcome, replay,
};

const BLOCK: usize = 200;

#[derive(Default)]
struct Shared {
    objects: HashMap<String, Vec<u8>>,
    capacity: usize,
    /// Every so many reads, one bit is wrong.
    corrupt_every: usize,
    /// Every so many reads, the object is gone.
    lose_every: usize,
    /// Every so many reads, nothing comes back though the object is there.
    fail_every: usize,
    reads: usize,
    dead: bool,
}

struct MemoryPool {
    shared: Arc<Mutex<Shared>>,
    slots: Vec<Vec<u8>>,
}

impl Pool for MemoryPool {
    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn lookup(&mut self, keys: &[String]) -> Result<Vec<bool>, PoolError> {
        let shared = self.shared.lock().unwrap();
        if shared.dead {
            return Err(PoolError("master 127.0.0.1:1: connection refused".to_owned()));
        }
        Ok(keys.iter().map(|key| shared.objects.contains_key(key)).collect())
    }

    fn read(&mut self, keys: &[String]) -> Vec<ReadOutcome> {
        let mut shared = self.shared.lock().unwrap();
        let mut outcomes = Vec::new();
        for (slot, key) in keys.iter().enumerate() {
            shared.reads += 1;
            if shared.lose_every > 0 && shared.reads.is_multiple_of(shared.lose_every) {
                shared.objects.remove(key);
            }
            if shared.fail_every > 0 && shared.reads.is_multiple_of(shared.fail_every) {
                outcomes.push(ReadOutcome::Failed(PoolError("node 127.0.0.1:2 does not answer".to_owned())));
                continue;
            }
            match shared.objects.get(key) {
                None => outcomes.push(ReadOutcome::Miss),
                Some(bytes) => {
                    self.slots[slot].copy_from_slice(bytes);
                    if shared.corrupt_every > 0 && shared.reads.is_multiple_of(shared.corrupt_every) {
                        self.slots[slot][BLOCK - 1] ^= 1;
                    }
                    outcomes.push(ReadOutcome::Read);
                }
            }
        }
        outcomes
    }

    fn write(&mut self, keys: &[String]) -> Vec<WriteOutcome> {
        let mut shared = self.shared.lock().unwrap();
        let mut outcomes = Vec::new();
        for (slot, key) in keys.iter().enumerate() {
            outcomes.push(if shared.objects.contains_key(key) {
                WriteOutcome::Exists
            } else if shared.objects.len() >= shared.capacity {
                WriteOutcome::NoSpace
            } else {
                shared.objects.insert(key.clone(), self.slots[slot].clone());
                WriteOutcome::Stored
            });
        }
        outcomes
    }

    fn slot(&self, index: usize) -> &[u8] {
        &self.slots[index]
    }

    fn slot_mut(&mut self, index: usize) -> &mut [u8] {
        &mut self.slots[index]
    }
}

fn shared(capacity: usize) -> Arc<Mutex<Shared>> {
    Arc::new(Mutex::new(Shared { capacity, ..Shared::default() }))
}

fn run(trace: &[Request], pool: &Arc<Mutex<Shared>>, clients: usize, slots: usize) -> Result<Report, ReplayError> {
    let options = ReplayOptions {
        block_bytes: BLOCK as u64,
        speed: Speed::Max,
        max_requests: None,
        key_prefix: "test".to_owned(),
    };
    let clients = (0..clients)
        .map(|_| MemoryPool { shared: Arc::clone(pool), slots: vec![vec![0; BLOCK]; slots] })
        .collect::<Vec<_>>();
    replay(trace.iter().cloned().map(Ok), clients, &options, &Stop::default(), &mut |_| {})
}

fn ideal(trace: &[Request]) -> f64 {
    let mut counter = TraceCounter::default();
    trace.iter().for_each(|r| counter.add(r));
    counter.stat().ideal_block_hit_ratio
}

#[test]
fn one_client_and_a_pool_that_never_forgets_reach_the_ideal() {
    let trace = generate(300, 3);
    let report = run(&trace, &shared(usize::MAX), 1, 7).unwrap();
    assert!(report.is_clean());
    assert_eq!(report.block_hit_ratio, ideal(&trace));
    assert_eq!(report.block_hit_ratio, report.prefix_hit_ratio);
    assert_eq!(report.hit_blocks + report.stored_blocks, report.blocks);
    assert_eq!(report.lookup.calls, 300);
    assert!(report.get.p50_us <= report.get.p99_us && report.get.p99_us <= report.get.max_us);
}

#[test]
fn a_wrong_byte_is_seen() {
    let pool = shared(usize::MAX);
    pool.lock().unwrap().corrupt_every = 50;
    let report = run(&generate(200, 4), &pool, 2, 16).unwrap();
    assert!(report.wrong_bytes > 0 && report.wrong_bytes == report.wrong_blocks);
    assert_eq!(report.wrong_bytes, report.hit_blocks / 50);
    assert!(!report.is_clean());
}

#[test]
fn an_object_lost_between_lookup_and_read_is_stored_again() {
    let pool = shared(usize::MAX);
    pool.lock().unwrap().lose_every = 20;
    let report = run(&generate(200, 5), &pool, 1, 16).unwrap();
    assert!(report.lost_blocks > 0 && report.is_clean());
    assert_eq!(report.hit_blocks + report.stored_blocks, report.blocks);
    assert!(report.prefix_hit_ratio < report.block_hit_ratio);
}

#[test]
fn a_read_that_fails_is_no_hit_and_ends_the_prefix() {
    let pool = shared(usize::MAX);
    pool.lock().unwrap().fail_every = 20;
    let report = run(&generate(200, 5), &pool, 1, 16).unwrap();
    assert!(report.failures > 0 && !report.is_clean());
    assert_eq!(report.hit_blocks + report.stored_blocks + report.failures, report.blocks);
    assert!(report.prefix_hit_ratio < report.block_hit_ratio);
}

#[test]
fn a_full_pool_is_counted_and_not_fatal() {
    let report = run(&generate(200, 6), &shared(100), 3, 16).unwrap();
    assert!(report.refused_blocks > 0 && report.is_clean());
    assert_eq!(report.stored_blocks, 100);
}

#[test]
fn a_dead_pool_ends_the_replay_and_says_why() {
    let pool = shared(10);
    pool.lock().unwrap().dead = true;
    let error = run(&generate(200, 7), &pool, 2, 16).unwrap_err().to_string();
    assert!(error.contains("connection refused") && error.contains("after 16 requests"), "{error}");
}

#[test]
fn stopping_ends_a_slow_replay_at_once() {
    let stop = Stop::default();
    let options = ReplayOptions {
        block_bytes: BLOCK as u64,
        speed: Speed::Times(0.001),
        max_requests: None,
        key_prefix: "test".to_owned(),
    };
    let pool = MemoryPool { shared: shared(1000), slots: vec![vec![0; BLOCK]; 4] };
    let mut trace = generate(20, 1);
    trace[0].timestamp = 0;
    let asker = stop.clone();
    let report = replay(trace.into_iter().map(Ok), vec![pool], &options, &stop, &mut |_| asker.stop()).unwrap();
    assert!(report.interrupted);
    assert_eq!(report.requests, 1);
}

#[test]
fn a_block_named_twice_in_a_request_counts_once() {
    let request = Request { timestamp: 0, input_length: 1, output_length: 1, hash_ids: vec![1, 2, 1] };
    let report = run(&[request], &shared(10), 1, 8).unwrap();
    assert_eq!((report.blocks, report.stored_blocks, report.already_stored_blocks), (2, 2, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Whatever the pool's size and the clients: every block ends in exactly one place, and no byte is wrong.
    #[test]
    fn every_block_is_accounted_for(
        requests in 0usize..60, seed in any::<u64>(), capacity in 0usize..2000, clients in 1usize..5, slots in 1usize..40
    ) {
        let trace = generate(requests, seed);
        let report = run(&trace, &shared(capacity), clients, slots).unwrap();
        prop_assert_eq!(report.requests, requests as u64);
        let all = report.hit_blocks + report.stored_blocks + report.already_stored_blocks + report.refused_blocks;
        prop_assert_eq!(all, report.blocks);
        prop_assert!(report.is_clean());
        prop_assert!(report.prefix_hit_ratio <= report.block_hit_ratio);
    }
}
