//! What an endpoint is: the table that the router, the OpenAPI document and its test are made from.

use axum::Router;
use axum::http::{Method, StatusCode};
use axum::routing::MethodRouter;

use crate::access::Gate;
use crate::desk::Desk;

/// What a call may do to the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Changes nothing.
    Read,
    /// Removes, moves or configures something: the token and the address for such calls apply.
    Write,
}

/// A parameter of the query.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// `string`, `integer` or `boolean`.
    pub kind: &'static str,
    /// Whether a call without it is refused or finds nothing.
    pub required: bool,
    /// For people.
    pub about: &'static str,
}

impl Parameter {
    /// One that must be there.
    pub const fn required(name: &'static str, kind: &'static str, about: &'static str) -> Parameter {
        Parameter { name, kind, required: true, about }
    }

    /// One that may be left out.
    pub const fn optional(name: &'static str, kind: &'static str, about: &'static str) -> Parameter {
        Parameter { name, kind, required: false, about }
    }
}

/// The tenant that a call is about.
pub(crate) const TENANT: Parameter = Parameter::optional(
    "tenant_id",
    "string",
    "Tenant; absent or empty: the default one. Ignored without multi-tenancy.",
);

/// A method and a path with what answers there.
pub struct Endpoint {
    /// `GET`, `POST`, `PUT` or `DELETE`; a `GET` answers `HEAD` too.
    pub method: Method,
    /// The path, without parameters in it.
    pub path: &'static str,
    /// What it may do.
    pub access: Access,
    /// For people.
    pub about: &'static str,
    /// Parameters of the query.
    pub parameters: &'static [Parameter],
    /// An example of a JSON body, for those that take one.
    pub body: Option<&'static str>,
    /// Content type of the answer.
    pub answer: &'static str,
    /// Codes beside 200, each with its meaning.
    pub codes: &'static [(u16, &'static str)],
    pub(crate) handler: MethodRouter<Desk>,
}

/// Content type of JSON, as the peer says it.
pub(crate) const JSON: &str = "application/json; charset=utf-8";
/// Content type of texts in the peer's older answers.
pub(crate) const TEXT: &str = "text/plain; version=0.0.4";
/// Content type of single words.
pub(crate) const WORD: &str = "text/plain; charset=utf-8";

impl Endpoint {
    /// One that reads, without parameters, answering JSON.
    pub(crate) fn read(path: &'static str, about: &'static str, handler: MethodRouter<Desk>) -> Endpoint {
        Endpoint {
            method: Method::GET,
            path,
            access: Access::Read,
            about,
            parameters: &[],
            body: None,
            answer: JSON,
            codes: &[],
            handler,
        }
    }

    /// One that changes something.
    pub(crate) fn write(
        method: Method,
        path: &'static str,
        about: &'static str,
        handler: MethodRouter<Desk>,
    ) -> Endpoint {
        Endpoint { method, access: Access::Write, ..Endpoint::read(path, about, handler) }
    }

    pub(crate) fn parameters(mut self, parameters: &'static [Parameter]) -> Endpoint {
        self.parameters = parameters;
        self
    }

    pub(crate) fn body(mut self, example: &'static str) -> Endpoint {
        self.body = Some(example);
        self
    }

    pub(crate) fn answers(mut self, content_type: &'static str) -> Endpoint {
        self.answer = content_type;
        self
    }

    pub(crate) fn codes(mut self, codes: &'static [(u16, &'static str)]) -> Endpoint {
        self.codes = codes;
        self
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// A router of these endpoints, with a gate before those that change something; every other path or method answers as
/// the peer does.
pub(crate) fn router(endpoints: Vec<Endpoint>, gate: &Gate) -> Router<Desk> {
    let add = |router: Router<Desk>, endpoint: Endpoint| match endpoint.access {
        Access::Read => router.route(endpoint.path, endpoint.handler),
        Access::Write => router.route(endpoint.path, gate.before(endpoint.handler)),
    };
    endpoints
        .into_iter()
        .fold(Router::new(), add)
        .fallback(async || (StatusCode::NOT_FOUND, "404 Not Found"))
        .method_not_allowed_fallback(async || (StatusCode::NOT_FOUND, "404 Not Found"))
}
