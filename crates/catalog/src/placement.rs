//! What placement sees of the segments that take objects, and what it is asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use yb_types::ByteLen;

use crate::room::RoomIndex;
use crate::segment::MountedSegment;

/// Randomness as an argument, so that a run can be repeated.
pub trait Random {
    /// The next 64 random bits.
    fn next_u64(&mut self) -> u64;
}

impl<F: FnMut() -> u64> Random for F {
    fn next_u64(&mut self) -> u64 {
        self()
    }
}

/// A number below `bound`, which is not 0.
pub(crate) fn below(random: &mut dyn Random, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}

/// Segments that share a name. Two replicas of an object never go to the same name.
pub struct SegmentGroup {
    pub(crate) members: Vec<Arc<MountedSegment>>,
    host: String,
}

impl SegmentGroup {
    /// The name.
    pub fn name(&self) -> &str {
        self.members.first().map_or("", |segment| segment.info().name.as_str())
    }

    /// The host that its memory is in; empty when nobody told.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Share of the bytes that is free, the best of its members; in 0..=1.
    pub fn free_share(&self) -> f64 {
        self.members.iter().map(|segment| segment.free_share()).fold(0.0, f64::max)
    }

    /// Whether some batch puts objects here now: its neighbour's core has the lock and the tables.
    pub fn is_busy(&self) -> bool {
        self.members.iter().any(|segment| segment.is_busy())
    }

    /// Share of its owner's local disk that is free, the best of its members; 1 when nobody told.
    pub fn disk_free_share(&self) -> f64 {
        self.members.iter().map(|segment| segment.disk_free_share()).fold(0.0, f64::max)
    }
}

/// The segments that take new objects, by name. Built anew when a segment comes, goes, or changes its status.
#[derive(Default)]
pub struct PlacementView {
    groups: Vec<SegmentGroup>,
    by_name: BTreeMap<String, usize>,
    /// Groups of a host in order of name. Groups of unknown hosts are in none.
    by_host: BTreeMap<String, Vec<usize>>,
    /// By index of a segment: its group, `NO_GROUP` for those that take nothing.
    group_of: Vec<u32>,
    /// By group: the weights of all groups up to its end, bytes where no segment is new.
    sums: Vec<u64>,
    room: Arc<RoomIndex>,
    largest: u64,
    /// Held back, for objects that find no other place.
    last_resort: Vec<Arc<MountedSegment>>,
}

const NO_GROUP: u32 = u32::MAX;

impl PlacementView {
    pub(crate) fn new<'a>(segments: impl Iterator<Item = &'a Arc<MountedSegment>>, room: &Arc<RoomIndex>) -> Self {
        let mut view = PlacementView { room: Arc::clone(room), ..PlacementView::default() };
        for segment in segments {
            if segment.takes_as_last_resort() {
                view.largest = view.largest.max(segment.capacity().0);
                view.last_resort.push(Arc::clone(segment));
            }
            if !segment.takes_objects() {
                continue;
            }
            view.largest = view.largest.max(segment.capacity().0);
            let next = view.groups.len();
            let at = *view.by_name.entry(segment.info().name.clone()).or_insert(next);
            if at == next {
                view.groups.push(SegmentGroup { members: Vec::new(), host: String::new() });
            }
            let group = &mut view.groups[at];
            if group.host.is_empty() {
                group.host = host_of(segment).to_owned();
            }
            group.members.push(Arc::clone(segment));
            let index = segment.index() as usize;
            if view.group_of.len() <= index {
                view.group_of.resize(index + 1, NO_GROUP);
            }
            view.group_of[index] = u32::try_from(at).unwrap_or(NO_GROUP);
        }
        for &at in view.by_name.values().filter(|&&at| !view.groups[at].host.is_empty()) {
            view.by_host.entry(view.groups[at].host.clone()).or_default().push(at);
        }
        let mut sum = 0u64;
        for group in &view.groups {
            sum = group.members.iter().fold(sum, |sum, segment| sum.saturating_add(segment.weight()));
            view.sums.push(sum);
        }
        view
    }

    /// One group for each name.
    pub fn groups(&self) -> &[SegmentGroup] {
        &self.groups
    }

    /// The segments that are held back because somebody found their node slow: better than none.
    pub(crate) fn last_resort(&self) -> &[Arc<MountedSegment>] {
        &self.last_resort
    }

    /// The group of a name.
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Size of the largest segment.
    pub fn largest(&self) -> ByteLen {
        ByteLen(self.largest)
    }

    /// Whether the group may have a free extent of this size. False is certain, true is not.
    pub fn may_fit(&self, at: usize, size: ByteLen) -> bool {
        let has_room = |segment: &Arc<MountedSegment>| {
            let index = segment.index();
            self.room.next(index, index + 1, size.0).is_some()
        };
        self.groups.get(at).is_some_and(|group| group.members.iter().any(has_room))
    }

    /// The groups that may have a free extent of this size, from a random one on, in order. Costs nothing for those that
    /// have not. One with several segments may come several times.
    pub fn with_room(&self, size: ByteLen, random: &mut dyn Random) -> impl Iterator<Item = usize> + use<'_> {
        let count = self.group_of.len() as u32;
        let start = if count > 1 { below(random, u64::from(count)) as u32 } else { 0 };
        let part = move |from: u32, end: u32| {
            let next = move |at: u32| self.room.next(at, end, size.0);
            std::iter::successors(next(from), move |&at| next(at + 1))
        };
        let found = part(start, count).chain(part(0, start));
        found.map(|index| self.group_of[index as usize]).filter(|&at| at != NO_GROUP).map(|at| at as usize)
    }

    /// A group at random, each as likely as it is large, new ones less so; `None` when there is none.
    pub fn draw(&self, random: &mut dyn Random) -> Option<usize> {
        let total = self.sums.last().copied().filter(|&total| total > 0)?;
        let ticket = below(random, total);
        Some(self.sums.partition_point(|&sum| sum <= ticket))
    }

    /// The groups by host, from this one on (or the next one in order), then of the others in order; those of one host
    /// in order of name, turned by the key's hash. None when the host is unknown.
    pub fn nearest<'a>(&'a self, host: &'a str, turn: u64) -> impl Iterator<Item = usize> + 'a {
        let from = self.by_host.range::<str, _>((std::ops::Bound::Included(host), std::ops::Bound::Unbounded));
        let rest = self.by_host.range::<str, _>((std::ops::Bound::Unbounded, std::ops::Bound::Excluded(host)));
        let hosts = from.chain(rest).filter(move |_| !host.is_empty());
        hosts.flat_map(move |(_, groups)| {
            let (before, after) = groups.split_at((turn % groups.len().max(1) as u64) as usize);
            after.iter().chain(before).copied()
        })
    }
}

/// The host of a segment: what its client says, else the host part of its data address. Names of the machine itself say
/// nothing.
fn host_of(segment: &MountedSegment) -> &str {
    let info = segment.info();
    if !info.host_id.is_empty() {
        return &info.host_id;
    }
    let host = match info.te_endpoint.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => info.te_endpoint.rsplit_once(':').map_or("", |(host, _)| host),
    };
    let is_local = matches!(host, "localhost" | "127.0.0.1" | "0.0.0.0" | "::1" | "::");
    if is_local { "" } else { host }
}

/// What is to be placed.
#[derive(Clone, Copy, Debug)]
pub struct PlacementRequest<'a> {
    /// Replicas still to be placed.
    pub missing: usize,
    /// Replicas that the object is to have.
    pub replicas: usize,
    /// Bytes of each.
    pub size: ByteLen,
    /// Host of the writer; empty when it is unknown.
    pub writer_host: &'a str,
    /// Hash of the key, the same for every write of it.
    pub key_hash: u64,
}

/// Proposes segments for the replicas that the preferred segments could not take.
///
/// `attempt(i)` tries group `i` of the view and says whether it took a replica; it refuses groups that hold one already
/// and those without room. The policy stops after `missing` successes or when it has no more to propose.
pub trait PlacementPolicy: Send + Sync {
    /// Places up to `missing` replicas.
    fn place(
        &self,
        view: &PlacementView,
        request: &PlacementRequest<'_>,
        random: &mut dyn Random,
        attempt: &mut dyn FnMut(usize) -> bool,
    );

    /// Small objects of one batch go to the segment of the first of them until they are so many bytes together; then the
    /// policy is asked again. 0: it is asked for each.
    fn run_bytes(&self) -> u64 {
        0
    }
}
