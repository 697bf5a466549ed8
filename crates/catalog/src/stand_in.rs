//! Copies that are made while a node is away, before it is given up.
//!
//! A node that does not answer may come back with what it holds, so its replicas stay in the record. Until then its objects live
//! on what is left of them: after a short time each gets another replica, as if one was lost. If the node comes back, what is
//! one too many goes, the newest first; if it does not, its replicas go and nothing is missing.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use yb_types::MonotonicTime;

use crate::catalog::{Catalog, Leave};
use crate::effects::Effects;
use crate::entry::{Entry, Replica};
use crate::segment::{MountedSegment, Reach};
use crate::segments::SegmentTable;
use crate::shard::ShardState;

/// Objects with more replicas than they are to have for a while, at most; of others no copy is made before their node is given up.
const OBJECTS_MAX: usize = 1 << 20;
/// Extents looked at under one lock of a segment.
const CHUNK: u32 = 256;
/// After a node came back or was given up: copies that are under way end first.
const SETTLE_AFTER: Duration = Duration::from_secs(5);

/// A segment whose client is not heard of.
struct Away {
    segment: Arc<MountedSegment>,
    since: MonotonicTime,
    /// Its next extent to look at; `None`: not begun.
    next: Option<u32>,
    done: bool,
}

/// How many replicas a write has when its nodes are there.
#[derive(Clone, Copy, Debug)]
struct Meant {
    generation: u64,
    replicas: u32,
}

/// Who is away, and which objects may have a replica too many.
#[derive(Default)]
pub(crate) struct StandIns {
    away: BTreeMap<u32, Away>,
    meant: BTreeMap<u64, Meant>,
    /// When replicas that are too many are looked for, and behind which object.
    settle: Option<(MonotonicTime, Bound<u64>)>,
}

impl StandIns {
    /// Follows what is heard of the clients.
    fn look(&mut self, segments: &SegmentTable, now: MonotonicTime) {
        let is_away = |segment: &MountedSegment| segment.is_live() && segment.reach() == Reach::Offline;
        let before = self.away.len();
        self.away.retain(|_, away| is_away(&away.segment));
        if self.away.len() < before {
            self.settle_soon(now);
        }
        for segment in segments.iter().filter(|segment| is_away(segment)) {
            let new = || Away { segment: Arc::clone(segment), since: now, next: None, done: false };
            self.away.entry(segment.index()).or_insert_with(new);
        }
    }

    fn settle_soon(&mut self, now: MonotonicTime) {
        if !self.meant.is_empty() {
            self.settle = Some((now + SETTLE_AFTER, Bound::Unbounded));
        }
    }

    /// Whether replicas in a segment are done without.
    fn is_missed(&self, index: u32) -> bool {
        self.away.get(&index).is_some_and(|away| away.next.is_some() || away.done)
    }

    /// The segment whose objects are to be looked at, and from where.
    fn walk(&self, grace: Duration, now: MonotonicTime) -> Option<(Arc<MountedSegment>, u32)> {
        let due = |away: &&Away| !away.done && now.since(away.since) >= grace;
        self.away.values().find(due).map(|away| (Arc::clone(&away.segment), away.next.unwrap_or(0)))
    }

    fn walked(&mut self, segment: &MountedSegment, next: Option<u32>) {
        if let Some(away) = self.away.get_mut(&segment.index()) {
            away.done = next.is_none();
            away.next = next;
        }
    }

    /// The replicas that a write is to have; `None`: those that it has.
    fn meant(&self, place: u64, generation: u64) -> Option<u32> {
        self.meant.get(&place).filter(|meant| meant.generation == generation).map(|meant| meant.replicas)
    }

    /// Notes what a write has now, unless that is known. `false`: there is no room.
    fn note(&mut self, place: u64, new: Meant) -> bool {
        if self.meant(place, new.generation).is_none() {
            if self.meant.len() >= OBJECTS_MAX {
                return false;
            }
            self.meant.insert(place, new);
        }
        true
    }

    /// The next objects to settle, if it is time.
    fn due(&self, now: MonotonicTime) -> Vec<(u64, Meant)> {
        let Some((_, behind)) = self.settle.filter(|(at, _)| now >= *at) else { return Vec::new() };
        let rest = self.meant.range((behind, Bound::Unbounded));
        rest.take(CHUNK as usize).map(|(&place, &meant)| (place, meant)).collect()
    }
}

/// What is to be done about an object that may have too many replicas.
enum Settled {
    /// Nothing: forget it.
    Done,
    /// It is copied or read for a copy now.
    Later,
    /// A node of it is away still.
    Waits,
}

impl Catalog {
    /// Follows whose segments are away, while losses are [followed](Self::follow_losses).
    pub(crate) fn look_for_stand_ins(&self, now: MonotonicTime) {
        if self.are_losses_followed() {
            self.stand_ins.lock().look(&self.segments.load(), now);
        }
    }

    /// Whether a replica counts as there: its segment is mounted, and not away for long.
    pub(crate) fn is_at_hand(&self, replica: &Replica, table: &SegmentTable) -> bool {
        replica.is_complete()
            && table.live(replica.segment).is_some()
            && !self.stand_ins.lock().is_missed(replica.segment)
    }

    /// The replicas that a write is to have, if it has more or fewer for a while.
    pub(crate) fn meant_replicas(&self, place: u64, generation: u64) -> Option<u32> {
        self.stand_ins.lock().meant(place, generation)
    }

    /// A segment that was given up is forgotten.
    pub(crate) fn settle_stand_ins(&self, now: MonotonicTime) {
        self.stand_ins.lock().settle_soon(now);
    }

    /// Notes losses of some objects of a segment that is away, or settles some objects. Answers whether there was anything to
    /// do. Costs what the segment holds, whatever else is stored.
    pub(crate) fn stand_in_step(&self, now: MonotonicTime) -> bool {
        let walk = self.stand_ins.lock().walk(self.settings.repair_grace, now);
        match walk {
            Some((segment, next)) => self.miss_some(&segment, next),
            None => return self.settle_some(now),
        }
        true
    }

    fn miss_some(&self, segment: &MountedSegment, next: u32) {
        let mut found = Vec::with_capacity(CHUNK as usize);
        let next_chunk = segment.scan(next, CHUNK, &mut found);
        // Before anything is noted: what is planned for it must not count on this segment.
        self.stand_ins.lock().walked(segment, next_chunk.or(Some(next)));
        for owned in found {
            let (shard, slot) = ((owned.owner >> 32) as usize, owned.owner as u32);
            if let Some(shard) = self.shards.get(shard) {
                self.miss(&shard.state.read(), owned.owner, slot);
            }
        }
        self.stand_ins.lock().walked(segment, next_chunk);
    }

    /// Notes that an object does without a replica, if others can be read.
    fn miss(&self, state: &ShardState, place: u64, slot: u32) {
        let Some(entry) = state.slab.get(slot).filter(|entry| entry.is_finished()) else { return };
        let table = self.segments.load();
        let complete = |replica: &&Replica| replica.is_complete() && table.live(replica.segment).is_some();
        let all = entry.replicas.as_slice().iter().filter(complete);
        let readable = all.clone().any(|replica| table.readable(replica.segment).is_some());
        let had = all.count();
        let meant = Meant { generation: entry.generation().0.get(), replicas: u32::try_from(had).unwrap_or(u32::MAX) };
        if readable && self.stand_ins.lock().note(place, meant) {
            self.note_loss(state, slot, had);
        }
    }

    fn settle_some(&self, now: MonotonicTime) -> bool {
        let due = self.stand_ins.lock().due(now);
        let Some(&(last, _)) = due.last() else {
            let mut stand_ins = self.stand_ins.lock();
            if stand_ins.settle.is_some_and(|(at, _)| now >= at) {
                stand_ins.settle = None;
            }
            return false;
        };
        let (mut done, mut later) = (Vec::new(), false);
        for (place, meant) in due {
            match self.settle(place, meant, now) {
                Settled::Done => done.push(place),
                Settled::Later => later = true,
                Settled::Waits => {}
            }
        }
        let mut stand_ins = self.stand_ins.lock();
        for place in done {
            stand_ins.meant.remove(&place);
        }
        // One that is busy is looked at again, and with it the others.
        let again = (now + SETTLE_AFTER, Bound::Unbounded);
        stand_ins.settle = Some(if later { again } else { (now, Bound::Excluded(last)) });
        true
    }

    /// Drops what an object has too many of.
    fn settle(&self, place: u64, meant: Meant, now: MonotonicTime) -> Settled {
        let (shard, slot) = ((place >> 32) as usize, place as u32);
        let Some(shard) = self.shards.get(shard) else { return Settled::Done };
        let mut state = shard.state.write();
        let is_meant = |entry: &&Entry| entry.is_finished() && entry.generation().0.get() == meant.generation;
        let Some(entry) = state.slab.get(slot).filter(is_meant) else { return Settled::Done };
        let table = self.segments.load();
        let mut there: Vec<Replica> = Vec::new();
        for replica in entry.replicas.as_slice().iter().filter(|replica| replica.is_complete()) {
            match table.live(replica.segment).map(|segment| segment.reach()) {
                Some(Reach::Offline) => return Settled::Waits,
                Some(_) => there.push(*replica),
                None => {}
            }
        }
        let is_copied = entry.extras().is_some_and(|extras| extras.copy.is_some());
        if is_copied || entry.is_referenced() || entry.successor().is_some() {
            return Settled::Later;
        }
        let too_many = there.len().saturating_sub(meant.replicas as usize);
        if too_many > 0 {
            there.sort_unstable_by_key(|replica| std::cmp::Reverse(replica.id()));
            there.truncate(too_many);
            let goes = |replica: &Replica| there.iter().any(|gone| gone.id() == replica.id());
            self.drop_replicas(&mut state, slot, Leave::Readable, now, goes, &mut Effects::default());
            self.counters.add(|c| &c.stand_ins_dropped, too_many as u64);
        }
        Settled::Done
    }
}
