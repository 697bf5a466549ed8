//! What one peer may cost. Every field is a setting of the master.

use std::time::Duration;

/// Limits of a server; the defaults suit a master with thousands of clients.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Largest request body in bytes; a larger claim closes the connection at once. Nothing is allocated for a claim.
    pub max_body_bytes: u32,
    /// Largest request attachment in bytes. Store calls carry none; what comes is read and handed to the service.
    pub max_attachment_bytes: u32,
    /// Open connections over all listeners; further ones are accepted and closed at once.
    pub max_connections: usize,
    /// Open connections of one address over all TCP listeners; further ones are closed at once.
    pub max_connections_per_address: usize,
    /// Bytes of replies that a peer has not read, above which its requests wait. One reply may exceed it.
    pub max_unsent_bytes: usize,
    /// Bytes that all connections together may hold of requests that are not whole yet, and again of replies that are not
    /// read yet. With many connections each one's share of it comes before the limits above.
    pub max_buffered_bytes: usize,
    /// Deferred calls of one connection that may be open, above which its requests wait.
    pub max_deferred: usize,
    /// Deferred calls of all connections of one address that may be open, above which each may have one.
    pub max_deferred_per_address: usize,
    /// Bytes of requests that are not whole yet which all connections of one address may hold; above, those that add to it
    /// are closed.
    pub max_buffered_per_address: usize,
    /// Time without a new byte after which a connection is closed that never sent a whole request or stopped inside one.
    /// Checked every [`SWEEP_INTERVAL`]; the default closes within two seconds.
    pub stalled_frame_timeout: Duration,
    /// Longest time that one request may take to arrive, however steadily its bytes trickle.
    pub frame_timeout: Duration,
    /// Time after which a peer that has replies to read and reads nothing is closed.
    pub unsent_timeout: Duration,
    /// Time without a byte after a whole request after which a connection is closed; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// Whether TCP sends small replies at once (`TCP_NODELAY`).
    pub tcp_no_delay: bool,
}

/// How often deadlines of connections are looked at (only while some connection has one).
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(100);

/// How often idle connections are looked for (only with an `idle_timeout`).
pub(crate) const IDLE_INTERVAL: Duration = Duration::from_secs(1);

/// How long a peer may read nothing while all together leave more unread than `max_buffered_bytes`, and it more than its
/// share.
pub(crate) const CROWDED_PATIENCE: Duration = Duration::from_secs(1);

impl ServerLimits {
    /// Deferred calls that a connection may have while its address has so many.
    pub(crate) fn deferred_with(&self, open: usize) -> usize {
        if open > self.max_deferred_per_address { 1 } else { self.max_deferred }
    }
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            max_body_bytes: 64 << 20,
            max_attachment_bytes: 64 << 20,
            max_connections: 16_384,
            max_connections_per_address: usize::MAX,
            max_unsent_bytes: 4 << 20,
            max_buffered_bytes: 1 << 30,
            max_deferred: 1024,
            max_deferred_per_address: usize::MAX,
            max_buffered_per_address: usize::MAX,
            stalled_frame_timeout: Duration::from_millis(1700),
            frame_timeout: Duration::from_secs(30),
            unsent_timeout: Duration::from_secs(30),
            idle_timeout: None,
            tcp_no_delay: true,
        }
    }
}
