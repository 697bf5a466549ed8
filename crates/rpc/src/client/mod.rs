//! The client: pipelined connections to one address, a blocking face and a completion face over one core.

mod core;
mod driver;
mod eager;
mod error;
mod future;
mod link;
mod pool;
mod socket;

pub use self::core::{ClientCore, Completed, Parts, ReplyBody};
pub use error::{Retry, RpcError};
pub use future::CallFuture;
pub use pool::{ClientPool, ClientSettings, Payload};
