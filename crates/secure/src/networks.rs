//! Sets of addresses: `10.0.0.0/8, 192.168.7.3, fd00::/8` (pure).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// One network: an address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    address: IpAddr,
    bits: u8,
}

/// Who may speak the compatible plain wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Networks {
    /// Everybody (`any`).
    Any,
    /// Nobody (`none`), or the addresses in one of these networks.
    Of(NetworkList),
}

/// A list of networks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkList(Vec<Network>);

/// The text names no set of addresses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not any, none, or a list of addresses and networks such as 10.0.0.0/8,::1")]
pub struct BadNetworks(pub String);

impl Networks {
    /// No address at all.
    pub fn none() -> Self {
        Networks::Of(NetworkList::default())
    }

    /// Whether the address is among them. An IPv4 address that came in over an IPv6 socket counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match self {
            Networks::Any => true,
            Networks::Of(list) => list.0.iter().any(|network| network.contains(address.to_canonical())),
        }
    }
}

impl FromStr for Networks {
    type Err = BadNetworks;

    fn from_str(text: &str) -> Result<Self, BadNetworks> {
        match text.trim() {
            "any" => Ok(Networks::Any),
            "none" | "" => Ok(Networks::none()),
            list => {
                let parts = list.split(',').map(str::trim).filter(|part| !part.is_empty());
                let parsed = parts.map(|part| Network::parse(part).ok_or_else(|| BadNetworks(text.to_owned())));
                parsed.collect::<Result<_, _>>().map(|list| Networks::Of(NetworkList(list)))
            }
        }
    }
}

impl fmt::Display for Networks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Networks::Any => f.write_str("any"),
            Networks::Of(list) if list.0.is_empty() => f.write_str("none"),
            Networks::Of(list) => {
                let texts: Vec<String> = list.0.iter().map(|n| format!("{}/{}", n.address, n.bits)).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

/// Leading bits of an IPv6 address that carries an IPv4 one.
const MAPPED_BITS: u8 = 96;

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().ok()?;
        let most = width(address);
        let bits = match bits {
            None => most,
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
        };
        match address.to_canonical() {
            _ if bits > most => None,
            // `::ffff:10.0.0.0/104` means the IPv4 addresses that it looks like: those are compared as IPv4.
            canonical @ IpAddr::V4(_) if address.is_ipv6() => {
                Some(Network { address: canonical, bits: bits.checked_sub(MAPPED_BITS)? })
            }
            _ => Some(Network { address, bits }),
        }
    }

    fn contains(&self, address: IpAddr) -> bool {
        let shift = width(self.address) - self.bits;
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differs = u32::from(own) ^ u32::from(other);
                differs.checked_shr(shift.into()).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differs = u128::from(own) ^ u128::from(other);
                differs.checked_shr(shift.into()).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(networks: &str, address: &str) -> bool {
        networks.parse::<Networks>().unwrap().contains(address.parse().unwrap())
    }

    #[test]
    fn addresses_are_found_in_their_networks_only() {
        assert!(has("any", "1.2.3.4") && !has("none", "1.2.3.4") && !has("", "1.2.3.4"));
        assert!(has("10.0.0.0/8", "10.255.0.1") && !has("10.0.0.0/8", "11.0.0.1"));
        assert!(has("1.1.1.1, 10.1.2.3", "10.1.2.3") && !has("10.1.2.3", "10.1.2.4"));
        assert!(has("0.0.0.0/0", "8.8.8.8") && !has("0.0.0.0/0", "::1"));
        assert!(has("fd00::/8,::1", "::1") && has("fd00::/8", "fd12::9") && !has("fd00::/8", "fe80::1"));
        assert!(has("10.0.0.0/8", "::ffff:10.0.0.1"), "IPv4 over an IPv6 socket");
        for mapped in ["::ffff:10.0.0.0/104", "::ffff:a00:0/104"] {
            assert!(has(mapped, "10.1.2.3") && has(mapped, "::ffff:10.1.2.3") && !has(mapped, "11.0.0.1"), "{mapped}");
        }
        assert!(has("::ffff:10.0.0.1", "10.0.0.1") && !has("::ffff:10.0.0.1", "10.0.0.2"));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in [
            "10.0.0.0/33",
            "10.0.0/8",
            "::/129",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "host",
            "any,none",
            "1.2.3.4/8/8",
            "::ffff:10.0.0.0/95",
        ] {
            assert!(text.parse::<Networks>().is_err(), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_text_that_is_understood_comes_back(text in "[0-9a-f:./, ny]{0,40}") {
            if let Ok(networks) = text.parse::<Networks>() {
                proptest::prop_assert_eq!(networks.to_string().parse::<Networks>(), Ok(networks));
            }
        }
    }
}
