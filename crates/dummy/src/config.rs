//! What a dummy client is told at setup.

use std::sync::Arc;
use std::time::Duration;

use yb_client::CallLimits;
use yb_secure::Security;

/// The port of a daemon whose address names none.
const DEFAULT_PORT: u16 = 50_052;
/// The smallest staging window.
pub(crate) const LEAST_STAGE: u64 = 1 << 20;

/// How a dummy client is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DummyConfig {
    /// `host` or `host:port` of the daemon, on this host.
    pub server_address: String,
    /// Bytes of the staging window, through which values go that lie in no shared memory; at least 1 MiB is made. Larger
    /// values get a window of their own for the time of the call.
    pub local_buffer_size: u64,
    /// How long calls may take. The daemon has limits of its own, which are shorter.
    pub limits: CallLimits,
    /// How long one attempt to connect may take.
    pub connect_timeout: Duration,
    /// Time between two pings.
    pub ping_interval: Duration,
    /// How the connection to the daemon is secured; `None`: it is plain.
    pub security: Option<Arc<Security>>,
}

impl DummyConfig {
    /// With the defaults, for the daemon at `server_address`.
    pub fn new(server_address: impl Into<String>, local_buffer_size: u64) -> Self {
        DummyConfig {
            server_address: server_address.into(),
            local_buffer_size,
            limits: CallLimits { base: Duration::from_secs(10), bytes_per_second: 50_000_000 },
            connect_timeout: Duration::from_secs(1),
            ping_interval: Duration::from_secs(1),
            security: None,
        }
    }

    /// The daemon's address with a port.
    pub(crate) fn address(&self) -> String {
        let text = self.server_address.trim();
        let bare_v6 = text.matches(':').count() > 1 && !text.starts_with('[');
        if bare_v6 {
            return format!("[{text}]:{DEFAULT_PORT}");
        }
        match text.rsplit_once(':') {
            Some((_, port)) if !port.ends_with(']') => text.to_owned(),
            _ => format!("{text}:{DEFAULT_PORT}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_added_where_there_is_none() {
        let address = |text: &str| DummyConfig::new(text, 0).address();
        assert_eq!(address("127.0.0.1"), "127.0.0.1:50052");
        assert_eq!(address("h:7"), "h:7");
        assert_eq!(address("[::1]"), "[::1]:50052");
        assert_eq!(address("::1"), "[::1]:50052");
        assert_eq!(address("[::1]:9"), "[::1]:9");
    }
}
