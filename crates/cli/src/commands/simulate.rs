//! `yuebing replay --simulate`: what an eviction policy would make of a trace.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use yb_evict::{Access, Key, Score, optimum, simulate, textbook_lru};
use yb_replay::TraceReader;
use yb_types::MonotonicTime;

use crate::args::ReplayArgs;
use crate::commands::replay::open;
use crate::failure::{Failure, Outcome};
use crate::output;

/// Plays of the trace for one capacity: policy, LRU, optimum.
const PLAYS: u64 = 3;

const TEMPLATE: &str =
    "{elapsed_precise} {wide_bar} {pos}/{len} requests (each 3 times a capacity: policy, LRU, optimum), eta {eta}";

/// One line of the answer.
#[derive(Debug, Serialize)]
struct Line {
    policy: &'static str,
    capacity: usize,
    requests: u64,
    blocks: u64,
    block_hit_ratio: f64,
    prefix_hit_ratio: f64,
    /// Block hit ratio of plain LRU.
    lru: f64,
    lru_prefix_hit_ratio: f64,
    /// Block hit ratio of Belady's rule.
    optimum: f64,
    optimum_prefix_hit_ratio: f64,
    /// The policy on the second half of the requests, after it has seen the first.
    second_half_block_hit_ratio: f64,
    second_half_prefix_hit_ratio: f64,
    evicted_blocks: u64,
    refused_blocks: u64,
}

/// Simulates every capacity and prints a line for each: one JSON object, or a list of them if there are several.
pub fn run(args: &ReplayArgs) -> Outcome {
    let accesses = read(args)?;
    let bar = progress_bar(args, accesses.len() as u64 * PLAYS * args.capacity.len() as u64);
    let lines: Vec<Line> = args.capacity.iter().map(|capacity| line(args, &accesses, *capacity, &bar)).collect();
    bar.finish_and_clear();
    match lines.as_slice() {
        [one] if args.json => output::json(one),
        lines if args.json => output::json(&lines),
        lines => output::line(text(lines)),
    }
}

fn read(args: &ReplayArgs) -> Outcome<Vec<Access>> {
    let limit = args.requests.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let mut accesses = Vec::new();
    for request in TraceReader::new(open(&args.trace)?).take(limit) {
        let request = request.map_err(|e| Failure::failed(format!("{}: {e}", args.trace.display())))?;
        accesses.push(Access {
            at: MonotonicTime::from_millis(request.timestamp),
            keys: request.hash_ids.into_iter().map(Key).collect(),
        });
    }
    if accesses.is_empty() {
        return Err(Failure::failed(format!("{}: no requests in it", args.trace.display())));
    }
    Ok(accesses)
}

fn line(args: &ReplayArgs, accesses: &[Access], capacity: usize, bar: &ProgressBar) -> Line {
    let first_half = accesses.len() as u64 / 2;
    let mut middle = Score::default();
    let mut policy = args.policy.keyed();
    let score = simulate(accesses, &mut policy, capacity, &mut |score| {
        if score.requests == first_half {
            middle = *score;
        }
        bar.inc(1);
    });
    let lru = textbook_lru(accesses, capacity, &mut |_| bar.inc(1));
    let best = optimum(accesses, capacity, &mut |_| bar.inc(1));
    let second_half = score.since(&middle);
    Line {
        policy: args.policy.name(),
        capacity,
        requests: score.requests,
        blocks: score.blocks,
        block_hit_ratio: score.block_hit_ratio(),
        prefix_hit_ratio: score.prefix_hit_ratio(),
        lru: lru.block_hit_ratio(),
        lru_prefix_hit_ratio: lru.prefix_hit_ratio(),
        optimum: best.block_hit_ratio(),
        optimum_prefix_hit_ratio: best.prefix_hit_ratio(),
        second_half_block_hit_ratio: second_half.block_hit_ratio(),
        second_half_prefix_hit_ratio: second_half.prefix_hit_ratio(),
        evicted_blocks: score.evicted,
        refused_blocks: score.refused,
    }
}

/// Draws on standard error, and only if that is a terminal.
fn progress_bar(args: &ReplayArgs, plays: u64) -> ProgressBar {
    if args.json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(plays), ProgressDrawTarget::stderr_with_hz(8));
    if let Ok(style) = ProgressStyle::with_template(TEMPLATE) {
        bar.set_style(style);
    }
    bar
}

fn text(lines: &[Line]) -> String {
    let Some(first) = lines.first() else { return String::new() };
    let header =
        ["capacity", "block hits", "2nd half", "lru", "optimum", "prefix hits", "lru prefix", "evicted", "refused"];
    let mut table = output::table(&header, 0);
    for line in lines {
        let ratio = |value: f64| format!("{value:.4}");
        table.add_row([
            line.capacity.to_string(),
            ratio(line.block_hit_ratio),
            ratio(line.second_half_block_hit_ratio),
            ratio(line.lru),
            ratio(line.optimum),
            ratio(line.prefix_hit_ratio),
            ratio(line.lru_prefix_hit_ratio),
            line.evicted_blocks.to_string(),
            line.refused_blocks.to_string(),
        ]);
    }
    let (policy, requests, blocks) = (first.policy, first.requests, first.blocks);
    format!("policy {policy}, {requests} requests, {blocks} blocks\n\n{}", table.trim_fmt())
}
