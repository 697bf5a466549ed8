//! Latencies of calls.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Percentiles of one kind of call, in microseconds; all 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencySummary {
    /// Calls.
    pub calls: u64,
    /// Mean.
    pub mean_us: f64,
    /// Half of the calls were not slower.
    pub p50_us: f64,
    /// 90 of 100.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// The slowest.
    pub max_us: f64,
}

/// Latencies of one kind of call.
#[derive(Clone, Debug)]
pub struct Latencies {
    histogram: Histogram<u64>,
    total: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Latencies::new()
    }
}

impl Latencies {
    /// None yet.
    pub fn new() -> Self {
        #[expect(clippy::expect_used, reason = "the arguments are constants that the crate documents as valid")]
        let histogram = Histogram::new_with_max(3_600_000_000_000, 3).expect("an hour with three digits");
        Latencies { histogram, total: Duration::ZERO }
    }

    /// One more call.
    pub fn record(&mut self, took: Duration) {
        self.histogram.saturating_record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        self.total += took;
    }

    /// Those of another thread, too.
    pub fn merge(&mut self, other: &Latencies) {
        // Both have the same bounds, so nothing can be out of range.
        self.histogram.add(&other.histogram).unwrap_or_default();
        self.total += other.total;
    }

    /// Time of all calls together.
    pub fn total(&self) -> Duration {
        self.total
    }

    /// The percentiles of the calls so far.
    pub fn summary(&self) -> LatencySummary {
        let us = |ns: u64| ns as f64 / 1000.0;
        let at = |percentile| us(self.histogram.value_at_percentile(percentile));
        if self.histogram.is_empty() {
            return LatencySummary::default();
        }
        LatencySummary {
            calls: self.histogram.len(),
            mean_us: self.histogram.mean() / 1000.0,
            p50_us: at(50.0),
            p90_us: at(90.0),
            p99_us: at(99.0),
            max_us: us(self.histogram.max()),
        }
    }
}
