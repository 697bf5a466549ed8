//! The handshake port: metadata, notifications, liveness. One request and one reply per connection.

pub(crate) mod client;
pub(crate) mod frame;
pub(crate) mod reply;
pub(crate) mod session;
