//! The RPC wire: frames and the schema table of every function in every generation.
#![forbid(unsafe_code)]
