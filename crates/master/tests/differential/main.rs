//! One sequence of operations, played to the peer's master and to ours: the same answers, except where a named rule says
//! otherwise. `YB_DIFFERENTIAL_SEED` and `YB_DIFFERENTIAL_OPS` choose another sequence and its length.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod answer;
mod masters;
mod op;
mod rules;
mod script;
mod side;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use answer::Answer;
use masters::{Master, Setup};
use op::{Key, Op};
use rules::{Pair, explain};
use script::{KEYS, Memory, NAMED_KEYS, Script};
use side::{OWNERS, Side};
use yb_env::Clock;
use yb_types::ReplicaType;

/// Read leases last this long.
const LEASE: Duration = Duration::from_millis(700);
/// Longer than a lease; two of them longer than the discard timeout of 2 s, one shorter.
const STEP: Duration = Duration::from_millis(1300);
/// Operations between two time steps. A count and not a time, so that a second play of a seed is the same game.
const BURST: u64 = 120;
/// What was asked in a burst that took longer is not judged: the machine was too busy, and a lease may have ended in it.
const BURST_MAX: Duration = Duration::from_millis(450);

/// Answers that differ, and no rule says why.
struct Difference {
    /// Which operation of the game.
    number: u64,
    text: String,
}

struct Game {
    ours: Side,
    theirs: Side,
    script: Script,
    tenants: usize,
    seen: BTreeMap<&'static str, u64>,
    /// Keys that a start named a group for, ever.
    ever_grouped: BTreeSet<Key>,
    /// Memory was mounted in this burst.
    mounted: bool,
    /// A segment was unmounted or asked to leave since the tasks were ended.
    sources_lost: bool,
    /// A look-up in this burst met a key that was being written.
    met_unfinished: bool,
    unexplained: Vec<Difference>,
    played: u64,
    segments_differ: bool,
    slow: u64,
    /// What was asked and answered lately.
    history: VecDeque<(Op, Vec<Answer>, Vec<Answer>)>,
}

/// Operations that the history keeps.
const HISTORY: usize = 400;

impl Game {
    fn start(&mut self) {
        for (segment, client) in OWNERS.into_iter().enumerate() {
            self.both(&Op::Mount { client, segment, broken: false });
        }
        for client in BTreeSet::from(OWNERS) {
            self.both(&Op::Remount { client });
        }
    }

    fn both(&mut self, op: &Op) -> (Vec<Answer>, Vec<Answer>) {
        (self.ours.play(op), self.theirs.play(op))
    }

    /// Plays one operation and answers what differs without a rule.
    fn turn(&mut self) -> Vec<Difference> {
        let op = self.script.next();
        self.mounted |= matches!(op, Op::Mount { .. } | Op::Remount { .. });
        self.sources_lost |= matches!(op, Op::Unmount { .. } | Op::Graceful { .. });
        self.prepare(&op);
        let (ours, theirs) = self.both(&op);
        self.played += 1;
        let mut unexplained = Vec::new();
        let mut parted = Vec::new();
        let mut tasks_differ = false;
        if ours.len() != theirs.len() {
            unexplained.push(format!("{}\n   ours   {ours:?}\n   theirs {theirs:?}", brief(&op)));
        }
        for (at, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let key = op.keys().get(at).copied();
            let anywhere = key.is_some_and(|key| key.number >= NAMED_KEYS);
            let placed = |answer: &Answer| match anywhere {
                true => answer.clone().anywhere(),
                false => answer.clone().named_only(is_anywhere),
            };
            let same = placed(ours) == placed(theirs);
            let memory = key.and_then(|key| self.script.memory.get(&key)).copied().unwrap_or_default();
            if same {
                // What is there after it differs: see the rule on upserts.
                let revoked = matches!(op, Op::Revoke { .. }) && memory.upserting && ours.succeeded();
                parted.extend(key.filter(|_| revoked));
                continue;
            }
            let upserting = self.script.memory.values().any(|memory| memory.upserting);
            let ever_grouped = match key {
                Some(key) => self.ever_grouped.contains(&key),
                None => !self.ever_grouped.is_empty(),
            };
            let some_leaving = self.script.some_leaving();
            tasks_differ |= op.is_of_tasks();
            self.segments_differ |= op.is_of_segments();
            let pair = Pair {
                op: &op,
                at,
                memory,
                upserting,
                mounted: self.mounted,
                ever_grouped,
                some_leaving,
                sources_lost: self.sources_lost,
                met_unfinished: self.met_unfinished,
                ours,
                theirs,
            };
            match explain(&pair) {
                _ if pair.placed_elsewhere() => parted.extend(key),
                Some(rule) => {
                    *self.seen.entry(rule.name).or_default() += 1;
                    parted.extend(self.touched(&op, at).into_iter().filter(|_| rule.parts));
                }
                None => {
                    let who = format!("{} [{at}]\n   {key:?} {memory:?}", brief(&op));
                    let before = self.before(key);
                    unexplained.push(format!("{who}\n   ours   {ours:?}\n   theirs {theirs:?}\n{before}"));
                    parted.extend(self.touched(&op, at));
                }
            }
        }
        self.remember(&op, &ours);
        tasks_differ |= matches!(op, Op::CreateTask { .. }) && !self.last_task_is_the_same();
        self.history.push_back((op, ours, theirs));
        while self.history.len() > HISTORY {
            self.history.pop_front();
        }
        if tasks_differ {
            self.end_tasks();
        }
        for key in parted {
            self.clear(key);
        }
        let number = self.played;
        unexplained.into_iter().map(|text| Difference { number, text }).collect()
    }

    fn end_tasks(&mut self) {
        self.ours.end_tasks();
        self.theirs.end_tasks();
        self.sources_lost = false;
    }

    /// Whether both gave the task that was made last to the same client: each may take any replica as its source.
    fn last_task_is_the_same(&mut self) -> bool {
        let (ours, theirs) = self.both(&Op::QueryTask { task: self.script.tasks - 1 });
        ours == theirs
    }

    /// The keys that the answer at this place is about.
    fn touched(&self, op: &Op, at: usize) -> Vec<Key> {
        let all = |tenant: usize| (0..KEYS).map(move |number| Key { tenant, number });
        match op {
            Op::Clear { keys, .. } => keys.clone(),
            Op::Regex { tenant, .. } | Op::RemoveRegex { tenant, .. } | Op::RemoveAll { tenant, .. } => {
                all(*tenant).collect()
            }
            _ => op.keys().get(at).copied().into_iter().collect(),
        }
    }

    /// What was done lately to this key, or to everything.
    fn before(&self, key: Option<Key>) -> String {
        let touches = |op: &Op| match key {
            Some(key) => op.keys().contains(&key) || op.is_about_all(),
            None => op.keys().is_empty() || op.is_of_tasks(),
        };
        let told = self
            .history
            .iter()
            .rev()
            .filter(|(op, ..)| touches(op))
            .take(number("YB_DIFFERENTIAL_HISTORY", 12) as usize);
        told.map(|(op, ours, theirs)| format!("      {}\n         {ours:?}\n         {theirs:?}\n", brief(op)))
            .collect()
    }

    /// Objects that lie anywhere lie elsewhere on each side; a segment that goes would take others.
    fn prepare(&mut self, op: &Op) {
        if matches!(op, Op::Unmount { .. } | Op::Graceful { .. }) {
            for tenant in 0..self.tenants {
                (NAMED_KEYS..KEYS).for_each(|number| self.clear(Key { tenant, number }));
            }
        }
    }

    fn remember(&mut self, op: &Op, ours: &[Answer]) {
        if let Op::Start { keys, config, .. } = op
            && config.group_ids.is_some()
        {
            self.ever_grouped.extend(keys.iter().copied());
        }
        if let Op::AdminGet { keys, .. } = op {
            for key in keys {
                self.script.memory.entry(*key).or_default().shown_to_admin = true;
            }
        }
        if let Op::Get { keys, .. } | Op::Exist { keys, .. } | Op::Probe { keys, .. } | Op::AdminGet { keys, .. } = op {
            let unfinished = |answer: &Answer| answer.is_code(yb_types::ErrorCode::REPLICA_IS_NOT_READY);
            for (key, _) in keys.iter().zip(ours).filter(|(_, answer)| unfinished(answer)) {
                self.script.memory.entry(*key).or_default().met_unfinished = true;
                self.met_unfinished = true;
            }
        }
        for (at, _) in ours.iter().enumerate().filter(|(_, answer)| answer.succeeded()) {
            let Some(key) = op.keys().get(at) else { continue };
            let memory = self.script.memory.entry(*key).or_default();
            match op {
                Op::Start { client, write, config, .. } => {
                    (memory.met_unfinished, memory.shifting) = (false, false);
                    memory.writer = *client;
                    memory.copies = memory.copies.max(config.replica_num as usize);
                    memory.grouped = config.group_ids.as_ref().is_some_and(|groups| !groups[at].is_empty());
                    memory.upserting = *write == op::Write::Upsert;
                }
                Op::End { which, .. } if [ReplicaType::ALL, ReplicaType::MEMORY].contains(which) => {
                    memory.upserted |= memory.upserting;
                    memory.upserting = false;
                }
                Op::Remove { .. } => *memory = Memory { writer: memory.writer, ..Memory::default() },
                Op::ShiftStart { client, .. } => {
                    (memory.shifter, memory.copies, memory.shifting) = (*client, OWNERS.len(), true);
                }
                Op::ShiftEnd { .. } => memory.shifting = false,
                _ => {}
            }
        }
    }

    fn clear(&mut self, key: Key) {
        self.ours.clear(key);
        self.theirs.clear(key);
        self.script.memory.remove(&key);
    }

    /// One burst; what differs in it without a rule.
    fn burst(&mut self, clock: &Clock, left: &mut u64) {
        for client in BTreeSet::from(OWNERS) {
            self.both(&Op::Ping { client });
        }
        (self.mounted, self.met_unfinished) = (false, false);
        let begin = clock.now();
        let mut unexplained = Vec::new();
        let turns = BURST.min(*left);
        for _ in 0..turns {
            unexplained.extend(self.turn());
        }
        *left -= turns;
        if clock.now().since(begin) < BURST_MAX {
            self.unexplained.extend(unexplained);
            return;
        }
        self.slow += 1;
        eprintln!("a burst took too long and is not judged");
        for tenant in 0..self.tenants {
            (0..KEYS).for_each(|number| self.clear(Key { tenant, number }));
        }
        self.segments_differ = true;
    }

    /// After a time step: every segment is mounted anew on both sides if they may have parted over segments.
    fn settle(&mut self) {
        self.script.time_passed();
        if std::mem::take(&mut self.segments_differ) {
            // A task whose segment goes ends here; the peer still hands it out.
            self.end_tasks();
            for (segment, client) in OWNERS.into_iter().enumerate() {
                self.both(&Op::Unmount { client, segment });
            }
            yb_env::sleep(STEP);
            for (segment, client) in OWNERS.into_iter().enumerate() {
                self.both(&Op::Mount { client, segment, broken: false });
            }
        }
    }
}

fn is_anywhere(key: &str) -> bool {
    (NAMED_KEYS..KEYS).any(|number| Key { tenant: 0, number }.bytes() == key.as_bytes())
}

/// The operation without what is as always.
fn brief(op: &Op) -> String {
    let mut text = format!("{op:?}");
    let plain = yb_types::ReplicateConfig::default();
    for part in format!("{plain:?}").trim_start_matches("ReplicateConfig { ").trim_end_matches(" }").split(", ") {
        if !part.starts_with("replica_num") {
            text = text.replace(&format!(", {part}"), "");
        }
    }
    text
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// One game from fresh masters; `None` without the peer.
fn game(setup: &Setup, seed: u64, operations: u64) -> Option<Vec<Difference>> {
    let theirs = Master::peer(setup)?;
    let ours = Master::ours(setup);
    let mut game = Game {
        ours: Side::new(ours.address(), setup.version, setup.tenants),
        theirs: Side::new(theirs.address(), setup.version, setup.tenants),
        script: Script::new(seed, setup.tenants.len(), setup.version >= yb_types::WireVersion::V0_3_14),
        tenants: setup.tenants.len(),
        seen: BTreeMap::new(),
        ever_grouped: BTreeSet::new(),
        mounted: false,
        sources_lost: false,
        met_unfinished: false,
        unexplained: Vec::new(),
        played: 0,
        segments_differ: false,
        slow: 0,
        history: VecDeque::new(),
    };
    game.start();
    // Memory that was remounted rests on our side for the first lease of the master.
    yb_env::sleep(LEASE);
    let clock = Clock::real();
    let mut left = operations;
    while left > 0 {
        game.burst(&clock, &mut left);
        yb_env::sleep(STEP);
        game.settle();
    }
    eprintln!("{} operations, {} bursts not judged; by rule: {:#?}", game.played, game.slow, game.seen);
    Some(game.unexplained)
}

/// How often a game is played at most.
const PLAYS: usize = 3;

/// A difference counts when every play of the same game shows it: the peer's background threads and a busy machine make
/// a lease or a sweep fall on the other side of a question now and then.
fn play(setup: &Setup) {
    let seed = number("YB_DIFFERENTIAL_SEED", setup.seed);
    let operations = number("YB_DIFFERENTIAL_OPS", 3000);
    eprintln!("{}: seed {seed}, {operations} operations", setup.version);
    let Some(mut differences) = game(setup, seed, operations) else { return };
    let told = |differences: &[Difference]| {
        differences.iter().take(40).map(|it| format!("{}: {}", it.number, it.text)).collect::<Vec<_>>().join("\n")
    };
    for _ in 1..PLAYS {
        let Some(last) = differences.iter().map(|it| it.number).max() else { return };
        eprintln!("{} answers differ without a rule; once more:\n{}", differences.len(), told(&differences));
        let again = game(setup, seed, last).unwrap_or_default();
        differences.retain(|it| again.iter().any(|other| other.number == it.number));
    }
    let count = differences.len();
    assert!(differences.is_empty(), "{count} answers differ without a rule, seed {seed}:\n{}", told(&differences));
}

#[test]
fn one_tenant_as_0_3_13() {
    play(&Setup { version: yb_types::WireVersion::V0_3_13, tenants: &["default"], many_tenants: false, seed: 1 });
}

#[test]
fn one_tenant_as_0_3_14() {
    play(&Setup { version: yb_types::WireVersion::V0_3_14, tenants: &["default"], many_tenants: false, seed: 2 });
}

/// Registered, registered, not registered, no tenant's name.
#[test]
fn many_tenants_as_0_3_13() {
    let tenants = &["default", "second", "nobody", "_wrong"];
    play(&Setup { version: yb_types::WireVersion::V0_3_13, tenants, many_tenants: true, seed: 3 });
}

#[test]
fn every_rule_is_in_the_docs() {
    let page =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/master-differences.md")).unwrap();
    for rule in rules::RULES {
        assert!(page.contains(&format!("| `{}` |", rule.name)), "{} is not in docs/master-differences.md", rule.name);
    }
}
