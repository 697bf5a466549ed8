//! Who may call what changes the pool: whoever shows the token, or without one whoever is on the loopback address; and
//! optionally only over an address of its own.

use std::sync::Arc;

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use serde_json::json;

use crate::answer::answer_with;
use crate::desk::Desk;
use crate::door::Peer;
use crate::places::DoorCounts;
use crate::refusals::Refusal;
use crate::token::refusal_by_token;

/// The rules for calls that remove, move or configure something.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct WriteRules {
    /// Such calls are answered here only; `None`: where all others are.
    pub listen: Option<String>,
    /// Such calls need `Authorization: Bearer TOKEN`; `None`: they are answered to the loopback address only.
    pub token: Option<String>,
}

impl std::fmt::Debug for WriteRules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let token = self.token.as_ref().map(|_| "…");
        f.debug_struct("WriteRules").field("listen", &self.listen).field("token", &token).finish()
    }
}

/// What a listener does with such calls, and where it counts those that it refuses.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    pub(crate) rule: Rule,
    pub(crate) counts: DoorCounts,
}

/// Who is let in.
#[derive(Clone, Debug)]
pub(crate) enum Rule {
    /// Answers them: with the token, or without one to the loopback address.
    Open(Option<Arc<str>>),
    /// Refuses them and names the address that takes them.
    Elsewhere(Arc<str>),
}

impl Gate {
    /// Puts the gate before a handler.
    pub(crate) fn before(&self, handler: MethodRouter<Desk>) -> MethodRouter<Desk> {
        let gate = self.clone();
        handler.layer(from_fn(move |request, next| check(gate.clone(), request, next)))
    }
}

async fn check(gate: Gate, request: Request, next: Next) -> Response {
    let Some(refusal) = gate.rule.refusal(&request) else { return next.run(request).await };
    let peer = request.extensions().get::<ConnectInfo<Peer>>().map(|ConnectInfo(Peer(address))| *address);
    gate.counts.calls().refused(refusal, peer, request.uri().path());
    gate.rule.answer(refusal)
}

impl Rule {
    fn refusal(&self, request: &Request) -> Option<Refusal> {
        match self {
            Rule::Open(Some(token)) => refusal_by_token(request.headers(), token),
            Rule::Open(None) => (!is_local(request)).then_some(Refusal::NotLocal),
            Rule::Elsewhere(_) => Some(Refusal::Elsewhere),
        }
    }

    fn answer(&self, refusal: Refusal) -> Response {
        let unauthorized = |why: &str| {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            (challenge, answer_with(StatusCode::UNAUTHORIZED, refused(why))).into_response()
        };
        let forbidden = |why: &str| answer_with(StatusCode::FORBIDDEN, refused(why));
        match (refusal, self) {
            (Refusal::NoToken, _) => unauthorized("this call needs a token: Authorization: Bearer …"),
            (Refusal::WrongToken, _) => unauthorized("the token of this call is another one than this server's"),
            (Refusal::Elsewhere, Rule::Elsewhere(address)) => {
                forbidden(&format!("calls that change something are answered at {address}"))
            }
            (Refusal::NotLocal | Refusal::Elsewhere, _) => forbidden(
                "calls that change something are answered to the loopback address only; from elsewhere they need a \
                 token (setting admin_token_file)",
            ),
        }
    }
}

/// From this host, and not from a page of another origin in a browser here. A page may have had its name pointed to this
/// host after it was loaded, so the name that a browser asks for has to be one that nobody can point anywhere.
fn is_local(request: &Request) -> bool {
    let peer = request.extensions().get::<ConnectInfo<Peer>>();
    let local = peer.is_some_and(|ConnectInfo(Peer(address))| address.is_loopback());
    let header = |name: &str| request.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let same_origin = match (header(header::ORIGIN.as_str()), header(header::HOST.as_str())) {
        (None, _) => !request.headers().contains_key(header::ORIGIN),
        (Some(origin), Some(host)) => {
            origin.split_once("://").is_some_and(|(_, from)| from == host) && names_this_host(host)
        }
        (Some(_), None) => false,
    };
    let own_page = header("sec-fetch-site").is_none_or(|site| ["same-origin", "none"].contains(&site));
    local && same_origin && own_page
}

/// Whether a `Host` header is a loopback address or `localhost`, with or without a port.
fn names_this_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = name.parse::<std::net::IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback());
    is_loopback || name.eq_ignore_ascii_case("localhost")
}

fn refused(message: &str) -> serde_json::Value {
    json!({"success": false, "error_code": yb_types::ErrorCode::UNAVAILABLE_IN_CURRENT_MODE.0, "error_message": message})
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use std::net::IpAddr;

    fn local(peer: &str, headers: &[(&str, &str)]) -> bool {
        let mut request = Request::builder().uri("/api/v1/remove_all").method("POST");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        let peer = peer.parse::<IpAddr>().unwrap().to_canonical();
        request.extensions_mut().insert(ConnectInfo(Peer(peer)));
        is_local(&request)
    }

    #[test]
    fn without_a_token_only_this_host_changes_something_and_no_page_of_somebody_else() {
        assert!(local("127.0.0.1", &[]) && local("::1", &[]) && local("127.9.9.9", &[]));
        assert!(local("::ffff:127.0.0.1", &[]));
        assert!(!local("10.0.0.1", &[]) && !local("::ffff:10.0.0.1", &[]) && !local("fe80::1", &[]));
        let (host, own) = (("Host", "localhost:9003"), ("Origin", "http://localhost:9003"));
        assert!(local("127.0.0.1", &[host, own]) && !local("10.0.0.1", &[host, own]));
        for other in ["http://evil.example", "http://localhost:80", "null", ""] {
            assert!(!local("127.0.0.1", &[host, ("Origin", other)]), "{other}");
        }
        assert!(!local("127.0.0.1", &[own]));
        for (name, fine) in
            [("127.0.0.1:9003", true), ("[::1]:9003", true), ("evil.example:9003", false), ("10.0.0.1", false)]
        {
            let origin = format!("http://{name}");
            assert_eq!(local("127.0.0.1", &[("Host", name), ("Origin", &origin)]), fine, "{name}");
        }
        for (site, fine) in [("cross-site", false), ("same-site", false), ("same-origin", true), ("none", true)] {
            assert_eq!(local("127.0.0.1", &[host, ("Sec-Fetch-Site", site)]), fine, "{site}");
        }
        let nobody = Request::builder().body(Body::empty()).unwrap();
        assert!(!is_local(&nobody), "nobody knows who asks");
    }
}
