//! The HTTP metadata server of Transfer Engines: one table in memory, the peer's texts, and leases for engines of ours.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use axum::routing::{any, get};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use yb_env::Clock;
use yb_metadata::{Caller, INSTANCE_HEADER, Keys, LEASE_HEADER, Limits, Reply, Table};
use yb_secure::Security;

use crate::door::Peer;
use crate::places::DoorCounts;
use crate::query::Query;
use crate::server::{AdminError, Site, SiteOptions};
use crate::token::refusal_by_token;

/// Every answer says this, though it is text: clients of the peer's server are used to it.
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/json; charset=utf-8");
/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);
/// What a lease is when its length makes no sense.
const LEASE: Duration = Duration::from_secs(30);

/// How the server is set up.
#[derive(Clone)]
pub struct MetadataOptions {
    /// Host and port to listen on; port 0 takes a free one.
    pub listen: String,
    /// Bounds of the table, and whose records may be replaced.
    pub limits: Limits,
    /// Whoever does not name it as a bearer token is refused.
    pub token: Option<String>,
    /// Bodies that are received at once; further ones wait.
    pub max_bodies: usize,
    /// What a request without a key is told: the peer's two servers have different words.
    pub missing_key: Reply,
    /// From where requests are taken, as the plain wire is; `None`: from everywhere.
    pub security: Option<Arc<Security>>,
    /// Where connections are counted.
    pub door: DoorCounts,
    /// The clock of the leases.
    pub clock: Clock,
}

/// Secrets are not shown.
impl fmt::Debug for MetadataOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let token = self.token.is_some();
        f.debug_struct("MetadataOptions").field("listen", &self.listen).field("token", &token).finish_non_exhaustive()
    }
}

impl MetadataOptions {
    /// As the peer's stand-alone server, with its environment variables. A number that makes no sense is reported and
    /// left at the default.
    pub fn from_env(listen: impl Into<String>, lookup: impl Fn(&str) -> Option<String>) -> Self {
        let number = |name: &str| {
            let text = lookup(name)?;
            let number = text.parse::<u64>().ok().filter(|number| *number > 0);
            if number.is_none() {
                tracing::warn!(name, text, "setting ignored: not a number above 0");
            }
            number
        };
        let mut limits = Limits::default();
        if let Some(keys) = number("MC_METADATA_MAX_KEYS") {
            limits.keys = usize::try_from(keys).unwrap_or(usize::MAX);
        }
        limits.body = number("MC_METADATA_MAX_BODY_BYTES").unwrap_or(limits.body);
        limits.total = number("MC_METADATA_MAX_TOTAL_BYTES").unwrap_or(limits.total);
        let bodies = number("MC_METADATA_MAX_CONCURRENT_PUTS").unwrap_or(32);
        MetadataOptions {
            listen: listen.into(),
            limits,
            token: lookup("MC_METADATA_HTTP_TOKEN").filter(|token| !token.is_empty()),
            max_bodies: usize::try_from(bodies).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS),
            missing_key: Table::no_key(),
            security: None,
            door: DoorCounts::default(),
            clock: Clock::real(),
        }
    }
}

/// A running server; dropping it stops the thread and forgets the records.
#[derive(Debug)]
pub struct MetadataServer {
    site: Site,
    desk: Arc<Desk>,
}

#[derive(Debug)]
struct Desk {
    table: Mutex<Table>,
    options: MetadataOptions,
    bodies: Semaphore,
}

impl MetadataServer {
    /// Binds the address and starts the thread.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn start(options: MetadataOptions) -> Result<Self, AdminError> {
        let desk = Arc::new(Desk {
            table: Mutex::new(Table::new(options.limits.clone())),
            bodies: Semaphore::new(options.max_bodies.max(1)),
            options,
        });
        let pages = Router::new()
            .route("/metadata", any(answer))
            .route("/health", get(async || "OK"))
            .fallback(async || (StatusCode::NOT_FOUND, "404: Not Found"))
            .with_state(Arc::clone(&desk));
        let site = Site::start(SiteOptions {
            thread: "yb-metadata",
            what: "metadata",
            listen: &desk.options.listen,
            security: desk.options.security.clone(),
            counts: desk.options.door.clone(),
            pages,
        })?;
        Ok(MetadataServer { site, desk })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.site.address
    }

    /// How many records there are.
    pub fn records(&self) -> usize {
        self.desk.table().len()
    }

    /// A handle on the records, for others of this process.
    pub fn ledger(&self) -> MetadataLedger {
        MetadataLedger(Arc::clone(&self.desk))
    }
}

/// The records of a server, from within its process.
#[derive(Clone, Debug)]
pub struct MetadataLedger(Arc<Desk>);

impl MetadataLedger {
    /// Removes what an engine left under its name, whoever wrote it. True when there was something.
    pub fn forget(&self, keys: &Keys, name: &str) -> bool {
        let now = self.0.options.clock.now();
        let mut table = self.0.table();
        let gone = [keys.segment(name), keys.rpc_meta(name)]
            .map(|key| table.delete(&key, Caller::default(), now).status == 200);
        gone.contains(&true)
    }
}

impl Desk {
    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        // No operation of the table leaves it half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admits(&self, headers: &HeaderMap, peer: Option<IpAddr>) -> bool {
        let refusal = self.options.token.as_ref().and_then(|token| refusal_by_token(headers, token));
        if let Some(refusal) = refusal {
            self.options.door.calls().refused(refusal, peer, "/metadata");
        }
        refusal.is_none()
    }

    async fn body(&self, body: Body, headers: &HeaderMap) -> Result<Vec<u8>, Reply> {
        const TOO_LARGE: Reply = Reply::text(413, "request body too large");
        let limit = usize::try_from(self.options.limits.body).unwrap_or(usize::MAX);
        let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > self.options.limits.body) {
            return Err(TOO_LARGE);
        }
        let receive = async {
            let _place = self.bodies.acquire().await;
            to_bytes(body, limit).await
        };
        match timeout(BODY_TIME, receive).await {
            Ok(Ok(bytes)) => Ok(bytes.to_vec()),
            Ok(Err(_)) => Err(TOO_LARGE),
            Err(_) => Err(Reply::text(408, "request body too slow")),
        }
    }
}

async fn answer(State(desk): State<Arc<Desk>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let peer = head.extensions.get::<ConnectInfo<Peer>>().map(|ConnectInfo(Peer(address))| *address);
    if !desk.admits(&head.headers, peer) {
        return respond(Reply::text(401, "unauthorized"), None);
    }
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let instance = text(INSTANCE_HEADER).filter(|instance| !instance.is_empty() && instance.len() <= 64);
    let ttl = text(LEASE_HEADER).and_then(|seconds| seconds.parse().ok()).map_or(LEASE, Duration::from_secs);
    let caller = Caller { instance, ttl };
    let query = Query::parse(head.uri.query().unwrap_or_default());
    let now = || desk.options.clock.now();
    let reply = match query.text("key").map(str::trim).filter(|key| !key.is_empty()) {
        None if head.method == Method::POST && instance.is_some() => desk.table().renew(caller, now()),
        None => desk.options.missing_key.clone(),
        Some(key) => match head.method {
            Method::GET => desk.table().get(key, now()),
            Method::PUT => match desk.body(body, &head.headers).await {
                Ok(value) => desk.table().put(key, &value, caller, now()),
                Err(refused) => refused,
            },
            Method::DELETE => desk.table().delete(key, caller, now()),
            _ => Reply::text(405, "Method not allowed"),
        },
    };
    respond(reply, instance.map(|_| ttl))
}

fn respond(reply: Reply, lease: Option<Duration>) -> Response {
    let mut response = Response::new(Body::from(reply.body.into_owned()));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
    if let Some(ttl) = lease {
        response.headers_mut().insert(LEASE_HEADER, HeaderValue::from(ttl.as_secs()));
    }
    response
}
