//! What `top` tells: the difference of two looks at a master.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use crate::admin::{Sample, Segment};

/// A pool over one interval. Rates are per second.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct View {
    /// Version of this shape.
    schema: u32,
    /// Where this was asked, host:port.
    pub admin: String,
    /// Seconds since the master started, if it says.
    pub uptime_seconds: Option<u64>,
    /// Seconds between the two looks.
    pub interval_seconds: f64,
    /// Objects.
    pub keys: u64,
    /// Clients whose heartbeat arrives.
    pub clients: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes lent by all segments.
    pub capacity_bytes: u64,
    /// Lookups of objects.
    pub gets: f64,
    /// Share of them that found a readable replica; none if nothing was asked for.
    pub hit_ratio: Option<f64>,
    /// The same since the master started.
    pub hit_ratio_total: Option<f64>,
    /// Bytes of the objects that were found.
    pub read_bytes: f64,
    /// Bytes of the objects whose put began.
    pub stored_bytes: f64,
    /// Objects evicted.
    pub evicted_keys: f64,
    /// Bytes evicted.
    pub evicted_bytes: f64,
    /// Kinds of calls, the most frequent first.
    pub calls: Vec<Call>,
    /// The segments, by name.
    pub segments: Vec<Segment>,
}

/// One kind of call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Call {
    /// Its name in the metrics.
    pub name: String,
    /// How often it came.
    pub rate: f64,
    /// How often it failed.
    pub failed: f64,
    /// How often it came since the master started.
    pub total: u64,
}

impl View {
    /// What happened between two looks that are so far apart.
    pub fn between(before: &Sample, now: &Sample, apart: Duration) -> View {
        let seconds = apart.as_secs_f64().max(1e-3);
        let grown = |name: &str| growth(before, now, name);
        let rate = |name: &str| grown(name) / seconds;
        let total = |name: &str| now.numbers.get(name).copied().unwrap_or(0.0);
        View {
            schema: 1,
            admin: now.status.admin.clone(),
            uptime_seconds: now.numbers.get("yuebing_uptime_seconds").map(|seconds| *seconds as u64),
            interval_seconds: seconds,
            keys: now.status.keys,
            clients: now.status.clients,
            used_bytes: now.status.used_bytes,
            capacity_bytes: now.status.capacity_bytes,
            gets: rate("total_get_nums_"),
            hit_ratio: ratio(grown("valid_get_nums_"), grown("total_get_nums_")),
            hit_ratio_total: ratio(total("valid_get_nums_"), total("total_get_nums_")),
            read_bytes: rate("mem_cache_hit_bytes_total") + rate("file_cache_hit_bytes_total"),
            stored_bytes: rate("master_value_size_bytes_sum"),
            evicted_keys: rate("master_evicted_key_count"),
            evicted_bytes: rate("master_evicted_size_bytes"),
            calls: calls(before, now, seconds),
            segments: now.status.segments.clone(),
        }
    }
}

/// A master that started anew counts from nothing: less than before is no growth.
fn growth(before: &Sample, now: &Sample, name: &str) -> f64 {
    let value = |numbers: &BTreeMap<String, f64>| numbers.get(name).copied().unwrap_or(0.0);
    (value(&now.numbers) - value(&before.numbers)).max(0.0)
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| (part / whole).min(1.0))
}

fn calls(before: &Sample, now: &Sample, seconds: f64) -> Vec<Call> {
    let counters = now.numbers.iter().filter(|(_, total)| **total > 0.0);
    let mut calls: Vec<Call> = counters
        .filter_map(|(counter, total)| {
            let name = counter.strip_prefix("master_")?.strip_suffix("_requests_total")?;
            Some(Call {
                name: name.to_owned(),
                rate: growth(before, now, counter) / seconds,
                failed: growth(before, now, &format!("master_{name}_failures_total")) / seconds,
                total: *total as u64,
            })
        })
        .collect();
    calls.sort_by(|a, b| b.rate.total_cmp(&a.rate).then(b.total.cmp(&a.total)));
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(numbers: &[(&str, f64)]) -> Sample {
        Sample {
            numbers: numbers.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
            ..Sample::default()
        }
    }

    #[test]
    fn rates_and_ratios_are_those_of_the_interval() {
        let before = sample(&[
            ("total_get_nums_", 100.0),
            ("valid_get_nums_", 100.0),
            ("master_put_end_requests_total", 10.0),
            ("mem_cache_hit_bytes_total", 1000.0),
        ]);
        let now = sample(&[
            ("total_get_nums_", 140.0),
            ("valid_get_nums_", 130.0),
            ("master_put_end_requests_total", 10.0),
            ("master_exist_key_requests_total", 8.0),
            ("master_exist_key_failures_total", 2.0),
            ("mem_cache_hit_bytes_total", 5000.0),
        ]);
        let view = View::between(&before, &now, Duration::from_secs(2));
        assert_eq!((view.gets, view.hit_ratio, view.read_bytes), (20.0, Some(0.75), 2000.0));
        assert_eq!(view.hit_ratio_total, Some(130.0 / 140.0));
        let calls: Vec<_> = view.calls.iter().map(|call| (call.name.as_str(), call.rate, call.failed)).collect();
        assert_eq!(calls, [("exist_key", 4.0, 1.0), ("put_end", 0.0, 0.0)]);
    }

    #[test]
    fn a_master_that_started_anew_shows_no_rates_below_zero() {
        let view = View::between(
            &sample(&[("total_get_nums_", 100.0)]),
            &sample(&[("total_get_nums_", 4.0)]),
            Duration::from_secs(1),
        );
        assert_eq!((view.gets, view.hit_ratio), (0.0, None));
    }
}
