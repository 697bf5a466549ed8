//! Which address peers would be told, and whether it leads back here.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::time::Duration;

use serde_json::json;

use super::report::Check;

/// How long our own address may take to answer us.
const DIAL_BACK: Duration = Duration::from_secs(3);

/// Where a node would listen, and what it would tell others.
#[derive(Clone, Debug)]
pub struct Place {
    /// Address to listen on.
    pub host: String,
    /// Address that others are told; `None` = found out.
    pub advertise: Option<String>,
    /// Port to listen on; 0 = any.
    pub port: u16,
    /// A peer or master, `host:port`, that is to be reached.
    pub towards: Option<String>,
}

/// An address of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Candidate {
    interface: String,
    ip: IpAddr,
    up: bool,
}

impl Candidate {
    /// Why it cannot be told to peers on other hosts.
    fn unfit(&self) -> Option<&'static str> {
        match self.ip {
            _ if !self.up => Some("the interface is down"),
            ip if ip.is_loopback() => Some("loopback"),
            IpAddr::V4(ip) if ip.is_link_local() => Some("link-local"),
            IpAddr::V6(ip) if ip.is_unicast_link_local() => Some("link-local: peers would need a scope id"),
            _ if BRIDGES.iter().any(|name| self.interface.starts_with(name)) => Some("a bridge of containers"),
            _ => None,
        }
    }

    fn describe(&self) -> String {
        match self.unfit() {
            Some(why) => format!("{} on {} ({why})", self.ip, self.interface),
            None => format!("{} on {}", self.ip, self.interface),
        }
    }
}

/// Interfaces that lead to no other host.
const BRIDGES: &[&str] = &["docker", "br-", "veth", "virbr", "cni", "flannel"];

/// Lists the addresses, chooses one, and dials it.
pub fn check(place: &Place) -> Vec<Check> {
    let mut checks = vec![];
    let candidates = match candidates() {
        Ok(candidates) => candidates,
        Err(error) => {
            return vec![Check::fail(
                "interfaces",
                error.to_string(),
                "the kernel does not tell this machine's addresses",
            )];
        }
    };
    let told: Vec<String> = candidates.iter().map(Candidate::describe).collect();
    let listed = candidates
        .iter()
        .map(|c| json!({"interface": c.interface, "address": c.ip.to_string(), "up": c.up, "unfit": c.unfit()}))
        .collect::<Vec<_>>();
    checks.push(Check::ok("interfaces", told.join(", ")).with("addresses", listed));
    checks.push(ipv6(&candidates));
    match choose(place, &candidates, &towards) {
        Ok((host, why)) => {
            checks.push(
                Check::ok("advertised", format!("{host}: {why}"))
                    .with("host", host.as_str())
                    .with("reason", why.as_str()),
            );
            checks.push(dial_back(place, &host));
        }
        Err(check) => checks.push(*check),
    }
    checks
}

fn candidates() -> io::Result<Vec<Candidate>> {
    let found = if_addrs::get_if_addrs()?;
    Ok(found.into_iter().map(|i| Candidate { ip: i.ip(), up: i.is_oper_up(), interface: i.name }).collect())
}

fn ipv6(candidates: &[Candidate]) -> Check {
    let global = candidates.iter().find(|c| c.ip.is_ipv6() && c.unfit().is_none());
    let any = TcpListener::bind((Ipv6Addr::LOCALHOST, 0));
    match (global, any) {
        (Some(candidate), Ok(_)) => Check::ok("ipv6", format!("usable: {}", candidate.describe())).with("usable", true),
        (None, Ok(_)) => {
            Check::ok("ipv6", "only loopback and link-local addresses: peers use IPv4").with("usable", false)
        }
        (_, Err(error)) => Check::ok("ipv6", format!("not available ({error}): peers use IPv4")).with("usable", false),
    }
}

/// The host that peers would be told, and why.
fn choose(
    place: &Place,
    candidates: &[Candidate],
    towards: &dyn Fn(&str, IpAddr) -> io::Result<IpAddr>,
) -> Result<(String, String), Box<Check>> {
    if let Some(host) = place.advertise.as_deref().filter(|host| !host.is_empty()) {
        return given(host, "--advertise").map(|()| (host.to_owned(), "as --advertise says".to_owned()));
    }
    let any = match place.host.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => ip,
        _ => {
            return given(&place.host, "--host").map(|()| (place.host.clone(), "as --host says".to_owned()));
        }
    };
    if let Some(target) = &place.towards {
        return match towards(target, any) {
            Ok(ip) => Ok((ip.to_string(), format!("from it this machine reaches {target}"))),
            Err(error) => {
                let hint = "check the name and the routes (ip route get ADDRESS), or give --advertise";
                Err(Box::new(Check::fail("advertised", format!("no way to {target}: {error}"), hint)))
            }
        };
    }
    let fits = |candidate: &&Candidate| candidate.ip.is_ipv4() == any.is_ipv4() && candidate.unfit().is_none();
    if let Some(first) = candidates.iter().find(fits) {
        let others = candidates.iter().filter(fits).count() - 1;
        let rest = match others {
            0 => "the only one that is up and not loopback".to_owned(),
            n => format!("the first that is up and not loopback, of {}; --master HOST:PORT chooses by route", n + 1),
        };
        return Ok((first.ip.to_string(), format!("on {}, {rest}", first.interface)));
    }
    let loopback = if any.is_ipv4() { Ipv4Addr::LOCALHOST.to_string() } else { Ipv6Addr::LOCALHOST.to_string() };
    match candidates.iter().find(|c| c.ip.is_loopback() && c.ip.is_ipv4() == any.is_ipv4()) {
        Some(_) => {
            Ok((loopback, "there is only loopback: peers on this machine, and no others, can reach it".to_owned()))
        }
        None => {
            let hint = "bring an interface up: ip link set DEV up";
            Err(Box::new(Check::fail("advertised", "this machine has no address", hint)))
        }
    }
}

/// Refuses what peers cannot connect to.
fn given(host: &str, flag: &str) -> Result<(), Box<Check>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => Err(Box::new(Check::fail(
            "advertised",
            format!("{flag} {host}: every machine takes this address for itself, so peers would dial themselves"),
            "listen on it with --host, and tell peers a real address with --advertise",
        ))),
        Ok(IpAddr::V6(ip)) if ip.is_unicast_link_local() => Err(Box::new(Check::fail(
            "advertised",
            format!("{flag} {host}: a link-local address means nothing on another host"),
            "give a global address",
        ))),
        _ => Ok(()),
    }
}

/// A datagram socket that is connected, and sends nothing, knows the address it would send from.
fn towards(target: &str, any: IpAddr) -> io::Result<IpAddr> {
    let socket = UdpSocket::bind((any, 0))?;
    let address = target.to_socket_addrs()?.find(|to| to.is_ipv4() == any.is_ipv4());
    socket.connect(address.ok_or_else(|| io::Error::other("it has no address of this kind"))?)?;
    Ok(socket.local_addr()?.ip())
}

/// Listens where a node would and connects to what peers would be told.
fn dial_back(place: &Place, host: &str) -> Check {
    let listener = match TcpListener::bind((place.host.as_str(), place.port)) {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let hint = format!("find who has it: ss -ltnp 'sport = :{}', or give another --port", place.port);
            return Check::fail("dial-back", format!("port {} of {} is in use", place.port, place.host), hint);
        }
        Err(error) => {
            let hint = "give an address of this machine with --host";
            return Check::fail("dial-back", format!("cannot listen on {}: {error}", place.host), hint);
        }
    };
    match round_trip(&listener, host) {
        Ok(address) => {
            Check::ok("dial-back", format!("{address} leads back to this machine")).with("address", address.to_string())
        }
        Err(error) => Check::fail(
            "dial-back",
            format!("{host} does not lead back to a listener on {}: {error}", place.host),
            "peers would not get through either: check --advertise, firewall rules and container networks",
        ),
    }
}

/// Sends a token through the advertised address to our own listener.
fn round_trip(listener: &TcpListener, host: &str) -> io::Result<SocketAddr> {
    let port = listener.local_addr()?.port();
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = (bare, port).to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut out = TcpStream::connect_timeout(&address, DIAL_BACK)?;
    out.set_write_timeout(Some(DIAL_BACK))?;
    let token = format!("yuebing-doctor {} {:?}", std::process::id(), out.local_addr()?);
    out.write_all(token.as_bytes())?;
    // Whoever else connects meanwhile is sent away; our connection is in the queue, unless the address leads elsewhere.
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((mut stream, from)) if from == out.local_addr()? => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(DIAL_BACK))?;
                let mut got = vec![0; token.len()];
                stream.read_exact(&mut got)?;
                let same = got == token.as_bytes();
                return if same { Ok(address) } else { Err(io::Error::other("other bytes came back")) };
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::other("somebody else answers at this address"));
            }
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    fn place() -> Place {
        Place { host: "0.0.0.0".to_owned(), advertise: None, port: 0, towards: None }
    }

    fn candidate(interface: &str, ip: &str) -> Candidate {
        Candidate { interface: interface.to_owned(), ip: ip.parse().unwrap(), up: true }
    }

    fn nowhere(_: &str, _: IpAddr) -> io::Result<IpAddr> {
        Err(io::ErrorKind::HostUnreachable.into())
    }

    #[test]
    fn the_choice_skips_what_peers_cannot_use_and_says_why() {
        let down = Candidate { up: false, ..candidate("eth9", "10.9.0.1") };
        let list = [
            candidate("lo", "127.0.0.1"),
            candidate("docker0", "172.17.0.1"),
            candidate("eth0", "169.254.1.1"),
            down,
            candidate("eth0", "fe80::1"),
            candidate("eth1", "10.0.0.5"),
            candidate("eth2", "2001:db8::5"),
            candidate("eth3", "10.1.0.5"),
        ];
        let (host, why) = choose(&place(), &list, &nowhere).unwrap();
        assert!(host == "10.0.0.5" && why.contains("first") && why.contains("of 2"), "{host}: {why}");
        let six = Place { host: "::".to_owned(), ..place() };
        assert_eq!(choose(&six, &list, &nowhere).unwrap().0, "2001:db8::5");
        let routed = Place { towards: Some("m:1".to_owned()), ..place() };
        let route = |_: &str, _: IpAddr| Ok("10.1.0.5".parse().unwrap());
        assert_eq!(choose(&routed, &list, &route).unwrap().0, "10.1.0.5");
        assert_eq!(choose(&routed, &list, &nowhere).unwrap_err().level, Level::Fail);
        assert_eq!(choose(&place(), &list[..2], &nowhere).unwrap().0, "127.0.0.1");
        assert_eq!(choose(&place(), &[], &nowhere).unwrap_err().level, Level::Fail);
        let named = Place { advertise: Some("node7".to_owned()), ..place() };
        assert_eq!(choose(&named, &[], &nowhere).unwrap().0, "node7");
        for bad in ["0.0.0.0", "[::]", "fe80::1"] {
            let wrong = Place { advertise: Some(bad.to_owned()), ..place() };
            assert_eq!(choose(&wrong, &list, &nowhere).unwrap_err().level, Level::Fail, "{bad}");
        }
    }

    #[test]
    fn a_busy_port_and_an_address_of_others_fail() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let busy = Place { host: "127.0.0.1".to_owned(), port: taken.local_addr().unwrap().port(), ..place() };
        let check = dial_back(&busy, "127.0.0.1");
        assert!(check.level == Level::Fail && check.text.contains("in use"), "{check:?}");
        let narrow = Place { host: "127.0.0.1".to_owned(), ..place() };
        assert_eq!(dial_back(&narrow, "127.0.0.1").level, Level::Ok);
        assert_eq!(dial_back(&narrow, "127.0.0.2").level, Level::Fail, "nobody listens there");
        assert_eq!(dial_back(&Place { host: "203.0.113.1".to_owned(), ..place() }, "203.0.113.1").level, Level::Fail);
    }
}
