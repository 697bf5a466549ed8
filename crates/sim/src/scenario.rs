//! What a seed stands for: how large the cluster is, how long its times are, what goes wrong and when.

use std::time::Duration;

use yb_catalog::CatalogSettings;
use yb_env::Rng;

use crate::plays::Play;

/// Helpers over the one source of chance.
pub trait Dice {
    /// True once in so many times.
    fn once_in(&mut self, times: u64) -> bool;
    /// A number of `low..=high`.
    fn between(&mut self, low: u64, high: u64) -> u64;
    /// A time of `low..=high` microseconds.
    fn micros(&mut self, low: u64, high: u64) -> Duration;
    /// A time of `low..=high` milliseconds.
    fn millis(&mut self, low: u64, high: u64) -> Duration {
        self.micros(low * 1000, high * 1000)
    }
}

impl Dice for Rng {
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times.max(1)) == 0
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    fn micros(&mut self, low: u64, high: u64) -> Duration {
        Duration::from_micros(self.between(low, high))
    }
}

/// A fault that a test plants in the simulator's own clients and nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slip {
    /// A reader does not look at its lease after the last byte.
    NoLeaseCheck,
    /// A writer ends its write before all its bytes are there.
    EndsEarly,
    /// A writer takes "busy" for success.
    BusyIsStored,
    /// A node lets writes run on when it is mounted again.
    WritesRunOn,
    /// A node confirms an extent without a look.
    ConfirmsAtOnce,
    /// A writer revokes quietly although bytes may be under way.
    QuietRegardless,
    /// A reader counts its lease from the answer, not from before the question.
    LeaseFromAnswer,
    /// A node says that it has struck out what it has not.
    StrikesLater,
    /// A client waits for the master without an end.
    NoDeadline,
}

/// What a node does for the time after its own end, and after its master's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing, as nodes of the peer.
    Plain,
    /// It keeps a directory.
    Directory,
    /// A directory, and memory in a file, which the next life takes over.
    File,
}

/// Sizes and times of one run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Nodes that lend memory.
    pub nodes: Vec<Kind>,
    /// Clients, each with some tasks.
    pub clients: usize,
    /// How many of them, the last ones, are as those of the peer: they name no write and say no more than they must.
    pub peers: usize,
    /// Calls that a client makes side by side.
    pub tasks: usize,
    /// Keys.
    pub keys: u8,
    /// Cells of a node's memory.
    pub cells: u32,
    /// Largest object, in cells.
    pub largest: u32,
    /// How long faults and work go on.
    pub busy: Duration,
    /// Mean pause of a task between two calls.
    pub pause: Duration,
    /// A fault about this often.
    pub fault_every: Duration,
    /// A connection breaks once in so many calls.
    pub breaks: u64,
    /// A node that starts again may find its memory at the old address.
    pub same_base: bool,
    /// What is played beside.
    pub play: Option<Play>,
    /// The master's settings.
    pub catalog: CatalogSettings,
    /// What a test plants in clients and nodes.
    pub slip: Option<Slip>,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn of(seed: u64, dice: &mut Rng) -> Scenario {
        // From a source of its own: what was added later changes nothing of what a seed stood for before.
        let mut later = Rng::seeded(seed ^ 0x7065_6572);
        let lease = dice.millis(600, 3000);
        let discard = dice.millis(3000, 6000);
        let catalog = CatalogSettings {
            lease_ttl: lease,
            discard_timeout: discard,
            release_timeout: discard + dice.millis(6000, 10_000),
            client_ttl: dice.millis(3000, 5000),
            client_suspicion_ttl: dice.millis(0, 4000),
            inline_eviction_budget: if dice.once_in(4) { 0 } else { 4096 },
            hash_seed: seed,
            first_replica_id: 1,
            ..CatalogSettings::default()
        };
        Scenario {
            nodes: (0..dice.between(1, 4)).map(|_| kind(dice)).collect(),
            clients: dice.between(2, 4) as usize,
            peers: usize::from(later.once_in(3)),
            tasks: dice.between(1, 3) as usize,
            keys: dice.between(2, 10) as u8,
            cells: dice.between(12, 48) as u32,
            largest: dice.between(2, 8) as u32,
            busy: dice.millis(15_000, 30_000),
            pause: dice.millis(40, 250),
            fault_every: dice.millis(700, 4000),
            breaks: dice.between(50, 400),
            same_base: false,
            play: None,
            catalog,
            slip: None,
        }
        .with_play(Play::of(&mut later), &mut later)
    }

    /// The same, with what a play needs.
    fn with_play(mut self, play: Option<Play>, dice: &mut Rng) -> Scenario {
        self.play = play;
        for node in 0..play.map_or(0, Play::nodes) {
            let kind = if dice.once_in(2) { Kind::Directory } else { Kind::File };
            match self.nodes.get_mut(node) {
                Some(known) => *known = kind,
                None => self.nodes.push(kind),
            }
        }
        if play.is_some() {
            self.busy = self.busy.max(dice.millis(26_000, 32_000));
        }
        self
    }
}

fn kind(dice: &mut Rng) -> Kind {
    match dice.below(3) {
        0 => Kind::Plain,
        1 => Kind::Directory,
        _ => Kind::File,
    }
}
