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
use crate::directory::Kept;
use crate::ledger::{Shown, Spot};
use crate::memory::{CELL, WriteId};
use crate::parties::{Doing, Move, Party};
use crate::tasks::one_write;
use crate::world::{Caller, World};

/// What the catalog shows under a key.
enum Peeked {
    Readable {
        generation: Generation,
        places: Vec<(String, u64)>,
    },
    /// With the write that has the key.
    Busy(Option<WriteId>),
    Nothing(Absence),
}

impl World {
    /// The master answers a request: what does that tell, and may it be?
    pub(crate) fn observe(&mut self, call: usize, said: &Said) {
        let ask = self.calls[call].ask.clone();
        if let Caller::Node(node, life) = self.calls[call].from {
            let memory = self.nodes[node].memory_of(life);
            self.observe_node(node, memory, &ask, said);
        }
        if let Ask::Sync { mark, .. } = ask {
            self.observe_keeper(call, mark, said);
            return;
        }
        if let (Ask::Introduce(_, heard), Said::Roster(Ok(own))) = (&ask, said)
            && heard.incarnation != own.incarnation
        {
            self.ledger.freshest = self.ledger.freshest.max((heard.term, heard.number));
        }
        self.survey(Some((&ask, said)));
        self.observe_ask(&ask, said);
        match (&ask, said) {
            // After the look at what was evicted for it.
            (Ask::Start(start), Said::Found(Ok(places))) => self.check_reservation(start.write, &places.0, call),
            (Ask::Lookup(key), Said::Found(Ok((_, lease_ms)))) => {
                self.promise(*key, Duration::from_millis(*lease_ms));
            }
            (Ask::Start(start), Said::Found(Err(ErrorCode::OBJECT_ALREADY_EXISTS)))
                if !self.ledger.was_readable(start.key) =>
            {
                self.fail(format!("{:?} is said to exist, and nobody can read it", start.key));
            }
            (Ask::Tell { page, .. }, Said::Struck(Ok(refused))) => self.check_adopted(page, refused),
            (Ask::Exist(key), Said::Exists(Ok(true))) => self.promise(*key, self.scenario.catalog.lease_ttl),
            (Ask::Lookup(key), Said::Found(Err(ErrorCode::OBJECT_NOT_FOUND))) => {
                if let Shown::Readable(write) = self.shown(*key) {
                    self.fail(format!("{key:?} is said to be missing, and {write:?} can be read"));
                }
            }
            _ => {}
        }
    }

    /// What the request itself tells.
    fn observe_ask(&mut self, ask: &Ask, said: &Said) {
        match (ask, said) {
            (Ask::Start(start), Said::Found(Ok(_))) => self.ledger.touch(start.key),
            (Ask::Remove(key, _), Said::Done(_)) => self.ledger.touch(*key),
            (Ask::Revoke(of, true), Said::Done(Ok(()))) => self.ledger.is_quiet(of.write),
            (Ask::End(of), Said::Done(Ok(()))) => self.check_stored(of.write),
            (Ask::Poll(confirmed), Said::Questions(_)) => {
                for confirmed in confirmed {
                    self.ledger.is_quiet_at(confirmed.generation, confirmed.address);
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
                if lost.is_some() && self.ledger.must_know(node, life, now) {
                    self.fail(format!("the master has given node {node} up, and it was heard of"));
                }
                self.ledger.hears(node, life, now, lost);
            }
            (Ask::Mount(_) | Ask::Remount(_), Said::Done(Ok(()))) => {
                // Whoever takes memory over may come after it was given up, and is not told of that.
                if !self.ledger.must_know(node, life, now) {
                    self.ledger.hears(node, life, now, Some(false));
                }
                self.ledger.hears(node, life, now, Some(true));
            }
            _ => {}
        }
    }

    fn observe_keeper(&mut self, call: usize, mark: (u64, u64), said: &Said) {
        if let (Caller::Keeper(node, life), Said::Told(Ok(told))) = (self.calls[call].from, said) {
            let memory = self.nodes[node].memory_of(life);
            let applied = if mark.0 == told.incarnation { mark.1 } else { 0 };
            self.ledger.told(node, memory, applied, told.batch);
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
        let is_known = |place: &Place| self.ledger.by_replica.get(&place.replica) == Some(&write);
        if !places.is_empty() && places.iter().all(is_known) {
            // The same answer to the same start.
            return;
        }
        let write = if record.spots.is_empty() {
            write
        } else {
            // A repeated start was let in after the first: its bytes will never come.
            let (key, cells, pinned) = (record.key, record.cells, record.pinned);
            self.ledger.new_write(key, cells, pinned)
        };
        self.ledger.reserve(write, self.now);
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
            let named = self.why_named(node, life, place.address, cells);
            if let Some(why) = self.why_taken(node, life, place.address, cells).or(named) {
                return self
                    .fail(format!("request {call}: {write:?} is given space on node {node} that is taken: {why}"));
            }
            let spot = Spot { node, life, address: place.address, promised: self.now, lost: false, quiet: false };
            self.ledger.record_mut(write).spots.push(spot);
            self.ledger.by_replica.insert(place.replica, write);
        }
        self.ledger.record_mut(write).generation = places.iter().map(|place| place.replica).min().unwrap_or_default();
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
            let kept = self.ledger.kept_for_writer(record, spot, self.now).filter(|_| spot.life == life);
            if let Some(left) = kept {
                return Some(format!(
                    "{write:?} of {:?} was given up and may be written for {left:?} more",
                    record.key
                ));
            }
            if spot.life == life && !spot.lost && self.shown(record.key).write() == Some(write) {
                return Some(format!("{write:?} of {:?} lies there", record.key));
            }
        }
        let other = u64::from(cells) * CELL;
        let writes = |of: &&Move| {
            let len = u64::from(of.cells) * CELL;
            let process = &self.nodes[of.node].process;
            let is_heard = of.mapped || process.alive && process.life == of.node_life;
            let meets = of.address < address + other && address < of.address + len;
            of.node == node && of.memory == life && is_heard && meets
        };
        let may_write = |of: &&Move| of.may_write(self.local(Party::Client(of.client)));
        let writer = self.moves.iter().filter(writes).find(may_write)?;
        Some(format!("client {} may still write {:?} there", writer.client, writer.write))
    }

    /// Whether the directory of a node still names memory that is about to be given out.
    fn why_named(&self, node: usize, life: u32, address: u64, cells: u32) -> Option<String> {
        let known = &self.nodes[node];
        let memory = known.memories.get(life as usize - 1).filter(|_| life as usize == known.memories.len())?;
        let (from, to) = (address - memory.base, address - memory.base + u64::from(cells) * CELL);
        let tables = [&known.directory.table, known.directory.log.written()];
        let meets = |(offset, kept): &(u64, &Kept)| *offset < to && from < offset + kept.size;
        let (offset, _) = tables.iter().find_map(|table| table.from(0).find(meets))?;
        Some(format!("its directory names what lies at {offset:#x}"))
    }

    /// What the directory of a node says must be so, at every moment.
    pub(crate) fn check_directory(&mut self, node: usize) {
        let known = &self.nodes[node];
        let Some(memory) = known.memories.last() else { return };
        let tables = [&known.directory.table, known.directory.log.written()];
        let is_so = |(offset, kept): &(u64, &Kept)| {
            let write = self.ledger.by_replica.get(&kept.generation).copied();
            let record = write.map(|write| self.ledger.record(write));
            let (Some(write), Some(record)) = (write, record) else { return false };
            let first = memory.cell(memory.base + offset, record.cells);
            let is_whole = first.is_some_and(|first| memory.holds(first, write, record.cells));
            let key = Key::of(kept.entry(*offset).key);
            is_whole && kept.size == u64::from(record.cells) * CELL && key == Some(record.key)
        };
        let wrong = tables.iter().find_map(|table| table.from(0).find(|entry| !is_so(entry)));
        if let Some((offset, kept)) = wrong {
            let generation = kept.generation;
            self.fail(format!("node {node} keeps generation {generation} at {offset:#x}, and other bytes lie there"));
        }
    }

    /// The master has read a page of a directory: what it took is there, and what it did not take it has a reason for.
    fn check_adopted(&mut self, page: &[(u64, Kept)], refused: &[u64]) {
        self.tally.relearned += (page.len() - refused.len()) as u64;
        let Some(bare) = &self.master.bare else { return };
        for (offset, kept) in page {
            let Some(key) = Key::of(kept.entry(*offset).key) else { continue };
            let holder = bare.catalog().holder(Tenant::DEFAULT, &key.name()).map_or(0, |holder| holder.0.get());
            let generation = kept.generation;
            if refused.contains(offset) {
                if !self.ledger.is_touched(key) && holder <= generation {
                    return self.fail(format!("generation {generation} of {key:?} is refused for no reason"));
                }
            } else if holder < generation {
                return self.fail(format!("generation {generation} of {key:?} is taken over, and not there"));
            }
        }
    }

    /// What went is in no directory that the master holds for up to date, but in the last moments.
    pub(crate) fn check_roster(&mut self) {
        let Some(bare) = &self.master.bare else { return };
        let roster = bare.catalog().roster();
        if !roster.is_some() {
            return;
        }
        if !self.ledger.has_roster {
            self.ledger.begins_roster();
        }
        let overdue: Vec<WriteId> = self.ledger.overdue().collect();
        for write in overdue {
            let still =
                (0..self.nodes.len()).find(|node| roster.has(self.nodes[*node].segment.id) && self.keeps(*node, write));
            if let Some(node) = still {
                return self.fail(format!("node {node} still keeps {write:?}, which is gone, and the roster names it"));
            }
            self.ledger.record_mut(write).warned = Some((roster.term, roster.number));
        }
    }

    /// Whether the next process of a node would bring a write to the next master.
    fn keeps(&self, node: usize, write: WriteId) -> bool {
        let directory = &self.nodes[node].directory;
        let tables = [&directory.table, directory.log.written()];
        let is_it = |(_, kept): (u64, &Kept)| self.ledger.by_replica.get(&kept.generation) == Some(&write);
        tables.iter().any(|table| table.from(0).any(is_it))
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
                Peeked::Busy(holder) => self.is_busy(key, before, holder, cause),
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
        let mut peeked = Peeked::Busy(None);
        let name = key.name();
        bare.catalog().peek(Tenant::DEFAULT, [&name[..]], |_, found| {
            peeked = match found {
                Ok(view) => Peeked::Readable {
                    generation: view.generation(),
                    places: view.replicas().map(|r| (r.segment.info().te_endpoint.clone(), r.address)).collect(),
                },
                Err(ErrorCode::REPLICA_IS_NOT_READY) => Peeked::Busy(None),
                Err(_) => Peeked::Nothing(Absence::NeverSeen),
            };
        });
        match peeked {
            Peeked::Nothing(_) => Peeked::Nothing(self.why_absent(key)),
            Peeked::Busy(_) => {
                let holder = bare.catalog().holder(Tenant::DEFAULT, &name);
                Peeked::Busy(holder.and_then(|generation| self.ledger.by_replica.get(&generation.0.get()).copied()))
            }
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
            let upsert = matches!(cause, Some((Ask::End(of), _)) if of.key == key && of.manner == Manner::Upsert);
            if !upsert && matches!(before, Shown::Readable(_)) && !self.is_newer_told(old, write, cause) {
                self.fail(format!("{key:?} changes from {old:?} to {write:?} without an upsert"));
            }
            self.retire(old);
        }
        self.find_again(write, places);
        if self.ledger.record(write).retired.is_some() {
            self.fail(format!("{write:?} of {key:?} came back"));
        }
        if before.write() != Some(write) {
            self.check_publication(write, places);
        }
        if self.ledger.record(write).published.is_none() {
            self.publish(key, write);
        }
        Shown::Readable(write)
    }

    /// An object that one directory told gives way to a newer one that another told.
    fn is_newer_told(&self, old: WriteId, write: WriteId, cause: Option<(&Ask, &Said)>) -> bool {
        let is_told = matches!(cause, Some((Ask::Tell { .. }, _)));
        let (before, after) = (self.ledger.record(old).generation, self.ledger.record(write).generation);
        is_told && before < after && self.ledger.may_return(write)
    }

    /// What the master shows it keeps where it shows it, also what it learned from a directory.
    fn find_again(&mut self, write: WriteId, places: &[(String, u64)]) {
        let may_return = self.ledger.may_return(write);
        let nodes: Vec<(usize, u64)> = places.iter().map(|(name, address)| (self.node_of(name), *address)).collect();
        let record = self.ledger.record_mut(write);
        let is_there = |spot: &&mut Spot| nodes.contains(&(spot.node, spot.address));
        record.spots.iter_mut().filter(is_there).for_each(|spot| spot.lost = false);
        if may_return {
            record.retired = None;
        }
    }

    /// The key has an object whose nodes are silent, or a write that has not ended.
    fn is_busy(&mut self, key: Key, before: Shown, holder: Option<WriteId>, cause: Option<(&Ask, &Said)>) -> Shown {
        if let (Some((Ask::End(of), Said::Done(Ok(())))), Some(holder)) = (cause, holder)
            && of.key == key
            && of.write == holder
            && self.ledger.record(holder).published.is_none()
        {
            before.write().into_iter().for_each(|old| self.retire(old));
            return self.is_hidden_from_its_end(key, holder);
        }
        let Some(write) = before.write() else { return Shown::Nothing };
        let is_silent = self.is_silent(write, false);
        if holder == Some(write) {
            if !is_silent {
                self.fail(format!("{write:?} of {key:?} is not offered, and a node of it is heard of"));
            }
            return Shown::Hidden(write);
        }
        // A start that had to wait was let in by the master itself.
        let was_begun = match cause {
            None => true,
            Some((Ask::Start(start), Said::Found(Ok(_)))) => start.key == key,
            Some(_) => false,
        };
        if !(is_silent && was_begun) {
            self.check_absence(write, self.why_absent(key), cause);
        }
        self.retire(write);
        Shown::Nothing
    }

    /// A write has ended while the master hears of no node of it: readers get it when one is heard of again.
    fn is_hidden_from_its_end(&mut self, key: Key, write: WriteId) -> Shown {
        if !self.is_silent(write, false) {
            self.fail(format!("{write:?} of {key:?} has ended and is not offered, and a node of it is heard of"));
        }
        let spots = self.ledger.record(write).spots.iter().filter(|spot| !spot.lost);
        let places: Vec<_> = spots.map(|spot| (self.nodes[spot.node].endpoint.clone(), spot.address)).collect();
        self.check_publication(write, &places);
        self.publish(key, write);
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
        self.ledger.settle(key);
        // What an earlier master knew under this key is older than this.
        let older = |(index, record): (usize, &crate::ledger::Record)| {
            let is_older = record.key == key && record.published.is_some() && record.retired.is_none();
            (is_older && index != write.0 as usize).then_some(WriteId(index as u32))
        };
        let older: Vec<WriteId> = self.ledger.writes.iter().enumerate().filter_map(older).collect();
        older.into_iter().for_each(|old| self.retire(old));
    }

    fn retire(&mut self, write: WriteId) {
        self.ledger.retire(write, self.now);
    }

    /// An object is gone: was it allowed to go?
    fn check_absence(&mut self, write: WriteId, absence: Absence, cause: Option<(&Ask, &Said)>) {
        let (key, promised, pinned) = {
            let record = self.ledger.record(write);
            (record.key, record.promised, record.pinned)
        };
        self.note(|| format!("{write:?} of {key:?} is gone: {absence:?}"));
        self.ledger.settle(key);
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
                self.ledger.evicted += 1;
                let done = self.master.bare.as_ref().map_or(0, |bare| bare.catalog().stats().evicted_keys);
                if self.ledger.evicted > done {
                    self.fail(format!("{write:?} of {key:?} is gone, and nothing was evicted"));
                }
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
            self.fail(format!("{write:?} is said to be stored, and it never was"));
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
            // A message in two hundred is slow on a whole wire too: of short leases two in a row may end before the bytes are there.
            for _ in 0..3 {
                if self.tally.right == right && self.broken.is_none() {
                    self.begin_get(0, 0, key);
                    self.run_until(self.now + Duration::from_secs(3));
                }
            }
            if self.broken.is_none() && self.tally.right == right && matches!(self.shown(key), Shown::Readable(_)) {
                self.fail(format!("{key:?} is shown at rest and cannot be read"));
            }
        }
    }
}
