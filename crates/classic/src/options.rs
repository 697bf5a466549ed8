//! What an engine of this API is started with, from arguments and from the environment.

use std::path::PathBuf;
use std::time::Duration;

use yb_transfer::AddressSettings;

use crate::ClassicError;
use crate::status::StatusCode;

/// The metadata string of an engine without a metadata store.
pub const P2P_HANDSHAKE: &str = "P2PHANDSHAKE";

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
    /// File with the priority matrix to use instead of the host's.
    pub matrix: Option<PathBuf>,
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
            matrix: None,
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

/// What the peer's environment variables say, besides those of [`yb_transfer::EngineSettings`].
#[derive(Clone, Debug)]
pub struct Environment {
    /// Where an engine listens and what it advertises.
    pub addresses: AddressSettings,
    /// `MC_FORCE_TCP`: TCP only. Unlike with the peer, "0", "false", "no" and "off" mean no.
    pub force_tcp: bool,
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
        let says_no = |v: &str| matches!(v.trim().to_ascii_lowercase().as_str(), "0" | "false" | "no" | "off");
        let on = |name: &str| lookup(name).is_some_and(|value| !says_no(&value));
        let number = |name: &str| lookup(name).and_then(|text| text.trim().parse::<u64>().ok());
        let seconds = number("MC_TRANSFER_TIMEOUT").unwrap_or(30).max(5);
        Environment {
            addresses: AddressSettings::from_env(&lookup),
            force_tcp: on("MC_FORCE_TCP"),
            transfer_timeout: Duration::from_secs(seconds),
            slice_timeout: number("MC_SLICE_TIMEOUT").filter(|s| (1..=65_535).contains(s)).map(Duration::from_secs),
            no_cache: on("MC_DISABLE_METACACHE"),
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
