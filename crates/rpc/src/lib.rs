//! RPC frames over sockets: the server's worker loops and the pipelined client. See `docs/rpc.md`.
//!
//! The problem: one request of the peer's clients is 60 bytes of work for us and two system calls for the kernel, so the
//! kernel is the cost. Invariants that follow from it:
//! - a server turn reads once, answers every whole frame it got, and writes once;
//! - a request allocates nothing, takes no lock and asks no clock;
//! - memory follows the bytes that a peer sent, never the lengths that it claims, and every wait has a deadline.
#![forbid(unsafe_code)]

mod address;
mod client;
mod server;

pub use address::RpcAddress;
pub use client::{
    CallFuture, ClientCore, ClientPool, ClientSettings, Completed, Parts, Payload, ReplyBody, Retry, RpcError,
};
pub use server::{
    Answered, BackendChoice, BoundListener, ConnectionLimit, CounterSnapshot, DeferredReply, Desk, Listener,
    ListenerTag, OpenListeners, Outcome, Reply, Request, Server, ServerCounters, ServerLimits, ServerSettings, Service,
    StartError,
};
