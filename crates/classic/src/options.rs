//! What an engine of this API is started with, from arguments and from the environment.

use std::time::Duration;

use crate::ClassicError;
use crate::status::StatusCode;

/// The metadata string of an engine without a metadata store.
pub const P2P_HANDSHAKE: &str = "P2PHANDSHAKE";

/// First and last port that engines draw from by default.
const DEFAULT_PORTS: (u16, u16) = (15_000, 17_000);
/// Ports that the system hands out by itself; a range that reaches into them is refused.
const EPHEMERAL: std::ops::RangeInclusive<u16> = 32_768..=60_999;
const DEFAULT_HANDSHAKE_PORT: u16 = 12_001;

/// Which transports an engine may use between hosts. Memory of the same host is reached without them in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RDMA where a device is, else TCP. A failing RDMA path falls back to TCP.
    #[default]
    Auto,
    /// TCP only.
    Tcp,
    /// RDMA; without a device the engine does not start.
    Rdma,
}

impl Protocol {
    /// Reads the protocol argument of the peer's `initialize`. As with the peer, "rdma" prefers RDMA and takes TCP where
    /// no device is; unlike there, "tcp" is honoured on a machine with devices.
    ///
    /// # Errors
    /// `NotSupportedTransport` for a transport that this build does not have.
    pub fn preferred(name: &str) -> Result<Self, ClassicError> {
        match name {
            "" | "auto" | "rdma" | "rdma_twosided" => Ok(Protocol::Auto),
            "tcp" => Ok(Protocol::Tcp),
            other => Err(unknown(other)),
        }
    }

    /// Reads the name of a transport that must be there.
    ///
    /// # Errors
    /// `NotSupportedTransport` for a transport that this build does not have.
    pub fn exact(name: &str) -> Result<Self, ClassicError> {
        match name {
            "auto" => Ok(Protocol::Auto),
            "tcp" => Ok(Protocol::Tcp),
            "rdma" => Ok(Protocol::Rdma),
            other => Err(unknown(other)),
        }
    }
}

fn unknown(name: &str) -> ClassicError {
    ClassicError::new(
        StatusCode::NotSupportedTransport,
        format!("there is no transport {name:?}; known are tcp and rdma"),
    )
}

/// What an engine is started with.
#[derive(Clone, Debug)]
pub struct ClassicOptions {
    /// `P2PHANDSHAKE`, or where the metadata store is (`http://...`, `etcd://...`, `redis://...`).
    pub metadata: String,
    /// With `P2PHANDSHAKE`: the host that peers connect to, an optional port is ignored. With a store: the segment's name.
    pub local_server_name: String,
    /// Which transports may be used.
    pub protocol: Protocol,
    /// Names of the RDMA devices that may be used; empty = all.
    pub filters: Vec<String>,
    /// Whether devices are looked for at all.
    pub auto_discover: bool,
    /// Whether memory of the same host may be reached without a socket. Measurements of a network say no.
    pub same_host: bool,
    /// The environment's part.
    pub environment: Environment,
}

impl ClassicOptions {
    /// Everything but the names is the default, or what the process's environment says.
    pub fn new(metadata: impl Into<String>, local_server_name: impl Into<String>) -> Self {
        ClassicOptions {
            metadata: metadata.into(),
            local_server_name: local_server_name.into(),
            protocol: Protocol::Auto,
            filters: Vec::new(),
            auto_discover: true,
            same_host: true,
            environment: Environment::of_process(),
        }
    }

    /// Whether peers are found without a metadata store.
    pub fn is_p2p(&self) -> bool {
        self.metadata == P2P_HANDSHAKE
    }
}

/// Splits a list of device names at commas; empty entries are left out.
pub fn device_list(names: &str) -> Vec<String> {
    names.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// What the peer's environment variables say.
#[derive(Clone, Debug)]
pub struct Environment {
    /// `MC_FORCE_TCP`: TCP only. Unlike with the peer, "0", "false", "no" and "off" mean no.
    pub force_tcp: bool,
    /// First and last handshake port that is drawn from (`MC_MIN_RPC_PORT`, `MC_MAX_RPC_PORT`).
    pub ports: (u16, u16),
    /// `MC_LEGACY_RPC_PORT_BINDING`: host and port of the name are bound as they are.
    pub bind_the_name: bool,
    /// `MC_HANDSHAKE_PORT`: the port of a name that has none, with the above.
    pub handshake_port: u16,
    /// `MC_USE_IPV6`: listen on `[::]`.
    pub ipv6: bool,
    /// `MC_TCP_BIND_ADDRESS`: what is advertised with a metadata store.
    pub advertised: Option<String>,
    /// `MC_TRANSFER_TIMEOUT`: what a synchronous call may take, before a nanosecond a byte is added.
    pub transfer_timeout: Duration,
    /// `MC_SLICE_TIMEOUT`: what a submitted request may take.
    pub slice_timeout: Option<Duration>,
    /// `MC_DISABLE_METACACHE`: a peer's description is fetched at every use of its name.
    pub no_cache: bool,
}

impl Environment {
    /// As the process's environment says.
    pub fn of_process() -> Self {
        Environment::from_lookup(|name| std::env::var(name).ok())
    }

    /// As the lookup says. A value that makes no sense is reported and left at the default.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Self {
        let on = |name: &str| {
            lookup(name)
                .is_some_and(|v| !matches!(v.trim().to_ascii_lowercase().as_str(), "0" | "false" | "no" | "off"))
        };
        let number = |name: &str| lookup(name).and_then(|text| text.trim().parse::<u64>().ok());
        let port = |name: &str| number(name).and_then(|port| u16::try_from(port).ok());
        let seconds = number("MC_TRANSFER_TIMEOUT").unwrap_or(30).max(5);
        Environment {
            force_tcp: on("MC_FORCE_TCP"),
            ports: port_range(
                number("MC_MIN_RPC_PORT").or_else(|| number("MC_MIN_PRC_PORT")),
                number("MC_MAX_RPC_PORT").or_else(|| number("MC_MAX_PRC_PORT")),
            ),
            bind_the_name: on("MC_LEGACY_RPC_PORT_BINDING"),
            handshake_port: port("MC_HANDSHAKE_PORT").unwrap_or(DEFAULT_HANDSHAKE_PORT),
            ipv6: on("MC_USE_IPV6"),
            advertised: lookup("MC_TCP_BIND_ADDRESS").filter(|host| !host.is_empty()),
            transfer_timeout: Duration::from_secs(seconds),
            slice_timeout: number("MC_SLICE_TIMEOUT").filter(|s| (1..=65_535).contains(s)).map(Duration::from_secs),
            no_cache: on("MC_DISABLE_METACACHE"),
        }
    }
}

fn port_range(least: Option<u64>, most: Option<u64>) -> (u16, u16) {
    let bound = |value: Option<u64>, default: u16| match value {
        None => Some(default),
        Some(value) => u16::try_from(value).ok().filter(|port| *port >= 1024 && !EPHEMERAL.contains(port)),
    };
    match (bound(least, DEFAULT_PORTS.0), bound(most, DEFAULT_PORTS.1)) {
        (Some(least), Some(most)) if least <= most => (least, most),
        _ => {
            tracing::warn!(?least, ?most, "MC_MIN_RPC_PORT and MC_MAX_RPC_PORT are no range of usable ports: ignored");
            DEFAULT_PORTS
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(pairs: &'static [(&str, &str)]) -> Environment {
        Environment::from_lookup(|name| {
            pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn odd_ranges_of_ports_are_the_default() {
        assert_eq!(with(&[]).ports, DEFAULT_PORTS);
        assert_eq!(with(&[("MC_MIN_RPC_PORT", "20000"), ("MC_MAX_RPC_PORT", "20000")]).ports, (20_000, 20_000));
        assert_eq!(with(&[("MC_MIN_PRC_PORT", "16000")]).ports, (16_000, 17_000));
        for bad in [
            &[("MC_MIN_RPC_PORT", "80")][..],
            &[("MC_MAX_RPC_PORT", "70000")],
            &[("MC_MAX_RPC_PORT", "40000")],
            &[("MC_MIN_RPC_PORT", "16000"), ("MC_MAX_RPC_PORT", "15999")],
        ] {
            assert_eq!(with(bad).ports, DEFAULT_PORTS, "{bad:?}");
        }
    }

    #[test]
    fn switches_can_be_switched_off() {
        assert!(with(&[("MC_FORCE_TCP", "")]).force_tcp, "presence is enough, as with the peer");
        assert!(with(&[("MC_FORCE_TCP", "1")]).force_tcp);
        assert!(!with(&[("MC_FORCE_TCP", "0")]).force_tcp);
        assert!(!with(&[]).force_tcp);
    }

    #[test]
    fn the_budget_has_a_floor() {
        assert_eq!(with(&[("MC_TRANSFER_TIMEOUT", "1")]).transfer_timeout, Duration::from_secs(5));
        assert_eq!(with(&[("MC_TRANSFER_TIMEOUT", "x")]).transfer_timeout, Duration::from_secs(30));
        assert_eq!(with(&[("MC_SLICE_TIMEOUT", "-1")]).slice_timeout, None);
        assert_eq!(with(&[("MC_SLICE_TIMEOUT", "7")]).slice_timeout, Some(Duration::from_secs(7)));
    }

    #[test]
    fn protocols_by_name() {
        assert_eq!(Protocol::preferred("rdma").unwrap(), Protocol::Auto);
        assert_eq!(Protocol::preferred("tcp").unwrap(), Protocol::Tcp);
        assert_eq!(Protocol::preferred("xgmi").unwrap_err().negated(), -8);
        assert_eq!(Protocol::exact("rdma").unwrap(), Protocol::Rdma);
        assert!(Protocol::exact("").is_err());
        assert_eq!(device_list("mlx5_0,, mlx5_1,"), ["mlx5_0", "mlx5_1"]);
    }
}
