//! What the checkers know: every write with its places, what the pool shows under each key, what was promised to
//! readers, who was heard of. Kept from what passes at the master's door, never asked from the master's own books.

use std::collections::BTreeMap;
use std::time::Duration;

use yb_types::MonotonicTime;

use crate::calls::Key;
use crate::memory::{CELL, WriteId};
use crate::scenario::{Kind, Scenario};

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
    /// Writer or node said that nothing of the write is under way here.
    pub quiet: bool,
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
    /// Its number at the master, once it has places.
    pub generation: u64,
    /// When it got them, and in which life of the master.
    pub reserved: (MonotonicTime, u32),
    /// When it became readable.
    pub published: Option<MonotonicTime>,
    /// Since when no new reader may get it.
    pub retired: Option<MonotonicTime>,
    /// The life of the master under which it was retired.
    pub retired_under: u32,
    /// When, by the time that the master counts.
    pub retired_at: Duration,
    /// Term and number of a roster that no node is in that still keeps it. Nobody who hears of that one, or of a later one, may
    /// find it again.
    pub warned: Option<(u64, u64)>,
    /// Until when readers were promised its bytes, wherever.
    pub promised: MonotonicTime,
}

impl Record {
    fn nobodys() -> Record {
        Record {
            key: Key(u8::MAX),
            cells: 0,
            pinned: false,
            spots: Vec::new(),
            generation: 0,
            reserved: (MonotonicTime(0), 0),
            published: None,
            retired: None,
            retired_under: 0,
            retired_at: Duration::ZERO,
            warned: None,
            promised: MonotonicTime(0),
        }
    }

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
    /// The last batch that the master has told it.
    pub told: u64,
    /// It came back, and has to apply a later batch than this before it is offered.
    pub awaits: Option<u64>,
}

/// When the master stood still for longer than this, the time of its clients stood still, too.
const HELD_UP: Duration = Duration::from_secs(2);

/// Between two looks at its nodes a master counts no more than this.
const COUNTED: Duration = Duration::from_millis(500);
/// What has gone for so long, by the time of a master of that age, no node may have that its roster names.
const OVERDUE: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(6)];

/// When the present master worked, and when it stood still.
#[derive(Debug, Default)]
struct Working {
    life: u32,
    last: MonotonicTime,
    slept: Vec<(MonotonicTime, MonotonicTime)>,
    /// Its age, as it counts it.
    counted: Duration,
}

impl Working {
    /// The time from then to now, but for what the master slept of it.
    fn awake(&self, since: MonotonicTime, now: MonotonicTime) -> Duration {
        let is_late = now.since(self.last) > HELD_UP;
        let slept = self.slept.iter().copied().chain(is_late.then_some((self.last, now)));
        let slept: Duration = slept.map(|(from, to)| to.min(now).since(from.max(since))).sum();
        now.since(since).saturating_sub(slept)
    }
}

/// All of it.
#[derive(Debug)]
pub struct Ledger {
    /// By number; the first is nobody's.
    pub writes: Vec<Record>,
    /// By the numbers of replicas, which no two masters give out.
    pub by_replica: BTreeMap<u64, WriteId>,
    /// By key: the last life of the master that was asked to write or remove something under it, or gave something up.
    pub touched: Vec<u32>,
    /// By key: the last life of the master that published, removed or gave up an object under it.
    pub settled: Vec<u32>,
    /// Objects that the present master has evicted.
    pub evicted: u64,
    /// Term and number of the freshest roster of another master that was told to the present one.
    pub freshest: (u64, u64),
    /// Whether the present master has made a roster.
    pub has_roster: bool,
    working: Working,
    /// By key.
    pub shown: Vec<Shown>,
    /// By key, before the round of the janitor whose answers are being looked at.
    pub shown_before: Vec<Shown>,
    /// By node; of the present master.
    pub heard: Vec<Heard>,
    /// By node: it keeps a directory.
    keeps: Vec<bool>,
    /// A client may be silent for so long.
    pub ttl: Duration,
    /// And for so long more.
    pub suspicion: Duration,
    /// As long as this after its start a writer may write what it was given space for.
    pub release: Duration,
}

impl Ledger {
    /// Nothing is known.
    pub fn new(scenario: &Scenario) -> Ledger {
        Ledger {
            writes: vec![Record::nobodys()],
            by_replica: BTreeMap::new(),
            touched: vec![0; usize::from(scenario.keys)],
            settled: vec![0; usize::from(scenario.keys)],
            evicted: 0,
            freshest: (0, 0),
            has_roster: false,
            working: Working::default(),
            shown: vec![Shown::Nothing; usize::from(scenario.keys)],
            shown_before: Vec::new(),
            heard: vec![Heard::default(); scenario.nodes.len()],
            keeps: scenario.nodes.iter().map(|kind| *kind != Kind::Plain).collect(),
            ttl: scenario.catalog.client_ttl,
            suspicion: scenario.catalog.client_suspicion_ttl,
            release: scenario.catalog.release_timeout,
        }
    }

    /// A write is about to be asked for.
    pub fn new_write(&mut self, key: Key, cells: u32, pinned: bool) -> WriteId {
        let id = WriteId(self.writes.len() as u32);
        self.writes.push(Record { key, cells, pinned, ..Record::nobodys() });
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
    pub fn new_master(&mut self, life: u32, now: MonotonicTime) {
        (self.evicted, self.freshest, self.has_roster) = (0, (0, 0), false);
        self.working = Working { life, last: now, slept: Vec::new(), counted: Duration::ZERO };
        self.writes.iter_mut().flat_map(|record| &mut record.spots).for_each(|spot| spot.lost = true);
        self.heard.iter_mut().for_each(|heard| *heard = Heard::default());
    }

    /// The master looks after its duties.
    pub fn works(&mut self, now: MonotonicTime) {
        if now.since(self.working.last) > HELD_UP {
            self.working.slept.push((self.working.last, now));
        }
        self.working.counted += now.since(self.working.last).min(COUNTED);
        self.working.last = now;
    }

    /// The master has made its first roster: what it did not hear of by now its forerunners have said in vain.
    pub fn begins_roster(&mut self) {
        self.has_roster = true;
        let freshest = self.freshest;
        let unheard = self.writes.iter_mut().filter(|record| record.warned > Some(freshest));
        unheard.for_each(|record| record.warned = None);
    }

    /// Writes that went under this master, so long ago that no roster names a node that still keeps them.
    pub fn overdue(&self) -> impl Iterator<Item = WriteId> + '_ {
        let Working { life, counted, .. } = self.working;
        let is_overdue = move |record: &Record| {
            let went_here = record.retired.is_some() && record.retired_under == life && record.warned.is_none();
            went_here && counted.saturating_sub(record.retired_at) >= OVERDUE[0] && counted >= OVERDUE[1]
        };
        self.writes
            .iter()
            .enumerate()
            .filter(move |(_, record)| is_overdue(record))
            .map(|(index, _)| WriteId(index as u32))
    }

    /// Space is given to a write. What was promised to readers of it counts from here.
    pub fn reserve(&mut self, write: WriteId, now: MonotonicTime) {
        let life = self.working.life;
        self.record_mut(write).reserved = (now, life);
    }

    /// How long a place of a write that was never readable must still be kept out of use for its writer.
    pub fn kept_for_writer(&self, record: &Record, spot: &Spot, now: MonotonicTime) -> Option<Duration> {
        let (since, life) = record.reserved;
        let left = (since + self.release).since(now);
        let is_over = spot.quiet || spot.lost || life != self.working.life || record.published.is_some();
        (!is_over && !left.is_zero()).then_some(left)
    }

    /// The writer says that nothing of a write is under way.
    pub fn is_quiet(&mut self, write: WriteId) {
        self.record_mut(write).spots.iter_mut().for_each(|spot| spot.quiet = true);
    }

    /// A node says so of a place.
    pub fn is_quiet_at(&mut self, generation: u64, address: u64) {
        if let Some(&write) = self.by_replica.get(&generation) {
            let spots = self.record_mut(write).spots.iter_mut();
            spots.filter(|spot| spot.address == address).for_each(|spot| spot.quiet = true);
        }
    }

    /// A write was begun or a removal asked for: what directories say of the key need not count any more.
    pub fn touch(&mut self, key: Key) {
        self.touched[usize::from(key.0)] = self.working.life;
    }

    /// What becomes of a key is this master's business from here on: nothing of its forerunners may come back.
    pub fn settle(&mut self, key: Key) {
        self.touch(key);
        let Working { life, counted, .. } = self.working;
        self.settled[usize::from(key.0)] = life;
        // What a forerunner had no time to make known is made known by this one.
        let is_unknown =
            |record: &&mut Record| record.key == key && record.retired.is_some() && record.warned.is_none();
        for record in self.writes.iter_mut().filter(is_unknown).filter(|record| record.retired_under < life) {
            (record.retired_under, record.retired_at) = (life, counted);
        }
    }

    /// Whether the present master has touched a key.
    pub fn is_touched(&self, key: Key) -> bool {
        self.touched[usize::from(key.0)] == self.working.life
    }

    /// Whether a write that is gone may be found in a directory again: it went under an earlier master, in its last moments or
    /// so that nobody who is left has heard of it, and this one has nothing newer.
    pub fn may_return(&self, write: WriteId) -> bool {
        let record = self.record(write);
        let is_earlier = record.published.is_some() && record.retired_under < self.working.life;
        let is_warned = record.warned.is_some_and(|warned| warned <= self.freshest);
        is_earlier && !is_warned && self.settled[usize::from(record.key.0)] < self.working.life
    }

    /// Whether a key can be read now, or could at the beginning of what the master did in one go.
    pub fn was_readable(&self, key: Key) -> bool {
        let key = usize::from(key.0);
        let shown = [self.shown.get(key), self.shown_before.get(key)];
        shown.iter().flatten().any(|shown| matches!(shown, Shown::Readable(_)))
    }

    /// A write is gone.
    pub fn retire(&mut self, write: WriteId, now: MonotonicTime) {
        let Working { life, counted, .. } = self.working;
        let record = self.record_mut(write);
        if record.retired.is_none() {
            (record.retired, record.retired_under) = (Some(now), life);
            (record.retired_at, record.warned) = (counted, None);
        }
    }

    /// Whether the master has no right to give up what a node lent in this life: it was heard of.
    pub fn must_know(&self, node: usize, life: u32, now: MonotonicTime) -> bool {
        let heard = &self.heard[node];
        let silence = self.working.awake(heard.at, now);
        heard.life == life && heard.mounted && silence <= self.ttl + self.suspicion
    }

    /// A sign of life of a node reached the master.
    pub fn hears(&mut self, node: usize, life: u32, at: MonotonicTime, mounted: Option<bool>) {
        let heard = &mut self.heard[node];
        // What an earlier life said comes too late to count.
        if heard.life > life {
            return;
        }
        if heard.life != life {
            *heard = Heard { life, at, ..Heard::default() };
        }
        let was_silent = self.working.awake(heard.at, at) > self.ttl;
        if self.keeps[node] && (was_silent || mounted == Some(false)) {
            heard.awaits = Some(heard.told);
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

    /// The keeper of a node has said what it has applied, and was told the next batch.
    pub fn told(&mut self, node: usize, life: u32, applied: u64, batch: u64) {
        let heard = &mut self.heard[node];
        if heard.life == life {
            heard.awaits = heard.awaits.filter(|before| applied <= *before);
            heard.told = heard.told.max(batch);
        }
    }

    /// Whether the master was in its right to hold a place for silent for its client's time to live, and, `gone`, for the
    /// suspicion time on top; or, when its node came back, for one that has yet to say whom it followed.
    pub fn is_silent(&self, spot: &Spot, now: MonotonicTime, gone: bool) -> bool {
        let heard = &self.heard[spot.node];
        let patience = if gone { self.ttl + self.suspicion } else { self.ttl };
        let is_silent = || self.working.awake(heard.at, now) > patience;
        let awaits = !gone && heard.awaits.is_some();
        spot.lost || heard.life != spot.life || !heard.mounted || awaits || is_silent()
    }
}
