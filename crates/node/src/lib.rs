//! The storage node process: memory given to the pool.
#![forbid(unsafe_code)]
