//! How often keys were read lately, roughly: a count-min sketch.

use yb_types::MonotonicTime;

const ROWS: usize = 4;
const WIDTH: usize = 1 << 16;
/// All counters are halved after this many: old reads fade, and counters do not fill up.
const HALVE_AFTER: u32 = 8 * WIDTH as u32;

/// Counters of 64 Ki cells in four rows: with a hundred thousand keys read once each, a key that was not read is taken for
/// one that was read twice in about one of a thousand cases (the peer's 4 Ki cells: nearly always).
#[derive(Default)]
pub(crate) struct Sketch {
    cells: Vec<u8>,
    counted: u32,
}

impl Sketch {
    /// Counts a read and answers how many there were.
    pub fn count(&mut self, hash: u64) -> u8 {
        if self.cells.is_empty() {
            self.cells = vec![0; ROWS * WIDTH];
        }
        self.counted += 1;
        if self.counted >= HALVE_AFTER {
            self.counted = 0;
            self.cells.iter_mut().for_each(|cell| *cell /= 2);
        }
        let mut least = u8::MAX;
        for row in 0..ROWS {
            let mixed = hash.wrapping_add(row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let cell = &mut self.cells[row * WIDTH + (mixed >> 48) as usize % WIDTH];
            *cell = cell.saturating_add(1);
            least = least.min(*cell);
        }
        least
    }
}

/// When a refused wish is looked at again: 10 ms, doubled each time, up to a second.
pub(crate) fn retry_at(now: MonotonicTime, tries: u32) -> MonotonicTime {
    now + std::time::Duration::from_millis((10u64 << tries.min(7)).min(1000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_is_read_often_and_hardly_anything_else() {
        let mut sketch = Sketch::default();
        let key = |at: u64| at.wrapping_mul(0xd134_2543_de82_ef95);
        for at in 0..100_000 {
            sketch.count(key(at));
        }
        for times in 2..=5 {
            assert!(sketch.count(key(7)) >= times);
        }
        let fresh = (1_000_000..1_010_000).filter(|at| sketch.count(key(*at)) >= 3).count();
        assert!(fresh < 1200, "{fresh} of 10,000 keys that were never read look hot");
    }

    #[test]
    fn old_reads_fade() {
        let mut sketch = Sketch::default();
        (0..100).for_each(|_| {
            sketch.count(1);
        });
        (0..HALVE_AFTER).for_each(|at| {
            sketch.count(u64::from(at) << 20);
        });
        assert!(sketch.count(1) < 80);
    }
}
