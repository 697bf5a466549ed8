//! Who was dead, stopped or cut off, and when.

use std::collections::BTreeSet;
use std::time::Duration;

use yb_types::MonotonicTime;

/// A process of the pool, or a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// The master.
    Master,
    /// A process that lends memory.
    Node(u32),
    /// A process that reads and writes.
    Client(u32),
}

/// What happened to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Harm {
    /// It ended, and what it held went with it.
    Death,
    /// It stood still.
    Pause,
    /// Its wires were cut, stalled or slow.
    Wire,
}

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Who.
    pub party: Party,
    /// What.
    pub harm: Harm,
    /// From before it began.
    pub from: MonotonicTime,
    /// Until after it was over: the process runs again, or another one in its place.
    pub until: MonotonicTime,
}

impl Trouble {
    /// Whether it falls into a time, ends included.
    pub fn meets(&self, from: MonotonicTime, until: MonotonicTime) -> bool {
        self.from <= until && from <= self.until
    }
}

/// All of them, in order of their begin.
#[derive(Clone, Debug, Default)]
pub struct Troubles(Vec<Trouble>);

impl Troubles {
    /// In any order.
    pub fn new(mut all: Vec<Trouble>) -> Troubles {
        all.sort_by_key(|trouble| trouble.from);
        Troubles(all)
    }

    /// All, in order of their begin.
    pub fn iter(&self) -> impl Iterator<Item = &Trouble> {
        self.0.iter()
    }

    /// Of nodes, of this kind, within a time.
    pub fn of_nodes(&self, harm: Harm, from: MonotonicTime, until: MonotonicTime) -> impl Iterator<Item = &Trouble> {
        let of_node = move |t: &&Trouble| matches!(t.party, Party::Node(_)) && t.harm == harm;
        self.0.iter().take_while(move |t| t.from <= until).filter(of_node).filter(move |t| t.meets(from, until))
    }

    /// How many nodes died within a time, each once.
    pub fn dead_nodes(&self, from: MonotonicTime, until: MonotonicTime) -> usize {
        self.of_nodes(Harm::Death, from, until).map(|t| t.party).collect::<BTreeSet<_>>().len()
    }

    /// How many nodes stood still or were cut off within a time, each once.
    pub fn nodes_away(&self, from: MonotonicTime, until: MonotonicTime) -> usize {
        let harms = [Harm::Pause, Harm::Wire].into_iter();
        harms.flat_map(|harm| self.of_nodes(harm, from, until)).map(|t| t.party).collect::<BTreeSet<_>>().len()
    }

    /// The deaths of the master that end after `from` and begin before `until`.
    pub fn master_deaths(&self, from: MonotonicTime, until: MonotonicTime) -> impl Iterator<Item = &Trouble> {
        let of_master = |t: &&Trouble| t.party == Party::Master && t.harm == Harm::Death;
        self.0.iter().take_while(move |t| t.from <= until).filter(of_master).filter(move |t| t.meets(from, until))
    }

    /// Whether a client stood still or was dead at some time within.
    pub fn of_client(&self, client: u32, from: MonotonicTime, until: MonotonicTime) -> bool {
        let mut all = self.0.iter().take_while(|t| t.from <= until);
        all.any(|t| t.party == Party::Client(client) && t.meets(from, until))
    }

    /// The end of the first stretch of `calm` that begins at `from` or later, in which neither master nor node had trouble.
    pub fn after_calm(&self, from: MonotonicTime, calm: Duration) -> MonotonicTime {
        let mut begin = from;
        for trouble in self.0.iter().filter(|t| !matches!(t.party, Party::Client(_))) {
            if trouble.until >= begin && trouble.from <= begin + calm {
                begin = trouble.until;
            }
        }
        begin + calm
    }
}
