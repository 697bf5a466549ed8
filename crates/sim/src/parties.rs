//! Processes: what they know, what they are in the middle of.

use std::time::Duration;

use yb_types::{ClientId, MonotonicTime, ReplicaId, Segment};

use crate::calls::{Key, Place, Start};
use crate::directory::Directory;
use crate::memory::{Mark, Memory, WriteId};
use crate::quiesce::Questions;
use crate::reading::{Failed, Reading};
use crate::scenario::Kind;
use crate::writing::Writing;

/// Who is at one end of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Party {
    /// The master.
    Master,
    /// A node.
    Node(usize),
    /// A client.
    Client(usize),
}

/// A clock of a process: it is off by some time, runs a little wrong, and may jump ahead.
#[derive(Clone, Copy, Debug)]
pub struct LocalClock {
    /// Ahead by so much.
    pub ahead: Duration,
    /// Too fast by so many millionths.
    pub ppm: i64,
}

impl LocalClock {
    /// What it shows.
    pub fn now(&self, time: MonotonicTime) -> MonotonicTime {
        let wrong = i128::from(time.0) * i128::from(self.ppm) / 1_000_000;
        MonotonicTime((i128::from(time.0) + wrong).max(0) as u64) + self.ahead
    }
}

/// Life and standing of a process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Counts its starts; what began in an earlier life concerns nobody.
    pub life: u32,
    /// Whether it runs.
    pub alive: bool,
    /// Stopped until then.
    pub stopped_until: MonotonicTime,
    /// Its clock.
    pub clock: LocalClock,
}

/// Where the heartbeat of a node stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Its memory is not in the pool yet.
    Joining,
    /// Between two pings.
    Resting,
    /// Waits for an answer.
    Asking,
}

/// What the keeper of a node does when what it noted is on the disk.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    /// It asks again; whether there was anything new.
    Rest(bool),
    /// It tells the page that begins there.
    Page(u64),
    /// It says that it has told all.
    Last,
}

/// Where the keeper of a node stands.
#[derive(Clone, Copy, Debug)]
pub struct Keeper {
    /// It has begun.
    pub runs: bool,
    /// It has asked, or writes.
    pub is_busy: bool,
    /// Whether the directory was in doubt when it asked.
    pub doubted: bool,
    /// The pause before it asks again.
    pub pause: Duration,
    /// The master that told what the directory has.
    pub told_by: u64,
    /// The one that wants to hear it.
    pub master: u64,
    /// Where the next page begins.
    pub next_page: Option<u64>,
    /// What comes after the disk.
    pub next: Next,
}

impl Default for Keeper {
    fn default() -> Self {
        let (pause, next) = (Duration::ZERO, Next::Rest(false));
        let (runs, is_busy, doubted) = (false, false, false);
        Keeper { runs, is_busy, doubted, pause, told_by: 0, master: 0, next_page: None, next }
    }
}

/// A node.
pub struct Node {
    /// Its process.
    pub process: Process,
    /// Who it is in this life.
    pub id: ClientId,
    /// Where it serves; the same in each life.
    pub endpoint: String,
    /// What it lends in this life.
    pub segment: Segment,
    /// Memory of each life that had its own: whoever has it mapped sees it on.
    pub memories: Vec<Memory>,
    /// By life, the number of its memory, from 1.
    pub memory_of: Vec<u32>,
    /// What it does for the next life, and for the next master.
    pub kind: Kind,
    /// What lies in its memory.
    pub directory: Directory,
    /// Who keeps that.
    pub keeper: Keeper,
    /// Heartbeat.
    pub beat: Beat,
    /// Whether a ping of this life was answered.
    pub was_known: bool,
    /// An earlier life lent the same memory.
    pub was_lent: bool,
    /// What the master wants to know.
    pub questions: Questions,
}

impl Node {
    /// The memory of this life.
    pub fn memory(&self) -> Option<&Memory> {
        self.memories.last()
    }

    /// The number of the memory that a life had.
    pub fn memory_of(&self, life: u32) -> u32 {
        self.memory_of.get(life as usize - 1).copied().unwrap_or_default()
    }

    /// Whether its memory outlives its process. Nobody else has such memory mapped.
    pub fn is_kept(&self) -> bool {
        self.kind == Kind::File
    }
}

/// What a task of a client is in the middle of.
pub enum Doing {
    /// Between two calls.
    Nothing,
    /// A read.
    Get(Box<Get>),
    /// A write.
    Put(Box<Put>),
    /// Asks whether a key exists, or wants it removed.
    Simple,
}

/// A read under way.
pub struct Get {
    /// What is read.
    pub key: Key,
    /// What to do next.
    pub plan: Reading,
    /// When the call began, by the world's clock.
    pub began: MonotonicTime,
    /// Places of the last lookup.
    pub places: Vec<Place>,
    /// Marks that arrived.
    pub got: Vec<Mark>,
    /// When the last lookup was sent, by the client's clock.
    pub asked: MonotonicTime,
}

/// A write under way.
pub struct Put {
    /// What is written, and how.
    pub start: Start,
    /// What to do next.
    pub plan: Writing,
    /// By what the present reservation is named to the master.
    pub name: Option<ReplicaId>,
    /// Transfers of the present reservation, and how each ended.
    pub moves: Vec<(usize, Option<Option<Failed>>)>,
}

/// A thread of a client.
pub struct Task {
    /// What it does.
    pub doing: Doing,
    /// Grows with each step: answers to earlier steps are for nobody.
    pub step: u32,
    /// When the call that is under way must be over, by the world's clock.
    pub must_end: MonotonicTime,
}

/// A client.
pub struct Client {
    /// Its process.
    pub process: Process,
    /// Who it is in this life.
    pub id: ClientId,
    /// Whether it is as those of the peer.
    pub is_peers: bool,
    /// The connection over which it asks the master.
    pub connection: u32,
    /// When it attended last, by its clock.
    pub attended: Option<MonotonicTime>,
    /// By key: its requests about a write of it that may still reach the master.
    pub under_way: Vec<u32>,
    /// Its threads.
    pub tasks: Vec<Task>,
    /// Nodes that failed, and until when they are asked last, by the client's clock.
    pub suspects: Vec<(usize, MonotonicTime)>,
}

/// One transfer between a client and a node.
pub struct Move {
    /// The client.
    pub client: usize,
    /// Its life.
    pub client_life: u32,
    /// Its task.
    pub task: usize,
    /// The step of the task that waits for it.
    pub step: u32,
    /// The node.
    pub node: usize,
    /// Its life.
    pub node_life: u32,
    /// The number of its memory.
    pub memory: u32,
    /// Over shared memory.
    pub mapped: bool,
    /// Written, or read.
    pub write: Option<WriteId>,
    /// Where.
    pub address: u64,
    /// Cells.
    pub cells: u32,
    /// In so many pieces.
    pub pieces: u32,
    /// Pieces that the node has taken or given.
    pub taken: u32,
    /// Until when the client waits, by its clock.
    pub until: MonotonicTime,
    /// The client waits for it no more.
    pub left: bool,
    /// The connection is gone: nothing of it arrives any more.
    pub cut: bool,
    /// Bytes lie at the node that it has not looked at.
    pub unread: bool,
    /// When the last piece that was sent arrives: the next comes after it.
    pub last_arrival: MonotonicTime,
    /// Pieces on their way to the node.
    pub in_flight: u32,
}

impl Move {
    /// The cells of a piece.
    pub fn part(&self, piece: u32) -> (u32, u32) {
        (self.cells * piece / self.pieces, self.cells * (piece + 1) / self.pieces)
    }

    /// Whether bytes of it can still be written, by what has been sent and what its client, at this time of its clock, may
    /// still send: it looks at its deadline before each piece.
    pub fn may_write(&self, now: MonotonicTime) -> bool {
        let goes_on = !self.left && now < self.until;
        self.write.is_some() && !self.cut && self.taken < self.pieces && (goes_on || self.in_flight > 0)
    }
}
