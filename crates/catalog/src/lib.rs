//! The master's state machine: objects, replicas, leases, segments, placement, eviction.
#![forbid(unsafe_code)]
