//! Whether a caller is on this host.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use parking_lot::RwLock;

/// Addresses that are remembered, either way.
const MOST_REMEMBERED: usize = 256;

/// What is known of addresses so far.
#[derive(Debug, Default)]
pub(crate) struct ThisHost(RwLock<Vec<(IpAddr, bool)>>);

impl ThisHost {
    /// Whether a connection from `peer` comes from this host. A UNIX socket does.
    pub(crate) fn includes(&self, peer: Option<SocketAddr>) -> bool {
        let Some(ip) = peer.map(|peer| peer.ip().to_canonical()) else { return true };
        if ip.is_loopback() {
            return true;
        }
        if let Some((_, here)) = self.0.read().iter().find(|(known, _)| *known == ip) {
            return *here;
        }
        // Only an address of this host can be bound.
        let here = UdpSocket::bind((ip, 0)).is_ok();
        let mut known = self.0.write();
        if known.len() >= MOST_REMEMBERED {
            known.clear();
        }
        known.push((ip, here));
        here
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_here_and_a_documentation_address_is_not() {
        let host = ThisHost::default();
        let peer = |text: &str| Some(text.parse().unwrap());
        assert!(
            host.includes(None) && host.includes(peer("127.0.0.1:1")) && host.includes(peer("[::ffff:127.0.0.1]:1"))
        );
        assert!(!host.includes(peer("192.0.2.1:1")) && !host.includes(peer("192.0.2.1:2")));
    }
}
