//! The cluster: who is there, what happens next, and the one source of chance.
//!
//! One thread, no clock but the agenda's. Everything that happens is an [`Event`]; the same seed brings the same events.

use std::collections::BTreeSet;
use std::time::Duration;

use yb_env::{Clock, Rng};
use yb_master::{BareMaster, MasterConfig};
use yb_types::{ClientId, MonotonicTime, SegmentId};

use crate::agenda::Agenda;
use crate::calls::{Ask, Said};
use crate::directory::Directory;
use crate::ledger::Ledger;
use crate::log::Log;
use crate::net::Net;
use crate::parties::{Beat, Client, Doing, Keeper, LocalClock, Move, Node, Party, Process, Task};
use crate::plays::Scene;
use crate::reading::Failed;
use crate::scenario::{Dice, Kind, Scenario};

/// What can happen.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// A task goes on.
    Wake { client: usize, life: u32, task: usize, step: u32 },
    /// A request reaches the master.
    Reaches(usize),
    /// The answer of a request reaches its caller.
    Heard(usize),
    /// The time of a request is over.
    CallOver(usize),
    /// The master notices that a connection has ended; in that life of it.
    HungUp { connection: u32, master_life: u32 },
    /// The caller notices that the connection of a request is gone.
    CallBroken(usize),
    /// The janitor of a life of the master.
    Janitor(u32),
    /// The heartbeat of a node.
    Beat { node: usize, life: u32 },
    /// The keeper of a node's directory asks.
    Keep { node: usize, life: u32 },
    /// What it noted is on the disk.
    Written { node: usize, life: u32 },
    /// A client sends a piece of a transfer.
    Send { of: usize, piece: u32 },
    /// A piece, or the question for all of them, arrives at the node.
    Arrives { of: usize, piece: u32 },
    /// The client hears that the transfer is over.
    Came(usize),
    /// The client notices that the transfer failed.
    Broke(usize, Failed),
    /// The time of a transfer is over.
    MoveOver(usize),
    /// Something goes wrong.
    Fault,
    /// A scene of the play.
    Play(Scene),
    /// A process that died starts again.
    Back(Party),
}

/// Who asked the master.
#[derive(Clone, Copy, Debug)]
pub enum Caller {
    /// The heartbeat of a node.
    Node(usize, u32),
    /// The keeper of its directory.
    Keeper(usize, u32),
    /// A task of a client.
    Task { client: usize, life: u32, task: usize, step: u32 },
}

impl Caller {
    /// The process.
    pub fn party(self) -> Party {
        match self {
            Caller::Node(node, _) | Caller::Keeper(node, _) => Party::Node(node),
            Caller::Task { client, .. } => Party::Client(client),
        }
    }
}

/// A request to the master.
pub struct CallUnderWay {
    /// Who asked.
    pub from: Caller,
    /// Under which name.
    pub id: ClientId,
    /// What.
    pub ask: Ask,
    /// As it travels.
    pub bytes: (u32, Vec<u8>),
    /// The life of the master that it was sent to.
    pub master_life: u32,
    /// Over which connection.
    pub connection: u32,
    /// The answer, once given.
    pub said: Option<Said>,
    /// The caller waits for it.
    pub open: bool,
    /// It is itself a repetition.
    pub repeated: bool,
    /// When it must be over, by the world's clock.
    pub until: MonotonicTime,
}

/// The master.
pub struct MasterSite {
    /// Its process.
    pub process: Process,
    /// Its functions and its catalog, in this life.
    pub bare: Option<BareMaster>,
    /// Its clock, which is the world's.
    pub clock: Clock,
}

/// A rule that did not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// When, in milliseconds of the run.
    pub at_ms: u64,
    /// What.
    pub what: String,
}

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Events.
    pub events: u64,
    /// Reads that gave bytes.
    pub right: u64,
    /// Reads that found nothing.
    pub missing: u64,
    /// Reads that failed in any other way.
    pub failed: u64,
    /// Writes that were stored.
    pub stored: u64,
    /// Writes that were not, or not needed.
    pub unstored: u64,
    /// Objects that were evicted.
    pub evicted: u64,
    /// Objects that a master learned from directories.
    pub relearned: u64,
    /// Faults.
    pub faults: u64,
    /// A number over all that happened.
    pub digest: u64,
}

/// The cluster.
pub struct World {
    pub(crate) now: MonotonicTime,
    pub(crate) began: MonotonicTime,
    pub(crate) dice: Rng,
    pub(crate) scenario: Scenario,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) net: Net,
    pub(crate) master: MasterSite,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    pub(crate) calls: Vec<CallUnderWay>,
    pub(crate) moves: Vec<Move>,
    pub(crate) ledger: Ledger,
    pub(crate) log: Log,
    /// Connections so far, and those of which the master knows that they have ended.
    pub(crate) connections: u32,
    pub(crate) hung_up: BTreeSet<u32>,
    pub(crate) broken: Option<Broken>,
    pub(crate) tally: Tally,
    /// No more faults, no more work: what was begun is brought to its end.
    pub(crate) quiet: bool,
    /// Until then clients remove much.
    pub(crate) removes_until: MonotonicTime,
}

impl World {
    /// The cluster of a scenario, about to start.
    pub fn new(scenario: Scenario, mut dice: Rng, log: Log) -> World {
        let clock = Clock::manual();
        let now = clock.now();
        let clients = (0..scenario.clients).map(|index| client(index, &mut dice, &scenario)).collect();
        let process = Process { life: 0, alive: false, stopped_until: now, clock: true_clock() };
        let net = Net::new(scenario.nodes.len(), scenario.clients, now);
        let ledger = Ledger::new(&scenario);
        let mut world = World {
            now,
            began: now,
            dice,
            agenda: Agenda::default(),
            net,
            master: MasterSite { process, bare: None, clock },
            nodes: Vec::new(),
            clients,
            calls: Vec::new(),
            moves: Vec::new(),
            ledger,
            log,
            connections: 0,
            hung_up: BTreeSet::new(),
            broken: None,
            tally: Tally::default(),
            quiet: false,
            removes_until: MonotonicTime(0),
            scenario,
        };
        world.start_master();
        for (index, kind) in world.scenario.nodes.clone().into_iter().enumerate() {
            let node = world.new_node(index, kind);
            world.nodes.push(node);
            world.start_node(index);
        }
        for client in 0..world.clients.len() {
            world.start_tasks(client);
        }
        let first = world.dice.millis(500, 3000);
        world.after(first, Event::Fault);
        world.open_play();
        world
    }

    /// Runs until the end of the scenario, or until a rule does not hold.
    pub fn run(mut self) -> (Tally, Option<Broken>, Log) {
        let end = self.began + self.scenario.busy;
        self.run_until(end);
        if self.broken.is_none() {
            self.come_to_rest();
        }
        self.tally.digest = self.log.digest();
        (self.tally, self.broken, self.log)
    }

    pub(crate) fn run_until(&mut self, end: MonotonicTime) {
        while self.broken.is_none() {
            let Some((at, event)) = self.agenda.pop() else { break };
            if at > end {
                self.agenda.add(at, event);
                self.advance(end);
                return;
            }
            self.advance(at);
            self.tally.events += 1;
            self.happens(event);
        }
    }

    fn advance(&mut self, at: MonotonicTime) {
        if at > self.now {
            self.master.clock.advance(at.since(self.now));
            self.now = at;
        }
    }

    pub(crate) fn after(&mut self, wait: Duration, event: Event) {
        self.agenda.add(self.now + wait, event);
    }

    /// Milliseconds since the start of the run.
    pub(crate) fn ms(&self) -> u64 {
        self.now.since(self.began).as_millis() as u64
    }

    pub(crate) fn note(&mut self, what: impl FnOnce() -> String) {
        let at = self.now.since(self.began);
        self.log.note(at, what);
    }

    pub(crate) fn fail(&mut self, what: String) {
        if self.broken.is_none() {
            let at_ms = self.ms();
            self.note(|| format!("BROKEN: {what}"));
            self.broken = Some(Broken { at_ms, what });
        }
    }

    pub(crate) fn process(&self, party: Party) -> &Process {
        match party {
            Party::Master => &self.master.process,
            Party::Node(node) => &self.nodes[node].process,
            Party::Client(client) => &self.clients[client].process,
        }
    }

    pub(crate) fn process_mut(&mut self, party: Party) -> &mut Process {
        match party {
            Party::Master => &mut self.master.process,
            Party::Node(node) => &mut self.nodes[node].process,
            Party::Client(client) => &mut self.clients[client].process,
        }
    }

    /// If the process stands still, the event waits until it goes on. A little chance mixes what waited.
    pub(crate) fn stands_still(&mut self, party: Party, event: Event) -> bool {
        let until = self.process(party).stopped_until;
        if until <= self.now {
            return false;
        }
        let at = until + self.dice.micros(0, 2000);
        self.agenda.add(at, event);
        true
    }

    /// The time on the clock of a process.
    pub(crate) fn local(&self, party: Party) -> MonotonicTime {
        self.process(party).clock.now(self.now)
    }

    fn happens(&mut self, event: Event) {
        self.log.digest_event(self.now, &event);
        match event {
            Event::Wake { client, life, task, step } => {
                if self.is_current(client, life, task, step) && !self.stands_still(Party::Client(client), event) {
                    self.wake(client, task);
                }
            }
            Event::Reaches(call) => self.reaches_master(call),
            Event::Heard(call) => self.heard(call),
            Event::CallOver(call) => self.call_over(call),
            Event::HungUp { connection, master_life } => self.hung_up(connection, master_life),
            Event::CallBroken(call) => self.call_broken(call),
            Event::Janitor(life) => self.janitor(life),
            Event::Beat { node, life } => self.beat(node, life),
            Event::Keep { node, life } => self.keep(node, life),
            Event::Written { node, life } => self.written(node, life),
            Event::Send { of, piece } => self.send_piece(of, piece),
            Event::Arrives { of, piece } => self.piece_arrives(of, piece),
            Event::Came(of) => self.move_came(of),
            Event::Broke(of, how) => self.move_broke(of, how),
            Event::MoveOver(of) => self.move_over(of),
            Event::Fault => self.fault(),
            Event::Play(scene) => self.play(scene),
            Event::Back(party) => self.back(party),
        }
    }

    /// Whether a task still waits at this step.
    pub(crate) fn is_current(&self, client: usize, life: u32, task: usize, step: u32) -> bool {
        let known = &self.clients[client];
        known.process.alive && known.process.life == life && known.tasks[task].step == step
    }

    pub(crate) fn start_master(&mut self) {
        // Each master numbers from its time of day on, so above all before it.
        let (hash_seed, first) = (self.dice.next_u64(), (1_000_000_000 + self.ms()) << 20);
        let mut catalog = self.scenario.catalog.clone();
        (catalog.hash_seed, catalog.first_replica_id) = (hash_seed, first);
        let config = MasterConfig {
            catalog,
            clock: self.master.clock.clone(),
            dial_back: None,
            admin: None,
            ..MasterConfig::embedded()
        };
        let seed = self.dice.next_u64();
        let life = self.master.process.life + 1;
        match BareMaster::new(&config, seed) {
            Ok(bare) => {
                self.master.process = Process { life, alive: true, stopped_until: self.now, clock: true_clock() };
                self.master.bare = Some(bare);
            }
            Err(error) => return self.fail(format!("the master does not start: {error}")),
        }
        self.note(|| format!("master {life} starts"));
        self.ledger.new_master(life, self.now);
        let first = self.dice.millis(1, 50);
        self.after(first, Event::Janitor(life));
    }

    /// A node of an index, in its next life.
    pub(crate) fn new_node(&mut self, index: usize, kind: Kind) -> Node {
        let endpoint = format!("10.0.0.{}:7000", index + 1);
        Node {
            process: Process { life: 0, alive: false, stopped_until: self.now, clock: clock(&mut self.dice) },
            id: ClientId::default(),
            segment: yb_types::Segment {
                name: endpoint.clone(),
                te_endpoint: endpoint.clone(),
                protocol: "tcp".to_owned(),
                ..yb_types::Segment::default()
            },
            endpoint,
            memories: Vec::new(),
            memory_of: Vec::new(),
            kind,
            directory: Directory::default(),
            keeper: Keeper::default(),
            beat: Beat::Joining,
            was_known: false,
            was_lent: false,
            questions: crate::quiesce::Questions::default(),
        }
    }

    pub(crate) fn start_node(&mut self, index: usize) {
        let clock = clock(&mut self.dice);
        // A file that is of no use any more (another start of the host, another size) is begun anew.
        let takes_over = self.nodes[index].is_kept() && self.nodes[index].memory().is_some() && !self.dice.once_in(8);
        if !takes_over {
            self.new_memory(index);
        }
        let now = self.now;
        let node = &mut self.nodes[index];
        let life = node.process.life + 1;
        node.process = Process { life, alive: true, stopped_until: now, clock };
        node.memory_of.push(node.memories.len() as u32);
        (node.beat, node.was_known, node.questions) = (Beat::Joining, false, crate::quiesce::Questions::default());
        node.keeper = Keeper::default();
        let (base, was_lent) = (node.segment.base, if takes_over { ", taken over" } else { "" });
        node.was_lent = takes_over;
        self.note(|| format!("node {index} starts its life {life} at {base:#x}{was_lent}"));
        self.after(Duration::from_millis(1), Event::Beat { node: index, life });
    }

    /// A node with memory that nobody knows.
    fn new_memory(&mut self, index: usize) {
        let (id, segment) = (ClientId(self.dice.uuid()), SegmentId(self.dice.uuid()));
        // A process that starts again sometimes finds its memory at the old address.
        let same = self.scenario.same_base && self.dice.once_in(2) && !self.nodes[index].memories.is_empty();
        let fresh = (1 + self.dice.below(1 << 18)) << 24;
        let cells = self.scenario.cells;
        let node = &mut self.nodes[index];
        let base = node.memory().filter(|_| same).map_or(fresh, |memory| memory.base);
        let memory = crate::memory::Memory::new(base, cells);
        (node.id, node.segment.id, node.segment.base, node.segment.size) = (id, segment, base, memory.size());
        node.memories.push(memory);
        node.directory = Directory::default();
    }

    pub(crate) fn start_tasks(&mut self, client: usize) {
        self.clients[client].under_way.fill(0);
        self.new_connection(client);
        let life = self.clients[client].process.life;
        for task in 0..self.clients[client].tasks.len() {
            let step = self.clients[client].tasks[task].step;
            let wait = self.dice.millis(1, 300);
            self.after(wait, Event::Wake { client, life, task, step });
        }
    }
}

fn true_clock() -> LocalClock {
    LocalClock { ahead: Duration::ZERO, ppm: 0 }
}

/// A clock as machines have them: any time, and up to 300 millionths wrong.
pub(crate) fn clock(dice: &mut Rng) -> LocalClock {
    LocalClock { ahead: dice.millis(0, 1_000_000), ppm: dice.below(601) as i64 - 300 }
}

pub(crate) fn client(index: usize, dice: &mut Rng, scenario: &Scenario) -> Client {
    let task = || Task { doing: Doing::Nothing, step: 0, must_end: MonotonicTime(0) };
    Client {
        process: Process { life: 1, alive: true, stopped_until: MonotonicTime(0), clock: clock(dice) },
        id: ClientId(dice.uuid()),
        is_peers: index + scenario.peers >= scenario.clients,
        connection: 0,
        attended: None,
        under_way: vec![0; usize::from(scenario.keys)],
        tasks: (0..scenario.tasks).map(|_| task()).collect(),
        suspects: Vec::new(),
    }
}
