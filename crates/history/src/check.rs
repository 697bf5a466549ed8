//! The rules.

use std::collections::BTreeMap;
use std::time::Duration;

use yb_types::MonotonicTime;

use crate::index::{KeyIndex, Standing};
use crate::operation::{Call, Key, Operation, Outcome, Write};
use crate::trouble::{Harm, Troubles};

/// What the pool promises.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A call ends within this time, margin included.
    pub deadline: Duration,
    /// Nodes know after so long a calm what the master knows.
    pub told: Duration,
    /// A master that comes back knows after so long a calm what the nodes know; `None`: it forgets.
    pub relearns: Option<Duration>,
    /// After so long a calm what stood still or was cut off is in use again.
    pub recovers: Duration,
    /// The master gave objects up for want of room: what is missing is not judged.
    pub evicts: bool,
}

/// What breaks a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FaultKind {
    /// A read brought something else than the whole value of one write.
    WrongBytes,
    /// A read brought a write that was certainly replaced or removed before it began.
    Stale,
    /// A read brought a write that was answered with "nothing was written", is of another key, or began later.
    Phantom,
    /// "Stored" or "exists already", and nothing was there to be read.
    FalseSuccess,
    /// It was there, and went without a reason.
    Lost,
    /// A call did not end by its deadline.
    Late,
}

/// One break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Of what.
    pub kind: FaultKind,
    /// Its key.
    pub key: Key,
    /// Who saw it.
    pub client: u32,
    /// When the call began that showed it.
    pub at: MonotonicTime,
    /// In words.
    pub what: String,
}

/// Why something that was acknowledged is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Excuse {
    /// It was removed, or may have been.
    Removed,
    /// As many nodes died as it had copies.
    OwnersDied,
    /// A node stood still or was cut off, and is not yet back in use.
    OwnerAway,
    /// The master died before the nodes were told.
    Untold,
    /// The master has not yet learned again what the nodes hold.
    Relearning,
    /// The master died and does not learn again.
    Forgotten,
    /// The pool had no room.
    Evicted,
}

/// What a history is worth.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Calls judged.
    pub calls: u64,
    /// Answers by call and outcome.
    pub answers: BTreeMap<(&'static str, String), u64>,
    /// What was broken.
    pub faults: Vec<Fault>,
    /// "Not there" for what was acknowledged, with a reason.
    pub excused: BTreeMap<Excuse, u64>,
    /// Acknowledged writes that were missing later without having been removed, and why at first.
    pub gone: BTreeMap<Excuse, u64>,
    /// Reads of what had been replaced or removed just before the master died.
    pub resurfaced: u64,
}

impl Verdict {
    /// How many faults of a kind.
    pub fn count(&self, kind: FaultKind) -> usize {
        self.faults.iter().filter(|fault| fault.kind == kind).count()
    }
}

/// Judges a history.
pub fn check(history: &[Operation], troubles: &Troubles, rules: &Rules) -> Verdict {
    let mut verdict = Verdict { calls: history.len() as u64, ..Verdict::default() };
    let mut keys: BTreeMap<Key, Vec<&Operation>> = BTreeMap::new();
    for call in history {
        let name = call.outcome().map_or_else(|| "no answer".to_owned(), Outcome::name);
        *verdict.answers.entry((call.call.name(), name)).or_default() += 1;
        keys.entry(call.key).or_default().push(call);
        if let Some(what) = lateness(call, troubles, rules) {
            verdict.faults.push(fault(FaultKind::Late, call, what));
        }
    }
    for calls in keys.values_mut() {
        calls.sort_by_key(|call| call.started);
        let index = KeyIndex::new(calls, troubles, rules.told, rules.deadline + rules.recovers);
        reads(calls, &index, &mut verdict);
        Presence { index: &index, troubles, rules, verdict: &mut verdict, success: None }.judge(calls);
    }
    verdict.faults.sort_by_key(|fault| fault.at);
    verdict
}

fn fault(kind: FaultKind, call: &Operation, what: String) -> Fault {
    Fault { kind, key: call.key, client: call.client, at: call.started, what }
}

fn lateness(call: &Operation, troubles: &Troubles, rules: &Rules) -> Option<String> {
    let limit = call.started + rules.deadline;
    // One whose client was stopped or killed has no deadline that can be held.
    let is_late = call.end() > limit && !troubles.of_client(call.client, call.started, call.end());
    let took = call.ended.as_ref().map(|(end, _)| end.since(call.started));
    is_late
        .then(|| took.map_or("never ended".to_owned(), |took| format!("{} ended after {took:.1?}", call.call.name())))
}

/// Whether each read brought what it may.
fn reads(calls: &[&Operation], index: &KeyIndex, verdict: &mut Verdict) {
    for call in calls {
        let kind = match call.outcome() {
            Some(Outcome::Wrong(what)) => {
                verdict.faults.push(fault(FaultKind::WrongBytes, call, what.to_string()));
                continue;
            }
            Some(Outcome::Read(write)) => match index.standing(*write, call.started, call.end()) {
                Standing::Readable => continue,
                Standing::Resurfaced => {
                    verdict.resurfaced += 1;
                    continue;
                }
                Standing::Gone => FaultKind::Stale,
                Standing::Never => FaultKind::Phantom,
            },
            // Said to be there: by somebody's write.
            Some(Outcome::Exists) if index.any_readable(call.call.write(), call.started, call.end()) => continue,
            Some(Outcome::Exists) => FaultKind::FalseSuccess,
            _ => continue,
        };
        verdict.faults.push(fault(kind, call, format!("{:?} answered {:?}", call.call, call.outcome())));
    }
}

/// A put or upsert that was told that the key can be read.
struct Success {
    started: MonotonicTime,
    ended: MonotonicTime,
    copies: usize,
    /// Somebody found it since.
    seen: bool,
    /// Somebody missed it since.
    missed: bool,
    write: Option<Write>,
}

/// Whether what was acknowledged is there.
struct Presence<'a> {
    index: &'a KeyIndex,
    troubles: &'a Troubles,
    rules: &'a Rules,
    verdict: &'a mut Verdict,
    success: Option<Success>,
}

impl Presence<'_> {
    /// Calls in order of their begin. Successes count from their end on: they wait in `ended` until then.
    fn judge(mut self, calls: &[&Operation]) {
        let mut ended: Vec<&Operation> = calls
            .iter()
            .copied()
            .filter(|c| c.call.write().is_some() && c.outcome().is_some_and(Outcome::is_success))
            .collect();
        ended.sort_by_key(|call| std::cmp::Reverse(call.end()));
        for call in calls {
            while ended.last().is_some_and(|success| success.end() < call.started) {
                self.succeeded(ended.pop());
            }
            match call.outcome() {
                Some(Outcome::Read(_) | Outcome::Present) => self.seen(),
                Some(Outcome::Absent) if matches!(call.call, Call::Get | Call::Exists) => self.missed(call),
                _ => {}
            }
        }
    }

    fn succeeded(&mut self, call: Option<&Operation>) {
        let Some(call) = call else { return };
        // What was there before may have lost a copy.
        let copies = if call.outcome() == Some(&Outcome::Stored) { call.call.copies().into() } else { 1 };
        let write = call.call.write();
        let (started, ended) = (call.started, call.end());
        self.success = Some(Success { started, ended, copies, seen: false, missed: false, write });
    }

    fn seen(&mut self) {
        if let Some(success) = &mut self.success {
            success.seen = true;
        }
    }

    fn missed(&mut self, call: &Operation) {
        let Some(success) = &self.success else { return };
        let excuse = self.excuse(success, call);
        let (first, seen, write) = (!success.missed, success.seen, success.write);
        if let Some(success) = &mut self.success {
            success.missed = true;
        }
        match excuse {
            Some(excuse) => {
                *self.verdict.excused.entry(excuse).or_default() += 1;
                if first && excuse != Excuse::Removed {
                    *self.verdict.gone.entry(excuse).or_default() += 1;
                }
            }
            // Once for each success, however often it is missed.
            None if first => {
                let kind = if seen { FaultKind::Lost } else { FaultKind::FalseSuccess };
                let what = format!("{} says no, {write:?} had succeeded", call.call.name());
                self.verdict.faults.push(fault(kind, call, what));
            }
            None => {}
        }
    }

    fn excuse(&self, success: &Success, call: &Operation) -> Option<Excuse> {
        let (from, until) = (success.started, call.end());
        if self.index.may_be_removed(from, until) {
            return Some(Excuse::Removed);
        }
        if self.owners_died(success, until) {
            return Some(Excuse::OwnersDied);
        }
        if let Some(excuse) = self.of_the_master(success, call) {
            return Some(excuse);
        }
        // A copy may be on a node that died, the other one on a node that is away.
        let harms = [Harm::Pause, Harm::Wire];
        let mut away = harms.into_iter().flat_map(|harm| self.troubles.of_nodes(harm, from, until));
        if away.any(|t| self.troubles.after_calm(t.until, self.rules.recovers) >= call.started) {
            return Some(Excuse::OwnerAway);
        }
        self.rules.evicts.then_some(Excuse::Evicted)
    }

    /// As many nodes died as there were copies; a node that was away when it was written got none, nor did one whose memory
    /// rested for a master that had just begun.
    fn owners_died(&self, success: &Success, until: MonotonicTime) -> bool {
        let written = success.started;
        let lately = written - self.rules.recovers;
        let dead = self.troubles.dead_nodes(lately, until);
        let away = self.troubles.nodes_away(lately, written);
        let rested = self.troubles.master_deaths(lately, written).next().is_some();
        dead > 0 && (rested || dead + away >= success.copies)
    }

    fn of_the_master(&self, success: &Success, call: &Operation) -> Option<Excuse> {
        let known = self.troubles.after_calm(success.ended, self.rules.told);
        for death in self.troubles.master_deaths(success.started, call.end()) {
            match self.rules.relearns {
                None => return Some(Excuse::Forgotten),
                Some(_) if death.from <= known => return Some(Excuse::Untold),
                Some(time) if self.troubles.after_calm(death.until, time) >= call.started => {
                    return Some(Excuse::Relearning);
                }
                Some(_) => {}
            }
        }
        None
    }
}
