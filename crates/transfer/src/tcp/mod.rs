//! Mooncake's TCP data wire, as initiator and as target.

pub(crate) mod client;
mod dial;
mod flow;
pub(crate) mod lanes;
mod plan;
pub(crate) mod server;
mod session;
pub(crate) mod wire;
