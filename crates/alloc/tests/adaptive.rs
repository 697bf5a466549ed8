//! The adaptive allocator against a list of ranges, with sizes that come often, sizes that do not, and pools that change
//! from one size to another.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use yb_alloc::{AdaptiveAllocator, Alignment, BadNode, Cutting, Extent, NodeId};
use yb_types::ByteLen;

#[derive(Clone, Debug)]
enum Op {
    /// So many objects of a size.
    Many(u64, u32),
    /// Every so-manyth object goes.
    Thin(usize),
    Free(usize),
    NewOwner(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let often = prop_oneof![Just(15u64), Just(64), Just(1000), Just(1024), Just(4096)];
    prop_oneof![
        3 => (often, 1u32..300).prop_map(|(size, count)| Op::Many(size, count)),
        2 => (0u64..20_000, 1u32..4).prop_map(|(size, count)| Op::Many(size, count)),
        1 => (100_000u64..3_000_000).prop_map(|size| Op::Many(size, 1)),
        2 => (1usize..5).prop_map(Op::Thin),
        2 => any::<usize>().prop_map(Op::Free),
        1 => any::<usize>().prop_map(Op::NewOwner),
    ]
}

struct Model {
    space: AdaptiveAllocator,
    unit: u64,
    /// By offset: the extent and its owner's word.
    used: BTreeMap<u64, (Extent, u64)>,
    word: u64,
}

impl Model {
    fn allocate(&mut self, size: u64) {
        self.word += 1;
        match self.space.allocate(ByteLen(size), self.word) {
            Some(extent) => {
                assert!(extent.len >= size.max(1));
                let (before, after) =
                    (self.used.range(..extent.offset).next_back(), self.used.range(extent.offset..).next());
                assert!(before.is_none_or(|(_, (left, _))| left.offset + left.len <= extent.offset), "overlap");
                assert!(after.is_none_or(|(_, (right, _))| extent.offset + extent.len <= right.offset), "overlap");
                assert!(extent.offset + extent.len <= self.space.capacity().0, "behind the end");
                assert!(size < 4096 || extent.offset.is_multiple_of(self.unit), "alignment of {size}");
                self.used.insert(extent.offset, (extent, self.word));
            }
            None => {
                let need = size.max(1).div_ceil(self.unit) * self.unit;
                assert!(self.space.largest_free().0 < need, "refused {need}");
            }
        }
    }

    fn free(&mut self, offset: u64) {
        let (extent, _) = self.used.remove(&offset).unwrap();
        assert_eq!(self.space.free(extent.node), Ok(ByteLen(extent.len)));
        assert_eq!(self.space.free(extent.node), Err(BadNode(extent.node)), "twice");
    }

    fn check(&mut self) {
        let sum: u64 = self.used.values().map(|(extent, _)| extent.len).sum();
        assert_eq!(self.space.used().0, sum);
        assert_eq!(self.space.used().0 + self.space.free_bytes().0, self.space.capacity().0);
        assert!(self.space.largest_free() <= self.space.largest_free_bound());
        let mut seen = BTreeMap::new();
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.space.scan(at, 100, |owned| {
                assert!(seen.insert(owned.extent.offset, (owned.extent, owned.owner)).is_none(), "met twice");
            });
        }
        assert_eq!(seen, self.used);
    }

    fn apply(&mut self, op: Op) {
        let nth = |used: &BTreeMap<u64, _>, pick: usize| used.keys().nth(pick % used.len().max(1)).copied();
        match op {
            Op::Many(size, count) => (0..count).for_each(|_| self.allocate(size)),
            Op::Thin(step) => {
                let leave: Vec<u64> = self.used.keys().step_by(step).copied().collect();
                leave.into_iter().for_each(|offset| self.free(offset));
            }
            Op::Free(pick) => nth(&self.used, pick).into_iter().for_each(|offset| self.free(offset)),
            Op::NewOwner(pick) => {
                let Some(offset) = nth(&self.used, pick) else { return };
                self.word += 1;
                let held = self.used.get_mut(&offset).unwrap();
                held.1 = self.word;
                assert_eq!(self.space.set_owner(held.0.node, self.word), Ok(held.0));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_overlaps_counts_exactly_and_loses_no_owner(
        ops in prop::collection::vec(op(), 1..40),
        capacity in prop_oneof![Just(16u64 << 20), Just(1 << 20), (1u64 << 20)..(20 << 20)],
        adaptive in prop::bool::weighted(0.9),
    ) {
        let cutting = if adaptive { Cutting::Adaptive } else { Cutting::Offset };
        let space = AdaptiveAllocator::new(ByteLen(capacity), Alignment::CACHE_LINE, cutting);
        let mut model = Model { space, unit: 64, used: BTreeMap::new(), word: 0 };
        for op in ops {
            model.apply(op);
            model.check();
        }
        model.apply(Op::Thin(1));
        prop_assert_eq!(model.space.largest_free(), model.space.capacity());
        prop_assert_eq!(model.space.scan(0, u32::MAX, |_| ()), None);
    }
}

fn filled(size: u64, capacity: u64) -> (AdaptiveAllocator, Vec<Extent>) {
    let mut space = AdaptiveAllocator::new(ByteLen(capacity), Alignment::CACHE_LINE, Cutting::Adaptive);
    let extents = std::iter::from_fn(|| space.allocate(ByteLen(size), 1)).collect();
    (space, extents)
}

#[test]
fn a_full_segment_of_equal_objects_wastes_little() {
    for size in (5..=14).flat_map(|power| [(1u64 << power) - 17, 1 << power, (1 << power) + 17]) {
        let (_, extents) = filled(size, 64 << 20);
        let share = extents.len() as f64 / ((64 << 20) / size) as f64;
        assert!(share >= 0.98, "{size}: {share}");
    }
}

#[test]
fn equal_objects_cost_few_bytes_of_bookkeeping_and_give_them_back() {
    let empty = AdaptiveAllocator::new(ByteLen(256 << 20), Alignment::CACHE_LINE, Cutting::Adaptive).memory();
    let (mut space, extents) = filled(4096, 256 << 20);
    assert!((space.memory() - empty) / extents.len() < 10, "{} bytes", space.memory() / extents.len());
    let (mut single, others) = filled(100_000, 256 << 20);
    assert!(single.memory() < empty + 64 * others.len() + (64 << 10));
    extents.into_iter().for_each(|extent| space.free(extent.node).map(drop).unwrap());
    others.into_iter().for_each(|extent| single.free(extent.node).map(drop).unwrap());
    assert!(space.memory() <= empty + (32 << 10) && single.memory() <= empty + (32 << 10));
}

#[test]
fn a_pool_that_changes_its_size_of_page_is_not_stuck_with_sparse_runs() {
    let (mut space, extents) = filled(4096, 64 << 20);
    let kept: Vec<Extent> = extents.iter().copied().step_by(5).collect();
    for (at, extent) in extents.iter().enumerate() {
        if at % 5 != 0 {
            space.free(extent.node).unwrap();
        }
    }
    let free = space.free_bytes().0;
    let large = std::iter::from_fn(|| space.allocate(ByteLen(8192), 2)).count() as u64;
    assert!(large * 8192 > free * 9 / 10, "{large} of {}", free / 8192);
    for extent in kept {
        assert_eq!(space.set_owner(extent.node, 3).map(|now| (now.offset, now.len)), Ok((extent.offset, extent.len)));
        assert_eq!(space.free(extent.node), Ok(ByteLen(4096)));
        assert_eq!(space.free(extent.node), Err(BadNode(extent.node)));
    }
}

#[test]
fn a_small_object_takes_a_larger_page_before_it_is_refused() {
    let (mut space, extents) = filled(4096, 64 << 20);
    space.free(extents[100].node).unwrap();
    let extent = space.allocate(ByteLen(100), 5).unwrap();
    assert_eq!((extent.offset, extent.len), (extents[100].offset, 4096));
    assert_eq!(space.free_bytes(), ByteLen(0));
}

#[test]
fn a_handle_that_was_never_given_out_is_refused() {
    let (mut space, extents) = filled(4096, 64 << 20);
    let run = extents.last().unwrap().node.get();
    for number in [u32::MAX, 1 << 31 | 511, run + 100_000, 0x7fff_fff0] {
        let node = NodeId::from_stored(number);
        assert_eq!(space.free(node), Err(BadNode(node)), "{number:x}");
    }
    let stranger = (0..1000).map(NodeId::from_stored).filter(|&node| space.free(node).is_ok()).count();
    assert!(stranger <= 32, "only the objects that came before their size was known have such handles: {stranger}");
}
