//! RPC server and pipelined client over the frames of yb-wire.
#![forbid(unsafe_code)]
