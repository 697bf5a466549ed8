//! Ports for what is to listen later, or never.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Rng;

/// Above those that the peer's engines try by themselves.
const LOWEST: u16 = 20_000;
/// Where the ports begin that Linux gives away by itself, unless it is told otherwise.
const USUAL_LOCAL: u16 = 32_768;
/// With fewer than so many to choose from, the system chooses.
const ENOUGH: usize = 1000;

/// A port at which nobody listens now, for a process that is told its number and is to listen there soon; a process gets
/// each one once.
///
/// It is none of those that the system gives to sockets that ask for any: between the question and the answer, every
/// socket on the machine that is opened might take such a one.
///
/// # Errors
/// The system's, when it has no port left.
///
/// ```
/// let port = yb_env::free_port().unwrap();
/// std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
/// assert_ne!(yb_env::free_port().unwrap(), port);
/// ```
pub fn free_port() -> io::Result<u16> {
    static NEXT: OnceLock<AtomicU64> = OnceLock::new();
    let range = never_given_away();
    if range.len() >= ENOUGH {
        let next = NEXT.get_or_init(|| AtomicU64::new(u64::from(Rng::from_entropy().next_u64() as u32)));
        for _ in 0..range.len() {
            let turn = next.fetch_add(1, Ordering::Relaxed) % range.len() as u64;
            let port = range.start + u16::try_from(turn).unwrap_or(0);
            if TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok() {
                return Ok(port);
            }
        }
    }
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn never_given_away() -> Range<u16> {
    let told = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok();
    let first = told.and_then(|told| told.split_whitespace().next()?.parse().ok());
    LOWEST..first.unwrap_or(USUAL_LOCAL)
}
