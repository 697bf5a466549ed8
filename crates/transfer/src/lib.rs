//! The Transfer Engine: regions, segments, batches and the transports local, shared memory and TCP.
#![forbid(unsafe_code)]
