//! Counters of a server. Each worker writes its own padded set; a snapshot adds them up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// One writer's counters, on cache lines of their own.
        #[derive(Debug, Default)]
        #[repr(align(128))]
        pub(crate) struct CounterSet {
            $(pub(crate) $name: Counter,)*
        }

        /// Sums over all threads of a server since its start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CounterSnapshot {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl CounterSnapshot {
            /// Every counter with its name, for a metrics page.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }

            fn add(&mut self, set: &CounterSet) {
                $(self.$name += set.$name.get();)*
            }
        }
    };
}

counters! {
    /// Connections taken.
    connections_accepted,
    /// Connections closed, for whatever reason.
    connections_closed,
    /// Connections refused because `max_connections` were open.
    connections_refused,
    /// Connections refused because their address had as many as one address may have.
    connections_refused_by_address,
    /// Accepts that failed, most often for want of file descriptors.
    accept_errors,
    /// Whole requests.
    requests,
    /// Requests for a function that the service does not have (answered with 11).
    unknown_functions,
    /// Requests whose arguments did not decode (answered with 4).
    bad_arguments,
    /// Requests whose handler failed, panicked or dropped its deferred reply (answered with 10).
    failed_handlers,
    /// Requests whose answer was put off.
    deferred_calls,
    /// Of these, answered.
    deferred_replies,
    /// Closed: the first byte of a frame was not 21 (HTTP, TLS, noise).
    closed_bad_magic,
    /// Closed: a protocol version or serialize type that nobody speaks.
    closed_bad_header,
    /// Closed: a body or attachment longer than the limit.
    closed_too_large,
    /// Closed: all connections together hold too much of unfinished requests, and this one more than its share.
    closed_crowded,
    /// Closed: the connections of its address together hold too much of unfinished requests.
    closed_crowded_address,
    /// Closed: no whole request within the time limit.
    closed_stalled,
    /// Closed: nothing was asked for longer than the idle timeout.
    closed_idle,
    /// Closed: replies were not read within the time limit.
    closed_unread,
    /// Closed: not let in, for want of a secret, a certificate or an address that may speak the plain wire.
    closed_turned_away,
    /// Closed: a read or write failed (peer reset).
    closed_io,
    /// Bytes read.
    bytes_received,
    /// Bytes of replies.
    bytes_sent,
    /// Turns of the worker loops.
    turns,
    /// Times a connection was held back because its peer read too slowly or had too many deferred calls.
    held_back,
    /// Times a connection was limited to one deferred call because its address had too many.
    held_back_by_address,
}

/// A counter with one writing thread: no locked instruction.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// All counters of a server; cheap to read at any time.
#[derive(Debug)]
pub struct ServerCounters {
    sets: Box<[CounterSet]>,
    /// Bytes of requests that are not whole yet, over all connections. Touched only while there are such.
    pub(crate) buffered: AtomicUsize,
    /// Connections that were taken and then not let in (see `yb_secure`): no worker has seen them.
    pub(crate) turned_away: AtomicUsize,
}

impl ServerCounters {
    /// One set per worker and one for the acceptor (the last).
    pub(crate) fn new(workers: usize) -> Self {
        let sets = (0..=workers).map(|_| CounterSet::default()).collect();
        ServerCounters { sets, buffered: AtomicUsize::new(0), turned_away: AtomicUsize::new(0) }
    }

    /// Workers of the server, at least 1.
    pub(crate) fn workers(&self) -> usize {
        self.sets.len().saturating_sub(1).max(1)
    }

    pub(crate) fn worker(&self, index: usize) -> &CounterSet {
        &self.sets[index]
    }

    pub(crate) fn acceptor(&self) -> &CounterSet {
        &self.sets[self.sets.len() - 1]
    }

    /// The sums now.
    pub fn snapshot(&self) -> CounterSnapshot {
        let mut sum = CounterSnapshot::default();
        self.sets.iter().for_each(|set| sum.add(set));
        let turned_away = self.turned_away.load(Ordering::Relaxed) as u64;
        sum.connections_closed += turned_away;
        sum.closed_turned_away += turned_away;
        sum
    }
}
