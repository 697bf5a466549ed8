//! Counters and gauges.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What happened since the start (counters) and how things stand (gauges).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub $name: AtomicU64,)*
        }

        impl Counters {
            pub fn snapshot(&self) -> Stats {
                Stats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

stats! {
    /// Gauge: objects, readable or being written.
    keys,
    /// Gauge: bytes of the master's memory that they take, about.
    objects_memory_bytes,
    /// Gauge: puts that neither ended nor were revoked.
    unfinished,
    /// Gauge: objects with a soft pin, expired ones that eviction has not met yet included.
    soft_pins,
    /// Gauge: bytes of all mounted segments.
    capacity_bytes,
    /// Gauge: bytes not free in them.
    allocated_bytes,
    /// Gauge: of these, bytes that wait for a writer or a reader to be done.
    withheld_bytes,
    /// Gauge: mounted segments.
    segments,
    /// Gauge: clients in good standing.
    clients,
    /// Gauge: bytes of objects on disks of clients.
    disk_bytes,
    /// Gauge: bytes that these disks hold, as far as their owners said.
    disk_capacity_bytes,
    /// Gauge: the most that one client has reserved and not filled, in bytes.
    largest_unfinished_bytes,
    /// Gauge: objects on their way from disks into memory.
    promotions_running,
    /// Reads of objects that lie on disks only, which were remembered.
    promotions_wished,
    /// Of these, forgotten at once: too many waited.
    promotions_unheard,
    /// Of these, read too seldom.
    promotions_cold,
    /// Times that memory was too full for one.
    promotions_no_room,
    /// Times that too many were under way.
    promotions_capped,
    /// Owners asked to load an object.
    promotions_admitted,
    /// Objects loaded.
    promotions_completed,
    /// Their bytes.
    promotions_completed_bytes,
    /// Given up by their owners.
    promotions_failed,
    /// Given up since nobody ended them.
    promotions_expired,
    /// Tries of puts that found no space at all; a put that its caller tries again counts each time.
    alloc_failures,
    /// Puts that got fewer replicas than asked for.
    partial_allocations,
    /// Puts refused because the object is larger than every segment.
    too_large,
    /// Puts refused because the key was being written.
    busy_keys,
    /// Rounds of eviction.
    evictions_attempted,
    /// Rounds that freed something.
    evictions_successful,
    /// Objects evicted.
    evicted_keys,
    /// Bytes that came free by eviction.
    evicted_bytes,
    /// Keys of lookups that the eviction policy was not told of, since too many came at once.
    lookups_untold,
    /// Objects that eviction looked at.
    eviction_steps,
    /// Extents set aside because a writer might still write to them.
    discarded,
    /// Extents of these that came free again.
    released,
    /// Extents of these that came free early, on the word of their node.
    quiesced,
    /// Extents set aside because a reader had a lease.
    lease_deferred,
    /// Objects lost with their last segment.
    lost_keys,
    /// Replicas dropped again that had been made for those of a node which came back.
    stand_ins_dropped,
    /// Copies on disks that were not taken up, because they may be of an older write.
    stale_disk_copies,
    /// Clients given up because they did not ping.
    clients_expired,
    /// Times that a client was silent for a while.
    clients_suspected,
    /// Times that the segments of a silent client were hidden from readers.
    clients_offline,
    /// Times that such a client came back before it was given up.
    clients_recovered,
}

impl Counters {
    pub fn add(&self, counter: impl Fn(&Self) -> &AtomicU64, by: u64) {
        if by > 0 {
            counter(self).fetch_add(by, Ordering::Relaxed);
        }
    }
}
