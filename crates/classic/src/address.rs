//! Where an engine listens, and what it tells peers to connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::ClassicError;
use crate::options::{ClassicOptions, Environment};
use crate::status::StatusCode;

/// How often a port is drawn before the engine gives up.
pub(crate) const DRAWS: usize = 500;

/// Where the handshake listens, and the host that peers are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) listen: IpAddr,
    pub(crate) advertised: String,
    /// A port that must be had; else one is drawn.
    pub(crate) port: Option<u16>,
}

/// Splits `host`, `host:port`, `[v6]`, `[v6]:port` or a bare IPv6 address.
pub(crate) fn split_name(name: &str) -> Result<(&str, Option<u16>), ClassicError> {
    let bad = |why: &str| ClassicError::new(StatusCode::InvalidArgument, format!("server name {name:?}: {why}"));
    if name.is_empty() || name.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/') {
        return Err(bad("a name is host or host:port, without spaces and slashes"));
    }
    let parse = |port: &str| port.parse::<u16>().map(Some).map_err(|_| bad("the port is no number up to 65535"));
    if let Some(rest) = name.strip_prefix('[') {
        let (host, port) = rest.split_once(']').ok_or_else(|| bad("a bracket is not closed"))?;
        host.split('%')
            .next()
            .unwrap_or_default()
            .parse::<Ipv6Addr>()
            .map_err(|_| bad("no IPv6 address in brackets"))?;
        return match port.strip_prefix(':') {
            Some(port) => Ok((host, parse(port)?)),
            None if port.is_empty() => Ok((host, None)),
            None => Err(bad("something follows the bracket")),
        };
    }
    match name.split_once(':') {
        None => Ok((name, None)),
        Some((_, rest)) if rest.contains(':') => Ok((name, None)),
        Some(("", _)) => Err(bad("the host is missing")),
        Some((host, port)) => Ok((host, parse(port)?)),
    }
}

/// Decides the place of an engine.
pub(crate) fn place(options: &ClassicOptions) -> Result<Place, ClassicError> {
    let environment = &options.environment;
    if !options.is_p2p() && !environment.bind_the_name {
        let advertised = match &environment.advertised {
            Some(host) => host.clone(),
            None => first_address(environment.ipv6)?.to_string(),
        };
        return Ok(Place { listen: any(environment, &advertised), advertised, port: None });
    }
    let (host, port) = split_name(&options.local_server_name)?;
    if host.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified()) {
        let detail = format!("server name {:?}: peers cannot connect to \"any address\"; name a host", host);
        return Err(ClassicError::new(StatusCode::InvalidArgument, detail));
    }
    let port = environment.bind_the_name.then(|| port.unwrap_or(environment.handshake_port));
    // Peers reach a loopback name through loopback only, so nobody else needs to.
    let loopback = host.parse::<IpAddr>().ok().filter(IpAddr::is_loopback);
    let listen = loopback.unwrap_or_else(|| any(environment, host));
    Ok(Place { listen, advertised: host.to_owned(), port })
}

fn any(environment: &Environment, host: &str) -> IpAddr {
    if environment.ipv6 || host.contains(':') { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

/// The address of the first interface that is up and not the loopback.
fn first_address(ipv6: bool) -> Result<IpAddr, ClassicError> {
    let found = interface_addresses();
    let usable = |ip: &&IpAddr| ip.is_ipv6() == ipv6 && !ip.is_loopback() && !is_link_local(ip);
    found.iter().find(usable).copied().ok_or_else(|| {
        let detail = "no interface besides the loopback has an address; set MC_TCP_BIND_ADDRESS";
        ClassicError::new(StatusCode::Socket, detail)
    })
}

fn is_link_local(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

/// Addresses of the interfaces that are up, in the system's order.
fn interface_addresses() -> Vec<IpAddr> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call fills the pointer with a list that `freeifaddrs` below releases.
    if unsafe { libc::getifaddrs(&mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: entries of the list are valid until it is released.
    while let Some(entry) = unsafe { next.as_ref() } {
        next = entry.ifa_next;
        if entry.ifa_flags & libc::IFF_UP as u32 != 0 {
            // SAFETY: the address belongs to an entry of the list.
            found.extend(unsafe { address_of(entry.ifa_addr) });
        }
    }
    // SAFETY: the list comes from `getifaddrs`, and nothing of it is used any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

/// # Safety
/// The pointer is null, or an address whose family says how long it is.
unsafe fn address_of(address: *const libc::sockaddr) -> Option<IpAddr> {
    // SAFETY: the caller's promise.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    match family {
        libc::AF_INET => {
            // SAFETY: an address of this family is this long; it may be unaligned in theory.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(Ipv6Addr::from(v6.sin6_addr.s6_addr).into())
        }
        _ => None,
    }
}

/// The address to try, and how often another port may be tried after a port in use.
pub(crate) fn draw(place: &Place, ports: (u16, u16), rng: &mut yb_env::Rng) -> SocketAddr {
    let port = place.port.unwrap_or_else(|| {
        let (least, most) = ports;
        least + rng.below(u64::from(most - least) + 1) as u16
    });
    SocketAddr::new(place.listen, port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split() {
        for (name, host, port) in [
            ("10.0.0.1", "10.0.0.1", None),
            ("node-a:12", "node-a", Some(12)),
            ("[::1]:99", "::1", Some(99)),
            ("[fe80::1%eth0]:99", "fe80::1%eth0", Some(99)),
            ("[::1]", "::1", None),
            ("::1", "::1", None),
        ] {
            assert_eq!(split_name(name).unwrap(), (host, port), "{name}");
        }
        for bad in ["", "a b", "a:", "a:70000", ":1", "[::1", "[x]:1", "[::1]x", "a/b", "a\n"] {
            assert_eq!(split_name(bad).unwrap_err().negated(), -1, "{bad:?}");
        }
    }

    #[test]
    fn a_loopback_name_listens_on_loopback_and_others_everywhere() {
        let of = |name: &str| place(&ClassicOptions::new("P2PHANDSHAKE", name));
        assert_eq!(of("127.0.0.1:5").unwrap().listen.to_string(), "127.0.0.1");
        assert_eq!(of("[::1]").unwrap().listen.to_string(), "::1");
        assert_eq!(of("192.0.2.1").unwrap().listen.to_string(), "0.0.0.0");
        assert_eq!(of("2001:db8::1").unwrap().listen.to_string(), "::");
        assert_eq!(of("0.0.0.0").unwrap_err().negated(), -1);
        assert_eq!(of("[::]:1").unwrap_err().negated(), -1);
    }

    #[test]
    fn the_interfaces_of_this_machine_are_read() {
        assert!(interface_addresses().iter().any(IpAddr::is_loopback));
    }
}
