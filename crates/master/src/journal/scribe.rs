//! What is written into the log, and what is made of what was.
//!
//! The scribe is to the catalog what a node is that keeps a directory: it is told what was published and what is to be struck
//! out, and acknowledges when that is durable. It keeps no copy of what it wrote.

use std::collections::BTreeMap;

use yb_catalog::{Adopting, Catalog, LoggedSegment, Order, Published, Roster, SyncCall};
use yb_journal::{Held, Image, Record, RosterNote, SegmentNote};
use yb_types::{ClientId, MonotonicTime, SegmentId, SegmentStatus};

use crate::handlers::{entry_of, published};

/// Objects that a segment tells at a time.
const LIMIT: usize = 1024;
/// More bytes do not wait for one write.
const WAITING_MAX: usize = 4 << 20;
/// How often the log says that the master lives.
const ALIVE_MS: u64 = 1000;

/// A mount that is in the log.
#[derive(Debug)]
struct Tended {
    /// In the log.
    number: u32,
    id: SegmentId,
    owner: ClientId,
    mount: u64,
    /// Whose word the log has, and up to which batch that is durable.
    told: (u64, u64),
    /// True when what waits is durable.
    next: Option<Next>,
    /// What an earlier life wrote, until it is read.
    source: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
enum Next {
    /// This was told.
    Told(u64, u64),
    /// The source is read.
    Read,
}

/// What was read of an earlier life.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub(super) segments: Vec<SegmentId>,
    pub(super) adopted: u64,
    pub(super) refused: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Scribe {
    /// This life of the master, and the one before.
    life: u64,
    before: u64,
    alive_ms: u64,
    last_number: u32,
    /// Of earlier lives, whose clients did not mount again yet.
    loaded: BTreeMap<SegmentId, (u32, Held)>,
    tended: Vec<Tended>,
    /// Segments that are being emptied or were, as the log says.
    emptied: BTreeMap<SegmentId, SegmentStatus>,
    /// No longer in the log when what waits is durable.
    dropped: Vec<SegmentId>,
    /// The number of this master's roster that is in the log.
    roster: u64,
    version: Option<u64>,
    /// The time is over in which what an earlier life knew comes back.
    knows_all: bool,
    waiting: Vec<u8>,
    read: Read,
}

impl Scribe {
    /// Begins a life, behind what the log says.
    pub(super) fn new(image: Image, life: u64, epoch_ms: u64) -> Scribe {
        let mut waiting = Vec::new();
        Record::Life(life).append(&mut waiting);
        Record::Alive(epoch_ms).append(&mut waiting);
        let (before, last_number) = (image.life, image.last_number);
        let mut loaded = BTreeMap::new();
        for (number, held) in image.segments {
            // Of two mounts of an id the later one counts.
            if let Some((older, _)) = loaded.insert(held.note.id, (number, held)) {
                Record::Gone(older).append(&mut waiting);
            }
        }
        Scribe {
            life,
            before,
            alive_ms: epoch_ms,
            last_number,
            loaded,
            tended: Vec::new(),
            emptied: image.statuses,
            dropped: Vec::new(),
            roster: 0,
            version: None,
            knows_all: false,
            waiting,
            read: Read::default(),
        }
    }

    /// Asks every segment what there is to be written. Answers whether there is more than that.
    pub(super) fn gather(&mut self, catalog: &Catalog, now: MonotonicTime, epoch_ms: u64) -> bool {
        if !self.waiting.is_empty() {
            // It was not written yet.
            return true;
        }
        self.follow_roster(catalog);
        self.follow_mounts(catalog);
        self.forget_loaded(catalog, now);
        let mut more = false;
        for at in 0..self.tended.len() {
            if self.waiting.len() > WAITING_MAX {
                self.tended.rotate_left(at);
                return true;
            }
            let Some(tended) = self.tended.get_mut(at) else { break };
            let asked = Asked { catalog, life: self.life, now, epoch_ms };
            more |= asked.ask(tended, &mut self.waiting, &mut self.read);
        }
        if epoch_ms.saturating_sub(self.alive_ms) >= ALIVE_MS {
            self.alive_ms = epoch_ms;
            Record::Alive(epoch_ms).append(&mut self.waiting);
        }
        more
    }

    /// What is to be written.
    pub(super) fn waiting(&self) -> &[u8] {
        &self.waiting
    }

    /// What waited is durable. Answers what was read of earlier lives.
    pub(super) fn committed(&mut self, catalog: &Catalog, now: MonotonicTime) -> Read {
        self.waiting.clear();
        for tended in &mut self.tended {
            match tended.next.take() {
                Some(Next::Told(life, batch)) => tended.told = (life, batch),
                Some(Next::Read) => {
                    let adopting = tended.adopting(true, now);
                    if catalog.adopt_logged(&adopting, [], |_| {}).is_ok() {
                        tended.told = (self.life, 0);
                        self.read.segments.push(tended.id);
                    }
                }
                None => {}
            }
        }
        for id in self.dropped.drain(..) {
            if !self.tended.iter().any(|tended| tended.id == id) {
                catalog.log_drops(id);
            }
        }
        std::mem::take(&mut self.read)
    }

    /// Whose directories are up to date, if that has changed.
    fn follow_roster(&mut self, catalog: &Catalog) {
        if self.roster == catalog.roster_number() {
            return;
        }
        let Roster { incarnation, term, number, members } = catalog.roster();
        self.roster = number;
        Record::Roster(RosterNote { incarnation, term, number, members }).append(&mut self.waiting);
    }

    /// Segments that came and went since the last look.
    fn follow_mounts(&mut self, catalog: &Catalog) {
        let version = catalog.segments_version();
        if self.version == Some(version) {
            return;
        }
        self.version = Some(version);
        self.follow_statuses(catalog);
        let mut listed: BTreeMap<u64, LoggedSegment> =
            catalog.logged_segments().into_iter().map(|segment| (segment.mount, segment)).collect();
        let (waiting, dropped) = (&mut self.waiting, &mut self.dropped);
        self.tended.retain(|tended| {
            let stays = listed.remove(&tended.mount).is_some();
            if !stays {
                Record::Gone(tended.number).append(waiting);
                dropped.push(tended.id);
            }
            stays
        });
        for segment in listed.into_values() {
            if catalog.log_takes(segment.segment.id, segment.mount) {
                let tended = self.begin(&segment);
                self.tended.push(tended);
            }
        }
    }

    /// Segments that are being emptied since the last look, that were, and that take objects again or are gone.
    fn follow_statuses(&mut self, catalog: &Catalog) {
        let now = catalog.emptied();
        let over = self.emptied.keys().filter(|id| !now.contains_key(id)).map(|id| (*id, SegmentStatus::OK));
        let changed = now.iter().filter(|(id, status)| self.emptied.get(id) != Some(status));
        for (id, status) in over.chain(changed.map(|(id, status)| (*id, *status))) {
            Record::Status(id, status).append(&mut self.waiting);
        }
        self.emptied = now;
    }

    /// A segment is mounted: what the log says of it counts if its client says that it is the memory of before.
    fn begin(&mut self, segment: &LoggedSegment) -> Tended {
        let id = segment.segment.id;
        let note = SegmentNote::of(&segment.segment, segment.owner);
        let tended = |number, told, source| {
            let (owner, mount) = (segment.owner, segment.mount);
            Tended { number, id, owner, mount, told, next: None, source }
        };
        match self.loaded.remove(&id) {
            Some((number, held)) if segment.again && held.note == note && self.before != 0 => {
                return tended(number, (self.before, 0), Some(held));
            }
            Some((number, _)) => Record::Gone(number).append(&mut self.waiting),
            None => {}
        }
        self.last_number += 1;
        Record::Mounted(self.last_number, note).append(&mut self.waiting);
        tended(self.last_number, (self.life, 0), None)
    }

    /// What nobody mounted in time is struck out of the log.
    fn forget_loaded(&mut self, catalog: &Catalog, now: MonotonicTime) {
        if self.knows_all || catalog.is_relearning(now) {
            return;
        }
        self.knows_all = true;
        catalog.expect_no_more_statuses();
        self.follow_statuses(catalog);
        for (id, (number, _)) in std::mem::take(&mut self.loaded) {
            Record::Gone(number).append(&mut self.waiting);
            self.dropped.push(id);
        }
    }
}

impl Tended {
    fn adopting(&self, last: bool, now: MonotonicTime) -> Adopting {
        Adopting { client: self.owner, segment: self.id, incarnation: self.told.0, last, now }
    }
}

/// One look at a segment.
struct Asked<'c> {
    catalog: &'c Catalog,
    life: u64,
    now: MonotonicTime,
    epoch_ms: u64,
}

impl Asked<'_> {
    /// Answers whether there may be more at once.
    fn ask(&self, tended: &mut Tended, waiting: &mut Vec<u8>, read: &mut Read) -> bool {
        let Tended { number, id, owner, told: (incarnation, applied), .. } = *tended;
        let call = SyncCall { client: owner, segment: id, incarnation, applied, limit: LIMIT, now: self.now };
        let mut notes = Vec::new();
        let note = |record: Published<'_>| Record::append_note(&mut notes, number, &entry_of(&record, self.epoch_ms));
        // An error means that it is not mounted any more: the next look finds that.
        let Ok(told) = self.catalog.tell_log(&call, note) else { return false };
        match told.order {
            Order::Tell => {
                self.tell(tended, waiting, read);
                return true;
            }
            Order::Apply if (told.incarnation, told.batch) == (incarnation, applied) => return false,
            Order::ClearFirst => Record::Clear(number).append(waiting),
            Order::Apply => {}
        }
        told.struck.iter().for_each(|offset| Record::Strike(number, *offset).append(waiting));
        waiting.append(&mut notes);
        tended.next = Some(Next::Told(self.life, told.batch));
        true
    }

    /// Tells the catalog all that an earlier life wrote; what it does not take over is struck out.
    fn tell(&self, tended: &mut Tended, waiting: &mut Vec<u8>, read: &mut Read) {
        let Some(source) = tended.source.take() else {
            // It was read in part, by a mount that is gone: the log is to say nothing rather than too much.
            Record::Clear(tended.number).append(waiting);
            tended.next = Some(Next::Read);
            return;
        };
        let adopting = tended.adopting(false, self.now);
        let mut entries = source.entries().peekable();
        while entries.peek().is_some() {
            let page = entries.by_ref().take(LIMIT);
            let mut refused = 0;
            let taken = self.catalog.adopt_logged(
                &adopting,
                page.map(|entry| {
                    read.adopted += 1;
                    published(&entry, self.epoch_ms)
                }),
                |offset| {
                    refused += 1;
                    Record::Strike(tended.number, offset).append(waiting);
                },
            );
            if taken.is_err() {
                return;
            }
            read.adopted -= refused;
            read.refused += refused;
        }
        tended.next = Some(Next::Read);
    }
}
