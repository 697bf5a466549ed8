//! Taking space for the replicas of one object: what the caller named first, then what the policy proposes.

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use yb_types::{ByteLen, ClientId, MonotonicTime, ReplicateConfig};

use crate::catalog::Catalog;
use crate::effects::PutRefusal;
use crate::entry::Replica;
use crate::placement::{PlacementPolicy, PlacementRequest, PlacementView, Random};
use crate::segment::MountedSegment;
use crate::segments::SegmentTable;
use crate::settings::AllocationStrategy;
use crate::strategies::LocalFirst;

/// Replicas with their space, still without ids.
pub(crate) type Placed = SmallVec<[Replica; 4]>;

/// Space for one object.
#[derive(Clone, Copy)]
pub(crate) struct SpaceWanted<'a> {
    pub replicas: usize,
    pub size: ByteLen,
    /// The owner's word of the extents.
    pub owner: u64,
    /// Hash of the key.
    pub hash: u64,
    pub config: &'a ReplicateConfig,
    /// Where the batch's first object went, when all are to go to one place.
    pub same_segment: Option<u32>,
    /// Nodes that the writer does not reach: the last that are taken.
    pub cut_off: &'a [ClientId],
    /// The call has no other objects.
    pub alone: bool,
    pub now: MonotonicTime,
}

/// Small objects of a batch that lie in one segment, see [`PlacementPolicy::run_bytes`]. As long as it lasts, other batches
/// would rather go elsewhere.
pub(crate) struct Run {
    segment: Arc<MountedSegment>,
    /// Bytes that may still be added.
    left: u64,
}

/// A run is no larger than this share of its segment.
const RUN_SHARE: u64 = 1024;

impl Run {
    fn begin(segment: &Arc<MountedSegment>, left: u64) -> Run {
        segment.enter();
        Run { segment: Arc::clone(segment), left }
    }

    /// Space for the next object of the run, if it still belongs to it and there is room.
    fn extend(&mut self, wanted: &SpaceWanted<'_>) -> Option<Replica> {
        self.left = self.left.checked_sub(wanted.size.0.max(1))?;
        let extent = self.segment.allocate(wanted.size, wanted.owner, wanted.now)?;
        Some(Replica::new(0, self.segment.index(), extent))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.segment.leave();
    }
}

impl Catalog {
    /// Takes space for as many of the replicas as there is room for, at least one. `run` is where the batch's objects go
    /// on, and is followed where the caller names no place.
    pub(crate) fn take_space(
        &self,
        table: &SegmentTable,
        wanted: &SpaceWanted<'_>,
        run: &mut Option<Run>,
        random: &mut dyn Random,
    ) -> Result<Placed, PutRefusal> {
        let runs = wanted.replicas == 1 && !wanted.alone && is_free(wanted.config);
        if let Some(run) = run.as_mut().filter(|_| runs)
            && let Some(replica) = run.extend(wanted)
        {
            return Ok(smallvec![replica]);
        }
        // It ends before the next one is looked for: it is nobody to keep away from.
        if runs {
            *run = None;
        }
        let placed = self.place_anywhere(table, wanted, random)?;
        if runs && let [first] = placed[..] {
            *run = self.begin_run(table, first.segment, wanted.size.0);
        }
        Ok(placed)
    }

    /// The run that an object begins; `None` when another one like it would not belong to it.
    fn begin_run(&self, table: &SegmentTable, segment: u32, size: u64) -> Option<Run> {
        let segment = table.get(segment)?;
        let left = self.placement.run_bytes().min(segment.capacity().0 / RUN_SHARE).checked_sub(size)?;
        (left >= size).then(|| Run::begin(segment, left))
    }

    fn place_anywhere(
        &self,
        table: &SegmentTable,
        wanted: &SpaceWanted<'_>,
        random: &mut dyn Random,
    ) -> Result<Placed, PutRefusal> {
        let view = &table.view;
        let mut attempts = Attempts { table, wanted, cut_off: wanted.cut_off, apart: false, placed: SmallVec::new() };
        if self.settings.allocation_strategy == AllocationStrategy::Cxl {
            attempts.cut_off = &[];
            attempts.try_first_preferred()?;
        } else {
            attempts.try_all(&*self.placement, random);
            if attempts.placed.is_empty() && !attempts.cut_off.is_empty() {
                attempts.cut_off = &[];
                attempts.try_all(&*self.placement, random);
            }
        }
        if attempts.placed.is_empty() { Err(why_nowhere(view, wanted.size)) } else { Ok(attempts.placed) }
    }
}

fn why_nowhere(view: &PlacementView, size: ByteLen) -> PutRefusal {
    let mut segments = view.groups().iter().flat_map(|group| &group.members);
    // A client may have fallen silent since the view was built: eviction gives no space where nothing is placed.
    let takes = |segment: &Arc<MountedSegment>| segment.takes_objects();
    if !segments.any(takes) && !view.last_resort().iter().any(|segment| segment.takes_as_last_resort()) {
        PutRefusal::NoSegment
    } else if size > view.largest() {
        PutRefusal::LargerThanAnySegment
    } else {
        PutRefusal::NoSpace
    }
}

/// The tries to place one object.
struct Attempts<'a> {
    table: &'a SegmentTable,
    wanted: &'a SpaceWanted<'a>,
    /// Nodes that are not tried now.
    cut_off: &'a [ClientId],
    /// No two replicas on one host.
    apart: bool,
    placed: Placed,
}

impl Attempts<'_> {
    fn missing(&self) -> usize {
        self.wanted.replicas - self.placed.len()
    }

    /// All ways, one after the other, until nothing is missing.
    fn try_all(&mut self, policy: &dyn PlacementPolicy, random: &mut dyn Random) {
        let wanted = self.wanted;
        self.try_preferred();
        if wanted.config.prefer_alloc_in_same_node && wanted.replicas == 1 {
            self.follow(&LocalFirst, random);
        }
        // Replicas on different hosts survive each other's; replicas on one host are better than none.
        self.apart = wanted.replicas > 1;
        self.follow(policy, random);
        if self.apart {
            self.apart = false;
            self.follow(policy, random);
        }
        self.try_last_resort(random);
    }

    /// Whether the writer is known not to reach it.
    fn is_cut_off(&self, segment: &MountedSegment) -> bool {
        !self.cut_off.is_empty() && self.cut_off.contains(&segment.owner())
    }

    fn follow(&mut self, policy: &dyn PlacementPolicy, random: &mut dyn Random) {
        let SpaceWanted { replicas, size, hash, config, .. } = *self.wanted;
        let missing = self.missing();
        if missing > 0 {
            let request = PlacementRequest { missing, replicas, size, writer_host: &config.host_id, key_hash: hash };
            let table = self.table;
            policy.place(&table.view, &request, random, &mut |at| self.try_group(at));
        }
    }

    /// What the caller named: the place of the batch's first key, then preferred segments in order.
    fn try_preferred(&mut self) {
        let view = &self.table.view;
        let same = self.wanted.same_segment.and_then(|index| self.table.live(index));
        if let Some(at) = same.and_then(|segment| view.by_name(&segment.info().name)) {
            self.try_group(at);
        }
        for at in named(self.wanted.config).filter_map(|name| view.by_name(name)) {
            if self.missing() == 0 {
                return;
            }
            self.try_group(at);
        }
    }

    /// One replica with a node that was found slow a moment ago, where there is none elsewhere.
    fn try_last_resort(&mut self, random: &mut dyn Random) {
        let slow = self.table.view.last_resort();
        if slow.is_empty() || !self.placed.is_empty() {
            return;
        }
        let (before, after) = slow.split_at((random.next_u64() % slow.len() as u64) as usize);
        let SpaceWanted { size, owner, now, .. } = *self.wanted;
        let mut tried = after.iter().chain(before).filter(|segment| !self.is_cut_off(segment));
        let found =
            tried.find_map(|segment| Some(Replica::new(0, segment.index(), segment.allocate(size, owner, now)?)));
        self.placed.extend(found);
    }

    /// One replica in the first preferred segment, or none.
    fn try_first_preferred(&mut self) -> Result<(), PutRefusal> {
        let name = named(self.wanted.config).next().ok_or(PutRefusal::PreferredNeeded)?;
        if let Some(at) = self.table.view.by_name(name) {
            self.try_group(at);
        }
        Ok(())
    }

    /// Takes a replica's space in a group that holds none of this object yet.
    fn try_group(&mut self, at: usize) -> bool {
        let Some(group) = self.table.view.groups().get(at) else { return false };
        let holds = |replica: &Replica| group.members.iter().any(|segment| segment.index() == replica.segment);
        if self.placed.iter().any(holds) || (self.apart && self.is_on_host(group.host())) {
            return false;
        }
        let SpaceWanted { size, owner, now, .. } = *self.wanted;
        for segment in group.members.iter().filter(|segment| !self.is_cut_off(segment)) {
            if let Some(extent) = segment.allocate(size, owner, now) {
                self.placed.push(Replica::new(0, segment.index(), extent));
                return true;
            }
        }
        false
    }

    /// Whether a replica lies on that host; nobody knows of an unknown one.
    fn is_on_host(&self, host: &str) -> bool {
        let view = &self.table.view;
        let group_of = |replica: &Replica| view.by_name(&self.table.get(replica.segment)?.info().name);
        let is_there = |replica: &Replica| group_of(replica).is_some_and(|at| view.groups()[at].host() == host);
        !host.is_empty() && self.placed.iter().any(is_there)
    }
}

/// Longer lists of preferred segments are looked through once a call, not once a key.
const PREFERRED_FEW: usize = 8;
/// The most preferred segments that are tried for a key.
const PREFERRED_MAX: usize = 64;

impl Catalog {
    /// Cuts a long list of preferred segments down to those that take objects now, each once; names of others have no
    /// effect, as with the peer. The first one stays whatever it is: some placements go by it alone.
    pub fn narrow_preferred(&self, config: &mut ReplicateConfig) {
        if config.preferred_segments.len() <= PREFERRED_FEW {
            return;
        }
        let table = self.segments.load();
        let (mut seen, mut at) = (BTreeSet::new(), 0);
        config.preferred_segments.retain(|name| {
            at += 1;
            let group = table.view.by_name(name);
            seen.len() < PREFERRED_MAX && group.map_or(at == 1, |group| seen.insert(group))
        });
        config.preferred_segments.shrink_to_fit();
    }
}

/// Whether the caller leaves the place to the policy.
fn is_free(config: &ReplicateConfig) -> bool {
    !config.prefer_alloc_in_same_node && config.preferred_segment.is_empty() && config.preferred_segments.is_empty()
}

/// The preferred segments. The single form replaces the list.
fn named(config: &ReplicateConfig) -> impl Iterator<Item = &str> {
    let single = Some(config.preferred_segment.as_str()).filter(|name| !name.is_empty());
    let list = config.preferred_segments.iter().map(String::as_str).filter(move |_| single.is_none());
    single.into_iter().chain(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::Effects;
    use crate::segment::Reach;
    use crate::settings::CatalogSettings;
    use yb_types::{ClientId, Segment, SegmentId, Uuid};

    /// A client falls silent between the moment when its segments are told and the one when placement knows.
    #[test]
    fn space_that_nobody_offers_is_no_reason_to_evict() {
        let catalog = Catalog::new(CatalogSettings::default()).unwrap();
        let uuid = Uuid { first: 1, second: 2 };
        let segment = Segment { id: SegmentId(uuid), name: "a".into(), base: 4096, size: 4096, ..Segment::default() };
        catalog.mount(segment, ClientId(uuid), MonotonicTime(0), &mut Effects::default()).unwrap();
        let table = catalog.segments.load();
        assert_eq!(why_nowhere(&table.view, ByteLen(64)), PutRefusal::NoSpace);
        assert!(catalog.segments()[0].set_reach(Reach::Suspect));
        assert_eq!(why_nowhere(&table.view, ByteLen(64)), PutRefusal::NoSegment);
    }
}
