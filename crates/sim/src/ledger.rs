//! What the checkers know: every write with its places, what the pool shows under each key, what was promised to
//! readers, who was heard of. Kept from what passes at the master's door, never asked from the master's own books.

use std::collections::BTreeMap;
use std::time::Duration;

use yb_types::MonotonicTime;

use crate::calls::Key;
use crate::memory::{CELL, WriteId};
use crate::scenario::Scenario;

/// A place that a write was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// The node.
    pub node: usize,
    /// Its life.
    pub life: u32,
    /// Address.
    pub address: u64,
    /// Until when readers were promised the bytes here.
    pub promised: MonotonicTime,
    /// The master has given the segment up.
    pub lost: bool,
}

/// What is known of a write.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its key.
    pub key: Key,
    /// Its cells.
    pub cells: u32,
    /// Never evicted.
    pub pinned: bool,
    /// Its places, once it has some.
    pub spots: Vec<Spot>,
    /// When it became readable.
    pub published: Option<MonotonicTime>,
    /// Since when no new reader may get it.
    pub retired: Option<MonotonicTime>,
    /// Until when readers were promised its bytes, wherever.
    pub promised: MonotonicTime,
}

impl Record {
    /// The place of it that meets cells at an address of a node.
    pub fn meets(&self, node: usize, address: u64, cells: u32) -> Option<&Spot> {
        let (len, other) = (u64::from(self.cells) * CELL, u64::from(cells) * CELL);
        let meets = |spot: &&Spot| spot.address < address + other && address < spot.address + len;
        self.spots.iter().filter(|spot| spot.node == node).find(meets)
    }
}

/// What the pool shows under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Nothing.
    Nothing,
    /// An object that can be read.
    Readable(WriteId),
    /// An object whose nodes are silent: it may come back.
    Hidden(WriteId),
}

impl Shown {
    /// The write.
    pub fn write(self) -> Option<WriteId> {
        match self {
            Shown::Nothing => None,
            Shown::Readable(write) | Shown::Hidden(write) => Some(write),
        }
    }
}

/// What the master has heard of a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct Heard {
    /// The life that spoke.
    pub life: u32,
    /// When.
    pub at: MonotonicTime,
    /// Whether its memory is in the pool.
    pub mounted: bool,
}

/// All of it.
#[derive(Debug)]
pub struct Ledger {
    /// By number; the first is nobody's.
    pub writes: Vec<Record>,
    /// Of the present master.
    pub by_replica: BTreeMap<u64, WriteId>,
    /// By key.
    pub shown: Vec<Shown>,
    /// By node; of the present master.
    pub heard: Vec<Heard>,
    /// A client may be silent for so long.
    pub ttl: Duration,
    /// And for so long more.
    pub suspicion: Duration,
}

impl Ledger {
    /// Nothing is known.
    pub fn new(scenario: &Scenario) -> Ledger {
        let nobody = Record {
            key: Key(u8::MAX),
            cells: 0,
            pinned: false,
            spots: Vec::new(),
            published: None,
            retired: None,
            promised: MonotonicTime(0),
        };
        Ledger {
            writes: vec![nobody],
            by_replica: BTreeMap::new(),
            shown: vec![Shown::Nothing; usize::from(scenario.keys)],
            heard: vec![Heard::default(); scenario.nodes],
            ttl: scenario.catalog.client_ttl,
            suspicion: scenario.catalog.client_suspicion_ttl,
        }
    }

    /// A write is about to be asked for.
    pub fn new_write(&mut self, key: Key, cells: u32, pinned: bool) -> WriteId {
        let id = WriteId(self.writes.len() as u32);
        let (spots, published, retired, promised) = (Vec::new(), None, None, MonotonicTime(0));
        self.writes.push(Record { key, cells, pinned, spots, published, retired, promised });
        id
    }

    /// What is known of a write.
    pub fn record(&self, write: WriteId) -> &Record {
        &self.writes[write.0 as usize]
    }

    /// The same, to add to it.
    pub fn record_mut(&mut self, write: WriteId) -> &mut Record {
        &mut self.writes[write.0 as usize]
    }

    /// The master is gone, and with it its index. What readers were promised stays promised.
    pub fn master_died(&mut self, _now: MonotonicTime) {
        self.shown.iter_mut().for_each(|shown| *shown = Shown::Nothing);
    }

    /// Another master starts, and has heard of nobody.
    pub fn new_master(&mut self) {
        self.by_replica.clear();
        self.heard.iter_mut().for_each(|heard| *heard = Heard::default());
    }

    /// A sign of life of a node reached the master.
    pub fn hears(&mut self, node: usize, life: u32, at: MonotonicTime, mounted: Option<bool>) {
        let heard = &mut self.heard[node];
        // What an earlier life said comes too late to count.
        if heard.life > life {
            return;
        }
        if heard.life != life {
            *heard = Heard { life, at, mounted: false };
        }
        heard.at = heard.at.max(at);
        if let Some(mounted) = mounted {
            heard.mounted = mounted;
        }
        if mounted == Some(false) {
            let spots = self.writes.iter_mut().flat_map(|record| &mut record.spots);
            spots.filter(|spot| (spot.node, spot.life) == (node, life)).for_each(|spot| spot.lost = true);
        }
    }

    /// Whether the master was in its right to hold a place for silent for its client's time to live, and, `gone`, for the
    /// suspicion time on top.
    pub fn is_silent(&self, spot: &Spot, now: MonotonicTime, gone: bool) -> bool {
        let heard = &self.heard[spot.node];
        let patience = if gone { self.ttl + self.suspicion } else { self.ttl };
        spot.lost || heard.life != spot.life || !heard.mounted || now.since(heard.at) > patience
    }
}
