//! How full segments get, after churn too, how fast extents are given out, and what their bookkeeping costs.
//!
//! `cargo run --release -p yb-alloc --example fill [-- --json]`
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use std::fmt::Write as _;
use yb_alloc::{AdaptiveAllocator, Alignment, Cutting, NodeId};
use yb_types::ByteLen;

const GIB: u64 = 1 << 30;
const SEGMENTS: usize = 16;
/// Sizes that a model's KV blocks have.
const LARGE: u64 = 3_274_752;
const MIDDLE: u64 = 658_432;

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

fn segment(cutting: Cutting) -> AdaptiveAllocator {
    AdaptiveAllocator::new(ByteLen(GIB), Alignment::CACHE_LINE, cutting)
}

/// Sizes with their weights.
type Mix = &'static [(u64, u64)];

fn draw(mix: Mix, dice: &mut Dice) -> u64 {
    let mut ticket = dice.below(mix.iter().map(|(_, weight)| weight).sum());
    for &(size, weight) in mix {
        if ticket < weight {
            return size;
        }
        ticket -= weight;
    }
    unreachable!("a ticket is below the sum of the weights")
}

struct Object {
    segment: usize,
    node: NodeId,
    size: u64,
}

/// Segments, filled as a master with placement at random fills them: from a random segment on, the first with room.
struct World {
    segments: Vec<AdaptiveAllocator>,
    objects: Vec<Object>,
    stored: u64,
    dice: Dice,
}

impl World {
    fn new(cutting: Cutting, seed: u64) -> World {
        let segments = (0..SEGMENTS).map(|_| segment(cutting)).collect();
        World { segments, objects: Vec::new(), stored: 0, dice: Dice(seed) }
    }

    fn put(&mut self, size: u64) -> bool {
        let start = self.dice.below(SEGMENTS as u64) as usize;
        for at in (start..SEGMENTS).chain(0..start) {
            if let Some(extent) = self.segments[at].allocate(ByteLen(size), 1) {
                self.objects.push(Object { segment: at, node: extent.node, size });
                self.stored += size;
                return true;
            }
        }
        false
    }

    fn drop_one(&mut self) {
        let pick = self.dice.below(self.objects.len() as u64) as usize;
        let Object { segment, node, size } = self.objects.swap_remove(pick);
        self.segments[segment].free(node).unwrap();
        self.stored -= size;
    }

    fn fill(&self) -> f64 {
        self.stored as f64 / (GIB as f64 * SEGMENTS as f64)
    }
}

/// Stored bytes at the first refusal over what fits in theory.
fn uniform(size: u64, cutting: Cutting) -> f64 {
    let mut space = segment(cutting);
    let mut count = 0u64;
    while space.allocate(ByteLen(size), 1).is_some() {
        count += 1;
    }
    assert_eq!(space.used().0 + space.free_bytes().0, GIB);
    count as f64 / (GIB / size) as f64
}

/// Refused puts while random objects leave for new ones, at a steady share of the capacity.
fn refused_at(share: f64, mix: Mix, cutting: Cutting, steps: u64) -> u64 {
    let mut world = World::new(cutting, 7);
    let limit = (GIB as f64 * SEGMENTS as f64 * share) as u64;
    let mut refused = 0;
    for _ in 0..steps {
        let size = draw(mix, &mut world.dice);
        while world.stored + size > limit {
            world.drop_one();
        }
        refused += u64::from(!world.put(size));
    }
    refused
}

/// The pool is kept as full as it goes: a refused put makes random objects leave until it fits. The lowest share of the
/// capacity at which a put was refused, after a warm-up.
fn lowest_refusal(mixes: &[Mix], cutting: Cutting, steps: u64) -> f64 {
    let mut world = World::new(cutting, 9);
    let mut lowest = 1.0f64;
    for mix in mixes {
        for step in 0..steps {
            let size = draw(mix, &mut world.dice);
            if !world.put(size) {
                if step > steps / 4 {
                    lowest = lowest.min(world.fill());
                }
                while !world.put(size) {
                    world.drop_one();
                }
            }
        }
    }
    lowest
}

/// Nanoseconds that this thread has run, so that a busy machine does not count.
fn ran() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split_whitespace().next().unwrap().parse().unwrap()
}

/// Pairs of one allocation and one free a second, in a pool that is 90 % full.
fn speed(mix: Mix, cutting: Cutting, steps: u64) -> f64 {
    let mut world = World::new(cutting, 11);
    while world.fill() < 0.9 {
        let size = draw(mix, &mut world.dice);
        world.put(size);
    }
    let sizes: Vec<u64> = (0..steps).map(|_| draw(mix, &mut world.dice)).collect();
    let start = ran();
    let mut done = 0;
    for size in sizes {
        while world.fill() > 0.9 {
            world.drop_one();
        }
        done += u64::from(world.put(size));
    }
    done as f64 * 1e9 / (ran() - start) as f64
}

/// Bytes of bookkeeping for each object of a full segment.
fn bookkeeping(size: u64, cutting: Cutting) -> f64 {
    let mut space = segment(cutting);
    let empty = space.memory();
    let mut count = 0u64;
    while space.allocate(ByteLen(size), 1).is_some() {
        count += 1;
    }
    (space.memory() - empty) as f64 / count as f64
}

const TWO_BLOCKS: Mix = &[(LARGE, 1), (MIDDLE, 1)];
const THREE_SIZES: Mix = &[(4096, 70), (256 << 10, 20), (LARGE, 10)];
const PAGES_OF_4K: Mix = &[(4096, 1)];
const PAGES_OF_16K: Mix = &[(16 << 10, 1)];
const PAGES_OF_24K: Mix = &[(24 << 10, 1)];
const PAGES_OF_256K: Mix = &[(256 << 10, 1)];

fn main() {
    let json = std::env::args().any(|argument| argument == "--json");
    let mut out = String::from("{");
    for (name, cutting) in [("adaptive", Cutting::Adaptive), ("offset", Cutting::Offset)] {
        let mut rows: Vec<(String, f64)> = Vec::new();
        let sizes = (5..=22).flat_map(|power| [(1u64 << power) - 17, 1 << power, (1 << power) + 17]);
        let fills: Vec<(u64, f64)> = sizes.map(|size| (size, uniform(size, cutting))).collect();
        let worst = fills.iter().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        rows.push((format!("uniform_worst (of {} B)", worst.0), worst.1));
        for (mix, label, bar) in [(TWO_BLOCKS, "two_blocks", 0.97), (THREE_SIZES, "three_sizes", 0.95)] {
            rows.push((format!("{label}_refused_at_{bar}"), refused_at(bar, mix, cutting, 200_000) as f64));
            rows.push((format!("{label}_lowest_refusal"), lowest_refusal(&[mix], cutting, 200_000)));
        }
        let change = [PAGES_OF_16K, PAGES_OF_24K, PAGES_OF_16K];
        rows.push(("sizes_change_lowest_refusal".to_owned(), lowest_refusal(&change, cutting, 3_000_000)));
        rows.push(("allocations_per_second_two_blocks".to_owned(), speed(TWO_BLOCKS, cutting, 2_000_000)));
        rows.push(("allocations_per_second_three_sizes".to_owned(), speed(THREE_SIZES, cutting, 2_000_000)));
        rows.push(("allocations_per_second_4k".to_owned(), speed(PAGES_OF_4K, cutting, 4_000_000)));
        rows.push(("allocations_per_second_256k".to_owned(), speed(PAGES_OF_256K, cutting, 4_000_000)));
        rows.push(("bookkeeping_bytes_4k".to_owned(), bookkeeping(4096, cutting)));
        rows.push(("bookkeeping_bytes_64b".to_owned(), bookkeeping(64, cutting)));
        for (label, value) in &rows {
            if !json {
                println!("{name:<9} {label:<44} {value:.4}");
            }
            let label = label.split(' ').next().unwrap();
            write!(out, "{}\"{name}.{label}\": {value}", if out.len() > 1 { ", " } else { "" }).unwrap();
        }
    }
    if json {
        println!("{out}}}");
    }
}
