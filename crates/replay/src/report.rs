//! What a replay saw.

use std::time::Duration;

use serde::Serialize;

use crate::latency::{Latencies, LatencySummary};
use crate::pool::PoolError;
use crate::stat::{TraceStat, ratio};

/// How many different error texts are kept.
const MAX_ERROR_TEXTS: usize = 8;

/// The result of a replay. Times are in microseconds, sizes in bytes, rates in GB/s (10^9 bytes a second).
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Requests replayed.
    pub requests: u64,
    /// Blocks of those requests.
    pub blocks: u64,
    /// Size of a block.
    pub block_bytes: u64,
    /// Clients at once.
    pub clients: u64,
    /// The whole run.
    pub seconds: f64,
    /// True if it was stopped before the end of the trace.
    pub interrupted: bool,
    /// Blocks read from the pool.
    pub hit_blocks: u64,
    /// `hit_blocks / blocks`.
    pub block_hit_ratio: f64,
    /// Blocks read in the leading run of hits of each request, over all blocks: what an engine can reuse.
    pub prefix_hit_ratio: f64,
    /// The block hit ratio of a pool that never forgets, for this trace.
    pub ideal_block_hit_ratio: f64,
    /// Blocks that the lookup promised and that were gone when read.
    pub lost_blocks: u64,
    /// Blocks stored by this run.
    pub stored_blocks: u64,
    /// Puts of a block that another client stored at the same time.
    pub already_stored_blocks: u64,
    /// Puts refused for want of space.
    pub refused_blocks: u64,
    /// Lookups, reads and puts that failed in any other way.
    pub failures: u64,
    /// Some texts of those failures, each once.
    pub errors: Vec<String>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes stored.
    pub stored_bytes: u64,
    /// Read bytes over the whole run's time.
    pub read_gb_per_second: f64,
    /// Stored bytes over the whole run's time.
    pub stored_gb_per_second: f64,
    /// Read bytes over the time that clients spent in get calls, for one client.
    pub get_call_gb_per_second: f64,
    /// Stored bytes over the time that clients spent in put calls, for one client.
    pub put_call_gb_per_second: f64,
    /// Lookup calls, one a request.
    pub lookup: LatencySummary,
    /// Get calls, one a batch.
    pub get: LatencySummary,
    /// Put calls, one a batch.
    pub put: LatencySummary,
    /// Blocks that had a wrong byte.
    pub wrong_blocks: u64,
    /// Bytes that were not what their block id says. Anything but 0 is a fault of the pool.
    pub wrong_bytes: u64,
}

impl Report {
    /// True if all bytes were right and every call was answered.
    pub fn is_clean(&self) -> bool {
        self.wrong_bytes == 0 && self.wrong_blocks == 0 && self.failures == 0
    }
}

/// The counts of one client, or of all.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub requests: u64,
    pub blocks: u64,
    pub hit_blocks: u64,
    pub prefix_blocks: u64,
    pub lost_blocks: u64,
    pub stored_blocks: u64,
    pub already_stored_blocks: u64,
    pub refused_blocks: u64,
    pub failures: u64,
    pub errors: Vec<String>,
    pub wrong_blocks: u64,
    pub wrong_bytes: u64,
    pub lookup: Latencies,
    pub get: Latencies,
    pub put: Latencies,
}

impl Tally {
    pub(crate) fn new() -> Self {
        Tally {
            requests: 0,
            blocks: 0,
            hit_blocks: 0,
            prefix_blocks: 0,
            lost_blocks: 0,
            stored_blocks: 0,
            already_stored_blocks: 0,
            refused_blocks: 0,
            failures: 0,
            errors: Vec::new(),
            wrong_blocks: 0,
            wrong_bytes: 0,
            lookup: Latencies::new(),
            get: Latencies::new(),
            put: Latencies::new(),
        }
    }

    pub(crate) fn fail(&mut self, error: PoolError) {
        self.failures += 1;
        self.keep_text(error.0);
    }

    fn keep_text(&mut self, text: String) {
        if self.errors.len() < MAX_ERROR_TEXTS && !self.errors.contains(&text) {
            self.errors.push(text);
        }
    }

    pub(crate) fn merge(&mut self, other: Tally) {
        self.requests += other.requests;
        self.blocks += other.blocks;
        self.hit_blocks += other.hit_blocks;
        self.prefix_blocks += other.prefix_blocks;
        self.lost_blocks += other.lost_blocks;
        self.stored_blocks += other.stored_blocks;
        self.already_stored_blocks += other.already_stored_blocks;
        self.refused_blocks += other.refused_blocks;
        self.failures += other.failures;
        self.wrong_blocks += other.wrong_blocks;
        self.wrong_bytes += other.wrong_bytes;
        self.lookup.merge(&other.lookup);
        self.get.merge(&other.get);
        self.put.merge(&other.put);
        other.errors.into_iter().for_each(|text| self.keep_text(text));
    }

    pub(crate) fn report(self, run: &Run, trace: &TraceStat) -> Report {
        let (read_bytes, stored_bytes) = (self.hit_blocks * run.block_bytes, self.stored_blocks * run.block_bytes);
        Report {
            requests: self.requests,
            blocks: self.blocks,
            block_bytes: run.block_bytes,
            clients: run.clients,
            seconds: run.took.as_secs_f64(),
            interrupted: run.interrupted,
            hit_blocks: self.hit_blocks,
            block_hit_ratio: ratio(self.hit_blocks, self.blocks),
            prefix_hit_ratio: ratio(self.prefix_blocks, self.blocks),
            ideal_block_hit_ratio: trace.ideal_block_hit_ratio,
            lost_blocks: self.lost_blocks,
            stored_blocks: self.stored_blocks,
            already_stored_blocks: self.already_stored_blocks,
            refused_blocks: self.refused_blocks,
            failures: self.failures,
            errors: self.errors,
            read_bytes,
            stored_bytes,
            read_gb_per_second: gb_per_second(read_bytes, run.took),
            stored_gb_per_second: gb_per_second(stored_bytes, run.took),
            get_call_gb_per_second: gb_per_second(read_bytes, self.get.total()),
            put_call_gb_per_second: gb_per_second(stored_bytes, self.put.total()),
            lookup: self.lookup.summary(),
            get: self.get.summary(),
            put: self.put.summary(),
            wrong_blocks: self.wrong_blocks,
            wrong_bytes: self.wrong_bytes,
        }
    }
}

/// What the run itself knows.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub block_bytes: u64,
    pub clients: u64,
    pub took: Duration,
    pub interrupted: bool,
}

fn gb_per_second(bytes: u64, took: Duration) -> f64 {
    if took.is_zero() { 0.0 } else { bytes as f64 / 1e9 / took.as_secs_f64() }
}
