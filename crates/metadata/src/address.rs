//! The peer's connection strings (pure).

use crate::error::{StoreError, StoreErrorKind};

/// What a connection string names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    /// `P2PHANDSHAKE`: no store.
    Handshake,
    /// `http://..` or `https://..`: the full endpoint, usually ending in `/metadata`.
    Http(String),
    /// `etcd://h:p;h:p` or a text without a scheme: base URLs, in the order of the text.
    Etcd(Vec<String>),
    /// `redis://h:p`.
    Redis(String, u16),
}

const REDIS_PORT: u16 = 6379;
const ETCD_PORT: u16 = 2379;

impl StoreAddress {
    /// Reads a connection string.
    ///
    /// # Errors
    /// [`StoreErrorKind::BadAddress`].
    pub fn parse(text: &str) -> Result<Self, StoreError> {
        let wrong = |why: &str| StoreError::new(StoreErrorKind::BadAddress, text, why);
        if text == "P2PHANDSHAKE" {
            return Ok(StoreAddress::Handshake);
        }
        if text.is_empty() || text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(wrong("it is empty, or has blanks in it"));
        }
        match text.split_once("://") {
            Some(("http" | "https", rest)) if !rest.is_empty() && !rest.starts_with('/') => {
                Ok(StoreAddress::Http(text.to_owned()))
            }
            Some(("redis", rest)) => {
                let (host, port) =
                    host_port(rest.trim_end_matches('/'), REDIS_PORT).ok_or_else(|| wrong("not host:port"))?;
                Ok(StoreAddress::Redis(host, port))
            }
            Some(("etcd", rest)) => etcd(rest).ok_or_else(|| wrong("not host:port, or several separated by ';'")),
            None => etcd(text).ok_or_else(|| wrong("not host:port, or several separated by ';'")),
            Some(_) => Err(wrong("P2PHANDSHAKE, http://, https://, etcd:// and redis:// are known")),
        }
    }
}

fn etcd(list: &str) -> Option<StoreAddress> {
    let endpoints = list.split([';', ',']).filter(|endpoint| !endpoint.is_empty()).map(|endpoint| {
        if endpoint.starts_with("http://") || endpoint.starts_with("https://") {
            return Some(endpoint.trim_end_matches('/').to_owned());
        }
        let (host, port) = host_port(endpoint.trim_end_matches('/'), ETCD_PORT)?;
        Some(if host.contains(':') { format!("http://[{host}]:{port}") } else { format!("http://{host}:{port}") })
    });
    let endpoints: Vec<String> = endpoints.collect::<Option<_>>()?;
    (!endpoints.is_empty()).then_some(StoreAddress::Etcd(endpoints))
}

/// Host without brackets, and port.
fn host_port(text: &str, default: u16) -> Option<(String, u16)> {
    let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '@', '?']);
    if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        let port = if port.is_empty() { default } else { port.strip_prefix(':')?.parse().ok()? };
        return is_host(host).then(|| (host.to_owned(), port));
    }
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') => is_host(host).then_some((host.to_owned(), port.parse().ok()?)),
        Some(_) => is_host(text).then(|| (text.to_owned(), default)),
        None => is_host(text).then(|| (text.to_owned(), default)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peers_forms_are_read() {
        let read = |text: &str| StoreAddress::parse(text).unwrap();
        let etcd = |endpoints: &[&str]| StoreAddress::Etcd(endpoints.iter().map(|e| (*e).to_owned()).collect());
        assert_eq!(read("P2PHANDSHAKE"), StoreAddress::Handshake);
        assert_eq!(read("http://h:1/metadata"), StoreAddress::Http("http://h:1/metadata".to_owned()));
        assert_eq!(read("10.0.0.1:2379"), etcd(&["http://10.0.0.1:2379"]));
        assert_eq!(read("etcd://a:1;[::1]:2;c"), etcd(&["http://a:1", "http://[::1]:2", "http://c:2379"]));
        assert_eq!(read("etcd://https://a:1"), etcd(&["https://a:1"]));
        assert_eq!(read("redis://h"), StoreAddress::Redis("h".to_owned(), 6379));
        assert_eq!(read("redis://[::1]:7"), StoreAddress::Redis("::1".to_owned(), 7));
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "",
            " ",
            "http://",
            "http:///x",
            "ftp://h",
            "redis://",
            "redis://u@h:1",
            "etcd://",
            "h:99999",
            "etcd://a:x",
            "a b:1",
        ] {
            assert!(StoreAddress::parse(bad).is_err(), "{bad:?}");
        }
    }
}
