//! etcd version 3 through its JSON gateway, so that no gRPC stack is needed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use parking_lot::Mutex;
use serde_json::{Value, json};
use ureq::Agent;

use crate::MetadataStore;
use crate::error::{StoreError, StoreErrorKind};
use crate::http;
use crate::lease::{Lease, Renewal};
use crate::settings::StoreSettings;

/// Client of an etcd cluster. When an endpoint does not answer, the next one is asked, and kept.
#[derive(Debug)]
pub struct EtcdStore {
    agent: Agent,
    endpoints: Vec<String>,
    address: String,
    current: AtomicUsize,
    max_answer: u64,
    /// The cluster's number for each of our leases.
    leases: Mutex<BTreeMap<String, String>>,
}

/// What etcd says about a lease that has ended.
const NO_LEASE: &str = "lease not found";

impl EtcdStore {
    /// A client of the cluster behind these base URLs. Nothing is connected yet.
    ///
    /// # Errors
    /// [`StoreErrorKind::BadAddress`].
    pub fn new(endpoints: &[String], settings: &StoreSettings) -> Result<Self, StoreError> {
        let plain = |endpoint: &String| endpoint.trim_start_matches("http://").to_owned();
        let address = format!("etcd://{}", endpoints.iter().map(plain).collect::<Vec<_>>().join(";"));
        if endpoints.is_empty() {
            return Err(StoreError::new(StoreErrorKind::BadAddress, address, "no endpoint"));
        }
        for endpoint in endpoints {
            http::check_scheme(endpoint)?;
        }
        Ok(EtcdStore {
            agent: http::agent(settings),
            endpoints: endpoints.to_vec(),
            address,
            current: AtomicUsize::new(0),
            // Base64 takes four bytes for three.
            max_answer: settings.max_value / 3 * 4 + (64 << 10),
            leases: Mutex::default(),
        })
    }

    fn error(&self, kind: StoreErrorKind, detail: impl std::fmt::Display) -> StoreError {
        StoreError::new(kind, &self.address, detail)
    }

    /// Asks the endpoint that answered last, then the others.
    fn call(&self, path: &str, request: &Value) -> Result<Value, StoreError> {
        let first = self.current.load(Ordering::Relaxed);
        let mut last = self.error(StoreErrorKind::Unreachable, "no endpoint");
        for step in 0..self.endpoints.len() {
            let index = (first + step) % self.endpoints.len();
            let Some(endpoint) = self.endpoints.get(index) else { continue };
            match self.ask(endpoint, path, request) {
                Ok(answer) => {
                    self.current.store(index, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(error) if error.kind() == StoreErrorKind::Unreachable => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    fn ask(&self, endpoint: &str, path: &str, request: &Value) -> Result<Value, StoreError> {
        let lost = |error| self.error(StoreErrorKind::Unreachable, format!("{endpoint}: {error}"));
        let url = format!("{endpoint}/v3/{path}");
        let sent = self.agent.post(url).content_type("application/json").send(request.to_string().as_bytes());
        let mut response = sent.map_err(lost)?;
        let status = response.status().as_u16();
        let body = response.body_mut().with_config().limit(self.max_answer).read_to_vec().map_err(lost)?;
        let answer = serde_json::from_slice::<Value>(&body).ok();
        let told = answer.as_ref().and_then(|answer| answer.get("message").or_else(|| answer.get("error"))?.as_str());
        match (status, answer.as_ref()) {
            (200, Some(Value::Object(_))) => Ok(answer.unwrap_or_default()),
            (401 | 403, _) => Err(self.error(StoreErrorKind::Unauthorized, told.unwrap_or("no reason given"))),
            // A member without a leader, or one that is going down: another may do better.
            (503 | 504, _) => Err(self.error(StoreErrorKind::Unreachable, told.unwrap_or("not available"))),
            (400..=599, Some(_)) => {
                let text = told.unwrap_or("no reason given");
                let kind = match text {
                    text if text.contains("too large") || text.contains("no space") => StoreErrorKind::Full,
                    text if text.contains("user name is empty") => StoreErrorKind::Unauthorized,
                    _ => StoreErrorKind::Refused,
                };
                Err(self.error(kind, format!("status {status}: {text}")))
            }
            _ => Err(self.error(StoreErrorKind::Protocol, format!("{endpoint}: status {status}, not an etcd gateway"))),
        }
    }

    /// The cluster's number for a lease, which is granted at its first use.
    fn lease_id(&self, lease: &Lease) -> Result<String, StoreError> {
        if let Some(id) = self.leases.lock().get(lease.instance()) {
            return Ok(id.clone());
        }
        let granted = self.call("lease/grant", &json!({"TTL": lease.ttl().as_secs()}))?;
        let id = granted.get("ID").and_then(Value::as_str).map(str::to_owned);
        let id = id.ok_or_else(|| self.error(StoreErrorKind::Protocol, "a lease without a number"))?;
        self.leases.lock().insert(lease.instance().to_owned(), id.clone());
        Ok(id)
    }

    fn put_once(&self, key: &str, value: &[u8], lease: Option<&Lease>) -> Result<(), StoreError> {
        let line = [value, b"\n"].concat();
        let mut request = json!({"key": encode(key.as_bytes()), "value": encode(&line)});
        if let Some(lease) = lease {
            request["lease"] = Value::from(self.lease_id(lease)?);
        }
        self.call("kv/put", &request).map(drop)
    }
}

fn encode(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

/// Stores keep a newline behind a value; ours and the peer's may lack it.
pub(crate) fn without_newline(mut value: Vec<u8>) -> Vec<u8> {
    if value.last() == Some(&b'\n') {
        value.pop();
    }
    value
}

impl MetadataStore for EtcdStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let answer = self.call("kv/range", &json!({"key": encode(key.as_bytes())}))?;
        let Some(found) = answer.get("kvs").and_then(|kvs| kvs.get(0)) else { return Ok(None) };
        let value = BASE64_STANDARD.decode(found.get("value").and_then(Value::as_str).unwrap_or_default());
        let value = value.map_err(|error| self.error(StoreErrorKind::Protocol, error))?;
        Ok(Some(without_newline(value)))
    }

    fn put(&self, key: &str, value: &[u8], lease: Option<&Lease>) -> Result<(), StoreError> {
        let first = self.put_once(key, value, lease);
        match (first, lease) {
            (Err(error), Some(lease)) if error.to_string().contains(NO_LEASE) => {
                self.leases.lock().remove(lease.instance());
                self.put_once(key, value, Some(lease))
            }
            (done, _) => done,
        }
    }

    fn delete(&self, key: &str) -> Result<bool, StoreError> {
        let answer = self.call("kv/deleterange", &json!({"key": encode(key.as_bytes())}))?;
        Ok(answer.get("deleted").and_then(Value::as_str).is_some_and(|count| count != "0"))
    }

    fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        let Some(id) = self.leases.lock().get(lease.instance()).cloned() else { return Ok(Renewal::Lost) };
        let answer = self.call("lease/keepalive", &json!({"ID": id}))?;
        let left = answer.get("result").and_then(|result| result.get("TTL")).and_then(Value::as_str);
        if left.is_some_and(|left| left != "0") {
            return Ok(Renewal::Kept);
        }
        self.leases.lock().remove(lease.instance());
        Ok(Renewal::Lost)
    }

    fn end(&self, lease: &Lease) -> Result<(), StoreError> {
        let Some(id) = self.leases.lock().remove(lease.instance()) else { return Ok(()) };
        self.call("lease/revoke", &json!({"ID": id})).map(drop)
    }

    fn address(&self) -> &str {
        &self.address
    }
}
