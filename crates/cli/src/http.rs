//! One request to the admin port: the least of HTTP that two kinds of master need.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use yb_env::Clock;

use crate::size::bytes;

/// What an answer may cost. `/get_all_keys` of millions of keys fits.
const BOUNDS: Bounds = Bounds { bytes: 1 << 30, time: Duration::from_secs(300) };
/// How long a connection, and each piece of an answer, is waited for.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Read at a time.
const PIECE: usize = 64 << 10;

/// Whoever answers more, or drop by drop for longer, is given up.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    bytes: u64,
    time: Duration,
}

/// A text as a value in a query.
pub fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// The bytes behind `%XX`; what is no such escape stays.
pub fn decode(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..2).filter(|_| *first == b'%').and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()) {
            Some(byte) => (out.push(byte), rest = &tail[2..]),
            None => (out.push(*first), rest = tail),
        };
    }
    out
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// A request.
#[derive(Clone, Copy)]
pub struct Call<'c> {
    /// The method.
    pub method: &'c str,
    /// Path and query.
    pub path: &'c str,
    /// JSON, or nothing.
    pub body: &'c str,
    /// Shown as `Authorization: Bearer`.
    pub token: Option<&'c str>,
}

/// Asks `address` (host:port) for `path`.
///
/// # Errors
/// A text naming the address and what the connection said.
pub fn get(address: &str, path: &str) -> Result<Answer, String> {
    request(address, &Call { method: "GET", path, body: "", token: None })
}

/// Sends `address` (host:port) a request of any method, with a body of JSON or none, and a token: that of the environment, for a
/// call that changes something.
///
/// # Errors
/// A text naming the address and what the connection said.
pub fn request(address: &str, call: &Call<'_>) -> Result<Answer, String> {
    let path = call.path;
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("http://{address}{path}: {what}: {error}");
    let targets = address.to_socket_addrs().map_err(|e| failed("cannot resolve", &e))?;
    let mut last = failed("cannot resolve", &"no address");
    for target in targets {
        match TcpStream::connect_timeout(&target, TIMEOUT) {
            Ok(stream) => {
                let answer = exchange(stream, &head(address, call), call.body);
                return answer.map_err(|error| match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                        failed("no answer", &format_args!("nothing within {} s", TIMEOUT.as_secs()))
                    }
                    _ => failed("no answer", &error),
                });
            }
            Err(error) => last = failed("cannot connect", &error),
        }
    }
    Err(last)
}

fn head(host: &str, call: &Call<'_>) -> String {
    let Call { method, path, body, token } = *call;
    let about = match body {
        "" if method == "GET" => String::new(),
        _ => format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()),
    };
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAccept: */*\r\n{token}{about}\r\n")
}

fn exchange(mut stream: TcpStream, head: &str, body: &str) -> std::io::Result<Answer> {
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let clock = Clock::real();
    let until = clock.now() + BOUNDS.time;
    let raw = read_bounded(stream, BOUNDS.bytes, || clock.now() >= until)?;
    parse(&raw).ok_or_else(|| std::io::Error::other("not an HTTP answer"))
}

/// Everything up to the end of the connection. An answer that is cut off would be a wrong one, so none is.
fn read_bounded(mut from: impl Read, most: u64, mut is_late: impl FnMut() -> bool) -> std::io::Result<Vec<u8>> {
    let (mut raw, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        let read = match from.read(&mut piece) {
            Ok(0) => return Ok(raw),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        raw.extend_from_slice(piece.get(..read).unwrap_or_default());
        if raw.len() as u64 > most {
            return Err(std::io::Error::other(format!("it is longer than {}", bytes(most))));
        }
        if is_late() {
            return Err(std::io::Error::other(format!("it has not ended after {} s", BOUNDS.time.as_secs())));
        }
    }
}

/// Status and body; chunked bodies are joined, others end with the connection.
pub(crate) fn parse(raw: &[u8]) -> Option<Answer> {
    let head_end = raw.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(raw.get(..head_end)?).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let chunked = lines.filter_map(|l| l.split_once(':')).any(|(name, value)| {
        name.eq_ignore_ascii_case("transfer-encoding") && value.trim().eq_ignore_ascii_case("chunked")
    });
    let body = raw.get(head_end + 4..)?;
    let body = if chunked { join_chunks(body)? } else { body.to_vec() };
    Some(Answer { status, body })
}

fn join_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&rest[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        rest = rest.get(end + 2..)?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size.checked_add(2)?..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_body() {
        let plain = parse(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        assert_eq!((plain.status, plain.body.as_slice()), (200, &b"ok"[..]));
        let raw = b"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n";
        let chunked = parse(raw).unwrap();
        assert_eq!((chunked.status, chunked.body.as_slice()), (404, &b"abcde"[..]));
    }

    #[test]
    fn an_answer_without_an_end_is_given_up() {
        let error = read_bounded(std::io::repeat(b'x'), 1 << 20, || false).unwrap_err();
        assert_eq!(error.to_string(), "it is longer than 1 MiB");
        let mut pieces = 0;
        let late = || {
            pieces += 1;
            pieces == 3
        };
        let error = read_bounded(std::io::repeat(b'x').take(1 << 20), 1 << 30, late).unwrap_err();
        assert_eq!(error.to_string(), "it has not ended after 300 s");
        assert_eq!(read_bounded(&b"all of it"[..], 9, || false).unwrap(), b"all of it");
    }

    #[test]
    fn queries_carry_any_bytes() {
        assert_eq!(encode("a b&%/ü"), "a%20b%26%25%2F%C3%BC");
        assert_eq!(decode(&encode("a b&%/ü")), "a b&%/ü".as_bytes());
        assert_eq!(decode("%ff%zz%4"), b"\xff%zz%4");
    }

    #[test]
    fn silence_is_told_as_such() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let error = get(&silent.local_addr().unwrap().to_string(), "/metrics").unwrap_err();
        assert!(error.ends_with("/metrics: no answer: nothing within 5 s"), "{error}");
    }

    #[test]
    fn a_closed_port_is_named() {
        let error = get("127.0.0.1:1", "/health").unwrap_err();
        assert!(error.contains("http://127.0.0.1:1/health: cannot connect"), "{error}");
    }
}
