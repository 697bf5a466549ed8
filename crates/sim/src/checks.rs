//! The rules, looked at with every step.
//!
//! - A read gives exactly the bytes of one completed write, and not of one that was gone before the read began.
//! - No two live extents overlap; nothing is given out again under a lease or while bytes may still be written there.
//! - Acknowledged and neither evicted nor removed means readable while the node of a replica is heard of.
//! - Eviction and removal honour leases; a write is readable only with all its bytes in place.
//! - At rest: nothing is withheld or unfinished, and what is used is the sum of the objects.

use std::time::Duration;

use yb_catalog::{Absence, Tenant};
use yb_types::{ClientStatus, ErrorCode, Generation};

use crate::calls::{Ask, Key, Manner, Place, Said};
use crate::ledger::{Shown, Spot};
use crate::memory::{CELL, WriteId};
use crate::parties::Doing;
use crate::tasks::one_write;
use crate::world::{Caller, World};

/// What the catalog shows under a key.
enum Peeked {
    Readable { generation: Generation, places: Vec<(String, u64)> },
    Busy,
    Nothing(Absence),
}

impl World {
    /// The master answers a request: what does that tell, and may it be?
    pub(crate) fn observe(&mut self, call: usize, said: &Said) {
        let ask = self.calls[call].ask.clone();
        if let Caller::Node(node, life) = self.calls[call].from {
            self.observe_node(node, life, &ask, said);
        }
        self.survey(Some((&ask, said)));
        match (&ask, said) {
            // After the look at what was evicted for it.
            (Ask::Start(start), Said::Found(Ok(places))) => self.check_reservation(start.write, &places.0, call),
            (Ask::Lookup(key), Said::Found(Ok((_, lease_ms)))) => {
                self.promise(*key, Duration::from_millis(*lease_ms));
            }
            (Ask::Start(start), Said::Found(Err(ErrorCode::OBJECT_ALREADY_EXISTS)))
                if !matches!(self.shown(start.key), Shown::Readable(_)) =>
            {
                self.fail(format!("{:?} is said to exist, and nobody can read it", start.key));
            }
            (Ask::Exist(key), Said::Exists(Ok(true))) => self.promise(*key, self.scenario.catalog.lease_ttl),
            (Ask::Lookup(key), Said::Found(Err(ErrorCode::OBJECT_NOT_FOUND))) => {
                if let Shown::Readable(write) = self.shown(*key) {
                    self.fail(format!("{key:?} is said to be missing, and {write:?} can be read"));
                }
            }
            _ => {}
        }
    }

    fn observe_node(&mut self, node: usize, life: u32, ask: &Ask, said: &Said) {
        let now = self.now;
        match (ask, said) {
            (Ask::Ping, Said::Status(Ok(status))) => {
                let lost = (*status == ClientStatus::NEED_REMOUNT).then_some(false);
                self.ledger.hears(node, life, now, lost);
            }
            (Ask::Mount(_) | Ask::Remount(_), Said::Done(Ok(()))) => self.ledger.hears(node, life, now, Some(true)),
            (Ask::Unmount(_), Said::Done(Ok(()))) => self.ledger.hears(node, life, now, Some(false)),
            _ => {}
        }
    }

    fn shown(&self, key: Key) -> Shown {
        self.ledger.shown[usize::from(key.0)]
    }

    fn promise(&mut self, key: Key, lease: Duration) {
        let until = self.now + lease;
        match self.shown(key) {
            Shown::Readable(write) => {
                let Peeked::Readable { places, .. } = self.peek(key) else { return };
                let nodes: Vec<usize> = places.iter().map(|(endpoint, _)| self.node_of(endpoint)).collect();
                let record = self.ledger.record_mut(write);
                record.promised = record.promised.max(until);
                for spot in record.spots.iter_mut().filter(|spot| nodes.contains(&spot.node)) {
                    spot.promised = spot.promised.max(until);
                }
            }
            other => self.fail(format!("{key:?} is said to be readable, and is {other:?}")),
        }
    }

    /// Space is given out: nobody else may have anything to do with it.
    fn check_reservation(&mut self, write: WriteId, places: &[Place], call: usize) {
        let record = self.ledger.record(write);
        let write = if record.spots.is_empty() {
            write
        } else {
            // A repeated start was let in after the first: its bytes will never come.
            let (key, cells, pinned) = (record.key, record.cells, record.pinned);
            self.ledger.new_write(key, cells, pinned)
        };
        let cells = self.ledger.record(write).cells;
        for place in places {
            let node = self.node_of(&place.endpoint);
            let holds = |memory: &crate::memory::Memory| memory.cell(place.address, cells).is_some();
            let life = self.nodes[node].memories.iter().rposition(holds);
            let Some(life) = life.map(|at| at as u32 + 1) else {
                return self.fail(format!("{write:?} is given an address that no memory of node {node} has"));
            };
            if place.size != u64::from(cells) * CELL {
                return self.fail(format!("{write:?} is given {} bytes for {cells} cells", place.size));
            }
            if let Some(why) = self.why_taken(node, life, place.address, cells) {
                return self
                    .fail(format!("request {call}: {write:?} is given space on node {node} that is taken: {why}"));
            }
            let spot = Spot { node, life, address: place.address, promised: self.now, lost: false };
            self.ledger.record_mut(write).spots.push(spot);
            self.ledger.by_replica.insert(place.replica, write);
        }
    }

    /// Who has something to do with memory that is about to be given out.
    fn why_taken(&self, node: usize, life: u32, address: u64, cells: u32) -> Option<String> {
        for (index, record) in self.ledger.writes.iter().enumerate() {
            let Some(spot) = record.meets(node, address, cells) else { continue };
            let write = WriteId(index as u32);
            if spot.promised > self.now {
                let left = spot.promised.since(self.now);
                return Some(format!("{write:?} of {:?} is promised to readers for {left:?} more", record.key));
            }
            if spot.life == life && self.shown(record.key).write() == Some(write) {
                return Some(format!("{write:?} of {:?} lies there", record.key));
            }
        }
        let other = u64::from(cells) * CELL;
        let writes = |of: &&crate::parties::Move| {
            let len = u64::from(of.cells) * CELL;
            of.node == node && of.node_life == life && of.address < address + other && address < of.address + len
        };
        let writer = self.moves.iter().filter(writes).find(|of| of.may_write())?;
        Some(format!("client {} may still write {:?} there", writer.client, writer.write))
    }

    /// Looks at all keys, and whether what changed may have changed. `cause`: the request that was just answered.
    pub(crate) fn survey(&mut self, cause: Option<(&Ask, &Said)>) {
        for key in (0..self.scenario.keys).map(Key) {
            if self.broken.is_some() {
                return;
            }
            let before = self.shown(key);
            let after = match self.peek(key) {
                Peeked::Readable { generation, places } => self.is_readable(key, before, generation, &places, cause),
                Peeked::Busy => self.is_busy(key, before, cause),
                Peeked::Nothing(absence) => {
                    if let Some(write) = before.write() {
                        self.check_absence(write, absence, cause);
                        self.retire(write);
                    }
                    Shown::Nothing
                }
            };
            self.ledger.shown[usize::from(key.0)] = after;
        }
    }

    fn peek(&self, key: Key) -> Peeked {
        let Some(bare) = &self.master.bare else { return Peeked::Nothing(Absence::NeverSeen) };
        let mut peeked = Peeked::Busy;
        let name = key.name();
        bare.catalog().peek(Tenant::DEFAULT, [&name[..]], |_, found| {
            peeked = match found {
                Ok(view) => Peeked::Readable {
                    generation: view.generation(),
                    places: view.replicas().map(|r| (r.segment.info().te_endpoint.clone(), r.address)).collect(),
                },
                Err(ErrorCode::REPLICA_IS_NOT_READY) => Peeked::Busy,
                Err(_) => Peeked::Nothing(Absence::NeverSeen),
            };
        });
        match peeked {
            Peeked::Nothing(_) => Peeked::Nothing(self.why_absent(key)),
            other => other,
        }
    }

    fn why_absent(&self, key: Key) -> Absence {
        let known = self.master.bare.as_ref();
        known.map_or(Absence::NeverSeen, |bare| bare.catalog().why_absent(Tenant::DEFAULT, &key.name()))
    }

    fn is_readable(
        &mut self,
        key: Key,
        before: Shown,
        generation: Generation,
        places: &[(String, u64)],
        cause: Option<(&Ask, &Said)>,
    ) -> Shown {
        let Some(&write) = self.ledger.by_replica.get(&generation.0.get()) else {
            self.fail(format!("{key:?} shows an object that nobody was given space for"));
            return before;
        };
        if let Some(old) = before.write().filter(|old| *old != write) {
            let upsert = matches!(cause, Some((Ask::End(of, Manner::Upsert, _), _)) if *of == key);
            if !upsert && matches!(before, Shown::Readable(_)) {
                self.fail(format!("{key:?} changes from {old:?} to {write:?} without an upsert"));
            }
            self.retire(old);
        }
        if self.ledger.record(write).retired.is_some() {
            self.fail(format!("{write:?} of {key:?} came back"));
        }
        if self.ledger.record(write).published.is_none() {
            self.check_publication(write, places);
            self.publish(key, write);
        }
        Shown::Readable(write)
    }

    /// The key has an object whose nodes are silent, or a write that has not ended.
    fn is_busy(&mut self, key: Key, before: Shown, cause: Option<(&Ask, &Said)>) -> Shown {
        let Some(write) = before.write() else { return Shown::Nothing };
        let started = matches!(cause, Some((Ask::Start(start), Said::Found(Ok(_))))
            if start.key == key && start.manner == Manner::Put);
        if started {
            if matches!(before, Shown::Readable(_)) && !self.is_silent(write, false) {
                self.fail(format!("a put of {key:?} is let in while {write:?} can be read"));
            }
            self.retire(write);
            return Shown::Nothing;
        }
        if self.is_silent(write, false) {
            return Shown::Hidden(write);
        }
        // Under a master that slept it may have been taken for hidden when it went.
        let may_start = matches!(cause, None | Some((Ask::Start(_), _))) || matches!(before, Shown::Hidden(_));
        match self.why_absent(key) {
            // Evicted and begun anew within one step.
            Absence::Evicted if may_start => {
                self.check_absence(write, Absence::Evicted, cause);
                self.retire(write);
                return Shown::Nothing;
            }
            _ => self.fail(format!("{write:?} of {key:?} is not offered, and a node of it is heard of")),
        }
        Shown::Hidden(write)
    }

    fn is_silent(&self, write: WriteId, gone: bool) -> bool {
        let is_silent = |spot: &Spot| self.ledger.is_silent(spot, self.now, gone);
        self.ledger.record(write).spots.iter().all(is_silent)
    }

    fn check_publication(&mut self, write: WriteId, places: &[(String, u64)]) {
        for (endpoint, address) in places {
            let node = self.node_of(endpoint);
            let cells = self.ledger.record(write).cells;
            let spot = |spot: &&Spot| spot.node == node && spot.address == *address;
            let Some(spot) = self.ledger.record(write).spots.iter().find(spot).copied() else {
                return self.fail(format!("{write:?} is shown at a place that it was not given"));
            };
            let memory = &self.nodes[node].memories[spot.life as usize - 1];
            let whole = memory.cell(*address, cells).is_some_and(|first| memory.holds(first, write, cells));
            if !whole {
                return self.fail(format!("{write:?} is readable on node {node} before its bytes are there"));
            }
        }
    }

    fn publish(&mut self, key: Key, write: WriteId) {
        let now = self.now;
        self.note(|| format!("{key:?} is readable as {write:?}"));
        self.ledger.record_mut(write).published = Some(now);
        // What an earlier master knew under this key is older than this.
        let older = |(index, record): (usize, &crate::ledger::Record)| {
            let is_older = record.key == key && record.published.is_some() && record.retired.is_none();
            (is_older && index != write.0 as usize).then_some(WriteId(index as u32))
        };
        let older: Vec<WriteId> = self.ledger.writes.iter().enumerate().filter_map(older).collect();
        older.into_iter().for_each(|old| self.retire(old));
    }

    fn retire(&mut self, write: WriteId) {
        let now = self.now;
        self.ledger.record_mut(write).retired.get_or_insert(now);
    }

    /// An object is gone: was it allowed to go?
    fn check_absence(&mut self, write: WriteId, absence: Absence, cause: Option<(&Ask, &Said)>) {
        let (key, promised, pinned) = {
            let record = self.ledger.record(write);
            (record.key, record.promised, record.pinned)
        };
        self.note(|| format!("{write:?} of {key:?} is gone: {absence:?}"));
        let leased = promised > self.now;
        if self.is_silent(write, true) {
            return;
        }
        match (absence, cause) {
            (Absence::Removed, Some((Ask::Remove(of, force), Said::Done(Ok(()))))) if *of == key => {
                if leased && !force {
                    self.fail(format!("{write:?} of {key:?} is removed under a lease"));
                }
            }
            (Absence::Evicted, _) => {
                self.tally.evicted += 1;
                if leased || pinned {
                    let why = if leased { "under a lease" } else { "although it is pinned" };
                    self.fail(format!("{write:?} of {key:?} is evicted {why}"));
                }
            }
            _ => self.fail(format!("{write:?} of {key:?} is gone ({absence:?}), and a node of it is heard of")),
        }
    }

    /// A read gives bytes.
    pub(crate) fn check_read(&mut self, client: usize, task: usize) {
        let Doing::Get(get) = &self.clients[client].tasks[task].doing else { return };
        let (key, began) = (get.key, get.began);
        let Some(write) = one_write(&get.got) else {
            let torn: Vec<_> = get.got.iter().map(|mark| (mark.write.0, mark.part)).collect();
            return self.fail(format!("client {client} reads {key:?} and gets bytes of several writes: {torn:?}"));
        };
        let record = self.ledger.record(write);
        let why = if record.key != key {
            format!("those of {:?}", record.key)
        } else if record.cells as usize != get.got.len() {
            format!("{} cells of {}", get.got.len(), record.cells)
        } else if record.published.is_none() {
            "those of a write that never ended".to_owned()
        } else if record.retired.is_some_and(|retired| retired < began) {
            "those of a write that was gone when the read began".to_owned()
        } else {
            return;
        };
        self.fail(format!("client {client} reads {key:?} and gets {write:?}: {why}"));
    }

    /// A write is said to be stored.
    pub(crate) fn check_stored(&mut self, write: WriteId) {
        if self.ledger.record(write).published.is_none() {
            self.fail(format!("a client takes {write:?} for stored, and it never was"));
        }
    }

    /// Everything is well and has been for a while.
    pub(crate) fn check_rest(&mut self) {
        let busy = |known: &crate::parties::Task| !matches!(known.doing, Doing::Nothing);
        if let Some(client) = self.clients.iter().position(|client| client.tasks.iter().any(busy)) {
            return self.fail(format!("a call of client {client} never ends"));
        }
        self.survey(None);
        let Some(bare) = &self.master.bare else { return self.fail("there is no master at rest".to_owned()) };
        bare.catalog().assert_consistent();
        let stats = bare.catalog().stats();
        let objects = self.ledger.shown.iter().filter_map(|shown| shown.write());
        let mut expected = 0;
        for write in objects {
            let record = self.ledger.record(write);
            let lasting = record.spots.iter().filter(|spot| !self.ledger.is_silent(spot, self.now, true));
            expected += lasting.count() as u64 * u64::from(record.cells) * CELL;
        }
        if stats.unfinished > 0 || stats.withheld_bytes > 0 {
            let (unfinished, withheld) = (stats.unfinished, stats.withheld_bytes);
            return self.fail(format!("at rest {unfinished} writes are unfinished and {withheld} bytes withheld"));
        }
        if stats.allocated_bytes != expected {
            let used = stats.allocated_bytes;
            self.fail(format!("at rest {used} bytes are in use, and the objects have {expected}"));
        }
    }

    /// At rest every object that is shown is read, and gives its bytes.
    pub(crate) fn read_all(&mut self) {
        let keys: Vec<Key> = (0..self.scenario.keys).map(Key).collect();
        for key in keys {
            let Shown::Readable(_) = self.shown(key) else { continue };
            let right = self.tally.right;
            self.begin_get(0, 0, key);
            self.run_until(self.now + Duration::from_secs(3));
            if self.broken.is_none() && self.tally.right == right && matches!(self.shown(key), Shown::Readable(_)) {
                self.fail(format!("{key:?} is shown at rest and cannot be read"));
            }
        }
    }
}
