//! In which segments the replicas of an object go.

use std::collections::BTreeMap;
use std::sync::Arc;

use yb_types::ByteLen;

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

/// Segments that share a name. Two replicas of an object never go to the same name.
pub struct SegmentGroup {
    pub(crate) members: Vec<Arc<MountedSegment>>,
}

impl SegmentGroup {
    /// The name.
    pub fn name(&self) -> &str {
        self.members.first().map_or("", |segment| segment.info().name.as_str())
    }

    /// Share of the bytes that is free, the best of its members; in 0..=1.
    pub fn free_share(&self) -> f64 {
        self.members.iter().map(|segment| segment.free_share()).fold(0.0, f64::max)
    }

    fn is_on_host(&self, host: &str) -> bool {
        self.members.iter().any(|segment| segment.info().host_id == host)
    }
}

/// The segments that take new objects, by name. Built anew at each mount and unmount, never changed.
#[derive(Default)]
pub struct PlacementView {
    groups: Vec<SegmentGroup>,
    by_name: BTreeMap<String, usize>,
    largest: u64,
}

impl PlacementView {
    pub(crate) fn new<'a>(segments: impl Iterator<Item = &'a Arc<MountedSegment>>) -> Self {
        let mut view = PlacementView::default();
        for segment in segments.filter(|segment| segment.takes_objects()) {
            view.largest = view.largest.max(segment.capacity().0);
            let next = view.groups.len();
            let at = *view.by_name.entry(segment.info().name.clone()).or_insert(next);
            if at == next {
                view.groups.push(SegmentGroup { members: Vec::new() });
            }
            view.groups[at].members.push(Arc::clone(segment));
        }
        view
    }

    /// One group for each name.
    pub fn groups(&self) -> &[SegmentGroup] {
        &self.groups
    }

    /// The group of a name.
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Size of the largest segment.
    pub fn largest(&self) -> ByteLen {
        ByteLen(self.largest)
    }

    /// The groups with memory on a host, in order of name. An empty host is unknown and has none.
    pub(crate) fn on_host<'a>(&'a self, host: &'a str) -> impl Iterator<Item = usize> + 'a {
        let known = !host.is_empty();
        self.by_name.values().copied().filter(move |&at| known && self.groups[at].is_on_host(host))
    }
}

/// Proposes segments for the replicas that the preferred segments could not take.
///
/// `attempt(i)` tries group `i` of the view and says whether it took a replica; it refuses groups that hold one already
/// and those without room. The policy stops after `wanted` successes or when it has no more to propose.
pub trait PlacementPolicy: Send + Sync {
    /// Places up to `wanted` replicas.
    fn place(
        &self,
        view: &PlacementView,
        wanted: usize,
        random: &mut dyn Random,
        attempt: &mut dyn FnMut(usize) -> bool,
    );
}

/// A random segment, then its neighbours in order, each at most once.
pub struct RandomPlacement;

impl PlacementPolicy for RandomPlacement {
    fn place(
        &self,
        view: &PlacementView,
        wanted: usize,
        random: &mut dyn Random,
        attempt: &mut dyn FnMut(usize) -> bool,
    ) {
        let count = view.groups.len();
        let mut wanted = wanted;
        for at in ring(count, random) {
            if wanted == 0 {
                break;
            }
            wanted -= usize::from(attempt(at));
        }
    }
}

/// Of a sample of six times the replicas wanted, those with the largest share free first; then as [`RandomPlacement`].
pub struct FreeRatioFirst;

const SAMPLE_PER_REPLICA: usize = 6;

impl PlacementPolicy for FreeRatioFirst {
    fn place(
        &self,
        view: &PlacementView,
        wanted: usize,
        random: &mut dyn Random,
        attempt: &mut dyn FnMut(usize) -> bool,
    ) {
        let sample = wanted.saturating_mul(SAMPLE_PER_REPLICA);
        let mut sample: Vec<(f64, usize)> =
            ring(view.groups.len(), random).take(sample).map(|at| (view.groups[at].free_share(), at)).collect();
        sample.sort_by(|a, b| b.0.total_cmp(&a.0));
        let mut wanted = wanted;
        for (_, at) in sample {
            if wanted == 0 {
                return;
            }
            wanted -= usize::from(attempt(at));
        }
        if wanted > 0 {
            RandomPlacement.place(view, wanted, random, attempt);
        }
    }
}

/// Every index below `count` once, from a random one on.
fn ring(count: usize, random: &mut dyn Random) -> impl Iterator<Item = usize> + use<> {
    let start = if count > 1 { ((u128::from(random.next_u64()) * count as u128) >> 64) as usize } else { 0 };
    (start..count).chain(0..start)
}
