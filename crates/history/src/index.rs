//! What is known of one key: its writes, and what put an end to them.

use std::collections::HashMap;
use std::time::Duration;

use yb_types::MonotonicTime;

use crate::operation::{Call, Operation, Outcome, Write};
use crate::trouble::Troubles;

/// An attempt to write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt {
    /// Not before this.
    pub started: MonotonicTime,
    /// In force by this time: it was acknowledged, or somebody read it. `None`: nobody knows.
    pub by: Option<MonotonicTime>,
    /// It was answered that nothing was written.
    pub refused: bool,
}

/// Something that took away what was there before: a write in force, or a removal.
#[derive(Clone, Copy, Debug)]
struct Change {
    started: MonotonicTime,
    by: MonotonicTime,
    /// Since when nobody can count on it: a master that died may have forgotten it.
    forgotten: bool,
}

/// Whether a write may still be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It may.
    Readable,
    /// Only because a master that died may have forgotten what replaced or removed it.
    Resurfaced,
    /// It was replaced or removed before.
    Gone,
    /// It never was: unknown, of another key, refused, or begun later.
    Never,
}

/// One key.
pub(crate) struct KeyIndex {
    attempts: HashMap<Write, Attempt>,
    /// By start.
    begun: Vec<(MonotonicTime, Write)>,
    /// Those that are never forgotten, by start; with the earliest `by` of each and all later ones.
    firm: Vec<(MonotonicTime, MonotonicTime)>,
    loose: Vec<(MonotonicTime, MonotonicTime)>,
    /// Removals by start, with the latest end of each and all earlier ones.
    removals: Vec<(MonotonicTime, MonotonicTime)>,
}

impl KeyIndex {
    /// Of the calls of one key. `told`: how long calm it takes until nodes know what the master knows; `late`: how long after its
    /// end a failed removal may still act.
    pub fn new(calls: &[&Operation], troubles: &Troubles, told: Duration, late: Duration) -> KeyIndex {
        let attempts = attempts(calls);
        let changes: Vec<Change> = calls
            .iter()
            .filter_map(|call| change(call, &attempts))
            .map(|(started, by)| {
                let known = troubles.after_calm(by, told);
                Change { started, by, forgotten: troubles.master_deaths(started, known).next().is_some() }
            })
            .collect();
        let of = |forgotten: bool| changes.iter().filter(move |c| c.forgotten == forgotten).map(|c| (c.started, c.by));
        KeyIndex {
            firm: earliest_from_here(of(false).collect()),
            loose: earliest_from_here(of(true).collect()),
            begun: begun(&attempts),
            removals: latest_up_to_here(calls.iter().filter_map(|call| removal(call, late)).collect()),
            attempts,
        }
    }

    /// Whether a read between these times may bring this write.
    pub fn standing(&self, write: Write, from: MonotonicTime, until: MonotonicTime) -> Standing {
        let Some(attempt) = self.attempts.get(&write) else { return Standing::Never };
        if attempt.refused || attempt.started > until {
            return Standing::Never;
        }
        let Some(by) = attempt.by else { return Standing::Readable };
        let ended_by = |changes: &[(MonotonicTime, MonotonicTime)]| {
            let later = changes.partition_point(|(started, _)| *started <= by);
            changes.get(later).is_some_and(|(_, earliest)| *earliest < from)
        };
        match (ended_by(&self.firm), ended_by(&self.loose)) {
            (true, _) => Standing::Gone,
            (false, true) => Standing::Resurfaced,
            (false, false) => Standing::Readable,
        }
    }

    /// Whether any write but this may be there between these times.
    pub fn any_readable(&self, but: Option<Write>, from: MonotonicTime, until: MonotonicTime) -> bool {
        let begun = self.begun.partition_point(|(started, _)| *started <= until);
        // The latest first: one of them it is as a rule.
        let mut others = self.begun[..begun].iter().rev().map(|(_, write)| *write).filter(|write| Some(*write) != but);
        others.any(|write| matches!(self.standing(write, from, until), Standing::Readable | Standing::Resurfaced))
    }

    /// Whether a removal may have acted at some time within.
    pub fn may_be_removed(&self, from: MonotonicTime, until: MonotonicTime) -> bool {
        let begun = self.removals.partition_point(|(started, _)| *started <= until);
        begun > 0 && self.removals[begun - 1].1 >= from
    }
}

fn begun(attempts: &HashMap<Write, Attempt>) -> Vec<(MonotonicTime, Write)> {
    let mut begun: Vec<_> = attempts.iter().map(|(write, attempt)| (attempt.started, *write)).collect();
    begun.sort_unstable();
    begun
}

fn attempts(calls: &[&Operation]) -> HashMap<Write, Attempt> {
    let mut attempts = HashMap::new();
    for call in calls {
        let Some(write) = call.call.write() else { continue };
        let by = matches!(call.outcome(), Some(Outcome::Stored)).then(|| call.end());
        // An accepted put either wrote or found another write: known once somebody reads it.
        let refused = matches!(call.outcome(), Some(Outcome::Refused(_) | Outcome::Exists));
        attempts.insert(write, Attempt { started: call.started, by, refused });
    }
    for call in calls {
        let Some((end, Outcome::Read(write))) = &call.ended else { continue };
        if let Some(attempt) = attempts.get_mut(write) {
            attempt.by = Some(attempt.by.map_or(*end, |by| by.min(*end)));
        }
    }
    attempts
}

/// When what was there before was certainly taken away by this call: not before, by.
fn change(call: &Operation, attempts: &HashMap<Write, Attempt>) -> Option<(MonotonicTime, MonotonicTime)> {
    match (call.call, call.outcome()) {
        (Call::Remove, Some(Outcome::Removed)) => Some((call.started, call.end())),
        (Call::Put { write, .. } | Call::Upsert { write, .. }, _) => Some((call.started, attempts.get(&write)?.by?)),
        _ => None,
    }
}

fn removal(call: &Operation, late: Duration) -> Option<(MonotonicTime, MonotonicTime)> {
    let until = match call.outcome() {
        Some(Outcome::Refused(_)) => return None,
        Some(Outcome::Failed(_)) => call.end() + late,
        Some(_) => call.end(),
        None => call.started + late,
    };
    (call.call == Call::Remove).then_some((call.started, until))
}

fn earliest_from_here(mut spans: Vec<(MonotonicTime, MonotonicTime)>) -> Vec<(MonotonicTime, MonotonicTime)> {
    spans.sort();
    let mut earliest = MonotonicTime(u64::MAX);
    for span in spans.iter_mut().rev() {
        earliest = earliest.min(span.1);
        span.1 = earliest;
    }
    spans
}

fn latest_up_to_here(mut spans: Vec<(MonotonicTime, MonotonicTime)>) -> Vec<(MonotonicTime, MonotonicTime)> {
    spans.sort();
    let mut latest = MonotonicTime(0);
    for span in &mut spans {
        latest = latest.max(span.1);
        span.1 = latest;
    }
    spans
}
