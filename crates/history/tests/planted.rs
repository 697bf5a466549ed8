//! The checker lets honest histories pass and finds what was planted in them.

use std::time::Duration;

use yb_history::{
    Call, Excuse, FaultKind, Harm, Key, Operation, Outcome, Party, Rules, Trouble, Troubles, Verdict, Write, check,
};
use yb_types::MonotonicTime;

const RULES: Rules = Rules {
    deadline: Duration::from_secs(3),
    told: Duration::from_secs(1),
    relearns: Some(Duration::from_secs(5)),
    recovers: Duration::from_secs(3),
    evicts: false,
};

fn ms(at: u64) -> MonotonicTime {
    MonotonicTime::from_millis(at)
}

fn call(at: u64, call: Call, until: u64, outcome: Outcome) -> Operation {
    Operation { client: 1, key: Key(1), call, started: ms(at), ended: Some((ms(until), outcome)) }
}

fn put(at: u64, write: u64, outcome: Outcome) -> Operation {
    call(at, Call::Put { write: Write(write), copies: 1 }, at + 10, outcome)
}

fn upsert(at: u64, write: u64, outcome: Outcome) -> Operation {
    call(at, Call::Upsert { write: Write(write), copies: 1 }, at + 10, outcome)
}

fn get(at: u64, outcome: Outcome) -> Operation {
    call(at, Call::Get, at + 10, outcome)
}

fn read(at: u64, write: u64) -> Operation {
    get(at, Outcome::Read(Write(write)))
}

fn remove(at: u64) -> Operation {
    call(at, Call::Remove, at + 10, Outcome::Removed)
}

fn trouble(party: Party, harm: Harm, from: u64, until: u64) -> Trouble {
    Trouble { party, harm, from: ms(from), until: ms(until) }
}

fn judged(history: &[Operation], troubles: &[Trouble]) -> Verdict {
    check(history, &Troubles::new(troubles.to_vec()), &RULES)
}

fn kinds(history: &[Operation], troubles: &[Trouble]) -> Vec<FaultKind> {
    judged(history, troubles).faults.iter().map(|fault| fault.kind).collect()
}

#[test]
fn an_honest_history_passes() {
    let history = [
        put(0, 1, Outcome::Stored),
        read(20, 1),
        put(40, 2, Outcome::Exists),
        upsert(60, 3, Outcome::Stored),
        read(80, 3),
        remove(100),
        get(120, Outcome::Absent),
        put(140, 4, Outcome::Refused("busy".into())),
        get(160, Outcome::Failed("transfer".into())),
    ];
    let verdict = judged(&history, &[]);
    assert_eq!(verdict.faults, []);
    assert_eq!((verdict.calls, verdict.answers[&("get", "read".to_owned())]), (9, 2));
    assert_eq!(verdict.excused[&Excuse::Removed], 1);
    assert!(verdict.gone.is_empty());
}

#[test]
fn calls_at_the_same_time_may_go_either_way() {
    let overlapping = |outcome| [upsert(0, 1, Outcome::Stored), upsert(20, 2, Outcome::Stored), get(25, outcome)];
    assert_eq!(kinds(&overlapping(Outcome::Read(Write(1))), &[]), []);
    assert_eq!(kinds(&overlapping(Outcome::Read(Write(2))), &[]), []);
    // A write that nobody heard of may come at any time.
    let unheard = [upsert(0, 1, Outcome::Failed("unreachable".into())), upsert(20, 2, Outcome::Stored), read(900, 1)];
    assert_eq!(kinds(&unheard, &[]), []);
}

#[test]
fn wrong_bytes_are_found() {
    assert_eq!(
        kinds(&[put(0, 1, Outcome::Stored), get(20, Outcome::Wrong("mixed".into()))], &[]),
        [FaultKind::WrongBytes]
    );
}

#[test]
fn a_read_of_what_was_replaced_is_stale() {
    let history = [upsert(0, 1, Outcome::Stored), upsert(20, 2, Outcome::Stored), read(40, 1)];
    assert_eq!(kinds(&history, &[]), [FaultKind::Stale]);
    assert_eq!(kinds(&[put(0, 1, Outcome::Stored), remove(20), read(40, 1)], &[]), [FaultKind::Stale]);
    // A read proves that a write whose end nobody heard is in force: it is not undone by the next read.
    let unheard =
        [upsert(0, 1, Outcome::Stored), upsert(20, 2, Outcome::Failed("time".into())), read(40, 2), read(60, 1)];
    assert_eq!(kinds(&unheard, &[]), [FaultKind::Stale]);
}

#[test]
fn a_read_of_what_never_was_is_a_phantom() {
    assert_eq!(kinds(&[read(0, 9)], &[]), [FaultKind::Phantom]);
    assert_eq!(kinds(&[read(0, 1), put(40, 1, Outcome::Stored)], &[]), [FaultKind::Phantom], "before it was written");
    let refused = [put(0, 1, Outcome::Stored), put(20, 2, Outcome::Exists), read(40, 2)];
    assert_eq!(kinds(&refused, &[]), [FaultKind::Phantom]);
    let other_key = Operation { key: Key(2), ..read(20, 1) };
    assert_eq!(kinds(&[put(0, 1, Outcome::Stored), other_key], &[]), [FaultKind::Phantom]);
}

#[test]
fn a_success_that_stored_nothing_is_found() {
    let history = [put(0, 1, Outcome::Stored), get(20, Outcome::Absent), get(40, Outcome::Absent)];
    assert_eq!(kinds(&history, &[]), [FaultKind::FalseSuccess], "once");
    // A writer died half-way; the next one is told that its put succeeded.
    let dead = Operation { ended: None, ..put(0, 1, Outcome::Stored) };
    let killed = [trouble(Party::Client(1), Harm::Death, 5, 2000)];
    let history = [dead.clone(), put(20, 2, Outcome::Accepted), get(40, Outcome::Absent)];
    assert_eq!(kinds(&history, &killed), [FaultKind::FalseSuccess]);
    // "Exists already" of what was removed long before.
    let history = [put(0, 1, Outcome::Stored), remove(20), put(40, 2, Outcome::Exists)];
    assert_eq!(kinds(&history, &[]), [FaultKind::FalseSuccess]);
    assert_eq!(kinds(&[dead, put(20, 2, Outcome::Refused("busy".into())), get(40, Outcome::Absent)], &killed), []);
}

#[test]
fn what_goes_without_a_reason_is_lost() {
    let history = [put(0, 1, Outcome::Stored), read(20, 1), get(5000, Outcome::Absent)];
    assert_eq!(kinds(&history, &[]), [FaultKind::Lost]);
    let excused = |trouble: Trouble| judged(&history, &[trouble]).gone.into_keys().collect::<Vec<_>>();
    assert_eq!(excused(trouble(Party::Node(0), Harm::Death, 100, 900)), [Excuse::OwnersDied]);
    assert_eq!(excused(trouble(Party::Node(0), Harm::Pause, 100, 4000)), [Excuse::OwnerAway]);
    assert_eq!(kinds(&history, &[trouble(Party::Node(0), Harm::Pause, 100, 400)]), [FaultKind::Lost], "back for long");
    assert_eq!(excused(trouble(Party::Master, Harm::Death, 100, 400)), [Excuse::Untold]);
    assert_eq!(excused(trouble(Party::Master, Harm::Death, 4000, 4100)), [Excuse::Relearning]);
    assert_eq!(
        kinds(&history, &[trouble(Party::Master, Harm::Pause, 100, 4000)]),
        [FaultKind::Lost],
        "a pause is no reason"
    );
    let long_ago = [put(0, 1, Outcome::Stored), get(20_000, Outcome::Absent)];
    assert_eq!(
        kinds(&long_ago, &[trouble(Party::Master, Harm::Death, 4000, 5000)]),
        [FaultKind::FalseSuccess],
        "relearned"
    );
}

#[test]
fn two_copies_outlive_one_owner() {
    let write = Call::Put { write: Write(1), copies: 2 };
    let history = [call(5000, write, 5010, Outcome::Stored), read(5020, 1), get(9000, Outcome::Absent)];
    let deaths = [0, 1].map(|node| trouble(Party::Node(node), Harm::Death, 6000, 6500));
    assert_eq!(kinds(&history, &deaths[..1]), [FaultKind::Lost]);
    assert_eq!(kinds(&history, &deaths), []);
    // What was there before may have lost one.
    let there = [call(5000, write, 5010, Outcome::Exists), put(4000, 2, Outcome::Stored), get(9000, Outcome::Absent)];
    assert_eq!(kinds(&there, &deaths[..1]), []);
    // One that was away when it was written got no copy.
    let away = trouble(Party::Node(1), Harm::Pause, 4000, 5005);
    assert_eq!(kinds(&history, &[deaths[0], away]), []);
}

#[test]
fn a_master_that_dies_may_bring_back_what_was_replaced_just_before() {
    let history = [upsert(0, 1, Outcome::Stored), upsert(3000, 2, Outcome::Stored), read(5000, 1)];
    assert_eq!(kinds(&history, &[]), [FaultKind::Stale]);
    let soon = judged(&history, &[trouble(Party::Master, Harm::Death, 3500, 3700)]);
    assert_eq!((soon.faults.len(), soon.resurfaced), (0, 1));
    assert_eq!(kinds(&history, &[trouble(Party::Master, Harm::Death, 4500, 4700)]), [FaultKind::Stale], "told by then");
}

#[test]
fn calls_that_do_not_end_in_time_are_late() {
    let slow = call(0, Call::Get, 3001, Outcome::Absent);
    assert_eq!(kinds(std::slice::from_ref(&slow), &[]), [FaultKind::Late]);
    assert_eq!(kinds(&[slow], &[trouble(Party::Client(1), Harm::Pause, 100, 2000)]), [], "its client stood still");
    assert_eq!(kinds(&[Operation { ended: None, ..read(0, 1) }], &[]), [FaultKind::Late]);
}

/// Histories of a pool that does what it should, many calls at a time: each acts at one moment between its begin and its end.
mod honest {
    use super::*;

    struct Chance(u64);

    impl Chance {
        fn below(&mut self, bound: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) % bound
        }
    }

    fn history(seed: u64) -> Vec<Operation> {
        let mut chance = Chance(seed);
        let (mut now, mut there, mut history) = (0, None, Vec::new());
        for number in 1..200 {
            now += chance.below(40);
            let (before, after) = (chance.below(100), 1 + chance.below(100));
            let heard = chance.below(8) > 0;
            let write = Write(number);
            let (asked, outcome) = match chance.below(10) {
                0 | 1 => (Call::Upsert { write, copies: 1 }, Outcome::Stored),
                2 => (Call::Put { write, copies: 1 }, if there.is_some() { Outcome::Exists } else { Outcome::Stored }),
                3 => (Call::Remove, if there.is_some() { Outcome::Removed } else { Outcome::Absent }),
                _ => (Call::Get, there.map_or(Outcome::Absent, Outcome::Read)),
            };
            match (asked, &outcome) {
                (_, Outcome::Stored) => there = Some(write),
                (Call::Remove, _) => there = None,
                _ => {}
            }
            let outcome = if heard { outcome } else { Outcome::Failed("unheard".into()) };
            let (started, ended) = (ms(1000 + now - before), Some((ms(1000 + now + after), outcome)));
            history.push(Operation { client: 0, key: Key(0), call: asked, started, ended });
        }
        history
    }

    #[test]
    fn they_pass() {
        for seed in 0..500 {
            assert_eq!(judged(&history(seed), &[]).faults, [], "seed {seed}");
        }
    }

    #[test]
    fn an_old_value_in_a_late_read_is_found() {
        let mut found = 0;
        for seed in 0..500 {
            let mut history = history(seed);
            let first = history.iter().find_map(|call| match call.outcome() {
                Some(Outcome::Read(write)) => Some(*write),
                _ => None,
            });
            let (Some(first), Some(last)) = (first, history.iter_mut().rev().find(|call| call.call == Call::Get))
            else {
                continue;
            };
            last.ended = last.ended.take().map(|(end, _)| (end, Outcome::Read(first)));
            found += usize::from(judged(&history, &[]).count(FaultKind::Stale) > 0);
        }
        assert!(found > 450, "{found}");
    }
}
