//! Where an engine listens and what it tells peers to connect to, from the name and the environment variables that the
//! peer's `initialize` takes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;

use crate::EngineSettings;

/// The peer's range of ports.
const DEFAULT_PORTS: RangeInclusive<u16> = 15_000..=17_000;
/// The peer's port of a name without one.
const DEFAULT_PORT: u16 = 12_001;
/// Ports below belong to the system.
const FIRST_PORT: u16 = 1024;

/// What the environment says about addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressSettings {
    /// Ports to draw from (`MC_MIN_RPC_PORT`, `MC_MAX_RPC_PORT`).
    pub ports: RangeInclusive<u16>,
    /// Listen at the host's port of the name itself (`MC_LEGACY_RPC_PORT_BINDING`).
    pub literal: bool,
    /// Listen on IPv6 (`MC_USE_IPV6`).
    pub ipv6: bool,
    /// Port of a name without one, where it counts (`MC_HANDSHAKE_PORT`).
    pub handshake_port: u16,
    /// Told to peers that find us through a store (`MC_TCP_BIND_ADDRESS`).
    pub advertise: Option<String>,
}

/// A server name that cannot be served under.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// Not `host` or `host:port`.
    #[error("{0:?} is not a server name: host, host:port or [IPv6]:port")]
    NotAName(String),
    /// Peers cannot connect to it.
    #[error("{0:?} is no address that peers can connect to")]
    Unspecified(String),
    /// No network interface is up.
    #[error("no network interface besides loopback is up; set MC_TCP_BIND_ADDRESS")]
    NoInterface,
}

impl AddressSettings {
    /// The peer's defaults, changed by its environment variables. Values that make no sense are reported and ignored.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let port = |names: [&str; 2]| {
            let text = names.iter().find_map(|name| lookup(name))?;
            let port = text.parse().ok().filter(|port| *port >= FIRST_PORT);
            if port.is_none() {
                tracing::warn!(name = names[0], text, "setting ignored: not a port from {FIRST_PORT}");
            }
            port
        };
        // The peer once misspelt them.
        let first = port(["MC_MIN_RPC_PORT", "MC_MIN_PRC_PORT"]).unwrap_or(*DEFAULT_PORTS.start());
        let last = port(["MC_MAX_RPC_PORT", "MC_MAX_PRC_PORT"]).unwrap_or(*DEFAULT_PORTS.end());
        let ports = if first <= last {
            first..=last
        } else {
            tracing::warn!(first, last, "MC_MIN_RPC_PORT is above MC_MAX_RPC_PORT: both are ignored");
            DEFAULT_PORTS
        };
        AddressSettings {
            ports,
            literal: lookup("MC_LEGACY_RPC_PORT_BINDING").is_some(),
            ipv6: lookup("MC_USE_IPV6").is_some(),
            handshake_port: port(["MC_HANDSHAKE_PORT"; 2]).unwrap_or(DEFAULT_PORT),
            advertise: lookup("MC_TCP_BIND_ADDRESS").filter(|address| !address.is_empty()),
        }
    }

    /// Sets where the engine listens and what it advertises. `local_server_name` is the peer's argument; `store` says
    /// whether a metadata store is in use, where it is the engine's name as it stands.
    ///
    /// # Errors
    /// [`AddressError`]; nothing is set then.
    pub fn apply(
        &self,
        settings: &mut EngineSettings,
        local_server_name: &str,
        store: bool,
    ) -> Result<(), AddressError> {
        let wrong = || AddressError::NotAName(local_server_name.to_owned());
        let literal = self.literal || !store;
        let (host, port) = match split(local_server_name) {
            Some(parts) => parts,
            None if literal => return Err(wrong()),
            None => (String::new(), None),
        };
        let advertised = match (&self.advertise, literal) {
            (Some(address), _) if store => address.trim_start_matches('[').trim_end_matches(']').to_owned(),
            (_, true) => host,
            (_, false) => first_address(self.ipv6).ok_or(AddressError::NoInterface)?.to_string(),
        };
        if advertised.is_empty() {
            return Err(wrong());
        }
        let address = advertised.parse::<IpAddr>().ok();
        if address.is_some_and(|address| address.is_unspecified()) {
            return Err(AddressError::Unspecified(advertised));
        }
        let ipv6 = self.ipv6 || address.is_some_and(|address| address.is_ipv6()) || advertised.contains(':');
        let any = if ipv6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        let port = if self.literal { port.unwrap_or(self.handshake_port) } else { 0 };
        settings.listen = Some(SocketAddr::new(any, port));
        settings.advertise_host = Some(advertised);
        settings.port_range = Some(self.ports.clone());
        Ok(())
    }
}

/// Host without brackets, and port. `None` when the text is neither `host`, `host:port`, an IPv6 address, nor one in
/// brackets with or without a port.
fn split(name: &str) -> Option<(String, Option<u16>)> {
    let clean = |host: &str| !host.is_empty() && !host.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/');
    if let Some(rest) = name.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        let port = if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?.parse().ok()?) };
        return clean(host).then(|| (host.to_owned(), port));
    }
    let (host, port) = match name.split_once(':') {
        Some((_, rest)) if rest.contains(':') => (name, None),
        Some((host, port)) => (host, Some(port.parse().ok()?)),
        None => (name, None),
    };
    clean(host).then(|| (host.to_owned(), port))
}

/// The address of the first network interface that is up and no loopback, of the family asked for. Addresses that need
/// a scope to be reached do not count.
pub fn first_address(ipv6: bool) -> Option<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let up = interfaces.into_iter().filter(|interface| !interface.is_loopback() && interface.is_oper_up());
    let mut addresses = up.map(|interface| interface.ip()).filter(|address| address.is_ipv6() == ipv6);
    addresses.find(|address| match address {
        IpAddr::V4(address) => !address.is_unspecified() && !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unspecified() && !address.is_unicast_link_local(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain() -> AddressSettings {
        AddressSettings::from_env(|_| None)
    }

    fn applied(settings: &AddressSettings, name: &str, store: bool) -> (SocketAddr, String) {
        let mut engine = EngineSettings::default();
        settings.apply(&mut engine, name, store).unwrap();
        assert_eq!(engine.port_range, Some(settings.ports.clone()));
        (engine.listen.unwrap(), engine.advertise_host.unwrap())
    }

    #[test]
    fn without_a_store_the_host_of_the_name_counts() {
        let any4: SocketAddr = "0.0.0.0:0".parse().unwrap();
        let any6: SocketAddr = "[::]:0".parse().unwrap();
        for (name, listen, host) in [
            ("10.0.0.1", any4, "10.0.0.1"),
            ("node-a:5", any4, "node-a"),
            ("[::1]:7", any6, "::1"),
            ("fe80::1%eth0", any6, "fe80::1%eth0"),
        ] {
            assert_eq!(applied(&plain(), name, false), (listen, host.to_owned()), "{name}");
        }
        let literal = AddressSettings { literal: true, handshake_port: 13_000, ..plain() };
        assert_eq!(applied(&literal, "10.0.0.1:44201", true).0, "0.0.0.0:44201".parse().unwrap());
        assert_eq!(applied(&literal, "10.0.0.1", false).0, "0.0.0.0:13000".parse().unwrap());
    }

    #[test]
    fn with_a_store_the_name_is_only_a_name() {
        let told = AddressSettings { advertise: Some("10.9.9.9".to_owned()), ..plain() };
        assert_eq!(applied(&told, "any name/at all", true), ("0.0.0.0:0".parse().unwrap(), "10.9.9.9".to_owned()));
        let six = AddressSettings { advertise: Some("[fd00::1]".to_owned()), ..plain() };
        assert_eq!(applied(&six, "n", true), ("[::]:0".parse().unwrap(), "fd00::1".to_owned()));
    }

    #[test]
    fn names_that_nobody_can_connect_to_are_refused() {
        let mut engine = EngineSettings::default();
        for bad in ["", ":1", "a b", "h:99999", "h:x", "[::1", "[]:1", "http://h"] {
            assert_eq!(plain().apply(&mut engine, bad, false), Err(AddressError::NotAName(bad.to_owned())), "{bad}");
        }
        for bad in ["0.0.0.0:1", "[::]:1", "::"] {
            assert!(matches!(plain().apply(&mut engine, bad, false), Err(AddressError::Unspecified(_))), "{bad}");
        }
        assert_eq!(engine.listen, None);
    }

    #[test]
    fn ranges_that_make_no_sense_are_ignored() {
        let range = |first: &'static str, last: &'static str| {
            AddressSettings::from_env(move |name| match name {
                "MC_MIN_PRC_PORT" => Some(first.to_owned()),
                "MC_MAX_RPC_PORT" => Some(last.to_owned()),
                _ => None,
            })
            .ports
        };
        assert_eq!(range("20000", "20010"), 20_000..=20_010);
        assert_eq!(range("80", "16000"), 15_000..=16_000);
        assert_eq!(range("30000", "20000"), DEFAULT_PORTS);
        assert_eq!(range("x", "70000"), DEFAULT_PORTS);
    }
}
