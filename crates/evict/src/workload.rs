//! A seeded workload that is unlike the published traces, to see whether a policy holds there too.
//!
//! Several services share the pool. Each has its own system prompt of some blocks. Users hold conversations of several
//! turns, every turn appends blocks; programs send one-shot requests below the same prompts; and some conversations fork:
//! two branches go on from the same history. The last block of every request is not full, so it never comes again.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use yb_types::MonotonicTime;

use crate::arena::mix;
use crate::policy::Key;
use crate::simulate::Access;

const SERVICES: u64 = 6;
const PROMPT_BLOCKS: u64 = 5;
/// Share of the arrivals that are one-shot requests, in percent.
const ONE_SHOT: u64 = 60;
const ONE_SHOT_BLOCKS: u64 = 30;
const FIRST_TURN_BLOCKS: u64 = 16;
const TURN_BLOCKS: u64 = 4;
/// Chance of another turn, in percent.
const CONTINUES: u64 = 75;
/// Chance that a turn starts a second branch, in percent.
const FORKS: u64 = 6;
/// Mean time between arrivals and between turns, in milliseconds.
const ARRIVAL_MS: u64 = 400;
const THINK_MS: u64 = 45_000;

/// Random numbers by counting: the same seed gives the same workload.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        ((u128::from(mix(Key(self.0))) * u128::from(bound)) >> 64) as u64
    }

    fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }

    /// Between 0 and four times `mean`, most of it below; the mean of three numbers multiplied.
    fn skewed(&mut self, mean: u64) -> u64 {
        let part = 1_000;
        mean * 8 * self.below(part) / part * self.below(part) / part * self.below(part) / part
    }
}

/// A turn that waits for its time. Ordered by time, then by birth.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    at_ms: u64,
    born: u64,
    history: Vec<Key>,
    one_shot: bool,
}

struct Generator {
    dice: Dice,
    next_key: u64,
    born: u64,
    waiting: BinaryHeap<Reverse<Turn>>,
}

impl Generator {
    fn wait(&mut self, at_ms: u64, history: Vec<Key>, one_shot: bool) {
        self.born += 1;
        self.waiting.push(Reverse(Turn { at_ms, born: self.born, history, one_shot }));
    }

    fn arrive(&mut self, at_ms: u64) {
        let service = self.dice.below(SERVICES).min(self.dice.below(SERVICES));
        let prompt = (0..PROMPT_BLOCKS).map(|block| Key(service * PROMPT_BLOCKS + block)).collect();
        let one_shot = self.dice.percent(ONE_SHOT);
        self.wait(at_ms, prompt, one_shot);
    }

    fn grow(&mut self, history: &[Key], blocks: u64) -> Vec<Key> {
        let first = self.next_key;
        self.next_key += blocks;
        history.iter().copied().chain((first..self.next_key).map(Key)).collect()
    }

    /// The request of a turn; plans what follows.
    fn serve(&mut self, turn: Turn) -> Access {
        let mean = match (turn.one_shot, turn.history.len() as u64) {
            (true, _) => ONE_SHOT_BLOCKS,
            (false, PROMPT_BLOCKS) => FIRST_TURN_BLOCKS,
            (false, _) => TURN_BLOCKS,
        };
        let blocks = 1 + self.dice.skewed(mean);
        let full = self.grow(&turn.history, blocks);
        let keys = self.grow(&full, 1);
        let branches = u64::from(!turn.one_shot && self.dice.percent(CONTINUES))
            + u64::from(!turn.one_shot && self.dice.percent(FORKS));
        for _ in 0..branches {
            let after = 2_000 + self.dice.skewed(THINK_MS);
            self.wait(turn.at_ms + after, full.clone(), false);
        }
        Access { at: MonotonicTime::from_millis(turn.at_ms), keys }
    }
}

/// Makes `requests` requests, in order of time.
pub fn generate(seed: u64, requests: usize) -> Vec<Access> {
    let mut generator =
        Generator { dice: Dice(seed << 32), next_key: SERVICES * PROMPT_BLOCKS, born: 0, waiting: BinaryHeap::new() };
    let mut accesses = Vec::with_capacity(requests);
    let mut arrival_ms = 0;
    while accesses.len() < requests {
        while generator.waiting.peek().is_none_or(|turn| turn.0.at_ms >= arrival_ms) {
            generator.arrive(arrival_ms);
            arrival_ms += 1 + generator.dice.below(2 * ARRIVAL_MS);
        }
        if let Some(Reverse(turn)) = generator.waiting.pop() {
            let access = generator.serve(turn);
            accesses.push(access);
        }
    }
    accesses
}
