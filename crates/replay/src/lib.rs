//! Request traces: reading, generating, replaying against a pool with every byte checked.
#![forbid(unsafe_code)]
