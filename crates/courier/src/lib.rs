//! A side channel between processes: pieces of data and tensors, from any process to any other, over RPC frames.
//!
//! The problem: programs that move tensors with the engine also want to tell each other small things, and the peer's
//! `RpcInterface` does that with two functions of its RPC layer. This crate speaks them. `docs/python-engine.md` has the
//! bytes.
//!
//! Invariants: a message is handed out once, whole, in the order of its connection; the sender is answered when the
//! receiver has taken it; what does not decode is refused and changes nothing.
#![forbid(unsafe_code)]

mod client;
mod message;
mod server;
mod tensor;

pub use client::{Client, ClientLimits, SendError};
pub use message::{DATA, INLINE_MAX, Message, NotAMessage, TENSOR, data, read, tensor};
pub use server::{Receiver, Server, StartError, Taken};
pub use tensor::{Dtype, HEAD_BYTES, TensorHead};
