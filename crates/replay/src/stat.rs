//! What a trace promises: sizes, and the hit ratio of a cache that never forgets.

use std::collections::HashSet;
use std::hash::BuildHasherDefault;

use serde::Serialize;

use crate::trace::Request;

/// Counts of a trace. Feed it requests in order.
#[derive(Clone, Debug, Default)]
pub struct TraceCounter {
    seen: HashSet<u64, BuildHasherDefault<BlockIdHasher>>,
    stat: TraceStat,
    input_tokens: u64,
    output_tokens: u64,
}

/// What [`TraceCounter`] found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TraceStat {
    /// Requests.
    pub requests: u64,
    /// Blocks over all requests.
    pub blocks: u64,
    /// Different block ids.
    pub unique_blocks: u64,
    /// Blocks that an earlier request had.
    pub repeated_blocks: u64,
    /// Blocks in the leading run of repeated ones, per request, summed.
    pub repeated_prefix_blocks: u64,
    /// `repeated_blocks / blocks`: hit ratio of a pool that never forgets, one request after the other.
    pub ideal_block_hit_ratio: f64,
    /// `repeated_prefix_blocks / blocks`.
    pub ideal_prefix_hit_ratio: f64,
    /// Mean prompt tokens.
    pub mean_input_tokens: f64,
    /// Mean generated tokens.
    pub mean_output_tokens: f64,
    /// Most blocks in one request.
    pub longest_request_blocks: u64,
    /// Timestamp of the last request, in milliseconds.
    pub duration_ms: u64,
}

/// Share of `part` in `whole`; 0 of nothing is 0.
pub(crate) fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl TraceCounter {
    /// Counts one more request.
    pub fn add(&mut self, request: &Request) {
        let stat = &mut self.stat;
        stat.requests += 1;
        stat.blocks += request.hash_ids.len() as u64;
        stat.longest_request_blocks = stat.longest_request_blocks.max(request.hash_ids.len() as u64);
        stat.duration_ms = stat.duration_ms.max(request.timestamp);
        self.input_tokens = self.input_tokens.saturating_add(request.input_length);
        self.output_tokens = self.output_tokens.saturating_add(request.output_length);
        let mut in_prefix = true;
        for id in &request.hash_ids {
            let repeated = !self.seen.insert(*id);
            in_prefix &= repeated;
            stat.repeated_blocks += u64::from(repeated);
            stat.repeated_prefix_blocks += u64::from(in_prefix);
        }
    }

    /// The counts so far.
    pub fn stat(&self) -> TraceStat {
        let stat = &self.stat;
        TraceStat {
            unique_blocks: self.seen.len() as u64,
            ideal_block_hit_ratio: ratio(stat.repeated_blocks, stat.blocks),
            ideal_prefix_hit_ratio: ratio(stat.repeated_prefix_blocks, stat.blocks),
            mean_input_tokens: ratio(self.input_tokens, stat.requests),
            mean_output_tokens: ratio(self.output_tokens, stat.requests),
            ..stat.clone()
        }
    }
}

/// Block ids are numbers: one multiplication spreads them enough.
#[derive(Clone, Copy, Debug, Default)]
struct BlockIdHasher(u64);

impl std::hash::Hasher for BlockIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(hash_ids: &[u64]) -> Request {
        Request { timestamp: 5, input_length: 100, output_length: 10, hash_ids: hash_ids.to_vec() }
    }

    #[test]
    fn a_hole_ends_the_prefix_but_not_the_hits() {
        let mut counter = TraceCounter::default();
        counter.add(&request(&[0, 1, 2]));
        counter.add(&request(&[0, 9, 2]));
        let stat = counter.stat();
        assert_eq!((stat.requests, stat.blocks, stat.unique_blocks), (2, 6, 4));
        assert_eq!((stat.repeated_blocks, stat.repeated_prefix_blocks), (2, 1));
        assert!((stat.ideal_block_hit_ratio - 2.0 / 6.0).abs() < 1e-12);
    }

    #[test]
    fn nothing_is_not_a_division_by_zero() {
        assert_eq!(TraceCounter::default().stat(), TraceStat::default());
    }
}
