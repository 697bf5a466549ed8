//! Counters and histograms of a process, and their Prometheus text.
//!
//! A counter that several worker threads share costs a cache line that travels between cores on every call, and a
//! counter found by name costs a hash on every call. Here a metric is declared once, before the threads start, and gets
//! an index; every worker has a lane of cells of its own; adding is a load and a store at `lane[index]`, without a locked
//! instruction. Sums are made by whoever reads.
//!
//! Invariants: all lanes have the same shape; a name is declared once; counters only grow; every lane has one writing
//! thread, except the last, which all other threads share.
//!
//! ```
//! use yb_metrics::{Schema, TextWriter};
//! let mut schema = Schema::default();
//! let puts = schema.counter("puts_total", "Puts");
//! let refused = schema.counters("refused_total", "Refusals", "reason", &["full", "busy"]);
//! let metrics = schema.build(2);
//! metrics.lane(0).add(puts, 1);
//! metrics.lane(1).add(puts, 2);
//! metrics.lane(1).add(refused.at(1), 5);
//! assert_eq!(metrics.total(puts), 3);
//! let mut text = TextWriter::default();
//! metrics.write(&mut text);
//! assert!(text.into_string().contains("refused_total{reason=\"busy\"} 5\n"));
//! ```
#![forbid(unsafe_code)]

mod text;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use text::TextWriter;

/// A counter of a [`Schema`]; only of use with the [`Metrics`] built from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter(u32);

/// Counters of one family, one per value of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counters {
    first: u32,
    len: u32,
}

impl Counters {
    /// The counter of the label value at `index` of the declared list; the last one for an index beyond it.
    pub fn at(self, index: usize) -> Counter {
        let last = self.len.saturating_sub(1);
        Counter(self.first + u32::try_from(index).unwrap_or(last).min(last))
    }
}

/// A histogram of a [`Schema`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    first: u32,
    family: u32,
}

/// Timings of one family, one histogram per value of a label, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    first: u32,
    len: u32,
}

/// Buckets of a timing: the upper bounds are 2^10 ns, 2^11 ns and so on, the last one has none.
const TIME_BUCKETS: u32 = 24;
/// Binary logarithm of the first bound.
const FIRST_TIME_BIT: u32 = 10;
/// Cells of a timing: the buckets and the sum.
const TIME_CELLS: u32 = TIME_BUCKETS + 1;

/// How the bounds of a histogram are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bounds {
    /// As whole numbers.
    Whole,
    /// With six digits after the point, as the peer writes them.
    SixDigits,
}

#[derive(Debug)]
enum Shape {
    Counters { label: &'static str, values: Vec<String> },
    Seconds,
    Histogram { bounds: &'static [u64], written: Bounds },
    Timings { label: &'static str, values: Vec<String> },
}

#[derive(Debug)]
struct Family {
    name: String,
    help: String,
    first: u32,
    shape: Shape,
}

/// The declarations, before the threads start.
#[derive(Debug, Default)]
pub struct Schema {
    families: Vec<Family>,
    cells: u32,
}

impl Schema {
    fn family(&mut self, name: &str, help: &str, shape: Shape, cells: usize) -> u32 {
        debug_assert!(self.families.iter().all(|f| f.name != name), "{name} is declared twice");
        let first = self.cells;
        self.cells += u32::try_from(cells).unwrap_or(u32::MAX);
        self.families.push(Family { name: name.to_owned(), help: help.to_owned(), first, shape });
        first
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &str, help: &str) -> Counter {
        Counter(self.family(name, help, Shape::Counters { label: "", values: Vec::new() }, 1))
    }

    /// One counter per value of `label`.
    pub fn counters<S: AsRef<str>>(&mut self, name: &str, help: &str, label: &'static str, values: &[S]) -> Counters {
        let values: Vec<String> = values.iter().map(|v| v.as_ref().to_owned()).collect();
        let len = values.len();
        let first = self.family(name, help, Shape::Counters { label, values }, len.max(1));
        Counters { first, len: u32::try_from(len).unwrap_or(u32::MAX) }
    }

    /// A counter that is fed nanoseconds and shown in seconds.
    pub fn seconds(&mut self, name: &str, help: &str) -> Counter {
        Counter(self.family(name, help, Shape::Seconds, 1))
    }

    /// A histogram with these upper bounds, ascending.
    pub fn histogram(&mut self, name: &str, help: &str, bounds: &'static [u64], written: Bounds) -> Histogram {
        debug_assert!(bounds.is_sorted());
        let family = u32::try_from(self.families.len()).unwrap_or(u32::MAX);
        let first = self.family(name, help, Shape::Histogram { bounds, written }, bounds.len() + 2);
        Histogram { first, family }
    }

    /// A histogram of times per value of `label`, shown in seconds. A value that was never fed is not shown.
    pub fn timings<S: AsRef<str>>(&mut self, name: &str, help: &str, label: &'static str, values: &[S]) -> Timings {
        let values: Vec<String> = values.iter().map(|v| v.as_ref().to_owned()).collect();
        let len = u32::try_from(values.len()).unwrap_or(0);
        let first = self.family(name, help, Shape::Timings { label, values }, (len * TIME_CELLS) as usize);
        Timings { first, len }
    }

    /// Cells for `lanes` writers (at least one): one thread each, and the last for all others.
    pub fn build(self, lanes: usize) -> Arc<Metrics> {
        let cells = self.cells as usize;
        let last = lanes.max(1) - 1;
        let lanes = (0..=last).map(|at| Lane::with_cells(cells, at == last)).collect();
        Arc::new(Metrics { families: self.families, lanes })
    }
}

/// The cells of one writer. A clone writes to the same cells.
#[derive(Clone, Debug)]
pub struct Lane {
    cells: Arc<[AtomicU64]>,
    /// Several threads write to it.
    shared: bool,
}

impl Lane {
    fn with_cells(cells: usize, shared: bool) -> Lane {
        // A line of padding at either end keeps the cells of two lanes off each other's cache lines.
        Lane { cells: (0..cells + 2 * PADDING).map(|_| AtomicU64::new(0)).collect(), shared }
    }

    fn cell(&self, index: u32) -> Option<&AtomicU64> {
        self.cells.get(index as usize + PADDING)
    }

    fn load(&self, index: u32) -> u64 {
        self.cell(index).map_or(0, |cell| cell.load(Ordering::Relaxed))
    }

    /// Adds to a counter.
    #[inline]
    pub fn add(&self, counter: Counter, n: u64) {
        match self.cell(counter.0) {
            Some(cell) if self.shared => {
                cell.fetch_add(n, Ordering::Relaxed);
            }
            Some(cell) => cell.store(cell.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed),
            None => {}
        }
    }

    /// Adds one value to a histogram.
    pub fn observe(&self, metrics: &Metrics, histogram: Histogram, value: u64) {
        let Some(Family { shape: Shape::Histogram { bounds, .. }, .. }) =
            metrics.families.get(histogram.family as usize)
        else {
            return;
        };
        let bucket = bounds.partition_point(|bound| *bound < value);
        self.add(Counter(histogram.first + bucket as u32), 1);
        self.add(Counter(histogram.first + bounds.len() as u32 + 1), value);
    }
}

impl Lane {
    /// Adds one time to the timing of the label value at `index`; nothing for an index beyond the list.
    #[inline]
    pub fn time(&self, timings: Timings, index: usize, nanos: u64) {
        let Some(index) = u32::try_from(index).ok().filter(|index| *index < timings.len) else { return };
        let bits = u64::BITS - nanos.saturating_sub(1).leading_zeros();
        let bucket = bits.saturating_sub(FIRST_TIME_BIT).min(TIME_BUCKETS - 1);
        let first = timings.first + index * TIME_CELLS;
        self.add(Counter(first + bucket), 1);
        self.add(Counter(first + TIME_BUCKETS), nanos);
    }
}

/// Cells before and after those of a lane.
const PADDING: usize = 16;

/// All cells and what they mean.
#[derive(Debug)]
pub struct Metrics {
    families: Vec<Family>,
    lanes: Vec<Lane>,
}

impl Metrics {
    /// The lane of a writer, for one thread at a time; the last one, also for every number beyond, is for many.
    pub fn lane(&self, writer: usize) -> &Lane {
        &self.lanes[writer.min(self.lanes.len() - 1)]
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    fn sum(&self, index: u32) -> u64 {
        self.lanes.iter().fold(0, |sum, lane| sum.wrapping_add(lane.load(index)))
    }

    /// The sum of a counter over all lanes.
    pub fn total(&self, counter: Counter) -> u64 {
        self.sum(counter.0)
    }

    /// The sum of all counters of a family over all lanes.
    pub fn total_of(&self, counters: Counters) -> u64 {
        (0..counters.len).map(|i| self.sum(counters.first + i)).sum()
    }

    /// The sum of each counter of a family over all lanes, by the value of its label.
    pub fn by_value(&self, counters: Counters) -> Vec<(&str, u64)> {
        let family = self.families.iter().find(|family| family.first == counters.first);
        let Some(Family { shape: Shape::Counters { values, .. }, .. }) = family else { return Vec::new() };
        values.iter().enumerate().map(|(i, value)| (value.as_str(), self.sum(counters.first + i as u32))).collect()
    }

    /// Writes every family.
    pub fn write(&self, out: &mut TextWriter) {
        for family in &self.families {
            match &family.shape {
                Shape::Counters { label, values } => self.write_counters(out, family, label, values),
                Shape::Seconds => {
                    out.family(&family.name, "counter", &family.help);
                    out.sample(&family.name, &[], seconds(self.sum(family.first)));
                }
                Shape::Histogram { bounds, written } => self.write_histogram(out, family, bounds, *written),
                Shape::Timings { label, values } => self.write_timings(out, family, label, values),
            }
        }
    }

    fn write_counters(&self, out: &mut TextWriter, family: &Family, label: &str, values: &[String]) {
        out.family(&family.name, "counter", &family.help);
        if values.is_empty() {
            out.sample(&family.name, &[], self.sum(family.first));
        }
        for (i, value) in values.iter().enumerate() {
            out.sample(&family.name, &[(label, value)], self.sum(family.first + i as u32));
        }
    }

    fn write_timings(&self, out: &mut TextWriter, family: &Family, label: &str, values: &[String]) {
        out.family(&family.name, "histogram", &family.help);
        let bucket = format!("{}_bucket", family.name);
        let (sum_name, count_name) = (format!("{}_sum", family.name), format!("{}_count", family.name));
        for (i, value) in values.iter().enumerate() {
            let first = family.first + i as u32 * TIME_CELLS;
            let cells: Vec<u64> = (0..TIME_BUCKETS).map(|at| self.sum(first + at)).collect();
            if cells.iter().all(|cell| *cell == 0) {
                continue;
            }
            let mut count = 0;
            for (at, cell) in cells.iter().enumerate() {
                count += cell;
                let bound = match at as u32 + 1 {
                    TIME_BUCKETS => "+Inf".to_owned(),
                    _ => seconds(1 << (FIRST_TIME_BIT + at as u32)),
                };
                out.sample(&bucket, &[(label, value), ("le", &bound)], count);
            }
            out.sample(&sum_name, &[(label, value)], seconds(self.sum(first + TIME_BUCKETS)));
            out.sample(&count_name, &[(label, value)], count);
        }
    }

    fn write_histogram(&self, out: &mut TextWriter, family: &Family, bounds: &[u64], written: Bounds) {
        out.family(&family.name, "histogram", &family.help);
        let bucket = format!("{}_bucket", family.name);
        let mut count = 0;
        for (i, bound) in bounds.iter().enumerate() {
            count += self.sum(family.first + i as u32);
            let bound = match written {
                Bounds::Whole => bound.to_string(),
                Bounds::SixDigits => format!("{bound}.000000"),
            };
            out.sample(&bucket, &[("le", &bound)], count);
        }
        count += self.sum(family.first + bounds.len() as u32);
        out.sample(&bucket, &[("le", "+Inf")], count);
        out.sample(&format!("{}_sum", family.name), &[], self.sum(family.first + bounds.len() as u32 + 1));
        out.sample(&format!("{}_count", family.name), &[], count);
    }
}

/// Nanoseconds as seconds, exactly.
pub fn seconds(nanos: u64) -> String {
    let text = format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_buckets_are_cumulative() {
        let mut schema = Schema::default();
        let sizes = schema.histogram("size_bytes", "Sizes", &[10, 100], Bounds::Whole);
        let metrics = schema.build(1);
        for value in [1, 10, 11, 1000] {
            metrics.lane(0).observe(&metrics, sizes, value);
        }
        let mut out = TextWriter::default();
        metrics.write(&mut out);
        let text = out.into_string();
        for line in [
            "# TYPE size_bytes histogram",
            "size_bytes_bucket{le=\"10\"} 2",
            "size_bytes_bucket{le=\"100\"} 3",
            "size_bytes_bucket{le=\"+Inf\"} 4",
            "size_bytes_sum 1022",
            "size_bytes_count 4",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn times_are_shown_in_seconds_by_label() {
        let mut schema = Schema::default();
        let waited = schema.seconds("waited_seconds_total", "W");
        let calls = schema.timings("call_seconds", "C", "call", &["a", "never"]);
        let metrics = schema.build(1);
        metrics.lane(0).add(waited, 1_500_000_000);
        for nanos in [0, 1024, 1025, 3_000_000, u64::MAX / 2] {
            metrics.lane(0).time(calls, 0, nanos);
        }
        metrics.lane(0).time(calls, 2, 1);
        let mut out = TextWriter::default();
        metrics.write(&mut out);
        let text = out.into_string();
        for line in [
            "waited_seconds_total 1.5",
            "call_seconds_bucket{call=\"a\",le=\"0.000001024\"} 2",
            "call_seconds_bucket{call=\"a\",le=\"0.000002048\"} 3",
            "call_seconds_bucket{call=\"a\",le=\"0.002097152\"} 3",
            "call_seconds_bucket{call=\"a\",le=\"0.004194304\"} 4",
            "call_seconds_bucket{call=\"a\",le=\"+Inf\"} 5",
            "call_seconds_count{call=\"a\"} 5",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
        }
        assert!(!text.contains("never"));
    }

    #[test]
    fn lanes_add_up_and_a_lane_too_many_is_the_last() {
        let mut schema = Schema::default();
        let counter = schema.counter("c_total", "C");
        let several = schema.counters("r_total", "R", "reason", &["a", "b"]);
        let metrics = schema.build(3);
        for lane in 0..10 {
            metrics.lane(lane).add(counter, 1);
            metrics.lane(lane).add(several.at(lane), 1);
        }
        assert_eq!(metrics.total(counter), 10);
        assert_eq!(metrics.total(several.at(0)), 1);
        assert_eq!(metrics.total_of(several), 10);
        assert_eq!(metrics.by_value(several), [("a", 1), ("b", 9)]);
    }
}
