//! What a client counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::failures::{FailureCounts, Failures};

/// Upper bounds of the latency buckets in microseconds; the last bucket has none.
pub const LATENCY_BOUNDS_US: [u64; 16] =
    [25, 50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 409_600, 1_638_400, 6_553_600];

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Live counters of a client.
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            pub(crate) failures: Failures,
            pub(crate) get_latency: Latency,
            pub(crate) batch_get_latency: Latency,
            pub(crate) put_latency: Latency,
            pub(crate) batch_put_latency: Latency,
        }

        /// What a client has counted since it was set up.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct MetricsSnapshot {
            $($(#[$doc])* pub $name: u64,)*
            /// Objects that calls failed for, by reason.
            pub failures: FailureCounts,
            /// Reads of one object.
            pub get_latency: Durations,
            /// Reads of several objects.
            pub batch_get_latency: Durations,
            /// Writes of one object.
            pub put_latency: Durations,
            /// Writes of several objects.
            pub batch_put_latency: Durations,
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> MetricsSnapshot {
                MetricsSnapshot {
                    $($name: self.$name.get(),)*
                    failures: self.failures.counts(),
                    get_latency: self.get_latency.get(),
                    batch_get_latency: self.batch_get_latency.get(),
                    put_latency: self.put_latency.get(),
                    batch_put_latency: self.batch_put_latency.get(),
                }
            }
        }

        impl MetricsSnapshot {
            /// Every plain counter with its name, for a metrics page.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

counters! {
    /// Objects read.
    objects_read,
    /// Objects written by this client.
    objects_written,
    /// Puts that found the object already there.
    puts_already_there,
    /// Bytes read.
    bytes_read,
    /// Bytes written, each replica counted.
    bytes_written,
    /// Reads of objects that the pool does not have.
    misses,
    /// Reads that failed.
    failed_reads,
    /// Writes that failed.
    failed_writes,
    /// Times a read went on to another replica after one failed.
    replica_fallbacks,
    /// Of these, because nothing had come of it for longer than it usually takes.
    late_replicas,
    /// Times a read was made again because its lease ended before the last byte.
    lease_retries,
    /// Leases of reads under way that were renewed, or asked about in vain.
    leases_renewed,
    /// Objects read whose checksum was the writer's.
    objects_verified,
    /// Objects read that could not be compared: written without a checksum, ranges, memory of a device, or not asked for.
    objects_unverified,
    /// Replicas read whose bytes were not those that were written.
    objects_corrupt,
    /// Of those, told to the master.
    corrupt_reported,
    /// Replicas in this client's memory that it looked at because a reader found other bytes.
    doubts_looked_at,
    /// Times a peer turned out to fail of which nothing was known, or only something old.
    suspicions,
    /// Times a put waited for another writer of its key.
    busy_waits,
    /// Requests to the master that got no answer.
    master_failures,
    /// Pings answered.
    pings,
    /// Pings not answered.
    failed_pings,
    /// Copies and moves made for the master.
    tasks_done,
    /// Of those asked for, failed.
    tasks_failed,
    /// Times the segments were mounted again because the master had forgotten them.
    remounts,
    /// Extents of given-up writes that were confirmed to be quiet.
    quiesced,
    /// Objects read from the hot cache.
    hot_hits,
    /// Objects that the hot cache took.
    hot_admitted,
    /// Objects that left the hot cache for others.
    hot_evicted,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        if n != 0 {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How long calls took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations {
    /// Calls by duration; bounds in [`LATENCY_BOUNDS_US`], and the last of those above.
    pub buckets: [u64; LATENCY_BOUNDS_US.len() + 1],
    /// Microseconds of all.
    pub sum_us: u64,
}

impl Durations {
    /// How many calls.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// Durations as they are being counted.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    buckets: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

impl Latency {
    pub(crate) fn record(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        if let Some(count) = self.buckets.get(bucket) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Durations {
        let buckets = std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed));
        Durations { buckets, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_fall_into_their_buckets() {
        let counters = Counters::default();
        for us in [0, 25, 26, 7_000_000] {
            counters.get_latency.record(Duration::from_micros(us));
        }
        counters.misses.add(3);
        let snapshot = counters.snapshot();
        let latency = snapshot.get_latency;
        assert_eq!((latency.buckets[0], latency.buckets[1], latency.buckets[LATENCY_BOUNDS_US.len()]), (2, 1, 1));
        assert_eq!((latency.count(), latency.sum_us), (4, 7_000_051));
        assert!(snapshot.named().contains(&("misses", 3)));
    }
}
