//! The choices of segments that an operator can name.

use smallvec::SmallVec;

use crate::placement::{PlacementPolicy, PlacementRequest, PlacementView, Random, SegmentGroup, below};
use crate::settings::AllocationStrategy;

impl AllocationStrategy {
    /// The policy that it names.
    pub(crate) fn policy(self) -> Box<dyn PlacementPolicy> {
        match self {
            AllocationStrategy::Random | AllocationStrategy::Cxl => Box::new(RandomPlacement),
            AllocationStrategy::FreeRatioFirst => Box::new(FreeRatioFirst),
            AllocationStrategy::SsdFreeRatioFirst => Box::new(SsdFreeRatioFirst),
            AllocationStrategy::LocalFirst => Box::new(LocalFirst),
            AllocationStrategy::Balanced => Box::new(Balanced),
        }
    }
}

/// Tries groups until nothing is missing; answers what still is.
fn try_all(missing: usize, groups: impl Iterator<Item = usize>, attempt: &mut dyn FnMut(usize) -> bool) -> usize {
    let mut missing = missing;
    for at in groups {
        if missing == 0 {
            break;
        }
        missing -= usize::from(attempt(at));
    }
    missing
}

/// A random segment with room, then the next ones in order.
pub struct RandomPlacement;

impl PlacementPolicy for RandomPlacement {
    fn place(
        &self,
        view: &PlacementView,
        request: &PlacementRequest<'_>,
        random: &mut dyn Random,
        attempt: &mut dyn FnMut(usize) -> bool,
    ) {
        try_all(request.missing, view.with_room(request.size, random), attempt);
    }
}

const SAMPLE_PER_REPLICA: usize = 6;

/// Of a sample of six times the replicas wanted, those that rank highest first; then as [`RandomPlacement`].
fn best_of_sample(
    view: &PlacementView,
    request: &PlacementRequest<'_>,
    random: &mut dyn Random,
    attempt: &mut dyn FnMut(usize) -> bool,
    rank: impl Fn(&SegmentGroup) -> f64,
) {
    let count = request.missing.saturating_mul(SAMPLE_PER_REPLICA);
    let sample = view.with_room(request.size, random).take(count);
    let mut sample: SmallVec<[(f64, usize); 24]> = sample.map(|at| (rank(&view.groups()[at]), at)).collect();
    sample.sort_by(|a, b| b.0.total_cmp(&a.0));
    let missing = try_all(request.missing, sample.into_iter().map(|(_, at)| at), attempt);
    if missing > 0 {
        RandomPlacement.place(view, &PlacementRequest { missing, ..*request }, random, attempt);
    }
}

/// Of a sample, the segment with the largest share free.
pub struct FreeRatioFirst;

impl PlacementPolicy for FreeRatioFirst {
    fn place(
        &self,
        view: &PlacementView,
        request: &PlacementRequest<'_>,
        random: &mut dyn Random,
        attempt: &mut dyn FnMut(usize) -> bool,
    ) {
        best_of_sample(view, request, random, attempt, SegmentGroup::free_share);
    }
}

/// Of a sample, the segment whose owner has the largest share of its disk free.
pub struct SsdFreeRatioFirst;

impl PlacementPolicy for SsdFreeRatioFirst {
    fn place(
        &self,
        view: &PlacementView,
        request: &PlacementRequest<'_>,
        random: &mut dyn Random,
        attempt: &mut dyn FnMut(usize) -> bool,
    ) {
        best_of_sample(view, request, random, attempt, SegmentGroup::disk_free_share);
    }
}

/// A single replica goes to the writer's host, or the next one in order with room; everything else as
/// [`RandomPlacement`].
pub struct LocalFirst;

impl PlacementPolicy for LocalFirst {
    fn place(
        &self,
        view: &PlacementView,
        request: &PlacementRequest<'_>,
        random: &mut dyn Random,
        attempt: &mut dyn FnMut(usize) -> bool,
    ) {
        let near = view.nearest(request.writer_host, request.key_hash);
        let near = near.filter(|&at| request.replicas == 1 && view.may_fit(at, request.size));
        let missing = try_all(request.missing, near, attempt);
        if missing > 0 {
            RandomPlacement.place(view, &PlacementRequest { missing, ..*request }, random, attempt);
        }
    }
}

/// Two segments are drawn, each as likely as it is large, and the one with the larger share free is taken.
///
/// That is the "power of two choices": the fullest segment is ahead of the mean by a hair whatever the sizes, and an
/// empty segment that joins a full pool gets at most twice its share of the new objects, so that it is not overrun.
pub struct Balanced;

/// Bytes of small objects of a batch that lie in one segment: too few to unbalance anything, enough that the segment's lock
/// and tables stay in the cache of the core that works on the batch.
const RUN: u64 = 1 << 20;

/// Draws that found nothing before the segments with room are walked through.
const DRAWS: usize = 4;

impl PlacementPolicy for Balanced {
    fn place(
        &self,
        view: &PlacementView,
        request: &PlacementRequest<'_>,
        random: &mut dyn Random,
        attempt: &mut dyn FnMut(usize) -> bool,
    ) {
        let mut missing = request.missing;
        for _ in 0..missing.min(view.groups().len()).saturating_add(DRAWS) {
            if missing == 0 {
                return;
            }
            let Some((first, second)) = two(view, request, random) else { continue };
            missing -= usize::from(attempt(first) || (second != first && attempt(second)));
        }
        if missing > 0 {
            RandomPlacement.place(view, &PlacementRequest { missing, ..*request }, random, attempt);
        }
    }

    fn run_bytes(&self) -> u64 {
        RUN
    }
}

/// One pair in so many is not compared, so that an empty segment stays below twice its share.
const BLIND: u64 = 8;

/// Shares free that differ by less are alike: then one where no other batch is at work comes first.
const ALIKE: f64 = 1.0 / 1024.0;

/// Two draws, the emptier first. A full one gives way to the other; `None` when both are.
fn two(view: &PlacementView, request: &PlacementRequest<'_>, random: &mut dyn Random) -> Option<(usize, usize)> {
    let compares = below(random, BLIND) > 0;
    let mut draw = || view.draw(random).filter(|&at| view.may_fit(at, request.size));
    let free = |at: usize| view.groups()[at].free_share();
    let is_busy = |at: usize| view.groups()[at].is_busy();
    match (draw(), draw()) {
        (Some(a), Some(b)) if is_busy(a) && !is_busy(b) && free(a) - free(b) < ALIKE => Some((b, a)),
        (Some(a), Some(b)) if is_busy(b) && !is_busy(a) && free(b) - free(a) < ALIKE => Some((a, b)),
        (Some(a), Some(b)) if compares && free(a) < free(b) => Some((b, a)),
        (Some(a), Some(b)) => Some((a, b)),
        (Some(one), None) | (None, Some(one)) => Some((one, one)),
        (None, None) => None,
    }
}
