//! Conversations with the statistics of the published conversation trace, so that a demo needs no file.
//!
//! The tables below are quantiles measured on `conversation_trace.jsonl` of the FAST'25 paper (12 031 requests of one
//! hour). The model behind them:
//! - every prompt starts with the same system prompt, which is block 0;
//! - a conversation starts with a prompt of a drawn length; about a fifth are one-shot calls of about 900 tokens;
//! - the next turn's prompt is the last prompt, plus its answer, plus a few words, so all full blocks repeat;
//! - one follow-up in seven rewrites its history: it keeps a leading part of the blocks only;
//! - arrivals are rounded to ticks of 3 s, as in the trace.
//!
//! However many requests are asked for, they span the same hour: fewer requests are fewer users, not less reuse.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use yb_env::Rng;

use crate::trace::{Request, TOKENS_PER_BLOCK};

/// Length of the trace, in milliseconds.
pub const DURATION_MS: u64 = 3_537_000;

const TICK_MS: u64 = 3_000;
const MAX_INPUT_TOKENS: u64 = 126_195;
const MIN_INPUT_TOKENS: u64 = 891;
/// Prompts below this are one-shot calls.
const ONE_SHOT_TOKENS: u64 = 1_000;
const ONE_SHOT_CONTINUES: f64 = 0.02;
/// Prompts above this go on less often, by `LONG_CONTINUES`.
const LONG_TOKENS: u64 = 32_000;
const LONG_CONTINUES: f64 = 0.8;
/// Chance of another turn after turn 0, 1, 2, ... of a conversation that is not one-shot.
const CONTINUES: [f64; 8] = [0.40, 0.44, 0.53, 0.61, 0.61, 0.70, 0.78, 0.80];
const REWRITES_HISTORY: f64 = 0.15;
/// Requests per conversation that the chances above give, cut off at the end of the hour.
const TURNS_PER_CONVERSATION: f64 = 1.63;

/// (share of samples below, value)
type Quantiles = [(f64, f64)];

const FIRST_INPUT: &Quantiles = &[
    (0.0, 891.0),
    (0.05, 897.0),
    (0.1, 905.0),
    (0.2, 1092.0),
    (0.3, 1756.0),
    (0.4, 3914.0),
    (0.5, 5264.0),
    (0.6, 7417.0),
    (0.7, 10775.0),
    (0.8, 15871.0),
    (0.9, 25561.0),
    (0.95, 38538.0),
    (0.99, 89869.0),
    (0.995, 111800.0),
    (1.0, 126195.0),
];
const OUTPUT: &Quantiles = &[
    (0.0, 1.0),
    (0.05, 10.0),
    (0.1, 24.0),
    (0.2, 100.0),
    (0.3, 213.0),
    (0.5, 350.0),
    (0.7, 448.0),
    (0.8, 504.0),
    (0.9, 597.0),
    (0.99, 1120.0),
    (1.0, 2000.0),
];
/// Tokens the user adds to the history.
const GROWTH: &Quantiles = &[
    (0.0, 1.0),
    (0.2, 7.0),
    (0.3, 11.0),
    (0.5, 26.0),
    (0.6, 52.0),
    (0.7, 172.0),
    (0.8, 695.0),
    (0.9, 4203.0),
    (0.95, 6922.0),
    (0.99, 16705.0),
    (0.995, 22478.0),
    (0.999, 38787.0),
    (1.0, 91467.0),
];
/// Milliseconds from one turn to the next.
const GAP_MS: &Quantiles = &[
    (0.0, 6e3),
    (0.05, 30e3),
    (0.1, 42e3),
    (0.3, 75e3),
    (0.5, 123e3),
    (0.7, 222e3),
    (0.8, 318e3),
    (0.9, 483e3),
    (0.95, 618e3),
    (0.99, 1482e3),
    (1.0, 3030e3),
];
/// Share of its blocks that a rewritten history keeps.
const KEPT: &Quantiles =
    &[(0.0, 0.015), (0.1, 0.068), (0.3, 0.129), (0.5, 0.214), (0.7, 0.4), (0.8, 0.524), (0.9, 0.833), (1.0, 0.986)];
/// Tokens that follow the kept part of a rewritten history.
const REWRITTEN: &Quantiles = &[
    (0.0, 10.0),
    (0.1, 1707.0),
    (0.2, 4969.0),
    (0.5, 9567.0),
    (0.8, 15907.0),
    (0.95, 26597.0),
    (0.99, 43120.0),
    (1.0, 94968.0),
];

/// Makes a trace of exactly `requests` requests. The same seed gives the same trace.
pub fn generate(requests: usize, seed: u64) -> Vec<Request> {
    generate_each(requests, seed).collect()
}

/// The requests of [`generate`], one after the other, each made when it is asked for.
pub fn generate_each(requests: usize, seed: u64) -> impl Iterator<Item = Request> {
    Generator::new(requests, seed)
}

/// The next turn of a conversation, waiting for its time. Ordered by time, then by birth.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at_ms: u64,
    sequence: u64,
    turn: usize,
    input_tokens: u64,
    blocks: Vec<u64>,
}

struct Generator {
    rng: Rng,
    /// Requests that are still to be made.
    left: usize,
    now_ms: u64,
    sequence: u64,
    next_block: u64,
    waiting: BinaryHeap<Reverse<Turn>>,
}

impl Iterator for Generator {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        self.left = self.left.checked_sub(1)?;
        loop {
            let Some(Reverse(turn)) = self.waiting.pop() else {
                // Chance gave fewer turns than expected: the last users come at the end.
                self.start_conversation(self.now_ms);
                continue;
            };
            self.now_ms = turn.at_ms;
            return Some(self.request(turn));
        }
    }
}

impl Generator {
    fn new(wanted: usize, seed: u64) -> Self {
        let waiting = BinaryHeap::new();
        let mut generator =
            Generator { rng: Rng::seeded(seed), left: wanted, now_ms: 0, sequence: 0, next_block: 1, waiting };
        let conversations = ((wanted as f64 / TURNS_PER_CONVERSATION).ceil() as usize).max(1);
        for _ in 0..conversations.min(wanted) {
            let at_ms = generator.rng.below(DURATION_MS);
            generator.start_conversation(at_ms);
        }
        generator
    }

    fn start_conversation(&mut self, at_ms: u64) {
        let input_tokens = self.draw(FIRST_INPUT) as u64;
        self.enqueue(at_ms, 0, input_tokens, vec![0]);
    }

    fn enqueue(&mut self, at_ms: u64, turn: usize, input_tokens: u64, mut kept: Vec<u64>) {
        let input_tokens = input_tokens.clamp(MIN_INPUT_TOKENS, MAX_INPUT_TOKENS);
        let count = usize::try_from(input_tokens.div_ceil(TOKENS_PER_BLOCK)).unwrap_or(usize::MAX);
        kept.truncate(count);
        let sequence = self.sequence;
        self.sequence += 1;
        self.waiting.push(Reverse(Turn { at_ms, sequence, turn, input_tokens, blocks: kept }));
    }

    /// Ids of new blocks are given when the request is made, so that they count up along the trace.
    fn request(&mut self, turn: Turn) -> Request {
        let Turn { at_ms, turn, input_tokens, mut blocks, .. } = turn;
        let wanted = input_tokens.div_ceil(TOKENS_PER_BLOCK);
        while (blocks.len() as u64) < wanted {
            blocks.push(self.next_block);
            self.next_block += 1;
        }
        let output_length = self.draw(OUTPUT) as u64;
        if self.continues(turn, input_tokens) {
            self.follow_up(at_ms, turn, input_tokens, output_length, &blocks);
        }
        Request { timestamp: at_ms / TICK_MS * TICK_MS, input_length: input_tokens, output_length, hash_ids: blocks }
    }

    fn continues(&mut self, turn: usize, input_tokens: u64) -> bool {
        let chance = if turn == 0 && input_tokens < ONE_SHOT_TOKENS {
            ONE_SHOT_CONTINUES
        } else {
            let long = if input_tokens > LONG_TOKENS { LONG_CONTINUES } else { 1.0 };
            long * CONTINUES[turn.min(CONTINUES.len() - 1)]
        };
        self.unit() < chance
    }

    fn follow_up(&mut self, at_ms: u64, turn: usize, input_tokens: u64, output_tokens: u64, blocks: &[u64]) {
        let at_ms = at_ms + self.draw(GAP_MS) as u64;
        if at_ms >= DURATION_MS {
            return;
        }
        // Only blocks that are full stay the same when text is added behind.
        let full = blocks.len() as u64 - u64::from(!input_tokens.is_multiple_of(TOKENS_PER_BLOCK));
        let (kept, next_tokens) = if self.unit() < REWRITES_HISTORY {
            let kept = ((blocks.len() as f64 * self.draw(KEPT)) as u64).clamp(1, full.max(1));
            (kept, kept * TOKENS_PER_BLOCK + self.draw(REWRITTEN) as u64)
        } else {
            (full.max(1), input_tokens + output_tokens + self.draw(GROWTH) as u64)
        };
        let kept = blocks.iter().copied().take(usize::try_from(kept).unwrap_or(usize::MAX)).collect();
        self.enqueue(at_ms, turn + 1, next_tokens, kept);
    }

    /// Uniform in `0..1`.
    fn unit(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Inverse of the distribution, on a logarithmic scale between two table rows.
    fn draw(&mut self, table: &Quantiles) -> f64 {
        let share = self.unit();
        for pair in table.windows(2) {
            if let [(p0, v0), (p1, v1)] = pair
                && share <= *p1
            {
                let t = (share - p0) / (p1 - p0);
                return v0 * (v1 / v0).powf(t);
            }
        }
        table.last().map_or(0.0, |row| row.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stat::TraceCounter;
    use proptest::prelude::*;

    fn stat(requests: &[Request]) -> crate::stat::TraceStat {
        let mut counter = TraceCounter::default();
        requests.iter().for_each(|r| counter.add(r));
        counter.stat()
    }

    /// Published trace: 12 031 requests, 12 035 input and 343 output tokens on average, 0.366 of blocks repeat.
    #[test]
    fn an_hour_looks_like_the_published_one() {
        for seed in 0..4 {
            let stat = stat(&generate(12_031, seed));
            assert!((11_000.0..13_000.0).contains(&stat.mean_input_tokens), "{stat:?}");
            assert!((320.0..365.0).contains(&stat.mean_output_tokens), "{stat:?}");
            assert!((0.335..0.40).contains(&stat.ideal_block_hit_ratio), "{stat:?}");
        }
    }

    #[test]
    fn a_short_trace_keeps_the_reuse() {
        let mean = (0..20).map(|seed| stat(&generate(500, seed)).ideal_block_hit_ratio).sum::<f64>() / 20.0;
        assert!((0.32..0.42).contains(&mean), "{mean}");
    }

    proptest! {
        #[test]
        fn a_trace_is_well_formed(requests in 0usize..300, seed in any::<u64>()) {
            let trace = generate(requests, seed);
            prop_assert_eq!(trace.len(), requests);
            prop_assert!(trace.is_sorted_by_key(|r| r.timestamp));
            prop_assert_eq!(&generate(requests, seed), &trace);
            let mut highest = 0;
            for request in &trace {
                prop_assert_eq!(request.hash_ids.len() as u64, request.input_length.div_ceil(TOKENS_PER_BLOCK));
                prop_assert_eq!(request.hash_ids[0], 0);
                let unique: std::collections::HashSet<_> = request.hash_ids.iter().collect();
                prop_assert_eq!(unique.len(), request.hash_ids.len());
                // New ids count up without gaps.
                for id in &request.hash_ids {
                    prop_assert!(*id <= highest + 1);
                    highest = highest.max(*id);
                }
            }
            // No hole in any prefix: a block is known only if all before it are.
            let stat = stat(&trace);
            prop_assert_eq!(stat.repeated_blocks, stat.repeated_prefix_blocks);
        }
    }
}
