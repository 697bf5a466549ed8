//! The `yuebing` command, which also answers to the peer's command names by `argv[0]`.
#![forbid(unsafe_code)]
fn main() {}
