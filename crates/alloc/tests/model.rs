//! The allocator against a list of ranges.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use yb_alloc::{Alignment, BadNode, Extent, OffsetAllocator};
use yb_types::ByteLen;

#[derive(Clone, Debug)]
enum Op {
    Allocate(u64),
    Free(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (0u64..5000).prop_map(Op::Allocate),
        1 => prop_oneof![Just(64u64), Just(100), Just(4096), 1u64..200_000].prop_map(Op::Allocate),
        2 => any::<usize>().prop_map(Op::Free),
    ]
}

/// The gaps between the extents in use, from which every gauge follows.
fn gaps(used: &BTreeMap<u64, Extent>, capacity: u64) -> Vec<u64> {
    let mut gaps = Vec::new();
    let mut at = 0;
    for extent in used.values() {
        assert!(extent.offset >= at, "extents overlap at {}", extent.offset);
        gaps.push(extent.offset - at);
        at = extent.offset + extent.len;
    }
    assert!(at <= capacity, "an extent ends behind the segment");
    gaps.push(capacity - at);
    gaps
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn never_overlaps_and_counts_exactly(
        ops in prop::collection::vec(op(), 1..400),
        capacity in prop_oneof![1u64..3000, 100_000u64..1_000_000],
        shift in 0u32..8,
    ) {
        let unit = 1u64 << shift;
        let mut space = OffsetAllocator::new(ByteLen(capacity), Alignment::new(unit).unwrap());
        let usable = capacity / unit * unit;
        let mut used: BTreeMap<u64, Extent> = BTreeMap::new();
        for (word, op) in ops.into_iter().enumerate() {
            match op {
                Op::Allocate(size) => {
                    let need = size.max(1).div_ceil(unit) * unit;
                    let largest = gaps(&used, usable).into_iter().max().unwrap_or(0);
                    prop_assert!(space.largest_free_bound().0 >= largest);
                    match space.allocate(ByteLen(size), word as u64) {
                        Some(extent) => {
                            prop_assert_eq!((extent.len, extent.offset % unit), (need, 0));
                            prop_assert!(used.insert(extent.offset, extent).is_none());
                        }
                        None => prop_assert!(largest < need, "refused {need} of {largest}"),
                    }
                }
                Op::Free(pick) if !used.is_empty() => {
                    let offset = *used.keys().nth(pick % used.len()).unwrap();
                    let extent = used.remove(&offset).unwrap();
                    prop_assert_eq!(space.free(extent.node), Ok(ByteLen(extent.len)));
                }
                Op::Free(_) => {}
            }
            let gaps = gaps(&used, usable);
            prop_assert_eq!(space.free_bytes().0, gaps.iter().sum::<u64>());
            prop_assert_eq!(space.used().0 + space.free_bytes().0, space.capacity().0);
            prop_assert_eq!(space.largest_free().0, gaps.into_iter().max().unwrap_or(0));
        }
        for extent in used.values() {
            prop_assert!(space.free(extent.node).is_ok());
        }
        prop_assert_eq!(space.largest_free(), space.capacity());
    }
}

#[test]
fn a_full_segment_wastes_nothing() {
    let mut space = OffsetAllocator::new(ByteLen(64 << 20), Alignment::BYTE);
    let fitted = std::iter::from_fn(|| space.allocate(ByteLen(1_000_000), 0)).count();
    assert_eq!(fitted, 67);
    assert_eq!(space.free_bytes(), ByteLen((64 << 20) - 67_000_000));
}

#[test]
fn freeing_twice_is_refused() {
    let mut space = OffsetAllocator::new(ByteLen(1 << 16), Alignment::CACHE_LINE);
    let extent = space.allocate(ByteLen(10), 1).unwrap();
    assert_eq!(space.free(extent.node), Ok(ByteLen(64)));
    assert_eq!(space.free(extent.node), Err(BadNode(extent.node)));
    assert_eq!(space.set_owner(extent.node, 3), Err(BadNode(extent.node)));
}

#[test]
fn a_scan_in_steps_meets_every_extent_once() {
    let mut space = OffsetAllocator::new(ByteLen(1 << 20), Alignment::BYTE);
    let extents: Vec<Extent> = (0..1000).map(|word| space.allocate(ByteLen(100), word).unwrap()).collect();
    for extent in extents.iter().skip(1).step_by(2) {
        space.free(extent.node).unwrap();
    }
    let mut words = Vec::new();
    let mut from = Some(0);
    while let Some(at) = from {
        from = space.scan(at, 7, |owned| words.push(owned.owner));
    }
    words.sort_unstable();
    assert_eq!(words, (0..1000).step_by(2).collect::<Vec<u64>>());
}

#[test]
fn sizes_beyond_32_bits_work() {
    let mut space = OffsetAllocator::new(ByteLen(1 << 50), Alignment::BYTE);
    let extent = space.allocate(ByteLen((1 << 49) + 1), 0).unwrap();
    assert_eq!(space.allocate(ByteLen(1 << 49), 0), None);
    assert_eq!(space.free(extent.node), Ok(ByteLen((1 << 49) + 1)));
    assert!(space.allocate(ByteLen(u64::MAX), 0).is_none());
}
