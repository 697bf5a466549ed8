//! The peer's HTTP store: GET, PUT and DELETE on one path, the key in the query.

use std::sync::atomic::{AtomicBool, Ordering};

use ureq::http::header::{AUTHORIZATION, CONTENT_TYPE};
use ureq::http::{Request, Response};
use ureq::{Agent, Body};

use crate::MetadataStore;
use crate::error::{StoreError, StoreErrorKind};
use crate::lease::{Lease, Renewal};
use crate::settings::StoreSettings;

/// Names the life of the engine that asks; other servers ignore it.
pub const INSTANCE_HEADER: &str = "x-yuebing-instance";
/// Asks that records stay for so many seconds without a word; a server that keeps to it answers with the same header.
pub const LEASE_HEADER: &str = "x-yuebing-lease";

/// Client of an HTTP store. Connections are kept and shared by the threads that call.
#[derive(Debug)]
pub struct HttpStore {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    max_value: u64,
    /// The server has said that it keeps leases.
    leases: AtomicBool,
}

/// An agent that goes straight to the servers named, follows nobody, and gives up in time.
pub(crate) fn agent(settings: &StoreSettings) -> Agent {
    let config = Agent::config_builder()
        .timeout_connect(Some(settings.connect_timeout))
        .timeout_global(Some(settings.timeout))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .build();
    config.new_agent()
}

/// Refuses addresses that need what was not built.
pub(crate) fn check_scheme(url: &str) -> Result<(), StoreError> {
    if url.starts_with("https://") && !cfg!(feature = "https") {
        return Err(StoreError::new(StoreErrorKind::BadAddress, url, "built without the feature https"));
    }
    if url.parse::<ureq::http::Uri>().ok().and_then(|uri| uri.host().map(str::len)).is_none_or(|len| len == 0) {
        return Err(StoreError::new(StoreErrorKind::BadAddress, url, "not a URL"));
    }
    Ok(())
}

/// Percent-encodes everything but letters, digits and `-._~`, as the peer does.
fn encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

impl HttpStore {
    /// A client of the store at `endpoint`, a full URL. Nothing is connected yet.
    ///
    /// # Errors
    /// [`StoreErrorKind::BadAddress`].
    pub fn new(endpoint: &str, settings: &StoreSettings) -> Result<Self, StoreError> {
        check_scheme(endpoint)?;
        Ok(HttpStore {
            agent: agent(settings),
            endpoint: endpoint.to_owned(),
            token: settings.http_token.clone(),
            max_value: settings.max_value,
            leases: AtomicBool::new(false),
        })
    }

    fn request(
        &self,
        method: &str,
        key: Option<&str>,
        lease: Option<&Lease>,
        body: Option<&[u8]>,
    ) -> Result<Answer, StoreError> {
        let url = match key {
            Some(key) => {
                format!("{}{}key={}", self.endpoint, if self.endpoint.contains('?') { '&' } else { '?' }, encode(key))
            }
            None => self.endpoint.clone(),
        };
        let mut request = Request::builder().method(method).uri(url);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(token) = &self.token {
            request = request.header(AUTHORIZATION, format!("Bearer {token}"));
        }
        if let Some(lease) = lease {
            request = request.header(INSTANCE_HEADER, lease.instance()).header(LEASE_HEADER, lease.ttl().as_secs());
        }
        let bad = |error| self.error(StoreErrorKind::BadAddress, error);
        let response = match body {
            Some(bytes) => self.agent.run(request.body(bytes).map_err(bad)?),
            None => self.agent.run(request.body(()).map_err(bad)?),
        };
        self.answer(response.map_err(|error| self.error(StoreErrorKind::Unreachable, error))?)
    }

    fn answer(&self, mut response: Response<Body>) -> Result<Answer, StoreError> {
        let keeps_leases = response.headers().contains_key(LEASE_HEADER);
        if keeps_leases {
            self.leases.store(true, Ordering::Relaxed);
        }
        let body = response.body_mut().with_config().limit(self.max_value).read_to_vec();
        let body = body.map_err(|error| self.error(StoreErrorKind::Unreachable, error))?;
        Ok(Answer { status: response.status().as_u16(), body })
    }

    fn error(&self, kind: StoreErrorKind, detail: impl std::fmt::Display) -> StoreError {
        StoreError::new(kind, &self.endpoint, detail)
    }

    fn refusal(&self, answer: &Answer) -> StoreError {
        let text = String::from_utf8_lossy(answer.body.get(..answer.body.len().min(200)).unwrap_or_default());
        let kind = match answer.status {
            401 | 403 => StoreErrorKind::Unauthorized,
            400 if text.starts_with("Duplicate") => StoreErrorKind::Duplicate,
            413 | 507 => StoreErrorKind::Full,
            404 | 405 => StoreErrorKind::Protocol,
            _ => StoreErrorKind::Refused,
        };
        self.error(kind, format!("status {}: {text}", answer.status))
    }
}

struct Answer {
    status: u16,
    body: Vec<u8>,
}

impl MetadataStore for HttpStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let answer = self.request("GET", Some(key), None, None)?;
        match answer.status {
            200 => Ok(Some(answer.body)),
            404 => Ok(None),
            _ => Err(self.refusal(&answer)),
        }
    }

    fn put(&self, key: &str, value: &[u8], lease: Option<&Lease>) -> Result<(), StoreError> {
        let answer = self.request("PUT", Some(key), lease, Some(value))?;
        if answer.status == 200 { Ok(()) } else { Err(self.refusal(&answer)) }
    }

    fn delete(&self, key: &str) -> Result<bool, StoreError> {
        let answer = self.request("DELETE", Some(key), None, None)?;
        match answer.status {
            200 => Ok(true),
            404 => Ok(false),
            _ => Err(self.refusal(&answer)),
        }
    }

    fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        if !self.leases.load(Ordering::Relaxed) {
            return Ok(Renewal::Unknown);
        }
        let answer = self.request("POST", None, Some(lease), Some(b""))?;
        match answer.status {
            200 => Ok(Renewal::Kept),
            404 => Ok(Renewal::Lost),
            // Another server has taken the place.
            400 | 405 => {
                self.leases.store(false, Ordering::Relaxed);
                Ok(Renewal::Lost)
            }
            _ => Err(self.refusal(&answer)),
        }
    }

    fn withdraw(&self, key: &str, last: &[u8], lease: &Lease) -> Result<(), StoreError> {
        if !self.leases.load(Ordering::Relaxed) && self.get(key)?.as_deref() != Some(last) {
            return Ok(());
        }
        // A server that keeps leases looks itself whose record it is.
        let answer = self.request("DELETE", Some(key), Some(lease), None)?;
        if matches!(answer.status, 200 | 404) { Ok(()) } else { Err(self.refusal(&answer)) }
    }

    fn address(&self) -> &str {
        &self.endpoint
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_encoded_as_the_peer_encodes_them() {
        assert_eq!(encode("mooncake/rpc_meta/nodeA:44201"), "mooncake%2Frpc_meta%2FnodeA%3A44201");
        assert_eq!(encode("a b~é"), "a%20b~%C3%A9");
    }

    #[test]
    fn addresses_that_need_more_than_was_built_are_refused() {
        let settings = StoreSettings::default();
        assert!(HttpStore::new("http://[::1]:8080/metadata", &settings).is_ok());
        assert_eq!(HttpStore::new("https://h/metadata", &settings).is_ok(), cfg!(feature = "https"));
        assert!(HttpStore::new("http://:8080", &settings).is_err());
    }
}
