//! Load generators for any master and store of this wire.
#![forbid(unsafe_code)]
