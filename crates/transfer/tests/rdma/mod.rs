//! Help for the tests over soft-RoCE rails.

pub mod peer;
pub mod rails;
