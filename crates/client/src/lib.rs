//! The Store client: put, get, batches, zero-copy, segment contribution.
#![forbid(unsafe_code)]
