//! Size classes of free extents.
//!
//! Two levels, as in TLSF: a power of two, cut into 16 equal steps. Sizes below 16 units have a bin of their own. Two
//! bitmaps find the next bin with an extent in a few instructions, whatever the number of extents.

use crate::nodes::{NIL, Nodes};

const STEP_BITS: u32 = 4;
const STEPS: usize = 1 << STEP_BITS;
/// One row of exact bins, then one row for each power of two from 16 to 2^63.
const ROWS: usize = 64 - STEP_BITS as usize + 1;

/// How many extents of the request's own bin are tried before one of a larger bin is cut. Extents of the same bin fit
/// tighter, but only some are large enough.
const QUICK_TRIES: u32 = 8;

pub(crate) struct Bins {
    heads: Box<[u32]>,
    /// No extent of the bin is larger; exact right after a full walk, otherwise an upper bound.
    ceilings: Box<[u64]>,
    rows: u64,
    steps: [u16; ROWS],
}

fn bin_of(units: u64) -> usize {
    if units < STEPS as u64 {
        return units as usize;
    }
    let power = 63 - units.leading_zeros();
    let step = (units >> (power - STEP_BITS)) as usize & (STEPS - 1);
    ((power - STEP_BITS + 1) as usize) * STEPS + step
}

impl Bins {
    pub(crate) fn new() -> Self {
        Bins {
            heads: vec![NIL; ROWS * STEPS].into_boxed_slice(),
            ceilings: vec![0; ROWS * STEPS].into_boxed_slice(),
            rows: 0,
            steps: [0; ROWS],
        }
    }

    /// Adds a free node.
    pub(crate) fn insert(&mut self, nodes: &mut Nodes, node: u32, units: u64) {
        let bin = bin_of(units);
        let head = self.heads[bin];
        nodes.set_links(node, NIL, head);
        if head != NIL {
            nodes.set_prev_free(head, node);
        }
        self.heads[bin] = node;
        self.ceilings[bin] = self.ceilings[bin].max(units);
        self.rows |= 1 << (bin / STEPS);
        self.steps[bin / STEPS] |= 1 << (bin % STEPS);
    }

    /// Takes a free node out; to be called before its size changes.
    pub(crate) fn remove(&mut self, nodes: &mut Nodes, node: u32) {
        let (prev, next) = nodes.links(node);
        if next != NIL {
            nodes.set_prev_free(next, prev);
        }
        if prev != NIL {
            nodes.set_next_free(prev, next);
            return;
        }
        let bin = bin_of(nodes.units(node));
        self.heads[bin] = next;
        if next == NIL {
            self.ceilings[bin] = 0;
            self.steps[bin / STEPS] &= !(1 << (bin % STEPS));
            if self.steps[bin / STEPS] == 0 {
                self.rows &= !(1 << (bin / STEPS));
            }
        }
    }

    /// A free node of at least `units`, if there is one; it stays in its bin.
    pub(crate) fn find(&mut self, nodes: &Nodes, units: u64) -> Option<u32> {
        let own = bin_of(units);
        if self.ceilings[own] < units {
            return self.next_bin(own + 1).map(|bin| self.heads[bin]);
        }
        if let Some(node) = self.walk(nodes, own, units, QUICK_TRIES) {
            return Some(node);
        }
        if let Some(bin) = self.next_bin(own + 1) {
            return Some(self.heads[bin]);
        }
        let found = self.walk(nodes, own, units, u32::MAX);
        if found.is_none() {
            self.ceilings[own] = self.largest_in(nodes, own);
        }
        found
    }

    /// The largest free extent in units, exact.
    pub(crate) fn largest(&mut self, nodes: &Nodes) -> u64 {
        let Some(bin) = self.last_bin() else { return 0 };
        self.ceilings[bin] = self.largest_in(nodes, bin);
        self.ceilings[bin]
    }

    /// No free extent is larger than this many units; costs a few instructions.
    pub(crate) fn ceiling(&self) -> u64 {
        self.last_bin().map_or(0, |bin| self.ceilings[bin])
    }

    /// Bytes of memory that the bins take.
    pub(crate) fn memory(&self) -> usize {
        size_of_val(&*self.heads) + size_of_val(&*self.ceilings) + size_of::<Self>()
    }

    fn walk(&self, nodes: &Nodes, bin: usize, units: u64, tries: u32) -> Option<u32> {
        let mut node = self.heads[bin];
        for _ in 0..tries {
            if node == NIL || nodes.units(node) >= units {
                break;
            }
            node = nodes.links(node).1;
        }
        (node != NIL && nodes.units(node) >= units).then_some(node)
    }

    fn largest_in(&self, nodes: &Nodes, bin: usize) -> u64 {
        let mut largest = 0;
        let mut node = self.heads[bin];
        while node != NIL && largest < self.ceilings[bin] {
            largest = largest.max(nodes.units(node));
            node = nodes.links(node).1;
        }
        largest
    }

    /// The first bin from `from` on that holds an extent.
    fn next_bin(&self, from: usize) -> Option<usize> {
        let row = from / STEPS;
        if row >= ROWS {
            return None;
        }
        let steps = self.steps[row] & (u16::MAX << (from % STEPS));
        if steps != 0 {
            return Some(row * STEPS + steps.trailing_zeros() as usize);
        }
        let rows = self.rows & u64::MAX.checked_shl(row as u32 + 1).unwrap_or(0);
        (rows != 0).then(|| {
            let row = rows.trailing_zeros() as usize;
            row * STEPS + self.steps[row].trailing_zeros() as usize
        })
    }

    fn last_bin(&self) -> Option<usize> {
        (self.rows != 0).then(|| {
            let row = 63 - self.rows.leading_zeros() as usize;
            row * STEPS + 15 - self.steps[row].leading_zeros() as usize
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_grow_with_the_size_and_stay_in_range() {
        let mut last = 0;
        for units in (0..100_000).chain((17..64).map(|p| 1u64 << p)) {
            let bin = bin_of(units);
            assert!(bin >= last, "bin of {units} went back");
            last = bin;
        }
        assert!(bin_of(u64::MAX) < ROWS * STEPS);
        assert_eq!((bin_of(15), bin_of(16), bin_of(17), bin_of(32), bin_of(33), bin_of(34)), (15, 16, 17, 32, 32, 33));
    }
}
