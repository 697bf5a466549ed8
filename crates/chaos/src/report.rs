//! The figures of a run, as a table.

use std::time::Duration;

use yb_history::{Call, Fault, FaultKind, Harm, Operation, Outcome as Answer, Party};
use yb_types::MonotonicTime;

use crate::run::Outcome;

/// Times of reads that brought bytes, sorted.
struct Times(Vec<Duration>);

impl Times {
    fn of(calls: impl Iterator<Item = Duration>) -> Times {
        let mut times: Vec<Duration> = calls.collect();
        times.sort_unstable();
        Times(times)
    }

    fn at(&self, share: f64) -> String {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * share) as usize).map_or("-".to_owned(), |time| format!("{time:.2?}"))
    }
}

/// The whole of it.
pub fn table(title: &str, outcome: &Outcome) -> String {
    let mut table = format!("| figure | {title} |\n|---|---|\n");
    let mut row = |name: &str, value: String| table.push_str(&format!("| {name} | {value} |\n"));
    let verdict = &outcome.verdict;
    row("calls", verdict.calls.to_string());
    for ((call, answer), count) in &verdict.answers {
        row(&format!("{call}: {answer}"), count.to_string());
    }
    for (harm, text) in [(Harm::Death, "killed or ended"), (Harm::Pause, "stopped"), (Harm::Wire, "wire bad")] {
        let of = |is: fn(Party) -> bool| outcome.troubles.iter().filter(|t| t.harm == harm && is(t.party)).count();
        let [master, nodes, clients] =
            [of(|p| p == Party::Master), of(|p| matches!(p, Party::Node(_))), of(|p| matches!(p, Party::Client(_)))];
        row(text, format!("master {master}, nodes {nodes}, clients {clients}"));
    }
    for (kind, text) in [
        (FaultKind::WrongBytes, "wrong bytes"),
        (FaultKind::Stale, "stale reads"),
        (FaultKind::Phantom, "reads of what never was"),
        (FaultKind::FalseSuccess, "false successes"),
        (FaultKind::Lost, "lost without a reason"),
        (FaultKind::Late, "calls past their deadline"),
    ] {
        row(text, verdict.count(kind).to_string());
    }
    row("processes astray", format!("{} {}", outcome.astray.len(), outcome.astray.join(", ")));
    for (excuse, count) in &verdict.gone {
        row(&format!("acknowledged and gone: {excuse:?}"), count.to_string());
    }
    row("found again after a master's death", verdict.resurfaced.to_string());
    let slowest = outcome.history.iter().filter(|c| c.ended.is_some() && !suffered(outcome, c)).map(took).max();
    row("slowest call", slowest.map_or("-".to_owned(), |time| format!("{time:.2?}")));
    for (name, calm) in [("calm", true), ("while something is wrong", false)] {
        let hits = outcome.history.iter().filter(|call| is_hit(call) && is_calm(outcome, call) == calm);
        let times = Times::of(hits.map(took));
        row(&format!("hit, {name}: p50, p99"), format!("{}, {}", times.at(0.5), times.at(0.99)));
    }
    table
}

/// The faults in words, the first of each kind, each with what was asked about its key before.
pub fn faults(outcome: &Outcome) -> Vec<String> {
    let mut seen = std::collections::BTreeMap::new();
    let few = outcome.verdict.faults.iter().filter(|fault| {
        let count: &mut u32 = seen.entry(fault.kind).or_default();
        *count += 1;
        *count <= 5
    });
    few.flat_map(|fault| {
        let at = fault.at.since(outcome.began);
        let line =
            format!("{:?} at {at:.3?}, client {}, key {}: {}", fault.kind, fault.client, fault.key.0, fault.what);
        std::iter::once(line).chain(story(outcome, fault))
    })
    .collect()
}

/// The last calls about a key up to a fault.
fn story(outcome: &Outcome, fault: &Fault) -> Vec<String> {
    let of_key = |call: &&Operation| call.key == fault.key && call.started <= fault.at;
    let last = outcome.history.iter().rev().filter(of_key).take(25);
    let mut lines: Vec<String> = last
        .map(|call| {
            let (from, until) = (call.started.since(outcome.began), call.end().since(outcome.began));
            let asked = call.call.write().map(|write| format!(" {}", write.0)).unwrap_or_default();
            let said = call.outcome().map_or("no answer".to_owned(), |said| format!("{said:?}"));
            format!("    {from:.3?} to {until:.3?}, client {}: {}{asked}: {said}", call.client, call.call.name())
        })
        .collect();
    lines.reverse();
    lines
}

/// Who suffered what, in words.
pub fn troubles(outcome: &Outcome) -> Vec<String> {
    let since = |at: MonotonicTime| at.since(outcome.began);
    let line =
        |t: &yb_history::Trouble| format!("{:?} {:?} {:.3?} to {:.3?}", t.party, t.harm, since(t.from), since(t.until));
    outcome.troubles.iter().map(line).collect()
}

fn took(call: &Operation) -> Duration {
    call.end().since(call.started)
}

fn is_hit(call: &Operation) -> bool {
    call.call == Call::Get && matches!(call.outcome(), Some(Answer::Read(_)))
}

fn suffered(outcome: &Outcome, call: &Operation) -> bool {
    outcome.troubles.of_client(call.client, call.started, call.end())
}

fn is_calm(outcome: &Outcome, call: &Operation) -> bool {
    !outcome.troubles.iter().any(|t| t.meets(call.started, call.end()))
}
