//! Whether other hosts can reach what this one lends under a name.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Once;

use crate::config::split_host_port;

/// It is said once in a process.
static SAID: Once = Once::new();

/// Whether memory lent under `name` (`host` or `host:port`) is for this host only although the master (`host:port`) is on
/// another one. What cannot be resolved gives no reason to think so.
pub fn is_lent_out_of_reach(name: &str, master: &str) -> bool {
    let host = split_host_port(name).0;
    every(&addresses((host, 0)), |ip| ip.is_loopback()) && every(&addresses(master), |ip| !is_own(ip))
}

/// Says so in the log.
pub(crate) fn warn_if_out_of_reach(name: &str, master: &str) {
    if is_lent_out_of_reach(name, master) {
        SAID.call_once(|| {
            tracing::warn!(
                event = "lent_out_of_reach",
                name,
                master,
                "memory is lent under a name that leads other hosts to themselves, and the master is on another host: set \
                 MOONCAKE_LOCAL_HOSTNAME (local_hostname of setup) to an address of this host"
            );
        });
    }
}

fn addresses(of: impl ToSocketAddrs) -> Vec<IpAddr> {
    of.to_socket_addrs().map_or(Vec::new(), |found| found.map(|address| address.ip()).collect())
}

fn every(all: &[IpAddr], holds: impl Fn(IpAddr) -> bool) -> bool {
    !all.is_empty() && all.iter().copied().all(holds)
}

/// Only an address of this host can be bound; a datagram socket takes no port from anybody by it.
fn is_own(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind(SocketAddr::new(ip, 0)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_lent_out_of_reach;

    #[test]
    fn loopback_names_reach_nobody_when_the_master_is_elsewhere() {
        // Kept for documents: of no host.
        let elsewhere = ["192.0.2.1:50051", "[2001:db8::1]:50051"];
        for master in elsewhere {
            for name in ["localhost", "localhost:12345", "127.0.0.1", "127.9.9.9:1", "[::1]:7"] {
                assert!(is_lent_out_of_reach(name, master), "{name} {master}");
            }
            for name in ["10.0.0.1", "10.0.0.1:17", "[2001:db8::2]:1", "no such host"] {
                assert!(!is_lent_out_of_reach(name, master), "{name} {master}");
            }
        }
        for here in ["localhost:50051", "127.0.0.1:50051", "0.0.0.0:50051", "", "no such host:1"] {
            assert!(!is_lent_out_of_reach("localhost", here), "{here}");
        }
    }
}
