//! Taking over what a directory says that an earlier master told.

use std::num::NonZeroU64;

use yb_alloc::Extent;
use yb_types::{ClientId, ErrorCode, Generation, MonotonicTime, SegmentId};

use super::Published;
use super::feed::{Feed, Phase, Reading};
use crate::catalog::{Caller, Catalog, Leave};
use crate::effects::Effects;
use crate::entry::{Entry, Replica, Replicas, flag};
use crate::evict::{Newcomers, SLOTS_PER_SHARD};
use crate::extras::SoftPin;
use crate::key::{KeyHash, Tenant};
use crate::planted::{Fault, planted};
use crate::segment::MountedSegment;
use crate::shard::ShardState;
use crate::sync::atomic::Ordering;
use crate::tenants::Charge;

/// A node tells a page of its directory.
#[derive(Clone, Copy, Debug)]
pub struct Adopting {
    /// The node.
    pub client: ClientId,
    /// Its segment.
    pub segment: SegmentId,
    /// The master that told what it has.
    pub incarnation: u64,
    /// There is nothing more, and what was refused is struck out.
    pub last: bool,
    /// Now.
    pub now: MonotonicTime,
}

/// One replica that is judged.
struct Judged<'a, 'r> {
    record: &'r Published<'a>,
    segment: &'r MountedSegment,
    tenant: Tenant,
    hash: KeyHash,
    now: MonotonicTime,
    /// Whoever was given its address by an earlier master reads no longer than this.
    leased_until: MonotonicTime,
}

impl Judged<'_, '_> {
    /// Whether an entry has exactly this replica.
    fn is_in(&self, entry: &Entry) -> bool {
        let is_it = |replica: &Replica| {
            replica.segment == self.segment.index() && replica.offset == self.record.offset && replica.is_complete()
        };
        entry.is_finished() && self.is_of(entry) && entry.replicas.as_slice().iter().any(is_it)
    }

    /// Whether an entry is of the same write.
    fn is_of(&self, entry: &Entry) -> bool {
        entry.generation().0.get() == self.record.generation && entry.size == self.record.size
    }
}

impl Catalog {
    /// Takes a page of a directory over, in order of offset, behind the pages before. `refused` gets the offsets of what
    /// is not taken over: the node is to strike it out before it tells that it is through.
    ///
    /// # Errors
    /// `SEGMENT_NOT_FOUND`, and `UNAVAILABLE_IN_CURRENT_STATUS` when nobody asked for this directory, or another page of it
    /// is being worked on.
    pub fn adopt<'a>(
        &self,
        call: &Adopting,
        page: impl IntoIterator<Item = Published<'a>>,
        refused: impl FnMut(u64),
    ) -> Result<(), ErrorCode> {
        self.adopt_from(call, |feed| !feed.is_logged(), page, refused)
    }

    /// Takes a page over from whoever keeps the directory, if `is_kept` says that it is the caller.
    pub(super) fn adopt_from<'a>(
        &self,
        call: &Adopting,
        is_kept: impl Fn(&Feed) -> bool,
        page: impl IntoIterator<Item = Published<'a>>,
        mut refused: impl FnMut(u64),
    ) -> Result<(), ErrorCode> {
        let segment = self.kept_segment(call.client, call.segment)?;
        let feed = segment.feed().filter(|feed| is_kept(feed)).ok_or(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS)?;
        feed.hear(call.now);
        let mut state = feed.state();
        let (is_asked, is_untold) = (state.read_from == call.incarnation, state.batch == 0);
        let mut reading = match &mut state.phase {
            Phase::Reading(reading) if is_asked => {
                Some(reading.take().ok_or(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS)?)
            }
            // The answer to its last page was lost, and it tells all once more.
            Phase::Live if is_asked && is_untold => None,
            _ => return Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS),
        };
        drop(state);
        let leased_until = self.segments.registry().born_by(call.now) + self.longest_read();
        let mut newcomers: Option<Newcomers<'_>> = None;
        let mut whose = Tenant::NOBODY;
        for record in page {
            let tenant =
                if record.tenant.is_empty() { Tenant::DEFAULT } else { self.tenants.writer(record.tenant.as_bytes()) };
            if newcomers.is_none() || tenant != whose {
                newcomers.take().into_iter().for_each(Newcomers::announce);
                let caller = Caller { tenant, client: call.client, now: call.now };
                (newcomers, whose) = (Some(Newcomers::new(&self.evictor, &caller)), tenant);
            }
            let hash = self.hash(tenant, record.key);
            let judged = Judged { record: &record, segment: &segment, tenant, hash, now: call.now, leased_until };
            let taken = newcomers.as_mut().and_then(|newcomers| self.adopt_one(&judged, reading.as_mut(), newcomers));
            if taken.is_none() {
                refused(record.offset);
            }
        }
        newcomers.into_iter().for_each(Newcomers::announce);
        if let Some(reading) = reading {
            let mut state = feed.state();
            if call.last {
                feed.begin(&mut state);
                drop(state);
                segment.free_refused(&reading.refused);
            } else {
                state.phase = Phase::Reading(Some(reading));
            }
        }
        Ok(())
    }

    /// `None`: not taken over.
    fn adopt_one(
        &self,
        judged: &Judged<'_, '_>,
        reading: Option<&mut Reading>,
        newcomers: &mut Newcomers<'_>,
    ) -> Option<()> {
        let Judged { record, tenant, hash, now, .. } = *judged;
        let generation = NonZeroU64::new(record.generation).filter(|_| !record.key.is_empty())?;
        let mut state = self.shards[hash.shard].state.write();
        let found = self.find_live(&mut state, tenant, hash, record.key, now);
        if found.is_some_and(|slot| judged.is_in(&state.slab[slot])) {
            return Some(());
        }
        let reading = reading?;
        let is_gone = self.relearning.is_gone(hash.whole) && !planted(Fault::AdoptGone);
        if is_gone || self.tenants.is_closed(tenant) || self.is_too_long(record.key) {
            return None;
        }
        if found.is_none() && self.is_overweight(&state, record.key) {
            return None;
        }
        let (slot, is_new) = match found {
            None => (state.slab.reserve()?, true),
            Some(slot) => match self.compare(&state.slab[slot], judged)? {
                Better::OneMore => (slot, false),
                Better::Newer => {
                    self.erase(&mut state, slot, Leave::Readable, now, &mut Effects::default());
                    self.relearning.forgive(hash.whole);
                    (state.slab.reserve()?, true)
                }
            },
        };
        let Some(replica) = self.restore(judged, reading, is_new, slot) else {
            if is_new {
                state.slab.retire(slot);
            }
            return None;
        };
        self.next_id.0.fetch_max(record.generation.max(record.replica.0).saturating_add(1), Ordering::Relaxed);
        if !is_new {
            let entry = &mut state.slab[slot];
            let all: Vec<Replica> = entry.replicas.as_slice().iter().copied().chain([replica]).collect();
            entry.replicas = Replicas::from_slice(&all);
            return Some(());
        }
        self.fill_adopted(&mut state, slot, judged, (replica, Generation(generation)));
        newcomers.add(hash, slot, &state.slab[slot]);
        Some(())
    }

    /// What a told replica is beside what is known of its key; `None`: nothing that is wanted.
    fn compare(&self, known: &Entry, judged: &Judged<'_, '_>) -> Option<Better> {
        let is_busy = known.is_referenced() || known.successor().is_some() || known.is_being_offloaded();
        // Not by its generation: the clock of an earlier master may have been ahead.
        if !known.is_finished() || !known.has(flag::LEARNED) || is_busy {
            return None;
        }
        let is_here = |replica: &Replica| replica.segment == judged.segment.index();
        if judged.is_of(known) {
            return (!known.replicas.as_slice().iter().any(is_here)).then_some(Better::OneMore);
        }
        let is_newer = known.generation().0.get() < judged.record.generation;
        (is_newer != planted(Fault::AdoptOlder)).then_some(Better::Newer)
    }

    /// Takes the space and charges for it.
    fn restore(&self, judged: &Judged<'_, '_>, reading: &mut Reading, is_new: bool, slot: u32) -> Option<Replica> {
        let Judged { record, segment, tenant, hash, .. } = *judged;
        if slot > SLOTS_PER_SHARD || record.replica.0 == 0 || record.replica.0 >> 63 != 0 {
            return None;
        }
        let extent: Extent = segment.restore_next(&mut reading.at, (record.offset, record.size), hash.member(slot))?;
        let charge = Charge { bytes: record.size, replaces: 0 };
        let charged =
            if is_new { self.tenants.open_object(tenant, charge) } else { self.tenants.charge(tenant, charge) };
        if charged.is_err() {
            reading.refused.push(extent.node);
            return None;
        }
        let mut replica = Replica::new(record.replica.0, segment.index(), extent);
        replica.complete();
        Some(replica)
    }

    fn fill_adopted(
        &self,
        state: &mut ShardState,
        slot: u32,
        judged: &Judged<'_, '_>,
        (replica, generation): (Replica, Generation),
    ) {
        let Judged { record, tenant, hash, now, leased_until, .. } = *judged;
        state.slab.name(slot, record.key);
        let entry = &mut state.slab[slot];
        entry.tenant = tenant;
        entry.creator = record.writer;
        entry.size = record.size;
        entry.data_type = record.data_type;
        entry.clear_facts();
        entry.set(flag::LEARNED, true);
        entry.set(flag::HARD_PIN, record.hard_pin);
        entry.replicas = Replicas::from_slice(&[replica]);
        entry.set_start(generation.0.get(), now);
        if !record.group.is_empty() {
            entry.set(flag::GROUPED, true);
            entry.extras_mut().group = Some(self.groups.enter(tenant, record.group));
        }
        state.set_soft_pin(slot, record.soft_pin.map(SoftPin::Pending));
        state.publish(slot, hash.word);
        state.finish(slot, now, record.checksum);
        let entry = &mut state.slab[slot];
        if entry.has(flag::GROUPED)
            && let Some(membership) = &mut entry.extras_mut().group
        {
            self.groups.join(membership, hash.member(slot));
        }
        entry.grant(leased_until);
    }
}

enum Better {
    /// A replica of the same write.
    OneMore,
    /// A later write.
    Newer,
}
